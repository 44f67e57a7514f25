/* Tests stages that change labels and several inputs: maps, one-hot labels. Whatever makes the samples, they are the
   same: any number of threads, parts of batches for processes, single reads, passes that begin later. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "label_stages_util.h"

/* >>maps */

/* Two inputs and a label become three inputs and two labels; the weight stays. */
static int widen(const void *const *in, void *const *out, int64_t index, void *user) {
    const float *const x = (const float *)in[0];
    (void)user;
    for (int i = 0; i < 2; i++) ((uint8_t *)out[0])[i] = (uint8_t)(x[i] + x[i + 1]);
    *(int32_t *)out[2] = (int32_t)index;
    for (int i = 0; i < 4; i++) ((float *)out[3])[i] = (float)(*(const int32_t *)in[2] == i);
    ((float *)out[4])[0] = x[2];
    return 0;
}

static mirt_dataset *widened(mirt_dataset *d) {
    mirt_map_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.fn = widen;
    desc.num_x = 3;
    desc.num_y = 2;
    desc.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(2, 1));
    desc.x[1] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(2));
    desc.x[2] = mirt_make_array(NULL, MIRT_INT32, MIRT_SHAPE(0));
    desc.y[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(4));
    desc.y[1] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(1));
    return mirt_map(d, &desc);
}

static void test_map(void) {
    mirt_dataset *d = widened(rows(true));
    const mirt__data_spec *spec = mirt__dataset_spec(d);
    ok(d && spec->num_x == 3 && spec->num_y == 2 && spec->has_weights && spec->num_fields == 6 &&
           spec->field[0].dtype == MIRT_UINT8 && spec->field[0].bytes == 2 && spec->field[2].bytes == 4 &&
           spec->field[3].dtype == MIRT_FLOAT32 && spec->field[3].shape.dim[0] == 4 && spec->field[5].bytes == 4,
       "a map changes inputs and labels, and how many there are (%s)", mirt_last_error());
    epoch_of(d, 0, &first);
    int wrong = first.rows != ROWS;
    for (int i = 0; i < first.rows; i++) {
        const char *const at = first.row[i];
        float hot[4], more[2];
        memcpy(hot, at + 2 + 2 + 4, sizeof hot);
        memcpy(more, at + 2 + 2 + 4 + 16, sizeof more);
        wrong += (uint8_t)at[0] != (uint8_t)(row_x[i][0] + row_x[i][1]) || memcmp(at + 2, row_second[i], 2) != 0;
        for (int k = 0; k < 4; k++) wrong += hot[k] != (float)(row_label[i] == k);
        wrong += more[0] != row_x[i][2] || more[1] != row_weight[i];
    }
    ok(wrong == 0, "... to what its function writes, and to copies of what stays");
    mirt_dataset_destroy(d);
    same_however("a map of inputs and labels", widened);
}

static int nothing(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in;
    (void)out;
    (void)index;
    (void)user;
    return 0;
}

static void test_map_counts(void) {
    mirt_map_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.fn = nothing;
    desc.num_y = -1;
    mirt_dataset *d = mirt_map(rows(false), &desc);
    ok(d && d->spec.num_y == 0 && d->spec.num_x == 2 && d->spec.num_fields == 2, "labels can be left out (%s)",
       mirt_last_error());
    epoch_of(d, 0, &first);
    ok(first.rows == ROWS && memcmp(first.row[4], row_x[4], sizeof row_x[4]) == 0, "... inputs stay");
    mirt_dataset_destroy(d);
    desc.num_y = 1;
    desc.y[0] = mirt_make_array(NULL, MIRT_INT32, MIRT_SHAPE(0));
    desc.num_x = 1;
    desc.x[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(1, 3, 1));
    d = mirt_map(rows(true), &desc);
    ok(d && d->spec.num_fields == 3, "... and inputs (%s)", mirt_last_error());
    epoch_of(d, 0, &first);
    ok(first.rows == ROWS && memcmp(first.row[4], row_x[4], sizeof row_x[4]) == 0 &&
           memcmp(first.row[4] + 12, &row_label[4], 4) == 0 && memcmp(first.row[4] + 16, &row_weight[4], 4) == 0,
       "... of which the others are copies");
    mirt_dataset_destroy(d);
    desc.num_x = MIRT_MAX_INPUTS + 1;
    refused(mirt_map(rows(false), &desc), MIRT_E_INVALID, "mirt_map: 9 inputs");
    desc.num_x = -1;
    refused(mirt_map(rows(false), &desc), MIRT_E_INVALID, "mirt_map: -1 inputs");
    desc.num_x = 0;
    desc.num_y = -2;
    refused(mirt_map(rows(false), &desc), MIRT_E_INVALID, "-2 labels");
    desc.num_y = 1;
    desc.y[0].shape.rank = 77;
    refused(mirt_map(rows(false), &desc), MIRT_E_SHAPE, "77 dimensions");
    desc.y[0] = mirt_make_array(NULL, (mirt_dtype)55, MIRT_SHAPE(2));
    refused(mirt_map(rows(false), &desc), MIRT_E_INVALID, "55");
    desc.y[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(2));
    desc.y[0].shape.dim[0] = -3;
    refused(mirt_map(rows(false), &desc), MIRT_E_SHAPE, "y has samples of shape");
    desc.y[0].shape.dim[0] = INT64_MAX / 2;
    refused(mirt_map(rows(false), &desc), MIRT_E_SHAPE, "too many");
    desc.num_y = 0;
    desc.num_x = 1;
    desc.shape = MIRT_SHAPE(2);
    refused(mirt_map(rows(false), &desc), MIRT_E_INVALID, "both a shape and 1 inputs");
}

