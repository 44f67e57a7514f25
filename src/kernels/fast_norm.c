/* Batch normalization that is not fused into a convolution. It uses the same primitives as the fused one. Layer
   normalization is in common_norm.c. */

#include "common.h"

#include "optimize_drivers.inc"

typedef struct mirt__norm_job {
    const mirt__simd *simd;
    const mirt__norm *s;
    mirt__source x, dy, add; /* as they are */
    mirt__source made;       /* normalized, or the gradient */
    mirt__scaling scaling;
    mirt__norm_back back;
    mirt__epilogue epilogue;
    mirt__finishing out;
    int64_t piece; /* rows at a time */
    float *sums;   /* of each chunk of MIRT__REDUCE_CHUNK rows */
} mirt__norm_job;

static mirt__source mirt__norm_stored(const mirt__norm *s, const void *data, mirt_dtype dtype) {
    mirt__reader reader;
    memset(&reader, 0, sizeof reader);
    reader.data = data;
    reader.dtype = dtype;
    reader.channels = s->n;
    return mirt__source_of(&reader, NULL);
}

static void mirt__norm_start(mirt__norm_job *job, const mirt__simd *simd, const mirt__norm *s) {
    memset(job, 0, sizeof *job);
    job->simd = simd;
    job->s = s;
    job->x = mirt__norm_stored(s, s->x, s->x_dtype);
    job->dy = mirt__norm_stored(s, s->dy, s->dy_dtype);
    job->add = mirt__norm_stored(s, s->add, s->add_dtype);
    job->scaling.mean = s->mean;
    job->scaling.variance = s->variance;
    job->scaling.gamma = s->gamma;
    job->scaling.beta = s->beta;
    job->scaling.epsilon = s->epsilon;
    job->scaling.activation = s->activation;
    job->piece = mirt__norm_piece(s->n);
}

/* Stores rows of floats as rows of f->y from row `at` on. */
static void mirt__norm_finish(const mirt__norm_job *job, const mirt__finishing *f, float *from, int64_t at,
                              int64_t rows) {
    float *c[MIRT__NORM_PIECE];
    int64_t place[MIRT__NORM_PIECE];
    for (int64_t i = 0; i < rows; i++) {
        c[i] = from + i * job->s->n;
        place[i] = (at + i) * job->s->n;
    }
    job->simd->finish_rows(f, c, place, rows, job->s->n);
}

static float *mirt__norm_read(const mirt__norm_job *job, const mirt__source *source, int64_t at, int64_t rows,
                              float *to) {
    job->simd->read(to, source, at * job->s->n, rows * job->s->n);
    return to;
}

/* The gradient of rows whose x and dy have different dtypes. */
static float *mirt__norm_mixed(const mirt__norm_job *job, int64_t at, int64_t rows, float *x, float *dy) {
    mirt__norm_back back = job->back;
    mirt__source made = job->made;
    back.z = mirt__norm_read(job, &job->x, at, rows, x);
    made.from.data = mirt__norm_read(job, &job->dy, at, rows, dy);
    made.from.dtype = MIRT_FLOAT32;
    made.from.back = &back;
    return mirt__norm_read(job, &made, 0, rows, dy);
}

static void mirt__norm_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__norm_job *job = (const mirt__norm_job *)args;
    const mirt__norm *s = job->s;
    const bool mixed = MIRT__TRAINS && job->made.from.back && s->x_dtype != s->dy_dtype,
               converts = s->add && s->add_dtype != s->y_dtype;
    float *first = (float *)scratch, *second = first + job->piece * s->n;
    for (int64_t at = begin, rows; at < end; at += rows) {
        rows = mirt__min(end - at, job->piece);
        if (mixed) {
            mirt__norm_finish(job, &job->out, mirt__norm_mixed(job, at, rows, first, second), at, rows);
        } else if (!s->add && s->y_dtype == MIRT_FLOAT32) {
            mirt__norm_read(job, &job->made, at, rows, (float *)s->y + at * s->n);
        } else if (!converts) {
            mirt__norm_finish(job, &job->out, mirt__norm_read(job, &job->made, at, rows, first), at, rows);
        } else { /* added as floats */
            mirt__epilogue e = job->epilogue;
            mirt__finishing f = mirt__finishing_of(&e, s->n, first, MIRT_FLOAT32, NULL);
            e.add = mirt__norm_read(job, &job->add, at, rows, second);
            mirt__norm_finish(job, &f, mirt__norm_read(job, &job->made, at, rows, first), 0, rows);
            memset(&e, 0, sizeof e);
            f.y = s->y;
            f.dtype = s->y_dtype;
            mirt__norm_finish(job, &f, first, at, rows);
        }
    }
}

