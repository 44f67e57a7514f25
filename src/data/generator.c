/* Samples written by functions of the caller. */

#include "data.h"

typedef struct mirt__generator_dataset {
    mirt_dataset base;
    mirt_generator_desc desc;
    bool ended; /* this pass has ended */
} mirt__generator_dataset;

static mirt_status mirt__generator_begin(mirt_dataset *dataset) {
    mirt__generator_dataset *generator = (mirt__generator_dataset *)dataset;
    generator->ended = false;
    mirt__at_begin(dataset, NULL, dataset->cost, -1);
    int code = 0;
    if (generator->desc.begin) {
        MIRT__OUTSIDE;
        code = generator->desc.begin(dataset->epoch, generator->desc.user);
    }
    mirt__at_end(dataset, NULL);
    if (code)
        return mirt__fail(MIRT_E_CALLBACK, "%s returned %d at the beginning of epoch %lld", dataset->cost, code,
                          (long long)dataset->epoch);
    return mirt__dataset_begin_source(dataset);
}

/* *end: the function reports that the sample does not exist; an error if `end` is NULL. */
static mirt_status mirt__generator_write(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                         bool *end) {
    const mirt__generator_dataset *generator = (const mirt__generator_dataset *)dataset;
    const float one = 1;
    if (dataset->spec.has_weights) memcpy(field[dataset->spec.num_fields - 1], &one, sizeof one);
    mirt__at_begin(dataset, work, dataset->cost, i);
    int code;
    {
        MIRT__OUTSIDE;
        code = generator->desc.fn(field, i, generator->desc.user);
    }
    mirt__at_end(dataset, work);
    if (end) *end = code == MIRT_END_OF_DATA;
    if (code == 0 || (end && *end)) return MIRT_OK;
    return mirt__fail(MIRT_E_CALLBACK, "%s returned %d for sample %lld", dataset->cost, code, (long long)i);
}

static mirt_status mirt__generator_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                        int64_t *index) {
    *index = i;
    return field ? mirt__generator_write(dataset, i, work, field, NULL) : MIRT_OK;
}

static mirt_status mirt__generator_fill(mirt_dataset *dataset, mirt__slot *out) {
    bool *end = &((mirt__generator_dataset *)dataset)->ended;
    out->rows = 0;
    if (*end || (dataset->spec.samples >= 0 && dataset->position >= dataset->spec.samples)) return MIRT_OK;
    out->index[0] = dataset->position;
    mirt_status status = mirt__generator_write(dataset, dataset->position, NULL, out->field, end);
    if (status != MIRT_OK || *end) return status;
    dataset->position++;
    out->rows = 1;
    return MIRT_OK;
}

static const mirt__stage mirt__generator_stage = {
    mirt__generator_begin, NULL, NULL, NULL, mirt__generator_fill, NULL, NULL};
static const mirt__stage mirt__generator_make_stage = {
    mirt__generator_begin, NULL, NULL, mirt__generator_make, mirt__dataset_fill_made, NULL, NULL};

static mirt_status mirt__generator_check(const mirt_generator_desc *desc) {
    static const char caller[] = "mirt_dataset_from_generator";
    if (!desc || !desc->fn) return mirt__fail(MIRT_E_INVALID, "%s needs a function", caller);
    if (desc->num_x < 1 || desc->num_x > MIRT_MAX_INPUTS || desc->num_y < 0 || desc->num_y > MIRT_MAX_OUTPUTS)
        return mirt__fail(MIRT_E_INVALID, "%s: %d inputs and %d labels: they must be 1 to %d and 0 to %d", caller,
                          desc->num_x, desc->num_y, MIRT_MAX_INPUTS, MIRT_MAX_OUTPUTS);
    if (desc->samples < 0 || desc->samples > INT32_MAX)
        return mirt__fail(MIRT_E_INVALID, "%s: %lld samples: the number must be 1 to %d, or 0 for a stream", caller,
                          (long long)desc->samples, (int)INT32_MAX);
    if (desc->any_order && desc->samples == 0)
        return mirt__fail(MIRT_E_INVALID, "%s: samples in any order need their number, but it is 0", caller);
    for (int i = 0; i < desc->num_x + desc->num_y; i++) {
        const mirt_shape *shape = i < desc->num_x ? &desc->x[i].shape : &desc->y[i - desc->num_x].shape;
        if (mirt__shape_check(caller, shape) != MIRT_OK) return MIRT_E_SHAPE;
    }
    return MIRT_OK;
}

MIRT_API mirt_dataset *mirt_dataset_from_generator(const mirt_generator_desc *desc) {
    MIRT__ENTER;
    if (mirt__generator_check(desc) != MIRT_OK) return NULL;
    const mirt__stage *stage = desc->any_order ? &mirt__generator_make_stage : &mirt__generator_stage;
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__generator_dataset), stage);
    if (!dataset) return NULL;
    mirt__data_spec *spec = &dataset->spec;
    ((mirt__generator_dataset *)dataset)->desc = *desc;
    spec->samples = desc->samples ? desc->samples : -1;
    spec->num_x = desc->num_x;
    spec->num_y = desc->num_y;
    spec->has_weights = desc->weights;
    for (int i = 0; i < desc->num_x; i++) mirt__data_add_field(spec, desc->x[i].dtype, desc->x[i].shape);
    for (int i = 0; i < desc->num_y; i++) mirt__data_add_field(spec, desc->y[i].dtype, desc->y[i].shape);
    if (desc->weights) mirt__data_add_field(spec, MIRT_FLOAT32, MIRT_SHAPE(0));
    dataset->varies = 1; /* unknown, so assume that they vary */
    dataset->foreign = true;
    mirt_status status = mirt__dataset_name_cost(dataset, desc->name ? desc->name : "the generator");
    if (status == MIRT_OK) dataset->identity = mirt__hash(dataset->cost);
    if (status == MIRT_OK) status = mirt__dataset_check_spec(dataset);
    return mirt__dataset_checked(status, &dataset);
}
