/* Convolutions and the gradients of their inputs as matrix products. The weights are packed into panels, once, or each
   by the thread that multiplies by it; a kernel's taps are runs of k in the source, or in a tile of it that has been
   read, converted and padded into scratch memory. */

#include "fast.h"

#include "optimize_drivers.inc"

#define MIRT__FEW_ROWS 512   /* positions of the target, at most, for which tasks go panel by panel */
#define MIRT__PACK_STEPS 128 /* of k that a task packs; even */

typedef struct mirt__conv_job {
    const mirt__simd *simd;
    const mirt__where *where;
    mirt__conv_view v;
    bool back, direct;     /* direct: reads without tiles */
    bool round;            /* multiplies numbers rounded to bfloat16 as floats */
    const mirt__words *words; /* or as words; NULL: floats */
    mirt__input_tile input_tile;
    const float *kernel;
    mirt__source x;
    mirt__finishing finishing;
    bool finish;           /* there is an epilogue */
    int64_t pixel, k;      /* floats (or words) of a pixel in a tile, of a tap of a group */
    int64_t pitch;         /* between the source's rows, where k runs */
    float *packed, *sums;
    int32_t *counts;
    mirt__run *runs;
    mirt__conv_set *sets;
    mirt__conv_tap *taps;
    int64_t tap_count; /* taps that reach the target */
    int64_t panels, splits, sum_floats;
    bool by_panel;                /* tasks pack a panel of weights and multiply all blocks by it */
    const mirt__grad_job *beside; /* the weight gradient from the same tiles, or NULL */
    int64_t beside_blocks;        /* of one of its chunks */
} mirt__conv_job;

/* Positions of the target in [begin, begin + count) with the same taps: those at phase `phase` of the stride. */
typedef struct mirt__conv_phase {
    int64_t first, count; /* position of the first, and their number, `stride` apart */
    int64_t output;       /* the output of tap 0 of the first one */
} mirt__conv_phase;

static mirt__conv_phase mirt__conv_phase_of(int64_t begin, int64_t count, int64_t pad, int64_t stride, int64_t phase) {
    mirt__conv_phase places;
    const int64_t skip = (phase - (begin + pad) % stride + stride) % stride;
    places.first = begin + skip;
    places.count = count > skip ? mirt__parts(count - skip, stride) : 0;
    places.output = (places.first + pad) / stride;
    return places;
}

/* Whether the tap reaches this phase; its output is *by before that of tap 0. */
static bool mirt__conv_tap_offset(int64_t phase, int tap, int dilation, int stride, int64_t *by) {
    const int64_t distance = phase - (int64_t)tap * dilation;
    *by = mirt__floor_div(distance, stride);
    return *by * stride == distance;
}

/* The taps of one set, and their runs. */
static void mirt__conv_set_taps(mirt__conv_job *job, mirt__conv_set *set, int64_t *taps, int64_t *runs) {
    const mirt__conv *s = &job->v.s;
    const bool joined = !job->back && s->groups == 1 && s->dilation_w == 1; /* a row of taps is one run */
    int64_t by_y = 0, by_x = 0, rows = 0;
    set->run = *runs;
    set->k = 0;
    for (int ky = 0; ky < s->kh; ky++) {
        if (!job->back) by_y = (int64_t)ky * s->dilation_h;
        else if (!mirt__conv_tap_offset(set->phase_y, ky, s->dilation_h, s->stride_h, &by_y)) continue;
        for (int kx = 0; kx < s->kw; kx++) {
            if (!job->back) by_x = (int64_t)kx * s->dilation_w;
            else if (!mirt__conv_tap_offset(set->phase_x, kx, s->dilation_w, s->stride_w, &by_x)) continue;
            mirt__conv_tap *tap = &job->taps[(*taps)++];
            tap->tap = (int64_t)ky * s->kw + kx;
            tap->set = set - job->sets;
            tap->at = rows;
            rows += job->k;
            if (!joined)
                mirt__sweep_run_add(job->runs, runs, &set->k, by_y * job->pitch + by_x * job->pixel, job->k, 1);
        }
        if (joined) mirt__sweep_run_add(job->runs, runs, &set->k, by_y * job->pitch, s->kw * job->k, 1);
    }
    set->run_count = *runs - set->run;
}

