#include "../formats/tfevents.h"
#include "../checkpoint/run_state.h"
#include "../inspect/timeline.h"
#include "../nn/config.h"
#include "../function/fit_program.h"
#include "callbacks.h"
/* TensorBoard: writes scalars, histograms and images of a training into event files. */

/* Each of these directories contains one event file. */
enum { MIRT__BOARD_ROOT, MIRT__BOARD_TRAIN, MIRT__BOARD_VALIDATION, MIRT__BOARD_FILES };
static const char *const mirt__board_directory[MIRT__BOARD_FILES] = {"", "/train", "/validation"};

typedef struct mirt__tensorboard {
    mirt__readymade ready;
    mirt_tensorboard_desc desc; /* log_dir is a copy */
    char *log_dir;
    char *name[MIRT__BOARD_FILES];     /* names of files */
    int64_t length[MIRT__BOARD_FILES]; /* lengths of files; checkpoints store both */
    mirt__events events[MIRT__BOARD_FILES];
    bool open[MIRT__BOARD_FILES];
    mirt__text tag;
    mirt__usage use;
} mirt__tensorboard;

/* A file that is truncated and continued must be an event file in the directory. */
static bool mirt__board_name_valid(const char *name) {
    static const char begin[] = "events.out.tfevents.";
    return !*name || (strncmp(name, begin, sizeof begin - 1) == 0 && !strchr(name, '/'));
}

static const mirt__state_field mirt__tensorboard_fields[] = {
#define MIRT__BOARD_STATE(prefix, number) \
    {prefix "_file",        MIRT__STATE_TEXT, offsetof(mirt__tensorboard, name) + (number) * sizeof(char *), 0, 0, \
     mirt__board_name_valid}, \
    { \
        prefix "_length", MIRT__STATE_INT64, offsetof(mirt__tensorboard, length) + (number) * sizeof(int64_t), 0, \
            (int64_t)1 << 53, NULL \
    }
    MIRT__BOARD_STATE("root", MIRT__BOARD_ROOT),
    MIRT__BOARD_STATE("train", MIRT__BOARD_TRAIN),
    MIRT__BOARD_STATE("validation", MIRT__BOARD_VALIDATION),
#undef MIRT__BOARD_STATE
};

/* The text "a" "b" "c", until the next one is made; NULL with the error set. */
static const char *mirt__board_tag(mirt__tensorboard *self, const char *a, const char *b, const char *c) {
    mirt__text_clear(&self->tag);
    mirt__text_add(&self->tag, "%s%s%s", a, b, c);
    return self->tag.failed ? NULL : self->tag.data;
}

/* The file, which is created on first use; NULL with the error set. */
static mirt__events *mirt__board_file(mirt__tensorboard *self, int which) {
    mirt__events *e = &self->events[which];
    if (self->open[which]) return e;
    const char *directory = mirt__board_tag(self, self->log_dir, mirt__board_directory[which], ""),
               *name = self->name[which] && *self->name[which] ? self->name[which] : NULL;
    if (!directory || mirt__events_open(e, directory, name, self->length[which]) != MIRT_OK) return NULL;
    self->open[which] = true;
    if (name) return e;
    mirt__free(self->name[which]);
    self->name[which] = mirt__strdup(e->name);
    return self->name[which] ? e : NULL;
}

/* Writes a scalar named "prefix" "name" "suffix". */
static mirt_status mirt__board_scalar(mirt__tensorboard *self, int which, const char *prefix, const char *name,
                                      const char *suffix, int64_t step, double value) {
    mirt__events *e = mirt__board_file(self, which);
    const char *tag = e ? mirt__board_tag(self, prefix, name, suffix) : NULL;
    return tag ? mirt__events_scalar(e, step, tag, value) : mirt_last_status();
}

/* >>train begin: graph, hyper-parameters */

static mirt_status mirt__board_graph(mirt__tensorboard *self, mirt_model *model) {
    mirt__pool pool = {NULL};
    mirt__text text = {NULL, 0, 0, false};
    mirt__events *e = mirt__board_file(self, MIRT__BOARD_TRAIN);
    mirt_status status = e ? mirt__architecture_write(model, &text) : mirt_last_status();
    if (status == MIRT_OK) {
        const mirt__json *json = mirt__json_parse(&pool, text.data, text.size);
        status = json ? mirt__events_graph(e, json) : mirt_last_status();
    }
    mirt__text_free(&text);
    mirt__pool_free(&pool);
    return status;
}

