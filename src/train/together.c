#include "../base/digest.h"
#include "../nn/config.h"
#include "trainer.h"
/* Processes that train together agree on batches, of which each makes its own rows. */

/* What a process has when it reaches a batch. */
typedef struct mirt__arrival {
    int64_t status; /* of reading it, or why the process leaves */
    int64_t rows, skipped;
} mirt__arrival;

MIRT__LIB mirt_status mirt__begin_together(mirt_strategy *s, mirt_dataset *dataset, int replicas, int64_t epoch) {
    mirt__data_part part;
    part.of = replicas ? replicas : mirt__share_units(s);
    part.begin = mirt__peer_begin(s, part.of, s->peers->rank);
    part.end = mirt__peer_begin(s, part.of, s->peers->rank + 1);
    mirt__dataset_set_part(dataset, &part);
    s->peers->left = false;
    return mirt__dataset_begin(dataset, s->seed, epoch);
}

/* >>what goes wrong */

static mirt_status mirt__arrivals_differ(const mirt_strategy *s, const mirt__arrival *all, int other) {
    const mirt__peers *p = s->peers;
    return mirt__fail(MIRT_E_WORKER,
                      "processes have different data: process 0 (%s) reads a batch of %lld samples, process %d (%s) "
                      "one of %lld",
                      p->engine->host(0), (long long)all[0].rows, other, p->engine->host(other),
                      (long long)all[other].rows);
}

/* Meets the others before a batch; *skipped: rows that all of them skip. */
static mirt_status mirt__arrive(mirt_strategy *s, const mirt__arrival *own, int64_t *skipped) {
    const int size = s->peers->size;
    bool left = false;
    int other = 0;
    const mirt__arrival *all = (const mirt__arrival *)mirt__peers_tell(s, own, sizeof *own);
    *skipped = 0;
    if (!all) return mirt_last_status();
    for (int i = 0; i < size; i++) {
        left = left || all[i].status != MIRT_OK;
        *skipped += all[i].skipped;
        if (all[i].rows != all[0].rows && !other) other = i;
    }
    if (left) {
        s->peers->left = true;
        return mirt__peers_fare(s, (mirt_status)own->status, "has stopped");
    }
    return other ? mirt__arrivals_differ(s, all, other) : MIRT_OK;
}

MIRT__LIB mirt_status mirt__meet_with_batch(mirt_strategy *s, mirt_status status, int64_t rows, int64_t *skipped) {
    mirt__arrival arrival;
    memset(&arrival, 0, sizeof arrival);
    arrival.status = (int64_t)status;
    arrival.rows = status == MIRT_OK ? rows : 0;
    arrival.skipped = *skipped;
    return mirt__arrive(s, &arrival, skipped);
}

MIRT__LIB mirt_status mirt__meet_others(mirt_strategy *s, mirt_status status, bool *asked) {
    int64_t all = *asked;
    if (!s->peers || s->peers->left || s->peers->broken || s->death) return status;
    status = mirt__meet_with_batch(s, status, 0, &all);
    *asked = all > 0;
    return status;
}

MIRT__LIB void mirt__leave_together(mirt_strategy *s, mirt_status status) {
    mirt__error error;
    bool asked = false;
    if (status == MIRT_OK) return;
    mirt__error_get(&error);
    mirt__meet_others(s, status, &asked);
    mirt__error_set(&error);
}

/* >>what a fit is */

/* What has to be the same in all processes that fit a model. */
typedef struct mirt__fit_settings {
    uint64_t model, kernels, weights, training, samples, batch, step;
} mirt__fit_settings;

/* Of the description for files, but for the model's name, or of as much of it as there can be for such a model. */
static uint64_t mirt__model_hash(mirt_model *model) {
    mirt__text text = {NULL, 0, 0, false};
    mirt__error error;
    mirt__error_get(&error);
    mirt__architecture_write(model, &text);
    mirt__error_set(&error);
    const int64_t count[] = {model->graph.count, mirt__root(model, NULL)->num_variables};
    const char *layers = text.data ? strstr(text.data, ",\"layers\"") : NULL; /* follows the model's name */
    uint64_t hash = mirt__hash_bytes(0, count, sizeof count);
    if (layers) hash = mirt__hash_bytes(hash, layers, strlen(layers));
    mirt__text_free(&text);
    return hash;
}

