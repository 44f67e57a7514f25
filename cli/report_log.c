/* Reads the log of a run: one JSON value per line. */
#include "posix.h"
#include "cli.h"
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 32
#define MOST_BYTES ((size_t)1 << 30)
#define MOST_MEMORY ((size_t)2 << 30) /* for values, which take more memory than their text */
enum { FEW_MEMBERS = 16 };            /* up to this many are searched linearly */

/* >>memory of one lifetime */

typedef struct block {
    struct block *next;
    size_t used, size;
} block;

static void *take(run_log *log, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    block *b = log->blocks;
    if (!b || b->size - b->used < bytes) {
        const size_t size = bytes > (1 << 18) ? bytes : 1 << 18;
        b = log->bytes + size <= MOST_MEMORY ? (block *)malloc(sizeof *b + size) : NULL;
        if (!b) return NULL;
        log->bytes += size;
        b->next = log->blocks;
        b->used = 0;
        b->size = size;
        log->blocks = b;
    }
    void *at = (char *)(b + 1) + b->used;
    b->used += bytes;
    memset(at, 0, bytes);
    return at;
}

void free_run_log(run_log *log) {
    while (log->blocks) {
        block *next = log->blocks->next;
        free(log->blocks);
        log->blocks = next;
    }
    free(log->epoch);
    free(log->use);
    free(log->step);
    memset(log, 0, sizeof *log);
}

/* >>JSON */

typedef struct reader {
    run_log *log;
    const char *at, *end;
} reader;

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')) r->at++;
}

static bool take_char(reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static int read_hex(reader *r) {
    int code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char *digits = "0123456789abcdef",
                   *digit =
                       r->at < r->end ? strchr(digits, *r->at >= 'A' && *r->at <= 'F' ? *r->at + 32 : *r->at) : NULL;
        if (!digit || !*digit) return -1;
        code = 16 * code + (int)(digit - digits);
    }
    return code;
}

static char *write_utf8(char *out, unsigned code) {
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *out++ = (char)((more == 1 ? 0xC0u : more == 2 ? 0xE0u : 0xF0u) | code >> (6 * more));
    while (more--) *out++ = (char)(0x80u | ((code >> (6 * more)) & 63u));
    return out;
}

/* Decodes a \u escape of four hexadecimal digits, or a surrogate pair; drops lone surrogates. */
static bool read_escaped(reader *r, char **out) {
    int code = read_hex(r);
    if (code < 0) return false;
    unsigned u = (unsigned)code;
    if (u >= 0xD800 && u < 0xDC00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        code = read_hex(r);
        if (code < 0xDC00 || code > 0xDFFF) return false;
        u = 0x10000 + ((u - 0xD800) << 10) + ((unsigned)code - 0xDC00);
    }
    *out = write_utf8(*out, u == 0 || (u >= 0xD800 && u < 0xE000) ? 0xFFFD : u);
    return true;
}

static const char *read_string(reader *r) {
    static const char escapes[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    if (!take_char(r, '"')) return NULL;
    const char *from = r->at;
    while (r->at < r->end && *r->at != '"') r->at += *r->at == '\\' ? 2 : 1;
    if (r->at >= r->end) return NULL;
    const char *last = r->at;
    char *text = (char *)take(r->log, (size_t)(last - from) + 1), *out = text;
    if (!text) return NULL;
    for (r->at = from; r->at < last;) {
        char c = *r->at++;
        if (c == '\\') {
            c = *r->at++;
            const char *which = c ? strchr(escapes, c) : NULL;
            if (c == 'u') {
                if (!read_escaped(r, &out)) return NULL;
                continue;
            }
            if (!which) return NULL;
            c = meaning[which - escapes];
        }
        *out++ = c;
    }
    r->at = last + 1;
    return text;
}

static bool read_number(reader *r, double *out) {
    char digits[64];
    size_t length = 0;
    while (r->at < r->end && length < sizeof digits - 1 && *r->at && strchr("+-0123456789.eE", *r->at))
        digits[length++] = *r->at++;
    digits[length] = 0;
    char *end;
    *out = strtod(digits, &end);
    return length > 0 && !*end;
}

static value *read_value(reader *r, int depth);

static int by_key(const void *a, const void *b) {
    const value *x = *(const value *const *)a, *y = *(const value *const *)b;
    const int order = strcmp(x->key, y->key);
    return order ? order : x->place - y->place;
}

/* An epoch's line may have thousands of members, and each is looked up in every line. */
static bool sort_members(run_log *log, value *object) {
    if (object->count <= FEW_MEMBERS) return true;
    const value **at = object->sorted = (const value **)take(log, (size_t)object->count * sizeof *at);
    if (!at) return false;
    for (const value *v = object->first; v; v = v->next) *at++ = v;
    qsort(object->sorted, (size_t)object->count, sizeof *object->sorted, by_key);
    return true;
}

static bool read_members(reader *r, value *v, bool object, int depth) {
    value **last = &v->first;
    if (take_char(r, object ? '}' : ']')) return true;
    do {
        const char *key = NULL;
        if (object && (!(key = read_string(r)) || !take_char(r, ':'))) return false;
        value *one = read_value(r, depth + 1);
        if (!one) return false;
        one->key = key;
        one->place = v->count++;
        *last = one;
        last = &one->next;
    } while (v->count < INT32_MAX && take_char(r, ','));
    return take_char(r, object ? '}' : ']') && (!object || sort_members(r->log, v));
}

static bool read_word(reader *r, const char *word) {
    const size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || strncmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

/* NULL: it is not JSON. */
static value *read_value(reader *r, int depth) {
    skip_space(r);
    value *v = depth < MOST_DEPTH && r->at < r->end ? (value *)take(r->log, sizeof *v) : NULL;
    if (!v) return NULL;
    bool good = true;
    switch (*r->at) {
    case '{':
    case '[':
        v->kind = *r->at++ == '{' ? VALUE_OBJECT : VALUE_LIST;
        good = read_members(r, v, v->kind == VALUE_OBJECT, depth);
        break;
    case '"':
        v->kind = VALUE_TEXT;
        good = (v->text = read_string(r)) != NULL;
        break;
    case 'n':
        good = read_word(r, "null");
        break;
    case 't':
    case 'f':
        v->kind = VALUE_BOOL;
        v->number = *r->at == 't';
        good = read_word(r, *r->at == 't' ? "true" : "false");
        break;
    default:
        v->kind = VALUE_NUMBER;
        good = read_number(r, &v->number);
    }
    return good ? v : NULL;
}

const value *member(const value *object, const char *key) {
    const value *at = object && object->kind == VALUE_OBJECT ? object->first : NULL;
    if (!at || !object->sorted) {
        while (at && strcmp(at->key, key) != 0) at = at->next;
        return at;
    }
    int low = 0, high = object->count; /* the first whose key is not smaller */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(object->sorted[middle]->key, key) < 0) low = middle + 1;
        else high = middle;
    }
    return low < object->count && strcmp(object->sorted[low]->key, key) == 0 ? object->sorted[low] : NULL;
}

