/* Tests hostile saved models. Each is refused at once with a message that names the fault, without allocating the
   memory that it claims to need; random damage is harmless. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

static size_t bytes_now, bytes_peak; /* one thread only */

void *hook_malloc(size_t size) {
    size_t *block = size <= (size_t)1 << 30 ? (size_t *)malloc(size + 16) : NULL;
    if (!block) return NULL;
    block[0] = size;
    bytes_now += size;
    if (bytes_now > bytes_peak) bytes_peak = bytes_now;
    return block + 2;
}

void hook_free(void *pointer) {
    size_t *block = (size_t *)pointer - 2;
    bytes_now -= block[0];
    free(block);
}

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "gallery.h"
#include "tap.h"

#include <time.h>
#include <unistd.h>

static mirt_strategy *strategy;
static mirt__safetensors victims[2], *victim = victims; /* the models that the others are made from: a chain, and a
                                                           graph */
static const char *const text_key[3] = {"architecture", "compile", "training"};
enum { ARCHITECTURE, COMPILE, TRAINING };
static uint8_t pixels[4 * 36], labels[4] = {0, 1, 2, 0};

/* A new file and its path; returns its descriptor, -1 after a failure. */
static int create_file(char *path, size_t size) {
    char beside[512];
    snprintf(beside, sizeof beside, "%s/mirt_hostile", tap_tmpdir());
    return mirt_create_temporary(beside, path, size);
}

/* Compiled, trained by one step, saved and opened again as `out`. */
static void keep_victim(mirt_model *model, mirt__safetensors *out) {
    char path[600];
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    desc.from_logits = true;
    desc.metrics[0] = MIRT_ACCURACY;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7);
    int fd = create_file(path, sizeof path);
    ok(fd >= 0 && mirt_compile(model, &desc) == MIRT_OK &&
           mirt_train_step(model, mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(4, 6, 6, 1)),
                           mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(4)), NULL) == MIRT_OK &&
           mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK && mirt__safetensors_open(out, path) == MIRT_OK,
       "a small model is trained and saved: %s", mirt_last_error());
    if (fd >= 0) close(fd);
    unlink(path);
    mirt_model_destroy(model);
}

static void make_chain(void) {
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    conv.filters = 2;
    conv.kernel[0] = 3;
    conv.activation = MIRT_RELU;
    dense.units = 3;
    mirt_model *model = mirt_model_create(strategy, "victim");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(6, 6, 1)), 0.5f, 0);
    x = mirt_dropout(mirt_max_pool2d(mirt_conv2d(x, &conv), NULL), 0.25f);
    mirt_model_output(model, mirt_dense(mirt_flatten(x), &dense));
    keep_victim(model, &victims[0]);
}

/* Operations, a weight and a term of the loss outside of layers, and a model inside of the model. */
static void make_graph(void) {
    static const float table[6] = {1, 2, 3, 4, 5, 6};
    static const uint8_t truths[3] = {1, 0, 1};
    const int64_t before[4] = {0, 1, 0, 0}, after[4] = {0, 0, 2, 0}, begin[4] = {0, 1, 1, 0}, size[4] = {-1, 3, 4, 1};
    const int swapped[4] = {0, 2, 1, 3};
    mirt_dense_desc dense;
    mirt_tensor *both[2];
    memset(&dense, 0, sizeof dense);
    dense.units = 3;
    mirt_model *part = mirt_model_create(strategy, "part"), *model = mirt_model_create(strategy, "graph");
    mirt_model_output(part, mirt_dense(mirt_batch_norm(mirt_input(part, MIRT_SHAPE(3)), NULL), &dense));
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(6, 6, 1)),
                *mix = mirt_variable(model, "mix", MIRT_SHAPE(12, 3), mirt_random_normal(0, 1), true);
    mirt_tensor *y =
        mirt_clip(mirt_slice(mirt_transpose(mirt_pad(x, before, after, 0.5f), swapped), begin, size), -INFINITY, 9);
    y = mirt_matmul(mirt_reshape(y, MIRT_SHAPE(12)), mix, false, false);
    mirt_tensor *truth = mirt_equal(mirt_constant_tensor(y, mirt_make_array(truths, MIRT_UINT8, MIRT_SHAPE(3))),
                                    mirt_cast(mirt_one_hot(mirt_argmax(y, 1), 3), MIRT_UINT8));
    y = mirt_where(truth, y,
                   mirt_gather(mirt_constant_tensor(y, mirt_make_array(table, MIRT_FLOAT32, MIRT_SHAPE(2, 3))),
                               mirt_cast(mirt_argmin(y, 1), MIRT_INT32)));
    both[0] = mirt_call(part, mirt_cumsum(y, 1), MIRT_TRAINING_AUTO);
    both[1] = mirt_call(part, y, MIRT_TRAINING_OFF);
    y = mirt_scale(mirt_concat(both, 2, 1), 0.5f, 0);
    mirt_split_tensor(y, 2, -1, both);
    mirt_model_output(model, mirt_subtract(both[0], mirt_reduce_max(both[1], 2u, true)));
    mirt_add_loss(model, mirt_reduce_mean(mirt_square(mix), 0, false));
    mirt_set_trainable(model, "part/dense/bias", false);
    keep_victim(model, &victims[1]);
}

/* A file with the given texts; tensor `odd` is left out (change 'm') or described falsely ('s': another
   shape of the same size, 'd': another dtype); 'x': an unknown tensor more. */
static unsigned char *build(const char *const text[3], const char *odd, char change, size_t *size) {
    mirt__text out;
    size_t offset = 0;
    memset(&out, 0, sizeof out);
    mirt__text_add(&out, "LLLLLLLL{\"__metadata__\":{\"format\":\"mirrortrain\"");
    for (int i = 0; i < 3; i++) {
        if (!text[i]) continue;
        mirt__text_add(&out, ",\"%s\":", text_key[i]);
        mirt__json_write_string(&out, text[i]);
    }
    mirt__text_add(&out, "}");
    for (int i = 0; i < victim->count; i++) {
        const mirt__safetensor *t = &victim->tensor[i];
        bool is_odd = odd && strcmp(odd, t->name) == 0;
        if (is_odd && change == 'm') continue;
        mirt__text_add(&out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, is_odd && change == 'd' ? "I32" : "F32");
        for (int d = 0; d < t->rank; d++) mirt__text_add(&out, "%s%lld", d ? "," : "", (long long)t->dim[d]);
        mirt__text_add(&out, "%s],\"data_offsets\":[%zu,%zu]}", is_odd && change == 's' ? ",1" : "", offset,
                       offset + t->size);
        offset += t->size;
    }
    if (change == 'x')
        mirt__text_add(&out, ",\"more\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[%zu,%zu]}", offset, offset);
    mirt__text_add(&out, "}");
    for (int i = 0; i < 8; i++) out.data[i] = (char)((uint64_t)(out.size - 8) >> (8 * i) & 255u);
    for (int i = 0; i < victim->count; i++) {
        if (!(odd && change == 'm' && strcmp(odd, victim->tensor[i].name) == 0))
            mirt__text_add_bytes(&out, victim->tensor[i].data, victim->tensor[i].size);
    }
    unsigned char *copy = (unsigned char *)malloc(out.size); /* exactly as long, so that sanitizers see every byte too
                                                                far */
    if (copy) memcpy(copy, out.data, out.size);
    *size = copy ? out.size : 0;
    mirt__text_free(&out);
    return copy;
}

