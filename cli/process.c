/* Starts this program again as a child process, with more flags. */
#include "posix.h"
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A signal sent to the parent alone, as by kill, ends its child first. */
static const int fatal[] = {SIGINT, SIGTERM, SIGHUP};
enum { FATAL = sizeof fatal / sizeof fatal[0] };
static volatile pid_t running;
static struct sigaction before[FATAL];

static void pass_on(int number) {
    const pid_t child = running;
    if (child > 0) kill(child, number);
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_signals(void) {
    struct sigaction pass;
    memset(&pass, 0, sizeof pass);
    pass.sa_handler = pass_on;
    for (int i = 0; i < FATAL; i++) {
        if (sigaction(fatal[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN)
            sigaction(fatal[i], &pass, NULL);
    }
}

/* The words of this command line and then `more`, up to NULL; to be freed. */
static char **words_of(const options *o, const char *const *more, int count) {
    char **words = (char **)malloc(((size_t)o->argc + (size_t)count + 1) * sizeof *words);
    if (!words) return NULL;
    memcpy(words, o->argv, (size_t)o->argc * sizeof *words);
    for (int i = 0; i < count; i++) words[o->argc + i] = (char *)more[i];
    words[o->argc + count] = NULL;
    return words;
}

bool start_again(const options *o, const char *const *more, int count) {
    static const char self[] = "/proc/self/exe"; /* the same file, even if another one has its name by now */
    char **words = words_of(o, more, count);
    posix_spawnattr_t as;
    sigset_t held, usual;
    pid_t child = -1;
    int code = words ? posix_spawnattr_init(&as) : ENOMEM;
    if (code == 0) {
        sigemptyset(&held);
        for (int i = 0; i < FATAL; i++) sigaddset(&held, fatal[i]);
        sigprocmask(SIG_BLOCK, &held, &usual); /* until the child's id is known */
        posix_spawnattr_setflags(&as, POSIX_SPAWN_SETSIGMASK);
        posix_spawnattr_setsigmask(&as, &usual);
        fflush(stdout);
        fflush(stderr);
        signal(SIGCHLD, SIG_DFL); /* if it is ignored, the status of a child is lost */
        code = access(self, X_OK) == 0 ? posix_spawn(&child, self, NULL, &as, words, environ)
                                       : posix_spawnp(&child, o->argv[0], NULL, &as, words, environ);
        posix_spawnattr_destroy(&as);
        if (code == 0) {
            running = child;
            watch_signals();
        }
        sigprocmask(SIG_SETMASK, &usual, NULL);
    }
    free(words);
    if (code) complain("cannot start a process: %s", strerror(code));
    return code == 0;
}

int wait_for_child(void) {
    int status;
    pid_t ended;
    do ended = waitpid(running, &status, 0);
    while (ended < 0 && errno == EINTR);
    const bool good = ended == running;
    running = 0;
    for (int i = 0; i < FATAL; i++) sigaction(fatal[i], &before[i], NULL);
    if (!good) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