static mirt_status mirt__board_hparams(mirt__tensorboard *self, const mirt_event *event) {
    const mirt_model *model = event->model;
    const char *names[MIRT_MAX_LOGS], *metric[MIRT_MAX_LOGS];
    const mirt__hparam hparam[] = {
        {"model", model->name, 0},
        {"optimizer", mirt__optimizers_name(&model->config), 0},
        {"learning_rate", NULL, mirt_get_learning_rate(model)},
        {"dtype", mirt__policy_name(model->policy), 0},
        {"batch_size", NULL, (double)event->batch_size},
        {"epochs", NULL, (double)event->epochs},
        {"seed", NULL, (double)model->strategy->seed},
        {"devices", NULL, (double)model->strategy->all_devices},
        {"replicas", NULL, (double)mirt_num_replicas(model->strategy)},
    };
    mirt__events *e = mirt__board_file(self, MIRT__BOARD_ROOT);
    mirt__pool pool = {NULL};
    const int count = mirt__log_names(model, false, names) - 1; /* the last is the learning rate */
    if (!e) return mirt_last_status();
    mirt_status status = MIRT_OK;
    for (int i = 0; i < count && status == MIRT_OK; i++) {
        const size_t size = strlen(names[i]) + 7;
        char *tag = (char *)mirt__pool_alloc(&pool, size);
        if (tag) snprintf(tag, size, "epoch_%s", names[i]);
        else status = mirt_last_status();
        metric[i] = tag;
    }
    if (status == MIRT_OK)
        status = mirt__events_hparams(e, hparam, MIRT__COUNT(hparam), metric, count,
                                      event->validation ? "validation" : "train");
    const char *environment = status == MIRT_OK ? mirt_environment(model->strategy) : NULL;
    if (status == MIRT_OK)
        status = environment ? mirt__events_text(e, 0, "environment", environment) : mirt_last_status();
    mirt__pool_free(&pool);
    return status;
}

static mirt_status mirt__board_close(mirt__tensorboard *self) {
    mirt_status status = MIRT_OK;
    for (int i = 0; i < MIRT__BOARD_FILES; i++) {
        if (self->open[i] && mirt__events_close(&self->events[i]) != MIRT_OK) status = mirt_last_status();
        self->open[i] = false;
    }
    return status;
}

static mirt_status mirt__board_begin(mirt__tensorboard *self, const mirt_event *event) {
    const bool resumed = self->ready.loaded;
    mirt__usage_begin(&self->use, mirt__run_images(event->model));
    self->ready.loaded = false;
    if (mirt__board_close(self) != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < MIRT__BOARD_FILES && !resumed; i++) {
        mirt__free(self->name[i]);
        self->name[i] = NULL;
        self->length[i] = 0;
    }
    /* Create the file now, so that errors are reported before training. */
    if (!mirt__board_file(self, MIRT__BOARD_TRAIN) ||
        (event->validation && !mirt__board_file(self, MIRT__BOARD_VALIDATION)))
        return mirt_last_status();
    if (resumed) return MIRT_OK;
    if (!self->desc.no_graph && mirt__board_graph(self, event->model) != MIRT_OK) return mirt_last_status();
    return mirt__board_hparams(self, event);
}

/* The last step of every function. */
static int mirt__board_done(mirt__tensorboard *self, mirt_status status) {
    for (int i = 0; i < MIRT__BOARD_FILES; i++) {
        if (self->open[i]) self->length[i] = (int64_t)self->events[i].file.size;
    }
    return mirt__callback_result(status);
}

static int mirt__board_train_begin(const mirt_event *event, void *user) {
    mirt__tensorboard *self = (mirt__tensorboard *)user;
    return mirt__board_done(self, mirt__board_begin(self, event));
}

/* >>scalars */

/* What devices did since the last time, over steps: a scalar for each quantity and device. */
static mirt_status mirt__board_use(mirt__tensorboard *self, const mirt_model *model) {
    mirt_status status = MIRT_OK;
    const int64_t step = model->step;
    if (!mirt__usage_take(&self->use, model, mirt__run_images(model))) return MIRT_OK;
    for (int d = 0; d < self->use.num_devices; d++) {
        const mirt__device_usage *own = &self->use.device[d];
        const struct {
            const char *prefix;
            double value; /* negative: not known */
        } all[] = {{"device_busy/", own->busy},
                   {"device_input_wait/", own->input},
                   {"device_memory/", (double)own->bytes},
                   {"driver_utilization/", own->gauges.utilization},
                   {"driver_memory/", own->gauges.memory},
                   {"driver_watts/", own->gauges.watts}};
        for (int i = 0; i < MIRT__COUNT(all) && status == MIRT_OK; i++) {
            if (all[i].value >= 0)
                status = mirt__board_scalar(self, MIRT__BOARD_TRAIN, all[i].prefix, own->name, "", step, all[i].value);
        }
    }
    if (status == MIRT_OK && self->use.resident)
        status = mirt__board_scalar(self, MIRT__BOARD_TRAIN, "process_memory", "", "", step,
                                    (double)self->use.resident);
    return status;
}