/* `text` with the first `from` replaced, or NULL; to be freed. */
static char *replaced(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    if (!at) return NULL;
    char *out = (char *)malloc(strlen(text) + strlen(to) + 1);
    if (out) sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

typedef struct lie {
    int text;
    const char *from, *to;
    mirt_status status;
    const char *says;
} lie;

#define INPUT "{\"class_name\":\"InputLayer\",\"name\":\"input_layer\",\"config\":{\"shape\":[6,6,1]}},"
#define DENSE "\"name\":\"dense\",\"input\":\"flatten\""
static const lie lies[] = {
    /* what is not a model at all */
    {ARCHITECTURE, "{\"name\":\"victim\"", "[{\"name\":\"victim\"", MIRT_E_FORMAT, "architecture: JSON at offset"},
    {ARCHITECTURE, "\"layers\":[", "\"layers\":7,\"x\":[", MIRT_E_FORMAT,
     "\"layers\" is a number, but must be an array"},
    {ARCHITECTURE, "\"layers\":[", "\"strata\":[", MIRT_E_FORMAT, "\"layers\" is missing"},
    {ARCHITECTURE, "\"name\":\"victim\"", "\"name\":null", MIRT_E_FORMAT, "\"name\" is null"},
    {ARCHITECTURE, "\"layers\":[", "\"layers\":[3,", MIRT_E_FORMAT, "layer number 1 is not an object"},
    {ARCHITECTURE, "\"layers\":[", "\"layers\":[],\"x\":[", MIRT_E_FORMAT, "the output is not a layer"},
    {ARCHITECTURE, "\"output\":\"dense\"", "\"output\":\"sense\"", MIRT_E_FORMAT, "the output is not a layer"},
    {ARCHITECTURE, ",\"output\":\"dense\"", "", MIRT_E_FORMAT, "\"output\" is missing"},
    {ARCHITECTURE, "\"output\":\"dense\"", "\"output\":[\"dense\"]", MIRT_E_FORMAT, "the output is not a layer"},
    {ARCHITECTURE, "\"output\":\"dense\"", "\"output\":\"rescaling\"", MIRT_E_FORMAT,
     "needs an output of (rows, classes)"},
    /* layers and how they are connected */
    {ARCHITECTURE, "\"Dense\"", "\"Tense\"", MIRT_E_FORMAT, "layer dense: unknown layer class Tense"},
    {ARCHITECTURE, "\"Dense\"", "{}", MIRT_E_FORMAT, "\"class_name\" is an object"},
    {ARCHITECTURE, "\"class_name\":\"Dense\",", "", MIRT_E_FORMAT,
     "architecture: layer number 7: \"class_name\" is missing"},
    {ARCHITECTURE, DENSE, "\"name\":\"\",\"input\":\"flatten\"", MIRT_E_FORMAT, "it must be 1 to"},
    {ARCHITECTURE, DENSE, "\"name\":\"a/b\",\"input\":\"flatten\"", MIRT_E_FORMAT, "layer name \"a/b\""},
    {ARCHITECTURE, DENSE, "\"name\":\"a\\nb/\",\"input\":\"flatten\"", MIRT_E_FORMAT, "layer name \"a?b/\""},
    {ARCHITECTURE, DENSE, "\"name\":\"flatten\",\"input\":\"flatten\"", MIRT_E_FORMAT,
     "already is a layer \"flatten\""},
    {ARCHITECTURE, DENSE, "\"name\":\"dense\",\"input\":\"dense\"", MIRT_E_FORMAT,
     "layer dense: its input is not a layer before it"},
    {ARCHITECTURE, DENSE, "\"name\":\"dense\",\"input\":\"nowhere\"", MIRT_E_FORMAT,
     "layer dense: its input is not a layer before it"},
    {ARCHITECTURE, DENSE, "\"name\":\"dense\",\"input\":7", MIRT_E_FORMAT,
     "layer dense: its input is not a layer before it"},
    {ARCHITECTURE, DENSE, "\"name\":\"dense\"", MIRT_E_FORMAT, "layer dense: its input is not a layer before it"},
    {ARCHITECTURE, "\"input\":\"input_layer\"", "\"input\":\"conv2d\"", MIRT_E_FORMAT,
     "layer rescaling: its input is not a layer before it"},
    {ARCHITECTURE, INPUT, "", MIRT_E_FORMAT, "layer rescaling: its input is not a layer before it"},
    /* a model of two inputs */
    {ARCHITECTURE, INPUT, INPUT "{\"class_name\":\"InputLayer\",\"name\":\"two\",\"config\":{\"shape\":[6,6,1]}},",
     MIRT_OK, NULL},
    {ARCHITECTURE, INPUT,
     "{\"class_name\":\"InputLayer\",\"name\":\"input_layer\",\"input\":\"input_layer\","
     "\"config\":{\"shape\":[6,6,1]}},",
     MIRT_E_FORMAT, "layer input_layer: an InputLayer has no input"},
    /* input shapes */
    {ARCHITECTURE, "[6,6,1]", "[]", MIRT_E_FORMAT, "shape must be 1 to 5 positive integers"},
    {ARCHITECTURE, "[6,6,1]", "[6,6,1,1,1,1]", MIRT_E_FORMAT, "shape must be 1 to 5 positive integers"},
    {ARCHITECTURE, "[6,6,1]", "[6,6,1,1,1,1,1]", MIRT_E_FORMAT, "shape must be 1 to 5 positive integers"},
    {ARCHITECTURE, "[6,6,1]", "[6,-6,1]", MIRT_E_FORMAT, "shape must be 1 to 5 positive integers"},
    {ARCHITECTURE, "[6,6,1]", "[6,0,1]", MIRT_E_FORMAT, "shape must be 1 to 5 positive integers"},
    {ARCHITECTURE, "[6,6,1]", "[6,6.5,1]", MIRT_E_FORMAT, "shape must be 1 to 5 positive integers"},
    {ARCHITECTURE, "[6,6,1]", "[6,\"6\",1]", MIRT_E_FORMAT, "shape must be 1 to 5 positive integers"},
    {ARCHITECTURE, "[6,6,1]", "[6,9223372036854775807,1]", MIRT_E_FORMAT, "shape must be 1 to 5 positive integers"},
    {ARCHITECTURE, "[6,6,1]", "[2000000000,2000000000,2000000000]", MIRT_E_FORMAT, "too many elements"},
    {ARCHITECTURE, "[6,6,1]", "[2000000000,2000000000,1]", MIRT_E_FORMAT, "too many elements"},
    {ARCHITECTURE, "[6,6,1]", "[36]", MIRT_E_FORMAT, "conv2d: takes (rows, height, width, channels)"},
    {ARCHITECTURE, "[6,6,1]", "[2,2,1]", MIRT_E_FORMAT, "conv2d: kernel 3x3 is larger than its input 2x2"},
    {ARCHITECTURE, "[6,6,1]", "[3,3,1]", MIRT_E_FORMAT, "max_pooling2d: pool 2x2 is larger than its input 1x1"},
    {ARCHITECTURE, "[6,6,1]", "[6,6,2]", MIRT_E_SHAPE,
     "conv2d/kernel is F32 (3, 3, 1, 2), the model needs F32 (3, 3, 2, 2)"},
    {ARCHITECTURE, "[6,6,1]", "[60000,6000,1]", MIRT_E_SHAPE, "dense/kernel is F32 (8, 3)"},
    /* numbers of layers */
    {ARCHITECTURE, "\"filters\":2", "\"filters\":2000000000", MIRT_E_SHAPE, "conv2d/kernel is F32"},
    {ARCHITECTURE, "\"filters\":2", "\"filters\":-2", MIRT_E_FORMAT, "layer conv2d: \"filters\" must be an integer"},
    {ARCHITECTURE, "\"filters\":2", "\"filters\":0", MIRT_E_FORMAT, "conv2d: filters is 0"},
    {ARCHITECTURE, "\"filters\":2", "\"filters\":2.5", MIRT_E_FORMAT, "\"filters\" must be an integer"},
    {ARCHITECTURE, "\"filters\":2", "\"filters\":1e9", MIRT_E_FORMAT, "\"filters\" must be an integer"},
    {ARCHITECTURE, "\"filters\":2", "\"filters\":4294967298", MIRT_E_FORMAT, "\"filters\" must be an integer"},
    {ARCHITECTURE, "\"filters\":2,", "", MIRT_E_FORMAT, "layer conv2d: \"filters\" is missing"},
    {ARCHITECTURE, "\"kernel_size\":[3,3]", "\"kernel_size\":[2000000000,2000000000]", MIRT_E_FORMAT,
     "conv2d: a kernel of (2000000000, 2000000000, 1, 2) has too many elements"},
    {ARCHITECTURE, "\"kernel_size\":[3,3]", "\"kernel_size\":[2000000000,1]", MIRT_E_FORMAT,
     "conv2d: a window that reaches over 2000000000 pixels"},
    {ARCHITECTURE, "\"kernel_size\":[3,3]", "\"kernel_size\":[100000,100000]", MIRT_E_FORMAT,
     "conv2d: a window of 100000x100000 is too large"},
    {ARCHITECTURE, "\"kernel_size\":[3,3]", "\"kernel_size\":3", MIRT_E_FORMAT, "\"kernel_size\" is a number"},
    {ARCHITECTURE, "\"kernel_size\":[3,3]", "\"kernel_size\":[3]", MIRT_E_FORMAT,
     "kernel_size must be 2 positive integers"},
    {ARCHITECTURE, "\"kernel_size\":[3,3]", "\"kernel_size\":[0,3]", MIRT_E_FORMAT,
     "kernel_size must be 2 positive integers"},
    {ARCHITECTURE, "\"strides\":[1,1]", "\"strides\":[-1,1]", MIRT_E_FORMAT, "strides must be"},
    {ARCHITECTURE, "\"dilation_rate\":[1,1]", "\"dilation_rate\":[2147483647,2147483647]", MIRT_E_FORMAT,
     "conv2d: a window that reaches over"},
    {ARCHITECTURE, "\"padding\":\"valid\",\"dilation_rate\":[1,1]",
     "\"padding\":\"same\",\"dilation_rate\":[80000000,80000000]", MIRT_E_FORMAT, "too large"},
    {ARCHITECTURE, "\"padding\":\"valid\"", "\"padding\":\"vapid\"", MIRT_E_FORMAT, "padding is \"vapid\""},
    {ARCHITECTURE, "\"groups\":1", "\"groups\":2147483647", MIRT_E_FORMAT, "are not divisible by 2147483647 groups"},
    {ARCHITECTURE, "\"groups\":1", "\"groups\":-1", MIRT_E_FORMAT, "\"groups\" must be an integer"},
    {ARCHITECTURE, "\"activation\":\"relu\"", "\"activation\":\"gelu2\"", MIRT_E_FORMAT, "activation is \"gelu2\""},
    {ARCHITECTURE, "\"use_bias\":true", "\"use_bias\":1", MIRT_E_FORMAT, "\"use_bias\" is a number"},
    {ARCHITECTURE, "\"pool_size\":[2,2]", "\"pool_size\":[2147483647,2147483647]", MIRT_E_FORMAT,
     "max_pooling2d: a window"},
    {ARCHITECTURE, "\"rate\":0.25", "\"rate\":-0.25", MIRT_E_FORMAT, "dropout: rate is -0.25"},
    {ARCHITECTURE, "\"rate\":0.25", "\"rate\":null", MIRT_E_FORMAT, "\"rate\" is null"},
    {ARCHITECTURE, "\"rate\":0.25", "\"rate\":1e39", MIRT_E_FORMAT, "rate is out of range for float32"},
    {ARCHITECTURE, "\"rate\":0.25", "\"rate\":NaN", MIRT_E_FORMAT, "architecture: JSON at offset"},
    {ARCHITECTURE, "\"scale\":0.5", "\"scale\":1e400", MIRT_E_FORMAT, "number too large"},
    {ARCHITECTURE, "\"units\":3", "\"units\":2000000000", MIRT_E_SHAPE,
     "dense/kernel is F32 (8, 3), the model needs F32 (8, 2000000000)"},
    {ARCHITECTURE, "\"units\":3", "\"units\":0", MIRT_E_FORMAT, "dense: units is 0"},
    {ARCHITECTURE, "\"units\":3", "\"units\":1", MIRT_E_SHAPE, "dense/kernel is F32 (8, 3)"},
    {ARCHITECTURE, "\"config\":{\"units\"", "\"config\":[],\"x\":{\"units\"", MIRT_E_FORMAT, "\"config\" is an array"},
    {ARCHITECTURE, "VarianceScaling", "VarianceScalding", MIRT_E_FORMAT, "class_name is \"VarianceScalding\""},
    {ARCHITECTURE, "\"config\":{\"scale\":1,", "\"config\":{\"scale\":0,", MIRT_E_FORMAT,
     "VarianceScaling's scale is 0"},
    {ARCHITECTURE, "\"mode\":\"fan_avg\"", "\"mode\":\"fan\"", MIRT_E_FORMAT, "mode is \"fan\""},
    /* compile settings */
    {COMPILE, "{\"optimizer\":{", "[{\"optimizer\":{", MIRT_E_FORMAT, "compile: JSON at offset"},
    {COMPILE, "\"adam\"", "\"atom\"", MIRT_E_FORMAT, "optimizer \"atom\" is unknown"},
    {COMPILE, "\"adam\"", "\"sgd\"", MIRT_E_FORMAT, "\"momentum\" is missing"},
    {COMPILE, "\"adam\"", "\"sgd\",\"momentum\":0,\"nesterov\":false", MIRT_OK, NULL},
    {COMPILE, "\"adam\"", "\"sgd\",\"momentum\":0,\"nesterov\":0", MIRT_E_FORMAT, "\"nesterov\" is a number"},
    {COMPILE, "\"learning_rate\":", "\"learning_rate\":-1,\"x\":", MIRT_E_FORMAT, "the learning rate is -1"},
    {COMPILE, "\"learning_rate\":", "\"x\":", MIRT_E_FORMAT, "compile: \"learning_rate\" is missing"},
    {COMPILE, "\"beta_1\":", "\"beta_1\":1,\"x\":", MIRT_E_FORMAT, "beta_1 is 1"},
    {COMPILE, "\"beta_1\":", "\"beta_1\":0.99999999,\"x\":", MIRT_E_FORMAT, "beta_1 is 1"},
    {COMPILE, "\"beta_2\":", "\"beta_2\":-0.5,\"x\":", MIRT_E_FORMAT, "beta_2 is -0.5"},
    {COMPILE, "\"epsilon\":", "\"epsilon\":-1e-7,\"x\":", MIRT_E_FORMAT, "epsilon is -1e-07"},
    {COMPILE, "\"epsilon\":", "\"epsilon\":1e300,\"x\":", MIRT_E_FORMAT, "epsilon is out of range for float32"},
    {COMPILE, "\"epsilon\":", "\"epsilon\":null,\"x\":", MIRT_E_FORMAT, "\"epsilon\" is null"},
    {COMPILE, "\"sparse_categorical_crossentropy\"", "\"categorical_cross\"", MIRT_E_FORMAT,
     "loss is \"categorical_cross\""},
    {COMPILE, "\"sum_over_batch_size\"", "\"median\"", MIRT_E_FORMAT, "reduction is \"median\""},
    {COMPILE, "[\"accuracy\"]", "[\"clever\"]", MIRT_E_FORMAT, "metric \"clever\" is unknown"},
    {COMPILE, "[\"accuracy\"]", "[0]", MIRT_E_FORMAT, "a metric is not a name"},
    {COMPILE, "[\"accuracy\"]", "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", MIRT_E_FORMAT, "more than 16 metrics"},
    {COMPILE, "\"from_logits\":true", "\"from_logits\":\"yes\"", MIRT_E_FORMAT, "\"from_logits\" is a string"},
    /* the state of training */
    {TRAINING, "{\"iterations\":1", "[1", MIRT_E_FORMAT, "training: JSON at offset"},
    {TRAINING, "\"iterations\":1", "\"iterations\":-1", MIRT_E_FORMAT, "\"iterations\" must be an integer from 0"},
    {TRAINING, "\"iterations\":1", "\"iterations\":9223372036854775807", MIRT_E_FORMAT,
     "\"iterations\" must be an integer from 0"},
    {TRAINING, "\"iterations\":1", "\"iterations\":1e3", MIRT_E_FORMAT, "\"iterations\" must be an integer from 0"},
    {TRAINING, "\"iterations\":1", "\"iterations\":9007199254740992", MIRT_OK, NULL},
    {TRAINING, "\"epoch\":", "\"era\":", MIRT_E_FORMAT, "training: \"epoch\" is missing"},
};
#undef INPUT
#undef DENSE

/* Of the graph. */
static const lie graph_lies[] = {
    {ARCHITECTURE, "\"op\":\"pad\"", "\"op\":\"pat\"", MIRT_E_FORMAT, "operation pat is not allowed in files"},
    {ARCHITECTURE, "\"op\":\"pad\"", "\"op\":\"conv2d\"", MIRT_E_FORMAT, "operation conv2d is not allowed in files"},
    {ARCHITECTURE, "\"op\":\"pad\"", "\"op\":\"variable\"", MIRT_E_FORMAT,
     "operation variable is not allowed in files"},
    {ARCHITECTURE, "\"op\":\"pad\"", "\"op\":\"matmul\"", MIRT_E_FORMAT, "its inputs do not fit it"},
    {ARCHITECTURE, "\"op\":\"pad\"", "\"op\":\"logic\"", MIRT_E_FORMAT, "its inputs do not fit it"},
    {ARCHITECTURE, "\"op\":\"pad\"", "\"op\":\"constant\"", MIRT_E_FORMAT, "its inputs do not fit it"},
    {ARCHITECTURE, "\"op\":\"pad\"", "\"op\":\"transpose\"", MIRT_E_FORMAT, "the permutation must name each"},
    {ARCHITECTURE, "\"op\":\"pad\",", "", MIRT_E_FORMAT, "\"op\" is missing"},
    {ARCHITECTURE, "\"attributes\":{", "\"attributes\":{\"bias\":true,", MIRT_E_FORMAT,
     "attribute \"bias\" is unknown"},
    {ARCHITECTURE, "\"attributes\":{", "\"attributes\":{\"activation\":\"relu\",", MIRT_E_FORMAT,
     "attribute \"activation\" is unknown"},
    {ARCHITECTURE, "\"attributes\":{", "\"attributes\":{\"kind\":1,", MIRT_E_FORMAT, "invalid kind of pad (1)"},
    {ARCHITECTURE, "\"attributes\":{", "\"attributes\":{\"kind\":-1,", MIRT_E_FORMAT,
     "\"kind\" must be an integer from 0"},
    {ARCHITECTURE, "\"kind\":6,\"scale\"", "\"kind\":99,\"scale\"", MIRT_E_FORMAT, "invalid kind of unary (99)"},
    {ARCHITECTURE, "\"scale\":\"-inf\"", "\"scale\":\"-info\"", MIRT_E_FORMAT, "scale is neither a number nor"},
    {ARCHITECTURE, "\"scale\":\"-inf\"", "\"scale\":\"nan\"", MIRT_E_FORMAT, "is no range"},
    {ARCHITECTURE, "\"scale\":\"-inf\"", "\"scale\":\"inf\"", MIRT_E_FORMAT, "is no range"},
    {ARCHITECTURE, "\"scale\":0.5,\"begin\"", "\"scale\":1e39,\"begin\"", MIRT_E_FORMAT,
     "scale is out of range for float32"},
    {ARCHITECTURE, "[0,1,0,0,0,0]", "[0,1,0,0,0]", MIRT_E_FORMAT, "begin must be 6 integers"},
    {ARCHITECTURE, "[0,1,0,0,0,0]", "[0,1,0,0,0,0,0]", MIRT_E_FORMAT, "begin must be 6 integers"},
    {ARCHITECTURE, "[0,1,0,0,0,0]", "[1,1,0,0,0,0]", MIRT_E_FORMAT, "axis 0 is the rows"},
    {ARCHITECTURE, "[0,1,0,0,0,0]", "[0,-1,0,0,0,0]", MIRT_E_FORMAT, "by less than nothing"},
    {ARCHITECTURE, "[0,1,0,0,0,0]", "[0,1099511627776,0,0,0,0]", MIRT_E_FORMAT, "too many elements"},
    {ARCHITECTURE, "[0,2,1,3,0,0]", "[0,2,2,3,0,0]", MIRT_E_FORMAT, "the permutation must name each"},
    {ARCHITECTURE, "[0,2,1,3,0,0]", "[2,0,1,3,0,0]", MIRT_E_FORMAT, "axis 0 is the rows"},
    {ARCHITECTURE, "\"shape\":[0,0,2,0]", "\"shape\":[0,0,2]", MIRT_E_FORMAT, "its inputs do not fit it"},
    {ARCHITECTURE, "\"shape\":[0,0,2,0]", "\"shape\":[0,0,-1,0]", MIRT_E_FORMAT, "by less than nothing"},
    {ARCHITECTURE, "\"shape\":[-1,3,4,1]", "\"shape\":[-1,9,4,1]", MIRT_E_FORMAT, "are not within the 8 of axis 1"},
    {ARCHITECTURE, "\"shape\":[-1,3,4,1]", "\"shape\":[4,3,4,1]", MIRT_E_FORMAT, "axis 0 is the rows"},
    {ARCHITECTURE, "\"shape\":[-1,12]", "\"shape\":[-1,-1]", MIRT_E_FORMAT, "cannot be reshaped"},
    {ARCHITECTURE, "\"shape\":[-1,12]", "\"shape\":[12]", MIRT_E_FORMAT, "cannot be reshaped"},
    {ARCHITECTURE, "\"dtype\":\"uint8\",\"shape\":[3]", "\"dtype\":\"bool\",\"shape\":[3]", MIRT_E_FORMAT,
     "do not go together"},
    {ARCHITECTURE, "\"dtype\":\"uint8\",\"shape\":[3]", "\"dtype\":\"int9\",\"shape\":[3]", MIRT_E_FORMAT,
     "dtype is \"int9\""},
    {ARCHITECTURE, "\"data\":\"010001\"", "\"data\":\"01000\"", MIRT_E_FORMAT, "its data do not match"},
    {ARCHITECTURE, "\"data\":\"010001\"", "\"data\":\"01000x\"", MIRT_E_FORMAT, "its data do not match"},
    {ARCHITECTURE, "\"data\":\"010001\"", "\"data\":\"01000100\"", MIRT_E_FORMAT, "its data do not match"},
    {ARCHITECTURE, ",\"data\":\"010001\"", "", MIRT_E_FORMAT, "\"data\" is missing"},
    {ARCHITECTURE, "\"dtype\":\"uint8\",\"shape\":[3]", "\"dtype\":\"uint8\",\"shape\":[1099511627776,1099511627776]",
     MIRT_E_FORMAT, "its data do not match"},
    {ARCHITECTURE, "\"dtype\":\"uint8\",\"shape\":[3]", "\"dtype\":\"uint8\",\"shape\":[-1,3]", MIRT_E_FORMAT,
     "its data do not match"},
    {ARCHITECTURE, "\"depth\":3", "\"depth\":-3", MIRT_E_FORMAT, "depth is -3"},
    {ARCHITECTURE, "\"depth\":3", "\"depth\":9223372036854775807", MIRT_E_FORMAT, "too many elements"},
    {ARCHITECTURE, "\"axis\":1", "\"axis\":7", MIRT_E_FORMAT, "axis"},
    {ARCHITECTURE, "\"axis\":1", "\"axis\":0", MIRT_E_FORMAT, "axis"},
    {ARCHITECTURE, "\"class_name\":\"Variable\",\"name\":\"mix\"", "\"class_name\":\"Variable\",\"name\":\"\"",
     MIRT_E_FORMAT, "a weight needs a name"},
    {ARCHITECTURE, "\"shape\":[12,3]", "\"shape\":[-1,3]", MIRT_E_FORMAT, "cannot be its shape"},
    {ARCHITECTURE, "\"shape\":[12,3]", "\"shape\":[0,3]", MIRT_E_FORMAT, "cannot be its shape"},
    {ARCHITECTURE, "\"shape\":[12,3]", "\"shape\":[12,4]", MIRT_E_FORMAT, "cannot be broadcast"},
    {ARCHITECTURE, "\"training\":\"auto\"", "\"training\":\"maybe\"", MIRT_E_FORMAT, "training is \"maybe\""},
    {ARCHITECTURE, "\"part\":\"part\"", "\"part\":\"input_layer\"", MIRT_E_FORMAT,
     "its part is not a model called before it"},
    {ARCHITECTURE, "\"part\":\"part\"", "\"part\":\"part_1\"", MIRT_E_FORMAT,
     "its part is not a model called before it"},
    {ARCHITECTURE, "\"part\":\"part\"", "\"x\":\"part\"", MIRT_E_FORMAT, "\"part\" is missing"},
    {ARCHITECTURE, "\"architecture\":{", "\"architecture\":[],\"x\":{", MIRT_E_FORMAT,
     "layer part: the architecture is not an object"},
    {ARCHITECTURE, "\"frozen\":[\"part/dense/bias\"]", "\"frozen\":[\"part/dense/bios\"]", MIRT_E_FORMAT,
     "has no weight \"part/dense/bios\""},
    {ARCHITECTURE, "\"frozen\":[\"part/dense/bias\"]", "\"frozen\":[7]", MIRT_E_FORMAT,
     "a frozen weight is not a name"},
    {ARCHITECTURE, "\"frozen\":[\"part/dense/bias\"]", "\"frozen\":7", MIRT_E_FORMAT,
     "the frozen weights are not an array"},
    {ARCHITECTURE, "\"losses\":[", "\"losses\":[\"nothing\",", MIRT_E_FORMAT, "a term of the loss"},
    {ARCHITECTURE, "\"losses\":[", "\"losses\":7,\"x\":[", MIRT_E_FORMAT, "the losses are not an array"},
    {COMPILE, "\"from_logits\":true", "\"from_logits\":true,\"losses\":[\"mean_squared_error\"]", MIRT_E_FORMAT,
     "losses and loss_weights"},
    {COMPILE, "\"from_logits\":true", "\"from_logits\":true,\"losses\":[7],\"loss_weights\":[1]", MIRT_E_FORMAT,
     "loss number 1"},
    {COMPILE, "\"from_logits\":true", "\"from_logits\":true,\"losses\":[\"none\"],\"loss_weights\":[1e39]",
     MIRT_E_FORMAT, "loss number 1"},
};

/* Of the processor: a busy machine makes nothing a hazard. */
static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }
/* Each file takes a thousandth of this: a slow machine does not need so long, but what grows with numbers in a file
   does. */
