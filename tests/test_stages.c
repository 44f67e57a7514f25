/* Compares random chains of data set stages with a model in plain C. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

/* Samples of three inputs, two arrays of labels and a weight, all told from their number. */
enum { MOST_SAMPLES = 40, LONGEST = 4000, MOST_OPS = 8, NUM_FIELDS = 6, SEED = 11 };
static uint64_t model_seed = SEED;
static float in0[MOST_SAMPLES][3];
static uint8_t in1[MOST_SAMPLES], label1[MOST_SAMPLES][2];
static int32_t in2[MOST_SAMPLES][1][2], label0[MOST_SAMPLES];
static float weights[MOST_SAMPLES];

static void make_samples(void) {
    for (int i = 0; i < MOST_SAMPLES; i++) {
        for (int k = 0; k < 3; k++) in0[i][k] = (float)(i * 3 + k);
        in1[i] = (uint8_t)(200 - i);
        in2[i][0][0] = -i;
        in2[i][0][1] = i * i;
        label0[i] = 1000 + i;
        label1[i][0] = (uint8_t)i;
        label1[i][1] = (uint8_t)(i / 2);
        weights[i] = 0.5f + (float)i;
    }
}

static mirt_data samples(int64_t n) {
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = mirt_make_array(in0, MIRT_FLOAT32, MIRT_SHAPE(n, 3));
    data.x[1] = mirt_make_array(in1, MIRT_UINT8, MIRT_SHAPE(n));
    data.x[2] = mirt_make_array(in2, MIRT_INT32, MIRT_SHAPE(n, 1, 2));
    data.y[0] = mirt_make_array(label0, MIRT_INT32, MIRT_SHAPE(n));
    data.y[1] = mirt_make_array(label1, MIRT_UINT8, MIRT_SHAPE(n, 2));
    data.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(n));
    return data;
}

static mirt_dataset *arrays(int64_t n) {
    mirt_data data = samples(n);
    return mirt_arrays_of(&data);
}

/* Adds one to the first label, and halves x[0] to two numbers, if it is still of three. */
static int add_one(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)user;
    (void)index;
    ((int32_t *)out[3])[0] = ((const int32_t *)in[3])[0] + 1;
    return 0;
}

/* >>the model */

typedef enum kind { SHUFFLE, TAKE, SKIP, REPEAT, MAP, CACHE, PREFETCH, BATCH, ACCUMULATE, KINDS } kind;
static const char *const kind_name[KINDS] = {"shuffle", "take",     "skip",  "repeat",    "map",
                                             "cache",   "prefetch", "batch", "accumulate"};

typedef struct stream {
    int number[LONGEST], added[LONGEST], count; /* samples, and how often add_one has been at them */
    int end[LONGEST], elements;                 /* the elements' ends in the list above */
    bool endless;                               /* cut off at LONGEST or before */
} stream;

typedef struct op {
    kind what;
    int n;
    bool at;         /* random access after it */
    int shuffles;    /* after it */
    bool batched;
    int64_t batch;
    stream *kept;    /* of a cache */
} op;

typedef struct chain {
    int samples, ops;
    op op[MOST_OPS];
} chain;

static void push(stream *s, const stream *from, int i) {
    s->number[s->count] = from->number[i];
    s->added[s->count++] = from->added[i];
}

static void push_element(stream *s, const stream *from, int e) {
    if (s->count + from->end[e] - (e ? from->end[e - 1] : 0) > LONGEST) return;
    for (int i = e ? from->end[e - 1] : 0; i < from->end[e]; i++) push(s, from, i);
    s->end[s->elements++] = s->count;
}

static mirt__random shuffle_random(const op *o, int64_t epoch) {
    return mirt__random_stream(model_seed, mirt__hash("shuffle") + ((uint64_t)o->shuffles << 48) + (uint64_t)epoch);
}

