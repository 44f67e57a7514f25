/* Times the hot CPU kernels, one thread, at the shapes of the MNIST convnet and some larger ones:
   cc -O2 bench/kernels.c -o build/bench_kernels -lm -lpthread
   MIRT_CPU=avx512|avx2|neon|plain|reference chooses the kernels. Best of several runs. */

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

static const mirt__kernels *kernels;
static mirt__where where;

static float *numbers(int64_t count) {
    float *x = (float *)mirt__aligned_alloc((size_t)count * sizeof(float));
    if (!x) exit(1);
    for (int64_t i = 0; i < count; i++) x[i] = (float)((i * 2654435761u) >> 8 & 1023) / 1024.0f - 0.5f;
    return x;
}

static void scratch(size_t per_thread, size_t shared) {
    mirt__aligned_free(where.scratch);
    mirt__aligned_free(where.shared);
    where.scratch = mirt__aligned_alloc(per_thread + 64);
    where.shared = mirt__aligned_alloc(shared + 64);
    where.scratch_per_thread = per_thread;
    if (!where.scratch || !where.shared) exit(1);
}

/* Best time of `call` in seconds. */
static double best(void (*call)(const void *args), const void *args) {
    double least = 1e9, end = mirt__now() + 0.15;
    for (int i = 0; i < 5 || mirt__now() < end; i++) {
        double start = mirt__now();
        call(args);
        double took = mirt__now() - start;
        if (took < least) least = took;
    }
    return least;
}

static void call_gemm(const void *args) { kernels->gemm((const mirt__gemm *)args, &where); }
static void call_forward(const void *args) { kernels->conv_forward((const mirt__conv_forward *)args, &where); }
static void call_input_grad(const void *args) { kernels->conv_input_grad((const mirt__conv_input_grad *)args, &where); }
static void call_weight_grad(const void *args) { kernels->conv_weight_grad((const mirt__conv_weight_grad *)args, &where); }
static void call_pool(const void *args) { kernels->conv_pool((const mirt__conv_pool *)args, &where); }
static void call_pool_grad(const void *args) {
    kernels->conv_pool_weight_grad((const mirt__conv_pool_weight_grad *)args, &where);
}
static void call_adam(const void *args) { kernels->adam((const mirt__update *)args, &where); }
static void call_sgd(const void *args) { kernels->sgd((const mirt__update *)args, &where); }

static void report(const char *name, double flops, double seconds) {
    printf("%-44s %8.4f ms %7.1f GFLOP/s\n", name, seconds * 1e3, flops / seconds * 1e-9);
}

enum { FORWARD, INPUT_GRAD, WEIGHT_GRAD };

static void bench_gemm(const char *what, int kind, int64_t m, int64_t n, int64_t k) {
    float *a = numbers(m * k), *b = numbers(k * n), *c = numbers(m * n), *row = numbers(n);
    mirt__gemm args;
    char name[96];
    memset(&args, 0, sizeof args);
    args.m = m;
    args.n = n;
    args.k = k;
    args.a.data = a;
    args.a_row = kind == WEIGHT_GRAD ? 1 : k;
    args.a_col = kind == WEIGHT_GRAD ? m : 1;
    args.b = b;
    args.b_row = kind == INPUT_GRAD ? 1 : n;
    args.b_col = kind == INPUT_GRAD ? k : 1;
    args.c = c;
    if (kind == WEIGHT_GRAD) args.column_sum = row;
    if (kind == FORWARD) {
        args.epilogue.bias = row;
        args.epilogue.activation = MIRT_RELU;
    }
    scratch(mirt__gemm_scratch(&args), 0);
    snprintf(name, sizeof name, "%s m %d n %d k %d", what, (int)m, (int)n, (int)k);
    report(name, 2.0 * (double)m * (double)n * (double)k, best(call_gemm, &args));
    mirt__aligned_free(a);
    mirt__aligned_free(b);
    mirt__aligned_free(c);
    mirt__aligned_free(row);
}

static mirt__conv conv_shape(int64_t rows, int64_t size, int64_t ci, int64_t co, int kernel, int stride, bool same) {
    mirt__conv s;
    memset(&s, 0, sizeof s);
    s.rows = rows;
    s.h = s.w = size;
    s.ci = ci;
    s.co = co;
    s.kh = s.kw = kernel;
    s.stride_h = s.stride_w = stride;
    s.dilation_h = s.dilation_w = s.groups = 1;
    s.oh = same ? (size + stride - 1) / stride : (size - kernel) / stride + 1;
    s.ow = s.oh;
    if (same) s.pad_top = s.pad_left = ((s.oh - 1) * stride + kernel - size) / 2;
    return s;
}

static void bench_conv(int64_t rows, int64_t size, int64_t ci, int64_t co, int kernel, int stride, bool same) {
    const mirt__conv s = conv_shape(rows, size, ci, co, kernel, stride, same);
    const int64_t ys = rows * s.oh * s.ow * co;
    const double flops = 2.0 * (double)ys * (double)(kernel * kernel * ci);
    float *x = numbers(rows * size * size * ci), *y = numbers(ys), *k = numbers(kernel * kernel * ci * co), *b = numbers(co);
    char name[96];
    mirt__conv_forward forward;
    mirt__conv_input_grad input;
    mirt__conv_weight_grad weight;
    memset(&forward, 0, sizeof forward);
    memset(&input, 0, sizeof input);
    memset(&weight, 0, sizeof weight);
    forward.s = input.s = weight.s = s;
    forward.x.data = weight.x.data = x;
    forward.kernel = input.kernel = k;
    forward.y = y;
    forward.epilogue.bias = b;
    input.dy.data = weight.dy.data = y;
    input.dx = x;
    weight.dkernel = k;
    weight.db = b;
    scratch(mirt__conv_scratch(&s), mirt__conv_shared(&s));
    snprintf(name, sizeof name, "conv %dx%dx%d to %d, %dx%d/%d%s", (int)size, (int)size, (int)ci, (int)co, kernel, kernel, stride,
             same ? " same" : "");
    report(name, flops, best(call_forward, &forward));
    report("  input gradient", flops, best(call_input_grad, &input));
    report("  weight gradient", flops, best(call_weight_grad, &weight));
    mirt__aligned_free(x);
    mirt__aligned_free(y);
    mirt__aligned_free(k);
    mirt__aligned_free(b);
}

