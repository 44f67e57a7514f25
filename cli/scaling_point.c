/* One point of mirrortrain scaling: trains for a while and measures. */
#include "posix.h"
#include "scaling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 3, DEFAULT_SECONDS = 2, LEAST_INTERVALS = 8, MOST_INTERVALS = 10000 };

/* The photographs of --data, decoded anew in every pass. */
static mirt_dataset *open_photos(const options *o, int height, int width) {
    char train[MAX_PHOTO_PATH];
    mirt_image_directory_desc desc;
    describe_images(o, height, width, &desc);
    desc.log = log_nothing;
    return open_photographs(photo_part(o->data, &desc, MIRT_SUBSET_TRAINING, train), &desc);
}

/* An endless stream of samples: rotated and zoomed digits, or photographs; generated, or those of --data. *images: of
   an epoch. */
static mirt_dataset *open_input(const options *o, const mirt_model *model, const point *p, int64_t *images) {
    static const char *const turns = "rotation:0.05,zoom:0.1";
    mirt_augmentation list[MAX_AUGMENTATIONS];
    mirt_dataset *dataset;
    if (is_for_digits(o)) {
        int count = mirt_parse_augmentation(turns, list, MAX_AUGMENTATIONS);
        dataset = o->data ? mirt_mnist(o->data, MIRT_TRAIN) : mirt_drawn_digits(4096, 0, MIRT_TRAIN);
        dataset = mirt_augment(mirt_cache(dataset), list, count < 0 ? 0 : count);
    } else {
        mirt_shape x = mirt_tensor_shape(mirt_input_of(model, 0));
        const int height = (int)x.dim[1], width = (int)x.dim[2];
        dataset = o->data ? open_photos(o, height, width) : mirt_drawn_photos(4096, height, width, 0, MIRT_TRAIN);
    }
    *images = o->data ? mirt_dataset_size(dataset) : is_for_digits(o) ? DIGITS : PHOTOS;
    dataset = mirt_batch(mirt_repeat(dataset, 0), p->batch);
    return p->prefetch ? mirt_prefetch(dataset, MIRT_AUTOTUNE) : dataset;
}

/* Steps of the next fit; 0: the last one was long enough. */
static int64_t steps_after(const options *o, int64_t steps, double seconds) {
    const double wanted = (double)(o->seconds ? o->seconds : DEFAULT_SECONDS), most = 1e9;
    if (seconds >= wanted / 2 || (double)steps >= most) return 0;
    const double more = wanted / (seconds > 0 ? seconds : wanted / 8);
    return (int64_t)ceil((double)steps * (more < 8 ? more : 8));
}

/* Runs a fit to warm up and then longer and longer ones, of which the last one counts; sets *steps to its steps. No
   callback ends a fit by time, because GPUs would wait for the callback before the next batch is read. Processes have
   clocks of their own: the first one decides. False after complaining. */
static bool measure(const options *o, const point *p, mirt_model *model, mirt_dataset *dataset, int64_t *steps,
                    mirt_timing *out) {
    mirt_fit_desc desc;
    int64_t next = WARM_UP;
    memset(&desc, 0, sizeof desc);
    desc.no_progress = true;
    desc.feature_cache_bytes = -1;
    desc.steps_per_epoch = WARM_UP;
    const mirt_history *history = mirt_fit(model, dataset, &desc);
    while (history && next) {
        *steps = desc.steps_per_epoch = next;
        history = mirt_fit(model, dataset, &desc);
        if (history) next = steps_after(o, *steps, history->seconds);
        if (history && p->processes > 1 && !tell_processes(&next, sizeof next, p->processes)) return false;
    }
    if (history && mirt_fit_timing(model, out) == MIRT_OK) return true;
    complain_of_library();
    return false;
}

/* >>single steps */

/* When steps ended. */
typedef struct clock_marks {
    double *at;
    int64_t count;
} clock_marks;