static void permute(const op *o, int64_t epoch, const stream *in, stream *out) {
    static int order[LONGEST];
    mirt__random random = shuffle_random(o, epoch);
    for (int i = 0; i < in->elements; i++) {
        int j = (int)mirt__random_below(&random, (uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < in->elements; i++) push_element(out, in, order[i]);
}

/* A bag of n samples; what is drawn is replaced by the next, or at the end by the bag's last. */
static void draw(const op *o, int64_t epoch, const stream *in, stream *out) {
    static int bag[LONGEST];
    mirt__random random = shuffle_random(o, epoch);
    int held = 0, next = 0;
    while (held < o->n && next < in->elements) bag[held++] = next++;
    while (held) {
        int place = (int)mirt__random_below(&random, (uint64_t)held);
        push_element(out, in, bag[place]);
        if (next < in->elements) bag[place] = next++;
        else bag[place] = bag[--held];
    }
}

static void group(const stream *in, int n, bool of_elements, stream *out) {
    out->count = in->count;
    memcpy(out->number, in->number, sizeof in->number);
    memcpy(out->added, in->added, sizeof in->added);
    int all = of_elements ? in->elements : in->count;
    for (int i = n;; i += n) {
        int last = i < all ? i : all;
        out->end[out->elements++] = of_elements ? in->end[last - 1] : last;
        if (i >= all) return;
    }
}

/* What the first `ops` stages of the chain give in an epoch. */
static void model(chain *c, int ops, int64_t epoch, stream *out) {
    static stream before[MOST_OPS];
    out->count = out->elements = 0;
    out->endless = false;
    if (ops == 0) {
        for (int i = 0; i < c->samples; i++) {
            out->number[i] = i;
            out->added[i] = 0;
            out->end[i] = i + 1;
        }
        out->count = out->elements = c->samples;
        return;
    }
    op *o = &c->op[ops - 1];
    bool before_at = ops == 1 || c->op[ops - 2].at;
    stream *in = &before[ops - 1];
    if (o->what == REPEAT) {
        for (int pass = 0; o->n > 0 ? pass < o->n : out->count + c->samples <= LONGEST - 100 && pass < 400; pass++) {
            int count = out->count;
            model(c, ops - 1, o->n > 0 ? epoch * o->n + pass : ((int64_t)pass << 24) + epoch, in);
            for (int e = 0; e < in->elements; e++) push_element(out, in, e);
            out->endless = o->n <= 0 || in->endless;
            if (in->endless || out->count == count) break;
        }
    } else if (o->what == CACHE) {
        if (!o->kept) {
            o->kept = (stream *)calloc(1, sizeof *in);
            model(c, ops - 1, epoch, o->kept);
        }
        *out = *o->kept;
    } else {
        model(c, ops - 1, epoch, in);
        int n = o->n < in->elements ? o->n : in->elements;
        if (o->what == SHUFFLE && before_at) permute(o, epoch, in, out);
        else if (o->what == SHUFFLE) draw(o, epoch, in, out);
        else if (o->what == BATCH || o->what == ACCUMULATE) group(in, o->n, o->what == ACCUMULATE, out);
        else
            for (int e = o->what == SKIP ? n : 0; e < (o->what == TAKE ? n : in->elements); e++)
                push_element(out, in, e);
        for (int i = 0; o->what == MAP && i < out->count; i++) out->added[i]++;
        out->endless = in->endless && o->what != TAKE;
    }
}

/* >>random chains */

static uint64_t dice_state = 1;
static int dice(int sides) {
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice_state >> 33) % (uint64_t)sides);
}