static void mirt__conv_sets(mirt__conv_job *job) {
    int64_t runs = 0, packed = 0;
    for (int64_t i = 0; i < job->v.sets; i++) {
        mirt__conv_set *set = &job->sets[i];
        set->phase_y = (job->v.phase_y + i / job->v.sets_across) % job->v.s.stride_h;
        set->phase_x = (job->v.phase_x + i % job->v.sets_across) % job->v.s.stride_w;
        set->packed = packed;
        mirt__conv_set_taps(job, set, &job->tap_count, &runs);
        packed += set->k * job->panels * MIRT__PANEL;
    }
}

/* Steps [begin, end) of k in one panel of a tap's weights, into panel number `place` of the packed ones. */
static void mirt__conv_pack(const mirt__conv_job *job, const mirt__conv_tap *tap, int64_t panel, int64_t place,
                            int64_t begin, int64_t end) {
    const mirt__conv_view *v = &job->v;
    const int64_t k = end - begin, per_float = job->words ? 2 : 1, rows = mirt__parts(k, per_float);
    const mirt__conv_set *set = &job->sets[tap->set];
    const int64_t per_group = job->panels / v->s.groups, g = panel / per_group;
    const int64_t j = panel % per_group * MIRT__PANEL, columns = mirt__min(v->n - j, MIRT__PANEL),
                  co = v->s.co;
    float *to = job->packed + set->packed + (place * set->k + tap->at + begin / per_float) * MIRT__PANEL;
    if (job->back) {
        const float *from = job->kernel + (tap->tap * v->n + j) * co + g * v->k + begin;
        (job->words ? job->words->transpose : job->simd->transpose)(to, from, co, k, columns);
    } else {
        const float *from = job->kernel + (tap->tap * v->k + begin) * co + g * v->n + j;
        (job->words ? job->words->copy_rows : job->simd->copy_rows)(to, from, co, k, columns);
    }
    const int64_t rest = columns % job->simd->lanes ? job->simd->lanes - columns % job->simd->lanes : 0;
    for (int64_t p = 0; rest > 0 && p < rows; p++)
        memset(to + p * MIRT__PANEL + columns, 0, (size_t)rest * sizeof(float));
    for (int64_t p = 0; job->round && p < rows; p++) job->simd->round(to + p * MIRT__PANEL, columns);
}

static void mirt__conv_pack_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const int64_t parts = mirt__parts(job->v.k, MIRT__PACK_STEPS), panel = task / parts % job->panels,
                  begin = task % parts * MIRT__PACK_STEPS;
    (void)member;
    mirt__conv_pack(job, &job->taps[task / parts / job->panels], panel, panel, begin,
                    mirt__min(begin + MIRT__PACK_STEPS, job->v.k));
}

/* A block of the target's rows. */
typedef struct mirt__conv_block {
    int64_t image, images, y, lines;
    int64_t top, rows;         /* rows of the source, in each image */
    const float *x;            /* its pixel in row `top`, column tile_left */
    int64_t image_floats;      /* distance of images there */
} mirt__conv_block;

static mirt__conv_block mirt__conv_block_place(const mirt__conv_job *job, int64_t number) {
    const mirt__conv_view *v = &job->v;
    const mirt__conv *s = &v->s;
    const int64_t reach = (int64_t)(s->kh - 1) * s->dilation_h;
    mirt__conv_block b;
    memset(&b, 0, sizeof b);
    b.image = v->images > 1 ? number * v->images : number / v->parts;
    b.images = mirt__min(s->rows - b.image, v->images);
    b.y = number % v->parts * v->lines;
    b.lines = mirt__min(v->target_h - b.y, v->lines);
    if (job->back) {
        b.top = mirt__floor_div(b.y + s->pad_top - reach, s->stride_h);
        b.rows = (b.y + b.lines - 1 + s->pad_top) / s->stride_h - b.top + 1;
    } else {
        b.top = b.y * s->stride_h - s->pad_top;
        b.rows = s->kh == 1 ? b.lines : (b.lines - 1) * s->stride_h + reach + 1;
    }
    return b;
}

