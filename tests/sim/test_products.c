/* Kernels of simulated GPUs against the reference, where other tests leave them out. Products of rounded numbers (tf32,
   bfloat16, float16), those of cuBLAS and what follows them, every kernel of convolutions with pooling, elements of 16
   bits. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "opening.h"
#include "../bfloat16.h"
#include "../float16.h"
#include "../tap.h"
#include "sim.h"

static const mirt__host products_host = {mirt__fail, mirt__calloc, free, mirt__now};
static const mirt__backend *products_backend;
static mirt__handle *products_device;
static uint32_t products_state = 1;

/* Between -1 and 1. */
static float products_draw(void) {
    products_state = products_state * 1664525u + 1013904223u;
    return (float)(products_state >> 8) / 8388608.0f - 1;
}
static const mirt_dtype bf16 = (mirt_dtype)MIRT__BFLOAT16, f16 = (mirt_dtype)MIRT__FLOAT16;
static uint16_t products_round(float x, mirt_dtype dtype) { return dtype == f16 ? float_to_f16(x) : float_to_half(x); }
static float products_widen(uint16_t bits, mirt_dtype dtype) {
    return dtype == f16 ? f16_to_float(bits) : half_to_float(bits);
}

/* Numbers here, their sizes, and on the device, there of the dtype. */
typedef struct products_array {
    float *x, *size;
    void *device;
    int64_t count;
    mirt_dtype dtype;
} products_array;

static products_array products_make(int64_t count, mirt_dtype dtype) {
    const bool half = dtype != MIRT_FLOAT32;
    products_array a;
    a.count = count;
    a.dtype = dtype;
    a.x = (float *)calloc((size_t)count + 1, sizeof(float));
    a.size = (float *)calloc((size_t)count + 1, sizeof(float));
    a.device = products_backend->alloc(products_device, (size_t)(count + 1) * sizeof(float));
    if (!a.x || !a.size || !a.device) exit(1);
    for (int64_t i = 0; i < count; i++) {
        a.x[i] = products_draw();
        if (half) a.x[i] = products_widen(products_round(a.x[i], dtype), dtype);
        a.size[i] = a.x[i] < 0 ? -a.x[i] : a.x[i];
    }
    if (half) {
        uint16_t *rounded = (uint16_t *)calloc((size_t)count + 1, sizeof(uint16_t));
        if (!rounded) exit(1);
        for (int64_t i = 0; i < count; i++) rounded[i] = products_round(a.x[i], dtype);
        products_backend->copy_in(products_device, a.device, rounded, (size_t)count * sizeof(uint16_t), false);
        free(rounded);
    } else {
        products_backend->copy_in(products_device, a.device, a.x, (size_t)count * sizeof(float), false);
    }
    return a;
}
static void products_free(products_array *a) {
    free(a->x);
    free(a->size);
    products_backend->release(products_device, a->device);
}

/* The most by which what the device has differs from a.x, as a part of a.size and a little more. */
static double products_error(products_array *a) {
    double most = 0;
    void *got = calloc((size_t)a->count + 1, sizeof(float));
    if (!got) exit(1);
    products_backend->copy_out(products_device, got, a->device, (size_t)a->count * mirt__dtype_size(a->dtype));
    if (products_backend->wait(products_device) != MIRT_OK) most = 1e9;
    for (int64_t i = 0; i < a->count; i++) {
        const double y = a->dtype == MIRT_FLOAT32 ? ((float *)got)[i] : products_widen(((uint16_t *)got)[i], a->dtype);
        const double error = fabs(y - a->x[i]) / (a->size[i] + 1e-3);
        if (!(error <= most)) most = error;
    }
    free(got);
    return most;
}