static void roll(chain *c) {
    memset(c, 0, sizeof *c);
    c->samples = 1 + dice(MOST_SAMPLES);
    c->ops = dice(MOST_OPS + 1);
    bool at = true, batched = false;
    int shuffles = 0;
    for (int i = 0; i < c->ops; i++) {
        op *o = &c->op[i];
        do o->what = (kind)dice(KINDS);
        while (batched ? o->what == SHUFFLE || o->what == MAP || o->what == CACHE || o->what == BATCH
                       : o->what == ACCUMULATE);
        o->n = o->what == REPEAT ? dice(4) : o->what == ACCUMULATE ? 1 + dice(4) : 1 + dice(dice(3) ? 8 : 50);
        if (o->what == SHUFFLE) shuffles++;
        if (o->what == BATCH) batched = true;
        if (o->what == CACHE) at = true;
        if (o->what == REPEAT || o->what == BATCH) at = false;
        o->at = at;
        o->shuffles = shuffles;
    }
}

static mirt_dataset *build(const chain *c) {
    mirt_dataset *d = arrays(c->samples);
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    map.fn = add_one;
    for (int i = 0; i < c->ops; i++) {
        int n = c->op[i].n;
        switch (c->op[i].what) {
        case SHUFFLE: d = mirt_shuffle(d, n); break;
        case TAKE: d = mirt_take(d, n); break;
        case SKIP: d = mirt_skip(d, n); break;
        case REPEAT: d = mirt_repeat(d, n); break;
        case MAP: d = mirt_map(d, &map); break;
        case CACHE: d = mirt_cache(d); break;
        case PREFETCH: d = mirt_prefetch(d, n % 3 ? n % 3 : MIRT_AUTOTUNE); break;
        case BATCH: d = mirt_batch(d, n); break;
        default: d = mirt_accumulate(d, n); break;
        }
    }
    if (d && c->samples % 4) mirt_dataset_workers(d, c->samples % 4);
    return d;
}

static const char *text_of(const chain *c) {
    static char text[512];
    int used = snprintf(text, sizeof text, "%d samples", c->samples);
    for (int i = 0; i < c->ops; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, ", %s %d", kind_name[c->op[i].what], c->op[i].n);
    return text;
}

/* Whether one of the stages has to be refused: nothing is left, or a cache has no end. */
static bool impossible(chain *c, stream *s) {
    for (int i = 0; i < c->ops; i++) {
        model(c, i, 0, s);
        if (c->op[i].what == SKIP && !s->endless && c->op[i].n >= s->elements) return true;
        if (c->op[i].what == CACHE && s->endless) return true;
    }
    return false;
}

static void forget(chain *c) {
    for (int i = 0; i < c->ops; i++) {
        free(c->op[i].kept);
        c->op[i].kept = NULL;
    }
}

static bool row_is(const mirt__batch *b, int64_t row, int i, int added) {
    int32_t label = label0[i] + added;
    return b->index[row] == i && memcmp((const float *)b->field[0] + 3 * row, in0[i], sizeof in0[i]) == 0 &&
           ((const uint8_t *)b->field[1])[row] == in1[i] &&
           memcmp((const int32_t *)b->field[2] + 2 * row, in2[i], sizeof in2[i]) == 0 &&
           ((const int32_t *)b->field[3])[row] == label &&
           memcmp((const uint8_t *)b->field[4] + 2 * row, label1[i], 2) == 0 &&
           ((const float *)b->field[5])[row] == weights[i];
}

/* Elements `d` gives that are not what the model says, at most `most` of them read. */
static int differences(mirt_dataset *d, const stream *s, int most) {
    mirt__batch b;
    for (int e = 0, at = 0; e < most; e++) {
        if (s->endless && (e == s->elements || s->end[e] > s->count - 600)) return 0; /* where it was cut off */
        if (mirt__dataset_next(d, &b) != MIRT_OK) return 1;
        if (e == s->elements) return b.rows != 0 || mirt__dataset_next(d, &b) != MIRT_OK || b.rows != 0;
        if (b.rows != s->end[e] - at) return 1;
        for (int64_t row = 0; row < b.rows; row++, at++) {
            if (!row_is(&b, row, s->number[at], s->added[at])) return 1;
        }
    }
    return 0;
}

