/* Parses and writes JSON. */
#include "json.h"

typedef struct mirt__json_reader {
    mirt__pool *pool;
    const char *text;
    size_t size, at;
    int depth, values;
} mirt__json_reader;

static mirt__json *mirt__json_read_value(mirt__json_reader *in);

static mirt__json *mirt__json_bad(size_t offset, const char *what) {
    mirt__fail(MIRT_E_FORMAT, "JSON at offset %zu: %s", offset, what);
    return NULL;
}

MIRT__LIB const char *mirt__json_label(const char *name, char out[MIRT__JSON_LABEL]) {
    size_t used = 0, left = strlen(name);
    while (left > 0) {
        int length = mirt__utf8_length(name, left);
        bool plain = length > 0 && (unsigned char)*name >= 0x20 && *name != 0x7F;
        if (length == 0) length = 1;
        if (used + (size_t)length + 4 > MIRT__JSON_LABEL) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (plain) memcpy(out + used, name, (size_t)length);
        else out[used] = '?';
        used += (size_t)length;
        name += length;
        left -= (size_t)length;
    }
    out[used] = 0;
    return out;
}

MIRT__LIB mirt__phrase mirt__label(const char *name) {
    mirt__phrase out;
    mirt__json_label(name, out.text);
    return out;
}

static void mirt__json_skip_space(mirt__json_reader *in) {
    while (in->at < in->size && in->text[in->at] != 0 && strchr(" \t\n\r", in->text[in->at])) in->at++;
}

/* Skips white space, and then `c` if it is next. */
static bool mirt__json_accept(mirt__json_reader *in, char c) {
    mirt__json_skip_space(in);
    if (in->at == in->size || in->text[in->at] != c) return false;
    in->at++;
    return true;
}

/* Four hexadecimal digits at `at`, or -1. */
static int mirt__json_hex4(const mirt__json_reader *in, size_t at) {
    int value = 0;
    if (in->size < 4 || at > in->size - 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        static const char digits[] = "0123456789abcdefABCDEF";
        const char *digit = in->text[i] ? strchr(digits, in->text[i]) : NULL;
        if (!digit) return -1;
        value = value * 16 + (int)(digit - digits) - (digit - digits < 16 ? 0 : 6);
    }
    return value;
}

static char *mirt__json_put_utf8(char *out, int code) {
    static const int first[] = {0, 0xC0, 0xE0, 0xF0}; /* bits of the first byte */
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *out++ = (char)(first[more] | code >> 6 * more);
    while (more-- > 0) *out++ = (char)(0x80 | (code >> 6 * more & 63));
    return out;
}

/* The escape whose backslash is at in->at; writes to `out` and returns its new end, or NULL. */
static char *mirt__json_read_escape(mirt__json_reader *in, char *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t start = in->at++;
    char kind = in->text[in->at++]; /* a byte follows, because the closing quote was found after it */
    const char *known = kind ? strchr(from, kind) : NULL;
    if (known) {
        *out++ = to[known - from];
        return out;
    }
    int code = kind == 'u' ? mirt__json_hex4(in, in->at) : -1;
    if (code >= 0) in->at += 4;
    if (code >= 0xD800 && code <= 0xDBFF) {
        bool pair = in->size - in->at >= 2 && in->text[in->at] == '\\' && in->text[in->at + 1] == 'u';
        int second = pair ? mirt__json_hex4(in, in->at + 2) : -1;
        code = second >= 0xDC00 && second <= 0xDFFF ? 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00) : -2;
        in->at += 6;
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        code = -2;
    }
    if (code > 0) return mirt__json_put_utf8(out, code);
    mirt__json_bad(start, code == -1 ? "unknown escape in a string"
                        : code == -2 ? "incomplete surrogate pair" : "U+0000 in a string is not supported");
    return NULL;
}

