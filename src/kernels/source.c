/* Prepares readers and epilogues: normalization factors per column, and column sums. */

#include "fast.h"

#include "optimize_begin.inc"

static float mirt__source_inverse(const mirt__scaling *s, int64_t j) { return 1 / sqrtf(s->variance[j] + s->epsilon); }

/* Stores the columns in `to`; returns the end. */
static float *mirt__source_scaling(const mirt__scaling *s, int64_t n, float *to, mirt__norm_columns *columns) {
    columns->mean = to;
    columns->factor = to + n;
    columns->offset = to + 2 * n;
    memcpy(to, s->mean, (size_t)n * sizeof(float));
    for (int64_t j = 0; j < n; j++) {
        to[n + j] = (s->gamma ? s->gamma[j] : 1) * mirt__source_inverse(s, j);
        to[2 * n + j] = s->beta ? s->beta[j] : 0;
    }
    return to + 3 * n;
}

MIRT__LIB size_t mirt__source_floats(const mirt__reader *reader) {
    return reader->norm ? (size_t)reader->channels * 3 : reader->back ? (size_t)reader->channels * 5 : 0;
}

MIRT__LIB mirt__source mirt__source_of(const mirt__reader *reader, float *floats) {
    const mirt__norm_back *back = MIRT__TRAINS ? reader->back : NULL;
    const int64_t n = reader->channels;
    mirt__source s;
    memset(&s, 0, sizeof s);
    s.from = *reader;
    if (!reader->norm && !back) return s;
    float *less = mirt__source_scaling(back ? &back->norm : reader->norm, n, floats, &s.norm);
    if (!MIRT__TRAINS || !back || !back->sum[0]) return s;
    for (int64_t j = 0; j < n; j++) {
        less[j] = (float)((double)back->sum[0][j] / back->count);
        less[n + j] = (float)((double)back->sum[1][j] / back->count) * mirt__source_inverse(&back->norm, j);
    }
    s.less = less;
    s.part = less + n;
    return s;
}

MIRT__LIB size_t mirt__finishing_floats(const mirt__epilogue *epilogue, int64_t columns) {
    return (size_t)columns * 3 * ((size_t)(epilogue->norm != NULL) + (size_t)(epilogue->slope != NULL));
}

MIRT__LIB mirt__finishing mirt__finishing_of(const mirt__epilogue *epilogue, int64_t columns, void *y, mirt_dtype dtype,
                                             float *floats) {
    mirt__finishing f;
    memset(&f, 0, sizeof f);
    f.epilogue = epilogue;
    f.y = y;
    f.dtype = dtype;
    f.bias = epilogue->bias;
    f.sum_row = columns;
    if (epilogue->norm) floats = mirt__source_scaling(epilogue->norm, columns, floats, &f.norm);
    if (MIRT__TRAINS && epilogue->slope) mirt__source_scaling(epilogue->slope, columns, floats, &f.slope);
    return f;
}

MIRT__LIB bool mirt__reader_plain(const mirt__reader *x) {
    return x->dtype == MIRT_FLOAT32 && !x->affine && !x->norm && !x->gate && !x->back;
}

MIRT__LIB bool mirt__epilogue_works(const mirt__epilogue *e, mirt_dtype dtype) {
    return dtype != MIRT_FLOAT32 || e->bias || e->norm || e->add || e->activation != MIRT_LINEAR || e->mask ||
           e->slope || e->sums != MIRT__SUMS_NONE;
}

MIRT__LIB int64_t mirt__sum_floats(const mirt__epilogue *epilogue, int64_t columns) {
    return (epilogue->sums == MIRT__SUMS_MOMENTS ? 3 : epilogue->sums == MIRT__SUMS_IMAGES ? 1 : 2) * columns;
}

MIRT__LIB mirt__finishing mirt__finishing_at(const mirt__finishing *all, int64_t j) {
    mirt__finishing f = *all;
    if (f.bias) f.bias += j;
    mirt__norm_columns_skip(&f.norm, j);
    mirt__norm_columns_skip(&f.slope, j);
    return f;
}

static double mirt__source_rows(const mirt__chunk_sums *s, int64_t chunk) {
    if (s->counts) return (double)s->counts[chunk];
    return (double)((chunk + 1) % s->period ? s->rows : s->last_rows);
}

#define MIRT__SOURCE_COLUMNS 64
/* Merges the statistics of each chunk (Chan et al. 1983). */
static void mirt__source_moments(const mirt__epilogue *e, const mirt__chunk_sums *s, int64_t begin, int64_t n) {
    double mean[MIRT__SOURCE_COLUMNS], squares[MIRT__SOURCE_COLUMNS], count = 0;
    for (int64_t j = 0; j < n; j++) mean[j] = squares[j] = 0;
    for (int64_t chunk = 0; chunk < s->chunks; chunk++) {
        const double rows = mirt__source_rows(s, chunk);
        if (rows == 0) continue;
        const float *shift = s->part + chunk * s->chunk_floats + begin, *sum = shift + s->sum_row,
                    *square = sum + s->sum_row;
        const double share = 1 / rows, part = rows / (count + rows), both = count * part;
        for (int64_t j = 0; j < n; j++) {
            const double average = (double)sum[j] * share, delta = (double)shift[j] + average - mean[j];
            mean[j] += delta * part;
            squares[j] += (double)square[j] - average * (double)sum[j] + delta * delta * both;
        }
        count += rows;
    }
    for (int64_t j = 0; j < n; j++) {
        e->sum[0][begin + j] = (float)mean[j];
        e->sum[1][begin + j] = (float)(squares[j] < 0 || count == 0 ? 0 : squares[j] / count);
    }
}

