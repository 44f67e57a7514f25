/* Parses the words of a command line by the table of flags. */
#include "flag_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FLAGS = 128 };

/* Edits (insert, delete, replace, swap adjacent letters) from a to b; words longer than 31 are truncated. */
static int distance(const char *a, const char *b) {
    int rows[3][33];
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > 31) n = 31;
    if (m > 31) m = 31;
    for (int j = 0; j <= m; j++) rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int least = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < least) least = last[j] + 1;
            if (now[j - 1] + 1 < least) least = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < least) {
                least = before[j - 2] + 1;
            }
            now[j] = least;
        }
    }
    return rows[n % 3][m];
}

const char *nearest(const char *word, const char *const *names, int count) {
    const char *best = NULL;
    int least = (int)strlen(word) / 2 + 1;
    for (int i = 0; i < count; i++) {
        int d = distance(word, names[i]);
        /* A truncated or extended word is similar to the whole: epoch, epochs. */
        size_t size = strlen(word) < strlen(names[i]) ? strlen(word) : strlen(names[i]);
        if (size >= 3 && strncmp(word, names[i], size) == 0) d = 1;
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

/* Suggests the flag that was probably meant. */
static void complain_of_flag(const command *c, const char *word) {
    const char *names[MAX_FLAGS];
    int count = 0;
    for (int i = 0; i < flag_count; i++) {
        if (!flags[i].name || !flags[i].help || count == MAX_FLAGS) continue;
        if (flags[i].commands & c->bit) {
            names[count++] = flags[i].name;
        } else if (strcmp(flags[i].name, word) == 0) {
            for (int k = 0; k < command_count; k++) {
                if (!(commands[k].bit & flags[i].commands)) continue;
                complain("--%s is a flag of %s, not of %s", word, commands[k].name, c->name);
                return;
            }
        }
    }
    const char *like = nearest(word, names, count);
    if (like) complain("%s has no flag --%s; did you mean --%s?", c->name, word, like);
    else complain("%s has no flag --%s; `mirrortrain %s --help` lists its flags", c->name, word, c->name);
}

static bool parse_count(const char *text, int64_t least, int64_t most, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most) return false;
    *out = value;
    return true;
}

static bool parse_seed(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno) return false;
    *out = value;
    return true;
}

/* A decimal number above 0, up to a comma or the end, where *text then points. */
static bool parse_rate(const char **text, float *out) {
    char *end;
    size_t length = strcspn(*text, ",");
    if (strspn(*text, "0123456789.eE+-") != length) return false;
    float value = strtof(*text, &end);
    if (length == 0 || end != *text + length || !isfinite(value) || value <= 0) return false;
    *text = end;
    *out = value;
    return true;
}

static bool parse_number(const char *text, float *out) { return parse_rate(&text, out) && !*text; }

/* In double precision: a share times the number of files is rounded down. */
static bool parse_share(const char *text, double *out) {
    char *end;
    double value = strtod(text, &end);
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text) || *end || !(value > 0 && value < 1)) return false;
    *out = value;
    return true;
}

/* RATE[,EPOCH:RATE]..., the epochs increasing. */
static bool parse_rates(const char *text, rates *out) {
    out->first[0] = 0;
    out->count = 1;
    if (!parse_rate(&text, &out->rate[0])) return false;
    while (*text) {
        int i = out->count;
        char *end;
        errno = 0;
        if (i == MAX_RATES || *++text < '0' || *text > '9') return false;
        long epoch = strtol(text, &end, 10);
        if (*end != ':' || errno || epoch <= out->first[i - 1] || epoch > INT32_MAX) return false;
        text = end + 1;
        if (!parse_rate(&text, &out->rate[i])) return false;
        out->first[i] = (int)epoch;
        out->count++;
    }
    return true;
}