/* The string whose opening quote is at in->at, decoded; NULL with the error set. */
static const char *mirt__json_read_string(mirt__json_reader *in) {
    size_t start = in->at++, end = in->at;
    while (end < in->size && in->text[end] != '"') end += in->text[end] == '\\' ? 2 : 1;
    if (end >= in->size) {
        mirt__json_bad(start, "unterminated string");
        return NULL;
    }
    char *value = (char *)mirt__pool_alloc(in->pool, end - start); /* escapes never grow when decoded */
    char *out = value;
    if (!value) return NULL;
    while (in->at < end) {
        if (in->text[in->at] == '\\') {
            out = mirt__json_read_escape(in, out);
            if (!out) return NULL;
            continue;
        }
        int length = mirt__utf8_length(in->text + in->at, end - in->at);
        if (length == 0 || (unsigned char)in->text[in->at] < 0x20) {
            mirt__json_bad(in->at, length == 0 ? "invalid UTF-8" : "control character in a string");
            return NULL;
        }
        for (; length > 0; length--) *out++ = in->text[in->at++];
    }
    in->at = end + 1;
    return value;
}

static bool mirt__json_digit(const mirt__json_reader *in, size_t at) {
    return at < in->size && in->text[at] >= '0' && in->text[at] <= '9';
}

/* The end of the number at `at` by JSON's grammar, or `at` if there is no number. */
static size_t mirt__json_number_end(const mirt__json_reader *in, size_t at, bool *integral) {
    size_t begin = at;
    *integral = true;
    if (at < in->size && in->text[at] == '-') at++;
    if (!mirt__json_digit(in, at)) return begin;
    if (in->text[at] == '0') at++;
    else while (mirt__json_digit(in, at)) at++;
    if (at < in->size && in->text[at] == '.') {
        *integral = false;
        if (!mirt__json_digit(in, ++at)) return begin;
        while (mirt__json_digit(in, at)) at++;
    }
    if (at < in->size && (in->text[at] == 'e' || in->text[at] == 'E')) {
        *integral = false;
        at++;
        if (at < in->size && (in->text[at] == '+' || in->text[at] == '-')) at++;
        if (!mirt__json_digit(in, at)) return begin;
        while (mirt__json_digit(in, at)) at++;
    }
    return at;
}

static bool mirt__json_to_int(const char *digits, int64_t *out) {
    bool negative = *digits == '-';
    int64_t value = 0;
    for (digits += negative; *digits; digits++) {
        int digit = *digits - '0';
        /* Computed as a negative number, because the smallest integer has no positive counterpart. */
        if (value < (INT64_MIN + digit) / 10) return false;
        value = value * 10 - digit;
    }
    if (!negative && value == INT64_MIN) return false;
    *out = negative ? value : -value;
    return true;
}

/* The locale's decimal point: what the C library prints between 0 and 5 for a half. */
static void mirt__json_decimal_point(char out[16]) {
    char half[16];
    snprintf(half, sizeof half, "%.1f", 0.5);
    size_t length = strlen(half);
    memcpy(out, half + 1, length - 2);
    out[length - 2] = 0;
}

static bool mirt__json_to_double(const char *digits, double *out) {
    char local[MIRT__JSON_DIGITS + 16], point[16];
    const char *dot = strchr(digits, '.');
    mirt__json_decimal_point(point);
    int before = dot ? (int)(dot - digits) : (int)strlen(digits);
    snprintf(local, sizeof local, "%.*s%s%s", before, digits, dot ? point : "", dot ? dot + 1 : "");
    *out = strtod(local, NULL);
    return isfinite(*out);
}

static mirt__json *mirt__json_read_number(mirt__json_reader *in, mirt__json *node) {
    char digits[MIRT__JSON_DIGITS + 1];
    size_t end = mirt__json_number_end(in, in->at, &node->integral), length = end - in->at;
    if (length == 0) return mirt__json_bad(in->at, "expected a value");
    if (length > MIRT__JSON_DIGITS) return mirt__json_bad(in->at, "number of more than 128 characters");
    memcpy(digits, in->text + in->at, length);
    digits[length] = 0;
    node->type = MIRT__JSON_NUMBER;
    if (!mirt__json_to_double(digits, &node->number)) return mirt__json_bad(in->at, "number too large for a double");
    if (node->integral) node->integral = mirt__json_to_int(digits, &node->integer);
    in->at = end;
    return node;
}

static bool mirt__json_accept_word(mirt__json_reader *in, const char *word) {
    size_t length = strlen(word);
    if (in->size - in->at < length || memcmp(in->text + in->at, word, length) != 0) return false;
    in->at += length;
    return true;
}