static mirt__conv_block mirt__conv_block_of(const mirt__conv_job *job, int64_t number, float *input_tile) {
    const mirt__conv_view *v = &job->v;
    mirt__conv_block b = mirt__conv_block_place(job, number);
    if (job->direct) {
        b.x = (const float *)job->x.from.data + (b.image * v->h + b.top) * v->w * job->pixel;
        b.image_floats = v->h * v->w * job->pixel;
        return b;
    }
    b.x = input_tile;
    b.image_floats = v->tile_rows * job->pitch;
    for (int64_t i = 0; i < b.images; i++)
        mirt__input_tile_rows(&job->input_tile, b.image + i, b.top, b.rows, input_tile + i * b.image_floats);
    return b;
}

/* The source of a later block. */
static void mirt__conv_ahead(const mirt__conv_job *job, int64_t number, mirt__ahead *ahead) {
    const mirt__conv_view *v = &job->v;
    const mirt__reader *x = &job->x.from;
    if (number >= v->blocks) return;
    mirt__conv_block b = mirt__conv_block_place(job, number);
    const int64_t from = mirt__max(b.top, 0);
    int64_t end = b.top + (b.rows - 1) * v->row_step + 1;
    if (end > v->h) end = v->h;
    if (b.images > 1) end = b.images * v->h;
    if (from >= end) return;
    const int64_t first = (b.image * v->h + from) * v->w * v->c, count = (end - from) * v->w * v->c;
    if (count > MIRT__INPUT_TILE * 5 / 4) return; /* it would not fit into the cache */
    mirt__ahead_add(ahead, x->data, x->dtype, first, count);
    if (MIRT__TRAINS && x->back) mirt__ahead_add(ahead, x->back->z, x->dtype, first, count);
}

/* The positions of a block that have the same taps. */
static void mirt__conv_set_run(const mirt__conv_job *job, mirt__sweep *sweep, const mirt__conv_block *b, int64_t number,
                               mirt__finishing *f, int32_t *counts) {
    const mirt__conv_view *v = &job->v;
    const mirt__conv *s = &v->s;
    const mirt__conv_set *set = &job->sets[number];
    mirt__conv_phase py = {b->y, b->lines, 0}, px = {0, v->target_w, 0};
    if (job->back) {
        py = mirt__conv_phase_of(b->y, b->lines, s->pad_top, s->stride_h, set->phase_y);
        px = mirt__conv_phase_of(0, v->target_w, s->pad_left, s->stride_w, set->phase_x);
        sweep->a = b->x + (py.output - b->top) * job->pitch + (px.output - v->tile_left) * job->pixel;
    } else {
        sweep->a = b->x;
    }
    sweep->m = b->images * py.count * px.count;
    sweep->width = px.count;
    sweep->lines = py.count;
    sweep->runs = job->runs + set->run;
    sweep->run_count = set->run_count;
    if (!job->by_panel) {
        sweep->b = job->packed + set->packed;
        sweep->b_panel = set->k * MIRT__PANEL;
    }
    sweep->c_at = ((b->image * v->target_h + py.first) * v->target_w + px.first) * v->target_c;
    if (sweep->a_y == sweep->width * sweep->a_x && sweep->c_y == sweep->width * sweep->c_x) { /* one long line */
        sweep->width *= sweep->lines;
        sweep->lines = 1;
    }
    const int64_t chunks = v->chunks / v->sets, first = number * chunks;
    for (int64_t i = 0; MIRT__TRAINS && counts && i < chunks; i++) {
        const int64_t left = sweep->m - i * MIRT__SUM_CHUNK;
        counts[first + i] = (int32_t)(left < 0 ? 0 : mirt__min(left, MIRT__SUM_CHUNK));
    }
    float *sum = f->sum;
    if (MIRT__TRAINS && sum) f->sum += first * job->sum_floats;
    if (sweep->m > 0) mirt__sweep_run(sweep);
    f->sum = sum;
}

