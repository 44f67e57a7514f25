/* Simulated power failures: unsynced writes and directory entries are lost, torn or reordered.
   In every state the newest finished checkpoint is found, and the run resumed from it ends as the uninterrupted run. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* >>what a run does to the disk */

enum { MOST_OPS = 4000, MOST_INODES = 400, MOST_FDS = 256, SECTOR = 512 };
typedef enum op_kind { OP_ENTER, OP_LEAVE, OP_WRITE, OP_TRUNCATE, OP_SYNC, OP_FINISHED } op_kind;

typedef struct op {
    op_kind kind;
    int inode;                /* what is written, synced, or named; a directory has one too */
    int directory,
        other; /* OP_ENTER: `inode` becomes `name` of it, and is no longer `old` of `other` (-1: it was in none) */
    char name[64], old[64];
    int64_t offset;           /* or a size, or the step of the checkpoint that is finished */
    size_t size;
    unsigned char *data;
} op;

static op ops[MOST_OPS];
static int num_ops, num_inodes, fd_inode[MOST_FDS];
static bool recording, is_directory[MOST_INODES];
static char path_of[MOST_INODES][64]; /* names in force while recording; "" for none */
static int64_t renamed_step;          /* of the checkpoint renamed last */

static op *new_op(op_kind kind, int inode) {
    if (num_ops == MOST_OPS) abort();
    op *o = &ops[num_ops++];
    memset(o, 0, sizeof *o);
    o->kind = kind;
    o->inode = inode;
    o->directory = o->other = -1;
    return o;
}

static int inode_of(const char *path) {
    for (int i = 0; i < num_inodes; i++) {
        if (strcmp(path_of[i], path) == 0) return i;
    }
    return -1;
}

/* The directory's number, and the last part of the name. */
static int directory_of(const char *path, char name[64]) {
    char parent[64] = ".";
    const char *slash = strrchr(path, '/');
    if (slash) snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    snprintf(name, 64, "%.63s", slash ? slash + 1 : path);
    const int directory = inode_of(parent);
    if (directory < 0) abort();
    return directory;
}

static int new_inode(const char *path, bool directory) {
    if (num_inodes == MOST_INODES) abort();
    const int inode = num_inodes++;
    snprintf(path_of[inode], sizeof path_of[inode], "%.63s", path);
    is_directory[inode] = directory;
    if (strcmp(path, ".") == 0) return inode;
    op *o = new_op(OP_ENTER, inode);
    o->directory = directory_of(path, o->name);
    return inode;
}

int hook_open(const char *path, int flags, unsigned mode) {
    const bool there = access(path, F_OK) == 0;
    const int fd = open(path, flags, mode);
    if (!recording || fd < 0 || path[0] == '/') return fd;
    int inode = inode_of(path);
    if (inode < 0 && (flags & O_CREAT) && !there) inode = new_inode(path, false);
    if (fd >= MOST_FDS) abort();
    fd_inode[fd] = inode;
    return fd;
}
int hook_close(int fd) {
    if (recording && fd < MOST_FDS) fd_inode[fd] = -1;
    return close(fd);
}
ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t offset) {
    if (recording && fd_inode[fd] >= 0) {
        op *o = new_op(OP_WRITE, fd_inode[fd]);
        o->offset = offset;
        o->size = size;
        o->data = (unsigned char *)malloc(size + 1);
        memcpy(o->data, data, size);
    }
    return pwrite(fd, data, size, offset);
}
int hook_ftruncate(int fd, off_t size) {
    if (recording && fd_inode[fd] >= 0) new_op(OP_TRUNCATE, fd_inode[fd])->offset = size;
    return ftruncate(fd, size);
}
int hook_fsync(int fd) { /* the disk of this machine is not what is tested */
    if (recording && fd_inode[fd] >= 0) new_op(OP_SYNC, fd_inode[fd]);
    return 0;
}
int hook_mkdir(const char *path, unsigned mode) {
    const int result = mkdir(path, mode);
    if (recording && result == 0) new_inode(path, true);
    return result;
}
int hook_unlink(const char *path) {
    const int result = unlink(path), inode = recording && result == 0 ? inode_of(path) : -1;
    if (inode < 0) return result;
    op *o = new_op(OP_LEAVE, inode);
    o->other = directory_of(path, o->old);
    path_of[inode][0] = 0;
    return result;
}
int hook_rename(const char *from, const char *to) {
    const int result = rename(from, to);
    if (!recording || result != 0) return result;
    const int inode = inode_of(from), replaced = inode_of(to);
    if (inode < 0) abort();
    op *o = new_op(OP_ENTER, inode);
    o->other = directory_of(from, o->old);
    o->directory = directory_of(to, o->name);
    if (replaced >= 0) path_of[replaced][0] = 0;
    snprintf(path_of[inode], sizeof path_of[inode], "%.63s", to);
    const char *step = strstr(to, "ckpt_");
    if (step) renamed_step = atoi(step + 5);
    return result;
}

