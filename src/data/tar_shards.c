/* Lists the samples of tar archives in WebDataset's layout. */

#include "../formats/tar.h"
#include "image_files.h"

/* >>which archives */

typedef struct mirt__shard_names {
    mirt__pool *pool;
    const char **path;
    int64_t count, most;
} mirt__shard_names;

static mirt_status mirt__shards_add(mirt__shard_names *names, const char *path) {
    const int64_t limit = (int64_t)1 << 20;
    if (names->count == limit)
        return mirt__fail(MIRT_E_INVALID, "more than %lld shards are named", (long long)limit);
    if (!mirt__list_room((void **)&names->path, names->count, &names->most, sizeof *names->path)) return MIRT_E_NOMEM;
    names->path[names->count] = mirt__pool_pack(names->pool, path);
    return names->path[names->count++] ? MIRT_OK : MIRT_E_NOMEM;
}

/* The files in a directory that end in .tar. */
static mirt_status mirt__shards_add_directory(mirt__shard_names *names, const char *directory) {
    const char **path;
    int64_t count;
    mirt_status status = mirt__directory_shards(directory, names->pool, &path, &count);
    if (status == MIRT_OK && count == 0)
        status = mirt__fail(MIRT_E_NOT_FOUND, "%s: no shards found: no file in it ends in .tar", directory);
    for (int64_t i = 0; i < count && status == MIRT_OK; i++) status = mirt__shards_add(names, path[i]);
    return status;
}

static mirt_status mirt__shards_expand(mirt__shard_names *names, const char *pattern, size_t size);

/* `before`, `size` bytes of `middle`, `after`: a pattern with one pair of braces less. */
static mirt_status mirt__shards_join(mirt__shard_names *names, const char *before, size_t length, const char *middle,
                                     size_t size, const char *after, size_t rest) {
    mirt__text text;
    memset(&text, 0, sizeof text);
    mirt__text_add_bytes(&text, before, length);
    mirt__text_add_bytes(&text, middle, size);
    mirt__text_add_bytes(&text, after, rest);
    mirt_status status = text.failed ? MIRT_E_NOMEM : mirt__shards_expand(names, text.data, text.size);
    mirt__text_free(&text);
    return status;
}

/* "000..099" of a pattern into numbers and their width, which leading zeros set; false if it is something else. */
static bool mirt__shards_range(const char *text, size_t size, int64_t *first, int64_t *last, int *width) {
    const int most = 12;
    int64_t value[2] = {0, 0};
    size_t at = 0;
    *width = 0;
    for (int k = 0; k < 2; k++) {
        const size_t begin = at;
        for (; at < size && text[at] >= '0' && text[at] <= '9' && at - begin < (size_t)most; at++)
            value[k] = value[k] * 10 + (text[at] - '0');
        const int digits = (int)(at - begin);
        if (digits == 0) return false;
        if (digits > 1 && text[begin] == '0' && digits > *width) *width = digits;
        if (k == 0 && (size - at < 2 || text[at] != '.' || text[at + 1] != '.')) return false;
        if (k == 0) at += 2;
    }
    *first = value[0];
    *last = value[1];
    return at == size;
}

/* The alternatives in a pair of braces, [open, close) of the pattern. */
static mirt_status mirt__shards_alternatives(mirt__shard_names *names, const char *pattern, size_t size, size_t open,
                                             size_t close) {
    const char *inner = pattern + open + 1, *after = pattern + close + 1;
    const size_t length = close - open - 1, rest = size - close - 1;
    mirt_status status = MIRT_OK;
    int64_t first, last;
    int width;
    if (mirt__shards_range(inner, length, &first, &last, &width)) {
        const int64_t step = first <= last ? 1 : -1;
        for (int64_t i = first; status == MIRT_OK; i += step) {
            char number[32];
            const int digits = snprintf(number, sizeof number, "%0*lld", width, (long long)i);
            status = mirt__shards_join(names, pattern, open, number, (size_t)digits, after, rest);
            if (i == last) break;
        }
        return status;
    }
    for (size_t at = 0, end; at <= length && status == MIRT_OK; at = end + 1) {
        for (end = at; end < length && inner[end] != ','; end++) continue;
        status = mirt__shards_join(names, pattern, open, inner + at, end - at, after, rest);
    }
    return status;
}

/* Adds the paths of a pattern, or of the directory that it names. */
static mirt_status mirt__shards_expand(mirt__shard_names *names, const char *pattern, size_t size) {
    if (size == 0) return mirt__fail(MIRT_E_INVALID, "a shard without a name: \"::\" stands between two names");
    if (mirt__is_directory(pattern)) return mirt__shards_add_directory(names, pattern);
    const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
    if (!close || mirt__file_exists(pattern)) return mirt__shards_add(names, pattern);
    return mirt__shards_alternatives(names, pattern, size, (size_t)(open - pattern), (size_t)(close - pattern));
}

