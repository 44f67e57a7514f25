/* Records the launches of one step of a network on a simulated GPU.
 *
 *     MIRT_SIM_SKIP=1 build/sim/launches MODEL train|predict [BATCH [SIZE]] >RECORD
 *
 * Kernels are not computed, so a batch of 256 images takes seconds. tools/occupancy.py reads the record, in lines:
 *
 *     launches MODEL train|predict BATCH SIZE
 *     | the program, as mirrortrain graph prints it, line by line
 *     kernel SYMBOL GRID x y z BLOCK x y z SHARED bytes
 *     product M m N n K k TIMES count         of cuBLAS, column by column
 *     node LINE [KERNEL h w in out IMAGE dtype rows h w c]      ends the launches of that line of the program, from 0
 *     end
 */
#include "sim.h"
#include "../../src/function/fit_program.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char __executable_start;

static int complain(const char *what) {
    fprintf(stderr, "launches: %s: %s\n", what, mirt_last_error());
    return 1;
}

/* >>names of functions: kernels are static, so that only the file's table of symbols has them */

typedef struct symbols {
    char *file;
    const Elf64_Sym *symbol;
    size_t count;
    const char *names;
    uintptr_t base;
} symbols;
static symbols own;

static bool read_symbols(void) {
    FILE *file = fopen("/proc/self/exe", "rb");
    if (!file) return false;
    fseek(file, 0, SEEK_END);
    const size_t size = (size_t)ftell(file);
    rewind(file);
    own.file = (char *)malloc(size);
    const bool good = own.file && fread(own.file, 1, size, file) == size;
    fclose(file);
    if (!good) return false;
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)own.file;
    const Elf64_Shdr *section = (const Elf64_Shdr *)(const void *)(own.file + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB) continue;
        own.symbol = (const Elf64_Sym *)(const void *)(own.file + section[i].sh_offset);
        own.count = section[i].sh_size / sizeof *own.symbol;
        own.names = own.file + section[section[i].sh_link].sh_offset;
    }
    own.base = head->e_type == ET_DYN ? (uintptr_t)&__executable_start : 0;
    return own.count > 0;
}

static const char *name_of(const void *function) {
    for (size_t i = 0; i < own.count; i++) {
        const Elf64_Sym *s = &own.symbol[i];
        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && s->st_value + own.base == (uintptr_t)function)
            return own.names + s->st_name;
    }
    return "?";
}

/* >>lines of the record */

static void saw(const mirt_sim_launch *l) {
    if (l->function)
        printf("kernel %s GRID %u %u %u BLOCK %u %u %u SHARED %zu\n", name_of(l->function), l->grid[0], l->grid[1],
               l->grid[2], l->block[0], l->block[1], l->block[2], l->shared);
    else
        printf("product M %lld N %lld K %lld TIMES %lld\n", (long long)l->m, (long long)l->n, (long long)l->k,
               (long long)l->batch);
}

static void print_shape(const mirt_shape *shape, int64_t rows) {
    for (int i = 0; i < shape->rank; i++) {
        const int64_t dim = shape->dim[i] == MIRT_ROWS ? rows : shape->dim[i];
        printf(" %lld", (long long)dim);
    }
}

static void ran(void *user, const mirt__call *call, int number) {
    const mirt_function *f = *(mirt_function *const *)user;
    const mirt__node *node = call->node;
    int line = 0;
    for (int i = 0; i < number; i++) line += f->step.program.graph.node[i]->op->run != NULL;
    printf("node %d", line);
    /* The image comes first, the kernel is the last of four dimensions that are not rows. */
    const mirt_tensor *kernel = NULL;
    for (int k = 0; k < node->num_in; k++) {
        const mirt_shape *s = &node->in[k]->shape;
        if (s->rank == 4 && s->dim[0] != MIRT_ROWS) kernel = node->in[k];
    }
    if (kernel && node->op->macs && node->a.family == MIRT__FAMILY_window) {
        printf(" KERNEL");
        print_shape(&kernel->shape, call->rows);
        printf(" IMAGE %s", mirt__dtype_name(node->in[0]->dtype));
        print_shape(&node->in[0]->shape, call->rows);
    }
    printf("\n");
}

