/* Models saved as ONNX: what is refused, when memory or files fail, and equal bytes. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define MIRRORTRAIN_IMPLEMENTATION
#define MIRRORTRAIN_MALLOC hook_malloc
#define MIRRORTRAIN_FREE hook_free
#include <stddef.h>
void *hook_malloc(size_t size);
void hook_free(void *block);
#include "../mirrortrain.h"
#include "failing_malloc.h"
#include "layer_util.h"

#include <sys/stat.h>
#include <unistd.h>

static char place[150];

static const char *path_of(const char *name) {
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

static size_t bytes_of(const char *name, char *out, size_t room) {
    FILE *f = fopen(path_of(name), "rb");
    const size_t size = f ? fread(out, 1, room, f) : 0;
    if (f) fclose(f);
    return size;
}

static mirt_model *convnet(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "convnet");
    mirt_conv2d_desc d = conv(3, 3, 3, 2, MIRT_SAME);
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(7, 6, 2)), *unread = mirt_input(m, MIRT_SHAPE(3));
    x = batch_norm_axis(mirt_conv2d(mirt_rescale(x, 0.5f, 1), &d), 0, false);
    x = mirt_dropout(mirt_multiply(mirt_relu(x), mirt_sigmoid(mirt_reduce_mean(x, 6, true))), 0.5f);
    x = dense(mirt_flatten(layer_norm_axis(mirt_relu6(x), 1, 0, 1e-3f)), 4, MIRT_GELU, false);
    (void)unread;
    mirt_model_output(m, mirt_softmax(x));
    return m;
}

static bool holds(const char *data, size_t size, const char *text) {
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= size; i++) {
        if (memcmp(data + i, text, length) == 0) return true;
    }
    return false;
}

static void test_files(mirt_strategy *s) {
    static char first[100000], second[100000];
    static const char *const names[] = {"cat \"one\"", "dog", "\xc3\xa4", "d"};
    mirt_model *m = convnet(s);
    ok(mirt_save_onnx(m, path_of("a.onnx"), NULL) == MIRT_OK, "saved: %s", mirt_last_error());
    const size_t size = bytes_of("a.onnx", first, sizeof first);
    ok(mirt_save_onnx(m, path_of("a.onnx"), NULL) == MIRT_OK && size > 500 &&
           bytes_of("a.onnx", second, sizeof second) == size && memcmp(first, second, size) == 0,
       "the same model gives the same %zu bytes", size);
    ok(!holds(first, size, "class_names"), "no names of classes, no metadata");
    ok(mirt_set_dtype_policy(m, "mixed_bfloat16") == MIRT_OK && mirt_save_onnx(m, path_of("b.onnx"), NULL) == MIRT_OK &&
           bytes_of("b.onnx", second, sizeof second) == size && memcmp(first, second, size) == 0,
       "whatever the dtype policy");
    mirt_set_model_class_names(m, names, 4);
    mirt_save_onnx(m, path_of("b.onnx"), NULL);
    const size_t named = bytes_of("b.onnx", second, sizeof second);
    ok(holds(second, named, "class_names") && holds(second, named, "[\"cat \\\"one\\\"\",\"dog\",\"\xc3\xa4\",\"d\"]"),
       "names of classes are a JSON list");
    ok(holds(first, size, "input_layer_1"), "an input that nothing reads is an input");
    mirt_model_destroy(m);
}

static void refused(mirt_status got, mirt_status want, const char *words) {
    ok(got == want && strstr(mirt_last_error(), words), "%s: %s", words, got ? mirt_last_error() : "no error");
}

static void test_misuse(mirt_strategy *s) {
    static char old[16];
    mirt_model *m = convnet(s), *empty = mirt_model_create(s, "empty"), *broken = mirt_model_create(s, "broken");
    FILE *f = fopen(path_of("old.onnx"), "w");
    if (f) {
        fputs("old", f);
        fclose(f);
    }
    refused(mirt_save_onnx(NULL, path_of("x.onnx"), NULL), MIRT_E_INVALID, "no model or no path");
    refused(mirt_save_onnx(m, NULL, NULL), MIRT_E_INVALID, "no model or no path");
    refused(mirt_save_onnx(m, "", NULL), MIRT_E_INVALID, "no model or no path");
    refused(mirt_save_onnx(empty, path_of("x.onnx"), NULL), MIRT_E_STATE, "empty has no outputs yet");
    refused(mirt_save_onnx(m, path_of("none/x.onnx"), NULL), MIRT_E_NOT_FOUND, "none/x.onnx");
    refused(mirt_save_onnx(m, place, NULL), MIRT_E_IO, "not a regular file");
    dense(mirt_input(broken, MIRT_SHAPE(3)), -1, MIRT_LINEAR, false);
    refused(mirt_save_onnx(broken, path_of("x.onnx"), NULL), MIRT_E_INVALID, "dense");
    mirt_model_output(empty, mirt_sparsemax(mirt_input(empty, MIRT_SHAPE(3)), -1));
    refused(mirt_save_onnx(empty, path_of("old.onnx"), NULL), MIRT_E_INVALID, "sparsemax cannot be written as ONNX");
    ok(bytes_of("old.onnx", old, sizeof old) == 3 && memcmp(old, "old", 3) == 0, "the file is still the old one");
    ok(access(path_of("x.onnx"), F_OK) != 0, "no file where nothing was saved");
    mirt_model_destroy(m);
    mirt_model_destroy(empty);
    mirt_model_destroy(broken);
}

/* >>operations of the user's */