/* Patterns with "::" between them. */
static mirt_status mirt__shards_find(mirt__shard_names *names, const char *shards) {
    mirt_status status = MIRT_OK;
    while (shards && status == MIRT_OK) {
        const char *end = strstr(shards, "::");
        status = mirt__shards_join(names, shards, end ? (size_t)(end - shards) : strlen(shards), "", 0, "", 0);
        shards = end ? end + 2 : NULL;
    }
    return status;
}

/* >>samples: members of one name, up to the first dot after the last slash, that follow each other */

typedef struct mirt__shard_reader {
    mirt__tar tar;
    mirt__image_list *list;
    const mirt_image_directory_desc *desc;
    mirt__text key, path;   /* of the sample under way; the key is empty before the first one */
    mirt__image_file image; /* of it; without a path: none so far */
    bool labeled;
    int32_t most; /* the largest label so far */
} mirt__shard_reader;

static mirt_status mirt__shard_fail(const mirt__shard_reader *reader, const char *what) {
    return mirt__fail(MIRT_E_FORMAT, "%s: the sample \"%s\" %s", reader->tar.path, mirt__shown(reader->key.data).text,
                      what);
}

/* Ends a sample. One without an image and a label is something else, such as a text about the data. */
static mirt_status mirt__shard_finish(mirt__shard_reader *reader) {
    const bool labels = reader->desc->label_mode != MIRT_LABELS_NONE, image = reader->image.path != NULL;
    mirt_status status = MIRT_OK;
    if (labels && image && !reader->labeled) status = mirt__shard_fail(reader, "has no label (.cls)");
    if (labels && !image && reader->labeled)
        status = mirt__shard_fail(reader, "has no image (.jpg, .jpeg, .png, .bmp, .gif)");
    if (status == MIRT_OK && image) status = mirt__image_list_add(reader->list, &reader->image);
    reader->image.path = NULL;
    reader->image.label = 0;
    reader->labeled = false;
    return status;
}

/* A class number in decimal digits. */
static mirt_status mirt__shard_label(mirt__shard_reader *reader) {
    const size_t most = 32;
    mirt__tar *tar = &reader->tar;
    int64_t label = 0;
    size_t at = 0, size = tar->size < most ? (size_t)tar->size : most, digits = 0;
    const unsigned char *text = mirt__tar_bytes(tar, tar->offset, size);
    if (!text) return mirt_last_status();
    while (at < size && strchr(" \t\r\n", text[at]) && text[at]) at++;
    for (; at < size && text[at] >= '0' && text[at] <= '9' && label <= INT32_MAX; at++, digits++)
        label = label * 10 + (text[at] - '0');
    while (at < size && strchr(" \t\r\n", text[at]) && text[at]) at++;
    if (!digits || at < tar->size || label > INT32_MAX)
        return mirt__shard_fail(reader, "has a label (.cls) that is not a class number");
    if (reader->labeled) return mirt__shard_fail(reader, "has two labels (.cls)");
    reader->labeled = true;
    reader->image.label = (int32_t)label;
    if (reader->image.label > reader->most) reader->most = reader->image.label;
    return MIRT_OK;
}

static mirt_status mirt__shard_image(mirt__shard_reader *reader) {
    if (reader->image.path) return mirt__shard_fail(reader, "has two images");
    mirt__text_clear(&reader->path);
    mirt__text_add_bytes(&reader->path, reader->tar.path, strlen(reader->tar.path));
    mirt__text_add_bytes(&reader->path, "/", 1);
    mirt__text_add_bytes(&reader->path, reader->tar.name.data, reader->tar.name.size);
    reader->image.path = reader->path.failed ? NULL : reader->path.data;
    reader->image.offset = reader->tar.offset;
    reader->image.size = reader->tar.size;
    return reader->path.failed ? MIRT_E_NOMEM : MIRT_OK;
}

/* Whether all that follows the first dot of a name is one of an image's endings. */
static bool mirt__shard_is_image(const char *dot) {
    return strchr(dot + 1, '.') == NULL && mirt__image_name(dot);
}

/* WebDataset's notes about a shard: "__name__", or what is in a directory of such a name. */
static bool mirt__shard_is_note(const char *name) {
    const size_t size = strcspn(name, "/");
    return size >= 4 && memcmp(name, "__", 2) == 0 && memcmp(name + size - 2, "__", 2) == 0;
}

