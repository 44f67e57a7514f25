#ifndef KERNEL_JOB_H
#define KERNEL_JOB_H
/* One call of a kernel, in a uniform description. It is a list of buffers with their contents before the call and the
   requirements after it.

   A tolerance is a number of roundings, each of at most eps = 2^-23 times the largest magnitude in
   the output (at least 1); 0 demands equal values. Inputs lie in [-1, 1]; a sum of k products makes
   k roundings of partial sums. On `grid` inputs (multiples of 1/4) all sums are exact whatever
   their order, so that a wrong index cannot hide in a tolerance, and maxima have ties; so do those
   `below` zero, and `odd` ones, some of which are infinite or no numbers. */

enum { MAX_BUFFERS = 12, MAX_NUMBERS = 20, SHAPE_END = INT32_MIN, SHAPE_LARGE };

typedef enum role { IN, OUT, INOUT } role;
typedef enum fill { UNIT, GRID, BELOW, ODD, POSITIVE, WIDE, BYTES, WORDS, LABELS } fill;

typedef struct buffer {
    role role;
    mirt_dtype dtype;
    int64_t count;     /* elements */
    int64_t per_row;   /* elements of one row, 0 where rows share the buffer */
    double roundings;  /* of an output */
    bool unchecked;    /* not compared with the reference, only with itself */
    void *initial;     /* what it holds before a call */
} buffer;

typedef struct job {
    const int32_t *s;  /* the numbers of the shape */
    int64_t rows;      /* 0: rows are nothing of this kernel's */
    bool ranged;       /* a call names its range of rows instead of being given their addresses */
    int buffers;
    buffer buffer[MAX_BUFFERS];
    int alias_in, alias_out; /* an input that may be the output; -1 */
    double library; /* roundings more on GPUs, whose library computes the function otherwise */
    size_t scratch, shared;
    mirt__random random;
    /* One call: */
    int64_t first, count; /* rows [first, first + count) */
    void *at[MAX_BUFFERS];
} job;

typedef struct kernel_case {
    const char *name;
    void (*plan)(job *j);
    void (*run)(const job *j, const mirt__kernels *k, const mirt__where *where);
    const int32_t (*shapes)[MAX_NUMBERS]; /* ends at SHAPE_END; those after SHAPE_LARGE may be left out */
} kernel_case;

/* Instead: every other number is zero, denormal, or so small that products are denormal. */
static bool tiny_numbers;

static float fill_tiny(job *j, fill how) {
    const bool exact = how == GRID || how == BELOW || how == ODD; /* sums stay exact when all of these are flushed */
    const float sign = how != POSITIVE && (mirt__random_u32(&j->random) & 1) ? -1.0f : 1.0f;
    const uint32_t kind = mirt__random_u32(&j->random) % 8, bits = mirt__random_u32(&j->random) % 0x7fffffu + 1;
    float x;
    memcpy(&x, &bits, sizeof x); /* denormal */
    if (kind == 0) x = 0;
    if (exact) return sign * x;
    if (kind == 1) x = FLT_MIN;
    if (kind == 2 || kind == 3) x = 1e-20f * (float)(bits % 1000 + 1); /* products of two are denormal */
    if (kind == 4) x = FLT_MIN * (1 + (float)(bits % 100));
    return sign * x;
}

static float fill_float(job *j, fill how) {
    if (tiny_numbers && (mirt__random_u32(&j->random) & 1)) return fill_tiny(j, how);
    float unit = mirt__random_unit(&j->random);
    switch (how) {
    case GRID: return (float)((int)(unit * 9) - 4) * 0.25f;
    case BELOW: return (float)((int)(unit * 9) - 10) * 0.25f;
    case ODD:
        return unit < 0.1f   ? (float)NAN
               : unit < 0.2f ? -INFINITY
               : unit > 0.9f ? INFINITY
                             : (float)((int)(unit * 9) - 4) * 0.25f;
    case POSITIVE: return unit * 0.98f + 0.01f;
    case WIDE: return (unit - 0.5f) * 40;
    default: return 2 * unit - 1;
    }
}

static int add_buffer(job *j, role as, mirt_dtype dtype, fill how, int64_t per_row, int64_t count) {
    buffer *b = &j->buffer[j->buffers];
    memset(b, 0, sizeof *b);
    b->role = as;
    b->dtype = dtype;
    b->per_row = per_row;
    b->count = count;
    b->initial = calloc((size_t)count + 1, mirt__dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        if (dtype == MIRT_FLOAT32) ((float *)b->initial)[i] = fill_float(j, how);
        else if (dtype == MIRT_BOOL) ((uint8_t *)b->initial)[i] = (uint8_t)(mirt__random_u32(&j->random) & 1);
        else if (dtype == MIRT_UINT8) ((uint8_t *)b->initial)[i] = (uint8_t)mirt__random_u32(&j->random);
        else if (how == LABELS) ((int32_t *)b->initial)[i] = (int32_t)mirt__random_below(&j->random, (uint64_t)j->s[0]);
        else ((int32_t *)b->initial)[i] = (int32_t)mirt__random_below(&j->random, 257) - 128;
    }
    return j->buffers++;
}

static int input(job *j, fill how, int64_t count) { return add_buffer(j, IN, MIRT_FLOAT32, how, 0, count); }
static int row_input(job *j, fill how, int64_t per_row) {
    return add_buffer(j, IN, MIRT_FLOAT32, how, per_row, per_row * j->rows);
}

static int output(job *j, double roundings, int64_t count) {
    int i = add_buffer(j, OUT, MIRT_FLOAT32, UNIT, 0, count);
    j->buffer[i].roundings = roundings;
    return i;
}
static int row_output(job *j, double roundings, int64_t per_row) {
    int i = add_buffer(j, OUT, MIRT_FLOAT32, UNIT, per_row, per_row * j->rows);
    j->buffer[i].roundings = roundings;
    return i;
}

/* The plan's input as the kernel's operand; absent optional buffers are empty. */
static const float *in_at(const job *j, int i) {
    return j->buffer[i].count || j->buffer[i].per_row ? (const float *)j->at[i] : NULL;
}
static float *out_at(const job *j, int i) { return (float *)j->at[i]; }

/* Calls the reference on the initial contents, to prepare what one kernel hands to another. */
static void prepare(job *j, void (*run)(const job *j, const mirt__kernels *k, const mirt__where *where)) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    mirt__where where;
    memset(&where, 0, sizeof where);
    for (int i = 0; i < j->buffers; i++) j->at[i] = j->buffer[i].initial;
    j->first = 0;
    j->count = j->rows;
    run(j, table[tables - 1], &where);
}

#endif