static void bench_pool(int64_t rows) {
    const mirt__conv s = conv_shape(rows, 28, 1, 32, 3, 1, false);
    const int64_t ys = rows * 13 * 13 * 32;
    uint8_t *pixels = (uint8_t *)mirt__aligned_alloc((size_t)rows * 784), *which = (uint8_t *)mirt__aligned_alloc((size_t)ys);
    float *y = numbers(ys), *k = numbers(288), *b = numbers(32), *dk = numbers(288);
    if (!pixels || !which) exit(1);
    for (int64_t i = 0; i < rows * 784; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    mirt__conv_pool forward;
    mirt__conv_pool_weight_grad weight;
    memset(&forward, 0, sizeof forward);
    memset(&weight, 0, sizeof weight);
    forward.s = weight.s = s;
    forward.x.data = pixels;
    forward.x.dtype = MIRT_UINT8;
    forward.x.affine = true;
    forward.x.scale = 1.0f / 255.0f;
    weight.x = forward.x;
    forward.kernel = k;
    forward.bias = b;
    forward.y = y;
    forward.which = which;
    weight.dy = y;
    weight.which = which;
    weight.dkernel = dk;
    weight.db = b;
    scratch(mirt__conv_scratch(&s), mirt__conv_shared(&s));
    const double flops = (double)rows * 26 * 26 * 32 * 18;
    report("conv_pool 28x28x1 uint8 to 32, 64 images", flops, best(call_pool, &forward));
    report("  weight gradient", flops / 4, best(call_pool_grad, &weight));
    mirt__aligned_free(pixels);
    mirt__aligned_free(which);
    mirt__aligned_free(y);
    mirt__aligned_free(k);
    mirt__aligned_free(b);
    mirt__aligned_free(dk);
}

static void bench_update(int64_t count, int parts, int copies) {
    mirt__update args;
    memset(&args, 0, sizeof args);
    args.end = count;
    args.parts = parts;
    args.copies = copies;
    for (int i = 0; i < parts; i++) args.part[i] = numbers(count);
    for (int i = 0; i < copies; i++) args.weight[i] = numbers(count);
    args.tree[0].from = 1;
    for (int i = 0; i < 2; i++) {
        args.slot[i] = numbers(count);
        for (int64_t j = 0; j < count; j++) args.slot[i][j] = 0.25f;
    }
    args.learning_rate = 1e-3f;
    args.new_1 = 0.1f;
    args.new_2 = 0.001f;
    args.epsilon = 1e-7f;
    double adam = best(call_adam, &args), sgd = best(call_sgd, &args);
    printf("update of %d, %d parts, %d copies: adam %.4f ms %.1f GB/s, sgd momentum %.4f ms\n", (int)count, parts, copies,
           adam * 1e3, (double)count * 4 * (parts + copies + 5) / adam * 1e-9, sgd * 1e3);
    for (int i = 0; i < parts; i++) mirt__aligned_free((void *)args.part[i]);
    for (int i = 0; i < copies; i++) mirt__aligned_free(args.weight[i]);
    for (int i = 0; i < 2; i++) mirt__aligned_free(args.slot[i]);
}

int main(int argc, char **argv) {
    kernels = mirt__kernels_best();
    printf("%s kernels, one thread\n", kernels->name);
    for (int64_t rows = 64; rows >= 16; rows /= 2) {
        bench_gemm("dense forward", FORWARD, rows, 64, 5408);
        bench_gemm("dense input gradient", INPUT_GRAD, rows, 5408, 64);
        bench_gemm("dense weight gradient", WEIGHT_GRAD, 5408, 64, rows);
    }
    bench_gemm("dense forward", FORWARD, 64, 10, 64);
    bench_gemm("dense input gradient", INPUT_GRAD, 64, 64, 10);
    bench_gemm("dense weight gradient", WEIGHT_GRAD, 64, 10, 64);
    bench_pool(64);
    bench_update(347146, 1, 1);
    bench_update(173573, 2, 2);
    if (argc > 1 && strcmp(argv[1], "all") == 0) {
        bench_gemm("forward", FORWARD, 12544, 64, 64);
        bench_gemm("forward", FORWARD, 1024, 1024, 1024);
        bench_gemm("input gradient", INPUT_GRAD, 1024, 1024, 1024);
        bench_gemm("weight gradient", WEIGHT_GRAD, 1024, 1024, 1024);
        bench_conv(2, 56, 64, 64, 3, 1, true);
        bench_conv(4, 28, 128, 128, 3, 1, true);
        bench_conv(4, 28, 128, 128, 3, 2, true);
        bench_conv(4, 14, 256, 256, 3, 1, true);
        bench_conv(4, 7, 512, 512, 3, 1, true);
        bench_conv(4, 56, 64, 256, 1, 1, false);
        bench_conv(64, 28, 1, 32, 3, 1, false);
        bench_conv(64, 26, 32, 64, 3, 1, false);
    }
    mirt__aligned_free(where.scratch);
    mirt__aligned_free(where.shared);
    return 0;
}