static int mark_step(const mirt_event *event, void *user) {
    clock_marks *marks = (clock_marks *)user;
    (void)event;
    marks->at[marks->count++] = seconds_now();
    return 0;
}

static double percentile(const double *sorted, int64_t count, int percent) {
    return sorted[(count - 1) * percent / 100];
}

/* Turns marks into the times between them. */
static step_spread spread_of(clock_marks *marks) {
    step_spread s;
    double sum = 0, squares = 0;
    memset(&s, 0, sizeof s);
    const int64_t n = s.steps = marks->count - 1;
    if (n < 2) return s;
    for (int64_t i = 0; i < n; i++) sum += marks->at[i] = marks->at[i + 1] - marks->at[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (marks->at[i] - mean) * (marks->at[i] - mean);
    qsort(marks->at, (size_t)n, sizeof *marks->at, by_size);
    s.deviation = sqrt(squares / (double)(n - 1)) / mean;
    const double median = percentile(marks->at, n, 50);
    s.usual = (percentile(marks->at, n, 84) - percentile(marks->at, n, 16)) / 2 / median;
    s.tail = percentile(marks->at, n, 95) / median;
    return s;
}

/* A fit of about `steps` whose steps are timed one by one. False after complaining. */
static bool measure_spread(mirt_model *model, mirt_dataset *dataset, int64_t steps, step_spread *out) {
    const int64_t most = steps < LEAST_INTERVALS ? LEAST_INTERVALS : steps < MOST_INTERVALS ? steps : MOST_INTERVALS;
    clock_marks marks = {(double *)malloc((size_t)(most + 1) * sizeof(double)), 0};
    mirt_callback callback;
    mirt_fit_desc desc;
    if (!marks.at) {
        complain("out of memory");
        return false;
    }
    memset(&callback, 0, sizeof callback);
    memset(&desc, 0, sizeof desc);
    callback.batch_end = mark_step;
    callback.user = &marks;
    desc.callbacks[0] = &callback;
    desc.no_progress = true;
    desc.feature_cache_bytes = -1;
    desc.steps_per_epoch = most + 1;
    const bool good = mirt_fit(model, dataset, &desc) != NULL;
    if (good) *out = spread_of(&marks);
    else complain_of_library();
    free(marks.at);
    return good;
}

/* >>the point */

static double gradient_bytes(const mirt_model *model) {
    double bytes = 0;
    mirt_weight_info info;
    for (int i = 0; i < mirt_num_weights(model); i++) {
        if (mirt_weight(model, i, &info) == MIRT_OK && info.trainable) bytes += (double)info.count * sizeof(float);
    }
    return bytes;
}

static int measure_model(const options *o, const point *p, mirt_model *model, answer *out) {
    mirt_compile_desc desc;
    int64_t steps = 0;
    memset(&desc, 0, sizeof desc);
    desc.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    desc.from_logits = true;
    mirt_dataset *dataset = mirt_compile(model, &desc) == MIRT_OK ? open_input(o, model, p, &out->images) : NULL;
    if (!dataset) return complain_of_library();
    out->bytes = gradient_bytes(model);
    const bool good = measure(o, p, model, dataset, &steps, &out->timing) &&
                      (!p->spread || measure_spread(model, dataset, steps, &out->spread));
    mirt_dataset_destroy(dataset);
    return good ? EXIT_OK : EXIT_FAILED;
}

int run_point(const options *given, const point *p, answer *out) {
    char devices[16];
    options own = *given;
    int status = EXIT_FAILED;
    snprintf(devices, sizeof devices, "%d", p->devices);
    if (p->devices) own.devices = devices;
    own.threads = p->threads;
    mirt_strategy *strategy = open_strategy(&own, true, &status);
    mirt_model *model = strategy ? build_model(strategy, &own, &status) : NULL;
    if (model) status = measure_model(&own, p, model, out);
    mirt_strategy_destroy(strategy);
    return status;
}

double step_of(const answer *a) { return a->timing.steps ? a->timing.wall / (double)a->timing.steps : 0; }
