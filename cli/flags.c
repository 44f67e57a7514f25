/* One table of flags drives parsing, --help and suggestions. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum flag_kind { FLAG_SWITCH, FLAG_TEXT, FLAG_COUNT, FLAG_SEED, FLAG_NUMBER, FLAG_SHARE, FLAG_RATES, FLAG_BATCHES, FLAG_BYTES, FLAG_NAME } flag_kind;

typedef struct flag {
    const char *name;  /* without its dashes */
    const char *value; /* what --help calls its value; NULL for a switch; of a name: all there are, a|b|c */
    flag_kind kind;
    int64_t most;  /* of a count */
    size_t offset; /* in options: bool, const char *, int64_t, uint64_t, float, double, rates or batches by kind */
    int commands;
    const char *help; /* NULL: not for users */
} flag;

#define TRAINS (CMD_FIT | CMD_EVALUATE | CMD_SUMMARY | CMD_GRAPH)
#define MODEL (CMD_FIT | CMD_SUMMARY | CMD_GRAPH | CMD_BENCH | CMD_SCALING)
#define STRATEGY (TRAINS | CMD_BENCH | CMD_PREDICT)
#define ALL (CMD_DEVICES | STRATEGY | CMD_VERIFY | CMD_AUGMENT | CMD_DOCTOR | CMD_REPORT | CMD_SCALING)
#define AT(field) offsetof(options, field)
#define MAX_REPLICAS 4096 /* as the library */
#define MAX_THREADS 1024

