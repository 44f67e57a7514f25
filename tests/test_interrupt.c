/* The program's handler of Ctrl-C, and the command line that resumes a run. */
#include "../cli/stop.c"
#include "tap.h"

#include <fcntl.h>
#include <sys/wait.h>

/* A program that no launcher started (cli/engine.c). */
bool is_first(void) { return true; }
void start_words(char *out, size_t size) { snprintf(out, size, "%s", ""); }

enum { GOOD = 7, BAD = 8, MOST_SECONDS = 60 };

/* Of a child process that fn runs in with the signals caught: what waitpid says. */
static int in_child(int (*fn)(void)) {
    int status = -1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(MOST_SECONDS); /* a child that hangs is ended by SIGALRM */
        for (int i = 0; i < (int)(sizeof asking / sizeof *asking); i++)
            signal(asking[i], SIG_DFL); /* jobs in the background ignore some */
        catch_signals(NULL);
        _exit(fn());
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

static bool exits_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == GOOD; }
static bool ends_by(int status, int number) { return WIFSIGNALED(status) && WTERMSIG(status) == number; }

static int with_closed_stderr(void) {
    close(2);
    errno = ERANGE;
    raise(SIGINT);
    return errno == ERANGE && caught_signal() == SIGINT ? GOOD : BAD;
}

static int without_reader(void) {
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], 2) != 2) return BAD;
    close(ends[0]);
    raise(SIGTERM);
    return write(2, "x", 1) == -1 && errno == EPIPE && caught_signal() == SIGTERM ? GOOD : BAD;
}

static int fill_stderr(void) {
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], 2) != 2 || fcntl(2, F_SETFL, O_NONBLOCK) != 0) return BAD;
    while (write(2, "x", 1) == 1) {}
    return fcntl(2, F_SETFL, 0) == 0 ? GOOD : BAD;
}

static int with_full_stderr(void) {
    if (fill_stderr() != GOOD) return BAD;
    raise(SIGINT);
    return caught_signal() == SIGINT ? GOOD : BAD;
}

static int twice(void) {
    if (with_full_stderr() != GOOD) return BAD;
    raise(SIGHUP);
    return BAD;
}

static int released(void) {
    release_signals();
    raise(SIGINT);
    return BAD;
}

static int ignored(void) {
    signal(SIGHUP, SIG_IGN);
    catch_signals(NULL);
    release_signals();
    raise(SIGHUP);
    return caught_signal() == 0 ? GOOD : BAD;
}

/* What a shell makes of the command, which prints its words one by one. */
static bool survives(const char *name) {
    const char *const words[] = {"printf", "%s|", "--run", name};
    char wanted[256], got[256];
    options o;
    memset(&o, 0, sizeof o);
    o.argc = 4;
    o.argv = words;
    char *line = resume_command(&o);
    FILE *shell = line ? popen(line, "r") : NULL;
    size_t size = shell ? fread(got, 1, sizeof got - 1, shell) : 0;
    got[size] = 0;
    if (shell) pclose(shell);
    snprintf(wanted, sizeof wanted, "--run|%s|--resume|", name);
    const bool shown = line && mirt_printable(line, NULL, 0) == strlen(line);
    free(line);
    return shown && strcmp(got, wanted) == 0;
}

int main(void) {
    ok(exits_well(in_child(with_closed_stderr)), "the handler leaves errno as it is");
    ok(exits_well(in_child(without_reader)), "a pipe whose reader has ended does not end the program");
    ok(exits_well(in_child(with_full_stderr)), "a full pipe does not hold the handler");
    ok(ends_by(in_child(twice), SIGHUP), "nor a second signal, which ends the program");
    ok(ends_by(in_child(released), SIGINT), "once the signals are released, the first one does");
    ok(exits_well(in_child(ignored)), "ignored signals stay ignored");
    ok(survives("plain") && survives("a b's $HOME \"\\ !x") && survives(""), "the command keeps words");
    ok(survives("\xc3\xa4\xe2\x82\xac"), "UTF-8");
    ok(survives("a\nb\t\033[31m\\0101%s'$HOME !x\n"), "newlines and control characters, in one line");
    ok(survives("\xff\xc3"), "bytes that are no UTF-8");
    return done_testing();
}