static const char *check_spec(const mirt_dataset *d, const chain *c, const stream *s) {
    const mirt__data_spec *spec = mirt__dataset_spec(d);
    bool batched = false;
    int64_t batch = 0;
    int accumulate = 1;
    for (int i = 0; i < c->ops; i++) {
        if (c->op[i].what == BATCH) batched = true;
        if (c->op[i].what == BATCH) batch = c->op[i].n;
        if (c->op[i].what == ACCUMULATE) batch *= c->op[i].n;
        if (c->op[i].what == ACCUMULATE) accumulate *= c->op[i].n;
    }
    if (spec->num_x != 3 || spec->num_y != 2 || !spec->has_weights || spec->num_fields != NUM_FIELDS) return "fields";
    if (spec->samples != (s->endless ? -1 : s->count) || mirt_dataset_size(d) != spec->samples) return "samples";
    if (mirt_dataset_batches(d) != (!batched ? 0 : s->endless ? -1 : s->elements)) return "batches";
    return spec->batch != batch || spec->accumulate != accumulate ? "batch size" : NULL;
}

static const char *check_chain(chain *c, stream *s) {
    const char *problem = NULL;
    bool refuse = impossible(c, s);
    forget(c);
    mirt_dataset *d = build(c);
    if (!d != refuse) problem = d ? "was not refused" : "was refused";
    for (int turn = 0; d && turn < 4 && !problem; turn++) {
        const int64_t epoch[4] = {3, 0, 1, 1};
        model(c, c->ops, epoch[turn], s);
        if (turn == 0) problem = check_spec(d, c, s);
        if (!problem && mirt__dataset_begin(d, SEED, epoch[turn]) != MIRT_OK) problem = "could not begin";
        /* the third is broken off */
        if (!problem && differences(d, s, turn == 2 ? 2 : s->endless ? 30 : LONGEST + 1)) problem = "differs";
    }
    mirt_dataset_destroy(d);
    forget(c);
    return problem;
}

/* >>reads: arrays of single elements and of all samples */

/* Whether the arrays hold samples [first, last) of the stream, in their types and shapes. */
static bool holds(const mirt_data *data, const stream *s, int first, int last) {
    const mirt_data like = samples(last - first);
    const mirt_array *list[NUM_FIELDS] = {&data->x[0], &data->x[1], &data->x[2],
                                          &data->y[0], &data->y[1], &data->weights};
    const mirt_array *want[NUM_FIELDS] = {&like.x[0], &like.x[1], &like.x[2], &like.y[0], &like.y[1], &like.weights};
    static int64_t index[LONGEST];
    mirt__batch b;
    if (data->x[3].data || data->y[2].data) return false;
    for (int f = 0; f < NUM_FIELDS; f++) {
        if (!list[f]->data || list[f]->dtype != want[f]->dtype || !mirt__shape_equal(&list[f]->shape, &want[f]->shape))
            return false;
        b.field[f] = list[f]->data;
    }
    b.index = index;
    for (int i = first; i < last; i++) {
        index[i - first] = s->number[i];
        if (!row_is(&b, i - first, s->number[i], s->added[i])) return false;
    }
    return true;
}

/* Reads single elements of two epochs, then goes through one: that has to be as if nothing had been read. */
static const char *check_reads(chain *c, stream *s) {
    const char *problem = NULL;
    mirt_dataset *d = build(c);
    if (!d) return NULL;
    model(c, c->ops, 0, s); /* caches keep the first epoch whatever is read first */
    for (int turn = 0; turn < 6 && !problem; turn++) {
        mirt_read_desc desc = {turn < 3 ? 2 : 0, SEED};
        mirt_data data;
        model(c, c->ops, desc.epoch, s);
        const int most = s->endless ? 30 : s->elements, e = turn % 3 < 2 ? turn * 7 % most : most;
        const mirt_status status = mirt_dataset_read(d, e, &desc, &data);
        if (e < s->elements && s->end[e] <= s->count - (s->endless ? 600 : 0)) {
            if (status != MIRT_OK || !holds(&data, s, e ? s->end[e - 1] : 0, s->end[e]))
                problem = "another element was read";
        } else if (!s->endless && (status != MIRT_E_INVALID || data.x[0].data)) {
            problem = "an element past the end was read";
        }
        mirt_data_free(&data);
    }
    model(c, c->ops, 1, s);
    if (d && !problem &&
        (mirt__dataset_begin(d, SEED, 1) != MIRT_OK || differences(d, s, s->endless ? 30 : LONGEST + 1)))
        problem = "an epoch differs after reads";
    mirt_dataset_destroy(d);
    forget(c);
    return problem;
}