#define OR_NAME(kind, name, kernel) "|" #name
static const flag flags[] = {
    {"model", "NAME", FLAG_TEXT, 0, AT(model), MODEL,
        "the network: mnist (default), mobilenet_v2, resnet50, efficientnet_v2_b0 to b3, s, m, l"},
    {"size", "N", FLAG_COUNT, 8192, AT(size), MODEL | CMD_AUGMENT, "height and width of its images; default 224, or the network's own"},
    {"alpha", "A", FLAG_NUMBER, 0, AT(alpha), MODEL, "width of mobilenet_v2; default 1"},
    {"classes", "N", FLAG_COUNT, INT32_MAX, AT(classes), MODEL, "it tells apart; default 1000, of mnist 10; fit counts those of photographs"},
    {"no-top", NULL, FLAG_SWITCH, 0, AT(no_top), MODEL & ~(CMD_FIT | CMD_SCALING), "without the layers that tell classes apart"},
    {"pooling", "avg|max|none", FLAG_NAME, 0, AT(pooling), MODEL & ~CMD_SCALING, "what ends a network without its top, or before a head; default avg"},
    {"load", "FILE", FLAG_TEXT, 0, AT(load), CMD_EVALUATE | CMD_PREDICT, "a model that fit --save wrote"},
    {"data", "DIR", FLAG_TEXT, 0, AT(data), CMD_FIT | CMD_EVALUATE,
        "of mnist: its four files, plain or .gz, default data/mnist; of other networks: a directory of photographs for each class, or "
        "train/ and validation/ with these, default data/cats-vs-dogs. Without: drawn digits or animals"},
    {"validation", "DIR", FLAG_TEXT, 0, AT(validation), CMD_FIT, "photographs of the same classes, to validate with"},
    {"validation-split", "F", FLAG_SHARE, 0, AT(validation_split), CMD_FIT, "or this share of those in --data; default 0.2"},
    {"validation-split", "F", FLAG_SHARE, 0, AT(validation_split), CMD_EVALUATE,
        "of photographs: those alone that fit with this share and --seed held out; default all"},
    {"weights", "FILE", FLAG_TEXT, 0, AT(weights), CMD_FIT, "of the network without its top, by Keras's names: .safetensors"},
    {"freeze", "base", FLAG_TEXT, 0, AT(freeze), CMD_FIT, "train the head alone; or keep the layers whose names begin so: \"block_1*\""},
    {"head", "LIST", FLAG_TEXT, 0, AT(head), CMD_FIT, "between pooling and classes: 512,dropout:0.5 is a dense layer of 512 and dropout"},
    {"augment", "LIST", FLAG_TEXT, 0, AT(augment), CMD_FIT | CMD_AUGMENT, "of photographs, in training, such as flip,rotation:0.1,zoom:0.1 (augment's default): flip or flip:horizontal, rotation:TURNS, "
        "zoom:SHARE, translation:SHARE, contrast:SHARE, brightness:SHARE, crop:SIZE, center_crop:SIZE, resizing:SIZE"},
    {"corrupt", "fail|skip|zero", FLAG_NAME, 0, AT(corrupt), CMD_FIT | CMD_EVALUATE, "what to do with photographs that cannot be decoded; default fail"},
    {"no-cache", NULL, FLAG_SWITCH, 0, AT(no_cache), CMD_FIT, "decode photographs in every epoch, even if they fit into 1 GiB"},
    {"out", "FILE", FLAG_TEXT, 0, AT(out), CMD_AUGMENT, "the sheet, a .png"},
    {"originals", NULL, FLAG_SWITCH, 0, AT(originals), CMD_AUGMENT, "three photographs as they are, each with itself augmented three times beside it, instead of twelve"},
    {"epochs", "N", FLAG_COUNT, INT32_MAX, AT(epochs), CMD_FIT, "passes over the data; default 5"},
    {"batch", "GLOBAL", FLAG_COUNT, INT32_MAX, AT(batch), TRAINS, "rows a step, over all replicas together; default 64, of photographs 32"},
    {"batch", "N[,N...]", FLAG_BATCHES, INT32_MAX, AT(batch_list), CMD_BENCH | CMD_SCALING, "global batches, each measured in a process of its own; default 32"},
    {"device-counts", "N[,N...]", FLAG_BATCHES, 32, AT(device_counts), CMD_SCALING, "numbers of devices to compare; default 1, 2, 4, ... up to the cores"},
    {"point", "DEVICES,THREADS,BATCH,PREFETCH,FD", FLAG_TEXT, 0, AT(point), CMD_SCALING, NULL}, /* for its own children */
    {"price", "PER_HOUR", FLAG_NUMBER, 0, AT(price), CMD_SCALING, "of the machine: what an epoch costs"},
    {"replicas", "V", FLAG_COUNT, MAX_REPLICAS, AT(replicas), STRATEGY, "logical replicas, at least one a device; default one a device"},
    {"devices", "P|LIST", FLAG_TEXT, 0, AT(devices), STRATEGY,
        "a number of devices to split the cores into, or cores by name: cpu:0,cpu:1; default one with all cores"},
    {"threads", "N", FLAG_COUNT, MAX_THREADS, AT(threads), STRATEGY | CMD_SCALING, "threads a device; default its cores"},
    {"strategy", "mirrored|central-storage", FLAG_NAME, 0, AT(strategy), STRATEGY | CMD_SCALING, "a copy of the weights a device (default), or one for all"},
    {"collective", "auto|tree|ring|one-device", FLAG_NAME, 0, AT(collective), STRATEGY | CMD_SCALING, "how gradients are summed; default auto"},
    {"dtype", "float32|bf16", FLAG_NAME, 0, AT(dtype), CMD_FIT | CMD_SUMMARY | CMD_GRAPH | CMD_BENCH | CMD_SCALING,
        "what convolutions multiply and images are stored as: bf16 is the policy mixed_bfloat16; default float32"},
    {"winograd", NULL, FLAG_SWITCH, 0, AT(winograd), CMD_FIT | CMD_EVALUATE | CMD_BENCH | CMD_SCALING, "faster 3x3 convolutions in float32, with other roundings"},
    {"seed", "S", FLAG_SEED, 0, AT(seed), CMD_EVALUATE, "fit's, for --validation-split; default 0"},
    {"seed", "S", FLAG_SEED, 0, AT(seed), CMD_FIT | CMD_AUGMENT, "of all that is drawn: initial weights, shuffling, augmentation; default 0"},
    {"init", "FILE", FLAG_TEXT, 0, AT(init), CMD_FIT, "initial weights by name, from a .safetensors file"},
    {"no-shuffle", NULL, FLAG_SWITCH, 0, AT(no_shuffle), CMD_FIT, "take the samples in the order of the files"},
    {"max-steps", "N", FLAG_COUNT, INT32_MAX, AT(max_steps), CMD_FIT, "stop after N steps, counted from the beginning of the run"},
    {"run", "DIR", FLAG_TEXT, 0, AT(run), CMD_FIT, "keep all that the run leaves in DIR: ckpt_STEP.safetensors after every epoch, log.jsonl"},
    {"checkpoint-every", "STEPS", FLAG_COUNT, INT32_MAX, AT(checkpoint_every), CMD_FIT, "with --run: checkpoints after so many steps, and when training ends"},
    {"keep", "K", FLAG_COUNT, INT32_MAX, AT(keep), CMD_FIT, "with --run: the last K checkpoints; default 3"},
    {"tensorboard", NULL, FLAG_SWITCH, 0, AT(tensorboard), CMD_FIT, "with --run: event files in DIR/tensorboard; look at them by tensorboard --logdir DIR/tensorboard"},
    {"report", NULL, FLAG_SWITCH, 0, AT(report), CMD_FIT, "with --run: DIR/report.html, a page about the run, with its confusion matrix; after Ctrl-C without it"},
    {"resume", NULL, FLAG_SWITCH, 0, AT(resume), CMD_FIT, "with --run: go on from the newest checkpoint in DIR that is whole, in the same bits; without one begin anew"},
    {"overwrite", NULL, FLAG_SWITCH, 0, AT(overwrite), CMD_FIT,
        "with --run: begin anew where an earlier run left checkpoints, and remove these"},
    {"early-stopping", "N", FLAG_COUNT, INT32_MAX, AT(early_stopping), CMD_FIT, "end when val_loss has not become better for N epochs, with the best epoch's weights"},
    {"on-nan", "go-on|warn|stop", FLAG_NAME, 0, AT(on_nan), CMD_FIT, "when a loss is not finite: go on (default); or name the layer, and go on, or stop before the weights have it"},
    {"timeout", "SECONDS", FLAG_NUMBER, 0, AT(timeout), CMD_FIT, "end when a device or the input gets on with nothing for so long; default 60"},
    {"log-steps", NULL, FLAG_SWITCH, 0, AT(log_steps), CMD_FIT, "print the loss of every step instead of the progress line"},
    {"optimizer", &(MIRT_OPTIMIZER_LIST(OR_NAME))[1], FLAG_NAME, 0, AT(optimizer), CMD_FIT, "default adam"},
    {"weight-decay", "D", FLAG_NUMBER, 0, AT(weight_decay), CMD_FIT, "weights shrink by this times the learning rate every step; default 0, of adamw 0.004"},
    {"clip-norm", "N", FLAG_NUMBER, 0, AT(clip_norm), CMD_FIT, "scale gradients down whose norm, of all weights together, is above this"},
    {"ema", "M", FLAG_NUMBER, 0, AT(ema), CMD_FIT, "end with averages of the weights that keep this share of themselves every step: 0.99"},
    {"metrics", "LIST", FLAG_TEXT, 0, AT(metrics), CMD_FIT | CMD_EVALUATE, "beside accuracy, such as top5,precision,recall,f1,auc,pr_auc"},
    {"confusion", "FILE", FLAG_TEXT, 0, AT(confusion), CMD_EVALUATE, "write which classes are taken for which, as a picture: .png"},
    {"accumulate", "K", FLAG_COUNT, 4096, AT(accumulate), CMD_FIT, "K batches make one step; default 1"},
    {"lr", "RATE", FLAG_RATES, 0, AT(lr), CMD_FIT,
        "learning rate; default 0.001, for sgd 0.01; 0.002,3:0.0002 changes it from epoch 3, the fourth, on; cosine:0.01,warmup:200,alpha:0.1 rises in 200 "
        "steps and falls over all others (or steps:N); exponential:0.01,rate:0.9 by this factor an epoch (or steps:N; staircase:1); "
        "polynomial:0.01,power:2,end:0; restarts:0.01,steps:N,t_mul:2,m_mul:1; ramp:0.0004,start:1e-5,epochs:5,sustain:0,decay:0.8,min:1e-5 by epochs"},
    {"save", "FILE", FLAG_TEXT, 0, AT(save), CMD_FIT, "write the trained model there, as .safetensors; without --run also after Ctrl-C"},
    {"forward", NULL, FLAG_SWITCH, 0, AT(forward), CMD_BENCH, "measure predicting instead of a step of training with Adam"},
    {"svg", "FILE", FLAG_TEXT, 0, AT(svg), CMD_GRAPH, "draw a picture of it there instead"},
    {"trace", "FILE", FLAG_TEXT, 0, AT(trace), CMD_FIT, "write what each device does there, a row a device, for ui.perfetto.dev"},
    {"profile", NULL, FLAG_SWITCH, 0, AT(profile), CMD_BENCH | CMD_FIT, "time each operation, beside what the machine could do (bench: in steps of their own)"},
    {"steps", "N", FLAG_COUNT, INT32_MAX, AT(steps), CMD_BENCH, "steps to take the median of; default as many as fit --seconds, at least 5"},
    {"seconds", "N", FLAG_COUNT, 86400, AT(seconds), CMD_BENCH | CMD_SCALING, "time to measure for; default 3, of scaling 2 for each point"},
    {"memory", "SIZE", FLAG_BYTES, 0, AT(memory), CMD_SUMMARY, "of a device, such as 800M or 8G, for the largest batch that fits; default what is free here"},
    {"help", NULL, FLAG_SWITCH, 0, AT(help), ALL, "show this"},
};
#undef OR_NAME
#define FLAG_COUNT_OF ((int)(sizeof flags / sizeof flags[0]))

