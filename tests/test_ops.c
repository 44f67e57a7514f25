/* Tests every op of op_cases.h on every kernel table. Compares it with the reference kernels, fused with unfused,
   over rows and team sizes; also checks that each op has a case. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "op_cases.h"
#include "lawful.h"
#include "tap.h"

/* Relative to the largest element of a tensor. No chain of the cases is longer than 400 additions
   of numbers of like size, whose rounding errors wander as a random walk does: sqrt(400) * 2^-24
   is 1.2e-6. The two chained products and the activations between them cost a few times that. */
#define TOLERANCE 5e-6

/* Beyond one block of the kernels: too large for the gradient tests, which take op_cases alone. */
static const op_case large_cases[] = {
    {"large matmul", case_matmul_bias_relu, 3, {{600}, {600, 130}, {130}}, {600}, MIRT_FLOAT32, -1.0, 1.0},
    {"large matmul_data", case_matmul_data, 2, {{12, 130}, {130}}, {3, 4}, MIRT_UINT8, -1.0, 1.0},
    {"large conv",
     case_conv_bias_sigmoid,
     3,
     {{7, 9, 20}, {3, 3, 20, 37}, {37}},
     {7, 9, 20},
     MIRT_FLOAT32,
     -0.25,
     0.25},
    {"large conv_chain",
     case_conv_chain,
     4,
     {{9, 7, 16}, {3, 3, 16, 32}, {32}, {3, 3, 32, 16}},
     {9, 7, 16},
     MIRT_FLOAT32,
     -0.125,
     0.125},
    {"large conv_pool", case_conv_pool, 2, {{3, 3, 1, 32}, {32}}, {28, 28, 1}, MIRT_UINT8, -1.0, 1.0},
    {"large conv_pool_unbiased", case_conv_pool_unbiased, 1, {{3, 3, 1, 32}}, {28, 28, 1}, MIRT_UINT8, -1.0, 1.0},
    {"large reduce_sum_rows", case_reduce_sum_rows, 1, {{1, 70}}, {70}, MIRT_FLOAT32, -2.0, 2.0},
    {"large normalize", case_normalize, 3, {{20, 28, 70}, {70}, {70}}, {0}, MIRT_FLOAT32, -2.0, 2.0},
    {"large layer_norm", case_layer_norm, 3, {{9, 300}, {300}, {300}}, {9, 300}, MIRT_FLOAT32, -2.0, 2.0},
    {"large softmax", case_loss_sparse_categorical_crossentropy, 1, {{70}}, {70}, MIRT_FLOAT32, -2.0, 2.0},
};

enum { MAX_THREADS = 3 };
static mirt__team *team[1 + MAX_THREADS]; /* of that many threads; NULL for one */
static bool op_seen[MIRT__OP_COUNT];
enum { MAX_KINDS = 64 };
static bool kind_seen[MIRT__OP_COUNT][MAX_KINDS]; /* of public kinds, which have a label each */

/* One replay's results. */
typedef struct result {
    float *value;
    char *gradient;
} result;

static size_t value_bytes(const op_run *r) { return (size_t)r->values * sizeof(float); }

/* Bytes that are not a number as float and no class as an integer: whoever reads what nobody wrote shows. */
static void poison(op_run *r, int threads) {
    memset(r->arena, 0xff, r->program.arena);
    memset(r->scratch, 0xff, r->program.scratch * (size_t)threads);
    memset(r->shared, 0xff, r->program.shared);
    memset(r->gradient, 0xff, r->weight_bytes);
    memset(r->value, 0xff, value_bytes(r));
}

static result replay(op_run *r, const mirt__kernels *kernels, int threads) {
    result out;
    poison(r, MAX_THREADS);
    op_replay(r, kernels, team[threads]);
    out.value = (float *)malloc(value_bytes(r) + 1);
    out.gradient = (char *)malloc(r->weight_bytes + 1);
    memcpy(out.value, r->value, value_bytes(r));
    memcpy(out.gradient, r->gradient, r->weight_bytes);
    return out;
}