static void print_program(const mirt_function *f) {
    mirt__text text = {0};
    mirt__program_text(&f->step.program, &text);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) printf("|%s\n", line);
    mirt__text_free(&text);
}

/* >>the step */

static mirt_data batch_of(const mirt_model *model, int64_t rows, bool labels) {
    static mirt_data data;
    mirt_shape x = mirt_tensor_shape(mirt_input_of(model, 0));
    size_t bytes = (size_t)rows;
    for (int i = 1; i < x.rank; i++) bytes *= (size_t)x.dim[i];
    x.dim[0] = rows;
    data.x[0] = mirt_make_array(calloc(bytes, 1), MIRT_UINT8, x);
    if (labels) data.y[0] = mirt_make_array(calloc((size_t)rows, sizeof(int32_t)), MIRT_INT32, MIRT_SHAPE(rows));
    return data;
}

static mirt_status run(mirt_model *model, const mirt_data *data, bool trains) {
    static float *out;
    static size_t size;
    if (trains) return mirt_train_on_batch(model, data, NULL);
    if (!out) {
        mirt_shape y = mirt_tensor_shape(mirt_output_of(model, 0));
        size = (size_t)data->x[0].shape.dim[0] * (size_t)y.dim[1];
        out = (float *)malloc(size * sizeof *out);
    }
    return mirt_predict_on_batch(model, data, &out, &size);
}

static mirt_model *open_model(mirt_strategy *strategy, const char *name, int size, bool trains) {
    mirt_application_desc desc;
    mirt_compile_desc compile;
    memset(&desc, 0, sizeof desc);
    memset(&compile, 0, sizeof compile);
    desc.size = size;
    desc.logits = true;
    desc.preprocessing = MIRT_PREPROCESSING_ON;
    compile.loss = trains ? MIRT_SPARSE_CATEGORICAL_CROSSENTROPY : MIRT_LOSS_NONE;
    compile.from_logits = true;
    mirt_model *model = mirt_application(strategy, name, &desc);
    if (!model || mirt_set_dtype_policy(model, "mixed_bfloat16") != MIRT_OK) return NULL;
    if (!trains) mirt_set_trainable(model, NULL, false);
    return mirt_compile(model, &compile) == MIRT_OK ? model : NULL;
}

int main(int count, char **word) {
    if (count < 3 || (strcmp(word[2], "train") != 0 && strcmp(word[2], "predict") != 0)) {
        fprintf(stderr, "usage: launches MODEL train|predict [BATCH [SIZE]]\n");
        return 2;
    }
    const bool trains = strcmp(word[2], "train") == 0;
    const int rows = count > 3 ? atoi(word[3]) : 256, size = count > 4 ? atoi(word[4]) : 224;
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "gpu:0";
    /* Every step launches its kernels one by one, since nothing is captured. */
    setenv("MIRT_CUDA_GRAPHS", "0", 1);
    if (!read_symbols()) {
        fprintf(stderr, "launches: the program has no table of symbols\n");
        return 1;
    }
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    if (!strategy) return complain("no device");
    mirt_model *model = open_model(strategy, word[1], size, trains);
    if (!model) return complain(word[1]);
    const mirt_data data = batch_of(model, rows, trains);
    /* The first step records the program, and copies weights and constants to the device. */
    if (run(model, &data, trains) != MIRT_OK) return complain("the first step");
    mirt_function *f = model->trainer->function[trains ? MIRT__TRAIN : MIRT__PREDICT];
    printf("launches %s %s %d %d\n", word[1], word[2], rows, size);
    print_program(f);
    f->step.look = ran;
    f->step.look_user = (char *)&f;
    f->step.look_bytes = 0;
    mirt_sim_watch(saw);
    const mirt_status status = run(model, &data, trains);
    mirt_sim_watch(NULL);
    f->step.look = NULL;
    if (status != MIRT_OK) return complain("the second step");
    printf("end\n");
    mirt_strategy_destroy(strategy);
    return 0;
}