static const char *check_arrays(chain *c, stream *s) {
    const char *problem = NULL;
    mirt_dataset *d = build(c);
    mirt_data data;
    if (!d) return NULL;
    model_seed = 0;
    model(c, c->ops, 0, s);
    for (int turn = 0; turn < 2 && !problem; turn++) {
        const mirt_status status = mirt_dataset_arrays(d, &data);
        if (s->endless)
            problem = status == MIRT_E_INVALID && !data.x[0].data ? NULL : "a stream without an end was read";
        else if (status != MIRT_OK || !holds(&data, s, 0, s->count)) problem = "other arrays";
        mirt_data_free(&data);
    }
    model_seed = SEED;
    mirt_dataset_destroy(d);
    forget(c);
    return problem;
}

static void test_chains(int many) {
    static stream s;
    static chain c;
    int wrong = 0, endless = 0;
    for (int i = 0; i < many && wrong < 5; i++) {
        roll(&c);
        const char *problem = check_chain(&c, &s);
        endless += s.endless;
        if (!problem) problem = check_reads(&c, &s);
        if (!problem) problem = check_arrays(&c, &s);
        if (!problem) continue;
        printf("# %s: %s\n", text_of(&c), problem);
        wrong++;
    }
    ok(wrong == 0 && endless > many / 20, "%d chains of stages give what they should, %d of them for ever", many,
       endless);
}

/* >>single stages */

static int fails_at(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in;
    (void)out;
    return index == *(const int *)user ? 42 : 0;
}

static int to_pixels(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)user;
    for (int i = 0; i < 4; i++) ((uint8_t *)out[0])[i] = (uint8_t)(((const float *)in[0])[i % 3] + (float)i);
    if (index % 2) *(float *)out[2] = 0.25f;
    return 0;
}

static mirt_status run_through(mirt_dataset *d, int64_t *rows) {
    mirt__batch b;
    *rows = 0;
    mirt_status status = mirt__dataset_begin(d, SEED, 0);
    while (status == MIRT_OK && (status = mirt__dataset_next(d, &b)) == MIRT_OK && b.rows) *rows += b.rows;
    return status;
}