/* A call with the room that it asks for. */
typedef void products_call(const void *args, const mirt__where *where);
static void products_run_in(products_call *call, const void *args, bool float16) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.handle = products_device;
    where.float16 = float16;
    const size_t bytes = measured_room(products_backend, call, args, &where);
    void *room = bytes ? products_backend->alloc(products_device, bytes) : NULL;
    products_backend->room(products_device, room, bytes);
    call(args, &where);
    products_backend->wait(products_device);
    products_backend->room(products_device, NULL, 0);
    if (room) products_backend->release(products_device, room);
}
static void products_run(products_call *call, const void *args) { products_run_in(call, args, false); }
#define PRODUCTS_CALL(name, kernel) \
    static void products_##name(const void *args, const mirt__where *where) { \
        products_backend->kernels()->kernel((const mirt__##kernel *)args, where); \
    }
PRODUCTS_CALL(gemm, gemm)
PRODUCTS_CALL(forward, conv_forward)
PRODUCTS_CALL(input, conv_input_grad)
PRODUCTS_CALL(weights, conv_weight_grad)
PRODUCTS_CALL(unary, unary)
PRODUCTS_CALL(binary, binary)
PRODUCTS_CALL(reduce, reduce)
PRODUCTS_CALL(pool, conv_pool)
PRODUCTS_CALL(pool_weights, conv_pool_weight_grad)

static mirt__reader products_reader(const products_array *a, const void *data, int64_t channels) {
    mirt__reader r;
    memset(&r, 0, sizeof r);
    r.data = data;
    r.dtype = data == a->device ? a->dtype : MIRT_FLOAT32;
    r.channels = channels;
    return r;
}

/* Dense layers, of each transpose, with bias, activation, mask, and sums of b's columns. */
static void products_test_gemm(int64_t m, int64_t n, int64_t k, int turned, mirt_activation_kind activation,
                               bool masked, double limit) {
    products_array a = products_make(m * k, MIRT_FLOAT32), b = products_make(k * n, MIRT_FLOAT32),
                   c = products_make(m * n, MIRT_FLOAT32), bias = products_make(n, MIRT_FLOAT32);
    products_array mask = products_make(m * n, MIRT_FLOAT32), sum = products_make(n, MIRT_FLOAT32);
    mirt__gemm g;
    memset(&g, 0, sizeof g);
    g.m = m;
    g.n = n;
    g.k = k;
    g.a_row = turned & 1 ? 1 : k;
    g.a_col = turned & 1 ? m : 1;
    g.b_row = turned & 2 ? 1 : n;
    g.b_col = turned & 2 ? k : 1;
    g.epilogue.activation = activation;
    g.epilogue.mask_activation = MIRT_RELU;
    mirt__gemm there = g;
    there.a = products_reader(&a, a.device, k);
    there.b = (const float *)b.device;
    there.c = (float *)c.device;
    there.epilogue.bias = (const float *)bias.device;
    if (masked) there.epilogue.mask = mask.device;
    if (!(turned & 2)) there.column_sum = (float *)sum.device;
    products_run(products_gemm, &there);
    g.a = products_reader(&a, a.x, k);
    g.b = b.x;
    g.c = c.x;
    g.epilogue.bias = bias.x;
    if (masked) g.epilogue.mask = mask.x;
    g.column_sum = sum.x;
    mirt__ref_gemm(&g);
    g.epilogue.activation = MIRT_LINEAR;
    g.epilogue.mask = NULL;
    g.a = products_reader(&a, a.size, k);
    g.b = b.size;
    g.c = c.size;
    g.epilogue.bias = bias.size;
    g.column_sum = sum.size;
    mirt__ref_gemm(&g);
    const double error = products_error(&c), sum_error = turned & 2 ? 0 : products_error(&sum);
    ok(error <= limit && sum_error <= 1e-5, "%dx%dx%d, turned %d, activation %d%s: off by %.1e, sums by %.1e", (int)m,
       (int)n, (int)k, turned, (int)activation, masked ? ", mask" : "", error, sum_error);
    products_array *const all[] = {&a, &b, &c, &bias, &mask, &sum};
    for (int i = 0; i < 6; i++) products_free(all[i]);
}

static mirt__conv products_conv(int64_t rows, int64_t h, int64_t w, int64_t ci, int64_t co, int kernel, int stride,
                                int64_t pad) {
    mirt__conv s;
    memset(&s, 0, sizeof s);
    s.rows = rows;
    s.h = h;
    s.w = w;
    s.ci = ci;
    s.co = co;
    s.kh = s.kw = kernel;
    s.stride_h = s.stride_w = stride;
    s.dilation_h = s.dilation_w = s.groups = 1;
    s.pad_top = s.pad_left = pad;
    s.oh = (h + 2 * pad - kernel) / stride + 1;
    s.ow = (w + 2 * pad - kernel) / stride + 1;
    return s;
}

/* A convolution and its gradients, of numbers of the dtype, stored as that. */
static void products_test_conv(mirt__conv s, mirt_dtype dtype, double limit) {
    const bool half = dtype != MIRT_FLOAT32;
    const int64_t weights = (int64_t)s.kh * s.kw * s.ci * s.co;
    products_array x = products_make(s.rows * s.h * s.w * s.ci, dtype),
                   y = products_make(s.rows * s.oh * s.ow * s.co, dtype);
    products_array dy = products_make(y.count, dtype), dx = products_make(x.count, dtype),
                   kernel = products_make(weights, MIRT_FLOAT32);
    products_array dkernel = products_make(weights, MIRT_FLOAT32), db = products_make(s.co, MIRT_FLOAT32);
    mirt__conv_forward f;
    mirt__conv_input_grad i;
    mirt__conv_weight_grad w;
    memset(&f, 0, sizeof f);
    memset(&i, 0, sizeof i);
    memset(&w, 0, sizeof w);
    f.s = i.s = w.s = s;
    f.half = i.half = w.half = half && s.groups < s.ci;
    f.x = w.x = products_reader(&x, x.device, s.ci);
    i.dy = w.dy = products_reader(&dy, dy.device, s.co);
    f.kernel = i.kernel = (const float *)kernel.device;
    f.y = y.device;
    i.dx = dx.device;
    f.y_dtype = i.dx_dtype = dtype;
    w.dkernel = (float *)dkernel.device;
    w.db = (float *)db.device;
    products_run_in(products_forward, &f, dtype == f16);
    products_run_in(products_input, &i, dtype == f16);
    products_run_in(products_weights, &w, dtype == f16);
    for (int64_t j = 0; f.half && j < weights; j++)
        kernel.x[j] = products_widen(products_round(kernel.x[j], dtype), dtype);
    f.half = i.half = w.half = false;
    f.y_dtype = i.dx_dtype = MIRT_FLOAT32;
    for (int sizes = 0; sizes < 2; sizes++) {
        f.x = w.x = products_reader(&x, sizes ? x.size : x.x, s.ci);
        i.dy = w.dy = products_reader(&dy, sizes ? dy.size : dy.x, s.co);
        f.kernel = i.kernel = sizes ? kernel.size : kernel.x;
        f.y = sizes ? y.size : y.x;
        i.dx = sizes ? dx.size : dx.x;
        w.dkernel = sizes ? dkernel.size : dkernel.x;
        w.db = sizes ? db.size : db.x;
        mirt__ref_conv_forward(&f);
        mirt__ref_conv_input_grad(&i);
        mirt__ref_conv_weight_grad(&w);
    }
    /* What is stored in 16 bits is rounded once more. */
    const double forward = products_error(&y), input = products_error(&dx), kernels = products_error(&dkernel),
                 bias = products_error(&db);
    const double stored = dtype == f16 ? limit + 1.0 / 2048 : half ? limit + 1.0 / 256 : limit;
    ok(forward <= stored && input <= stored && kernels <= limit && bias <= 1e-5,
       "%s %dx%dx%dx%d to %d, %dx%d/%d: off by %.1e, dx %.1e, dkernel %.1e, db %.1e", mirt__dtype_name(dtype),
       (int)s.rows, (int)s.h, (int)s.w, (int)s.ci, (int)s.co, s.kh, s.kw, s.stride_h, forward, input, kernels, bias);
    products_array *const all[] = {&x, &y, &dy, &dx, &kernel, &dkernel, &db};
    for (int j = 0; j < 7; j++) products_free(all[j]);
}

/* Pixels times a small matrix, as preprocessing has them: bytes that become numbers, or float32. By a convolution, of
   rounded numbers, or by a product whose matrix is turned. */
static void products_test_colors(int n, int64_t pixels, bool bytes, mirt_dtype factors) {
    const bool half = factors != MIRT_FLOAT32;
    products_array x = products_make(pixels * n, MIRT_FLOAT32), b = products_make(n * n, MIRT_FLOAT32),
                   bias = products_make(n, MIRT_FLOAT32), y = products_make(pixels * n, MIRT_FLOAT32);
    uint8_t *byte = (uint8_t *)calloc((size_t)(pixels * n), 1);
    mirt__reader from = products_reader(&x, x.device, n);
    mirt__epilogue epilogue;
    memset(&epilogue, 0, sizeof epilogue);
    epilogue.bias = (const float *)bias.device;
    from.affine = true;
    from.scale = bytes ? 1 / 128.0f : 0.75f;
    from.offset = -1;
    if (bytes) from.dtype = MIRT_UINT8;
    for (int64_t i = 0; i < pixels * n; i++) {
        if (bytes) x.x[i] = byte[i] = (uint8_t)(i * 37 % 256);
        x.x[i] = fmaf(x.x[i], from.scale, from.offset);
        if (half) x.x[i] = products_widen(products_round(x.x[i], factors), factors);
    }
    if (bytes) products_backend->copy_in(products_device, x.device, byte, (size_t)(pixels * n), false);
    for (int i = 0; half && i < n * n; i++) b.x[i] = products_widen(products_round(b.x[i], factors), factors);
    for (int64_t i = 0; i < pixels * n; i++) {
        y.x[i] = 0;
        for (int k = 0; k < n; k++) {
            const int64_t at = half ? k * n + i % n : i % n * n + k;
            y.x[i] = fmaf(x.x[i / n * n + k], b.x[at], y.x[i]);
        }
        y.x[i] += bias.x[i % n];
    }
    if (half) {
        mirt__conv_forward f;
        memset(&f, 0, sizeof f);
        f.s = products_conv(1, (int)pixels, 1, n, n, 1, 1, 0);
        f.half = true;
        f.x = from;
        f.kernel = (const float *)b.device;
        f.y = y.device;
        f.epilogue = epilogue;
        products_run_in(products_forward, &f, factors == f16);
    } else {
        mirt__gemm g;
        memset(&g, 0, sizeof g);
        g.m = pixels;
        g.n = g.k = g.a_row = g.b_col = n;
        g.a_col = g.b_row = 1;
        g.a = from;
        g.b = (const float *)b.device;
        g.c = (float *)y.device;
        g.epilogue = epilogue;
        products_run(products_gemm, &g);
    }
    for (int64_t i = 0; i < y.count; i++) y.size[i] = 1;
    const double error = products_error(&y);
    ok(error < 1e-6, "%d pixels of %d %s times a matrix of %s: off by %.1e", (int)pixels, n,
       bytes ? "bytes" : "numbers", mirt__dtype_name(factors), error);
    products_free(&x);
    products_free(&b);
    products_free(&bias);
    products_free(&y);
    free(byte);
}

/* Few channels, stored as floats: cuBLAS, if it is there, has only the gradient of the weights. */
static int products_by_blas;
static void products_note(const mirt_sim_launch *launch) { products_by_blas += launch->function == NULL; }
static void products_test_few_channels(int n, double limit) {
    products_by_blas = 0;
    mirt_sim_watch(products_note);
    products_test_conv(products_conv(2, 5, 7, n, n, 1, 1, 0), MIRT_FLOAT32, limit);
    mirt_sim_watch(NULL);
    const char *blas = getenv("MIRT_CUDA_BLAS");
    const int expected = blas && strcmp(blas, "0") == 0 ? 0 : n > 4 ? 3 : 1;
    ok(products_by_blas == expected, "%d channels to %d: %d of 3 products by cuBLAS", n, n, products_by_blas);
}

/* Weight gradients by copies: pixels that fill no stage or some of them, more than one part, taps and tiles that end
   within a block, strides and groups. */
static void products_test_stored_weights(mirt_dtype dtype) {
    mirt__conv dilated = products_conv(1, 15, 14, 8, 16, 3, 1, 2), groups = products_conv(2, 7, 9, 48, 80, 3, 1, 1);
    dilated.dilation_h = dilated.dilation_w = 2;
    groups.groups = 2;
    products_test_conv(products_conv(1, 1, 1, 8, 8, 3, 1, 1), dtype, 1e-5);
    products_test_conv(products_conv(1, 3, 5, 8, 24, 3, 1, 1), dtype, 1e-5);
    products_test_conv(products_conv(3, 9, 11, 24, 72, 3, 1, 1), dtype, 1e-5);
    products_test_conv(products_conv(2, 13, 17, 72, 136, 3, 2, 1), dtype, 1e-5);
    products_test_conv(products_conv(2, 12, 11, 16, 40, 5, 1, 2), dtype, 1e-5);
    products_test_conv(products_conv(4, 9, 9, 64, 80, 1, 2, 0), dtype, 1e-5);
    products_test_conv(products_conv(3, 25, 24, 8, 16, 3, 1, 1), dtype, 1e-5);
    products_test_conv(products_conv(11, 14, 14, 16, 72, 3, 1, 0), dtype, 1e-5);
    products_test_conv(dilated, dtype, 1e-5);
    products_test_conv(groups, dtype, 1e-5);
}

static void products_test_pool(int64_t rows, int64_t h, int64_t w, int64_t ci, int64_t co, int taps) {
    const mirt__conv s = products_conv(rows, h, w, ci, co, taps, 1, 0);
    const int64_t weights = (int64_t)taps * taps * ci * co, windows = rows * (s.oh / 2) * (s.ow / 2) * co;
    products_array x = products_make(rows * h * w * ci, MIRT_FLOAT32), kernel = products_make(weights, MIRT_FLOAT32),
                   bias = products_make(co, MIRT_FLOAT32);
    products_array y = products_make(windows, MIRT_FLOAT32), dy = products_make(windows, MIRT_FLOAT32),
                   dkernel = products_make(weights, MIRT_FLOAT32), db = products_make(co, MIRT_FLOAT32);
    uint8_t *which = (uint8_t *)calloc((size_t)windows + 1, 1), *wanted = (uint8_t *)calloc((size_t)windows + 1, 1);
    void *places = products_backend->alloc(products_device, (size_t)windows + 1);
    mirt__conv_pool p;
    mirt__conv_pool_weight_grad g;
    if (!which || !wanted || !places) exit(1);
    memset(&p, 0, sizeof p);
    memset(&g, 0, sizeof g);
    p.s = g.s = s;
    p.x = g.x = products_reader(&x, x.device, ci);
    p.kernel = (const float *)kernel.device;
    p.bias = (const float *)bias.device;
    p.y = (float *)y.device;
    p.which = (uint8_t *)places;
    g.dy = (const float *)dy.device;
    g.which = (const uint8_t *)places;
    g.dkernel = (float *)dkernel.device;
    g.db = (float *)db.device;
    products_run(products_pool, &p);
    products_run(products_pool_weights, &g);
    products_backend->copy_out(products_device, which, places, (size_t)windows);
    products_backend->wait(products_device);
    p.x = g.x = products_reader(&x, x.x, ci);
    p.kernel = kernel.x;
    p.bias = bias.x;
    p.y = y.x;
    p.which = wanted;
    mirt__ref_conv_pool(&p);
    for (int64_t i = 0; i < windows; i++) y.size[i] = 1 + (float)(taps * taps * ci) / 4;
    int64_t others = 0; /* of values that are all but equal */
    for (int64_t i = 0; i < windows; i++) others += which[i] != wanted[i];
    g.which = which;
    for (int sizes = 0; sizes < 2; sizes++) {
        g.x = products_reader(&x, sizes ? x.size : x.x, ci);
        g.dy = sizes ? dy.size : dy.x;
        g.dkernel = sizes ? dkernel.size : dkernel.x;
        g.db = sizes ? db.size : db.x;
        mirt__ref_conv_pool_weight_grad(&g);
    }
    const double forward = products_error(&y), kernels = products_error(&dkernel), sums = products_error(&db);
    ok(forward <= 1e-6 && kernels <= 1e-5 && sums <= 1e-5 && others * 1000 <= windows,
       "%dx%dx%dx%d to %d, %dx%d, pooled: off by %.1e, dkernel %.1e, db %.1e, %d other places", (int)rows, (int)h,
       (int)w, (int)ci, (int)co, taps, taps, forward, kernels, sums, (int)others);
    products_array *const all[] = {&x, &kernel, &bias, &y, &dy, &dkernel, &db};
    for (int i = 0; i < 7; i++) products_free(all[i]);
    products_backend->release(products_device, places);
    free(which);
    free(wanted);
}

/* Elements of each dtype: of a, b and y; what is added, if `adds`, is as a; y may replace a. `repeats`: dimensions of b
   that are 1, by bits; c has the others. Results in 16 bits are those of the reference, rounded: exactly, but for what
   is computed by several operations. */
static void products_test_binary(mirt__binary_kind kind, int64_t pixels, int64_t channels, unsigned repeats,
                                 const mirt_dtype *dtype, bool replaced, bool adds) {
    const int64_t dim[4] = {2, pixels, 3, channels}, count = 6 * pixels * channels;
    int64_t others = 1, added = 1;
    mirt__binary b;
    memset(&b, 0, sizeof b);
    b.kind = kind;
    b.rank = 4;
    b.scale = 1.0f / 3;
    for (int64_t i = 3, step = 1; i >= 0; step *= dim[i--]) {
        b.dim[i] = dim[i];
        b.a_stride[i] = step;
        b.b_stride[i] = repeats >> i & 1 ? 0 : others;
        if (!(repeats >> i & 1)) others *= dim[i];
        b.c_stride[i] = repeats >> i & 1 ? added : 0;
        if (repeats >> i & 1) added *= dim[i];
    }
    products_array x = products_make(count, dtype[0]), z = products_make(others, dtype[1]),
                   y = products_make(count, dtype[2]), c = products_make(added, dtype[0]);
    b.a = x.x;
    b.b = z.x;
    b.y = y.x;
    mirt__ref_binary(&b);
    for (int64_t i = 0; i < count; i++) {
        if (adds) y.x[i] += c.x[mirt__ref_offset(i, 4, b.dim, b.c_stride)];
        if (y.dtype != MIRT_FLOAT32) y.x[i] = products_widen(products_round(y.x[i], y.dtype), y.dtype);
        y.size[i] = fabsf(y.x[i]);
    }
    b.a_dtype = x.dtype, b.b_dtype = z.dtype, b.c_dtype = c.dtype, b.y_dtype = y.dtype;
    b.c = adds ? c.device : NULL;
    b.a = x.device;
    b.b = z.device;
    b.y = y.device;
    if (replaced) { /* the buffers are exchanged, so that each is freed once */
        y.device = x.device;
        x.device = b.y;
        b.y = y.device;
    }
    products_run(products_binary, &b);
    const double error = products_error(&y), limit = kind == MIRT__SILU_GRAD ? 8e-3 : 0;
    ok(error <= limit, "binary %d of dtypes %d, %d to %d%s%s, %d pixels of %d channels, repeats %u: off by %.1e",
       (int)kind, (int)dtype[0], (int)dtype[1], (int)dtype[2], replaced ? " in place" : "", adds ? ", added to" : "",
       (int)pixels, (int)channels, repeats, error);
    products_free(&x);
    products_free(&z);
    products_free(&y);
    products_free(&c);
}

/* Means of products over pixels, or over channels. */
static void products_test_reduced(int64_t pixels, int64_t channels, unsigned axes, mirt_dtype dtype) {
    enum { IMAGES = 3 };
    const int64_t count = IMAGES * pixels * channels, results = axes == 2 ? IMAGES * channels : IMAGES * pixels;
    products_array x = products_make(count, dtype), by = products_make(count, dtype),
                   y = products_make(results, MIRT_FLOAT32);
    mirt__reduce r;
    memset(&r, 0, sizeof r);
    r.kind = MIRT__REDUCE_MEAN;
    r.rank = 3;
    r.axes = axes;
    r.dim[0] = IMAGES;
    r.dim[1] = pixels;
    r.dim[2] = channels;
    r.x = x.device;
    r.by = by.device;
    r.x_dtype = dtype;
    r.y = (float *)y.device;
    memset(y.x, 0, (size_t)results * sizeof *y.x);
    for (int64_t i = 0; i < count; i++) {
        const int64_t to = axes == 2 ? i / channels / pixels * channels + i % channels : i / channels;
        y.x[to] += x.x[i] * by.x[i] / (float)(axes == 2 ? pixels : channels);
    }
    for (int64_t i = 0; i < results; i++) y.size[i] = 1;
    products_run(products_reduce, &r);
    const double error = products_error(&y);
    ok(error < 1e-6, "means of products of dtype %d, %d pixels of %d channels, over axes %u: off by %.1e", (int)dtype,
       (int)pixels, (int)channels, axes, error);
    products_free(&x);
    products_free(&by);
    products_free(&y);
}

static void products_test_unary(int64_t count, mirt_dtype from, mirt_dtype to) {
    products_array x = products_make(count, from), y = products_make(count, to);
    mirt__unary u;
    memset(&u, 0, sizeof u);
    u.kind = MIRT__NEGATIVE;
    u.count = count;
    u.x = x.device;
    u.y = y.device;
    u.x_dtype = from;
    u.y_dtype = to;
    products_run(products_unary, &u);
    for (int64_t i = 0; i < count; i++) {
        y.x[i] = to == MIRT_FLOAT32 ? -x.x[i] : products_widen(products_round(-x.x[i], to), to);
        y.size[i] = fabsf(y.x[i]);
    }
    const double error = products_error(&y);
    ok(error == 0, "%d elements of dtype %d to %d: off by %.1e", (int)count, (int)from, (int)to, error);
    products_free(&x);
    products_free(&y);
}

/* Of float32 and 16 bits in each place, by one, four and eight neighbors, in rows that end in between. */
static void products_test_elements(mirt_dtype half) {
    static const mirt__binary_kind kinds[] = {MIRT__ADD, MIRT__MULTIPLY, MIRT__SILU_GRAD};
    static const unsigned repeats[] = {0, 6, 14, 7}; /* an image; a gate of channels; of samples; a bias */
    static const int64_t channels[] = {16, 12, 5};
    for (int set = 0; set < 8; set++) {
        const mirt_dtype dtype[3] = {set & 1 ? half : MIRT_FLOAT32, set & 2 ? half : MIRT_FLOAT32,
                                     set & 4 ? half : MIRT_FLOAT32};
        for (int i = 0; i < 12; i++)
            products_test_binary(kinds[(set + i) % 3], 3 + i % 2, channels[i % 3], repeats[i / 3], dtype,
                                 dtype[0] == dtype[2] && i % 2, (set + i) % 3 == 1);
        for (int64_t count = 1; set < 4 && count < 2000; count = count * 5 + 3)
            products_test_unary(count, dtype[0], dtype[1]);
    }
    for (int i = 0; i < 6; i++) products_test_reduced(35, channels[i % 3], i < 3 ? 2 : 4, i % 2 ? MIRT_FLOAT32 : half);
    for (int i = 0; i < 3; i++) products_test_reduced(5000, channels[i], 2, half); /* in several chunks */
}

int main(void) {
    products_backend = mirt__cuda_backend();
    for (int tf32 = 0; tf32 < 2; tf32++) {
        const double limit = tf32 ? 1.1e-3 : 1e-5;
        products_device = products_backend->open(&products_host, opening(0, tf32 == 1));
        if (!products_device) return 1;
        for (int turned = 0; turned < 4; turned++)
            products_test_gemm(7, 20, 33, turned, turned % 2 ? MIRT_RELU : MIRT_LINEAR, false, limit);
        products_test_gemm(129, 131, 257, 0, MIRT_TANH, false, limit);
        products_test_gemm(129, 131, 257, 2, MIRT_LINEAR, true, limit);
        products_test_gemm(9, 5, 3000, 1, MIRT_SIGMOID, true, limit);
        products_test_conv(products_conv(2, 5, 7, 24, 40, 1, 1, 0), MIRT_FLOAT32, limit);
        products_test_conv(products_conv(2, 8, 9, 12, 20, 3, 2, 1), MIRT_FLOAT32, limit);
        products_test_conv(products_conv(1, 6, 5, 24, 72, 3, 1, 1), MIRT_FLOAT32, limit);
        products_test_conv(products_conv(2, 9, 9, 3, 5, 3, 1, 0), MIRT_FLOAT32, limit);
        for (int n = 2; n < 6; n++) products_test_few_channels(n, limit);
        for (int i = 0; !tf32 && i < 18; i++)
            products_test_colors(2 + i % 3, i % 2 ? 64 : 31, i / 3 % 2, i < 6 ? MIRT_FLOAT32 : i < 12 ? bf16 : f16);
        if (!tf32) {
            for (int half = 0; half < 2; half++) {
                const mirt_dtype dtype = half ? f16 : bf16;
                products_test_conv(products_conv(2, 5, 7, 24, 40, 1, 1, 0), dtype, 1e-5);
                products_test_conv(products_conv(40, 6, 7, 4, 4, 1, 1, 0), dtype, 1e-5);
                products_test_conv(products_conv(2, 7, 7, 16, 80, 3, 2, 1), dtype, 1e-5);
                products_test_conv(products_conv(1, 7, 7, 12, 4, 3, 1, 1), dtype, 1e-5);
                products_test_conv(products_conv(2, 5, 7, 3, 3, 1, 1, 0), dtype, 1e-5);
                products_test_conv(products_conv(2, 9, 9, 3, 5, 3, 1, 0), dtype, 1e-5);
                mirt__conv deep = products_conv(2, 9, 8, 16, 16, 3, 1, 1);
                deep.groups = 16;
                products_test_conv(deep, dtype, 1e-5);
                products_test_elements(dtype);
                products_test_stored_weights(dtype);
            }
            products_test_pool(2, 13, 12, 1, 7, 3);
            products_test_pool(2, 11, 12, 1, 33, 5);
            products_test_pool(2, 11, 12, 3, 5, 3);
            products_test_pool(1, 12, 13, 3, 4, 7);
            products_test_pool(1, 12, 40, 80, 3, 3);
            products_test_pool(1, 9, 10, 300, 2, 7);
            products_test_pool(0, 9, 10, 1, 2, 3);
        }
        products_backend->close(products_device);
    }
    mirt_sim_set("capability", 75); /* too little shared memory for large tiles of weight gradients */
    products_device = products_backend->open(&products_host, opening(0, false));
    if (!products_device) return 1;
    products_test_stored_weights(f16);
    products_backend->close(products_device);
    return done_testing();
}
