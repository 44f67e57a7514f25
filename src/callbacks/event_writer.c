/* TensorBoard's event files for custom loops. */

#include "../formats/tfevents.h"

struct mirt_event_writer {
    mirt__events events;
};

MIRT_API mirt_event_writer *mirt_event_writer_create(const char *log_dir) {
    MIRT__ENTER;
    if (!log_dir) {
        mirt__fail(MIRT_E_INVALID, "mirt_event_writer_create: the directory is missing");
        return NULL;
    }
    mirt_event_writer *writer = (mirt_event_writer *)mirt__calloc(1, sizeof *writer);
    if (writer && mirt__events_open(&writer->events, log_dir, NULL, 0) != MIRT_OK) {
        mirt__free(writer);
        return NULL;
    }
    return writer;
}

MIRT_API void mirt_event_writer_destroy(mirt_event_writer *writer) {
    MIRT__ENTER;
    if (writer) mirt__events_close(&writer->events);
    mirt__free(writer);
}

static mirt_status mirt__event_writer_check(const char *caller, const mirt_event_writer *writer, const char *tag,
                                            const void *what) {
    return writer && tag && what ? MIRT_OK : mirt__fail_missing(caller, !writer ? "writer" : !tag ? "tag" : "value");
}

MIRT_API mirt_status mirt_write_scalar(mirt_event_writer *writer, const char *tag, double value, int64_t step) {
    MIRT__ENTER;
    if (mirt__event_writer_check("mirt_write_scalar", writer, tag, "") != MIRT_OK) return mirt_last_status();
    return mirt__events_scalar(&writer->events, step, tag, value);
}

MIRT_API mirt_status mirt_write_text(mirt_event_writer *writer, const char *tag, const char *text, int64_t step) {
    MIRT__ENTER;
    if (mirt__event_writer_check("mirt_write_text", writer, tag, text) != MIRT_OK) return mirt_last_status();
    return mirt__events_text(&writer->events, step, tag, text);
}

MIRT_API mirt_status mirt_write_histogram(mirt_event_writer *writer, const char *tag, const float *values,
                                          int64_t count, int64_t step) {
    MIRT__ENTER;
    if (mirt__event_writer_check("mirt_write_histogram", writer, tag, values) != MIRT_OK) return mirt_last_status();
    if (count < 0)
        return mirt__fail(MIRT_E_INVALID, "mirt_write_histogram: invalid number of values (%lld)", (long long)count);
    mirt__real *copy = (mirt__real *)mirt__calloc((size_t)count, sizeof *copy);
    if (!copy) return mirt_last_status();
    for (int64_t i = 0; i < count; i++) copy[i] = values[i];
    const mirt_status status = mirt__events_histogram(&writer->events, step, tag, copy, count);
    mirt__free(copy);
    return status;
}

MIRT_API mirt_status mirt_write_images(mirt_event_writer *writer, const char *tag, mirt_array images, int columns,
                                       int64_t step) {
    MIRT__ENTER;
    if (mirt__event_writer_check("mirt_write_images", writer, tag, images.data) != MIRT_OK) return mirt_last_status();
    return mirt__events_image(&writer->events, step, tag, &images, columns);
}
