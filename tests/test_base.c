/* Tests the base: status codes, errors, texts, shapes, memory, random numbers, threads. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>

#define SIMULATED_WITHOUT_HOOK_THREAD
#include "simulated_time.h"

static long live_allocations, memory_fails, threads_fail, thread_calls;

void *hook_malloc(size_t size) {
    if (memory_fails) return NULL;
    __atomic_add_fetch(&live_allocations, 1, __ATOMIC_RELAXED);
    return malloc(size);
}
void hook_free(void *pointer) {
    __atomic_sub_fetch(&live_allocations, 1, __ATOMIC_RELAXED);
    free(pointer);
}
/* The call that counts to threads_fail finds no room. */
static int thread_call(void) {
    return ++thread_calls == threads_fail ? 11 /* EAGAIN */ : 0;
}
int hook_mutex(pthread_mutex_t *mutex) {
    const int code = thread_call();
    return code ? code : pthread_mutex_init(mutex, NULL);
}
int hook_cond(pthread_cond_t *cond, const pthread_condattr_t *attributes) {
    const int code = thread_call();
    return code ? code : pthread_cond_init(cond, attributes);
}
int hook_thread(pthread_t *thread, void *(*fn)(void *), void *arg) {
    const int code = thread_call();
    return code ? code : simulated_create(thread, fn, arg);
}

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"

static mirt_strategy *make_strategy(int threads) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "cpu:0";
    desc.threads = threads;
    desc.silent = true;
    return mirt_strategy_create(&desc);
}

/* A model of one dense layer, not compiled. */
static mirt_model *make_model(mirt_strategy *strategy) {
    mirt_dense_desc dense;
    memset(&dense, 0, sizeof dense);
    dense.units = 2;
    mirt_model *model = mirt_model_create(strategy, NULL);
    mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(3)), &dense));
    return model;
}

/* One way to each status; each returns what the API said. */
static mirt_status reach_ok(mirt_strategy *s) { return mirt_compile(make_model(s), NULL); }
static mirt_status reach_invalid(mirt_strategy *s) {
    (void)s;
    mirt_dataset_destroy(mirt_batch(mirt_drawn_digits(10, 0, MIRT_TRAIN), 0));
    return mirt_last_status();
}
static mirt_status reach_shape(mirt_strategy *s) {
    float x[3] = {1, 2, 3}, out[1];
    mirt_model *model = make_model(s);
    mirt_compile(model, NULL);
    return mirt_predict_arrays(model, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(1, 3)), out, 1);
}
static mirt_status reach_nomem(mirt_strategy *s) {
    memory_fails = 1;
    mirt_model_create(s, NULL);
    memory_fails = 0;
    return mirt_last_status();
}
static mirt_status reach_io(mirt_strategy *s) {
    mirt_load(s, "/");
    return mirt_last_status();
}
static mirt_status reach_format(mirt_strategy *s) {
    mirt_load_memory(s, "not a model at all", 18);
    return mirt_last_status();
}
static mirt_status reach_not_found(mirt_strategy *s) {
    mirt_load(s, "/no/such/file");
    return mirt_last_status();
}
static mirt_status reach_device(mirt_strategy *s) {
    (void)s;
    mirt_strategy_destroy(mirt_mirrored("abacus:0"));
    return mirt_last_status();
}
static mirt_status reach_state(mirt_strategy *s) {
    return mirt_all_reduce(make_model(s));
}
static mirt_status reach_thread(mirt_strategy *s) {
    (void)s;
    thread_calls = 0;
    threads_fail = 1;
    mirt_strategy_destroy(make_strategy(2));
    threads_fail = 0;
    return mirt_last_status();
}
static bool refuse(mirt_function *function, void *user) {
    (void)function, (void)user;
    return false;
}
static mirt_status reach_callback(mirt_strategy *s) {
    mirt_model *model = make_model(s);
    mirt_compile(model, NULL);
    mirt_function_create(model, NULL, refuse, NULL);
    return mirt_last_status();
}
static int hang(void *const *out, int64_t index, void *user) {
    (void)out, (void)index, (void)user;
    simulated_freeze();
    return 0;
}
static void *given_up[2]; /* still there, as its threads are */
static mirt_status reach_timeout(mirt_strategy *s) {
    mirt_generator_desc tap;
    mirt_strategy_desc desc;
    float out[8];
    (void)s;
    memset(&tap, 0, sizeof tap);
    memset(&desc, 0, sizeof desc);
    tap.fn = hang;
    tap.x[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(3));
    tap.num_x = 1;
    tap.samples = 4;
    desc.devices = "cpu:0";
    desc.silent = true;
    desc.timeout_seconds = 0.2;
    simulated_begin(0, 1);
    mirt_strategy *own = mirt_strategy_create(&desc);
    mirt_dataset *data = mirt_batch(mirt_dataset_from_generator(&tap), 4);
    given_up[0] = own;
    given_up[1] = data;
    const mirt_status status = mirt_predict(make_model(own), data, out, 8);
    simulated_end();
    return status;
}
static mirt_status reach_drift(mirt_strategy *s) {
    mirt_strategy_desc desc;
    (void)s;
    memset(&desc, 0, sizeof desc);
    desc.devices = "2";
    desc.silent = true;
    mirt_strategy *own = mirt_strategy_create(&desc);
    mirt_model *model = make_model(own);
    mirt_compile(model, NULL);
    mirt__model_materialize(model);
    mirt__weights_to_devices(model);
    model->device_weight[1][0] ^= 1;
    mirt_check_drift(model);
    mirt_strategy_destroy(own);
    return mirt_last_status();
}
static mirt_status reach_worker(mirt_strategy *s) {
    mirt_strategy_desc desc;
    (void)s;
    memset(&desc, 0, sizeof desc);
    desc.kind = MIRT_MULTI_WORKER;
    desc.silent = true;
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1); /* as if mpirun had started the program */
    mirt_strategy *own = mirt_strategy_create(&desc);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    return own ? MIRT_OK : mirt_last_status();
}
static mirt_status (*const reach[])(mirt_strategy *s) = {
    reach_ok,     reach_invalid, reach_shape,  reach_nomem,    reach_io,      reach_format, reach_not_found,
    reach_device, reach_state,   reach_thread, reach_callback, reach_timeout, reach_drift,
    reach_worker};