static const double too_long = 60;

/* Loads and, if that works, runs the model; counts what goes wrong beside the expected refusal. */
static mirt_status load(const unsigned char *data, size_t size, bool *harm) {
    mirt__memory_free(strategy); /* grows with the largest model it has run, and stays */
    const size_t before = bytes_now;
    mirt_logs logs;
    mirt_memory memory;
    bytes_peak = bytes_now;
    double began = cpu_seconds();
    mirt_model *model = mirt_load_memory(strategy, data, size);
    mirt_status status = model ? MIRT_OK : mirt_last_status();
    *harm = bytes_peak - before > size + ((size_t)4 << 20) || cpu_seconds() - began > too_long;
    if (!model && (!mirt_last_error()[0] || strchr(mirt_last_error(), '\n'))) *harm = true;
    if (model && mirt_plan_memory(model, 4, &memory) == MIRT_OK && memory.total < (size_t)8 << 20) {
        mirt_array x = mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(4, 6, 6, 1)),
                   y = mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(4));
        mirt_train_step(model, x, y, NULL);
        mirt_evaluate_arrays(model, x, y, &logs);
        mirt_graph_text(model, 3);
    }
    mirt_model_destroy(model);
    mirt__memory_free(strategy);
    if (bytes_now != before) *harm = true;
    return status;
}