/* >>what is left of it */

typedef struct disk {
    struct {
        int inode; /* -1: there is no such entry */
        int directory;
        char name[64];
    } entry[MOST_INODES];
    int entries;
    unsigned char *data[MOST_INODES];
    size_t size[MOST_INODES];
} disk;

/* Which syncs count: a test of the test. */
typedef enum trust { ALL_SYNCS, NO_FILE_SYNCS, NO_DIRECTORY_SYNCS } trust;

static int last_sync(int inode, int until, trust t) {
    if (t == NO_FILE_SYNCS && !is_directory[inode]) return -1;
    if (t == NO_DIRECTORY_SYNCS && is_directory[inode]) return -1;
    for (int i = until - 1; i >= 0; i--) {
        if (ops[i].kind == OP_SYNC && ops[i].inode == inode) return i;
    }
    return -1;
}

static void disk_resize(disk *d, int inode, size_t size) {
    if (size > d->size[inode]) {
        d->data[inode] = (unsigned char *)realloc(d->data[inode], size + 1);
        memset(d->data[inode] + d->size[inode], 0, size - d->size[inode]);
    }
    d->size[inode] = size;
}

/* `torn`: of each sector it is left to chance whether it is stored. */
static void disk_write(disk *d, const op *o, bool torn, mirt__random *random) {
    const size_t end = (size_t)o->offset + o->size;
    if (end > d->size[o->inode]) disk_resize(d, o->inode, end);
    for (size_t at = 0; at < o->size;) {
        size_t piece = SECTOR - ((size_t)o->offset + at) % SECTOR;
        if (piece > o->size - at) piece = o->size - at;
        if (!torn || mirt__random_below(random, 2))
            memcpy(d->data[o->inode] + (size_t)o->offset + at, o->data + at, piece);
        at += piece;
    }
}

static void disk_unname(disk *d, int directory, const char *name, int inode) {
    for (int i = 0; i < d->entries; i++) {
        if (d->entry[i].directory == directory && strcmp(d->entry[i].name, name) == 0 &&
            (inode < 0 || d->entry[i].inode == inode))
            d->entry[i].inode = -1;
    }
}

static void disk_name(disk *d, const op *o) {
    if (o->other >= 0) disk_unname(d, o->other, o->old, o->inode);
    if (o->kind == OP_LEAVE) return;
    disk_unname(d, o->directory, o->name, -1);
    if (d->entries == MOST_INODES) abort();
    d->entry[d->entries].inode = o->inode;
    d->entry[d->entries].directory = o->directory;
    snprintf(d->entry[d->entries++].name, 64, "%s", o->name);
}

static void disk_apply(disk *d, const op *o, bool torn, mirt__random *random) {
    if (o->kind == OP_WRITE) disk_write(d, o, torn, random);
    else if (o->kind == OP_TRUNCATE) disk_resize(d, o->inode, (size_t)o->offset);
    else disk_name(d, o);
}