static int copied(const mirt_op_call *call, void *user) {
    (void)user;
    memcpy(call->out, call->in[0], (size_t)mirt__shape_count(&call->out_shape) * sizeof *call->out);
    return 0;
}
static mirt_tensor *negated(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in, (void)config, (void)user;
    return mirt_negative(in[0]);
}
static mirt_tensor *summed(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in, (void)config, (void)user;
    return mirt_reduce_sum(in[0], 2, false);
}
static mirt_tensor *nothing(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)in, (void)num_in, (void)config, (void)user;
    return NULL;
}
static mirt_tensor *misshapen(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in, (void)config, (void)user;
    return mirt_reshape(in[0], MIRT_SHAPE(7));
}
static mirt_tensor *layered(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in, (void)config, (void)user;
    return dense(in[0], 3, MIRT_LINEAR, false);
}

static mirt_model *other, *saved;
static mirt_tensor *foreign, *added;
static mirt_status nested_status;
static mirt_tensor *elsewhere(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)in, (void)num_in, (void)config, (void)user;
    return foreign;
}
static mirt_tensor *nested(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    ZEROED(mirt_op_class, op);
    (void)config, (void)user;
    op.name = "copied";
    op.forward = copied;
    return mirt_custom_op(&op, in, num_in, NULL);
}
static mirt_tensor *meddling(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    static bool inside;
    (void)num_in, (void)config, (void)user;
    if (!inside) {
        inside = true;
        nested_status = mirt_save_onnx(saved, path_of("m.onnx"), NULL);
        mirt_model_destroy(saved);
        added = mirt_variable(saved, "more", MIRT_SHAPE(3), mirt_zeros(), true);
        inside = false;
    }
    return mirt_negative(in[0]);
}

static mirt_status save_custom(mirt_strategy *s, mirt_tensor *(*compose)(mirt_tensor *const *in, int num_in,
                                                                       const void *config, void *user)) {
    ZEROED(mirt_op_class, op);
    mirt_model *m = mirt_model_create(s, "own");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(3)), *first = mirt_relu(x);
    saved = m;
    op.name = "copied";
    op.forward = copied;
    op.compose = compose;
    mirt_model_output(m, mirt_add(mirt_custom_op(&op, &x, 1, NULL), first)); /* reads what is before the op, too */
    const mirt_status status = mirt_save_onnx(m, path_of("own.onnx"), NULL);
    mirt_model_destroy(m);
    return status;
}

