/* Safetensors and files when system calls and allocations fail, and where links are planted. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"
#include "formats_util.h"

/* Opens the sample with its tensors in memory, or opens it without and reads them into `room`, where they are then. */
static mirt_status read_sample(mirt__safetensors *file, bool streamed, unsigned char *room) {
    mirt_status status = streamed ? mirt__safetensors_open_streamed(file, path) : mirt__safetensors_open(file, path);
    if (status != MIRT_OK || !streamed) return status;
    for (int i = 0; status == MIRT_OK && i < file->count; i++) {
        status = mirt__safetensor_copy(file, &file->tensor[i], room + file->tensor[i].at);
        file->tensor[i].data = room + file->tensor[i].at;
    }
    if (status != MIRT_OK) mirt__safetensors_close(file);
    return status;
}

static void test_short_transfers(void) {
    mirt__safetensors_content content = sample();
    mirt__safetensors file;
    unsigned char room[4096];
    transfer_limit = 7;
    ok(mirt__safetensors_write(path, &content) == MIRT_OK, "7 bytes per call");
    for (int streamed = 0; streamed < 2; streamed++) {
        ok(read_sample(&file, streamed, room) == MIRT_OK && file.data_size <= sizeof room && is_sample(&file),
           "and as many are read%s", streamed ? " from a file that stays open" : "");
        mirt__safetensors_close(&file);
    }
    transfer_limit = 0;
    call_errno = EINTR;
    for (int streamed = 0; streamed < 2; streamed++) {
        int k = 0, wrong = 0;
        do {
            calls_left = ++k;
            wrong += mirt__safetensors_write(path, &content) != MIRT_OK && strcmp(last_call, "rename") != 0;
            if (read_sample(&file, streamed, room) != MIRT_OK || !is_sample(&file)) wrong++;
            mirt__safetensors_close(&file);
        } while (calls_left <= 0);
        calls_left = 0;
        ok(k > 10 && wrong == 0 && open_files == 0, "each of %d calls interrupted once", k - 1);
    }
}

static void test_io_failures(void) {
    static const char old[] = "what was there before";
    static const int reasons[] = {EIO, ENOSPC, EACCES};
    mirt__safetensors_content content = sample();
    mirt__safetensors file;
    size_t size;
    for (int r = 0; r < MIRT__COUNT(reasons); r++) {
        char seen[256] = "";
        call_errno = reasons[r];
        for (int k = 1;; k++) {
            spill(old, sizeof old);
            calls_left = k;
            mirt_status status = mirt__safetensors_write(path, &content);
            bool done = calls_left > 0;
            calls_left = 0;
            unsigned char *bytes = slurp(&size);
            bool is_old = size == sizeof old && !memcmp(bytes, old, size);
            free(bytes);
            bool is_new = mirt__safetensors_open(&file, path) == MIRT_OK && is_sample(&file);
            if (is_new) mirt__safetensors_close(&file);
            bool intact = live_blocks == 0 && open_files == 0 && temporaries() == 0;
            if (done) {
                ok(status == MIRT_OK && is_new && intact && k > 10, "errno %d: %d calls failed, the last run succeeds",
                   reasons[r], k - 1);
                break;
            }
            /* Once renamed, the file is the new one: only its directory's sync or close can fail still. */
            bool late = strstr(seen, "rename") != NULL;
            bool harmless =
                (late && !strcmp(last_call, "close")) || (!strcmp(last_call, "open") && reasons[r] == EACCES && is_new);
            if (harmless) ok(status == MIRT_OK && is_new && intact, "call %d, %s, does not matter", k, last_call);
            else ok(status == MIRT_E_IO && (late ? is_new : is_old) && intact, "call %d, %s, fails", k, last_call);
            size_t used = strlen(seen);
            snprintf(seen + used, sizeof seen - used, "%s ", last_call);
        }
        ok(strstr(seen, "open") && strstr(seen, "write") && strstr(seen, "fsync") && strstr(seen, "close") &&
               strstr(seen, "rename"),
           "calls that failed: %s", seen);
    }
    call_errno = EIO;
    for (int k = 1, streamed = 0; streamed < 2; k++) {
        unsigned char room[4096];
        calls_left = k;
        mirt_status status = read_sample(&file, streamed, room);
        bool done = calls_left > 0;
        calls_left = 0;
        bool closing = !done && !strcmp(last_call, "close");
        ok(status == (done || closing ? MIRT_OK : MIRT_E_IO), "reading%s, call %d: %s", streamed ? " later" : "", k,
           status ? mirt_last_error() : "fine");
        if (status == MIRT_OK) mirt__safetensors_close(&file);
        ok(live_blocks == 0 && open_files == 0, "nothing leaks");
        if (!done) continue;
        ok(k > (streamed ? 8 : 4), "reading has %d calls that may fail", k - 1);
        k = 0;
        streamed++;
    }
}