/* Edits (insert, delete, replace, swap neighbours) from a to b; words longer than 31 are cut. */
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
        /* A word cut short or run on is like its whole: epoch, epochs. */
        size_t size = strlen(word) < strlen(names[i]) ? strlen(word) : strlen(names[i]);
        if (size >= 3 && strncmp(word, names[i], size) == 0) d = 1;
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

/* Says which flag was probably meant. */
static void complain_of_flag(const command *c, const char *word) {
    const char *names[FLAG_COUNT_OF];
    int count = 0;
    for (int i = 0; i < FLAG_COUNT_OF; i++) {
        if (!flags[i].help) continue;
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

static bool parse_count(const char *text, int64_t most, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < 1 || value > most) return false;
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

/* A decimal number above 0, up to a comma or the end; *text then is there. */
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
        if (!parse_count(word, most, &out->rows[out->count++])) return false;
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
    char list[128];
    const char *names[8];
    int count = 0;
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
    const char *like = strpbrk(text, "0123456789") ? NULL : nearest(text, names, count); /* float16 is not meant to be float32 */
    if (like) complain("there is no %s \"%s\"; did you mean %s?", f->name, text, like);
    else complain("there is no %s \"%s\"; it is one of %s", f->name, text, f->value);
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
        complain("--%s is empty; it wants %s", f->name, f->value);
        return false;
    case FLAG_COUNT:
        if (parse_count(value, f->most, (int64_t *)field)) return true;
        complain("--%s is \"%s\"; it wants a whole number from 1 to %lld", f->name, value, (long long)f->most);
        return false;
    case FLAG_SEED:
        if (parse_seed(value, (uint64_t *)field)) return true;
        complain("--%s is \"%s\"; it wants a whole number from 0 to 2^64 - 1", f->name, value);
        return false;
    case FLAG_NUMBER:
        if (parse_number(value, (float *)field)) return true;
        complain("--%s is \"%s\"; it wants a number above 0, such as 0.35", f->name, value);
        return false;
    case FLAG_SHARE:
        if (parse_share(value, (double *)field)) return true;
        complain("--%s is \"%s\"; it wants a share between 0 and 1, such as 0.2", f->name, value);
        return false;
    case FLAG_RATES:
        if (value[0] >= 'a' && value[0] <= 'z') return parse_lr_plan(value, (rates *)field);
        if (parse_rates(value, (rates *)field)) return true;
        if (strpbrk(value, ",:")) {
            complain("--%s is \"%s\"; it wants a rate, then EPOCH:RATE up to %d times with increasing epochs: 0.002,3:0.0002",
                f->name, value, MAX_RATES - 1);
        } else {
            complain("--%s is \"%s\"; it wants a number above 0, such as 0.001", f->name, value);
        }
        return false;
    case FLAG_BATCHES:
        if (parse_batches(value, f->most, (batches *)field)) return true;
        complain("--%s is \"%s\"; it wants up to %d whole numbers from 1 to %lld: 8,16,32", f->name, value, MAX_BATCHES, (long long)f->most);
        return false;
    case FLAG_BYTES:
        if (parse_bytes(value, (uint64_t *)field)) return true;
        complain("--%s is \"%s\"; it wants a number of bytes, such as 800M or 8G", f->name, value);
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

bool parse_flags(const command *c, int whole_argc, char **whole_argv, options *o) {
    const int argc = whole_argc - 2;
    char **argv = whole_argv + 2; /* behind the program's name and the command's */
    memset(o, 0, sizeof *o);
    o->argc = whole_argc;
    o->argv = (const char *const *)whole_argv;
    o->model = "mnist";
    o->optimizer = "adam";
    o->strategy = "mirrored";
    o->collective = "auto";
    o->dtype = "float32";
    o->accumulate = 1;
    o->epochs = 5;
    o->operand = (const char *const *)argv; /* words gather at its front */
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
            complain("%s was given an empty name; it wants %s", c->name, c->operands);
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
        for (int k = 0; k < FLAG_COUNT_OF; k++) {
            if ((flags[k].commands & c->bit) && strcmp(flags[k].name, name) == 0) f = &flags[k];
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
                complain("--%s wants a value: --%s %s", f->name, f->name, f->value);
                return false;
            }
            value = argv[++i];
        }
        if (!set_flag(f, value, o)) return false;
    }
    return true;
}

void print_flags(const command *c) {
    for (int i = 0; i < FLAG_COUNT_OF; i++) {
        const flag *f = &flags[i];
        if (!(f->commands & c->bit) || !f->help) continue;
        char left[48];
        bool name = f->kind == FLAG_NAME;
        snprintf(left, sizeof left, "--%s%s%s", f->name, f->value ? " " : "", name ? "NAME" : f->value ? f->value : "");
        printf("  %-18s %s%s%s\n", left, name ? f->value : "", name ? ": " : "", f->help);
    }
}
