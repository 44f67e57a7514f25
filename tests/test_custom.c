/* Tests custom layers and ops. Covers valid classes, error messages, configs that are copied and saved, names made from
   class names. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"

#include <unistd.h>

typedef struct odd_config {
    int count;
    float factor;
    bool negate;
} odd_config;

static const mirt_field odd_fields[] = {
    {"count", MIRT_FIELD_INT, offsetof(odd_config, count)},
    {"factor", MIRT_FIELD_FLOAT, offsetof(odd_config, factor)},
    {"negate", MIRT_FIELD_BOOL, offsetof(odd_config, negate)}
};
static int builds;

/* count * factor * x, or minus that. */
static mirt_tensor *odd_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    const odd_config *c = (const odd_config *)config;
    (void)layer, (void)num_in, (void)user;
    builds++;
    return mirt_scale(in[0], (float)c->count * c->factor * (c->negate ? -1 : 1), 0);
}

static mirt_tensor *sevenfold_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config,
                                    void *user) {
    (void)layer, (void)num_in, (void)config, (void)user;
    return mirt_scale(in[0], 7, 0);
}

static mirt_layer_class odd_class(void) {
    mirt_layer_class c;
    memset(&c, 0, sizeof c);
    c.class_name = "OddScale";
    c.config_size = sizeof(odd_config);
    c.fields = odd_fields;
    c.num_fields = 3;
    c.build = odd_build;
    return c;
}

static int copy_forward(const mirt_op_call *call, void *user) {
    (void)user;
    memcpy(call->out, call->in[0], (size_t)mirt__shape_count(&call->out_shape) * sizeof(float));
    return 0;
}
static int four_shape(const mirt_shape *in, int num_in, const void *config, mirt_shape *out, void *user) {
    const int what = *(const int *)user;
    (void)in, (void)num_in, (void)config;
    if (what == 1) return 7;
    if (what == 2) out->rank = 9;
    if (what == 3) out->rank = -1;
    if (what == 4) out->dim[1] = 0;
    if (what == 5) out->dim[1] = MIRT_ROWS;
    return 0;
}

static mirt_op_class copy_class(void) {
    mirt_op_class c;
    memset(&c, 0, sizeof c);
    c.name = "copy";
    c.forward = copy_forward;
    return c;
}

static mirt_strategy *strategy;

static mirt_model *with_input(mirt_tensor **x) {
    mirt_model *model = mirt_model_create(strategy, "m");
    *x = mirt_input(model, MIRT_SHAPE(4));
    return model;
}

/* >>layer classes */

static void refused_class(const char *what, mirt_layer_class c, const char *says) {
    const mirt_status status = mirt_register_layer(strategy, &c);
    ok(status == MIRT_E_INVALID && strstr(mirt_last_error(), says), "%s: %s", what, mirt_last_error());
}

static void test_classes(void) {
    static const mirt_field beyond[] = {{"count", MIRT_FIELD_INT, sizeof(odd_config)}},
                            crooked[] = {{"factor", MIRT_FIELD_FLOAT, 2}};
    static const mirt_field nameless[] = {{NULL, MIRT_FIELD_BOOL, 0}}, strange[] = {{"x", (mirt_field_kind)9, 0}},
                            large[] = {{"count", MIRT_FIELD_INT, 0}};
    char wide[102];
    mirt_layer_class c = odd_class();
    ok(mirt_register_layer(NULL, &c) != MIRT_OK, "no strategy: %s", mirt_last_error());
    ok(mirt_register_layer(strategy, NULL) == MIRT_E_INVALID, "no class: %s", mirt_last_error());
    memset(wide, 'w', 101);
    wide[101] = 0;
    const char *const names[] = {NULL, "", wide, "\xff", "Conv2D"};
    for (int i = 0; i < 5; i++) {
        c = odd_class();
        c.class_name = names[i];
        refused_class("a name", c, "class");
    }
    c = odd_class();
    c.build = NULL;
    refused_class("no build", c, "build");
    c = odd_class();
    c.inputs = -2;
    refused_class("-2 inputs", c, "inputs");
    c.inputs = 99;
    refused_class("99 inputs", c, "inputs");
    c = odd_class();
    c.num_fields = -1;
    refused_class("-1 fields", c, "fields");
    c.num_fields = 1;
    c.fields = NULL;
    refused_class("fields nowhere", c, "fields");
    const mirt_field *const fields[] = {beyond, crooked, nameless, strange};
    for (int i = 0; i < 4; i++) {
        c = odd_class();
        c.num_fields = 1;
        c.fields = fields[i];
        refused_class("a field", c, "field");
    }
    c = odd_class();
    c.num_fields = 1;
    c.fields = large;
    c.config_size = 2;
    refused_class("a field larger than the config", c, "field");
}