/* Working memory is the strategy's, and grows with what it runs: all of it now, so that nothing is left by a model. */
static void reserve(void) {
    mirt__layout all;
    memset(&all, 0, sizeof all);
    all.gradients = all.arena = all.replica = all.shared = all.scratch = (size_t)8 << 20;
    ok(mirt__memory_reserve(strategy, &all) == MIRT_OK, "working memory");
}

static void originals(const char *text[3]) {
    for (int i = 0; i < 3; i++) text[i] = mirt__safetensors_metadata(victim, text_key[i]);
}

static void test_lies(const lie *table, int count) {
    const char *text[3];
    size_t size;
    bool harm;
    for (int i = 0; i < count; i++) {
        const lie *l = &table[i];
        originals(text);
        char *changed = replaced(text[l->text], l->from, l->to);
        if (!changed) {
            ok(0, "%s has no %s to replace", text_key[l->text], l->from);
            continue;
        }
        text[l->text] = changed;
        unsigned char *file = build(text, NULL, 0, &size);
        mirt_status status = load(file, size, &harm);
        bool right = status == l->status && !harm && (!l->says || strstr(mirt_last_error(), l->says));
        ok(right, "%.50s: %s", l->to, status == MIRT_OK ? "loads" : mirt_last_error());
        if (!right)
            printf("# status %d, wanted %d%s: %s\n", (int)status, (int)l->status, harm ? ", harm done" : "",
                   l->says ? l->says : "");
        free(file);
        free(changed);
    }
}