/* Adds a member to the sample that it belongs to. */
static mirt_status mirt__shard_member(mirt__shard_reader *reader) {
    const char *name = reader->tar.name.data, *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name,
               *dot = strchr(last, '.');
    mirt_status status = MIRT_OK;
    if (!dot || dot == last || mirt__shard_is_note(name)) return MIRT_OK;
    const size_t size = (size_t)(dot - name);
    if (size != reader->key.size || memcmp(name, reader->key.data, size) != 0) {
        status = mirt__shard_finish(reader);
        mirt__text_clear(&reader->key);
        mirt__text_add_bytes(&reader->key, name, size);
        if (reader->key.failed) return MIRT_E_NOMEM;
    }
    if (status == MIRT_OK && mirt__shard_is_image(dot)) return mirt__shard_image(reader);
    const bool label = strchr(dot + 1, '.') == NULL && mirt__name_ends(dot, ".cls");
    return status == MIRT_OK && label && reader->desc->label_mode != MIRT_LABELS_NONE ? mirt__shard_label(reader)
                                                                                     : status;
}

/* Adds the samples of one archive. */
static mirt_status mirt__shard_read(mirt__shard_reader *reader, const char *path, int32_t shard) {
    bool got = true;
    reader->image.shard = shard;
    mirt__text_clear(&reader->key);
    mirt_status status = mirt__tar_open(&reader->tar, path);
    while (status == MIRT_OK && got) {
        status = mirt__tar_next(&reader->tar, &got);
        if (status == MIRT_OK) status = got ? mirt__shard_member(reader) : mirt__shard_finish(reader);
    }
    mirt__tar_close(&reader->tar);
    return status;
}

/* >>lists */

/* The classes are those named, or "0" to the largest label. */
static mirt_status mirt__shards_set_classes(mirt__image_list *list, const char *shards, int32_t most,
                                            const mirt_image_directory_desc *desc) {
    const int32_t limit = 1 << 20;
    mirt__pool pool;
    memset(&pool, 0, sizeof pool);
    if (desc->class_names && most >= desc->num_class_names)
        return mirt__fail(MIRT_E_INVALID, "%s: the label %ld is not one of %d classes, 0 to %d", shards, (long)most,
                          desc->num_class_names, desc->num_class_names - 1);
    if (desc->class_names) return mirt__image_list_set_classes(list, desc->class_names, desc->num_class_names);
    if (most >= limit)
        return mirt__fail(MIRT_E_FORMAT, "%s: a label of %ld: at most %ld classes are found; class_names may name more",
                          shards, (long)most, (long)limit);
    const char **names = (const char **)mirt__pool_alloc(&pool, ((size_t)most + 1) * sizeof(char *));
    mirt_status status = names ? MIRT_OK : MIRT_E_NOMEM;
    for (int32_t i = 0; i <= most && status == MIRT_OK; i++) {
        char text[16];
        snprintf(text, sizeof text, "%ld", (long)i);
        names[i] = mirt__pool_pack(&pool, text);
        if (!names[i]) status = MIRT_E_NOMEM;
    }
    if (status == MIRT_OK) status = mirt__image_list_set_classes(list, names, most + 1);
    mirt__pool_free(&pool);
    return status;
}

MIRT__LIB mirt_status mirt__image_list_shards(mirt__image_list *list, const char *shards,
                                              const mirt_image_directory_desc *desc) {
    mirt__shard_names names;
    mirt__pool pool;
    memset(list, 0, sizeof *list);
    memset(&names, 0, sizeof names);
    memset(&pool, 0, sizeof pool);
    names.pool = &pool;
    mirt__shard_reader *reader = (mirt__shard_reader *)mirt__calloc(1, sizeof *reader);
    mirt_status status = reader ? mirt__shards_find(&names, shards) : MIRT_E_NOMEM;
    if (status == MIRT_OK) status = mirt__image_list_set_shards(list, names.path, (int)names.count);
    if (reader) reader->list = list;
    if (reader) reader->desc = desc;
    for (int64_t i = 0; i < names.count && status == MIRT_OK; i++)
        status = mirt__shard_read(reader, list->shards[i], (int32_t)i);
    if (status == MIRT_OK && list->count == 0)
        status = mirt__fail(MIRT_E_NOT_FOUND,
                            "%s: no images found: no member of it ends in .bmp, .gif, .jpeg, .jpg or .png", shards);
    if (status == MIRT_OK && list->count > UINT32_MAX)
        status = mirt__fail(MIRT_E_INVALID, "%s: too many images", shards);
    if (status == MIRT_OK && desc->label_mode != MIRT_LABELS_NONE)
        status = mirt__shards_set_classes(list, shards, reader->most, desc);
    if (reader) mirt__text_free(&reader->key);
    if (reader) mirt__text_free(&reader->path);
    mirt__free(reader);
    mirt__free((void *)names.path);
    mirt__pool_free(&pool);
    if (status != MIRT_OK) mirt__image_list_free(list);
    return status;
}