static const char *const causes[] = {"none",  "configuration", "configuration", "resources", "environment",
                                     "input", "configuration", "environment",   "bug",       "resources",
                                     "bug",   "input",         "environment",   "environment"};

static void test_statuses(void) {
    mirt_strategy *strategy = make_strategy(1);
    ok(MIRT__COUNT(reach) == MIRT__STATUS_COUNT, "there is a way to each of %d statuses", (int)MIRT__STATUS_COUNT);
    for (int i = 0; i < MIRT__COUNT(reach); i++) {
        const mirt_status status = reach[i](strategy);
        ok((int)status == i && (i == 0 || (mirt_last_status() == status && *mirt_last_error())), "%s: %s",
           mirt_status_text((mirt_status)i), i ? mirt_last_error() : "");
        ok(i == 0 || strcmp(mirt_cause_text(mirt_last_cause()), causes[i]) == 0, "its cause: %s",
           mirt_cause_text(mirt_last_cause()));
        for (int j = 0; j < i; j++) {
            if (strcmp(mirt_status_text((mirt_status)i), mirt_status_text((mirt_status)j)) == 0)
                ok(0, "two codes have one text");
        }
    }
    ok(strcmp(mirt_status_text((mirt_status)-1), "unknown status") == 0 &&
       strcmp(mirt_status_text((mirt_status)MIRT__STATUS_COUNT), "unknown status") == 0, "no text for other numbers");
    ok(strcmp(mirt_cause_text((mirt_cause)-1), "unknown cause") == 0 &&
           strcmp(mirt_cause_text(MIRT__CAUSE_COUNT), "unknown cause") == 0,
       "no cause for other numbers");
    mirt_strategy_destroy(strategy);
}

static void *fail_elsewhere(void *arg) {
    (void)arg;
    const int clean = mirt_last_status() == MIRT_OK && !*mirt_last_error();
    mirt_strategy_destroy(mirt_mirrored("abacus:0"));
    return clean && mirt_last_status() == MIRT_E_DEVICE ? (void *)1 : NULL;
}