/* Panels [begin, end) of a block. The next one is this thread's, too, as a rule. */
static void mirt__conv_block_run(const mirt__conv_job *job, int64_t block, int64_t begin, int64_t end, int member) {
    const mirt__conv_view *v = &job->v;
    const mirt__conv *s = &v->s;
    float *scratch = (float *)mirt__scratch(job->where, member);
    const mirt__conv_block b = mirt__conv_block_of(job, block, scratch + MIRT__TILE_GROUP * MIRT__PANEL);
    /* With single taps, a tile contains only the pixels that are needed. */
    const int64_t step_y = job->back || (!job->direct && s->kh == 1) ? 1 : s->stride_h;
    const int64_t step_x = job->back || (!job->direct && s->kw == 1) ? 1 : s->stride_w;
    mirt__finishing f = job->finishing;
    mirt__ahead ahead;
    mirt__sweep sweep;
    memset(&ahead, 0, sizeof ahead);
    memset(&sweep, 0, sizeof sweep);
    if (end - begin == job->panels) mirt__conv_ahead(job, block + 1, &ahead);
    if (MIRT__TRAINS && job->beside) mirt__grad_beside_ahead(job->beside, block + 1, &ahead);
    sweep.ahead = &ahead;
    sweep.simd = job->simd;
    sweep.tile = job->words ? job->words->tile : job->simd->tile;
    sweep.a_x = step_x * job->pixel;
    sweep.a_y = step_y * job->pitch;
    sweep.a_z = b.image_floats;
    sweep.a_step = 1;
    sweep.a_group = job->pixel / s->groups;
    sweep.b_row = MIRT__PANEL;
    sweep.n = v->n;
    sweep.b = job->packed + member * job->sets[0].k * MIRT__PANEL; /* by_panel: of this thread */
    sweep.begin = begin;
    sweep.end = end;
    sweep.c = f.dtype == MIRT_FLOAT32 ? (float *)f.y : NULL;
    sweep.c_x = (job->back ? s->stride_w : 1) * v->target_c;
    sweep.c_y = (job->back ? s->stride_h : 1) * v->target_w * v->target_c;
    sweep.c_z = v->target_h * v->target_w * v->target_c;
    sweep.fresh = true;
    sweep.spare = scratch;
    sweep.finishing = &f;
    sweep.finish = job->finish;
    sweep.sum_chunk = job->sum_floats;
    f.fresh = true;
    if (MIRT__TRAINS && job->sums) f.sum = job->sums + block * v->chunks * job->sum_floats;
    for (int64_t i = 0; i < v->sets; i++)
        mirt__conv_set_run(job, &sweep, &b, i, &f, begin == 0 && job->sums ? job->counts + block * v->chunks : NULL);
    if (f.stream) __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (MIRT__TRAINS && job->beside)
        mirt__grad_beside_run(job->beside, block, scratch + MIRT__TILE_GROUP * MIRT__PANEL, &ahead);
}

static void mirt__conv_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const int64_t most = job->beside_blocks;
    if (!MIRT__TRAINS || !job->beside) {
        const int64_t block = task / job->splits, split = task % job->splits;
        mirt__conv_block_run(job, block, job->panels * split / job->splits, job->panels * (split + 1) / job->splits,
                             member);
        return;
    }
    for (int64_t block = task * most, end = block + most; block < end && block < job->v.blocks; block++)
        mirt__conv_block_run(job, block, 0, job->panels, member);
}