static void test_tensors(void) {
    static const struct {
        const char *tensor;
        char change;
        mirt_status status;
        const char *says;
    } odd[] = {
        {NULL, 0, MIRT_OK, NULL},
        {NULL, 'x', MIRT_OK, NULL}, /* more than is needed does no harm */
        {"dense/bias", 'm', MIRT_E_NOT_FOUND, "there is no tensor \"dense/bias\""},
        {"adam/dense_kernel_velocity", 'm', MIRT_E_NOT_FOUND, "there is no tensor \"adam/dense_kernel_velocity\""},
        {"conv2d/kernel", 's', MIRT_E_SHAPE, "conv2d/kernel is F32 (3, 3, 1, 2, 1), the model needs F32 (3, 3, 1, 2)"},
        {"adam/conv2d_bias_momentum", 's', MIRT_E_SHAPE, "adam/conv2d_bias_momentum is F32 (2, 1)"},
        {"dense/kernel", 'd', MIRT_E_SHAPE, "dense/kernel is I32 (8, 3), the model needs F32 (8, 3)"},
    };
    const char *text[3];
    size_t size;
    bool harm;
    originals(text);
    for (int i = 0; i < MIRT__COUNT(odd); i++) {
        unsigned char *file = build(text, odd[i].tensor, odd[i].change, &size);
        mirt_status status = load(file, size, &harm);
        ok(status == odd[i].status && !harm && (!odd[i].says || strstr(mirt_last_error(), odd[i].says)),
           "tensors, %s: %s", odd[i].tensor ? odd[i].tensor : "whole", status == MIRT_OK ? "loads" : mirt_last_error());
        free(file);
    }
    for (int i = 0; i < 3; i++) {
        originals(text);
        text[i] = NULL;
        unsigned char *file = build(text, NULL, 0, &size);
        ok(load(file, size, &harm) == MIRT_E_FORMAT && !harm && strstr(mirt_last_error(), text_key[i]), "%s",
           mirt_last_error());
        free(file);
    }
}