static void test_errors(void) {
    char wide[2000];
    pthread_t thread;
    void *clean = NULL;
    mirt__fail(MIRT_E_INVALID, "here");
    pthread_create(&thread, NULL, fail_elsewhere, NULL);
    pthread_join(thread, &clean);
    ok(clean && mirt_last_status() == MIRT_E_INVALID && strcmp(mirt_last_error(), "here") == 0,
       "each thread has its own last error");
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = 0;
    mirt__fail(MIRT_E_IO, "%s", wide);
    const size_t most = strlen(mirt_last_error());
    mirt__fail_at("%s", wide);
    ok(most > 200 && most < 1000 && strlen(mirt_last_error()) == most, "long sentences are cut at %d bytes", (int)most);
    mirt__fail(MIRT_E_SHAPE, "inner");
    ok(mirt__fail_at("outer") == MIRT_E_SHAPE && strcmp(mirt_last_error(), "outer: inner") == 0,
       "a place is put before the sentence");
    mirt__fail(MIRT_E_SHAPE, "<%s>", mirt_last_error());
    ok(strcmp(mirt_last_error(), "<outer: inner>") == 0, "an error may quote the one before it");
}

static void test_texts(void) {
    mirt__text text;
    memset(&text, 0, sizeof text);
    for (int i = 0; i < 100; i++) mirt__text_add(&text, "%d,", i);
    ok(!text.failed && text.size == 290 && strncmp(text.data, "0,1,2,", 6) == 0 && !text.data[290], "a text grows");
    mirt__text_add(&text, "%lc", (wint_t)0x10FFFF); /* the C locale has no such letter */
    ok(text.failed && mirt_last_status() == MIRT_E_INVALID, "what cannot be formatted fails: %s", mirt_last_error());
    mirt__text_add(&text, "more");
    ok(text.size == 290, "a text that failed stays as it is");
    mirt__text_clear(&text);
    ok(!text.failed && text.size == 0 && !*text.data, "and can be used again");
    mirt__text_add_bytes(&text, "ab", 2);
    mirt__text_add_bytes(&text, "x", SIZE_MAX);
    ok(text.failed && mirt_last_status() == MIRT_E_NOMEM, "more than memory: %s", mirt_last_error());
    mirt__text_clear(&text);
    mirt__text_add_bytes(&text, "ab", 2);
    mirt__text_add_bytes(&text, "x", SIZE_MAX - 2);
    ok(text.failed && text.size == 2, "counting the final zero");
    mirt__text_clear(&text);
    memory_fails = 1;
    for (int i = 0; i < 1000 && !text.failed; i++) mirt__text_add(&text, "%d", i);
    memory_fails = 0;
    ok(text.failed && mirt_last_status() == MIRT_E_NOMEM && text.data[0] == '0', "no memory: what was there stays");
    mirt__text_free(&text);

    static const char *const words[] = {
        "Dense", "Conv2D", "a_word_that_is_much_longer_than_any_name_that_a_layer_or_loss_would_ever_have", "Flatten"};
    char wide[65];
    memset(wide, 'D', 64);
    wide[64] = 0;
    ok(mirt__nearest("dense", words, 4) == words[0] && mirt__nearest("Desne", words, 4) == words[0] &&
           mirt__nearest("conv2", words, 4) == words[1] && mirt__nearest("Flaten", words, 4) == words[3],
       "the word that was meant");
    ok(!mirt__nearest("Dropout", words, 4) && !mirt__nearest("", words, 4) && !mirt__nearest(NULL, words, 4) &&
       !mirt__nearest(wide, words, 4), "or none");
}

/* Whether a terminal shows the text as it is: no byte of it steers. Newlines end lines of texts. */
static bool tame(const char *text, bool lines) {
    for (const unsigned char *at = (const unsigned char *)text; at && *at; at++) {
        if ((*at < 32 && !(lines && *at == '\n')) || *at == 127 || (*at == 0xC2 && at[1] < 0xA0) || *at == 0xFF)
            return false;
    }
    return text != NULL;
}

static char logged[4096];

static void keep_log(mirt_log_level level, const char *text, void *user) {
    const size_t used = strlen(logged);
    (void)level;
    (void)user;
    snprintf(logged + used, sizeof logged - used, "%s|", text);
}

