#include "../ops/ops.h"
#include "../inspect/timeline.h"
#include "trainer.h"
/* Features of frozen layers.

   A tensor of the model is steady when inputs, constants and weights that are not trained determine it, row by row, in
   training as otherwise. Steady tensors that others read are the features: mirt_fit trains a function of these, and
   another one makes them of the data. In the first pass the data set gives its batches as ever; each sample's features,
   labels and weight go into the store under the sample's index. In later passes the stage below its batches is only
   asked in which order the indices come, and the batches are put together out of the store. */

struct mirt__features {
    mirt_model *model;
    mirt_dataset *dataset, *samples; /* and the stage whose samples its batches are made of */
    mirt__data_spec spec;            /* of batches of features */
    bool passed;                     /* the data set has been gone through */
    bool ordered;                    /* this pass is of the store, */
    int64_t position, batches;       /* samples and batches given in it */
    mirt__slot store, batch;
    int64_t rows, room;              /* in the store */
    int64_t *place, places;          /* of each index there, or one of these: */
    uint64_t edits;                  /* of the weights the store was made with */
    mirt__work *work;
};
static const int64_t mirt__place_none = -1, mirt__place_skipped = -2;

/* >>the cut */

static bool mirt__node_steady(const mirt_model *model, const mirt__node *node) {
    mirt__mode training;
    bool rows = false;
    memset(&training, 0, sizeof training);
    training.training = true;
    training.frozen = mirt__is_frozen;
    training.arg = model;
    if (mirt__is_variable(node)) return !mirt__is_trained(&model->variable[node->a.index]);
    for (int k = 0; k < node->num_in; k++) {
        if (!node->in[k]->node->steady) return false;
        rows = rows || mirt__is_batched(&node->in[k]->shape);
    }
    if (!node->op->row_wise || (rows && !mirt__is_batched(&node->out[0]->shape))) return false;
    /* what is random is so in training, and lowered */
    if (!node->op->lower || !mirt__in_training(node, &training)) return true;
    return node->op->steady && node->op->steady(node, &training);
}

static bool mirt__cut_add(mirt__stretch *cut, mirt_tensor *t) {
    if (!t->node->steady || !mirt__is_batched(&t->shape)) return true;
    for (int i = 0; i < cut->count; i++) {
        if (cut->tensor[i] == t) return true;
    }
    if (cut->count == MIRT_MAX_INPUTS || t->slot || t->dtype != MIRT_FLOAT32 || mirt__is_input(t->node)) return false;
    cut->tensor[cut->count++] = t;
    return true;
}

/* Fills `cut`; false: there are no features, or none worth their memory. */
static bool mirt__cut_find(mirt_model *model, mirt__stretch *cut) {
    mirt__graph *graph = &model->graph;
    bool work = false, good = true;
    cut->count = 0;
    for (int i = 0; i < graph->count; i++) {
        graph->node[i]->live = false;
        graph->node[i]->steady = mirt__node_steady(model, graph->node[i]);
    }
    for (int i = 0; i < model->num_outputs + graph->num_terms && good; i++) {
        mirt_tensor *t = i < model->num_outputs ? model->output[i] : graph->term[i - model->num_outputs];
        t->node->live = true;
        good = mirt__cut_add(cut, t);
    }
    for (int i = graph->count - 1; i >= 0 && good; i--) {
        const mirt__node *node = graph->node[i];
        for (int k = 0; node->live && k < node->num_in && good; k++) {
            node->in[k]->node->live = true;
            if (node->steady && node->op->macs && mirt__is_variable(node->in[k]->node)) work = true;
            good = node->steady || mirt__cut_add(cut, node->in[k]);
        }
    }
    return good && work && cut->count > 0;
}

/* >>the store */

/* A sample's features, labels and weight. */
static void mirt__features_spec_of(mirt__features *f, const mirt__stretch *cut) {
    const mirt__data_spec *data = mirt__dataset_spec(f->dataset);
    f->spec = *data;
    f->spec.features = true;
    f->spec.num_x = cut->count;
    f->spec.num_fields = 0;
    for (int i = 0; i < cut->count; i++) {
        const mirt_shape shape = mirt__row_shape(&cut->tensor[i]->shape);
        mirt__data_add_field(&f->spec, MIRT_FLOAT32, shape);
        f->spec.field[i].bytes = (size_t)mirt__shape_count(&shape) * sizeof(float);
    }
    for (int i = data->num_x; i < data->num_fields; i++) f->spec.field[f->spec.num_fields++] = data->field[i];
}

/* The most samples that may come with indices of their own: of whatever is before the order is made. */
static int64_t mirt__features_most(const mirt__features *f) {
    int64_t most = 0;
    for (const mirt_dataset *d = f->samples; d; d = d->source) most = d->spec.samples > most ? d->spec.samples : most;
    return most;
}

