/* Depthwise convolutions. Rows of an image are read once into ring buffers, normalized and padded with columns of
   zeros; rows of zeros are skipped. The backward pass computes dx and dkernel together. */

#include "fast.h"

#include "optimize_drivers.inc"

#define MIRT__DEPTH_PIECE 2048 /* floats read or finished at a time: some pixels, which stay in L1 */
#define MIRT__DEPTH_BLOCK 4096 /* floats of a row of outputs, which stay in L1 until they are finished: some channels */
#define MIRT__DEPTH_STREAM 2e6   /* an output with more floats does not fit into the caches */

typedef struct mirt__depth_job {
    const mirt__simd *simd;
    const mirt__conv *s;
    const mirt__where *where;
    mirt__depth_cut cut;
    mirt__source x, dy;
    const float *kernel;
    mirt__finishing out; /* of y or dx */
    bool finish;         /* the epilogue does more than store floats */
    bool direct;         /* x is read in place, without a ring buffer */
    float *dkernel, *db; /* NULL: not requested */
    float *parts, *sums, *columns;
    int64_t together; /* units of a forward task: each prefetches for the next one */
} mirt__depth_job;

/* A ring buffer of the rows around the current one: row r is at index r % rows. */
typedef struct mirt__depth_ring {
    const mirt__source *source;
    float *floats;
    int64_t h, w, c, rows, before, columns;
    int64_t next; /* rows before this one have been read */
} mirt__depth_ring;

static float *mirt__depth_row(const mirt__depth_ring *ring, int64_t r) {
    return ring->floats + r % ring->rows * ring->columns * ring->c;
}

static void mirt__depth_open(mirt__depth_ring *ring) {
    const int64_t after = ring->columns - ring->before - ring->w;
    for (int64_t r = 0; r < ring->rows; r++) {
        float *row = mirt__depth_row(ring, r);
        memset(row, 0, (size_t)(ring->before * ring->c) * sizeof(float));
        memset(row + (ring->before + ring->w) * ring->c, 0, (size_t)(after * ring->c) * sizeof(float));
    }
}

static int64_t mirt__depth_piece(int64_t c) { return c < MIRT__DEPTH_PIECE / 8 ? MIRT__DEPTH_PIECE / c : 8; }

/* Reads rows [from, end) that are within the image. */
static void mirt__depth_read(const mirt__simd *simd, mirt__depth_ring *ring, int64_t image, int64_t from, int64_t end) {
    const int64_t c = ring->c, step = mirt__depth_piece(c);
    if (ring->next < from) ring->next = from;
    for (; ring->next < end && ring->next < ring->h; ring->next++) {
        float *to = mirt__depth_row(ring, ring->next) + ring->before * c;
        for (int64_t x = 0; x < ring->w; x += step) {
            const int64_t pixels = mirt__min(ring->w - x, step);
            simd->read(to + x * c, ring->source, ((image * ring->h + ring->next) * ring->w + x) * c, pixels * c);
        }
    }
}

/* Prefetches the next `rows` rows of a ring buffer. */
static void mirt__depth_ask(const mirt__depth_job *job, mirt__soon *soon, const mirt__depth_ring *ring, int64_t image,
                            int64_t rows) {
    const mirt__reader *from = &ring->source->from;
    const int64_t size = ring->w * ring->c * (int64_t)mirt__dtype_size(from->dtype),
                  first = image * ring->h + ring->next;
    const int64_t last = mirt__min(first + rows, job->s->rows * ring->h);
    for (int i = 0; i < (MIRT__TRAINS && from->back ? 2 : 1); i++, soon->next++) {
        soon->at[soon->next] = (const char *)(i ? from->back->z : from->data) + first * size;
        soon->end[soon->next] = (const char *)(i ? from->back->z : from->data) + last * size;
    }
}

/* `pixels` pixels of a row, number `at` of the whole output on, in `row`, which has channels [first, first + n); sum:
   of their chunk. */