/* Ten thousand layers are more than enough; a search through a million would take minutes. */
static void test_many_layers(void) {
    const char *text[3];
    char item[128];
    size_t size;
    bool harm;
    mirt__text many;
    memset(&many, 0, sizeof many);
    mirt__text_add(&many, "{\"name\":\"m\",\"output\":\"i\",\"layers\":[{\"class_name\":\"InputLayer\",\"name\":\"i\","
                          "\"config\":{\"shape\":[1]}}");
    for (int i = 0; i < 30000; i++) {
        snprintf(item, sizeof item, ",{\"class_name\":\"Flatten\",\"name\":\"l%d\",\"input\":\"i\",\"config\":{}}", i);
        mirt__text_add_bytes(&many, item, strlen(item));
    }
    mirt__text_add(&many, "]}");
    originals(text);
    text[ARCHITECTURE] = many.data;
    unsigned char *file = build(text, NULL, 0, &size);
    double began = cpu_seconds();
    mirt_status status = load(file, size, &harm);
    ok(status == MIRT_E_FORMAT && strstr(mirt_last_error(), "at most 10000 layers") && cpu_seconds() - began < too_long,
       "30000 layers: %s", mirt_last_error());
    free(file);
    mirt__text_free(&many);
}

/* Models in models in models, each called several times: a short text, and billions of operations. */
static void nest(mirt__text *out, int depth, int calls) {
    mirt__text_add(out, "{\"name\":\"m\",\"layers\":[{\"class_name\":\"InputLayer\",\"name\":\"i\","
                        "\"config\":{\"shape\":[3]}}");
    for (int i = 0; i < calls; i++) {
        char input[32], name[32];
        snprintf(input, sizeof input, i ? "l%d" : "i", i - 1);
        snprintf(name, sizeof name, "l%d", i);
        mirt__text_add(out, ",{\"class_name\":\"%s\",\"name\":\"%s\",\"input\":\"%s\",",
                       depth ? "Functional" : "Rescaling", name, input);
        if (!depth) mirt__text_add(out, "\"config\":{\"scale\":2,\"offset\":0}}");
        else if (i) mirt__text_add(out, "\"training\":\"auto\",\"part\":\"l0\"}");
        else mirt__text_add(out, "\"training\":\"auto\",\"architecture\":");
        if (depth && !i) nest(out, depth - 1, calls), mirt__text_add(out, "}");
    }
    mirt__text_add(out, "],\"output\":\"l%d\"}", calls - 1);
}

