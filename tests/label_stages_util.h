#ifndef LABEL_STAGES_UTIL_H
#define LABEL_STAGES_UTIL_H
/* Small samples, epochs read in all ways, and data sets that have to be refused. Include after mirrortrain.h. */
#include "golden/formula.h"
#include "tap.h"

enum { ROWS = 23, CLASSES = 4, ROW_BYTES = 256 };
static float row_x[ROWS][3], row_weight[ROWS];
static uint8_t row_second[ROWS][2];
static int32_t row_label[ROWS];

TAP_UNUSED static void draw_rows(void) {
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 3; k++) row_x[i][k] = (float)((i * 3 + k) * 2 % 97);
        row_second[i][0] = (uint8_t)(200 - i);
        row_second[i][1] = (uint8_t)i;
        row_label[i] = i * 7 % CLASSES;
        row_weight[i] = 0.5f + (float)i;
    }
}

/* Two inputs, one label and perhaps a weight. */
TAP_UNUSED static mirt_dataset *rows(bool weights) {
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1, 3, 1));
    data.x[1] = mirt_make_array(row_second, MIRT_UINT8, MIRT_SHAPE(ROWS, 2));
    data.y[0] = mirt_make_array(row_label, MIRT_INT32, MIRT_SHAPE(ROWS));
    if (weights) data.weights = mirt_make_array(row_weight, MIRT_FLOAT32, MIRT_SHAPE(ROWS));
    return mirt_arrays_of(&data);
}

/* The samples of a pass, all fields of each side by side. */
typedef struct epoch {
    int rows;
    char row[4 * ROWS][ROW_BYTES];
} epoch;
static epoch first, other;

TAP_UNUSED static void add_rows(const mirt__data_spec *spec, const void *const *field, int64_t from, int64_t count,
                                epoch *out) {
    for (int64_t r = from; r < from + count && out->rows < 4 * ROWS; r++) {
        size_t at = 0;
        for (int f = 0; f < spec->num_fields; f++) {
            if (at + spec->field[f].bytes <= ROW_BYTES)
                memcpy(out->row[out->rows] + at, (const char *)field[f] + (size_t)r * spec->field[f].bytes,
                       spec->field[f].bytes);
            at += spec->field[f].bytes;
        }
        out->rows++;
    }
}

/* What is left of the pass under way. */
TAP_UNUSED static void rest_of(mirt_dataset *d, epoch *out) {
    mirt__batch b;
    while (mirt__dataset_next(d, &b) == MIRT_OK && b.rows) add_rows(mirt__dataset_spec(d), b.field, 0, b.rows, out);
}

TAP_UNUSED static void epoch_of(mirt_dataset *d, int64_t number, epoch *out) {
    memset(out, 0, sizeof *out);
    if (d && mirt__dataset_begin(d, 9, number) == MIRT_OK) rest_of(d, out);
}

/* Joins what three processes make of each batch. */
TAP_UNUSED static void epoch_in_parts(mirt_dataset *d, int64_t number, epoch *out) {
    const int64_t all = 3;
    static epoch made[3];
    memset(out, 0, sizeof *out);
    for (int64_t p = 0; d && p < all; p++) {
        const mirt__data_part part = {all, p, p + 1};
        mirt__dataset_set_part(d, &part);
        epoch_of(d, number, &made[p]);
    }
    for (int64_t at = 0; d && at < made[0].rows; at += d->spec.batch) {
        const int64_t left = made[0].rows - at, count = left < d->spec.batch ? left : d->spec.batch;
        for (int64_t p = 0; p < all; p++) {
            const mirt__data_part part = {all, p, p + 1};
            int64_t begin, end;
            mirt__part_rows(&part, count, &begin, &end);
            memcpy(out->row[at + begin], made[p].row[at + begin], (size_t)(end - begin) * ROW_BYTES);
        }
        out->rows = (int)(at + count);
    }
}

TAP_UNUSED static bool equal(const epoch *a, const epoch *b) {
    return a->rows > 0 && a->rows == b->rows && memcmp(a->row, b->row, (size_t)a->rows * ROW_BYTES) == 0;
}

/* A stage gives the same samples whoever makes them. */
TAP_UNUSED static void same_however(const char *name, mirt_dataset *(*stage)(mirt_dataset *)) {
    const int64_t batch = 5;
    for (int64_t number = 0; number < 2; number++) {
        mirt_dataset *d = stage(mirt_shuffle(rows(true), 50));
        epoch_of(d, number, &first);
        mirt_read_desc desc = {number, 9};
        mirt_data data;
        const bool read = mirt_dataset_read(d, 7, &desc, &data) == MIRT_OK;
        const void *field[MIRT__MAX_FIELDS];
        int fields = 0;
        for (int i = 0; read && data.x[i].data; i++) field[fields++] = data.x[i].data;
        for (int i = 0; read && data.y[i].data; i++) field[fields++] = data.y[i].data;
        if (read) field[fields++] = data.weights.data;
        memset(&other, 0, sizeof other);
        if (read && fields == d->spec.num_fields) add_rows(&d->spec, field, 0, 1, &other);
        ok(first.rows >= ROWS && other.rows == 1 && memcmp(other.row[0], first.row[7], ROW_BYTES) == 0,
           "%s: one sample is read as it comes in the epoch (%s)", name, mirt_last_error());
        mirt_data_free(&data);
        mirt_dataset_destroy(d);
        for (int workers = 1; workers <= 5; workers += 2) {
            d = mirt_batch(stage(mirt_shuffle(rows(true), 50)), batch);
            if (workers == 3) d = mirt_prefetch(d, 2);
            const bool asked = mirt_dataset_workers(d, workers) == MIRT_OK;
            epoch_of(d, number, &other);
            ok(asked && equal(&first, &other), "%s: the same by %d threads", name, workers);
            mirt_dataset_destroy(d);
        }
        d = mirt_batch(stage(mirt_shuffle(rows(true), 50)), batch);
        epoch_in_parts(d, number, &other);
        /* a program of one process has no parts */
        ok(!MIRT__TOGETHER || equal(&first, &other), "%s: the same in the parts of three processes", name);
        const bool over = mirt__dataset_pass_over(d, 2);
        memset(&other, 0, sizeof other);
        if (over && mirt__dataset_begin(d, 9, number) == MIRT_OK) rest_of(d, &other);
        ok(other.rows == first.rows - 2 * batch &&
               memcmp(other.row, first.row[2 * batch], (size_t)other.rows * ROW_BYTES) == 0,
           "%s: the same in a pass that begins with its third batch", name);
        mirt_dataset_destroy(d);
    }
}

TAP_UNUSED static void refused(mirt_dataset *d, mirt_status status, const char *says) {
    ok(!d && mirt_last_status() == status && strstr(mirt_last_error(), says), "refused: %s", mirt_last_error());
    mirt_dataset_destroy(d);
}

#endif