static void mirt__conv_panel_task(void *arg, int64_t panel, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    for (int64_t i = 0; i < job->tap_count; i++) mirt__conv_pack(job, &job->taps[i], panel, member, 0, job->v.k);
    for (int64_t i = 0; i < job->v.blocks; i++) mirt__conv_block_run(job, i, panel, panel + 1, member);
}

/* Divides the work among threads, where no sums depend on how. If few rows read each panel of weights, packing it takes
   long, and the panel is still in the cache afterwards; but each panel reads all tiles. */
static void mirt__conv_share(mirt__conv_job *job) {
    mirt__conv_view *v = &job->v;
    const int64_t threads = mirt__team_size(job->where->team);
    const bool even = threads == 1 || job->panels >= 4 * threads ||
                      (job->panels % threads == 0 && v->n % MIRT__PANEL == 0); /* panels for each thread */
    if (job->back || job->beside || job->sums) return;
    job->by_panel = even && (job->direct || v->blocks == 1) &&
                    v->s.rows * v->target_h * v->target_w <= MIRT__FEW_ROWS;
    if (!job->by_panel) mirt__conv_view_share(v, threads, job->simd->rows);
}

/* Whether blocks may be multiplied in place. */
static bool mirt__conv_is_direct(const mirt__conv_job *job) {
    const mirt__conv_view *v = &job->v;
    const mirt__conv *s = &v->s;
    const mirt__reader *x = &job->x.from;
    if (x->affine || x->norm || x->gate || x->back || job->round) return false;
    if (job->words ? x->dtype != MIRT__BFLOAT16 || v->c % 2 : x->dtype != MIRT_FLOAT32) return false;
    if (s->pad_top != 0 || s->pad_left != 0) return false;
    if (job->back)
        return s->kh == 1 && v->tile_left == 0 && v->tile_columns == v->w && (s->h - 1) / s->stride_h < v->h;
    return (s->oh - 1) * s->stride_h + (int64_t)(s->kh - 1) * s->dilation_h < v->h &&
           (s->ow - 1) * s->stride_w + (int64_t)(s->kw - 1) * s->dilation_w < v->w;
}

/* Sets up everything but the data of the two directions. */
static void mirt__conv_run(const mirt__simd *simd, const mirt__conv *s, bool back, const mirt__reader *x,
                           const float *kernel, const mirt__epilogue *epilogue, void *y, mirt_dtype dtype, bool half,
                           const mirt__grad_job *beside, const mirt__where *where) {
    mirt__conv_job job;
    memset(&job, 0, sizeof job);
    job.simd = simd;
    job.where = where;
    job.v = mirt__conv_view_of(s, back);
    job.back = back;
    job.kernel = kernel;
    const mirt__conv_view *v = &job.v;
    if (half && simd->words && (v->s.groups == 1 || v->k % 2 == 0)) job.words = simd->words;
    job.round = half && !job.words;
    job.pixel = job.words ? (v->c + 1) / 2 : v->c;
    job.k = job.words ? (v->k + 1) / 2 : v->k;
    const mirt__conv_places places = mirt__conv_places_of(v);
    char *shared = (char *)where->shared;
    job.x = mirt__source_of(x, (float *)(void *)(shared + places.source));
    job.finishing = mirt__finishing_of(epilogue, v->target_c, y, dtype, (float *)(void *)(shared + places.finishing));
    job.finish = mirt__epilogue_works(epilogue, dtype);
    /* A large output would evict the inputs from the cache, and be evicted itself before it is read again. */
    job.finishing.stream = job.finish && v->n % MIRT__PANEL_LINE == 0 && ((uintptr_t)y % 64) == 0 &&
                           v->blocks * v->images * v->lines * v->target_w * v->target_c >= MIRT__STREAM;
    job.beside = beside;
    job.direct = !beside && mirt__conv_is_direct(&job);
    job.pitch = (job.direct ? v->w : v->tile_columns) * job.pixel;
    job.input_tile = mirt__input_tile_of(simd, &job.x, v->h, v->w, v->c, v->tile_left, v->tile_columns);
    job.input_tile.words = job.words;
    job.input_tile.round = job.round;
    job.input_tile.row_step = v->row_step;
    job.input_tile.column_step = v->column_step;
    job.input_tile.pixel = job.pixel;
    job.packed = (float *)(void *)(shared + places.packed);
    if (MIRT__TRAINS && epilogue->sums != MIRT__SUMS_NONE) job.sums = (float *)(void *)(shared + places.sums);
    job.counts = (int32_t *)(void *)(shared + places.counts);
    job.runs = (mirt__run *)(void *)(shared + places.runs);
    job.sets = (mirt__conv_set *)(void *)(shared + places.sets);
    job.taps = (mirt__conv_tap *)(void *)(shared + places.taps);
    job.panels = v->s.groups * mirt__parts(v->n, MIRT__PANEL);
    job.sum_floats = mirt__sum_floats(epilogue, v->target_c);
    mirt__conv_sets(&job);
    mirt__conv_share(&job);
    if (v->blocks > 0) {
        /* More tasks balance the load better, but each task of a block reads the block's tile. */
        job.splits = mirt__sweep_splits(where, v->blocks, job.panels, job.direct ? 8 : 3);
        int64_t tasks = v->blocks * job.splits;
        if (MIRT__TRAINS && beside) {
            const mirt__both_view chunks = mirt__both_view_of(s);
            job.splits = 1;
            job.beside_blocks = chunks.blocks;
            tasks = chunks.chunks;
        }
        if (job.by_panel) {
            mirt__team_for(where->team, job.panels, mirt__conv_panel_task, &job);
        } else {
            mirt__team_for(where->team, job.tap_count * job.panels * mirt__parts(v->k, MIRT__PACK_STEPS),
                           mirt__conv_pack_task, &job);
            mirt__team_for(where->team, tasks, mirt__conv_task, &job);
        }
    }
    if (MIRT__TRAINS && job.sums)
        mirt__counted_sums_run(where->team, epilogue, job.sums, job.counts, v->blocks * v->chunks, v->target_c);
}