static void test_layer_config(void) {
    char file[512];
    const float x[4] = {1, 2, 3, 4};
    float y[4], z[4];
    mirt_tensor *in, *out;
    mirt_model *model = with_input(&in);
    mirt_layer_class c = odd_class();
    odd_config config = {3, 0.5f, true};
    out = mirt_custom_layer(&c, &in, 1, &config, NULL);
    config.count = 0; /* a copy was made */
    mirt_model_output(model, out);
    snprintf(file, sizeof file, "%s/mirt_custom_%ld.safetensors", tap_tmpdir(), (long)getpid());
    ok(mirt_compile(model, NULL) == MIRT_OK &&
           mirt_predict_arrays(model, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(1, 4)), y, 4) == MIRT_OK &&
           y[0] == -1.5f && y[3] == -6.0f,
       "a layer with a config: %g %g", (double)y[0], (double)y[3]);
    ok(strstr(mirt_summary(model, 1), "odd_scale") != NULL, "its name is made of its class's");
    builds = 0;
    mirt_model *loaded = mirt_save(model, file, MIRT_SAVE_ALL) == MIRT_OK ? mirt_load(strategy, file) : NULL;
    ok(loaded && builds > 0 &&
           mirt_predict_arrays(loaded, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(1, 4)), z, 4) == MIRT_OK &&
           memcmp(y, z, sizeof y) == 0,
       "saved, and built again with the same config: %s", mirt_last_error());
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "1";
    desc.threads = 1;
    desc.silent = true;
    mirt_strategy *other = mirt_strategy_create(&desc);
    ok(!mirt_load(other, file) && strstr(mirt_last_error(), "OddScale"), "another strategy has to know the class: %s",
       mirt_last_error());
    ok(mirt_register_layer(other, &c) == MIRT_OK && mirt_register_layer(other, &c) == MIRT_OK && mirt_load(other, file),
       "and then loads it");
    c.num_fields = 2;
    ok(mirt_register_layer(other, &c) == MIRT_OK && !mirt_load(other, file) &&
           strstr(mirt_last_error(), "\"negate\" is not a field of class OddScale"),
       "a config that the class has no field for: %s", mirt_last_error());
    c.num_fields = 3;
    mirt_strategy_destroy(other);
    remove(file);

    static const char *const names[][2] = {
        {"MyHTTPLayer2", "my_http_layer2"}, {"X_y", "x_y"}, {"\xc3\xa9", "layer"}, {"lower", "lower"}};
    for (int i = 0; i < 4; i++) {
        model = with_input(&in);
        c = odd_class();
        c.class_name = names[i][0];
        ok(mirt_custom_layer(&c, &in, 1, &config, NULL) && mirt_layer_output(model, names[i][1]),
           "class %s makes layer %s", names[i][0], names[i][1]);
    }
    c = odd_class();
    model = with_input(&in);
    ok(!mirt_custom_layer(&c, &in, 1, NULL, NULL) && strstr(mirt_last_error(), "needs its config"), "no config: %s",
       mirt_last_error());
    ok(!mirt_custom_layer(&c, NULL, 1, &config, NULL) && !mirt_custom_layer(&c, &in, 0, &config, NULL),
       "nothing goes in: nothing comes out");
}

/* >>what is wrong while a layer is built */

