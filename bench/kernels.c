/* Times the hot CPU kernels, one thread, at the shapes of the MNIST convnet and, with `all`, some larger ones, or of the
   convolutions of a network as training runs them: mobilenet_v2 or resnet50 [bf16]:
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
static void call_update(const void *args) { kernels->update((const mirt__update *)args, &where); }

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
    args.kind = MIRT_ADAM;
    double adam = best(call_update, &args);
    args.kind = MIRT_SGD;
    double sgd = best(call_update, &args);
    printf("update of %d, %d parts, %d copies: adam %.4f ms %.1f GB/s, sgd momentum %.4f ms\n", (int)count, parts, copies,
           adam * 1e3, (double)count * 4 * (parts + copies + 5) / adam * 1e-9, sgd * 1e3);
    for (int i = 0; i < parts; i++) mirt__aligned_free((void *)args.part[i]);
    for (int i = 0; i < copies; i++) mirt__aligned_free(args.weight[i]);
    for (int i = 0; i < 2; i++) mirt__aligned_free(args.slot[i]);
}

/* A convolution of a network: its kernel, channels, sizes of its images before and after, how often it occurs. */
typedef struct layer {
    int kernel, ci, co, in, out, times;
} layer;
static const layer mobilenet_v2[] = {
    {3, 3, 32, 224, 112, 1}, {1, 32, 16, 112, 112, 1}, {1, 16, 96, 112, 112, 1}, {1, 96, 24, 56, 56, 1}, {1, 24, 144, 56, 56, 2},
    {1, 144, 24, 56, 56, 1}, {1, 144, 32, 28, 28, 1}, {1, 32, 192, 28, 28, 3}, {1, 192, 32, 28, 28, 2}, {1, 192, 64, 14, 14, 1},
    {1, 64, 384, 14, 14, 4}, {1, 384, 64, 14, 14, 3}, {1, 384, 96, 14, 14, 1}, {1, 96, 576, 14, 14, 3}, {1, 576, 96, 14, 14, 2},
    {1, 576, 160, 7, 7, 1}, {1, 160, 960, 7, 7, 3}, {1, 960, 160, 7, 7, 2}, {1, 960, 320, 7, 7, 1}, {1, 320, 1280, 7, 7, 1}, {0, 0, 0, 0, 0, 0}};
static const layer resnet50[] = {
    {7, 3, 64, 224, 112, 1}, {1, 64, 64, 56, 56, 1}, {3, 64, 64, 56, 56, 3}, {1, 64, 256, 56, 56, 4}, {1, 256, 64, 56, 56, 2},
    {1, 256, 128, 56, 56, 1}, {3, 128, 128, 56, 28, 1}, {1, 256, 512, 56, 28, 1}, {1, 128, 512, 28, 28, 4}, {1, 512, 128, 28, 28, 3},
    {3, 128, 128, 28, 28, 3}, {1, 512, 256, 28, 28, 1}, {3, 256, 256, 28, 14, 1}, {1, 512, 1024, 28, 14, 1}, {1, 256, 1024, 14, 14, 6},
    {1, 1024, 256, 14, 14, 5}, {3, 256, 256, 14, 14, 5}, {1, 1024, 512, 14, 14, 1}, {3, 512, 512, 14, 7, 1}, {1, 1024, 2048, 14, 7, 1},
    {1, 512, 2048, 7, 7, 3}, {1, 2048, 512, 7, 7, 2}, {3, 512, 512, 7, 7, 2}, {0, 0, 0, 0, 0, 0}};

/* Forward reads the layer below normalized and rectified, and leaves moments; the gradients read that of the
   normalization above, and the input's leaves its sums. Returns the milliseconds an image's takes of a network. */
