/* Operations on tensors that do not fit are refused with a reason. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

static mirt_strategy *strategy;
static mirt_model *model;
static mirt_tensor *image, *row, *whole; /* (rows, 5, 6, 4), (rows, 7), (3, 2) */

static mirt_tensor *weight(mirt_shape shape) {
    char name[16];
    snprintf(name, sizeof name, "w%d", mirt_num_weights(model));
    return mirt_variable(model, name, shape, mirt_ones(), true);
}

static mirt__attrs window(int groups) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_conv2d);
    mirt__attrs_window *w = MIRT__OF(&a, window);
    w->strides[0] = w->strides[1] = w->dilation[0] = w->dilation[1] = 1;
    w->groups = groups;
    return a;
}

static mirt_tensor *conv(mirt_tensor *x, mirt_tensor *kernel, int groups) {
    const mirt__attrs a = window(groups);
    return mirt__conv2d_op(x, kernel, &a);
}
static mirt_tensor *depthwise(mirt_tensor *x, mirt_tensor *kernel) {
    const mirt__attrs a = window(1);
    return mirt__depthwise_conv2d_op(x, kernel, &a);
}
static mirt_tensor *transposed(mirt_tensor *x, mirt_tensor *kernel) {
    const mirt__attrs a = window(1);
    return mirt__conv2d_transpose_op(x, kernel, &a);
}
static mirt_tensor *whole_numbers(mirt_tensor *x) { return mirt_cast(x, MIRT_INT32); }

static mirt_tensor *kernel(void) { return weight(MIRT_SHAPE(3, 3, 4, 2)); }
static mirt_tensor *conv_of_integers(void) { return conv(whole_numbers(image), kernel(), 1); }
static mirt_tensor *conv_by_integers(void) { return conv(image, whole_numbers(kernel()), 1); }
static mirt_tensor *conv_of_rows(void) { return conv(row, kernel(), 1); }
static mirt_tensor *conv_by_a_matrix(void) { return conv(image, weight(MIRT_SHAPE(4, 2)), 1); }
static mirt_tensor *conv_without_groups(void) { return conv(image, kernel(), 0); }
static mirt_tensor *conv_of_other_channels(void) { return conv(image, kernel(), 2); }
static mirt_tensor *conv_of_odd_filters(void) { return conv(image, weight(MIRT_SHAPE(3, 3, 2, 3)), 2); }
static mirt_tensor *conv_of_large_kernel(void) { return conv(image, weight(MIRT_SHAPE(6, 3, 4, 2)), 1); }
static mirt_tensor *depthwise_by_a_cube(void) { return depthwise(image, weight(MIRT_SHAPE(3, 3, 4))); }
static mirt_tensor *depthwise_of_other_channels(void) { return depthwise(image, weight(MIRT_SHAPE(3, 3, 3, 1))); }
static mirt_tensor *transposed_by_a_cube(void) { return transposed(image, weight(MIRT_SHAPE(3, 3, 4))); }
static mirt_tensor *transposed_of_rows(void) { return transposed(row, kernel()); }
static mirt_tensor *transposed_of_integers(void) { return transposed(whole_numbers(image), kernel()); }
static mirt_tensor *bias_of_integers(void) { return mirt__bias_add_op(whole_numbers(row), weight(MIRT_SHAPE(7))); }
static mirt_tensor *bias_of_two_axes(void) { return mirt__bias_add_op(row, weight(MIRT_SHAPE(1, 7))); }
static mirt_tensor *bias_of_other_length(void) { return mirt__bias_add_op(row, weight(MIRT_SHAPE(6))); }
static mirt_tensor *loss_of(mirt_tensor *x, mirt_tensor *labels) {
    mirt_loss_options how;
    memset(&how, 0, sizeof how);
    return mirt__loss_op(MIRT_MEAN_SQUARED_ERROR, &how, x, labels);
}
static mirt_tensor *loss_of_integers(void) { return loss_of(whole_numbers(row), row); }
static mirt_tensor *loss_of_weights(void) { return loss_of(whole, row); }
static mirt_tensor *loss_by_weights(void) { return loss_of(row, whole); }
static mirt_tensor *loss_of_other_labels(void) { return loss_of(row, image); }
static mirt_tensor *classes_of_images(void) {
    const mirt_tensor *labels = whole_numbers(mirt_reduce_sum(image, 4, false));
    mirt_loss_options how;
    memset(&how, 0, sizeof how);
    return mirt__loss_op(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, &how, image, (mirt_tensor *)(uintptr_t)labels);
}
static mirt_tensor *resize_of_rows(void) { return mirt__resize2d_op(row, 3, 3, true); }
static mirt_tensor *resize_to_nothing(void) { return mirt__resize2d_op(image, 3, 0, false); }
static mirt_tensor *resize_of_integers(void) { return mirt__resize2d_op(whole_numbers(image), 3, 3, true); }