/* N[,N]...: whole numbers from 1 to `most`. */
static bool parse_batches(const char *text, int64_t most, batches *out) {
    char word[32];
    out->count = 0;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        if (out->count == MAX_BATCHES || length >= sizeof word) return false;
        memcpy(word, text, length);
        word[length] = 0;
        if (!parse_count(word, 1, most, &out->rows[out->count++])) return false;
        text += length;
        if (!*text) return true;
    }
}

/* Bytes, thousands (K), millions (M) or billions (G) of them. */
static bool parse_bytes(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    const double value = strtod(text, &end);
    const char *units = "KMG", *unit = *end ? strchr(units, *end) : NULL;
    if (*text < '0' || *text > '9' || errno || (*end && (!unit || end[1]))) return false;
    const double bytes = value * (!unit ? 1 : unit == units ? 1e3 : unit == units + 1 ? 1e6 : 1e9);
    if (!(bytes >= 1 && bytes <= 1e18)) return false;
    *out = (uint64_t)bytes;
    return true;
}

/* One of the names in a|b|c; *out points into it, so that it ends in | or 0. */
static bool parse_name(const flag *f, const char *text, const char **out) {
    char list[256];
    const char *names[16];
    int count = 0;
    if (strcmp(f->name, "on-nan") == 0 && strcmp(text, "go-on") == 0) text = "ignore"; /* deprecated, until 1.0 */
    snprintf(list, sizeof list, "%s", f->value);
    for (char *at = list; at; count++) {
        names[count] = at;
        at = strchr(at, '|');
        if (at) *at++ = 0;
        if (strcmp(names[count], text) == 0) {
            *out = f->value + (names[count] - list);
            return true;
        }
    }
    /* float16 is not meant to be float32 */
    const char *like = strpbrk(text, "0123456789") ? NULL : nearest(text, names, count);
    if (like) complain("there is no %s \"%s\"; did you mean %s?", f->name, text, like);
    else complain("there is no %s \"%s\"; choose one of %s", f->name, text, f->value);
    return false;
}

static bool set_flag(const flag *f, const char *value, options *o) {
    void *field = (char *)o + f->offset;
    switch (f->kind) {
    case FLAG_SWITCH:
        *(bool *)field = true;
        return true;
    case FLAG_TEXT:
        *(const char **)field = value;
        if (*value) return true;
        complain("--%s is empty; it must be followed by %s", f->name, f->value);
        return false;
    case FLAG_COUNT:
    case FLAG_BOUND: {
        const int64_t least = f->kind == FLAG_COUNT;
        if (parse_count(value, least, f->most, (int64_t *)field)) return true;
        complain("--%s is \"%s\"; it must be a whole number from %lld to %lld", f->name, value, (long long)least,
                 (long long)f->most);
        return false;
    }
    case FLAG_SEED:
        if (parse_seed(value, (uint64_t *)field)) return true;
        complain("--%s is \"%s\"; it must be a whole number from 0 to 2^64 - 1", f->name, value);
        return false;
    case FLAG_NUMBER:
        if (parse_number(value, (float *)field)) return true;
        complain("--%s is \"%s\"; it must be a number above 0, such as 0.35", f->name, value);
        return false;
    case FLAG_SHARE:
        if (parse_share(value, (double *)field)) return true;
        complain("--%s is \"%s\"; it must be a share between 0 and 1, such as 0.2", f->name, value);
        return false;
    case FLAG_RATES:
        if (value[0] >= 'a' && value[0] <= 'z') return parse_lr_plan(value, (rates *)field);
        if (parse_rates(value, (rates *)field)) return true;
        if (strpbrk(value, ",:")) {
            complain("--%s is \"%s\"; it must be a rate, followed by EPOCH:RATE up to %d times with increasing epochs: "
                     "0.002,3:0.0002",
                f->name, value, MAX_RATES - 1);
        } else {
            complain("--%s is \"%s\"; it must be a number above 0, such as 0.001", f->name, value);
        }
        return false;
    case FLAG_BATCHES:
        if (parse_batches(value, f->most, (batches *)field)) return true;
        complain("--%s is \"%s\"; it must be up to %d whole numbers from 1 to %lld: 8,16,32", f->name, value,
                 MAX_BATCHES, (long long)f->most);
        return false;
    case FLAG_BYTES:
        if (parse_bytes(value, (uint64_t *)field)) return true;
        complain("--%s is \"%s\"; it must be a number of bytes, such as 800M or 8G", f->name, value);
        return false;
    case FLAG_NAME:
        return parse_name(f, value, (const char **)field);
    }
    return false;
}