/* The disk when power fails before operation number `until`. */
static void disk_make(disk *d, int until, trust t, mirt__random *random) {
    static int loose[MOST_OPS], synced[MOST_INODES];
    int count = 0;
    memset(d, 0, sizeof *d);
    for (int i = 0; i < num_inodes; i++) synced[i] = last_sync(i, until, t);
    for (int i = 0; i < until; i++) {
        const op *o = &ops[i];
        if (o->kind == OP_SYNC || o->kind == OP_FINISHED) continue;
        const bool named = o->kind == OP_ENTER || o->kind == OP_LEAVE; /* renames stay within a directory */
        if (i < synced[named ? (o->kind == OP_ENTER ? o->directory : o->other) : o->inode])
            disk_apply(d, o, false, random);
        else loose[count++] = i;
    }
    const int mood =
        (int)mirt__random_below(random, 4); /* all is lost, all is stored, or any of it in order or in disorder */
    for (int i = count - 1; mood == 3 && i > 0; i--) {
        const int k = (int)mirt__random_below(random, (uint32_t)i + 1), was = loose[i];
        loose[i] = loose[k];
        loose[k] = was;
    }
    for (int i = 0; i < count && mood; i++) {
        const uint32_t chance = mood == 1 ? 1 : mirt__random_below(random, 3);
        if (chance) disk_apply(d, &ops[loose[i]], chance == 2, random);
    }
}

/* Puts a directory where a program finds it. */
static bool disk_mount(const disk *d, int directory, const char *root) {
    char path[900];
    bool good = mkdir(root, 0777) == 0;
    for (int i = 0; i < d->entries && good; i++) {
        const int inode = d->entry[i].inode;
        if (inode < 0 || d->entry[i].directory != directory) continue;
        snprintf(path, sizeof path, "%.500s/%s", root, d->entry[i].name);
        if (is_directory[inode]) {
            good = disk_mount(d, inode, path);
            continue;
        }
        FILE *f = fopen(path, "wb");
        good = f && (d->size[inode] == 0 || fwrite(d->data[inode], 1, d->size[inode], f) == d->size[inode]);
        if (f) good = fclose(f) == 0 && good;
    }
    return good;
}

/* >>the run */

enum { SAMPLES = 30, EPOCHS = 3, EVERY = 2 };
static char logged[4096];

static void on_log(mirt_log_level level, const char *text, void *user) {
    (void)level;
    (void)user;
    const size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", text);
}

/* What was renamed before is on the disk for whoever is told of what comes next. */
static int on_batch(const mirt_event *event, void *user) {
    (void)event;
    (void)user;
    if (recording && renamed_step) new_op(OP_FINISHED, 0)->offset = renamed_step;
    return 0;
}

typedef struct outcome {
    bool good;
    char weights[MIRT__SHA256_HEX], csv[MIRT__SHA256_HEX];
} outcome;

static void run(outcome *out) {
    mirt_strategy_desc s;
    mirt_model_checkpoint_desc checkpoint;
    mirt_csv_logger_desc csv;
    mirt_json_logger_desc json;
    mirt_tensorboard_desc board;
    mirt_callback *ready[4], watch;
    mirt_fit_desc fit;
    size_t size;
    memset(out, 0, sizeof *out);
    memset(&s, 0, sizeof s);
    memset(&checkpoint, 0, sizeof checkpoint);
    memset(&csv, 0, sizeof csv);
    memset(&json, 0, sizeof json);
    memset(&board, 0, sizeof board);
    memset(&watch, 0, sizeof watch);
    memset(&fit, 0, sizeof fit);
    s.devices = "1";
    s.replicas = 2;
    s.threads = 1;
    s.seed = 11;
    s.log = on_log;
    mirt_strategy *strategy = mirt_strategy_create(&s);
    mirt_model *m = mirt_model_create(strategy, "small");
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    mirt_model_output(m, named_dense(mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1))), "scores",
                                     IMAGE_CLASSES, MIRT_LINEAR));
    mirt_compile(m, &c);
    checkpoint.path = "run/ckpt_{step}";
    checkpoint.every_steps = EVERY;
    checkpoint.keep = 2;
    csv.path = "run/log.csv";
    json.path = "run/log.jsonl";
    json.steps = 1;
    board.log_dir = "board";
    board.no_graph = true;
    ready[0] = mirt_csv_logger(&csv);
    ready[1] = mirt_json_logger(&json);
    ready[2] = mirt_tensorboard(&board);
    ready[3] = mirt_model_checkpoint(&checkpoint);
    watch.batch_begin = watch.epoch_begin = watch.train_end = on_batch;
    for (int i = 0; i < 4; i++) fit.callbacks[i] = ready[i];
    fit.callbacks[4] = &watch;
    fit.epochs = EPOCHS;
    fit.batch = 8;
    fit.no_progress = true;
    fit.resume = "run";
    out->good = mirt_fit_arrays(m, images_x(0, SAMPLES), images_y(0, SAMPLES), &fit) != NULL;
    digest_weights(m, 0, out->weights);
    char *text = file_bytes("run/log.csv", &size);
    digest_of(text ? text : "", size, out->csv);
    free(text);
    for (int i = 0; i < 4; i++) mirt_callback_destroy(ready[i]);
    mirt_strategy_destroy(strategy);
}