MIRT__LIB void mirt__fast_conv_forward(const mirt__simd *simd, const mirt__conv_forward *args,
                                       const mirt__where *where) {
    const mirt__conv *s = &args->s;
    if (mirt__is_depthwise(s)) {
        mirt__fast_depthwise_forward(simd, args, where);
    } else if (args->winograd && !args->half && mirt__winograd_applies(s, false)) {
        mirt__fast_winograd(simd, s, false, &args->x, args->kernel, &args->epilogue, args->y, args->y_dtype, where);
    } else {
        mirt__conv_run(simd, s, false, &args->x, args->kernel, &args->epilogue, args->y, args->y_dtype, args->half,
                       NULL, where);
    }
}

MIRT__LIB void mirt__conv_run_beside(const mirt__simd *simd, const mirt__conv_input_grad *args,
                                     const mirt__grad_job *beside, const mirt__where *where) {
    mirt__conv_run(simd, &args->s, true, &args->dy, args->kernel, &args->epilogue, args->dx, args->dx_dtype, args->half,
                   beside, where);
}

MIRT__LIB void mirt__fast_conv_input_grad(const mirt__simd *simd, const mirt__conv_input_grad *args,
                                          const mirt__where *where) {
    const mirt__conv *s = &args->s;
    if (MIRT__TRAINS && mirt__is_depthwise(s)) { /* a transposed convolution has no groups */
        mirt__fast_depthwise_input_grad(simd, args, where);
    } else if (MIRT__TRAINS && args->x) {
        mirt__fast_conv_both(simd, args, where);
    } else if (args->winograd && !args->half && mirt__winograd_applies(s, true)) {
        mirt__fast_winograd(simd, s, true, &args->dy, args->kernel, &args->epilogue, args->dx, args->dx_dtype, where);
    } else {
        mirt__conv_run_beside(simd, args, NULL, where);
    }
}

#undef MIRT__FEW_ROWS
#undef MIRT__PACK_STEPS
#include "optimize_end.inc"