double number_of(const value *object, const char *key) {
    const value *v = member(object, key);
    return v && v->kind == VALUE_NUMBER ? v->number : (double)NAN;
}

const char *text_of(const value *object, const char *key) {
    const value *v = member(object, key);
    return v && v->kind == VALUE_TEXT ? v->text : NULL;
}

/* >>the log */

/* Makes room for one more element in a list of `count`. */
static bool room(void **list, int count, size_t size) {
    if (count & (count - 1)) return true; /* the size doubles at powers of two */
    void *more = realloc(*list, (count ? 2 * (size_t)count : 1) * size);
    if (more) *list = more;
    return more != NULL;
}

static bool keep_step(run_log *log, const value *line) {
    const double all = number_of(line, "batches"), batch = number_of(line, "batch");
    if (!room((void **)&log->step, log->steps, sizeof *log->step)) return false;
    step_line *s = &log->step[log->steps++];
    s->at = number_of(line, "epoch") + (all > 0 ? (batch + 1) / all : 0);
    s->loss = number_of(line, "batch_loss");
    s->rate = number_of(line, "learning_rate");
    return true;
}

static bool keep_line(run_log *log, const value *line) {
    const struct { const char *name; const value **place;
    } single[] = {{"begin", &log->begin},
                  {"end", &log->end},
                  {"timing", &log->timing},
                  {"confusion", &log->confusion},
                  {"samples", &log->samples},
                  {"resume", &log->resumed},
                  {"interrupted", &log->interrupted}};
    const char *event = text_of(line, "event");
    if (!event) return false;
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) {
        if (strcmp(event, single[i].name) == 0) *single[i].place = line;
    }
    if (strcmp(event, "step") == 0) return keep_step(log, line);
    if (member(line, "use")) {
        if (!room((void **)&log->use, log->uses, sizeof *log->use)) return false;
        log->use[log->uses++] = line;
    }
    if (strcmp(event, "epoch") != 0) return true;
    if (!room((void **)&log->epoch, log->epochs, sizeof *log->epoch)) return false;
    log->epoch[log->epochs++] = line;
    return true;
}

static char *read_all(const char *path, size_t *size) {
    FILE *file = open_to_read(path);
    char *text = NULL;
    size_t capacity = 0;
    *size = 0;
    if (!file) {
        complain("%s: %s; it is the log of a run, written by mirrortrain fit --run DIR", path, reason_of(errno));
        return NULL;
    }
    for (;;) {
        if (*size == capacity) {
            char *more =
                capacity < MOST_BYTES ? (char *)realloc(text, capacity = capacity ? 2 * capacity : 1 << 16) : NULL;
            if (!more) break;
            text = more;
        }
        size_t got = fread(text + *size, 1, capacity - *size, file);
        *size += got;
        if (got == 0) break;
    }
    const bool good = feof(file) && !ferror(file);
    fclose(file);
    if (good && text) return text;
    complain("%s: cannot read it, or it is too large", path);
    free(text);
    return NULL;
}

/* The last line may be incomplete if the run was killed. */
static bool read_lines(run_log *log, const char *text, size_t size) {
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = (const char *)memchr(at, '\n', (size_t)(end - at));
        reader r = {log, at, stop ? stop : end};
        skip_space(&r);
        if (r.at < r.end) {
            block *mark = log->blocks;
            const size_t used = mark ? mark->used : 0;
            const value *line = read_value(&r, 0);
            skip_space(&r);
            if (!line || r.at != r.end || !keep_line(log, line)) log->strange++;
            else if (mark && mark == log->blocks && strcmp(text_of(line, "event"), "step") == 0)
                mark->used = used; /* there are many, and they are stored separately */
        }
        at = stop ? stop + 1 : end;
    }
    return log->begin || log->epochs || log->steps;
}

bool read_run_log(const char *directory, run_log *log) {
    char path[4096];
    size_t size;
    memset(log, 0, sizeof *log);
    const int length = snprintf(path, sizeof path, "%s/log.jsonl", directory);
    if (length < 0 || length >= (int)sizeof path) {
        complain("%s: the path is too long", directory);
        return false;
    }
    char *text = read_all(path, &size);
    if (!text) return false;
    const bool good = read_lines(log, text, size);
    free(text);
    if (!good) {
        complain("%s: contains no run log", path);
        free_run_log(log);
    }
    return good;
}