static void drop(result *r) {
    free(r->value);
    free(r->gradient);
}

/* The largest difference, relative to the largest element of `b`; what is not a number is infinitely far. */
static double distance(const float *a, const float *b, int64_t count) {
    double worst = 0, largest = 1e-30;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)a[i] - (double)b[i]);
        if (!(error <= DBL_MAX)) return INFINITY;
        worst = worse(worst, error);
        if (fabs((double)b[i]) > largest) largest = fabs((double)b[i]);
    }
    return worst / largest;
}

/* Over the value and every operand's gradient. */
static double far_apart(const op_run *r, const result *a, const result *b) {
    double worst = distance(a->value, b->value, r->values);
    for (int i = 0; r->differentiable && i < r->operands; i++) {
        const float *x = (const float *)(const void *)(a->gradient + r->offset[i]),
                    *y = (const float *)(const void *)(b->gradient + r->offset[i]);
        worst = worse(worst, distance(x, y, r->count[i]));
    }
    return worst;
}

static bool same_bits(const op_run *r, const result *a, const result *b) {
    return memcmp(a->value, b->value, value_bytes(r)) == 0 && memcmp(a->gradient, b->gradient, r->weight_bytes) == 0;
}

static bool is_simd(const mirt__kernels *k) {
    return strcmp(k->name, "plain") != 0 && strcmp(k->name, "reference") != 0 && lawful(k);
}

/* Replays the forward and backward program on rows [first, first + rows) of the batch alone. */
static void replay_rows(op_run *r, const mirt__kernels *kernels, int64_t first, int64_t rows) {
    mirt__bases b;
    mirt__step_info run;
    memset(&b, 0, sizeof b);
    memset(&run, 0, sizeof run);
    poison(r, 1);
    run.seed = 5;
    run.step = 3;
    run.first_row = first;
    run.loss_scale = 1;
    run.global_rows = rows;
    op_bases(r, &b, NULL);
    b.io[0] = r->x + (size_t)first * r->program.io[0].bytes;
    replay_alone(&r->program, kernels, &run, &b, rows);
}

/* Values of parts of a batch are those of the whole batch, bit for bit where the law binds. */
static bool rows_keep_their_bits(op_run *r, const mirt__kernels *kernels, const result *whole) {
    static const int part[][2] = {{0, 1}, {1, 1}, {6, 1}, {0, 3}, {3, 4}, {2, 5}};
    size_t row = value_bytes(r) / (size_t)r->rows;
    for (int i = 0; i < MIRT__COUNT(part); i++) {
        replay_rows(r, kernels, part[i][0], part[i][1]);
        const char *same = (const char *)whole->value + (size_t)part[i][0] * row;
        const size_t bytes = (size_t)part[i][1] * row;
        if (lawful(kernels) ? memcmp(r->value, same, bytes) != 0
                            : !near_values(r->value, same, bytes / sizeof(float), true, 40))
            return false;
    }
    return true;
}

static void note_ops(const op_run *r) {
    for (int i = 0; i < r->program.graph.count; i++) {
        const mirt__node *node = r->program.graph.node[i];
        op_seen[node->id] = true;
        if (node->a.kind >= 0 && node->a.kind < MAX_KINDS) kind_seen[node->id][node->a.kind] = true;
    }
}

