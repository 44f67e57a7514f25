/* The directory of a run: checkpoints, logs and resuming. */
#include "posix.h"
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { LOGGED_STEPS = 10 }; /* logs have a line every 10 steps */

/* Creates DIR and its parent directories. */
static bool make_directories(const char *path) {
    char part[4096];
    struct stat info;
    if (strlen(path) >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    strcpy(part, path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(part, 0777); /* an error also affects the last directory, which is checked */
        *slash = '/';
    }
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode))) return true;
    if (errno == EEXIST) errno = ENOTDIR;
    return false;
}

/* A flag that requires --run, or NULL. */
static const char *flag_of_runs(const options *o) {
    return o->checkpoint_every ? "checkpoint-every" : o->keep ? "keep" : o->resume ? "resume"
           : o->overwrite ? "overwrite" : o->tensorboard ? "tensorboard" : o->report ? "report" : NULL;
}

typedef struct {
    const char *start, *end; /* of their names */
} file_kind;

static const file_kind checkpoints = {"ckpt_", ".safetensors"}, parts_of_pages = {"report.html.", ".tmp"};

/* Finds, or removes, a run's regular files of a kind. Returns their number and the last one's name. */
static int find_files(const char *directory, file_kind kind, bool clear, char name[256]) {
    const size_t start = strlen(kind.start), end = strlen(kind.end);
    int found = 0;
    DIR *stream = opendir(directory);
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
        struct stat info;
        const size_t length = strlen(entry->d_name);
        if (length <= start + end || length >= 256) continue;
        if (strncmp(entry->d_name, kind.start, start) != 0) continue;
        if (strcmp(entry->d_name + length - end, kind.end) != 0) continue;
        if (fstatat(dirfd(stream), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) continue;
        if (clear && unlinkat(dirfd(stream), entry->d_name, 0) != 0) continue;
        if (!found++ || strcmp(name, entry->d_name) < 0) memcpy(name, entry->d_name, length + 1);
    }
    if (stream) closedir(stream);
    return found;
}

/* A new run next to checkpoints of another one would later resume from those. */
static bool refuse_earlier(const options *o) {
    char name[256];
    if (o->resume || o->overwrite || !find_files(o->run, checkpoints, false, name)) return false;
    complain(
        "--run %s: %s belongs to an earlier run: --resume continues that run, --overwrite removes it and starts over",
        o->run, name);
    return true;
}

/* Two runs would overwrite each other's checkpoints and log. The lock ends with its process, however that ends; without
   file locks there is no check. */
static bool lock_run(const char *directory, int *lock) {
    char path[4200];
    struct flock whole;
    struct stat held, there;
    snprintf(path, sizeof path, "%s/.lock", directory);
    for (int tries = 0; tries < 10; tries++) {
        memset(&whole, 0, sizeof whole);
        whole.l_type = F_WRLCK;
        whole.l_whence = SEEK_SET;
        *lock = open_lock(path);
        if (*lock < 0) {
            complain("--run %s: cannot open %s: %s", directory, path, reason_of(errno));
            return false;
        }
        if (fcntl(*lock, F_SETLK, &whole) != 0 && (errno == EACCES || errno == EAGAIN)) {
            if (fcntl(*lock, F_GETLK, &whole) != 0) whole.l_pid = 0;
            close(*lock);
            complain("--run %s: another run, process %ld, is using this directory", directory, (long)whole.l_pid);
            return false;
        }
        if (fstat(*lock, &held) != 0 || (stat(path, &there) == 0 && held.st_ino == there.st_ino)) return true;
        close(*lock); /* its owner has just removed it */
    }
    return *lock = -1, true;
}

bool begin_run(const options *o, int *lock, int *status) {
    char path[4200], part[256];
    probe p;
    *lock = -1;
    if (!o->run && flag_of_runs(o)) {
        complain("--%s needs the directory of a run: --run DIR", flag_of_runs(o));
        *status = EXIT_USAGE;
        return false;
    }
    if (!o->run) return true;
    if (o->resume && o->overwrite) {
        complain("--resume and --overwrite exclude each other: continue the earlier run, or remove it");
        *status = EXIT_USAGE;
        return false;
    }
    if (!make_directories(o->run)) {
        complain("--run %s: cannot create the directory: %s", o->run, strerror(errno));
        return false;
    }
    /* A full disk often has room for a directory entry but not for data. */
    snprintf(path, sizeof path, "%s/.probe", o->run);
    const bool good = !try_to_write(path, 4096, &p);
    if (!good) complain("--run %s: cannot write to the directory: %s", o->run, strerror(p.code));
    if (!good || !lock_run(o->run, lock)) return false;
    if (refuse_earlier(o)) {
        end_run(o, *lock);
        return false;
    }
    find_files(o->run, parts_of_pages, true, part); /* of a process that was killed while it wrote */
    return true;
}