static void test_map(void) {
    mirt_map_desc desc;
    int bad = 17;
    int64_t rows;
    memset(&desc, 0, sizeof desc);
    desc.fn = fails_at;
    desc.user = &bad;
    for (int ahead = 0; ahead < 2; ahead++) {
        desc.name = ahead ? "augment" : NULL;
        mirt_dataset *d = mirt_batch(mirt_map(mirt_shuffle(arrays(40), 1), &desc), 8);
        if (ahead) d = mirt_prefetch(d, 2);
        mirt_status status = run_through(d, &rows);
        ok(status == MIRT_E_CALLBACK && strcmp(mirt_last_error(), ahead ? "augment returned 42 for sample 17"
                                                                        : "mirt_map returned 42 for sample 17") == 0,
           "a function that fails%s: %s", ahead ? " in the prefetch thread" : "", mirt_last_error());
        bad = 100;
        ok(run_through(d, &rows) == MIRT_OK && rows == 40, "and then does not");
        bad = 17;
        mirt_dataset_destroy(d);
    }
    /* other shapes, and weights */
    mirt_array x = mirt_make_array(in0, MIRT_FLOAT32, MIRT_SHAPE(MOST_SAMPLES, 3)),
               y = mirt_make_array(label0, MIRT_INT32, MIRT_SHAPE(MOST_SAMPLES));
    desc.fn = to_pixels;
    desc.dtype = MIRT_UINT8;
    desc.shape = MIRT_SHAPE(2, 2, 1);
    desc.add_weights = true;
    mirt_dataset *d = mirt_batch(mirt_map(mirt_arrays(x, y), &desc), 16);
    mirt__batch b;
    int wrong = 0, seen = 0;
    const mirt__data_spec *spec = mirt__dataset_spec(d);
    ok(spec->num_fields == 3 && spec->has_weights && spec->field[0].dtype == MIRT_UINT8 && spec->field[0].bytes == 4 &&
           spec->field[2].dtype == MIRT_FLOAT32 && spec->field[2].shape.rank == 0, "a map changes x and adds weights");
    mirt__dataset_begin(d, 0, 0);
    while (mirt__dataset_next(d, &b) == MIRT_OK && b.rows) {
        for (int64_t r = 0; r < b.rows; r++, seen++) {
            const uint8_t *pixel = (const uint8_t *)b.field[0] + 4 * r;
            for (int i = 0; i < 4; i++) wrong += pixel[i] != (uint8_t)(in0[seen][i % 3] + (float)i);
            wrong += ((const int32_t *)b.field[1])[r] != label0[seen] ||
                     ((const float *)b.field[2])[r] != (seen % 2 ? 0.25f : 1.0f);
        }
    }
    ok(wrong == 0 && seen == MOST_SAMPLES, "to what its function writes");
    mirt_dataset_destroy(d);
}

/* An endless stream after a thread stops when it should. */
static void test_endless(void) {
    mirt__batch b;
    int good = 0;
    for (int i = 0; i < 40; i++) {
        mirt_dataset *d = mirt_prefetch(
            mirt_accumulate(mirt_batch(mirt_repeat(mirt_shuffle(arrays(7), 7), 0), 5), 1 + i % 3), 1 + i % 4);
        good +=
            d && mirt_dataset_size(d) == -1 && mirt_dataset_batches(d) == -1 && mirt__dataset_begin(d, 0, 0) == MIRT_OK;
        for (int k = 0; d && k < i; k++) good -= mirt__dataset_next(d, &b) != MIRT_OK || b.rows != 5 * (1 + i % 3);
        mirt_dataset_destroy(d);
    }
    ok(good == 40, "prefetched streams without end, destroyed at any time");
#ifndef MIRRORTRAIN_NO_THREADS
    mirt_dataset *moving = mirt_batch(mirt_shuffle(arrays(9), 9), 2), *lying = mirt_batch(arrays(9), 2);
    moving = mirt_take(mirt_repeat(moving, 2), 3);
    lying = mirt_take(mirt_repeat(lying, 2), 3);
    mirt_dataset *ahead = mirt_prefetch(moving, 1), *as_was = mirt_prefetch(lying, 1);
    ok(ahead && ahead != moving && as_was && as_was == lying,
       "a thread prepares batches that are copied, none those that lie in arrays");
    mirt_dataset_destroy(ahead);
    mirt_dataset_destroy(as_was);
#endif
}