static void test_nesting(void) {
    const char *text[3];
    for (int wide = 0; wide < 2; wide++) {
        size_t size, before = bytes_now;
        bool harm;
        mirt__text nested;
        memset(&nested, 0, sizeof nested);
        nest(&nested, wide ? 14 : 2, wide ? 10 : 3);
        originals(text);
        text[ARCHITECTURE] = nested.data;
        unsigned char *file = build(text, NULL, 0, &size);
        double began = cpu_seconds();
        mirt_status status = load(file, size, &harm);
        ok((wide ? status == MIRT_E_FORMAT && strstr(mirt_last_error(), "more than 32768 operations")
                 : status == MIRT_OK) &&
               cpu_seconds() - began < too_long && bytes_peak - before < (size_t)100 << 20,
           "models of models, %.1f MB, %.2f s: %s", (double)(bytes_peak - before) / 1e6, cpu_seconds() - began,
           mirt_last_error());
        free(file);
        mirt__text_free(&nested);
        ok(bytes_now == before, "nothing is left of it");
    }
}

/* >>random damage */

static uint64_t state = 88172645463325252u;
static unsigned random_below(unsigned bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % bound;
}

/* One random change of `text`, which has room for 64 characters more. */
static void damage(char *text) {
    static const char *const words[] = {"0",
                                        "-1",
                                        "1",
                                        "2",
                                        "5",
                                        "0.5",
                                        "2147483647",
                                        "1e38",
                                        "4294967296",
                                        "9223372036854775807",
                                        "1e-50",
                                        "null",
                                        "true",
                                        "[]",
                                        "{}",
                                        "\"\"",
                                        "\"dense\"",
                                        "\"flatten\"",
                                        "\"input_layer\"",
                                        "\"same\"",
                                        "\"softmax\"",
                                        "[2,3]",
                                        "[1000000,1000]",
                                        ",",
                                        "]",
                                        "}"};
    size_t length = strlen(text), at = random_below((unsigned)length), end = at;
    if (random_below(4) == 0) { /* one character */
        text[at] = (char)(32 + random_below(95));
        return;
    }
    bool wants_number = random_below(2) != 0;
    for (int i = 0; wants_number && i < 1000 && !strchr("0123456789", text[at]); i++)
        at = random_below((unsigned)length);
    /* a word or number in place of another, or between two others */
    while (at > 0 && !strchr(",:[]{}", text[at - 1])) at--;
    end = at;
    if (wants_number || random_below(4)) {
        while (text[end] && !strchr(",:[]{}", text[end])) end++;
    }
    bool number = strchr("-0123456789", text[at]) && random_below(8);
    const char *word = words[random_below(number ? 8u : (unsigned)MIRT__COUNT(words))];
    memmove(text + at + strlen(word), text + end, length - end + 1);
    memcpy(text + at, word, strlen(word));
}

static void test_damage(int rounds) {
    const char *text[3];
    int loads = 0, harms = 0;
    for (int i = 0; i < rounds; i++) {
        size_t size;
        bool harm;
        originals(text);
        int which = random_below(4) ? ARCHITECTURE : 1 + (int)random_below(2);
        char *changed = (char *)malloc(strlen(text[which]) + 256);
        if (!changed) break;
        strcpy(changed, text[which]);
        for (unsigned changes = 1 + random_below(2); changes > 0; changes--) damage(changed);
        text[which] = changed;
        unsigned char *file = build(text, NULL, 0, &size);
        loads += load(file, size, &harm) == MIRT_OK;
        if (harm && harms++ < 5) printf("# %s: %s\n", mirt_last_error(), changed);
        free(file);
        free(changed);
    }
    ok(harms == 0 && loads > 0, "%d files with random damage: %d load all the same, none does harm", rounds, loads);
}