static void mirt__source_gradients(const mirt__epilogue *e, const mirt__chunk_sums *s, int64_t begin, int64_t n) {
    double sum[MIRT__SOURCE_COLUMNS], product[MIRT__SOURCE_COLUMNS];
    for (int64_t j = 0; j < n; j++) sum[j] = product[j] = 0;
    for (int64_t chunk = 0; chunk < s->chunks; chunk++) {
        const float *part = s->part + chunk * s->chunk_floats + begin;
        if (mirt__source_rows(s, chunk) == 0) continue;
        for (int64_t j = 0; j < n; j++) {
            sum[j] += (double)part[j];
            product[j] += (double)part[s->sum_row + j];
        }
    }
    for (int64_t j = 0; j < n; j++) {
        e->sum[0][begin + j] = (float)sum[j];
        e->sum[1][begin + j] =
            (float)(product[j] / sqrt((double)e->slope->variance[begin + j] + (double)e->slope->epsilon));
    }
}

MIRT__LIB void mirt__column_sums_finish(const mirt__epilogue *e, const mirt__chunk_sums *s, int64_t begin,
                                        int64_t end) {
    for (int64_t n; begin < end; begin += n) {
        n = mirt__min(end - begin, MIRT__SOURCE_COLUMNS);
        if (e->sums == MIRT__SUMS_MOMENTS) mirt__source_moments(e, s, begin, n);
        else mirt__source_gradients(e, s, begin, n);
    }
}

/* Columns or numbers of a task: at most `most`, and not below `least` so that each of the team has a task. */
static int64_t mirt__source_each(mirt__team *team, int64_t count, int64_t most, int64_t least) {
    while (most > least && mirt__parts(count, most) < mirt__team_size(team)) most /= 2;
    return most;
}

typedef struct mirt__source_job {
    const mirt__epilogue *epilogue;
    const mirt__chunk_sums *sums;
    int64_t columns, each;
} mirt__source_job;
static void mirt__source_sums_task(void *arg, int64_t task, int member) {
    const mirt__source_job *job = (const mirt__source_job *)arg;
    const int64_t begin = task * job->each, left = job->columns - begin;
    (void)member;
    mirt__column_sums_finish(job->epilogue, job->sums, begin, begin + mirt__min(left, job->each));
}
MIRT__LIB void mirt__column_sums_run(mirt__team *team, const mirt__epilogue *epilogue, const mirt__chunk_sums *sums,
                                     int64_t columns) {
    mirt__source_job job;
    job.epilogue = epilogue;
    job.sums = sums;
    job.columns = columns;
    job.each = mirt__source_each(team, columns, MIRT__SOURCE_COLUMNS, 8);
    mirt__team_for(team, mirt__parts(columns, job.each), mirt__source_sums_task, &job);
}

MIRT__LIB void mirt__counted_sums_run(mirt__team *team, const mirt__epilogue *epilogue, const float *part,
                                      const int32_t *counts, int64_t chunks, int64_t columns) {
    mirt__chunk_sums sums;
    memset(&sums, 0, sizeof sums);
    sums.part = part;
    sums.counts = counts;
    sums.chunks = chunks;
    sums.chunk_floats = mirt__sum_floats(epilogue, columns);
    sums.sum_row = columns;
    mirt__column_sums_run(team, epilogue, &sums, columns);
}
#undef MIRT__SOURCE_COLUMNS

typedef struct mirt__partial_sums {
    float *part;
    int64_t parts, floats, each;
} mirt__partial_sums;
MIRT__TRAINING void mirt__partial_sums_task(void *arg, int64_t task, int member) {
    const mirt__partial_sums *sums = (const mirt__partial_sums *)arg;
    const int64_t begin = task * sums->each;
    (void)member;
    mirt__tree(sums->part + begin, sums->parts, sums->floats, mirt__min(sums->floats - begin, sums->each));
}
MIRT__TRAINING_LIB void mirt__partial_sums_run(mirt__team *team, const mirt__conv *s, float *part, int64_t parts,
                                               float *dkernel, float *db) {
    const int64_t floats = mirt__conv_partial_floats(s), kernel = floats - s->co;
    mirt__partial_sums sums = {part, parts, floats, mirt__source_each(team, floats, 4096, 64)};
    mirt__team_for(team, mirt__parts(floats, sums.each), mirt__partial_sums_task, &sums);
    memcpy(dkernel, part, (size_t)kernel * sizeof(float));
    if (db) memcpy(db, part + kernel, (size_t)s->co * sizeof(float));
}

#include "optimize_end.inc"