typedef enum wrong_build {
    WRONG_NAME,
    WRONG_SLASH,
    WRONG_EMPTY,
    WRONG_TWICE,
    WRONG_SHAPE,
    WRONG_RANK,
    WRONG_LOSS_SHAPE,
    WRONG_LOSS_DTYPE,
    WRONG_LOSS_MODEL,
    WRONG_OUTPUT,
    WRONG_NOTHING
} wrong_build;
static mirt_layer *kept_layer;
static mirt_tensor *foreign;

static mirt_tensor *wrong_build_fn(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config,
                                   void *user) {
    const wrong_build what = *(const wrong_build *)user;
    mirt_shape shape = MIRT_SHAPE(4);
    (void)num_in, (void)config;
    kept_layer = layer;
    switch (what) {
    case WRONG_NAME: return mirt_layer_variable(layer, NULL, shape, mirt_zeros(), true);
    case WRONG_SLASH: return mirt_layer_variable(layer, "a/b", shape, mirt_zeros(), true);
    case WRONG_EMPTY: return mirt_layer_variable(layer, "", shape, mirt_zeros(), true);
    case WRONG_TWICE:
        mirt_layer_variable(layer, "a", shape, mirt_zeros(), true);
        return mirt_layer_variable(layer, "a", shape, mirt_zeros(), true);
    case WRONG_SHAPE: return mirt_layer_variable(layer, "a", MIRT_SHAPE(2, -1), mirt_zeros(), true);
    case WRONG_RANK: shape.rank = 99; return mirt_layer_variable(layer, "a", shape, mirt_zeros(), true);
    case WRONG_LOSS_SHAPE: mirt_layer_add_loss(layer, in[0]); return in[0];
    case WRONG_LOSS_DTYPE: mirt_layer_add_loss(layer, mirt_argmax(in[0], 1)); return in[0];
    case WRONG_LOSS_MODEL: mirt_layer_add_loss(layer, mirt_reduce_sum(foreign, 0, false)); return in[0];
    case WRONG_OUTPUT: return foreign;
    default: return NULL;
    }
}

static void test_builds(void) {
    static const char *const says[] = {"variable name",
                                       "variable name",
                                       "variable name",
                                       "variable name",
                                       "dimensions",
                                       "dimensions",
                                       "a loss must be",
                                       "a loss must be",
                                       "a loss must be",
                                       "",
                                       ""};
    for (int i = 0; i <= WRONG_NOTHING; i++) {
        wrong_build what = (wrong_build)i;
        mirt_tensor *x;
        with_input(&foreign);
        mirt_model *model = with_input(&x);
        mirt_layer_class c;
        memset(&c, 0, sizeof c);
        c.class_name = "Wrong";
        c.build = wrong_build_fn;
        c.user = &what;
        mirt_tensor *y = mirt_custom_layer(&c, &x, 1, NULL, NULL);
        const mirt_status status = mirt_compile(model, NULL);
        ok(!y && status != MIRT_OK && strstr(mirt_last_error(), says[i]) && strstr(mirt_last_error(), "wrong"),
           "build %d: %s", i, mirt_last_error());
        mirt_layer_add_loss(kept_layer, NULL);
        mirt_layer_add_loss(NULL, x);
        ok(!mirt_layer_variable(kept_layer, "late", MIRT_SHAPE(4), mirt_zeros(), true),
           "and it is too late for a variable");
    }
}

/* >>ops */

static void refused_op(const char *what, mirt_op_class c, const char *says) {
    ok(mirt_register_op(strategy, &c) == MIRT_E_INVALID && strstr(mirt_last_error(), says), "%s: %s", what,
       mirt_last_error());
}