static uint64_t mirt__weights_hash(mirt_model *model) {
    mirt_model *root = mirt__root(model, NULL);
    uint64_t hash = 0;
    mirt__weights_to_host(root);
    for (int i = 0; root->weight && i < root->num_variables; i++)
        hash = mirt__hash_bytes(hash, root->weight + root->variable[i].offset,
                                (size_t)root->variable[i].count * sizeof(mirt__real));
    return hash;
}

static uint64_t mirt__training_hash(const mirt_model *model, const mirt_fit_desc *d) {
    const int64_t number[] = {d->epochs, d->steps_per_epoch, d->max_steps, d->initial_epoch, d->validation_steps,
                              d->validation_freq, d->validation != NULL};
    mirt__text text = {NULL, 0, 0, false};
    mirt__compile_write(model, &text);
    uint64_t hash = mirt__hash_bytes(0, number, sizeof number);
    hash = mirt__hash_bytes(hash, text.data, text.size);
    mirt__text_free(&text);
    return hash;
}

MIRT__LIB mirt_status mirt__fit_together(mirt_model *model, const mirt_dataset *data, const mirt_fit_desc *desc) {
    static const char training[] = "the optimizer, the loss or the numbers of epochs and steps";
    static const char *const what[] = {"the model's layers", "the instructions for bfloat16", "the model's weights",
                                       training, "the number of samples", "the batch size", "the step"};
    mirt_strategy *s = model->strategy;
    const mirt__peers *p = s->peers;
    mirt__fit_settings own;
    memset(&own, 0, sizeof own);
    own.model = mirt__model_hash(model);
    own.kernels = mirt__root(model, NULL)->policy == MIRT__POLICY_MIXED_BFLOAT16 &&
                  strstr(s->kernels->name, "bf16"); /* law 6 */
    own.weights = s->servers ? 0 : mirt__weights_hash(model);
    own.training = mirt__training_hash(model, desc);
    own.samples = (uint64_t)mirt__dataset_spec(data)->samples;
    own.batch = (uint64_t)mirt__dataset_spec(data)->batch;
    own.step = s->servers ? 0 : (uint64_t)model->step; /* servers get the chief's weights and step */
    const mirt__fit_settings *all = (const mirt__fit_settings *)mirt__peers_tell(s, &own, sizeof own);
    mirt_status status = all ? MIRT_OK : mirt_last_status();
    for (int i = 1; i < p->size && status == MIRT_OK; i++) {
        const uint64_t *first = &all[0].model, *other = &all[i].model;
        int k = 0;
        while (k < MIRT__COUNT(what) && first[k] == other[k]) k++;
        if (k < MIRT__COUNT(what))
            status = mirt__fail(MIRT_E_WORKER, "processes differ in %s: process 0 (%s) and process %d (%s)", what[k],
                                p->engine->host(0), i, p->engine->host(i));
    }
    s->peers->left = status != MIRT_OK;
    return status;
}

/* >>skipped rows */

/* Sample i of the batch becomes row `row`: it is moved there, or, where another process has made it, made again. */
static mirt_status mirt__row_take(mirt_dataset *dataset, const mirt__batch *batch, int64_t i, int64_t row, bool own,
                                  int64_t *index) {
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    void *field[MIRT__MAX_FIELDS];
    for (int f = 0; f < spec->num_fields; f++) {
        const size_t bytes = spec->field[f].bytes;
        memcpy(&field[f], &batch->field[f], sizeof field[f]); /* a slot's, which is this process's own */
        const char *from = (const char *)field[f] + (size_t)i * bytes;
        field[f] = (char *)field[f] + (size_t)row * bytes;
        if (own && row != i) memcpy(field[f], from, bytes);
    }
    if (own || mirt__dataset_make_again(dataset, batch->first + i, field, index) == MIRT_OK) return MIRT_OK;
    return mirt__fail(MIRT_E_WORKER, "sample %lld can be read by another process, but not by this one",
                      (long long)(batch->first + i));
}