/* The case on all tables; `unfused` is the reference's result without fusion, to be made when NULL. */
static void check_case(const op_case *c, op_run *r, bool fused, result *unfused) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables), *simd = NULL;
    result best;
    memset(&best, 0, sizeof best);
    if (!fused) *unfused = replay(r, table[tables - 1], 1);
    for (int t = 0; t < tables; t++) {
        bool team_bits = true;
        result one = replay(r, table[t], 1);
        for (int threads = 2; threads <= MAX_THREADS; threads++) {
            result more = replay(r, table[t], threads);
            team_bits = team_bits && same_bits(r, &one, &more);
            drop(&more);
        }
        double error = far_apart(r, &one, unfused);
        ok(error < TOLERANCE && team_bits, "%s%s, %d rows, %s: off by %.1e%s", c->name, fused ? " fused" : "",
           (int)r->rows, table[t]->name, error, team_bits ? "" : ", other bits with more threads");
        if (r->rows >= 7 && mirt__is_batched(&r->y->shape)) {
            ok(rows_keep_their_bits(r, table[t], &one), "%s%s, %s: a row has the same bits in any batch", c->name,
               fused ? " fused" : "", table[t]->name);
        }
        if (is_simd(table[t])) {
            if (simd)
                ok(same_bits(r, &one, &best), "%s%s, %d rows: %s has the bits of %s", c->name, fused ? " fused" : "",
                   (int)r->rows, table[t]->name, simd->name);
            else {
                simd = table[t];
                best = one;
                memset(&one, 0, sizeof one);
            }
        }
        drop(&one);
    }
    drop(&best);
}

/* Runs `call` with its inputs copied, so that neither tensors nor planned overlaps change; input `over` shares its
   buffer with output 0, unless it is -1. Returns that output, which the caller frees. */
static char *run_copied(const mirt__call *original, int over) {
    const mirt__node *node = original->node;
    mirt__call call = *original;
    char *copy[MIRT__MAX_FUSED_IN + MIRT__MAX_OUT], *first = NULL;
    int copies = 0;
    for (int k = 0; k < node->num_in; k++) {
        const size_t bytes = mirt__tensor_bytes(node->in[k], call.rows);
        if (!call.in[k]) continue;
        call.in[k] = copy[copies++] = (char *)mirt__aligned_alloc(bytes + 1);
        memcpy(call.in[k], original->in[k], bytes);
    }
    for (int k = 0; k < node->num_out; k++) {
        const size_t bytes = mirt__tensor_bytes(node->out[k], call.rows);
        if (!call.out[k]) continue;
        if (k == 0 && over >= 0) call.out[k] = call.in[over];
        else call.out[k] = copy[copies++] = (char *)mirt__aligned_alloc(bytes + 1);
    }
    node->op->run(&call);
    first = (char *)malloc(mirt__tensor_bytes(node->out[0], call.rows) + 1);
    memcpy(first, call.out[0], mirt__tensor_bytes(node->out[0], call.rows));
    for (int i = 0; i < copies; i++) mirt__aligned_free(copy[i]);
    return first;
}

static bool may_overwrite(const mirt__node *node, int input) {
    const mirt_tensor *x = node->in[input], *y = node->out[0];
    const bool last = node->a.residual && input == node->num_in - 1;
    const bool named = (node->op->overwrites >> input & 1) || (last && (node->op->overwrites & MIRT__INPUT_RESIDUAL));
    return named && x->dtype == y->dtype && mirt__shape_equal(&x->shape, &y->shape);
}

static bool overwrote[MIRT__OP_COUNT], overwrote_wrong[MIRT__OP_COUNT];