static double bench_layer(const layer *l, int64_t rows, bool half) {
    const mirt__conv s = conv_shape(rows, l->in, l->ci, l->co, l->kernel, l->in / l->out, true);
    const mirt_dtype dtype = half ? MIRT__BFLOAT16 : MIRT_FLOAT32;
    const int64_t xs = rows * l->in * l->in * l->ci, ys = rows * l->out * l->out * l->co, ks = (int64_t)l->kernel * l->kernel * l->ci * l->co;
    const int64_t most = l->ci > l->co ? l->ci : l->co;
    float *x = numbers(xs), *dx = numbers(xs), *y = numbers(ys), *z = numbers(ys), *k = numbers(ks), *dk = numbers(ks), *column = numbers(most * 2);
    const double flops = 2.0 * (double)ys * (double)(l->kernel * l->kernel * l->ci);
    mirt__scaling below, above;
    mirt__norm_back back;
    mirt__conv_forward forward;
    mirt__conv_input_grad input;
    mirt__conv_weight_grad weight;
    memset(&below, 0, sizeof below);
    memset(&back, 0, sizeof back);
    memset(&forward, 0, sizeof forward);
    memset(&input, 0, sizeof input);
    memset(&weight, 0, sizeof weight);
    for (int64_t i = 0; i < most; i++) column[i] = 0.5f;
    below.mean = below.variance = column;
    below.epsilon = 1e-3f;
    above = below;
    below.activation = MIRT_RELU6;
    back.norm = above;
    back.z = z;
    back.sum[0] = back.sum[1] = column;
    back.count = (double)(ys / l->co);
    forward.s = input.s = weight.s = s;
    forward.half = input.half = weight.half = half;
    forward.x.data = x;
    forward.x.dtype = input.dy.dtype = dtype;
    forward.x.channels = l->ci;
    if (l->ci > 3) forward.x.norm = &below; /* pictures are read as they are */
    forward.kernel = input.kernel = k;
    forward.y = y;
    forward.y_dtype = input.dx_dtype = dtype;
    forward.epilogue.sums = MIRT__SUMS_MOMENTS;
    forward.epilogue.sum[0] = input.epilogue.sum[0] = column + most;
    forward.epilogue.sum[1] = input.epilogue.sum[1] = column + most;
    input.dy.data = y;
    input.dy.channels = l->co;
    input.dy.back = &back;
    input.dx = dx;
    input.epilogue.slope = &below;
    input.epilogue.slope_x = x;
    input.epilogue.sums = MIRT__SUMS_GRADIENT;
    weight.x = forward.x;
    weight.dy = input.dy;
    weight.dkernel = dk;
    scratch(mirt__conv_scratch(&s), mirt__conv_shared(&s));
    double time[3] = {best(call_forward, &forward), l->ci > 3 ? best(call_input_grad, &input) : 0, best(call_weight_grad, &weight)};
    printf("%dx%d/%d %4d to %4d, %3d x %d:", l->kernel, l->kernel, l->in / l->out, l->ci, l->co, l->out, l->times);
    for (int i = 0; i < 3; i++) printf(" %8.4f ms %6.1f", time[i] / (double)rows * 1e3, time[i] > 0 ? flops / time[i] * 1e-9 : 0);
    if (mirt__both_applies(&s)) {
        input.x = &weight.x;
        input.dkernel = dk;
        time[1] = best(call_input_grad, &input);
        time[2] = 0;
        printf(" %8.4f ms %6.1f", time[1] / (double)rows * 1e3, 2 * flops / time[1] * 1e-9);
    }
    printf("\n");
    mirt__aligned_free(x);
    mirt__aligned_free(dx);
    mirt__aligned_free(y);
    mirt__aligned_free(z);
    mirt__aligned_free(k);
    mirt__aligned_free(dk);
    mirt__aligned_free(column);
    return l->times * (time[0] + time[1] + time[2]) / (double)rows * 1e3;
}

static void bench_network(const layer *layers, bool half) {
    double all = 0;
    printf("forward, input gradient, weight gradient, [both in one pass]: ms an image and GFLOP/s\n");
    for (const layer *l = layers; l->kernel > 0; l++) all += bench_layer(l, 8, half);
    printf("all convolutions of an image: %.2f ms\n", all);
}

int main(int argc, char **argv) {
    kernels = mirt__kernels_best();
    printf("%s kernels, one thread\n", kernels->name);
    if (argc > 1 && strcmp(argv[1], "all") != 0) {
        bench_network(strcmp(argv[1], "resnet50") == 0 ? resnet50 : mobilenet_v2, argc > 2 && strcmp(argv[2], "bf16") == 0);
        mirt__aligned_free(where.scratch);
        mirt__aligned_free(where.shared);
        return 0;
    }
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