run_owner owner_of_run(const char *directory) {
    char path[4200];
    struct flock whole;
    snprintf(path, sizeof path, "%s/.lock", directory);
    FILE *file = open_to_read(path);
    if (!file) return OWNER_UNKNOWN;
    memset(&whole, 0, sizeof whole);
    whole.l_type = F_RDLCK;
    whole.l_whence = SEEK_SET;
    const bool asked = fcntl(fileno(file), F_GETLK, &whole) == 0;
    fclose(file);
    return !asked ? OWNER_UNKNOWN : whole.l_type == F_UNLCK ? OWNER_GONE : OWNER_RUNNING;
}

void end_run(const options *o, int lock) {
    char path[4200];
    if (lock < 0) return;
    snprintf(path, sizeof path, "%s/.lock", o->run);
    remove(path);
    close(lock);
}

static bool add_callback(run_callbacks *callbacks, mirt_fit_desc *desc, mirt_callback *callback) {
    int at = 0;
    if (!callback) return complain_of_library(), false;
    while (desc->callbacks[at]) at++;
    desc->callbacks[at] = callbacks->list[callbacks->count++] = callback;
    return true;
}

static mirt_callback *run_checkpoints(const options *o) {
    mirt_model_checkpoint_desc d;
    char path[2 * 4096 + 32];
    size_t used = 0;
    memset(&d, 0, sizeof d);
    for (const char *at = o->run; *at && used < 2 * 4096; at++) { /* braces have a meaning in path patterns */
        path[used++] = *at;
        if (*at == '{' || *at == '}') path[used++] = *at;
    }
    snprintf(path + used, sizeof path - used, "/ckpt_{step:08d}.safetensors");
    d.path = path;
    d.every_steps = o->checkpoint_every;
    d.keep = o->keep ? (int)o->keep : 3;
    d.at_end = true;
    return mirt_model_checkpoint(&d);
}

static mirt_callback *run_log(const options *o) {
    mirt_json_logger_desc d;
    char path[4200];
    memset(&d, 0, sizeof d);
    snprintf(path, sizeof path, "%s/log.jsonl", o->run);
    d.path = path;
    d.steps = LOGGED_STEPS;
    return mirt_json_logger(&d);
}

static mirt_callback *run_tensorboard(const options *o) {
    mirt_tensorboard_desc d;
    char path[4200];
    memset(&d, 0, sizeof d);
    snprintf(path, sizeof path, "%s/tensorboard", o->run);
    d.log_dir = path;
    d.update_freq = LOGGED_STEPS;
    d.histogram_freq = 1;
    d.write_images = true;
    return mirt_tensorboard(&d);
}

static mirt_callback *run_early_stopping(const options *o) {
    mirt_early_stopping_desc d;
    memset(&d, 0, sizeof d);
    d.patience = (int)o->early_stopping;
    d.restore_best_weights = true;
    return mirt_early_stopping(&d);
}

bool open_run(const options *o, mirt_fit_desc *desc, run_callbacks *callbacks) {
    char name[256];
    memset(callbacks, 0, sizeof *callbacks);
    const bool stops = chosen(o->on_nan, "stop"), watches = stops || chosen(o->on_nan, "warn");
    bool good = !watches || add_callback(callbacks, desc, mirt_terminate_on_nan(stops ? MIRT_NAN_STOP : MIRT_NAN_WARN));
    if (o->swap_ema) good = good && add_callback(callbacks, desc, mirt_swap_ema_weights(true));
    if (o->early_stopping) good = good && add_callback(callbacks, desc, run_early_stopping(o));
    if (o->run && o->tensorboard) good = good && add_callback(callbacks, desc, run_tensorboard(o));
    if (o->run)
        good = good && add_callback(callbacks, desc, run_log(o)) && add_callback(callbacks, desc, run_checkpoints(o));
    if (o->run && o->resume) desc->resume = o->run;
    else if (o->run && o->overwrite && good && is_first()) {
        char report[4200];
        const int removed = find_files(o->run, checkpoints, true, name);
        snprintf(report, sizeof report, "%s/report.html", o->run);
        remove(report);
        if (removed) note("--overwrite: removed %d checkpoint%s of an earlier run", removed, removed == 1 ? "" : "s");
    }
    if (!good) close_run(callbacks);
    return good;
}

bool complain_of_resume(const options *o) {
    static const struct {
        const char *words, *unit, *flag, *more;
    } same[] = {
        {"it is of a run with ", " replica", "replicas", ", and at most as many devices"},
        {"it is of a run with global batches of ", " sample", "batch", ""},
        {"it is of a run with steps of ", " batch", "accumulate", ""},
        {"it is of a run with seed ", ",", "seed", ""},
    };
    const char *text = library_sentence();
    if (!o->resume || mirt_last_status() != MIRT_E_STATE) return false;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        const char *at = strstr(text, same[i].words), *number = at ? at + strlen(same[i].words) : "";
        const int digits = (int)strspn(number, "0123456789");
        if (!digits || strncmp(number + digits, same[i].unit, strlen(same[i].unit)) != 0) continue;
        char *words = without_calls(text, NULL);
        complain("%s: give --%s %.*s%s", words ? words : "", same[i].flag, digits, number, same[i].more);
        free(words);
        return true;
    }
    return false;
}

void close_run(run_callbacks *callbacks) {
    while (callbacks->count) mirt_callback_destroy(callbacks->list[--callbacks->count]);
}