static void test_names(void) {
    static const char *const animals[] = {"cat", "", "d\xc3\xb6g"};
    static const char *const plants[] = {"oak"};
    static const char *const holes[] = {"a", NULL};
    int count = 7;
    mirt_dataset *d = arrays(9);
    ok(mirt_class_names(d, &count) == NULL && count == 0 && mirt_class_names(NULL, NULL) == NULL, "no names at first");
    d = mirt_shuffle(d, 5);
    ok(mirt_set_class_names(d, animals, 3) == MIRT_OK && mirt_set_class_names(d, animals, 3) == MIRT_OK,
       "names, twice");
    d = mirt_prefetch(mirt_batch(mirt_cache(mirt_repeat(d, 2)), 2), 1);
    for (int epoch = 0; epoch < 2; epoch++) {
        const char *const *names = mirt_class_names(d, &count);
        ok(names && count == 3 && strcmp(names[0], "cat") == 0 && !*names[1] && strcmp(names[2], animals[2]) == 0,
           "names come through all stages%s", epoch ? ", and stay when the cache is loaded" : "");
        mirt__dataset_begin(d, 1, epoch);
    }
    ok(mirt_set_class_names(d, plants, 1) == MIRT_OK && strcmp(mirt_class_names(d, &count)[0], "oak") == 0 &&
           count == 1,
       "other names later on");
    ok(mirt_set_class_names(d, holes, 2) == MIRT_E_INVALID && strstr(mirt_last_error(), "class 1 of 2 has no name"),
       "%s", mirt_last_error());
    ok(mirt_set_class_names(d, NULL, 2) == MIRT_E_INVALID && mirt_set_class_names(d, plants, 0) == MIRT_E_INVALID &&
           mirt_set_class_names(NULL, plants, 1) == MIRT_E_INVALID && count == 1, "%s", mirt_last_error());
    mirt_dataset_destroy(d);
    d = mirt_drawn_digits(3, 1, MIRT_TRAIN);
    ok(mirt_class_names(d, &count) && count == 10 && strcmp(mirt_class_names(d, NULL)[9], "9") == 0,
       "digits have theirs");
    mirt_dataset_destroy(d);
}

/* >>refusals */

static void refused(mirt_dataset *d, mirt_status status, const char *part) {
    ok(d == NULL && mirt_last_status() == status && strstr(mirt_last_error(), part), "refused: %s",
       d ? "(it was not)" : mirt_last_error());
    if (!d && !strstr(mirt_last_error(), part)) printf("# expected: %s\n", part);
    mirt_dataset_destroy(d);
}

static mirt_dataset *without(int what) {
    static const mirt_array none;
    mirt_data data = samples(9);
    if (what == 0) data.x[0] = none;
    if (what == 1) data.x[1] = none;
    if (what == 2) data.y[0] = none;
    if (what == 3) data.weights.dtype = MIRT_INT32;
    if (what == 4) data.weights.shape = MIRT_SHAPE(9, 1);
    if (what == 5) data.weights.shape = MIRT_SHAPE(8);
    if (what == 6) data.x[2].shape = MIRT_SHAPE(8, 2);
    if (what == 7) data.y[1].shape = MIRT_SHAPE(9, -2);
    return mirt_arrays_of(&data);
}

