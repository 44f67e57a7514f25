/* One table of flags drives parsing, --help and suggestions. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum flag_kind {
    FLAG_SWITCH, FLAG_TEXT, FLAG_COUNT, FLAG_BOUND, FLAG_SEED, FLAG_NUMBER, FLAG_SHARE, FLAG_RATES, FLAG_BATCHES,
    FLAG_BYTES, FLAG_NAME
} flag_kind;

typedef struct flag {
    const char *name;  /* without its dashes */
    const char *value; /* how --help names its value; NULL for a switch; for a name: all choices, a|b|c */
    flag_kind kind;
    int64_t most;  /* largest value of a count, from 1, or of a bound, from 0 */
    size_t offset; /* in options: bool, const char *, int64_t, uint64_t, float, double, rates or batches by kind */
    int commands;
    const char *help; /* NULL: not for users */
} flag;

#define TRAINS (CMD_FIT | CMD_EVALUATE | CMD_SUMMARY | CMD_GRAPH)
#define MODEL (CMD_FIT | CMD_SUMMARY | CMD_GRAPH | CMD_BENCH | CMD_SCALING)
#define STRATEGY (TRAINS | CMD_BENCH | CMD_PREDICT)
#define ALL (CMD_DEVICES | STRATEGY | CMD_VERIFY | CMD_AUGMENT | CMD_DOCTOR | CMD_REPORT | CMD_SCALING)
#define AT(field) offsetof(options, field)
#define MAX_REPLICAS 4096 /* same as in the library */
#define MAX_THREADS 1024