/* qsort's comparison of two members. */
static int mirt__json_compare_keys(const void *a, const void *b) {
    return strcmp((*(mirt__json *const *)a)->key, (*(mirt__json *const *)b)->key);
}

/* Turns the list of items that begins at `first` into the node's arrays. */
static mirt__json *mirt__json_index(mirt__json_reader *in, mirt__json *node, mirt__json *first) {
    if (node->count == 0) return node;
    size_t bytes = node->count * sizeof(mirt__json *);
    node->item = (mirt__json **)mirt__pool_alloc(in->pool, bytes);
    if (!node->item) return NULL;
    for (size_t i = 0; i < node->count; i++, first = first->next) node->item[i] = first;
    if (node->type != MIRT__JSON_OBJECT) return node;
    node->by_key = (mirt__json **)mirt__pool_alloc(in->pool, bytes);
    if (!node->by_key) return NULL;
    memcpy(node->by_key, node->item, bytes);
    qsort(node->by_key, node->count, sizeof(mirt__json *), mirt__json_compare_keys);
    for (size_t i = 1; i < node->count; i++) {
        const mirt__json *a = node->by_key[i - 1], *b = node->by_key[i];
        if (strcmp(a->key, b->key) != 0) continue;
        mirt__fail(MIRT_E_FORMAT, "JSON at offset %zu: the name \"%s\" appears twice",
                   a->offset > b->offset ? a->offset : b->offset, mirt__label(a->key).text);
        return NULL;
    }
    return node;
}

/* "name": ahead of a member's value; NULL with the error set. */
static const char *mirt__json_read_key(mirt__json_reader *in) {
    mirt__json_skip_space(in);
    if (in->at == in->size || in->text[in->at] != '"') {
        mirt__json_bad(in->at, "expected a member's name");
        return NULL;
    }
    const char *key = mirt__json_read_string(in);
    if (!key) return NULL;
    if (mirt__json_accept(in, ':')) return key;
    mirt__json_bad(in->at, "expected ':' after a member's name");
    return NULL;
}

