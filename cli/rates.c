/* Learning rates on the command line: RATE[,EPOCH:RATE]..., or KIND:RATE[,KEY:VALUE]... */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[LR_KEYS] = {"steps", "alpha", "warmup", "rate", "staircase", "end",     "power",
                                          "t_mul", "m_mul", "start",  "min",  "epochs",    "sustain", "decay"};
enum { STEPS, ALPHA, WARMUP, RATE, STAIRCASE, END, POWER, T_MUL, M_MUL, START, MIN, EPOCHS, SUSTAIN, DECAY };

/* The keys of each kind, and their defaults. */
static const struct lr_kind {
    const char *name;
    unsigned keys;
    double value[LR_KEYS]; /* steps 0: of the whole training, -1: of an epoch */
} kinds[] = {
    {"cosine", 1u << STEPS | 1u << ALPHA | 1u << WARMUP, {0, 0, 0}},
    {"exponential", 1u << STEPS | 1u << RATE | 1u << STAIRCASE, {-1, 0, 0, 0.96, 0}},
    {"polynomial", 1u << STEPS | 1u << END | 1u << POWER, {0, 0, 0, 0, 0, 0, 1}},
    {"restarts", 1u << STEPS | 1u << T_MUL | 1u << M_MUL | 1u << ALPHA, {-1, 0, 0, 0, 0, 0, 0, 2, 1}},
    {"ramp",
     1u << START | 1u << MIN | 1u << EPOCHS | 1u << SUSTAIN | 1u << DECAY,
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 1e-5, 1e-5, 5, 0, 0.8}},
};
enum { COSINE, EXPONENTIAL, POLYNOMIAL, RESTARTS, RAMP, KINDS = sizeof kinds / sizeof kinds[0] };

/* A decimal number not below 0, up to a comma or the end, where *text then points. */
static bool parse_value(const char **text, double *out) {
    char *end;
    size_t length = strcspn(*text, ",");
    if (length == 0 || strspn(*text, "0123456789.eE+-") != length) return false;
    *out = strtod(*text, &end);
    if (end != *text + length || !(*out >= 0 && *out < 1e15)) return false;
    *text = end;
    return true;
}

/* The index of the word up to a colon among `names`, or -1; *text then points after the colon. */
static int parse_word(const char **text, const char *const *names, int count) {
    size_t length = strcspn(*text, ":");
    for (int i = 0; (*text)[length] == ':' && i < count; i++) {
        if (strlen(names[i]) != length || strncmp(names[i], *text, length) != 0) continue;
        *text += length + 1;
        return i;
    }
    return -1;
}

bool parse_lr_plan(const char *given, rates *out) {
    const char *names[KINDS], *text = given;
    char list[256] = "";
    double rate;
    for (int i = 0; i < KINDS; i++) names[i] = kinds[i].name;
    const int kind = parse_word(&text, names, KINDS);
    if (kind < 0 || !parse_value(&text, &rate) || !(rate > 0 && rate <= 1e30)) {
        complain("--lr is \"%s\"; it must be a number above 0, such as 0.001, or one of cosine, exponential, "
                 "polynomial, restarts, ramp with a number: cosine:0.001", given);
        return false;
    }
    out->plan = kind + 1;
    out->count = 1;
    out->rate[0] = (float)rate;
    memcpy(out->value, kinds[kind].value, sizeof out->value);
    for (int i = 0; i < LR_KEYS; i++) {
        if (kinds[kind].keys >> i & 1)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", keys[i]);
    }
    while (*text == ',') {
        text++;
        const int key = parse_word(&text, keys, LR_KEYS);
        const bool number = key >= 0 && (kinds[kind].keys >> key & 1) && parse_value(&text, &out->value[key]);
        const bool whole = number && (out->value[key] == floor(out->value[key]) ||
                                      (key != STEPS && key != WARMUP && key != EPOCHS && key != SUSTAIN));
        if (whole && (key != STEPS || out->value[key] >= 1)) continue;
        complain("--lr is \"%s\"; after a comma, %s takes NAME:NUMBER with one of these names: %s", given, names[kind],
                 list);
        return false;
    }
    return true;
}

static float planned_rate(int epoch, float rate, void *user) {
    const rates *lr = (const rates *)user;
    mirt_lr_ramp_desc ramp;
    if (lr->plan) {
        memset(&ramp, 0, sizeof ramp);
        ramp.start = (float)lr->value[START];
        ramp.max = lr->rate[0];
        ramp.min = (float)lr->value[MIN];
        ramp.ramp_epochs = (int)lr->value[EPOCHS];
        ramp.sustain_epochs = (int)lr->value[SUSTAIN];
        ramp.decay = (float)lr->value[DECAY];
        return mirt_lr_ramp(epoch, rate, &ramp);
    }
    for (int i = 0; i < lr->count && lr->first[i] <= epoch; i++) rate = lr->rate[i];
    return rate;
}

bool plan_rates(const rates *lr, mirt_model *model, int64_t epoch_steps, int64_t all_steps, mirt_fit_desc *desc) {
    const double *v = lr->value;
    const float rate = lr->rate[0];
    mirt_schedule s;
    int64_t steps = (int64_t)v[STEPS], warmup = (int64_t)v[WARMUP];
    if (lr->plan ? lr->plan == RAMP + 1 : lr->count > 1) {
        desc->learning_rate = planned_rate;
        desc->learning_rate_user = (void *)lr;
    }
    if (!lr->plan || lr->plan == RAMP + 1) return true;
    if (steps < 0) steps = epoch_steps;
    if (steps == 0) steps = all_steps - warmup;
    if (steps < 1) steps = 1;
    switch (lr->plan - 1) {
    case COSINE:
        s = mirt_cosine_decay(warmup ? 0 : rate, steps, (float)v[ALPHA]);
        s.warmup_steps = warmup;
        s.warmup_target = rate;
        break;
    case EXPONENTIAL: s = mirt_exponential_decay(rate, steps, (float)v[RATE], v[STAIRCASE] != 0); break;
    case POLYNOMIAL: s = mirt_polynomial_decay(rate, steps, (float)v[END], (float)v[POWER], false); break;
    default: s = mirt_cosine_restarts(rate, steps, (float)v[T_MUL], (float)v[M_MUL], (float)v[ALPHA]); break;
    }
    if (mirt_set_schedule(model, &s) == MIRT_OK) return true;
    complain("--lr: %s", library_sentence());
    return false;
}