static void test_custom(mirt_strategy *s) {
    static char data[4000];
    refused(save_custom(s, NULL), MIRT_E_INVALID, "copied is an op of your own; compose of its class says");
    ok(save_custom(s, negated) == MIRT_OK && holds(data, bytes_of("own.onnx", data, sizeof data), "Neg"),
       "its class says what it is made of");
    refused(save_custom(s, summed), MIRT_E_CALLBACK,
            "compose of copied returned float32 of (rows); it should be (rows, 3) of float32");
    refused(save_custom(s, nothing), MIRT_E_CALLBACK, "compose of copied returned NULL");
    refused(save_custom(s, misshapen), MIRT_E_SHAPE, "cannot be reshaped");
    ok(save_custom(s, layered) != MIRT_OK, "a layer there has no model: %s", mirt_last_error());
    other = mirt_model_create(s, "other");
    foreign = mirt_input(other, MIRT_SHAPE(3));
    refused(save_custom(s, elsewhere), MIRT_E_CALLBACK, "a tensor that it did not make");
    refused(save_custom(s, nested), MIRT_E_INVALID, "copied is an op of your own");
    ok(save_custom(s, meddling) == MIRT_OK && nested_status == MIRT_OK && !added,
       "code that saves, changes or destroys the model does no harm: %s", mirt_last_error());
    mirt_model_destroy(other);
}

/* >>memory */

/* What is written with operations of its own: computed statistics, indices, sizes. */
static mirt_model *oddities(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "oddities");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(4, 3, 4)), *y[6];
    mirt_conv2d_desc d = conv(2, 3, 3, 2, MIRT_SAME);
    const int64_t begin[4] = {0, 1, 0, 0}, size[4] = {-1, 2, -1, -1};
    y[0] = mirt_flatten(group_norm(mirt_gelu_approximate(x), 2, false, false, 1e-3f));
    y[1] = mirt_flatten(mirt_conv2d_transpose(mirt_slice(x, begin, size), &d));
    y[2] = mirt_flatten(mirt__resize2d_op(mirt_selu(mirt_mish(x)), 6, 5, false));
    y[3] = mirt_flatten(mirt__resize2d_op(mirt_clip(x, -INFINITY, 1), 8, 6, true));
    y[4] = mirt_one_hot(mirt_argmax(mirt_flatten(x), 1), 5);
    y[5] = mirt_gather(mirt_variable(m, "table", MIRT_SHAPE(7, 2), mirt_zeros(), true),
                       mirt_argmin(mirt_softmax(mirt_reshape_layer(x, MIRT_SHAPE(48))), 1));
    mirt_model_output(m, mirt_concat(y, 6, 1));
    return m;
}

static void test_memory(mirt_model *m) {
    static char want[100000], got[100000];
    int wrong = 0, failed = 0;
    mirt_save_onnx(m, path_of("m.onnx"), NULL);
    const size_t size = bytes_of("m.onnx", want, sizeof want);
    for (long k = 1;; k++) {
        const long blocks = live_blocks;
        allocations = 0;
        fails = k;
        const mirt_status status = mirt_save_onnx(m, path_of("m.onnx"), NULL);
        const bool reached = allocations >= k;
        fails = 0;
        wrong += live_blocks != blocks || bytes_of("m.onnx", got, sizeof got) != size || memcmp(want, got, size) != 0;
        if (!reached) {
            wrong += status != MIRT_OK;
            break;
        }
        failed++;
        wrong += status != MIRT_E_NOMEM;
    }
    ok(failed > 20 && wrong == 0, "%s: each of %d allocations fails: MIRT_E_NOMEM, nothing leaks, the file stays: %s",
       m->name, failed, wrong ? mirt_last_error() : "");
    mirt_model_destroy(m);
}

int main(void) {
    snprintf(place, sizeof place, "%s/mirt_onnx_%ld", tap_tmpdir(), (long)getpid());
    if (mkdir(place, 0700) != 0) return ok(false, "%s cannot be made", place), done_testing();
    mirt_strategy *s = quiet(0);
    test_files(s);
    test_misuse(s);
    test_custom(s);
    test_memory(convnet(s));
    test_memory(oddities(s));
    mirt_strategy_destroy(s);
    static const char *const left[] = {"a.onnx", "b.onnx", "m.onnx", "own.onnx", "old.onnx"};
    for (int i = 0; i < MIRT__COUNT(left); i++) remove(path_of(left[i]));
    ok(rmdir(place) == 0, "nothing else is left");
    return done_testing();
}