static void test_printable(void) {
    static const char *const pairs[][2] = {{"cats", "cats"},
                                           {"", ""},
                                           {"a\x1b]0;title\x07", "a\\x1b]0;title\\x07"},
                                           {"x\r\nfinal: loss=0", "x\\x0d\\x0afinal: loss=0"},
                                           {"\x7f", "\\x7f"},
                                           {"\xc2\x9b"
                                            "31m",
                                            "\\xc2\\x9b31m"},
                                           {"\xc2\xa0", "\xc2\xa0"},
                                           {"h\xc3\xa9t\xf0\x9f\x90\xb1", "h\xc3\xa9t\xf0\x9f\x90\xb1"},
                                           {"\x9b"
                                            "31m",
                                            "\\x9b31m"},
                                           {"\xff\xc3", "\\xff\\xc3"},
                                           {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                                           {"\xc0\x9b", "\\xc0\\x9b"},
                                           {"\xe2\x80\xae"
                                            "txt.exe",
                                            "\\xe2\\x80\\xaetxt.exe"},
                                           {NULL, ""}};
    char out[64];
    int wrong = 0;
    for (int i = 0; i < MIRT__COUNT(pairs); i++) {
        const size_t length = mirt_printable(pairs[i][0], out, sizeof out);
        if (length == strlen(pairs[i][1]) && strcmp(out, pairs[i][1]) == 0 && mirt_printable(out, NULL, 0) == length)
            continue;
        wrong++;
        ok(false, "pair %d is shown as %s", i, out);
    }
    ok(wrong == 0, "text is made printable, and once is enough");
    /* Marks, embeddings, overrides and isolates reorder text, separators end a line; their neighbors are letters. */
    static const struct {
        unsigned first, last;
    } steer[] = {{0x061C, 0x061C}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}};
    wrong = 0;
    for (unsigned c = 0xA0; c < 0x3000; c++) {
        bool escaped = false;
        for (int i = 0; i < MIRT__COUNT(steer); i++) escaped = escaped || (c >= steer[i].first && c <= steer[i].last);
        char text[4] = {(char)(0xE0 | c >> 12), (char)(0x80 | (c >> 6 & 0x3F)), (char)(0x80 | (c & 0x3F)), 0};
        if (c < 0x800) snprintf(text, sizeof text, "%c%c", (int)(0xC0 | c >> 6), (int)(0x80 | (c & 0x3F)));
        mirt_printable(text, out, sizeof out);
        if ((out[0] == '\\') == escaped && (escaped ? strlen(out) == 4 * strlen(text) : strcmp(out, text) == 0))
            continue;
        wrong++;
        ok(false, "U+%04X is shown as %s", c, out);
    }
    ok(wrong == 0, "of the characters up to U+3000, those that reorder text or end lines are escaped");
    bool whole = true;
    for (size_t size = 0; size < 16; size++) {
        memset(out, '#', sizeof out);
        whole = whole &&
                mirt_printable("a\xc3\xa9\x1b"
                               "b",
                               out, size) == 8 &&
                out[size] == '#' && (size == 0 || strlen(out) < size);
        if (size == 3) whole = whole && strcmp(out, "a") == 0;
        if (size == 7) whole = whole && strcmp(out, "a\xc3\xa9") == 0;
        if (size == 9) whole = whole && strcmp(out, "a\xc3\xa9\\x1bb") == 0;
    }
    ok(whole, "it is cut between characters, within the bytes there are");

    static const char hostile[] = "evil\x1b]0;owned\x07\r\nfinal: loss=0\x7f\xc2\x9b" "2J";
    char text[700];
    snprintf(text, sizeof text, "/none/%s/\xff", hostile);
    mirt_strategy *strategy = make_strategy(1);
    ok(!mirt_load(strategy, text) && tame(mirt_last_error(), false) &&
           strstr(mirt_last_error(), "evil\\x1b]0;owned\\x07\\x0d\\x0afinal"),
       "an error about a hostile path: %s", mirt_last_error());
    for (size_t pad = 500; pad < 520; pad++) { /* where the sentence is cut */
        memset(text, 'p', pad);
        snprintf(text + pad, sizeof text - pad, "\xf0\x9f\x90\xb1\x1b");
        mirt_load(strategy, text);
        whole = whole && tame(mirt_last_error(), false) && strlen(mirt_last_error()) < 512 &&
                mirt__utf8_valid(mirt_last_error(), strlen(mirt_last_error())) && !strstr(mirt_last_error(), "\\xf0");
    }
    ok(whole, "a sentence that is cut within a character ends before it");

    mirt_compile_desc compile;
    mirt_dense_desc dense;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[4] = {1, 0, 0, 1};
    memset(&compile, 0, sizeof compile);
    memset(&dense, 0, sizeof dense);
    mirt_set_log(strategy, keep_log, NULL);
    compile.loss = MIRT_BINARY_CROSSENTROPY;
    compile.optimizer = mirt_sgd(0.1f, 0, false);
    dense.units = 2;
    dense.name = hostile;
    mirt_model *model = mirt_model_create(strategy, hostile);
    mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(3)), &dense));
    const bool compiled = mirt_compile(model, &compile) == MIRT_OK && mirt_profile_begin(model) == MIRT_OK;
    ok(compiled && strstr(logged, "evil\\x1b") && tame(logged, false), "a log line about hostile names: %s", logged);
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(2, 3));
    data.y[0] = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(2, 2));
    mirt_dataset *dataset = mirt_batch(mirt_arrays_of(&data), 2);
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.epochs = 2;
    ok(mirt_fit(model, dataset, &fit) != NULL, "it trains: %s", mirt_last_error());
    const char *texts[] = {mirt_summary(model, 2), mirt_graph_text(model, 2), mirt_timing_text(model),
                           mirt_profile_text(model)};
    static const char *const names[] = {"summary", "graph", "timing", "profile"};
    for (int i = 0; i < MIRT__COUNT(texts); i++) {
        ok(texts[i] && strstr(texts[i], "evil\\x1b") && tame(texts[i], true) && !strstr(texts[i], "\nfinal"), "its %s",
           names[i]);
    }
    mirt__text json = {NULL, 0, 0, false};
    mirt__json_write_string(&json, hostile);
    ok(tame(json.data, false) && strstr(json.data, "\\u007f\\u009b2J"), "JSON of it: %s", json.data);
    mirt__text_free(&json);
    mirt_dataset_destroy(dataset);
    mirt_strategy_destroy(strategy);
}