/* >>one-hot labels */

static mirt_dataset *one_hot(mirt_dataset *d) { return mirt_one_hot_labels(d, CLASSES); }

static void test_one_hot(void) {
    static const char *const names[] = {"a", "b", "c", "d"};
    mirt_dataset *d = one_hot(rows(true));
    mirt_array hot;
    ok(d && d->spec.field[2].dtype == MIRT_FLOAT32 && d->spec.field[2].shape.rank == 1 &&
           d->spec.field[2].shape.dim[0] == CLASSES,
       "labels become one-hot (%s)", mirt_last_error());
    epoch_of(d, 0, &first);
    const bool made = mirt_to_categorical(mirt_make_array(row_label, MIRT_INT32, MIRT_SHAPE(ROWS)), CLASSES, &hot) ==
                      MIRT_OK;
    int wrong = first.rows != ROWS || !made;
    for (int i = 0; i < first.rows && made; i++) {
        wrong += memcmp(first.row[i], row_x[i], sizeof row_x[i]) != 0;
        wrong += memcmp(first.row[i] + 14, (const float *)hot.data + i * CLASSES, CLASSES * sizeof(float)) != 0;
        wrong += memcmp(first.row[i] + 14 + CLASSES * 4, &row_weight[i], sizeof row_weight[i]) != 0;
    }
    ok(wrong == 0, "... as those of mirt_to_categorical, the rest as it was");
    mirt_array_free(&hot);
    ok(d && !d->varies, "... and are not said to vary");
    mirt_dataset_destroy(d);
    same_however("one-hot labels", one_hot);
    d = rows(false);
    mirt_set_class_names(d, names, 4);
    d = mirt_one_hot_labels(d, 0);
    ok(d && d->spec.field[2].shape.dim[0] == 4, "the number of names is that of classes");
    mirt_dataset_destroy(d);
    refused(mirt_one_hot_labels(rows(false), 0), MIRT_E_INVALID, "does not name its classes");
    refused(mirt_one_hot_labels(rows(false), -1), MIRT_E_INVALID, "-1");
    refused(mirt_one_hot_labels(rows(false), (int64_t)1 << 40), MIRT_E_INVALID, "1099511627776");
    refused(mirt_one_hot_labels(mirt_batch(rows(false), 2), 4), MIRT_E_INVALID, "before mirt_batch");
    refused(mirt_one_hot_labels(one_hot(rows(false)), 4), MIRT_E_SHAPE, "not (4)");
    refused(mirt_one_hot_labels(mirt_arrays(mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 3)), (mirt_array){0}),
                                4),
            MIRT_E_INVALID, "no labels");
    ok(!mirt_one_hot_labels(NULL, 4), "no data set, no stage");
    d = mirt_batch(mirt_one_hot_labels(rows(false), 3), 4);
    mirt__batch b;
    mirt_status status = mirt__dataset_begin(d, 0, 0);
    while (status == MIRT_OK && (status = mirt__dataset_next(d, &b)) == MIRT_OK && b.rows) {}
    ok(status == MIRT_E_INVALID && strstr(mirt_last_error(), "label 3 of sample"), "%s", mirt_last_error());
    mirt_dataset_destroy(d);
    static const float halves[2] = {1, 1.5f};
    d = mirt_batch(mirt_one_hot_labels(mirt_arrays(mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(2, 3)),
                                                   mirt_make_array(halves, MIRT_FLOAT32, MIRT_SHAPE(2))),
                                       3),
                   2);
    status = mirt__dataset_begin(d, 0, 0);
    if (status == MIRT_OK) status = mirt__dataset_next(d, &b);
    ok(status == MIRT_E_INVALID && strstr(mirt_last_error(), "label 1.5 of sample 1"), "%s", mirt_last_error());
    mirt_dataset_destroy(d);
}

int main(void) {
    draw_rows();
    test_map();
    test_map_counts();
    test_one_hot();
    return done_testing();
}