/* Images and labels as IDX, plain and gzipped, after the byte by which the fuzzer tells them apart. */
static const unsigned char seed_images[] = {1, 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0,
                                            0, 3, 1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1};
static const unsigned char seed_labels[] = {2, 0, 0, 8, 1, 0, 0, 0, 2, 0, 1};
static const unsigned char seed_gzip[] = {1,   31,  139, 8,  0,   0,   0,   0,  0,   2,   255, 99, 96, 224, 96,
                                          102, 96,  96,  96, 130, 98,  102, 70, 38,  102, 22,  86, 54, 54,  86,
                                          22,  102, 38,  70, 0,   250, 34,  8,  229, 28,  0,   0,  0};

static int write_seed(const char *directory, const char *name, const unsigned char *data, size_t size) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *out = fopen(path, "wb");
    bool written = out && fwrite(data, 1, size, out) == size;
    if (out) written = fclose(out) == 0 && written;
    if (!written) perror(path);
    return !written;
}

/* A file of the gallery's model `index`, to be freed; NULL if it could not be saved. */
static unsigned char *gallery_file(int index, size_t *size) {
    char path[512];
    snprintf(path, sizeof path, "%s/mirt_gallery_%ld", tap_tmpdir(), (long)getpid());
    mirt_model *model = gallery_model(strategy, index);
    FILE *file = model && mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK ? fopen(path, "rb") : NULL;
    unsigned char *data = (unsigned char *)calloc(1, (size_t)1 << 16);
    *size = file && data ? fread(data, 1, (size_t)1 << 16, file) : 0;
    if (file) fclose(file);
    unlink(path);
    mirt_model_destroy(model);
    if (*size) return data;
    free(data);
    return NULL;
}

/* The gallery's models, whole (after a 0) and their architecture (after a 3). */
static int write_gallery(const char *directory) {
    int failed = 0;
    for (int i = 0; i < GALLERY; i++) {
        char name[32];
        size_t size;
        mirt__safetensors file;
        unsigned char *data = gallery_file(i, &size);
        if (!data || mirt__safetensors_open_memory(&file, data, size) != MIRT_OK) {
            fprintf(stderr, "gallery %d: %s\n", i, mirt_last_error());
            return 1;
        }
        const char *text = mirt__safetensors_metadata(&file, "architecture");
        unsigned char *seed = (unsigned char *)calloc(1, (size > strlen(text) ? size : strlen(text)) + 1);
        if (!seed) return 1;
        memcpy(seed + 1, data, size);
        snprintf(name, sizeof name, "gallery_%d", i);
        failed += write_seed(directory, name, seed, size + 1);
        seed[0] = 3;
        memcpy(seed + 1, text, strlen(text));
        snprintf(name, sizeof name, "architecture_%d", i);
        failed += write_seed(directory, name, seed, strlen(text) + 1);
        free(seed);
        mirt__safetensors_close(&file);
        free(data);
    }
    return failed;
}

/* Files to start fuzzing from: the model as it is, one lie of each kind, and the above. */
static int write_seeds(const char *directory) {
    const char *text[3];
    int failed = write_seed(directory, "images", seed_images, sizeof seed_images) +
                 write_seed(directory, "labels", seed_labels, sizeof seed_labels) +
                 write_seed(directory, "gzip", seed_gzip, sizeof seed_gzip) + write_gallery(directory);
    for (int i = -1; i < MIRT__COUNT(lies); i++) {
        char name[32];
        size_t size;
        originals(text);
        char *changed = i < 0 ? NULL : replaced(text[lies[i].text], lies[i].from, lies[i].to);
        if (changed) text[lies[i].text] = changed;
        unsigned char *file = build(text, NULL, 0, &size), *seed = (unsigned char *)calloc(1, size + 1);
        if (seed) memcpy(seed + 1, file, size);
        snprintf(name, sizeof name, "model_%03d", i + 1);
        failed += seed ? write_seed(directory, name, seed, size + 1) : 1;
        free(seed);
        free(file);
        free(changed);
    }
    return failed != 0;
}

/* A model's weights are in memory once while a file is loaded. */
static void test_memory_of_loading(void) {
    enum { WIDTH = 1024 };
    const size_t weights = (size_t)WIDTH * WIDTH * sizeof(float);
    char path[600];
    mirt_dense_desc dense;
    mirt_compile_desc desc;
    memset(&dense, 0, sizeof dense);
    memset(&desc, 0, sizeof desc);
    dense.units = WIDTH;
    desc.optimizer = mirt_sgd(0.1f, 0, false);
    desc.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_model *model = mirt_model_create(strategy, "wide");
    mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(WIDTH)), &dense));
    const int fd = create_file(path, sizeof path);
    ok(fd >= 0 && mirt_compile(model, &desc) == MIRT_OK && mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK,
       "a wide model is saved: %s", mirt_last_error());
    mirt_model_destroy(model);
    mirt__memory_free(strategy);
    const size_t before = bytes_now;
    bytes_peak = bytes_now;
    model = mirt_load(strategy, path);
    ok(model && bytes_peak - before < weights + weights / 4, "%.1f MB of weights are loaded in %.1f MB",
       (double)weights / 1e6, (double)(bytes_peak - before) / 1e6);
    mirt_model_destroy(model);
    if (fd >= 0) close(fd);
    unlink(path);
}

/* `test_hostile --seeds DIRECTORY` writes what tests/fuzz_model.c starts from. */
int main(int count, char **arguments) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "1";
    desc.threads = 1;
    desc.silent = true;
    strategy = mirt_strategy_create(&desc);
    if (!strategy) return 1;
    make_chain();
    make_graph();
    if (count == 3 && strcmp(arguments[1], "--seeds") == 0) return write_seeds(arguments[2]);
    reserve();
    test_lies(lies, MIRT__COUNT(lies));
    test_tensors();
    test_many_layers();
    test_nesting();
    test_damage(small_tier() ? 500 : 5000);
    victim = &victims[1];
    test_lies(graph_lies, MIRT__COUNT(graph_lies));
    test_damage(small_tier() ? 500 : 5000);
    for (int i = 0; i < 2; i++) mirt__safetensors_close(&victims[i]);
    test_memory_of_loading();
    mirt_strategy_destroy(strategy);
    ok(bytes_now == 0, "%zu bytes are left", bytes_now);
    return done_testing();
}