static void remove_tree(const char *path) {
    char below[900];
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(below, sizeof below, "%.500s/%.255s", path, e->d_name);
        remove_tree(below);
    }
    if (d) closedir(d);
    remove(path);
}

/* One state; what is wrong with it, or NULL. */
static const char *check_state(int until, trust t, const outcome *whole, bool resume, mirt__random *random) {
    static char text[700];
    static disk d;
    outcome part;
    char latest[400] = "";
    int64_t least = 0;
    const char *problem = NULL;
    for (int i = 0; i < until; i++) least = ops[i].kind == OP_FINISHED ? ops[i].offset : least;
    disk_make(&d, until, t, random);
    const bool mounted = disk_mount(&d, 0, "crash");
    for (int i = 0; i < num_inodes; i++) free(d.data[i]);
    if (!mounted || chdir("crash") != 0) return "the state cannot be made";
    const mirt_status status = mirt_latest_checkpoint(NULL, "run", latest, sizeof latest);
    const char *step = strstr(latest, "ckpt_");
    if (least && status != MIRT_OK) problem = "no checkpoint is found";
    else if (least && atoi(step + 5) < least) problem = "an older checkpoint is found";
    if (problem)
        snprintf(text, sizeof text, "%s: step %d was finished, there is \"%.60s\": %.300s", problem, (int)least, latest,
                 status == MIRT_OK ? "" : mirt_last_error());
    logged[0] = 0;
    if (!problem && resume) {
        run(&part);
        if (!part.good) problem = "the run cannot be resumed";
        else if (strcmp(part.weights, whole->weights) != 0) problem = "the run ends in other weights";
        else if (strcmp(part.csv, whole->csv) != 0) problem = "log.csv is another one";
        if (problem)
            snprintf(text, sizeof text, "%s, step %d was finished: %.300s", problem, (int)least,
                     part.good ? "" : mirt_last_error());
    }
    if (chdir("..") != 0) return "..";
    remove_tree("crash");
    return problem ? text : NULL;
}

/* How many of so many states are wrong. */
static int check_states(int states, trust t, const outcome *whole, bool resume, const char *told) {
    mirt__random random = mirt__random_stream(5, (uint64_t)t);
    int wrong = 0;
    for (int i = 0; i < states; i++) {
        const int until = i <= num_ops ? i : (int)mirt__random_below(&random, (uint32_t)num_ops + 1);
        const char *problem = check_state(until, t, whole, resume, &random);
        if (problem && !wrong++ && told) printf("# %s: before operation %d of %d: %s\n", told, until, num_ops, problem);
    }
    return wrong;
}

int main(void) {
    outcome whole;
    char here[600];
    const int states = small_tier() ? 300 : 2000;
    draw_images();
    if (!getcwd(here, sizeof here) || chdir(work_directory()) != 0 || mkdir("live", 0777) != 0 || chdir("live") != 0)
        return 1;
    memset(fd_inode, -1, sizeof fd_inode);
    recording = true;
    new_inode(".", true);
    run(&whole);
    recording = false;
    int finished = 0;
    for (int i = 0; i < num_ops; i++) finished += ops[i].kind == OP_FINISHED;
    ok(whole.good && renamed_step == EPOCHS * 4 && finished > 5, "a run of %d operations on files: %s", num_ops,
       whole.good ? "" : mirt_last_error());
    if (chdir("..") != 0) return 1;
    int wrong = check_states(states, ALL_SYNCS, &whole, true, "power fails");
    ok(!wrong, "of %d states after power failed %d lose what was finished", states, wrong);
    ok(check_states(200, NO_FILE_SYNCS, &whole, false, NULL) > 0, "which is noticed if files were not synced");
    ok(check_states(200, NO_DIRECTORY_SYNCS, &whole, false, NULL) > 0, "or directories");
    for (int i = 0; i < num_ops; i++) free(ops[i].data);
    if (chdir(here) != 0) return 1;
    remove_tree(work_directory());
    return done_testing();
}