static void test_shapes(void) {
    char out[96];
    mirt_shape shape = mirt_make_shape(1, 2, 3, 4, 5, 6);
    ok(shape.rank == 6 && mirt__shape_count(&shape) == 720 &&
           strcmp(mirt__shape_text(&shape, out), "(1, 2, 3, 4, 5, 6)") == 0,
       "six dimensions: %s", out);
    shape = MIRT_SHAPE(MIRT_ROWS, 28, 28);
    ok(shape.rank == 3 && mirt__shape_count(&shape) == 784 &&
           strcmp(mirt__shape_text(&shape, out), "(rows, 28, 28)") == 0,
       "rows of images: %s", out);
    shape = mirt_make_shape(0, 0, 0, 0, 0, 0);
    ok(shape.rank == 0 && mirt__shape_count(&shape) == 1 && strcmp(mirt__shape_text(&shape, out), "()") == 0,
       "none: %s", out);
    shape = MIRT_SHAPE(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);
    mirt__shape_text(&shape, out);
    ok(strlen(out) < 96 && out[strlen(out) - 1] == ')' && mirt__shape_count(&shape) == -1,
       "too much to write or count: %s", out);
    shape = MIRT_SHAPE(3, -7);
    ok(mirt__shape_count(&shape) == -1, "a negative dimension has no count");
    const mirt_shape a = MIRT_SHAPE(2, 3), b = MIRT_SHAPE(2, 4), c = MIRT_SHAPE(2, 3, 1);
    ok(mirt__shape_equal(&a, &a) && !mirt__shape_equal(&a, &b) && !mirt__shape_equal(&a, &c), "equal or not");
    int sizes = 0;
    for (int d = 0; d < MIRT__DTYPE_COUNT; d++)
        sizes += mirt__dtype_size((mirt_dtype)d) > 0 && !strstr(mirt__dtype_name((mirt_dtype)d), "unknown");
    static const struct {
        int dtype;
        const char *name;
    } halves[] = {{MIRT__BFLOAT16, "bfloat16"}, {MIRT__FLOAT16, "float16"}};
    for (int i = 0; i < 2; i++) {
        const mirt_dtype half = (mirt_dtype)halves[i].dtype;
        ok(mirt__dtype_size(half) == 2 && strcmp(mirt__dtype_name(half), halves[i].name) == 0 &&
               !mirt__dtype_known(half) && mirt__dtype_known(MIRT_BOOL),
           "%s is no type of users", halves[i].name);
    }
    const mirt_dtype none = (mirt_dtype)(MIRT__FLOAT16 + 1);
    ok(sizes == MIRT__DTYPE_COUNT && mirt__dtype_size(none) == 0 && strstr(mirt__dtype_name(none), "unknown"),
       "each element type has a name and a size, and no other");
}

