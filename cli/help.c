/* Prints --help: of the program, and of a command with its flags in groups. */
#include "cli.h"
#include "flag_table.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 100, TEXT_AT = 28 };

/* Prints words from column `at` on, `used` columns of the first line being taken. Lines end after words and "|". */
static void print_wrapped(const char *text, int at, int used) {
    int column = used;
    bool space = true;
    while (*text) {
        int length = (int)strcspn(text, " |");
        length += text[length] == '|';
        if (column >= at && column + space + length > WIDTH) {
            printf("\n%*s", at, "");
            column = at;
        } else if (column >= at) {
            printf("%*s", space, "");
            column += space;
        } else {
            printf("%*s", at - column, "");
            column = at;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        space = *text == ' ';
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_flag(const flag *f) {
    char left[64], text[1024];
    const bool name = f->kind == FLAG_NAME;
    const int used = snprintf(left, sizeof left, "  --%s%s%s", f->name, f->value ? " " : "",
                              name ? "NAME" : f->value ? f->value : "");
    const int most = (int)sizeof left - 1, shown = used < most ? used : most;
    snprintf(text, sizeof text, "%s%s%s", name ? f->value : "", name ? ": " : "", f->help);
    fputs(left, stdout);
    if (shown + 2 > TEXT_AT) putchar('\n');
    print_wrapped(text, TEXT_AT, shown + 2 > TEXT_AT ? 0 : shown);
}

static void print_flags(const command *c) {
    const char *group = NULL;
    for (int i = 0; i < flag_count; i++) {
        const flag *f = &flags[i];
        if (!f->name) group = f->help;
        if (!f->name || !f->help || !(f->commands & c->bit)) continue;
        if (group) printf("\n%s\n", group);
        group = NULL;
        print_flag(f);
    }
}

void print_help(FILE *out) {
    fputs("mirrortrain " MIRT_VERSION_STRING " - train image networks, mirrored over all devices of a machine\n\n"
          "  mirrortrain fit                                   learn digits, in a few seconds\n"
          "  mirrortrain fit --model mobilenet_v2 --data DIR   learn the photographs in DIR\n"
          "  mirrortrain doctor                                check this machine\n\n"
          "usage: mirrortrain COMMAND [FLAGS]\n\n", out);
    for (int i = 0; i < command_count; i++) fprintf(out, "  %-18s %s\n", commands[i].name, commands[i].purpose);
    fputs("\n  COMMAND --help     examples and flags of a command\n"
          "  --help             show this\n"
          "  --version          show the version\n\n"
          "Results go to stdout, everything else to stderr.\n"
          "Exit status: 0 success; 1 the job failed; 2 the command line is wrong; 128 + N: ended by signal N.\n"
          "Ctrl-C, SIGTERM and SIGHUP let fit finish its step. With --run it then writes a checkpoint and\n"
          "--report, and prints the command that resumes; without --run it writes --save, if given. A second\n"
          "signal ends it at once.\n",
          out);
}

void print_command_help(const command *c) {
    const int used = printf("mirrortrain %s%s%s -", c->name, c->operands ? " [FLAGS] " : "",
                            c->operands ? c->operands : "");
    print_wrapped(c->purpose, 4, used);
    printf("\n%s", c->examples);
    print_flags(c);
}