static void test_refusals(void) {
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    refused(mirt_arrays_of(NULL), MIRT_E_INVALID, "mirt_arrays_of");
    refused(without(0), MIRT_E_INVALID, "x[1] has data, but x[0] has none");
    refused(without(1), MIRT_E_INVALID, "x[2] has data, but x[1] has none and ends the list");
    refused(without(2), MIRT_E_INVALID, "y[1] has data, but y[0] has none");
    refused(without(3), MIRT_E_INVALID, "weights must be float32");
    refused(without(4), MIRT_E_INVALID, "one weight per sample");
    refused(without(5), MIRT_E_SHAPE, "x[0] has 9 samples, weights has 8");
    refused(without(6), MIRT_E_SHAPE, "x[0] has 9 samples, x[2] has 8");
    refused(without(7), MIRT_E_SHAPE, "y[1] has shape (9, -2)");
    refused(mirt_take(arrays(9), 0), MIRT_E_INVALID, "mirt_take(0): the argument must be 1 to 2147483647");
    refused(mirt_take(arrays(9), -1), MIRT_E_INVALID, "mirt_take(-1)");
    refused(mirt_skip(arrays(9), -1), MIRT_E_INVALID, "mirt_skip(-1): the argument must be 0 to 2147483647");
    refused(mirt_skip(arrays(9), INT64_MAX), MIRT_E_INVALID, "mirt_skip(9223372036854775807)");
    refused(mirt_skip(arrays(9), 9), MIRT_E_INVALID, "mirt_skip(9) leaves none of 9 samples");
    refused(mirt_skip(mirt_batch(arrays(9), 9), 1), MIRT_E_INVALID, "mirt_skip(1) leaves none of 1 batch");
    refused(mirt_skip(mirt_batch(arrays(9), 4), 3), MIRT_E_INVALID, "mirt_skip(3) leaves none of 3 batches");
    refused(mirt_repeat(arrays(9), (int64_t)1 << 31), MIRT_E_INVALID, "mirt_repeat(2147483648)");
    refused(mirt_repeat(mirt_repeat(mirt_repeat(arrays(9), INT32_MAX), INT32_MAX), INT32_MAX), MIRT_E_INVALID,
            "samples are too many to repeat that often");
    refused(mirt_cache(mirt_repeat(arrays(9), 0)), MIRT_E_INVALID, "mirt_cache needs a data set that ends");
    refused(mirt_map(arrays(9), NULL), MIRT_E_INVALID, "mirt_map needs a function");
    refused(mirt_map(arrays(9), &map), MIRT_E_INVALID, "mirt_map needs a function");
    map.fn = add_one;
    refused(mirt_map(mirt_batch(arrays(9), 2), &map), MIRT_E_INVALID, "mirt_map must come before mirt_batch");
    map.shape.rank = 7;
    refused(mirt_map(arrays(9), &map), MIRT_E_SHAPE, "a shape has 7 dimensions");
    map.shape = MIRT_SHAPE(2, -3);
    map.name = "twist";
    refused(mirt_map(arrays(9), &map), MIRT_E_SHAPE, "twist: x[0] has samples of shape");
    map.shape = MIRT_SHAPE(2);
    map.dtype = (mirt_dtype)9;
    refused(mirt_map(arrays(9), &map), MIRT_E_INVALID, "twist: x[0] has the unknown dtype 9");
    refused(mirt_accumulate(arrays(9), 2), MIRT_E_INVALID, "mirt_accumulate must come after mirt_batch");
    refused(mirt_accumulate(mirt_batch(arrays(9), 2), 0), MIRT_E_INVALID, "mirt_accumulate(0)");
    refused(mirt_accumulate(mirt_batch(arrays(9), 1000000), 100000), MIRT_E_INVALID,
            "100000 batches of 1000000 samples are too large a step");
    refused(mirt_batch(arrays(9), (int64_t)1 << 31), MIRT_E_INVALID, "a batch of 2147483648 samples");
    refused(mirt_shuffle(arrays(9), 0), MIRT_E_INVALID, "a shuffle buffer of 0 samples");
    refused(mirt_shuffle(mirt_repeat(arrays(9), 0), INT64_MAX / 4), MIRT_E_NOMEM, "memory");
    refused(mirt_take(mirt_skip(mirt_repeat(mirt_map(mirt_accumulate(mirt_batch(arrays(9), -7), 2), &map), 2), 1), 1),
            MIRT_E_INVALID, "a batch of -7 samples");
    ok(mirt_dataset_batches(NULL) == 0, "no data set has no batches");
    mirt_dataset *joined = mirt_accumulate(mirt_batch(arrays(9), 2), 2);
    ok(mirt__dataset_pass_over(joined, 1) && !mirt__dataset_pass_over(joined, INT64_MAX / 2 + 2) &&
           !mirt__dataset_pass_over(joined, (int64_t)1 << 53),
       "more batches than can be counted in samples are not passed over");
    mirt_dataset_destroy(joined);
}

int main(void) {
    make_samples();
    test_chains(small_tier() ? 300 : 2000);
    test_map();
    test_endless();
    test_names();
    test_refusals();
    return done_testing();
}