/* The rows of the batch that are left, with all that this process needs of them, are closed up. */
static mirt_status mirt__close_up(mirt_dataset *dataset, const mirt__data_part *part, const char *skipped,
                                  mirt__batch *batch) {
    int64_t left = 0, begin, end, own_begin, own_end, *index;
    mirt_status status = MIRT_OK;
    memcpy(&index, &batch->index, sizeof index);
    mirt__part_rows(part, batch->rows, &own_begin, &own_end);
    for (int64_t i = 0; i < batch->rows; i++) left += !skipped[i];
    mirt__part_rows(part, left, &begin, &end);
    for (int64_t i = 0, row = 0; i < batch->rows && status == MIRT_OK; i++) {
        if (skipped[i]) continue;
        index[row] = index[i];
        if (row >= begin && row < end)
            status = mirt__row_take(dataset, batch, i, row, i >= own_begin && i < own_end, &index[row]);
        row++;
    }
    batch->rows = left;
    return status;
}

/* `before`: the rows of the processes before each of them. */
static void mirt__rows_before(const mirt_strategy *s, const mirt_dataset *dataset, int64_t rows, int64_t *before) {
    const int64_t of = mirt__dataset_part(dataset)->of;
    for (int p = 0; p <= s->peers->size; p++) mirt__share(rows, of, mirt__peer_begin(s, of, p), &before[p]);
}

static mirt_status mirt__skip_together(mirt_strategy *s, mirt_dataset *dataset, mirt__batch *batch) {
    const mirt__data_part *part = mirt__dataset_part(dataset);
    int64_t *before = s->peers->before[MIRT__BEFORE_ROWS], begin, end;
    char *skipped = (char *)mirt__calloc((size_t)batch->rows, 1);
    mirt__gathered array = {skipped, before, 1};
    if (!skipped) return mirt_last_status();
    mirt__part_rows(part, batch->rows, &begin, &end);
    for (int64_t i = begin; i < end; i++) skipped[i] = batch->index[i] == MIRT__NO_INDEX;
    mirt__rows_before(s, dataset, batch->rows, before);
    mirt_status status = mirt__peers_gather(s, &array, 1);
    if (status == MIRT_OK) status = mirt__close_up(dataset, part, skipped, batch);
    mirt__free(skipped);
    return status;
}

/* >>a batch */

/* Labels and weights of all rows: losses and metrics are counted by every process. */
static mirt_status mirt__labels_together(mirt_strategy *s, mirt_dataset *dataset, mirt__batch *batch) {
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    int64_t *before = s->peers->before[MIRT__BEFORE_ROWS];
    mirt__gathered array[MIRT__MAX_FIELDS];
    int arrays = 0;
    mirt__rows_before(s, dataset, batch->rows, before);
    for (int i = spec->num_x; i < spec->num_fields; i++, arrays++) {
        memcpy(&array[arrays].base, &batch->field[i], sizeof array[arrays].base);
        array[arrays].before = before;
        array[arrays].bytes = spec->field[i].bytes;
    }
    return mirt__peers_gather(s, array, arrays);
}

/* *lost: all rows of the batch are skipped. */
static mirt_status mirt__read_together(mirt_strategy *s, mirt_dataset *dataset, mirt__batch *out, bool *lost) {
    const mirt__data_part *part = mirt__dataset_part(dataset);
    int64_t skipped = 0, begin = 0, end = 0;
    *lost = false;
    mirt_status status = mirt__dataset_next(dataset, out);
    if (status == MIRT_OK && part->of) mirt__part_rows(part, out->rows, &begin, &end);
    for (int64_t i = begin; i < end; i++) skipped += out->index[i] == MIRT__NO_INDEX;
    if (!part->of && status == MIRT_OK && out->rows) return MIRT_OK; /* they meet when it has been looked at */
    status = mirt__meet_with_batch(s, status, out->rows, &skipped);
    out->met = true;
    if (status != MIRT_OK || !part->of || !out->rows) return status;
    if (skipped) status = mirt__skip_together(s, dataset, out);
    *lost = out->rows == 0;
    mirt__part_rows(part, out->rows, &out->begin, &out->end);
    return status == MIRT_OK && out->rows ? mirt__labels_together(s, dataset, out) : status;
}

MIRT__LIB mirt_status mirt__next_together(mirt_strategy *s, mirt_dataset *dataset, mirt__batch *out) {
    bool lost = true;
    mirt_status status = MIRT_OK;
    while (lost && status == MIRT_OK) {
        memset(out, 0, sizeof *out);
        status = mirt__read_together(s, dataset, out, &lost);
    }
    return status;
}