/* Links planted where files are written: what they point to stays as it is. */
static void test_planted(void) {
    char victim[600], link[600], name[700], text[64] = "";
    size_t size;
    snprintf(victim, sizeof victim, "%s/victim", directory);
    snprintf(link, sizeof link, "%s/link", directory);
    ok(mirt_write_file(victim, "precious", 8) == MIRT_OK && symlink(victim, link) == 0, "a file, and a link to it");
    const int fd = mirt_create_temporary(link, name, sizeof name), other = mirt_create_temporary(link, name + 350, 350);
    struct stat info;
    ok(fd >= 0 && other >= 0 && strcmp(name, name + 350) != 0 && strncmp(name, link, strlen(link)) == 0 &&
           lstat(name, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0 && (info.st_mode & 0777) == 0600,
       "temporary files have names of their own: %s", strrchr(name, '/'));
    close(fd);
    close(other);
    open_files -= 2;
    ok(unlink(name) == 0 && unlink(name + 350) == 0, "and are the caller's to remove");
    ok(mirt_create_temporary(link, name, strlen(link) + 47) == -1 && says("the name needs") && !name[0], "%s",
       mirt_last_error());
    ok(mirt_create_temporary(NULL, name, sizeof name) == -1 && mirt_create_temporary(link, NULL, 0) == -1, "%s",
       mirt_last_error());
    snprintf(name, sizeof name, "%s/none/a", directory);
    char place[700];
    ok(mirt_create_temporary(name, place, sizeof place) == -1 && errno == ENOENT && says(name), "%s",
       mirt_last_error());
    mirt__appender log;
    ok(mirt__append_open(&log, link, 0) == MIRT_E_IO && says("symbolic link"), "a log: %s", mirt_last_error());
    ok(mirt_write_file(link, "new", 3) == MIRT_OK && lstat(link, &info) == 0 && S_ISREG(info.st_mode),
       "a file that is replaced replaces the link itself");
    FILE *file = fopen(victim, "rb");
    size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    ok(size == 8 && memcmp(text, "precious", 8) == 0, "what it pointed to is as it was");
    ok(unlink(link) == 0 && symlink("/dev/null", link) == 0 && mirt__append_open(&log, link, 0) == MIRT_OK &&
           mirt__append(&log, "x", 1) == MIRT_OK && mirt__append_close(&log) == MIRT_OK,
       "a log follows a link to a device: %s", mirt_last_error());
    ok(mirt_write_file(link, NULL, 1) != MIRT_OK && mirt_write_file(NULL, "x", 1) != MIRT_OK &&
           mirt_write_file(victim, NULL, 0) == MIRT_OK && stat(victim, &info) == 0 && info.st_size == 0,
       "an empty file, and no data");
    unlink(link);
    unlink(victim);
    ok(live_blocks == 0 && open_files == 0 && temporaries() == 0, "nothing leaks");
}

/* As above, but the link appears at the very name that was drawn, just before the file is created. */
static void test_planted_in_time(void) {
    char victim[600], nothing[600], beside[600], name[700], text[64] = "";
    struct stat info;
    snprintf(victim, sizeof victim, "%s/victim", directory);
    snprintf(nothing, sizeof nothing, "%s/nothing", directory);
    snprintf(beside, sizeof beside, "%s/beside", directory);
    bool good = mirt_write_file(victim, "precious", 8) == MIRT_OK && chmod(victim, 0640) == 0;
    for (int how = 0; how < 4; how++) {
        trap = how < 2 ? victim : nothing; /* a link to nothing is one to a file that would be created */
        trapped[0] = second_name[0] = 0;
        int fd = -1;
        if (how % 2) good = good && mirt_write_file(beside, "new", 3) == MIRT_OK;
        else
            good = good && (fd = mirt_create_temporary(beside, name, sizeof name)) >= 0 &&
                   strcmp(name, second_name) == 0 && lstat(name, &info) == 0 && S_ISREG(info.st_mode);
        if (fd >= 0) {
            good = good && pwrite(fd, "new", 3, 0) == 3 && unlink(name) == 0;
            close(fd);
            open_files--;
        }
        trap = NULL;
        FILE *file = fopen(victim, "rb");
        const size_t size = file ? fread(text, 1, sizeof text, file) : 0;
        if (file) fclose(file);
        good = good && size == 8 && memcmp(text, "precious", 8) == 0 && stat(victim, &info) == 0 &&
               (info.st_mode & 0777) == 0640 && access(nothing, F_OK) != 0;
        good = good && second_name[0] && strcmp(trapped, second_name) != 0 && lstat(trapped, &info) == 0 &&
               S_ISLNK(info.st_mode);
        ok(good, "%s, a link to %s planted in time: another name is taken%s%s",
           how % 2 ? "mirt_write_file" : "mirt_create_temporary", how < 2 ? "a file" : "nothing",
           good ? "" : ", tried second: ", good ? "" : second_name);
        unlink(trapped);
        good = true;
    }
    unlink(beside);
    unlink(victim);
    unlink(nothing);
    ok(live_blocks == 0 && open_files == 0 && temporaries() == 0, "nothing leaks");
}

static void test_allocation_failures(void) {
    static const char old[] = "old";
    mirt__safetensors_content content = sample();
    mirt__safetensors file;
    size_t size;
    int wrong = 0, k;
    for (k = 1;; k++) {
        spill(old, sizeof old);
        allocations_left = k;
        mirt_status status = mirt__safetensors_write(path, &content);
        bool done = allocations_left > 0;
        allocations_left = 0;
        unsigned char *bytes = slurp(&size);
        free(bytes);
        wrong += live_blocks != 0 || open_files != 0 || temporaries() != 0;
        if (done) {
            wrong += status != MIRT_OK;
            break;
        }
        wrong += status != MIRT_E_NOMEM || size != sizeof old || mirt_last_status() != status;
    }
    ok(wrong == 0 && k > 5, "writing: each of %d allocations fails", k - 1);
    wrong = 0;
    for (int streamed = 0; streamed < 2; streamed++) {
        unsigned char room[4096];
        for (k = 1;; k++) {
            allocations_left = k;
            mirt_status status = read_sample(&file, streamed, room);
            bool done = allocations_left > 0;
            allocations_left = 0;
            if (done) {
                wrong += status != MIRT_OK || !is_sample(&file);
                mirt__safetensors_close(&file);
                break;
            }
            wrong += status != MIRT_E_NOMEM || mirt_last_status() != status || live_blocks != 0 || open_files != 0;
        }
        ok(wrong == 0 && k > 50 && live_blocks == 0, "reading%s: each of %d allocations fails",
           streamed ? " later" : "", k - 1);
    }
}

int main(void) {
    if (!make_directory()) return done_testing();
    test_short_transfers();
    test_io_failures();
    test_planted();
    test_planted_in_time();
    test_allocation_failures();
    unlink(path);
    ok(rmdir(directory) == 0, "nothing is left in %s", directory);
    return done_testing();
}