static int mirt__board_batch_end(const mirt_event *event, void *user) {
    mirt__tensorboard *self = (mirt__tensorboard *)user;
    mirt_status status = MIRT_OK;
    if (!self->desc.update_freq || (event->step + 1) % self->desc.update_freq != 0) return 0;
    for (int i = 0; i < event->logs->count && status == MIRT_OK; i++) {
        if (strcmp(event->logs->name[i], "batch_loss") == 0) continue; /* Keras's "batch_loss" is the mean up to now */
        status = mirt__board_scalar(self, MIRT__BOARD_TRAIN, "batch_", event->logs->name[i], "", event->step + 1,
                                    event->logs->value[i]);
    }
    if (status == MIRT_OK && mirt__usage_due(&self->use)) status = mirt__board_use(self, event->model);
    return mirt__board_done(self, status);
}

/* Logs of validation go into their own file, without "val_". */
static mirt_status mirt__board_logs(mirt__tensorboard *self, const mirt_logs *logs, bool all, const char *prefix,
                                    const char *suffix, int64_t step) {
    mirt_status status = MIRT_OK;
    for (int i = 0; i < logs->count && status == MIRT_OK; i++) {
        const bool validation = strncmp(logs->name[i], "val_", 4) == 0;
        if (validation || all)
            status = mirt__board_scalar(self, validation ? MIRT__BOARD_VALIDATION : MIRT__BOARD_TRAIN, prefix,
                                        logs->name[i] + (validation ? 4 : 0), suffix, step, logs->value[i]);
    }
    return status;
}

static int mirt__board_test_end(const mirt_event *event, void *user) {
    mirt__tensorboard *self = (mirt__tensorboard *)user;
    return mirt__board_done(
        self, mirt__board_logs(self, event->logs, false, "evaluation_", "_vs_iterations", mirt_step(event->model)));
}

/* >>weights */

/* Weights as pixels, with the kernels of a convolution side by side: (count, height, width, 1). */
typedef struct mirt__weight_image {
    int64_t count, height, width;
    int64_t step[3]; /* strides of kernels, rows and columns in the weights */
    int columns;
} mirt__weight_image;

#define MIRT__BOARD_KERNELS 64
static bool mirt__weight_image_of(const mirt_shape *s, mirt__weight_image *out) {
    memset(out, 0, sizeof *out);
    out->count = out->height = out->columns = 1;
    if (s->rank == 1) {
        out->width = s->dim[0];
        out->step[2] = 1;
    } else if (s->rank == 2) { /* as a horizontal row */
        const int tall = s->dim[0] > s->dim[1];
        out->height = s->dim[tall];
        out->width = s->dim[!tall];
        out->step[1] = tall ? 1 : s->dim[1];
        out->step[2] = tall ? s->dim[1] : 1;
    } else if (s->rank == 4) { /* only the first channels */
        const int64_t kernels = s->dim[2] * s->dim[3];
        out->count = kernels < MIRT__BOARD_KERNELS ? kernels : MIRT__BOARD_KERNELS;
        out->height = s->dim[0];
        out->width = s->dim[1];
        out->step[0] = 1;
        out->step[1] = s->dim[1] * kernels;
        out->step[2] = kernels;
        out->columns = 8;
    } else {
        return false;
    }
    return out->height <= 4096 && out->width <= 4096;
}

