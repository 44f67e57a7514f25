/* The line of progress that fit shows for each epoch. */

#include "trainer.h"

enum { MIRT__BAR = 20, MIRT__SHORTEST_BAR = 5, MIRT__PROGRESS_LINE = 480 };

MIRT__LIB void mirt__progress_epoch(mirt__progress *progress, const mirt_model *model, int epoch, int epochs) {
    progress->terminal = mirt__log_columns(model->strategy) > 0;
    progress->last = 0;
    progress->columns = 0;
    mirt__log(model->strategy, MIRT_LOG_PROGRESS, "Epoch %d/%d", epoch + 1, epochs);
}

/* "1s 2ms/step" as Keras writes it. */
static void mirt__progress_time(char *line, size_t size, double seconds, int64_t steps) {
    double step = seconds / (double)(steps > 0 ? steps : 1);
    mirt__line_add(line, size, " %.0fs %.0f%ss/step", seconds, step * (step >= 1 ? 1 : step >= 1e-3 ? 1e3 : 1e6),
                   step >= 1 ? "" : step >= 1e-3 ? "m" : "u");
}

/* Which logs a line has room for first: the loss, validation, training. -1: it never shows them. */
enum { MIRT__LOG_RANKS = 4 };
static int mirt__log_rank(const char *name) {
    if (strcmp(name, "batch_loss") == 0 || strcmp(name, "learning_rate") == 0) return -1;
    if (strncmp(name, "val_", 4) == 0) return strcmp(name, "val_loss") == 0 ? 1 : 2;
    return strcmp(name, "loss") == 0 ? 0 : 3;
}

static void mirt__progress_log(char *out, size_t size, const mirt_logs *logs, int i) {
    out[0] = 0;
    mirt__line_add(out, size, " - %s: %.4f", mirt__shown(logs->name[i]).text, logs->value[i]);
}

/* What is left of a line. */
typedef struct mirt__line_room {
    int columns;
    size_t bytes;
} mirt__line_room;

/* Whether there is room for the text, which it then takes. */
static bool mirt__line_take(mirt__line_room *room, const char *text) {
    const int columns = mirt__columns(text);
    const size_t bytes = strlen(text);
    if (!bytes || columns > room->columns || bytes > room->bytes) return false;
    room->columns -= columns;
    room->bytes -= bytes;
    return true;
}

MIRT__LIB void mirt__progress_line(mirt__progress *progress, const mirt_model *model, const mirt_event *event,
                                   bool done) {
    char line[MIRT__PROGRESS_LINE] = "", count[64] = "", time[64] = "", wait[64] = "", log[MIRT__SHOWN + 32];
    bool shown[MIRT_MAX_LOGS] = {false};
    /* some terminals wrap at the last column */
    const int width = progress->terminal ? mirt__log_columns(model->strategy) - 1 : INT_MAX;
    double now = mirt__now();
    if (!done && (!progress->terminal || now - progress->last < 0.1)) return;
    progress->last = now;
    if (event->batches < 0) snprintf(count, sizeof count, "%lld/Unknown", (long long)event->batch);
    else snprintf(count, sizeof count, "%lld/%lld", (long long)event->batch, (long long)event->batches);
    mirt__progress_time(time, sizeof time, event->seconds, event->batch);
    if (done && event->input_seconds > 0.02 * event->seconds)
        snprintf(wait, sizeof wait, " - waited for input: %.0f%%", 100 * event->input_seconds / event->seconds);

    /* The bar comes last, as it can be of any length; it is a space and three bytes a column. */
    mirt__line_room room = {width > 0 ? width : 1, sizeof line - 4 - 3 * MIRT__BAR};
    if (!mirt__line_take(&room, count)) count[room.columns] = 0; /* digits */
    bool fits = true;
    for (int rank = 0; rank < MIRT__LOG_RANKS; rank++) {
        for (int i = 0; i < event->logs->count && fits; i++) {
            if (mirt__log_rank(event->logs->name[i]) != rank) continue;
            mirt__progress_log(log, sizeof log, event->logs, i);
            shown[i] = fits = mirt__line_take(&room, log);
        }
    }
    const bool timed = mirt__line_take(&room, time);
    const int left = room.columns - 1 - mirt__columns(wait), bar = left < MIRT__BAR ? room.columns - 1 : MIRT__BAR;
    mirt__line_add(line, sizeof line, "%s%s", progress->terminal ? "\r" : "", count);
    if (bar >= MIRT__SHORTEST_BAR) {
        mirt__line_add(line, sizeof line, " ");
        const int length = bar < MIRT__BAR ? bar : MIRT__BAR;
        const int64_t full = event->batches > 0 ? length * event->batch / event->batches : length;
        for (int i = 0; i < length; i++) mirt__line_add(line, sizeof line, "%s", i < full ? "\xe2\x94\x81" : " ");
    }
    if (timed) mirt__line_add(line, sizeof line, "%s", time);
    for (int i = 0; i < event->logs->count; i++) {
        if (!shown[i]) continue;
        mirt__progress_log(log, sizeof log, event->logs, i);
        mirt__line_add(line, sizeof line, "%s", log);
    }
    if (left >= MIRT__BAR && mirt__line_take(&room, wait)) mirt__line_add(line, sizeof line, "%s", wait);
    if (progress->terminal) {
        const int columns = mirt__columns(line + 1),
                  rest = (progress->columns < width ? progress->columns : width) - columns;
        progress->columns = columns;
        if (rest > 0) mirt__line_add(line, sizeof line - 1, "%*s", rest, ""); /* over what the last line had there */
        if (done) mirt__line_add(line, sizeof line, "\n");
    }
    mirt__log(model->strategy, MIRT_LOG_PROGRESS, "%s", line);
}