typedef struct refusal {
    mirt_tensor *(*record)(void);
    const char *says;
} refusal;

static const refusal refusals[] = {
    {conv_of_integers, "conv2d: takes float32, not int32"},
    {conv_by_integers, "conv2d: takes float32, not int32"},
    {conv_of_rows, "conv2d: input is (rows, 7) and the kernel (3, 3, 4, 2); a convolution takes"},
    {conv_by_a_matrix, "conv2d: input is (rows, 5, 6, 4) and the kernel (4, 2); a convolution takes"},
    {conv_without_groups, "conv2d: 0 groups: there must be at least one"},
    {conv_of_other_channels,
     "conv2d: 4 input channels and 2 filters do not divide into 2 groups of a kernel for 4 channels"},
    {conv_of_odd_filters, "4 input channels and 3 filters do not divide into 2 groups of a kernel for 2 channels"},
    {conv_of_large_kernel, "kernel 6x3 is larger than its input 5x6 with padding VALID"},
    {depthwise_by_a_cube, "a depthwise kernel of (3, 3, 4) does not fit (rows, 5, 6, 4)"},
    {depthwise_of_other_channels, "a depthwise kernel of (3, 3, 3, 1) does not fit (rows, 5, 6, 4)"},
    {transposed_by_a_cube, "the kernel (3, 3, 4); a transposed convolution takes"},
    {transposed_of_rows, "input is (rows, 7) and the kernel (3, 3, 4, 2)"},
    {transposed_of_integers, "float32"},
    {bias_of_integers, "float32"},
    {bias_of_two_axes, "bias (1, 7) does not fit the last axis of (rows, 7)"},
    {bias_of_other_length, "bias (6) does not fit the last axis of (rows, 7)"},
    {loss_of_integers, "float32"},
    {loss_of_weights, "a loss compares batches"},
    {loss_by_weights, "a loss compares batches"},
    {loss_of_other_labels, "labels (rows, 5, 6, 4) do not fit predictions (rows, 7)"},
    {classes_of_images, "labels (rows, 5, 4) do not fit predictions (rows, 5, 6, 4)"},
    {resize_of_rows, "input is (rows, 7); it should be (rows, height, width, channels)"},
    {resize_to_nothing, "(rows, 5, 6, 4) to 3x0: sizes must be positive and below 2^31"},
    {resize_of_integers, "float32"},
};

static void begin(void) {
    model = mirt_model_create(strategy, "m");
    image = mirt_input(model, MIRT_SHAPE(5, 6, 4));
    row = mirt_input(model, MIRT_SHAPE(7));
    whole = weight(MIRT_SHAPE(3, 2));
}

static void check_refusals(void) {
    for (int i = 0; i < MIRT__COUNT(refusals); i++) {
        begin();
        const mirt_tensor *y = refusals[i].record();
        ok(!y && model->graph.status != MIRT_OK && strstr(mirt_last_error(), refusals[i].says), "refused: %s",
           mirt_last_error());
        mirt_model_destroy(model);
    }
}

/* What failed before is handed through, without another message. */
static void check_nothing(void) {
    static const int twice[2] = {2, 2};
    static const int64_t zeros[4] = {0, 0, 0, 0};
    begin();
    mirt_tensor *k = kernel();
    mirt__fail(MIRT_E_IO, "the first reason");
    ok(!conv(NULL, k, 1) && !conv(image, NULL, 1) && !depthwise(NULL, k) && !depthwise(image, NULL) &&
           !transposed(NULL, k) && !transposed(image, NULL),
       "convolutions of nothing");
    ok(!mirt__bias_add_op(NULL, k) && !mirt__broadcast_op(NULL, row, true) && !mirt__broadcast_op(row, NULL, false) &&
           !mirt__activation_op(MIRT_RELU, NULL),
       "operations on elements of nothing");
    ok(!loss_of(NULL, row) && !loss_of(row, NULL) && !mirt__accuracy_op((mirt__accuracy_kind)0, NULL, row) &&
           !mirt__accuracy_op((mirt__accuracy_kind)0, row, NULL),
       "losses of nothing");
    ok(!mirt__resize2d_op(NULL, 2, 2, true) && !mirt__upsampling2d_op(NULL, twice, true) &&
           !mirt_slice(NULL, zeros, zeros) && !mirt_pad(NULL, zeros, zeros, 0),
       "moved nothing");
    ok(strcmp(mirt_last_error(), "the first reason") == 0 && model->graph.status == MIRT_OK, "\"%s\" stays",
       mirt_last_error());
    mirt_model_destroy(model);
}

int main(void) {
    strategy = strategy_of(1, 1, 1);
    check_refusals();
    check_nothing();
    mirt_strategy_destroy(strategy);
    return done_testing();
}
