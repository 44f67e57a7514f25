/* Ctrl-C and signals: a fit finishes its step before it ends. */
#include "posix.h"
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int asking[] = {SIGINT, SIGTERM, SIGHUP};
enum { ASKING = sizeof asking / sizeof asking[0] };
static struct sigaction before[ASKING];
static bool taken[ASKING];
static mirt_model *volatile trained;
static volatile sig_atomic_t asked;

static void on_signal(int number) {
    static const char text[] = "\nfinishing the step; a second signal ends at once\n";
    const int code = errno; /* errno of the interrupted code */
    struct pollfd err = {2, POLLOUT, 0};
    asked = number;
    signal(SIGPIPE, SIG_IGN); /* Ctrl-C also ends the reader of a pipe, and the checkpoint has yet to be written */
    for (int i = 0; i < ASKING; i++) {
        if (taken[i]) signal(asking[i], SIG_DFL);
    }
    mirt_request_stop(trained);
    /* A full pipe without a reader would block the handler and with it the second signal. */
    const ssize_t wrote = is_first() && poll(&err, 1, 0) == 1 ? write(2, text, sizeof text - 1) : 0;
    (void)wrote;
    errno = code;
}

void catch_signals(mirt_model *model) {
    struct sigaction stop;
    memset(&stop, 0, sizeof stop);
    stop.sa_handler = on_signal;
    stop.sa_flags = SA_RESTART;
    sigemptyset(&stop.sa_mask);
    for (int i = 0; i < ASKING; i++) sigaddset(&stop.sa_mask, asking[i]); /* blocks the second signal while the first
                                                                             handler runs */
    trained = model;
    for (int i = 0; i < ASKING; i++) {
        /* nohup ignores SIGHUP */
        taken[i] = sigaction(asking[i], NULL, &before[i]) == 0 && before[i].sa_handler == SIG_DFL;
        if (taken[i]) sigaction(asking[i], &stop, NULL);
    }
}

void release_signals(void) {
    for (int i = 0; i < ASKING; i++) {
        if (taken[i]) signal(asking[i], SIG_DFL);
        taken[i] = false;
    }
    trained = NULL;
}

int caught_signal(void) { return asked; }

const char *name_of_signal(int number) {
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
}

/* A word quoted for a shell. */
static void add_word(char *out, size_t size, const char *word) {
    const char *plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
    size_t used = strlen(out);
    if (*word && word[strspn(word, plain)] == 0) {
        snprintf(out + used, size - used, "%s%s", used ? " " : "", word);
        return;
    }
    snprintf(out + used, size - used, "%s'", used ? " " : "");
    for (const char *at = word; *at; at++) {
        used = strlen(out);
        snprintf(out + used, size - used, *at == '\'' ? "'\\''" : "%c", *at);
    }
    used = strlen(out);
    snprintf(out + used, size - used, "'");
}

/* A command with characters that a line cannot show, such as a newline in a name, is printed as a line that evaluates
   to it. */
static char *one_line(const char *words) {
    const size_t size = 5 * strlen(words) + 32;
    char *text = (char *)malloc(size);
    if (!text) return NULL;
    size_t used = (size_t)snprintf(text, size, "eval \"$(printf %%b '");
    for (const unsigned char *at = (const unsigned char *)words; *at; at++) {
        const bool plain = *at >= ' ' && *at < 127 && *at != '\'' && *at != '\\' && *at != '!';
        used += (size_t)snprintf(text + used, size - used, plain ? "%c" : "\\0%03o", *at);
    }
    snprintf(text + used, size - used, "')\"");
    return text;
}

char *resume_command(const options *o) {
    char start[64];
    start_words(start, sizeof start);
    size_t size = sizeof start + sizeof " --resume";
    for (int i = 0; i < o->argc; i++) size += 4 * strlen(o->argv[i]) + 4;
    char *text = (char *)calloc(size, 1);
    if (text) snprintf(text, size, "%s", start);
    for (int i = 0; text && i < o->argc; i++) {
        if (strcmp(o->argv[i], "--overwrite") != 0) add_word(text, size, o->argv[i]);
    }
    if (text && !o->resume) add_word(text, size, "--resume");
    if (!text || mirt_printable(text, NULL, 0) == strlen(text)) return text;
    char *line = one_line(text);
    free(text);
    return line;
}