/* Runs every node that may write over an input, once with a buffer for its output and once without. */
static void note_overwriting(op_run *r, const mirt__kernels *kernels) {
    mirt__program *program = &r->program;
    mirt__bases b;
    mirt__step_info run;
    mirt__call call;
    char *const replica = (char *)mirt__aligned_alloc(program->replica + 1);
    memset(&b, 0, sizeof b);
    memset(&run, 0, sizeof run);
    memset(&call, 0, sizeof call);
    poison(r, 1);
    run.loss_scale = 1;
    run.global_rows = r->rows;
    op_bases(r, &b, NULL);
    b.replica = replica;
    call.kernels = kernels;
    call.run = &run;
    call.bases = &b;
    call.rows = r->rows;
    call.where = b.where;
    for (int i = 0; i < program->graph.count; i++) {
        const mirt__node *node = program->graph.node[i];
        if (!mirt__node_runs(node)) continue;
        call.node = node;
        for (int k = 0; k < node->num_in; k++) call.in[k] = mirt__address(&b, node->in[k]);
        for (int k = 0; k < node->num_out; k++) call.out[k] = mirt__address(&b, node->out[k]);
        for (int k = 0; k < node->num_in; k++) {
            if (!may_overwrite(node, k) || !call.in[k]) continue;
            char *apart = run_copied(&call, -1), *over = run_copied(&call, k);
            overwrote[node->id] = true;
            if (memcmp(apart, over, mirt__tensor_bytes(node->out[0], r->rows)) != 0) overwrote_wrong[node->id] = true;
            free(apart);
            free(over);
        }
        node->op->run(&call);
    }
    mirt__aligned_free(replica);
}