static void mirt__depth_finish(const mirt__depth_job *job, float *row, int64_t at, int64_t pixels, int64_t first,
                               int64_t n, float *sum, bool fresh) {
    const int64_t c = job->s->co, step = mirt__depth_piece(n);
    mirt__finishing f = mirt__finishing_at(&job->out, first);
    float *from[MIRT__DEPTH_PIECE];
    int64_t to[MIRT__DEPTH_PIECE];
    f.sum = sum;
    for (int64_t x = 0; x < pixels; x += step) {
        const int64_t count = mirt__min(pixels - x, step);
        for (int64_t i = 0; i < count; i++) {
            from[i] = row + (x + i) * n;
            to[i] = (at + x + i) * c + first;
        }
        f.fresh = fresh && x == 0;
        job->simd->finish_rows(&f, from, to, count, n);
    }
}

/* Row `line` of what `sum` begins with the sums of, in pieces; a chunk of sums has sum_rows lines. */
static void mirt__depth_finish_row(const mirt__depth_job *job, float *row, int64_t at, int64_t width, int64_t first,
                                   int64_t n, int64_t line, int64_t sum_rows, int64_t pieces, float *sum) {
    const int64_t floats = mirt__sum_floats(job->out.epilogue, job->s->co),
                  most = pieces > 1 ? job->cut.sum_pixels : width;
    for (int64_t piece = 0; piece < pieces; piece++) {
        const int64_t x = piece * most, pixels = mirt__min(width - x, most);
        mirt__depth_finish(job, row + x * n, at + x, pixels, first, n,
                           sum ? sum + (line / sum_rows * pieces + piece) * floats + first : NULL,
                           line % sum_rows == 0);
    }
}

/* The inputs of output row oy. */
static void mirt__depth_taps(const mirt__depth_job *job, const mirt__depth_ring *x, int64_t oy, mirt__taps_row *row) {
    const mirt__conv *s = job->s;
    row->taps = 0;
    row->count = s->ow;
    row->n = s->ci;
    row->x_step = s->stride_w * s->ci;
    row->y_step = s->ci;
    for (int ky = 0; ky < s->kh; ky++) {
        const int64_t y = oy * s->stride_h - s->pad_top + (int64_t)ky * s->dilation_h;
        if (y < 0 || y >= s->h) continue;
        for (int kx = 0; kx < s->kw; kx++, row->taps++) {
            row->x[row->taps] = mirt__depth_row(x, y) + kx * s->dilation_w * s->ci;
            row->k[row->taps] = job->kernel + ((int64_t)ky * s->kw + kx) * s->ci;
        }
    }
}

/* Computes channels [first, first + n) of output row oy, with pixels `step` apart. */
static void mirt__depth_ring_row(const mirt__depth_job *job, const mirt__depth_ring *x, int64_t oy, int64_t first,
                                 int64_t n, float *y, int64_t step, mirt__soon *soon) {
    mirt__taps_row row;
    mirt__depth_taps(job, x, oy, &row);
    for (int t = 0; t < row.taps; t++) {
        row.x[t] += first;
        row.k[t] += first;
    }
    row.n = n;
    row.y = y;
    row.y_step = step;
    row.soon = soon;
    job->simd->taps_row(&row);
}

/* The same directly from x: outputs inside all columns of the kernel together, the others separately with their
   columns. */
static void mirt__depth_direct_row(const mirt__depth_job *job, int64_t image, int64_t oy, int64_t first, int64_t n,
                                   float *y, int64_t step, mirt__soon *soon) {
    const mirt__conv *s = job->s;
    mirt__taps_row row;
    row.n = n;
    row.x_step = s->stride_w * s->ci;
    row.y_step = step;
    row.soon = soon;
    for (int64_t ox = 0; ox < s->ow; ox += row.count) {
        const int64_t left = ox * s->stride_w - s->pad_left,
                      all = (s->w - 1 - (int64_t)(s->kw - 1) * s->dilation_w - left) / s->stride_w + 1;
        row.count = left < 0 || left + (int64_t)(s->kw - 1) * s->dilation_w >= s->w ? 1
                    : mirt__min(all, s->ow - ox);
        row.y = y + ox * step;
        row.taps = 0;
        for (int ky = 0; ky < s->kh; ky++) {
            const int64_t line = oy * s->stride_h - s->pad_top + (int64_t)ky * s->dilation_h;
            for (int kx = 0; line >= 0 && line < s->h && kx < s->kw; kx++) {
                const int64_t column = left + (int64_t)kx * s->dilation_w;
                if (column < 0 || column >= s->w) continue;
                row.x[row.taps] =
                    (const float *)job->x.from.data + ((image * s->h + line) * s->w + column) * s->ci + first;
                row.k[row.taps++] = job->kernel + ((int64_t)ky * s->kw + kx) * s->ci + first;
            }
        }
        job->simd->taps_row(&row);
    }
}