#define OR_NAME(kind, name, kernel) "|" #name
static const flag flags[] = {
    {"model", "NAME", FLAG_TEXT, 0, AT(model), MODEL,
     "the network: mnist (default), mobilenet_v2, resnet50, efficientnet_v2_b0 to b3, s, m, l"},
    {"size", "N", FLAG_COUNT, 8192, AT(size), MODEL | CMD_AUGMENT,
     "image height and width; default 224, or the network's default"},
    {"alpha", "A", FLAG_NUMBER, 0, AT(alpha), MODEL, "width multiplier of mobilenet_v2; default 1"},
    {"classes", "N", FLAG_COUNT, INT32_MAX, AT(classes), MODEL,
     "number of classes; default 1000, for mnist 10; fit counts the classes of photographs itself"},
    {"no-top", NULL, FLAG_SWITCH, 0, AT(no_top), MODEL & ~(CMD_FIT | CMD_SCALING), "without the classification layers"},
    {"pooling", "avg|max|none", FLAG_NAME, 0, AT(pooling), MODEL & ~CMD_SCALING,
     "pooling at the end of a network without its top, or before a head; default avg"},
    {"load", "FILE", FLAG_TEXT, 0, AT(load), CMD_EVALUATE | CMD_PREDICT, "a model written by fit --save"},
    {"data", "DIR", FLAG_TEXT, 0, AT(data), CMD_FIT | CMD_EVALUATE,
     "for mnist: the directory of its four files, plain or .gz, default data/mnist; for other networks: a directory "
     "with a subdirectory of photographs for each class, or with train/ and validation/ that contain these, default "
     "data/cats-vs-dogs. Without data: drawn digits or animals"},
    {"validation", "DIR", FLAG_TEXT, 0, AT(validation), CMD_FIT, "photographs of the same classes, for validation"},
    {"validation-split", "F", FLAG_SHARE, 0, AT(validation_split), CMD_FIT,
     "or this share of the photographs in --data; default 0.2"},
    {"validation-split", "F", FLAG_SHARE, 0, AT(validation_split), CMD_EVALUATE,
     "for photographs: evaluate only those that fit held out with this share and --seed; default all"},
    {"weights", "FILE", FLAG_TEXT, 0, AT(weights), CMD_FIT,
     "weights of the network without its top, named as in Keras: .safetensors"},
    {"freeze", "base", FLAG_TEXT, 0, AT(freeze), CMD_FIT,
     "train only the head; or freeze the layers whose names begin like this: \"block_1*\""},
    {"head", "LIST", FLAG_TEXT, 0, AT(head), CMD_FIT,
     "layers between pooling and classes: 512,dropout:0.5 is a dense layer of 512 units and dropout"},
    {"augment", "LIST", FLAG_TEXT, 0, AT(augment), CMD_FIT | CMD_AUGMENT,
     "augmentation of the training photographs, such as flip,rotation:0.1,zoom:0.1 (augment's default): flip or "
     "flip:horizontal, rotation:TURNS, "
     "zoom:SHARE, translation:SHARE, contrast:SHARE, brightness:SHARE, crop:SIZE, center_crop:SIZE, resizing:SIZE"},
    {"corrupt", "fail|skip|zero", FLAG_NAME, 0, AT(corrupt), CMD_FIT | CMD_EVALUATE,
     "how to handle photographs that cannot be decoded; default fail"},
    {"no-cache", NULL, FLAG_SWITCH, 0, AT(no_cache), CMD_FIT,
     "decode photographs in every epoch, even if they fit into 1 GiB"},
    {"out", "FILE", FLAG_TEXT, 0, AT(out), CMD_AUGMENT, "the sheet, a .png"},
    {"originals", NULL, FLAG_SWITCH, 0, AT(originals), CMD_AUGMENT,
     "show three photographs, each with three augmented versions next to it, instead of twelve augmented ones"},
    {"epochs", "N", FLAG_COUNT, INT32_MAX, AT(epochs), CMD_FIT, "passes over the data; default 5"},
    {"batch", "GLOBAL", FLAG_COUNT, INT32_MAX, AT(batch), TRAINS,
     "samples per step, over all replicas together; default 64, for photographs 32"},
    {"batch", "N[,N...]", FLAG_BATCHES, INT32_MAX, AT(batch_list), CMD_BENCH | CMD_SCALING,
     "global batches, each measured in its own process; default 32"},
    {"device-counts", "N[,N...]", FLAG_BATCHES, 32, AT(device_counts), CMD_SCALING,
     "numbers of devices to compare; default 1, 2, 4, ... up to the number of cores; several processes: of these, up "
     "to all"},
    /* for its child processes */
    {"point", "DEVICES,THREADS,BATCH,PREFETCH,SPREAD,FD", FLAG_TEXT, 0, AT(point), CMD_SCALING, NULL},
    {"price", "PER_HOUR", FLAG_NUMBER, 0, AT(price), CMD_SCALING,
     "price of the machine per hour; shows what an epoch costs"},
    {"predict", "N", FLAG_COUNT, 1000000, AT(predict), CMD_SCALING,
     "images per second of up to N devices with --batch images each, by a model that starts from what one takes here"},
    {"network", "NAME|GBIT", FLAG_TEXT, 0, AT(network), CMD_SCALING,
     "for --predict, what connects hosts: 10G (default), 25G, 100G, ib, nvlink, or Gbit/s with a latency: 40G:20us; "
     "several processes: as measured between them"},
    {"devices-per-host", "N", FLAG_COUNT, 1024, AT(devices_per_host), CMD_SCALING,
     "for --predict; default the number of GPUs of this machine, or 1"},
    {"replicas", "V", FLAG_COUNT, MAX_REPLICAS, AT(replicas), STRATEGY,
     "logical replicas, at least one per device; default one per device"},
    {"devices", "P|LIST", FLAG_TEXT, 0, AT(devices), STRATEGY,
     "a number of devices to split the cores into, or cores by name: cpu:0,cpu:1; default one device with all cores"},
    {"threads", "N", FLAG_COUNT, MAX_THREADS, AT(threads), STRATEGY | CMD_SCALING,
     "threads per device; default its number of cores"},
    {"strategy", "mirrored|central-storage", FLAG_NAME, 0, AT(strategy), CMD_SCALING,
     "one copy of the weights per device (default), or one for all devices"},
    {"strategy", "mirrored|central-storage|multi-worker|parameter-server", FLAG_NAME, 0, AT(strategy), CMD_FIT,
     "one copy of the weights per device (default), or one for all devices; multi-worker: all processes that a "
     "launcher started train one model together, the default of several unless MIRT_WORKERS=1 is set; "
     "parameter-server: they train it without waiting for each other, which is not reproducible"},
    {"average-every", "K", FLAG_COUNT, INT32_MAX, AT(average_every), CMD_FIT,
     "several processes train on their own, and average their weights every K steps (local SGD); not reproducible on "
     "other numbers of processes"},
    {"servers", "S", FLAG_COUNT, 1024, AT(servers), CMD_FIT,
     "with --strategy parameter-server: how many of the processes keep weights; default 1"},
    {"max-staleness", "K", FLAG_BOUND, INT32_MAX, AT(max_staleness), CMD_FIT,
     "with --strategy parameter-server: most updates by others while a worker computes its own; default any number"},
    {"strategy", "mirrored|central-storage|multi-worker", FLAG_NAME, 0, AT(strategy), STRATEGY & ~CMD_FIT,
     "one copy of the weights per device (default), or one for all devices; multi-worker: all processes that a "
     "launcher started train one model together, the default of several unless MIRT_WORKERS=1 is set"},
    {"shares", "N,N...", FLAG_TEXT, 0, AT(shares), CMD_FIT | CMD_EVALUATE | CMD_BENCH,
     "what each device, or each process, gets of the replicas, as 3,1; default equal shares; any give the same bits"},
    {"collective", "auto|tree|ring|one-device", FLAG_NAME, 0, AT(collective), STRATEGY | CMD_SCALING,
     "how gradients are summed; default auto"},
    {"dtype", "float32|bf16", FLAG_NAME, 0, AT(dtype), CMD_FIT | CMD_SUMMARY | CMD_GRAPH | CMD_BENCH | CMD_SCALING,
     "dtype of the operands of convolutions and of stored images: bf16 is the policy mixed_bfloat16; default float32"},
    {"winograd", NULL, FLAG_SWITCH, 0, AT(winograd), CMD_FIT | CMD_EVALUATE | CMD_BENCH | CMD_SCALING,
     "faster 3x3 convolutions in float32, with different rounding"},
    {"feed", NULL, FLAG_SWITCH, 0, AT(feed), CMD_BENCH,
     "send the batch to the devices in every step; without, GPUs keep it"},
    {"seed", "S", FLAG_SEED, 0, AT(seed), CMD_EVALUATE, "the seed given to fit, for --validation-split; default 0"},
    {"seed", "S", FLAG_SEED, 0, AT(seed), CMD_FIT | CMD_AUGMENT,
     "seed of all random numbers: initial weights, shuffling, augmentation; default 0"},
    {"init", "FILE", FLAG_TEXT, 0, AT(init), CMD_FIT, "initial weights by name, from a .safetensors file"},
    {"no-shuffle", NULL, FLAG_SWITCH, 0, AT(no_shuffle), CMD_FIT, "take the samples in the order of the files"},
    {"max-steps", "N", FLAG_COUNT, INT32_MAX, AT(max_steps), CMD_FIT,
     "stop after N steps, counted from the beginning of the run"},
    {"run", "DIR", FLAG_TEXT, 0, AT(run), CMD_FIT,
     "keep all output of the run in DIR: ckpt_STEP.safetensors after every epoch, log.jsonl"},
    {"checkpoint-every", "STEPS", FLAG_COUNT, INT32_MAX, AT(checkpoint_every), CMD_FIT,
     "with --run: write a checkpoint every STEPS steps, and when training ends"},
    {"keep", "K", FLAG_COUNT, INT32_MAX, AT(keep), CMD_FIT, "with --run: how many checkpoints to keep; default 3"},
    {"tensorboard", NULL, FLAG_SWITCH, 0, AT(tensorboard), CMD_FIT,
     "with --run: write event files to DIR/tensorboard; view them with tensorboard --logdir DIR/tensorboard"},
    {"report", NULL, FLAG_SWITCH, 0, AT(report), CMD_FIT,
     "with --run: write DIR/report.html, a page about the run, with its confusion matrix unless Ctrl-C ended it"},
    {"resume", NULL, FLAG_SWITCH, 0, AT(resume), CMD_FIT,
     "with --run: resume from the newest intact checkpoint in DIR, bit-identical to a run without a break; without a "
     "checkpoint start over"},
    {"overwrite", NULL, FLAG_SWITCH, 0, AT(overwrite), CMD_FIT,
     "with --run: remove the checkpoints of an earlier run and start over"},
    {"early-stopping", "N", FLAG_COUNT, INT32_MAX, AT(early_stopping), CMD_FIT,
     "stop when val_loss has not improved for N epochs, and restore the weights of the best epoch"},
    {"on-nan", "ignore|warn|stop", FLAG_NAME, 0, AT(on_nan), CMD_FIT,
     "when a loss is not finite: ignore it (default), name the layer and continue (warn), or stop before the weights "
     "change (stop)"},
    {"timeout", "SECONDS", FLAG_NUMBER, 0, AT(timeout), CMD_FIT,
     "stop when a device or the input makes no progress for this long; default 60"},
    {"log-steps", NULL, FLAG_SWITCH, 0, AT(log_steps), CMD_FIT,
     "print the loss of every step instead of the progress line"},
    {"optimizer", &(MIRT_OPTIMIZER_LIST(OR_NAME))[1], FLAG_NAME, 0, AT(optimizer), CMD_FIT, "default adam"},
    {"weight-decay", "D", FLAG_NUMBER, 0, AT(weight_decay), CMD_FIT,
     "shrink the weights by this times the learning rate every step; default 0, for adamw 0.004"},
    {"clip-norm", "N", FLAG_NUMBER, 0, AT(clip_norm), CMD_FIT,
     "scale the gradients down if the norm of all of them together exceeds this"},
    {"ema", "M", FLAG_NUMBER, 0, AT(ema), CMD_FIT,
     "end with exponential moving averages of the weights, with this momentum: 0.99"},
    {"metrics", "LIST", FLAG_TEXT, 0, AT(metrics), CMD_FIT | CMD_EVALUATE,
     "metrics besides accuracy, such as top5,precision,recall,f1,auc,pr_auc"},
    {"confusion", "FILE", FLAG_TEXT, 0, AT(confusion), CMD_EVALUATE, "write the confusion matrix as a picture: .png"},
    {"accumulate", "K", FLAG_COUNT, 4096, AT(accumulate), CMD_FIT,
     "accumulate the gradients of K batches per step; default 1"},
    {"lr", "RATE", FLAG_RATES, 0, AT(lr), CMD_FIT,
     "learning rate; default 0.001, for sgd 0.01; 0.002,3:0.0002 changes it from epoch 3 on, counted from 0;"
     " cosine:0.01,warmup:200,alpha:0.1 rises for 200 steps and falls over all others (or steps:N);"
     " exponential:0.01,rate:0.9 multiplies it by 0.9 per epoch (or steps:N; staircase:1); "
     "polynomial:0.01,power:2,end:0; restarts:0.01,steps:N,t_mul:2,m_mul:1;"
     " ramp:0.0004,start:1e-5,epochs:5,sustain:0,decay:0.8,min:1e-5 changes it per epoch"},
    {"save", "FILE", FLAG_TEXT, 0, AT(save), CMD_FIT,
     "write the trained model to FILE, as .safetensors; without --run also after Ctrl-C"},
    {"forward", NULL, FLAG_SWITCH, 0, AT(forward), CMD_BENCH, "measure predicting instead of training steps with Adam"},
    {"svg", "FILE", FLAG_TEXT, 0, AT(svg), CMD_GRAPH, "draw the graph as a picture in FILE instead"},
    {"costs", NULL, FLAG_SWITCH, 0, AT(costs), CMD_GRAPH,
     "list the tensors instead: stored, lazy (computed while they are read) or computed twice, their bytes, and the "
     "cost "
     "of each choice"},
    {"trace", "FILE", FLAG_TEXT, 0, AT(trace), CMD_FIT,
     "write a trace of what each device does, one row per device, for ui.perfetto.dev"},
    {"profile", NULL, FLAG_SWITCH, 0, AT(profile), CMD_BENCH | CMD_FIT,
     "time each operation and compare it with the machine's peak (bench: in separate steps)"},
    {"steps", "N", FLAG_COUNT, INT32_MAX, AT(steps), CMD_BENCH,
     "steps to take the median of; default all that --seconds leaves time for, at least 5"},
    {"seconds", "N", FLAG_COUNT, 86400, AT(seconds), CMD_BENCH | CMD_SCALING,
     "time to measure for; default 3, for scaling 2 per point"},
    {"memory", "SIZE", FLAG_BYTES, 0, AT(memory), CMD_SUMMARY,
     "memory of a device, such as 800M or 8G, to find the largest batch that fits; default the free memory"},
    {"help", NULL, FLAG_SWITCH, 0, AT(help), ALL, "show this"},
};
#undef OR_NAME
#define FLAG_COUNT_OF ((int)(sizeof flags / sizeof flags[0]))

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
    char list[128];
    const char *names[8];
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

bool parse_flags(const command *c, int whole_argc, char **whole_argv, options *o) {
    const int argc = whole_argc - 2;
    char **argv = whole_argv + 2; /* after the names of the program and the command */
    memset(o, 0, sizeof *o);
    o->argc = whole_argc;
    o->argv = (const char *const *)whole_argv;
    o->model = "mnist";
    o->max_staleness = -1;
    o->optimizer = "adam";
    o->collective = "auto";
    o->dtype = "float32";
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