/* Attributes in files that ops of a family can have. */
static unsigned saved_by(mirt__family family) {
    unsigned saved = MIRT__SAVES_data | MIRT__SAVES_user_op;
    if (family != MIRT__FAMILY_data) saved = 0;
#define SAVED(name, kind, own) \
    if (MIRT__FAMILY_##own == MIRT__FAMILY_plain || MIRT__FAMILY_##own == family) saved |= MIRT__SAVES_##name;
    MIRT__SAVED_ATTR_LIST(SAVED)
#undef SAVED
    return saved;
}

/* Fields of a family can be had from its own attributes alone, and a node does not take those of another. */
static void check_families(void) {
    mirt__graph graph;
    const mirt_shape shape = mirt_make_shape(2, 3, 0, 0, 0, 0);
    const mirt__attrs conv = mirt__attrs_of(MIRT__OP_conv2d), other = mirt__attrs_of(MIRT__OP_normalize);
    const mirt__attrs_window *window = MIRT__OF(&conv, window), *none = MIRT__OF(&other, window);
#ifdef UNCHECKED_FAMILIES /* tests/coverage.py: as users compile them */
    skip("fields of another family at NULL: not checked in this build");
    (void)window, (void)none;
#else
    ok(window && !none, "fields of another family are at NULL");
#endif
    mirt__graph_init(&graph, NULL, mirt__ops());
    mirt_tensor *x = mirt__variable_op(&graph, 0, &shape);
    ok(!mirt__record(&graph, MIRT__OP_reduce, &conv, &x, 1) && graph.status == MIRT_E_INVALID &&
       strstr(graph.error, "family"), "attributes of another family are refused: %s", graph.error);
    mirt__graph_free(&graph);
    ok(sizeof(mirt__attrs) <= 256, "attributes take %zu bytes", sizeof(mirt__attrs));
}

/* The traits of each row are consistent, and its kernel may write over the inputs it names. */
static void check_rows(void) {
    static const char *const label[] = {
#define LABEL(name, family) #name,
        MIRT__OP_LIST(LABEL)
#undef LABEL
    };
    static const mirt__family family[] = {
#define FAMILY(name, family) MIRT__FAMILY_##family,
        MIRT__OP_LIST(FAMILY)
#undef FAMILY
    };
    for (int id = 0; id < MIRT__OP_COUNT; id++) {
        const mirt__op *op = mirt__op_get((mirt__op_id)id);
        const bool made = id == MIRT__OP_conv2d_pool; /* by mirt__fuse_pool, not recorded */
        ok(strcmp(op->name, label[id]) == 0 && (op->shape == NULL) == made, "%s: the row is in its place", label[id]);
        ok(op->family == family[id] && mirt__attrs_of((mirt__op_id)id).family == family[id],
           "%s: the row and new attributes are of its family", op->name);
        ok(!(op->saved_attrs & ~saved_by(op->family)), "%s: saves no attributes of another family", op->name);
        const bool leaf = op->space != MIRT__SPACE_NONE;
        ok(op->run || op->alias || op->lower || leaf || op->reduces || op->updates,
           "%s: the output is computed or stored elsewhere", op->name);
        ok(!op->alias || (!op->run && !op->overwrites), "%s: an alias has no kernel", op->name);
        ok(!op->steady || op->lower, "%s: only lowered ops differ in training", op->name);
        ok(!op->tiled_reads == !(op->lazy_x | op->lazy_dy), "%s: only convolutions read lazy tensors", op->name);
        const bool images = op->half_in || op->half_out || op->half_copied || op->half_tied;
        ok(op->half || !images, "%s: support of 16-bit images has a condition", op->name);
        const bool counted = op->min_in >= 0 && op->min_in <= op->max_in && op->max_in <= MIRT__MAX_IN;
        const bool unsaved = !op->min_in && !op->max_in && !op->saved_attrs && !op->fits;
        ok(op->saved ? counted : unsaved, "%s: traits of files are complete", op->name);
        if (!op->overwrites) continue;
        ok(overwrote[id], "%s: a case can write over an input", op->name);
        ok(!overwrote_wrong[id], "%s: has the same bits if it writes over an input", op->name);
    }
}

/* The weight of a sample's loss is a leaf of training programs alone, so it has no row among the cases. */
static void check_loss_weight(void) {
    mirt__program program;
    mirt__output output;
    mirt__bases b;
    mirt__step_info run;
    static float value[5] = {9, 9, 9, 9, 9}; /* a GPU reads no stack */
    memset(&program, 0, sizeof program);
    memset(&b, 0, sizeof b);
    memset(&run, 0, sizeof run);
    mirt__graph_init(&program.graph, NULL, mirt__ops());
    output.tensor = mirt__loss_weight_op(&program.graph, MIRT__WEIGHT_SAMPLE);
    output.space = MIRT__SPACE_IO;
    output.offset = 0;
    output.port = 0;
    bool planned = output.tensor && mirt__plan(&program, &output, 1, NULL, 4);
    run.loss_scale = 0.125;
    b.io[0] = (char *)value;
    if (planned) {
        int tables;
        replay_alone(&program, mirt__kernel_tables(&tables)[0], &run, &b, 4);
        op_seen[MIRT__OP_loss_weight] = true;
    }
    ok(planned && value[0] == 0.125f && value[3] == 0.125f && value[4] == 9,
       "loss_weight gives each of its rows the scale, and no more");
    mirt__program_free(&program);
}

/* A batch normalization is only ever recorded: programs have what it is replaced by. */
static void check_batch_norm(void) {
    mirt__graph graph;
    mirt__attrs a = norm(0, true, false);
    mirt_shape x = mirt_make_shape(1, 3, 2, 5, 0, 0), c = mirt_make_shape(5, 0, 0, 0, 0, 0),
               other = mirt_make_shape(4, 0, 0, 0, 0, 0);
    mirt_tensor *in[5];
    x.dim[0] = MIRT_ROWS;
    for (int wrong = 0; wrong < 8; wrong++) {
        mirt__graph_init(&graph, NULL, mirt__ops());
        in[0] = mirt__input_op(&graph, 0, wrong == 4 ? MIRT_INT32 : MIRT_FLOAT32, &x);
        for (int i = 1; i < 4; i++) in[i] = mirt__variable_op(&graph, i, wrong == i ? &other : &c);
        if (wrong == 7) in[2] = mirt_square(in[2]);
        MIRT__OF(&a, norm)->momentum = wrong == 5 ? 1.5 : 0.99;
        MIRT__OF(&a, norm)->scaling.epsilon = wrong == 6 ? NAN : 1e-3f;
        mirt_tensor *y = mirt__batch_norm_op(in, &a);
        if (wrong) {
            ok(!y && strlen(mirt_last_error()) > 10, "batch_norm, wrong input or attribute %d: %s", wrong,
               mirt_last_error());
        } else {
            ok(y && mirt__shape_equal(&y->shape, &x), "batch_norm keeps its input's shape");
            if (y) op_seen[y->node->id] = true;
        }
        mirt__graph_free(&graph);
    }
}

/* The nodes that mirroring appends have no outputs and nothing to run: the step runs them (test_separate_devices). */
static void check_buckets(void) {
    static const mirt__op_id ids[] = {MIRT__OP_all_reduce_bucket, MIRT__OP_update_bucket};
    mirt__graph graph;
    mirt__model_graph_init(&graph, NULL);
    for (int i = 0; i < MIRT__COUNT(ids); i++) {
        mirt__bucket_op(&graph, ids[i], 3 + i);
        const bool good = graph.status == MIRT_OK && graph.count == i + 1;
        const mirt__node *node = good ? graph.node[i] : NULL;
        ok(good && node->id == ids[i] && node->a.index == 3 + i && node->num_out == 0 && !mirt__node_runs(node) &&
               node->op->reduces == (i == 0) && node->op->updates == (i == 1),
           "%s is a node of a bucket", mirt__op_get(ids[i])->name);
        if (good) op_seen[node->id] = true;
    }
    mirt__graph_free(&graph);
}

static void check_every_op_has_a_case(void) {
    check_loss_weight();
    check_batch_norm();
    check_buckets();
    for (int id = 0; id < MIRT__OP_COUNT; id++) {
        ok(op_seen[id], "%s is in the program of a case", mirt__op_get((mirt__op_id)id)->name);
    }
}

static void check_every_kind_has_a_case(void) {
    static const mirt__op_id ids[] = {MIRT__OP_unary, MIRT__OP_binary, MIRT__OP_logic, MIRT__OP_reduce, MIRT__OP_scan};
    for (int i = 0; i < MIRT__COUNT(ids); i++) {
        for (int kind = 0; kind < MAX_KINDS; kind++) {
            const char *label = mirt__kind_label(ids[i], kind);
            if (label) ok(kind_seen[ids[i]][kind], "%s is in the program of a case", label);
        }
        ok(!mirt__kind_label(ids[i], -1) && !mirt__kind_label(ids[i], MAX_KINDS), "%s has no kind of another number",
           mirt__op_get(ids[i])->name);
    }
}

static void check_cases(const op_case *cases, int count, const int64_t *rows, int row_counts) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    for (int c = 0; c < count; c++) {
        for (int i = 0; i < (cases[c].x_shape[0] ? row_counts : 1); i++) {
            result unfused;
            memset(&unfused, 0, sizeof unfused);
            for (int fuse = 0; fuse < 2; fuse++) {
                op_run r;
                if (!ok(op_begin(&r, &cases[c], rows[i], MAX_THREADS, fuse != 0), "%s, %d rows: recorded",
                        cases[c].name, (int)rows[i]))
                    continue;
                note_ops(&r);
                for (int t = 0; t < tables; t++) note_overwriting(&r, table[t]);
                check_case(&cases[c], &r, fuse != 0, &unfused);
                op_end(&r);
            }
            drop(&unfused);
        }
    }
}

int main(void) {
    static const int64_t rows[] = {1, 2, 7}, large_rows[] = {1, 33};
    for (int threads = 2; threads <= MAX_THREADS; threads++) team[threads] = mirt__team_create(threads, false);
    check_cases(op_cases, MIRT__COUNT(op_cases), rows, MIRT__COUNT(rows));
    check_every_op_has_a_case();
    check_every_kind_has_a_case();
    check_rows();
    check_families();
    if (!small_tier())
        check_cases(large_cases, MIRT__COUNT(large_cases), large_rows, MIRT__COUNT(large_rows));
    for (int threads = 2; threads <= MAX_THREADS; threads++) mirt__team_destroy(team[threads]);
    return done_testing();
}
