#include "trainer.h"

#define MIRT__BAR 20

MIRT__LIB void mirt__progress_epoch(mirt__progress *progress, const mirt_model *model, int epoch, int epochs) {
    progress->terminal = mirt__log_is_terminal(model->strategy);
    progress->last = 0;
    mirt__log(model->strategy, MIRT_LOG_PROGRESS, "Epoch %d/%d", epoch + 1, epochs);
}

/* Appends to a line of `size` bytes; what does not fit is cut. */
MIRT__PRINTF(3, 4) static void mirt__line_add(char *line, size_t size, const char *format, ...) {
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, size - used, format, args);
    va_end(args);
}

/* "1s 2ms/step" as Keras writes it. */
static void mirt__progress_time(char *line, size_t size, double seconds, int64_t steps) {
    double step = seconds / (double)(steps > 0 ? steps : 1);
    mirt__line_add(line, size, " %.0fs ", seconds);
    if (step >= 1) mirt__line_add(line, size, "%.0fs/step", step);
    else if (step >= 1e-3) mirt__line_add(line, size, "%.0fms/step", step * 1e3);
    else mirt__line_add(line, size, "%.0fus/step", step * 1e6);
}

static void mirt__progress_bar(char *line, size_t size, int64_t done, int64_t all) {
    int64_t full = all > 0 ? MIRT__BAR * done / all : MIRT__BAR;
    for (int i = 0; i < MIRT__BAR; i++) mirt__line_add(line, size, "%s", i < full ? "\xe2\x94\x81" : " ");
}

MIRT__LIB void mirt__progress_line(mirt__progress *progress, const mirt_model *model, const mirt_event *event, bool done) {
    char line[480] = "", shown[MIRT__SHOWN];
    double now = mirt__now();
    if (!done && (!progress->terminal || now - progress->last < 0.1)) return;
    progress->last = now;
    mirt__line_add(line, sizeof line, "%s%lld/", progress->terminal ? "\r" : "", (long long)event->batch);
    if (event->batches < 0) mirt__line_add(line, sizeof line, "Unknown ");
    else mirt__line_add(line, sizeof line, "%lld ", (long long)event->batches);
    mirt__progress_bar(line, sizeof line, event->batch, event->batches);
    mirt__progress_time(line, sizeof line, event->seconds, event->batch);
    for (int i = 0; i < event->logs->count; i++) {
        const char *name = event->logs->name[i];
        if (strcmp(name, "batch_loss") == 0 || strcmp(name, "learning_rate") == 0) continue;
        mirt__line_add(line, sizeof line, " - %s: %.4f", mirt__shown(name, shown), event->logs->value[i]);
    }
    if (done && event->input_seconds > 0.02 * event->seconds)
        mirt__line_add(line, sizeof line, " - waited for input: %.0f%%", 100 * event->input_seconds / event->seconds);
    if (progress->terminal && done) mirt__line_add(line, sizeof line, "\n");
    mirt__log(model->strategy, MIRT_LOG_PROGRESS, "%s", line);
}