/* Bytes of `rows` rows. */
static double mirt__features_bytes(const mirt__features *f, double rows) {
    double row = sizeof(int64_t);
    for (int i = 0; i < f->spec.num_fields; i++) row += (double)f->spec.field[i].bytes;
    return row * rows;
}

static int64_t mirt__features_place(const mirt__features *f, int64_t index) {
    return index < f->places ? f->place[index] : mirt__place_none;
}

static mirt_status mirt__features_put(mirt__features *f, int64_t index, int64_t place) {
    if (index >= f->places) {
        int64_t more = f->places ? 2 * f->places : f->room;
        if (more <= index) more = index + 1;
        if (!mirt__grow((void **)&f->place, (size_t)f->places, (size_t)more, sizeof *f->place))
            return mirt_last_status();
        for (; f->places < more; f->places++) f->place[f->places] = mirt__place_none;
    }
    f->place[index] = place;
    return MIRT_OK;
}

/* Weights of frozen layers were set: what was made with the old ones is of no use. */
static void mirt__features_check(mirt__features *f) {
    const uint64_t edits = mirt__root(f->model, NULL)->edits;
    if (f->edits == edits) return;
    f->edits = edits;
    f->rows = 0;
    for (int64_t i = 0; i < f->places; i++) f->place[i] = mirt__place_none;
}