bool chosen(const char *option, const char *name) {
    size_t size = strlen(name);
    return option && strncmp(option, name, size) == 0 && (option[size] == 0 || option[size] == '|');
}

const char default_model[] = "mnist";

bool parse_flags(const command *c, int whole_argc, char **whole_argv, options *o) {
    const int argc = whole_argc - 2;
    char **argv = whole_argv + 2; /* after the names of the program and the command */
    memset(o, 0, sizeof *o);
    o->argc = whole_argc;
    o->argv = (const char *const *)whole_argv;
    o->model = default_model;
    o->max_staleness = -1;
    o->optimizer = "adam";
    o->collective = "auto";
    o->dtype = "float32";
    o->format = "text";
    o->accumulate = 1;
    o->epochs = 5;
    o->operand = (const char *const *)argv; /* operands are moved to its front */
    o->batch_list.count = 1;
    o->batch_list.rows[0] = 32;
    bool words = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!words && strcmp(word, "-h") == 0) word = "--help";
        if (c->operands && !words && strcmp(word, "--") == 0) {
            words = true; /* all that follow */
            continue;
        }
        if (c->operands && !word[0]) {
            complain("%s was given an empty name; it takes %s", c->name, c->operands);
            return false;
        }
        if (c->operands && (words || word[0] != '-' || !word[1])) {
            argv[o->operands++] = argv[i];
            continue;
        }
        if (strncmp(word, "--", 2) != 0 || !word[2]) {
            complain("%s takes flags only, not \"%s\"; `mirrortrain %s --help` lists them", c->name, word, c->name);
            return false;
        }
        char name[64];
        snprintf(name, sizeof name, "%s", word + 2);
        char *equals = strchr(name, '=');
        if (equals) *equals = 0;
        const flag *f = NULL;
        for (int k = 0; k < flag_count; k++) {
            const flag *at = &flags[k]; /* a group's title is of no command */
            if ((at->commands & c->bit) && strcmp(at->name, name) == 0) f = at;
        }
        if (!f) {
            complain_of_flag(c, name);
            return false;
        }
        const char *value = strchr(word, '=');
        if (value) value++;
        if (f->kind == FLAG_SWITCH && value) {
            complain("--%s takes no value, but was given \"%s\"", f->name, value);
            return false;
        }
        if (f->kind != FLAG_SWITCH && !value) {
            if (i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0) {
                complain("--%s needs a value: --%s %s", f->name, f->name, f->value);
                return false;
            }
            value = argv[++i];
        }
        if (!set_flag(f, value, o)) return false;
    }
    return true;
}

bool processes_fit(const options *o, bool several) {
    const bool servers = chosen(o->strategy, "parameter-server"), together = chosen(o->strategy, "multi-worker");
    if (!servers && (o->servers || o->max_staleness >= 0))
        complain("--servers and --max-staleness need --strategy parameter-server");
    else if (servers && o->checkpoint_every)
        complain("parameter servers write checkpoints after epochs: leave --checkpoint-every out");
    else if (o->average_every && o->strategy && !together)
        complain("--average-every needs --strategy multi-worker, the default of several processes");
    else if (o->average_every && !several && !together)
        complain("--average-every needs several processes, as of mpirun -n 2 mirrortrain fit ...");
    else return true;
    return false;
}