/* The scratch memory of a thread: ring buffers of x and dy, and a row. */
static float *mirt__depth_scratch(const mirt__depth_job *job, int member, mirt__depth_ring *x, mirt__depth_ring *dy) {
    const mirt__conv *s = job->s;
    const mirt__depth_cut *cut = &job->cut;
    float *floats = (float *)mirt__scratch(job->where, member);
    const mirt__depth_ring of_x = {&job->x, floats, s->h, s->w, s->ci, cut->x_rows, cut->x_before, cut->x_columns, 0};
    floats += cut->x_rows * cut->x_columns * s->ci;
    const mirt__depth_ring of_dy = {&job->dy,     floats,         s->oh,           s->ow, s->ci,
                                    cut->dy_rows, cut->dy_before, cut->dy_columns, 0};
    *x = of_x;
    *dy = of_dy;
    return floats + cut->dy_rows * cut->dy_columns * s->ci;
}

/* Makes streaming stores visible before the thread signals others. */
static void mirt__depth_settle(const mirt__depth_job *job) {
    if (job->out.stream) __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void mirt__depth_forward_unit(const mirt__depth_job *job, int64_t unit, int member) {
    const mirt__conv *s = job->s;
    const mirt__depth_cut *cut = &job->cut;
    const int64_t image = unit / cut->blocks, first = unit % cut->blocks * cut->block_rows;
    const int64_t end = mirt__min(s->oh, first + cut->block_rows);
    const int64_t sums =
        mirt__parts(s->oh, cut->sum_rows) * cut->sum_pieces * mirt__sum_floats(job->out.epilogue, job->s->co);
    const int64_t c = s->co, channels = MIRT__DEPTH_BLOCK / (s->ow * 32) * 32,
                  block = !job->finish || channels > c ? c
                          : mirt__max(channels, 32);
    mirt__depth_ring x, dy;
    mirt__soon soon;
    float *spare = mirt__depth_scratch(job, member, &x, &dy);
    if (!job->direct) mirt__depth_open(&x);
    for (int64_t y = first; y < end; y++) {
        const int64_t top = y * s->stride_h - s->pad_top, at = (image * s->oh + y) * s->ow;
        if (job->direct) x.next = top + cut->x_rows; /* past the image: the next image */
        else mirt__depth_read(job->simd, &x, image, top, top + cut->x_rows);
        soon.next = 0;
        mirt__depth_ask(job, &soon, &x, image, s->stride_h);
        for (int64_t j = 0; j < c; j += block) {
            const int64_t n = mirt__min(c - j, block), step = job->finish ? n : c;
            float *to = job->finish ? spare : (float *)job->out.y + at * c;
            if (job->direct) mirt__depth_direct_row(job, image, y, j, n, to, step, &soon);
            else mirt__depth_ring_row(job, &x, y, j, n, to, step, &soon);
            if (job->finish)
                mirt__depth_finish_row(job, to, at, s->ow, j, n, y, cut->sum_rows, cut->sum_pieces,
                                       job->sums ? job->sums + image * sums : NULL);
        }
    }
    mirt__depth_settle(job);
}

static void mirt__depth_forward_task(void *arg, int64_t task, int member) {
    const mirt__depth_job *job = (const mirt__depth_job *)arg;
    const int64_t units = job->s->rows * job->cut.blocks, first = task * job->together, left = units - first;
    for (int64_t i = 0; i < job->together && i < left; i++) mirt__depth_forward_unit(job, first + i, member);
}

/* The output that input position `at` reaches through a tap; -1: none. */
static int64_t mirt__depth_reached(int64_t at, int64_t pad, int tap, int dilation, int stride, int64_t outputs) {
    const int64_t distance = at + pad - (int64_t)tap * dilation;
    return distance >= 0 && distance % stride == 0 && distance / stride < outputs ? distance / stride : -1;
}

/* Row y of dx, in phases of the stride: columns of a phase have the same taps. */
static void mirt__depth_back_row(const mirt__depth_job *job, const mirt__depth_ring *dy, int64_t y, float *dx,
                                 mirt__soon *soon) {
    const mirt__conv *s = job->s;
    const int64_t c = s->ci;
    mirt__taps_row row;
    row.n = row.x_step = c;
    row.y_step = s->stride_w * c;
    row.soon = soon;
    for (int phase = 0; phase < s->stride_w && phase < s->w; phase++) {
        row.taps = 0;
        row.count = mirt__parts(s->w - phase, s->stride_w);
        row.y = dx + phase * c;
        for (int ky = 0; ky < s->kh; ky++) {
            const int64_t oy = mirt__depth_reached(y, s->pad_top, ky, s->dilation_h, s->stride_h, s->oh);
            for (int kx = 0; oy >= 0 && kx < s->kw; kx++) {
                const int64_t distance = phase + s->pad_left - (int64_t)kx * s->dilation_w,
                              ox = mirt__floor_div(distance, s->stride_w);
                if (ox * s->stride_w != distance) continue;
                row.x[row.taps] = mirt__depth_row(dy, oy) + (dy->before + ox) * c;
                row.k[row.taps++] = job->kernel + ((int64_t)ky * s->kw + kx) * c;
            }
        }
        job->simd->taps_row(&row);
    }
}

/* Adds row `oy` to a partial sum. */
static void mirt__depth_weights_row(const mirt__depth_job *job, const mirt__depth_ring *x, const mirt__depth_ring *dy,
                                    int64_t oy, float *part, bool fresh, mirt__soon *soon) {
    const int64_t c = job->s->ci;
    mirt__taps_row row;
    mirt__depth_taps(job, x, oy, &row);
    row.y = mirt__depth_row(dy, oy) + dy->before * c;
    row.soon = soon;
    for (int t = 0; t < row.taps; t++) row.dk[t] = part + (row.k[t] - job->kernel);
    job->simd->taps_row_grad(&row);
    if (job->db) job->simd->column_sum(part + (int64_t)job->s->kh * job->s->kw * c, row.y, c, row.count, c, fresh);
}

static void mirt__depth_back_unit(const mirt__depth_job *job, int64_t unit, int member, float *part, bool fresh) {
    const mirt__conv *s = job->s;
    const mirt__depth_cut *cut = &job->cut;
    const int64_t image = unit / cut->blocks, block = unit % cut->blocks, first = block * cut->block_rows;
    const bool last = block + 1 == cut->blocks;
    const int64_t end = last ? s->oh : first + cut->block_rows, reach = (int64_t)(s->kh - 1) * s->dilation_h;
    const int64_t begin_x = block ? first * s->stride_h - s->pad_top : 0,
                  end_x = last ? s->h : end * s->stride_h - s->pad_top;
    const int64_t behind = mirt__floor_div(begin_x + s->pad_top - reach + s->stride_h - 1, s->stride_h);
    mirt__depth_ring x, dy;
    float *spare = mirt__depth_scratch(job, member, &x, &dy),
          *sums = job->sums ? job->sums + unit * cut->grad_sums * 2 * s->ci : NULL;
    mirt__soon soon;
    int64_t line = mirt__max(begin_x, 0);
    const int64_t top_line = line;
    if (job->dkernel) mirt__depth_open(&x);
    mirt__depth_open(&dy);
    if (sums) memset(sums, 0, (size_t)(cut->grad_sums * 2 * s->ci) * sizeof(float));
    for (int64_t y = first; y < end; y++) {
        mirt__depth_read(job->simd, &dy, image, y == first && behind < first ? mirt__max(behind, 0) : y, y + 1);
        soon.next = 0;
        if (job->dkernel) {
            const int64_t top = y * s->stride_h - s->pad_top;
            mirt__depth_read(job->simd, &x, image, top, top + cut->x_rows);
            mirt__depth_ask(job, &soon, &x, image, s->stride_h);
        }
        mirt__depth_ask(job, &soon, &dy, image, 1);
        if (job->dkernel) mirt__depth_weights_row(job, &x, &dy, y, part, fresh, &soon);
        fresh = false;
        for (; job->out.y && line < end_x && (y + 1 == end || line + s->pad_top < (y + 1) * s->stride_h); line++) {
            const int64_t at = (image * s->h + line) * s->w;
            float *dx = job->finish ? spare : (float *)job->out.y + at * s->ci;
            mirt__depth_back_row(job, &dy, line, dx, &soon);
            if (job->finish)
                mirt__depth_finish_row(job, dx, at, s->w, 0, s->ci, line - top_line, cut->grad_rows, cut->grad_pieces,
                                       sums);
        }
    }
}

/* Processes the units of a partial sum, or of that many images. */
static void mirt__depth_back_task(void *arg, int64_t task, int member) {
    const mirt__depth_job *job = (const mirt__depth_job *)arg;
    const int64_t floats = mirt__conv_partial_floats(job->s), units = job->s->rows * job->cut.blocks;
    float *part = job->parts + task * floats;
    const int64_t first = task * job->cut.images, end = mirt__min(units, first + job->cut.images);
    if (job->dkernel) memset(part, 0, (size_t)floats * sizeof(float));
    for (int64_t unit = first; unit < end; unit++) mirt__depth_back_unit(job, unit, member, part, unit == first);
    mirt__depth_settle(job);
}

static void mirt__depth_start(mirt__depth_job *job, const mirt__simd *simd, const mirt__conv *s,
                              const mirt__where *where) {
    memset(job, 0, sizeof *job);
    job->simd = simd;
    job->s = s;
    job->where = where;
    job->cut = mirt__depth_cut_of(s);
    job->columns = (float *)where->shared;
}

static mirt__source mirt__depth_source(mirt__depth_job *job, const mirt__reader *reader) {
    const mirt__source source = mirt__source_of(reader, job->columns);
    job->columns += mirt__source_floats(reader);
    return source;
}

static void mirt__depth_output(mirt__depth_job *job, const mirt__epilogue *e, void *y, mirt_dtype dtype,
                               int64_t pixels) {
    job->out = mirt__finishing_of(e, job->s->co, y, dtype, job->columns);
    job->columns += mirt__finishing_floats(e, job->s->co);
    job->finish = mirt__epilogue_works(e, dtype);
    job->out.stream = (double)job->s->rows * (double)(pixels * job->s->co) > MIRT__DEPTH_STREAM;
    if (e->sums != MIRT__SUMS_NONE) job->sums = job->columns;
}

static void mirt__depth_means_task(void *arg, int64_t image, int member) {
    const mirt__depth_job *job = (const mirt__depth_job *)arg;
    const mirt__conv *s = job->s;
    const int64_t chunks = mirt__parts(s->oh, job->cut.sum_rows) * job->cut.sum_pieces, c = s->co;
    float *part = job->sums + image * chunks * c, *mean = job->out.epilogue->sum[0] + image * c;
    (void)member;
    mirt__tree(part, chunks, c, c);
    for (int64_t j = 0; j < c; j++) mean[j] = part[j] / (float)(s->oh * s->ow);
}

static void mirt__depth_sums(mirt__depth_job *job) {
    const mirt__conv *s = job->s;
    const mirt__depth_cut *cut = &job->cut;
    if (!job->sums) return;
    const bool moments = job->out.epilogue->sums == MIRT__SUMS_MOMENTS;
    const int64_t lines = mirt__parts(s->oh, cut->sum_rows), wide = cut->sum_pieces > 1;
    if (job->out.epilogue->sums == MIRT__SUMS_IMAGES) {
        mirt__team_for(job->where->team, s->rows, mirt__depth_means_task, job);
        return;
    }
    if (!MIRT__TRAINS) return;
    mirt__chunk_sums sums;
    memset(&sums, 0, sizeof sums);
    sums.part = job->sums;
    sums.sum_row = s->co;
    sums.chunk_floats = mirt__sum_floats(job->out.epilogue, job->s->co);
    sums.chunks = moments ? s->rows * lines * cut->sum_pieces : s->rows * cut->blocks * cut->grad_sums;
    sums.period = wide ? cut->sum_pieces : lines;
    sums.rows = wide ? cut->sum_pixels : cut->sum_rows * s->ow;
    sums.last_rows =
        wide ? s->ow - (cut->sum_pieces - 1) * cut->sum_pixels : (s->oh - (lines - 1) * cut->sum_rows) * s->ow;
    mirt__column_sums_run(job->where->team, job->out.epilogue, &sums, s->co);
}

MIRT__LIB void mirt__fast_depthwise_forward(const mirt__simd *simd, const mirt__conv_forward *args,
                                            const mirt__where *where) {
    mirt__depth_job job;
    mirt__depth_start(&job, simd, &args->s, where);
    job.x = mirt__depth_source(&job, &args->x);
    job.direct = mirt__reader_plain(&args->x);
    job.kernel = args->kernel;
    mirt__depth_output(&job, &args->epilogue, args->y, args->y_dtype, args->s.oh * args->s.ow);
    const int64_t units = args->s.rows * job.cut.blocks, share = units / (2 * mirt__team_size(where->team));
    job.together = mirt__max(share, 1);
    mirt__team_for(where->team, mirt__parts(units, job.together), mirt__depth_forward_task, &job);
    mirt__depth_sums(&job);
}

/* Computes dx and, if x is given, dkernel and db. */
static void mirt__depth_back(mirt__depth_job *job) {
    const mirt__conv *s = job->s;
    const int64_t floats = mirt__conv_partial_floats(s), units = s->rows * job->cut.blocks,
                  parts = mirt__parts(units, job->cut.images);
    if (job->dkernel) {
        job->parts = job->columns;
        if (job->sums) job->sums += job->cut.parts * floats;
    }
    mirt__team_for(job->where->team, parts, mirt__depth_back_task, job);
    mirt__depth_sums(job);
    if (!job->dkernel) return;
    if (parts == 0) memset(job->parts, 0, (size_t)floats * sizeof(float));
    mirt__partial_sums_run(job->where->team, s, job->parts, parts, job->dkernel, job->db);
}

MIRT__LIB void mirt__fast_depthwise_input_grad(const mirt__simd *simd, const mirt__conv_input_grad *args,
                                               const mirt__where *where) {
    mirt__depth_job job;
    mirt__depth_start(&job, simd, &args->s, where);
    job.dy = mirt__depth_source(&job, &args->dy);
    if (MIRT__TRAINS && args->x) {
        job.x = mirt__depth_source(&job, args->x);
        job.dkernel = args->dkernel;
        job.db = args->db;
    }
    job.kernel = args->kernel;
    mirt__depth_output(&job, &args->epilogue, args->dx, args->dx_dtype, args->s.h * args->s.w);
    mirt__depth_back(&job);
}

MIRT__LIB void mirt__fast_depthwise_weight_grad(const mirt__simd *simd, const mirt__conv_weight_grad *args,
                                                const mirt__where *where) {
    mirt__depth_job job;
    mirt__depth_start(&job, simd, &args->s, where);
    job.x = mirt__depth_source(&job, &args->x);
    job.dy = mirt__depth_source(&job, &args->dy);
    job.dkernel = args->dkernel;
    job.db = args->db;
    mirt__depth_back(&job);
}

#undef MIRT__DEPTH_PIECE
#undef MIRT__DEPTH_STREAM
#undef MIRT__DEPTH_BLOCK

#include "optimize_end.inc"