/* The features of a batch of the data set: into the store, and as the batch *out. */
static mirt_status mirt__features_make(mirt__features *f, const mirt__batch *in, mirt__batch *out) {
    const mirt__data_spec *data = mirt__dataset_spec(f->dataset);
    mirt_function *function = mirt__trainer_prepare(f->model, MIRT__FEATURES, data, mirt__data_most_rows(data), NULL);
    mirt__timing_phase(f->model, MIRT_PHASE_FORWARD); /* what it waits for is no input */
    if (!function || mirt__function_begin(function, in) != MIRT_OK || mirt__function_step(function) != MIRT_OK)
        return mirt_last_status();
    mirt__timing_phase(f->model, MIRT_PHASE_INPUT);
    memset(out, 0, sizeof *out);
    out->rows = in->rows;
    out->index = in->index;
    out->met = in->met;
    out->end = in->rows; /* of all processes */
    for (int i = 0; i < f->spec.num_x; i++) out->field[i] = function->results.list[i].data;
    for (int i = f->spec.num_x; i < f->spec.num_fields; i++) out->field[i] = in->field[data->num_x + i - f->spec.num_x];
    for (int64_t r = 0; r < in->rows; r++) {
        const void *from[MIRT__MAX_FIELDS];
        if (mirt__features_place(f, in->index[r]) >= 0) continue;
        if (f->rows == f->room)
            return mirt__fail(MIRT_E_STATE, "the data set has more samples than the %lld it said", (long long)f->room);
        for (int i = 0; i < f->spec.num_fields; i++)
            from[i] = (const char *)out->field[i] + (size_t)r * f->spec.field[i].bytes;
        mirt__slot_put(&f->store, &f->spec, f->rows, from, &in->index[r], 1);
        if (mirt__features_put(f, in->index[r], f->rows++) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

/* >>passes over the store */

/* The index of sample i of this pass, whose features are not there yet: a shuffle before mirt_take, say, brings new
   ones. */
static mirt_status mirt__features_catch_up(mirt__features *f, int64_t i) {
    mirt__sample sample;
    mirt__batch one, out;
    mirt_status status = mirt__dataset_reach(f->samples, i, f->work, &sample);
    if (status != MIRT_OK) return status;
    memset(&one, 0, sizeof one);
    memcpy(one.field, sample.field, sizeof one.field);
    one.rows = 1;
    one.index = &sample.index;
    return mirt__features_make(f, &one, &out);
}

static mirt_status mirt__features_index(const mirt__features *f, int64_t i, int64_t *index) {
    mirt__sample sample;
    if (!f->samples->stage->at) return f->samples->stage->make(f->samples, i, f->work, NULL, index);
    mirt_status status = f->samples->stage->at(f->samples, i, &sample);
    *index = sample.index;
    return status;
}

/* Sample i of this pass into the batch, unless the data set leaves it out. */
static mirt_status mirt__features_take(mirt__features *f, int64_t i) {
    const void *from[MIRT__MAX_FIELDS];
    int64_t index = 0;
    mirt_status status = mirt__features_index(f, i, &index);
    if (status == MIRT__SKIPPED) return MIRT_OK;
    if (status == MIRT_OK && mirt__features_place(f, index) == mirt__place_none) {
        status = mirt__features_catch_up(f, i);
        if (status == MIRT__SKIPPED) status = mirt__features_put(f, index, mirt__place_skipped);
    }
    const int64_t place = status == MIRT_OK ? mirt__features_place(f, index) : mirt__place_skipped;
    if (place < 0) return status;
    for (int k = 0; k < f->spec.num_fields; k++)
        from[k] = (const char *)f->store.field[k] + (size_t)place * f->spec.field[k].bytes;
    mirt__slot_put(&f->batch, &f->spec, f->batch.rows++, from, &index, 1);
    return MIRT_OK;
}

static mirt_status mirt__features_gather(mirt__features *f, mirt__batch *out) {
    const int64_t samples = f->samples->spec.samples;
    f->batch.rows = 0;
    while (f->position < samples && f->batches < f->dataset->batches && !f->batch.rows) {
        for (int64_t tried = 0; tried < f->spec.batch && f->position < samples; tried++) {
            mirt_status status = mirt__features_take(f, f->position++);
            if (status != MIRT_OK) return status;
        }
    }
    f->batches++;
    mirt__slot_give(&f->batch, &f->spec, 0, f->batch.rows, out);
    return MIRT_OK;
}

MIRT__LIB const mirt__data_spec *mirt__features_spec(const mirt__features *f) { return &f->spec; }

MIRT__LIB mirt_status mirt__features_begin(mirt__features *f, int64_t epoch) {
    mirt_strategy *s = f->model->strategy;
    f->position = f->batches = 0;
    f->ordered = f->passed;
    return f->ordered ? mirt__dataset_begin(f->samples, s->seed, epoch)
                      : mirt__pass_data_begin(s, f->dataset, 0, epoch);
}

MIRT__LIB mirt_status mirt__features_next(mirt__features *f, mirt__batch *out) {
    mirt__batch in;
    memset(out, 0, sizeof *out);
    mirt__features_check(f);
    if (f->ordered) return mirt__features_gather(f, out);
    mirt_status status = mirt__pass_data_next(f->model->strategy, f->dataset, &in);
    if (status != MIRT_OK) return status;
    f->passed = in.rows == 0;
    return in.rows ? mirt__features_make(f, &in, out) : MIRT_OK;
}

/* >>opening */

MIRT__LIB void mirt__features_close(mirt__features *f) {
    if (!f) return;
    mirt__aligned_free(f->store.block);
    mirt__aligned_free(f->batch.block);
    mirt__free(f->place);
    mirt__work_destroy(f->work);
    mirt__free(f);
}

/* Why the features of this data set are not kept, or NULL. */
static const char *mirt__features_obstacle(const mirt__features *f) {
    if (f->samples && f->samples->varies) return "its samples may change from epoch to epoch";
    if (!f->samples || !mirt__reachable(f->samples) || f->dataset->batches < 0)
        return "its samples cannot be reached in any order";
    return NULL;
}

static mirt_status mirt__features_allocate(mirt__features *f) {
    if (!(f->work = mirt__work_create())) return MIRT_E_NOMEM;
    mirt_status status = mirt__slot_create(&f->batch, &f->spec, mirt__data_most_rows(&f->spec), true);
    return status == MIRT_OK ? mirt__slot_create(&f->store, &f->spec, f->room, true) : status;
}

MIRT__LIB mirt_status mirt__features_open(mirt_model *model, mirt_dataset *dataset, int64_t *budget, const char *what,
                                          mirt__features **out) {
    *out = NULL;
    if (!mirt__trainer_of(model)) return mirt_last_status();
    mirt__stretch *cut = &model->trainer->features;
    cut->tensor = model->trainer->cut;
    if (sizeof(mirt__real) != sizeof(float) || *budget <= 0 || !mirt__cut_find(model, cut)) return MIRT_OK;
    mirt__features *f = (mirt__features *)mirt__calloc(1, sizeof *f);
    if (!f) return mirt_last_status();
    f->model = model;
    f->dataset = dataset;
    f->samples = dataset->samples;
    f->edits = mirt__root(model, NULL)->edits;
    mirt__features_spec_of(f, cut);
    mirt_status status = MIRT_OK;
    const char *why = mirt__features_obstacle(f);
    f->room = why ? 0 : mirt__features_most(f);
    const double bytes = mirt__features_bytes(f, (double)f->room);
    if (why) {
        mirt__log(model->strategy, MIRT_LOG_INFO,
                  "%s: the features of its frozen layers are computed anew in every epoch: of the %s, %s (mirt_cache "
                  "would keep them)",
                  model->name, what, why);
    } else if (bytes > (double)*budget) {
        mirt__log(model->strategy, MIRT_LOG_INFO,
                  "%s: the features of its frozen layers are computed anew in every epoch: those of the %s need %.1f "
                  "MB, and %.1f MB are allowed (feature_cache_bytes)",
                  model->name, what, bytes * 1e-6, (double)*budget * 1e-6);
    } else if ((status = mirt__features_allocate(f)) == MIRT_OK) {
        mirt__log(model->strategy, MIRT_LOG_INFO,
                  "%s: the features of its frozen layers are computed once for each of %lld samples of the %s, and "
                  "kept: %.1f MB",
                  model->name, (long long)f->room, what, bytes * 1e-6);
        *budget -= (int64_t)bytes;
        *out = f;
        return MIRT_OK;
    }
    mirt__features_close(f);
    return status;
}