static void test_memory(void) {
    const long before = live_allocations;
    mirt__pool pool;
    memset(&pool, 0, sizeof pool);
    ok(!mirt__calloc(SIZE_MAX / 2, 3) && mirt_last_status() == MIRT_E_NOMEM, "a product beyond memory: %s",
       mirt_last_error());
    ok(!mirt__aligned_alloc(SIZE_MAX - 3) && mirt_last_status() == MIRT_E_NOMEM, "a sum beyond memory: %s",
       mirt_last_error());
    ok(!mirt__pool_alloc(&pool, SIZE_MAX - 3) && !pool.head, "in a pool too");
    size_t out = 7;
    ok(!mirt__add_size(SIZE_MAX, 1, &out) && !mirt__mul_size(SIZE_MAX / 2 + 1, 2, &out) && mirt__mul_size(5, 0, &out) &&
           out == 0,
       "sizes");
    int wrong = 0;
    for (size_t size = 0; size < 300; size += 7) {
        unsigned char *block = (unsigned char *)mirt__aligned_alloc(size);
        wrong += !block || (uintptr_t)block % MIRT__ALIGN != 0;
        if (block) memset(block, 0xAB, size);
        mirt__aligned_free(block);
    }
    ok(!wrong, "blocks are aligned");
    void *grown = NULL;
    ok(mirt__grow(&grown, 0, 4, 1) && memcpy(grown, "abc", 4) && mirt__grow(&grown, 4, 400, 1) &&
           strcmp((char *)grown, "abc") == 0 && ((char *)grown)[399] == 0,
       "a block grows and keeps what it holds");
    mirt__free(grown);
    const char *name = mirt__pool_strdup(&pool, "name");
    const unsigned char *zeros = (const unsigned char *)mirt__pool_alloc(&pool, 100);
    for (int i = 0; i < 100; i++) wrong += zeros[i];
    ok(!wrong && strcmp(name, "name") == 0, "pools give zeros and copies");
    mirt__pool_free(&pool);
    ok(live_allocations == before, "all is given back");
}