/* Only the sums of the finished values are kept. */
static void mirt__norm_sums_chunks(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__norm_job *job = (const mirt__norm_job *)args;
    const mirt__norm *s = job->s;
    const bool moments = job->epilogue.sums == MIRT__SUMS_MOMENTS;
    float *first = (float *)scratch, *second = first + job->piece * s->n;
    mirt__epilogue e = job->epilogue;
    mirt__finishing f = job->out;
    f.epilogue = &e;
    f.y = first;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const int64_t start = chunk * MIRT__REDUCE_CHUNK, last = mirt__min(s->rows, start + MIRT__REDUCE_CHUNK);
        f.sum = job->sums + chunk * mirt__sum_floats(&e, s->n);
        for (int64_t at = start, rows; at < last; at += rows) {
            rows = mirt__min(last - at, job->piece);
            f.fresh = at == start;
            if (!moments) e.slope_x = mirt__norm_read(job, &job->x, at, rows, second);
            mirt__norm_finish(job, &f, mirt__norm_read(job, moments ? &job->x : &job->dy, at, rows, first), 0, rows);
        }
    }
}

static void mirt__norm_sums_columns(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__norm_job *job = (const mirt__norm_job *)args;
    mirt__chunk_sums sums;
    (void)scratch;
    memset(&sums, 0, sizeof sums);
    sums.part = job->sums;
    sums.sum_row = job->s->n;
    sums.chunk_floats = mirt__sum_floats(&job->epilogue, job->s->n);
    sums.period = sums.chunks = mirt__parts(job->s->rows, MIRT__REDUCE_CHUNK);
    sums.rows = MIRT__REDUCE_CHUNK;
    sums.last_rows = job->s->rows - (sums.chunks - 1) * MIRT__REDUCE_CHUNK;
    mirt__column_sums_finish(&job->epilogue, &sums, begin, end);
}

static void mirt__norm_sums(mirt__norm_job *job, mirt__column_sums sums, const mirt__where *where) {
    const mirt__norm *s = job->s;
    float *floats = (float *)where->shared;
    job->epilogue.sums = sums;
    for (int i = 0; i < 2; i++) job->epilogue.sum[i] = s->out[i];
    if (sums == MIRT__SUMS_GRADIENT) job->epilogue.slope = &job->scaling;
    job->out = mirt__finishing_of(&job->epilogue, s->n, NULL, MIRT_FLOAT32, floats);
    job->sums = floats + mirt__finishing_floats(&job->epilogue, s->n);
    mirt__common_range(where, mirt__parts(s->rows, MIRT__REDUCE_CHUNK),
                       mirt__common_step(s->n * MIRT__REDUCE_CHUNK), mirt__norm_sums_chunks, job);
    mirt__common_range(where, s->n, MIRT__REDUCE_COLUMNS, mirt__norm_sums_columns, job);
}

MIRT__LIB void mirt__fast_norm_stats(const mirt__simd *simd, const mirt__norm *args, const mirt__where *where) {
    mirt__norm_job job;
    if (!MIRT__TRAINS) return; /* predict-only programs have statistics of rows alone */
    mirt__norm_start(&job, simd, args);
    mirt__norm_sums(&job, MIRT__SUMS_MOMENTS, where);
}

MIRT__LIB void mirt__fast_norm_grad_sums(const mirt__simd *simd, const mirt__norm *args, const mirt__where *where) {
    mirt__norm_job job;
    mirt__norm_start(&job, simd, args);
    mirt__norm_sums(&job, MIRT__SUMS_GRADIENT, where);
}

MIRT__LIB void mirt__fast_normalize(const mirt__simd *simd, const mirt__norm *args, const mirt__where *where) {
    mirt__norm_job job;
    mirt__norm_start(&job, simd, args);
    mirt__reader reader = job.x.from;
    if (args->add) { /* the activation follows it */
        job.scaling.activation = MIRT_LINEAR;
        job.epilogue.add = args->add;
        job.epilogue.activation = args->activation;
    }
    reader.norm = &job.scaling;
    job.made = mirt__source_of(&reader, (float *)where->shared);
    job.out = mirt__finishing_of(&job.epilogue, args->n, args->y, args->y_dtype, NULL);
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__norm_rows, &job);
}

MIRT__LIB void mirt__fast_norm_grad_input(const mirt__simd *simd, const mirt__norm *args, const mirt__where *where) {
    mirt__norm_job job;
    mirt__norm_start(&job, simd, args);
    mirt__reader reader = job.dy.from;
    job.back.norm = job.scaling;
    job.back.z = args->x;
    for (int i = 0; i < 2; i++) job.back.sum[i] = args->sum[i];
    job.back.count = args->count;
    reader.back = &job.back;
    job.made = mirt__source_of(&reader, (float *)where->shared);
    job.out = mirt__finishing_of(&job.epilogue, args->n, args->y, args->y_dtype, NULL);
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__norm_rows, &job);
}

#include "optimize_end.inc"