/* An array or object whose opening bracket has been read. */
static mirt__json *mirt__json_read_container(mirt__json_reader *in, mirt__json *node) {
    bool object = in->text[in->at - 1] == '{';
    mirt__json *first = NULL, *last = NULL;
    node->type = object ? MIRT__JSON_OBJECT : MIRT__JSON_ARRAY;
    if (++in->depth > MIRT__JSON_DEPTH) return mirt__json_bad(in->at - 1, "nested more than 64 levels deep");
    if (!mirt__json_accept(in, object ? '}' : ']')) {
        do {
            const char *key = object ? mirt__json_read_key(in) : NULL;
            mirt__json *item = object && !key ? NULL : mirt__json_read_value(in);
            if (!item) return NULL;
            item->key = key;
            if (last) last->next = item;
            else first = item;
            last = item;
            node->count++;
        } while (mirt__json_accept(in, ','));
        if (!mirt__json_accept(in, object ? '}' : ']'))
            return mirt__json_bad(in->at, object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    in->depth--;
    return mirt__json_index(in, node, first);
}

/* The value that begins at in->at. */
static mirt__json *mirt__json_read_any(mirt__json_reader *in, mirt__json *node) {
    const char c = in->text[in->at];
    if (c == '{' || c == '[') {
        in->at++;
        return mirt__json_read_container(in, node);
    }
    if (c == '"') {
        node->type = MIRT__JSON_STRING;
        node->string = mirt__json_read_string(in);
        return node->string ? node : NULL;
    }
    if (mirt__json_accept_word(in, "null")) return node;
    node->truth = mirt__json_accept_word(in, "true");
    if (!node->truth && !mirt__json_accept_word(in, "false")) return mirt__json_read_number(in, node);
    node->type = MIRT__JSON_BOOL;
    return node;
}

static mirt__json *mirt__json_read_value(mirt__json_reader *in) {
    mirt__json_skip_space(in);
    if (in->at == in->size) return mirt__json_bad(in->at, "the text ends where a value is expected");
    if (++in->values > MIRT__JSON_VALUES) return mirt__json_bad(in->at, "more than 262144 values");
    mirt__json *node = (mirt__json *)mirt__pool_alloc(in->pool, sizeof(mirt__json));
    if (!node) return NULL;
    node->offset = in->at;
    if (!mirt__json_read_any(in, node)) return NULL;
    node->end = in->at;
    return node;
}

MIRT__LIB mirt__json *mirt__json_parse(mirt__pool *pool, const char *text, size_t size) {
    mirt__json_reader in = {pool, text, size, 0, 0, 0};
    mirt__json *root = mirt__json_read_value(&in);
    if (!root) return NULL;
    mirt__json_skip_space(&in);
    return in.at == size ? root : mirt__json_bad(in.at, "something follows the value");
}

MIRT__LIB const mirt__json *mirt__json_member(const mirt__json *object, const char *key) {
    size_t low = 0, high = object && object->type == MIRT__JSON_OBJECT ? object->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(key, object->by_key[middle]->key);
        if (order == 0) return object->by_key[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

MIRT__LIB const char *mirt__json_type_name(mirt__json_type type) {
    static const char *const names[] = {"null", "true or false", "a number", "a string", "an array", "an object"};
    return names[type];
}

MIRT__LIB const mirt__json *mirt__json_get(const mirt__json *object, const char *key, mirt__json_type type) {
    const mirt__json *member = mirt__json_member(object, key);
    if (member && member->type == type) return member;
    if (!member) mirt__fail(MIRT_E_FORMAT, "\"%s\" is missing", key);
    else mirt__fail(MIRT_E_FORMAT, "\"%s\" is %s, but must be %s", key, mirt__json_type_name(member->type),
                    mirt__json_type_name(type));
    return NULL;
}

MIRT__LIB mirt_status mirt__json_get_int(const mirt__json *object, const char *key, int64_t minimum, int64_t maximum,
                                         int64_t *out) {
    const mirt__json *member = mirt__json_get(object, key, MIRT__JSON_NUMBER);
    if (!member) return mirt_last_status();
    if (!member->integral || member->integer < minimum || member->integer > maximum)
        return mirt__fail(MIRT_E_FORMAT, "\"%s\" must be an integer from %lld to %lld", key, (long long)minimum,
                          (long long)maximum);
    *out = member->integer;
    return MIRT_OK;
}

/* The two bytes of U+0080 to U+009F; the text ends in 0. */
static bool mirt__is_c1(const unsigned char *at) { return at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0; }

MIRT__LIB void mirt__json_write_string(mirt__text *text, const char *value) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const unsigned char *at = (const unsigned char *)value;
    mirt__text_add_bytes(text, "\"", 1);
    while (*at) {
        size_t plain = 0;
        /* Also DEL and C1, since logs are viewed in terminals. */
        while (at[plain] >= 0x20 && at[plain] != '"' && at[plain] != '\\' && at[plain] != 0x7F &&
               !mirt__is_c1(at + plain)) plain++;
        mirt__text_add_bytes(text, at, plain);
        at += plain;
        if (!*at) break;
        const char *known = strchr(from, *at);
        if (mirt__is_c1(at)) mirt__text_add(text, "\\u%04x", (unsigned)*++at);
        else if (known) mirt__text_add(text, "\\%c", to[known - from]);
        else mirt__text_add(text, "\\u%04x", (unsigned)*at);
        at++;
    }
    mirt__text_add_bytes(text, "\"", 1);
}

MIRT__TRAINING_LIB void mirt__json_write_number(mirt__text *text, double value) {
    char digits[64], point[16];
    if (!isfinite(value)) {
        mirt__text_add(text, "null");
        return;
    }
    if (fabs(value) < 9007199254740992.0 && value == floor(value) && !(value == 0 && signbit(value))) {
        mirt__text_add(text, "%lld", (long long)value);
        return;
    }
    snprintf(digits, sizeof digits, "%.9g", value);
    if (strtod(digits, NULL) != value) snprintf(digits, sizeof digits, "%.17g", value);
    mirt__json_decimal_point(point);
    char *comma = strstr(digits, point);
    int before = comma ? (int)(comma - digits) : (int)strlen(digits);
    mirt__text_add(text, "%.*s%s%s", before, digits, comma ? "." : "", comma ? comma + strlen(point) : "");
}