static void test_random(void) {
    /* Known answers of Random123's Philox4x32-10. */
    const uint32_t ones[4] = {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, none[4] = {0, 0, 0, 0};
    const uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, pi_key[2] = {0xa4093822, 0x299f31d0};
    const uint32_t of_none[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                   of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    const uint32_t of_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    uint32_t a[4], b[4], c[4];
    mirt__philox(none, none, a);
    mirt__philox(ones, ones, b);
    mirt__philox(pi, pi_key, c);
    ok(memcmp(a, of_none, 16) == 0 && memcmp(b, of_ones, 16) == 0 && memcmp(c, of_pi, 16) == 0,
       "Philox gives its known answers");

    /* Without drawing again, the residues 0, 1, 2 of a number below 3 * 2^30 would come as 2 : 1 : 1; without
       it, a number below 3 * 2^62 would lie in its first third every second time. */
    mirt__random random = mirt__random_stream(1, 2);
    int residue[3] = {0, 0, 0}, third[3] = {0, 0, 0}, beyond = 0;
    const uint64_t small = (uint64_t)3 << 30, large = (uint64_t)3 << 62;
    for (int i = 0; i < 30000; i++) {
        const uint64_t x = mirt__random_below(&random, small), y = mirt__random_below(&random, large);
        beyond += x >= small || y >= large;
        residue[x % 3]++;
        third[(y >> 62) % 3]++;
    }
    int biased = 0;
    for (int i = 0; i < 3; i++) biased += abs(residue[i] - 10000) > 400 || abs(third[i] - 10000) > 400; /* 5 sigma */
    ok(!beyond && !biased, "numbers below a bound are not biased: %d %d %d, %d %d %d", residue[0], residue[1],
       residue[2], third[0], third[1], third[2]);
    ok(mirt__random_below(&random, 1) == 0 && mirt__random_below(&random, 0) == 0, "below 1 there is 0");
    double sum = 0, squares = 0, lowest = 1, highest = 0;
    for (int i = 0; i < 20000; i++) {
        const double x = mirt__random_normal(&random), u = mirt__random_unit(&random);
        sum += x;
        squares += x * x;
        if (u < lowest) lowest = u;
        if (u > highest) highest = u;
    }
    ok(fabs(sum / 20000) < 0.036 && fabs(squares / 20000 - 1) < 0.05 && lowest >= 0 && lowest < 0.001 && highest < 1 &&
           highest > 0.999,
       "normal: mean %.4f, variance %.4f; uniform from %.5f to %.5f", sum / 20000, squares / 20000, lowest, highest);
}

static int same_sample(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in, (void)out, (void)index, (void)user;
    return 0;
}

static mirt_dataset *make_prefetch(void) {
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    map.fn = same_sample;
    return mirt_prefetch(mirt_batch(mirt_map(mirt_drawn_digits(8, 0, MIRT_TRAIN), &map), 2), 2);
}

/* The n-th lock, condition or thread of a strategy, or of a prefetch, cannot be had. */
static void test_threads(void) {
    for (int kind = 0; kind < 2; kind++) {
        const long before = live_allocations;
        int refused = 0, wrong = 0;
        for (threads_fail = 1;; threads_fail++) {
            thread_calls = 0;
            mirt_strategy *strategy = kind ? NULL : make_strategy(3);
            mirt_dataset *data = kind ? make_prefetch() : NULL;
            const int made = strategy || data;
            mirt_strategy_destroy(strategy);
            mirt_dataset_destroy(data);
            if (made) break;
            refused++;
            wrong += mirt_last_status() != MIRT_E_THREAD || live_allocations != before;
        }
        threads_fail = 0;
        ok(refused >= 4 && !wrong && live_allocations == before,
           "%s without one of its %d locks, conditions and threads: %s", kind ? "a prefetch" : "a strategy", refused,
           mirt_last_error());
    }
    static const char *const odd[] = {"x", "3x", "-3", "0", "5000"};
    mirt_device_info info;
    for (int i = 0; i < MIRT__COUNT(odd); i++) {
        setenv("MIRT_CORES", odd[i], 1);
        const bool refused = mirt__cpu_cores() == 0 && mirt_devices(&info, 1) == 0 && !make_strategy(1);
        ok(refused && mirt_last_status() == MIRT_E_DEVICE && strstr(mirt_last_error(), "MIRT_CORES"), "%s",
           mirt_last_error());
    }
    unsetenv("MIRT_CORES");
}

/* What the compiler's own library finds. */
static void check_instructions(void) {
#if defined(__x86_64__)
    const unsigned there = mirt__instructions_there();
    __builtin_cpu_init();
#define IS_THERE(name, word, bit, state) \
    ok((there >> MIRT__INSTRUCTION_##name & 1) == (__builtin_cpu_supports(#name) != 0) && \
           strcmp(mirt__instruction_name(MIRT__INSTRUCTION_##name), #name) == 0, \
       "%s: %s", #name, there >> MIRT__INSTRUCTION_##name & 1 ? "there" : "not there");
    MIRT__INSTRUCTION_LIST(IS_THERE)
#undef IS_THERE
#endif
}

int main(void) {
    check_instructions();
    unsetenv("MIRT_CORES");
    test_statuses();
    test_errors();
    test_texts();
    test_printable();
    test_shapes();
    test_memory();
    test_random();
    test_threads();
    return done_testing();
}
