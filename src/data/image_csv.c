/* Reads lists of image files and labels from CSV files. */

#include "../base/file.h"
#include "image_files.h"

typedef struct mirt__csv {
    const char *path, *at, *end;
    long line;
    bool labels; /* required */
    mirt__text field[2], file;
} mirt__csv;

static mirt_status mirt__csv_fail(const mirt__csv *csv, const char *what) {
    return mirt__fail(MIRT_E_FORMAT, "%s, line %ld: %s", csv->path, csv->line, what);
}

/* Reads one field, up to a comma or the end of the line, which it does not consume. */
static mirt_status mirt__csv_field(mirt__csv *csv, mirt__text *out) {
    while (csv->at < csv->end && *csv->at == ' ') csv->at++;
    bool quoted = csv->at < csv->end && *csv->at == '"';
    mirt__text_clear(out);
    mirt__text_add(out, "%s", "");
    if (quoted) csv->at++;
    while (csv->at < csv->end && (quoted || (*csv->at != ',' && *csv->at != '\n'))) {
        if (quoted && *csv->at == '"') {
            quoted = csv->at + 1 < csv->end && csv->at[1] == '"'; /* two quotes inside of quotes mean one */
            if (!quoted) {
                csv->at++;
                break;
            }
            csv->at++;
        }
        if (*csv->at == 0 || (quoted && *csv->at == '\n'))
            return mirt__csv_fail(csv, *csv->at ? "a quote is not closed" : "a zero byte: this is not a text file");
        mirt__text_add_bytes(out, csv->at++, 1);
    }
    if (quoted) return mirt__csv_fail(csv, "a quote is not closed");
    while (csv->at < csv->end && (*csv->at == '\r' || *csv->at == ' ')) csv->at++;
    while (out->size && !out->failed && (out->data[out->size - 1] == '\r' || out->data[out->size - 1] == ' '))
        out->data[--out->size] = 0;
    return out->failed ? MIRT_E_NOMEM : MIRT_OK;
}

/* Reads the next line that is not empty; *got is false at the end. */
static mirt_status mirt__csv_next(mirt__csv *csv, bool *got) {
    for (*got = false; !*got && csv->at < csv->end; csv->line++) {
        mirt_status status = mirt__csv_field(csv, &csv->field[0]);
        bool comma = csv->at < csv->end && *csv->at == ',';
        if (comma) csv->at++;
        if (status == MIRT_OK) status = mirt__csv_field(csv, &csv->field[1]);
        if (status != MIRT_OK) return status;
        if (csv->at < csv->end && *csv->at != '\n')
            return mirt__csv_fail(csv, "more than a path and a label: a path with a comma needs double quotes");
        if (csv->labels && csv->field[0].size && !csv->field[1].size)
            return mirt__csv_fail(csv, "no label: lines must be path,label");
        *got = csv->field[0].size > 0;
        if (csv->at < csv->end) csv->at++;
    }
    return MIRT_OK;
}

/* A path relative to the list, or an absolute one, until the next call; NULL with the error set. */
static const char *mirt__csv_path(mirt__csv *csv) {
    const char *name = csv->field[0].data, *slash = strrchr(csv->path, '/');
    mirt__text_clear(&csv->file);
    if (*name != '/' && slash) mirt__text_add_bytes(&csv->file, csv->path, (size_t)(slash - csv->path) + 1);
    mirt__text_add_bytes(&csv->file, name, strlen(name));
    return csv->file.failed ? NULL : csv->file.data;
}

/* Compares numbers by value, names by bytes. */
static int mirt__csv_compare(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    bool numbers = *x && *y && x[strspn(x, "0123456789")] == 0 && y[strspn(y, "0123456789")] == 0;
    if (numbers && strlen(x) != strlen(y)) return strlen(x) < strlen(y) ? -1 : 1;
    return strcmp(x, y);
}