static void test_ops(void) {
    char wide[102];
    const float config[2] = {1, 2};
    mirt_tensor *x, *many[9];
    mirt_op_class c = copy_class();
    ok(mirt_register_op(NULL, &c) != MIRT_OK && mirt_register_op(strategy, NULL) == MIRT_E_INVALID,
       "no strategy, or no class: %s", mirt_last_error());
    memset(wide, 'w', 101);
    wide[101] = 0;
    const char *const names[] = {NULL, "", wide, "\xff"};
    for (int i = 0; i < 4; i++) {
        c = copy_class();
        c.name = names[i];
        refused_op("a name", c, "name");
    }
    c = copy_class();
    c.forward = NULL;
    refused_op("no forward", c, "no forward");
    c = copy_class();
    c.config_size = (size_t)2 << 20;
    refused_op("a large config", c, "megabyte");
    c = copy_class();
    ok(mirt_register_op(strategy, &c) == MIRT_OK && mirt_register_op(strategy, &c) == MIRT_OK,
       "a class may be registered twice");
    c.config_size = sizeof config;
    ok(mirt_register_op(strategy, &c) == MIRT_OK, "and replaced by another of its name");

    mirt_model *model = with_input(&x);
    ok(!mirt_custom_op(&c, NULL, 1, config) && !mirt_custom_op(&c, &x, 0, config),
       "nothing goes in: nothing comes out");
    ok(!mirt_custom_op(&c, &x, 1, NULL) && strstr(mirt_last_error(), "needs its config"), "no config: %s",
       mirt_last_error());
    ok(!mirt_custom_op(&c, &x, 1, config) && mirt_compile(model, NULL) != MIRT_OK, "and the model stays marked: %s",
       mirt_last_error());
    model = with_input(&x);
    for (int i = 0; i < 9; i++) many[i] = x;
    ok(!mirt_custom_op(&c, many, 9, config) && strstr(mirt_last_error(), "tensors"), "nine tensors: %s",
       mirt_last_error());
    with_input(&x);
    many[0] = x;
    many[1] = NULL;
    ok(!mirt_custom_op(&c, many, 2, config), "a missing tensor is handed on");

    for (int what = 0; what < 6; what++) {
        with_input(&x);
        c = copy_class();
        c.shape = four_shape;
        c.user = &what;
        mirt_tensor *y = mirt_custom_op(&c, &x, 1, NULL);
        const mirt_status status = mirt_last_status();
        if (what == 0) ok(y != NULL, "a shape function may leave the shape as it is");
        else
            ok(!y && status == (what == 1 ? MIRT_E_CALLBACK : MIRT_E_SHAPE) && strstr(mirt_last_error(), "copy"),
               "shape %d: %s", what, mirt_last_error());
    }

    /* Without a backward function it is an end for gradients. */
    const float data[4] = {1, 2, 3, 4};
    float y[4];
    mirt_compile_desc compile;
    mirt_dense_desc dense;
    memset(&compile, 0, sizeof compile);
    memset(&dense, 0, sizeof dense);
    dense.units = 4;
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    model = with_input(&x);
    x = mirt_dense(x, &dense);
    c = copy_class();
    mirt_model_output(model, mirt_custom_op(&c, &x, 1, NULL));
    const mirt_array array = mirt_make_array(data, MIRT_FLOAT32, MIRT_SHAPE(1, 4));
    ok(mirt_compile(model, &compile) == MIRT_OK && mirt_predict_arrays(model, array, y, 4) == MIRT_OK, "it predicts");
    ok(mirt_train_step(model, array, array, NULL) == MIRT_E_INVALID && strstr(mirt_last_error(), "no backward"),
       "it does not train: %s", mirt_last_error());
}

/* The latest class of a name holds. */
static void test_latest(void) {
    const float x[4] = {1, 2, 3, 4};
    float y[4] = {0};
    mirt_tensor *in;
    mirt_layer_class c = odd_class();
    const odd_config config = {1, 1, false};
    mirt_model *model = with_input(&in);
    bool good = mirt_register_layer(strategy, &c) == MIRT_OK;
    c.build = sevenfold_build;
    mirt_model_output(model, mirt_custom_layer(&c, &in, 1, &config, NULL));
    good = good && mirt_predict_arrays(model, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(1, 4)), y, 4) == MIRT_OK;
    ok(good && y[0] == 7 && y[3] == 28, "another function under a name that is known: %g%s%s", (double)y[3],
       good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_model_destroy(model);
}

int main(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "1";
    desc.threads = 1;
    desc.silent = true;
    strategy = mirt_strategy_create(&desc);
    test_classes();
    test_layer_config();
    test_builds();
    test_latest();
    test_ops();
    mirt_strategy_destroy(strategy);
    return done_testing();
}