static mirt_status mirt__board_picture(mirt__events *e, int64_t epoch, const char *tag, const mirt__variable *v,
                                       const mirt__real *weights) {
    mirt__weight_image w;
    double least = DBL_MAX, most = -DBL_MAX;
    if (!mirt__weight_image_of(&v->shape, &w)) return MIRT_OK;
    unsigned char *pixels = (unsigned char *)mirt__aligned_alloc((size_t)(w.count * w.height * w.width));
    if (!pixels) return mirt_last_status();
    for (int64_t i = 0; i < v->count; i++) {
        if ((double)weights[i] < least) least = (double)weights[i];
        if ((double)weights[i] > most) most = (double)weights[i];
    }
    unsigned char *at = pixels;
    for (int64_t k = 0; k < w.count; k++) {
        for (int64_t y = 0; y < w.height; y++) {
            for (int64_t x = 0; x < w.width; x++) {
                const double value = (double)weights[k * w.step[0] + y * w.step[1] + x * w.step[2]],
                             share = most > least ? (value - least) / (most - least) : 0.5;
                *at++ = (unsigned char)(share >= 0 && share <= 1 ? 255 * share + 0.5 : 0);
            }
        }
    }
    const mirt_array image = mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(w.count, w.height, w.width, 1));
    mirt_status status = mirt__events_image(e, epoch, tag, &image, w.columns);
    mirt__aligned_free(pixels);
    return status;
}

static mirt_status mirt__board_weights(mirt__tensorboard *self, const mirt_event *event) {
    mirt__events *e = mirt__board_file(self, MIRT__BOARD_TRAIN);
    mirt_status status = e ? MIRT_OK : mirt_last_status();
    for (int i = 0; i < event->model->num_variables && status == MIRT_OK; i++) {
        const mirt__variable *v = &event->model->variable[i];
        const mirt__real *weights = mirt__weight_at(event->model, i);
        for (int picture = 0; picture <= self->desc.write_images && status == MIRT_OK; picture++) {
            const char *tag = mirt__board_tag(self, v->name, "/", picture ? "image" : "histogram");
            status = !tag      ? mirt_last_status()
                     : picture ? mirt__board_picture(e, event->epoch, tag, v, weights)
                               : mirt__events_histogram(e, event->epoch, tag, weights, v->count);
        }
    }
    return status;
}

static int mirt__board_epoch_end(const mirt_event *event, void *user) {
    mirt__tensorboard *self = (mirt__tensorboard *)user;
    mirt_status status = mirt__board_logs(self, event->logs, true, "epoch_", "", event->epoch);
    if (status == MIRT_OK) status = mirt__board_use(self, event->model);
    if (status == MIRT_OK && self->desc.histogram_freq && event->epoch % self->desc.histogram_freq == 0)
        status = mirt__board_weights(self, event);
    return mirt__board_done(self, status);
}

static int mirt__board_train_end(const mirt_event *event, void *user) {
    (void)event;
    return mirt__callback_result(mirt__board_close((mirt__tensorboard *)user));
}

static mirt_status mirt__board_sync(mirt__readymade *ready) {
    mirt__tensorboard *self = (mirt__tensorboard *)ready;
    for (int i = 0; i < MIRT__BOARD_FILES; i++) {
        if (self->open[i] && mirt__append_sync(&self->events[i].file) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

static void mirt__board_release(mirt__readymade *ready) {
    mirt__tensorboard *self = (mirt__tensorboard *)ready;
    mirt__board_close(self);
    mirt__text_free(&self->tag);
    mirt__free(self->log_dir);
}

MIRT_API mirt_callback *mirt_tensorboard(const mirt_tensorboard_desc *desc) {
    MIRT__ENTER;
    mirt_tensorboard_desc defaults;
    memset(&defaults, 0, sizeof defaults);
    if (!desc) desc = &defaults;
    if (desc->update_freq < 0 || desc->histogram_freq < 0) {
        mirt__fail(MIRT_E_INVALID, "mirt_tensorboard: update_freq %lld and histogram_freq %d must not be negative",
                   (long long)desc->update_freq, desc->histogram_freq);
        return NULL;
    }
    mirt__tensorboard *self = (mirt__tensorboard *)mirt__ready_new(sizeof *self, "tensorboard",
                                                                   MIRT__FIELDS(mirt__tensorboard_fields));
    if (!self) return NULL;
    mirt_callback *base = &self->ready.base;
    self->desc = *desc;
    self->ready.every = self->desc.update_freq;
    self->ready.release = mirt__board_release;
    self->ready.sync = mirt__board_sync;
    self->ready.logs = true;
    base->train_begin = mirt__board_train_begin;
    base->batch_end = mirt__board_batch_end;
    base->test_end = mirt__board_test_end;
    base->epoch_end = mirt__board_epoch_end;
    base->train_end = mirt__board_train_end;
    if ((self->log_dir = mirt__strdup(desc->log_dir ? desc->log_dir : "logs"))) return base;
    mirt_callback_destroy(base);
    return NULL;
}

#undef MIRT__BOARD_KERNELS