/* Converts the label names, one per file, to numbers. */
static mirt_status mirt__csv_classes(mirt__image_list *list, const mirt__csv *csv, const char **name,
                                     const mirt_image_directory_desc *desc) {
    int64_t count = 0;
    const size_t bytes = (size_t)list->count * sizeof(char *);
    const char **sorted = (const char **)mirt__pool_alloc(&list->pool, bytes);
    if (!sorted) return MIRT_E_NOMEM;
    memcpy((void *)sorted, (const void *)name, bytes);
    qsort((void *)sorted, (size_t)list->count, sizeof(char *), mirt__csv_compare);
    for (int64_t i = 0; i < list->count; i++) {
        if (i == 0 || strcmp(sorted[i], sorted[count - 1]) != 0) sorted[count++] = sorted[i];
    }
    mirt_status status = mirt__image_list_set_classes(list, desc->class_names ? desc->class_names : sorted,
                                                      desc->class_names ? desc->num_class_names : (int)count);
    for (int64_t i = 0; i < list->count && status == MIRT_OK; i++) {
        int k = 0;
        if (desc->class_names) {
            while (k < list->num_classes && strcmp(name[i], list->classes[k]) != 0) k++;
        } else {
            const char **found = (const char **)bsearch(&name[i], (const void *)sorted, (size_t)count, sizeof(char *),
                                                        mirt__csv_compare);
            k = found ? (int)(found - sorted) : list->num_classes;
        }
        if (k == list->num_classes)
            status = mirt__fail(MIRT_E_NOT_FOUND, "%s: %s has the label \"%s\", which is not among the class names",
                                csv->path, list->file[i].path, name[i]);
        list->file[i].label = k;
    }
    return status;
}

/* Adds paths to the list and their labels to `name`. */
static mirt_status mirt__csv_read(mirt__csv *csv, mirt__image_list *list, const char ***name) {
    int64_t most = 0;
    mirt__image_file file;
    memset(&file, 0, sizeof file);
    for (bool first = true, got = true; ; first = false) {
        mirt_status status = mirt__csv_next(csv, &got);
        if (status != MIRT_OK || !got) return status;
        file.path = mirt__csv_path(csv);
        if (!file.path) return MIRT_E_NOMEM;
        if (first && (strcmp(csv->field[0].data, "path") == 0 ||
                      (!mirt__file_exists(file.path) && !mirt__image_name(file.path))))
            continue; /* a header */
        if (mirt__image_list_add(list, &file) != MIRT_OK ||
            !mirt__list_room((void **)name, list->count - 1, &most, sizeof **name))
            return MIRT_E_NOMEM;
        (*name)[list->count - 1] = mirt__pool_strdup(&list->pool, csv->field[1].data);
        if (!(*name)[list->count - 1]) return MIRT_E_NOMEM;
    }
}

MIRT__LIB mirt_status mirt__image_list_csv(mirt__image_list *list, const char *path,
                                           const mirt_image_directory_desc *desc) {
    const size_t limit = (size_t)1 << 30;
    unsigned char *bytes;
    const char **name = NULL;
    size_t size;
    mirt__csv csv;
    memset(list, 0, sizeof *list);
    memset(&csv, 0, sizeof csv);
    mirt_status status = mirt__file_read(path, limit, &bytes, &size);
    if (status != MIRT_OK) return status;
    csv.path = path;
    csv.at = (const char *)bytes;
    csv.end = csv.at + size;
    csv.line = 1;
    csv.labels = desc->label_mode != MIRT_LABELS_NONE;
    if (size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0) csv.at += 3;
    status = mirt__csv_read(&csv, list, &name);
    if (status == MIRT_OK && list->count == 0)
        status = mirt__fail(MIRT_E_NOT_FOUND, "%s: no images found: no line is path,label", path);
    if (status == MIRT_OK && csv.labels) status = mirt__csv_classes(list, &csv, name, desc);
    for (int i = 0; i < 2; i++) mirt__text_free(&csv.field[i]);
    mirt__text_free(&csv.file);
    mirt__free((void *)name);
    mirt__aligned_free(bytes);
    if (status != MIRT_OK) mirt__image_list_free(list);
    return status;
}
