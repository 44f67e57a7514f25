/* Growing texts, text that is safe to print, and suggestions for misspelled words. */

#include "base.h"

/* Makes room for `more` bytes and the final 0. */
static bool mirt__text_reserve(mirt__text *text, size_t more) {
    size_t needed, capacity = text->capacity < 128 ? 128 : text->capacity;
    void *data = text->data;
    if (text->failed) return false;
    text->failed = !mirt__add_size(text->size, more, &needed) || !mirt__add_size(needed, 1, &needed);
    if (text->failed) return mirt__no_memory(SIZE_MAX) != NULL;
    if (needed <= text->capacity) return true;
    while (capacity < needed) capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
    text->failed = !mirt__grow(&data, text->size, capacity, 1);
    if (text->failed) return false;
    text->data = (char *)data;
    text->capacity = capacity;
    return true;
}

MIRT__LIB void mirt__text_add(mirt__text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        mirt__fail(MIRT_E_INVALID, "cannot format the text");
        text->failed = true;
        return;
    }
    if (!mirt__text_reserve(text, (size_t)length)) return;
    va_start(args, format);
    vsnprintf(text->data + text->size, (size_t)length + 1, format, args);
    va_end(args);
    text->size += (size_t)length;
}

MIRT__LIB void mirt__text_add_bytes(mirt__text *text, const void *data, size_t size) {
    if (!mirt__text_reserve(text, size)) return;
    if (size) memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = 0;
}

MIRT__LIB void mirt__text_clear(mirt__text *text) {
    text->size = 0;
    text->failed = false;
    if (text->data) text->data[0] = 0;
}

MIRT__LIB void mirt__text_free(mirt__text *text) {
    mirt__free(text->data);
    memset(text, 0, sizeof *text);
}

MIRT__LIB void mirt__line_add(char *line, size_t size, const char *format, ...) {
    const size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, size - used, format, args);
    va_end(args);
}

/* >>printable text */

MIRT__LIB int mirt__utf8_length(const char *at, size_t size) {
    const unsigned char *s = (const unsigned char *)at;
    unsigned char low = 0x80, high = 0xBF; /* valid range of the second byte */
    int length;
    if (size == 0) return 0;
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) length = 2;
    else if (s[0] >= 0xE0 && s[0] <= 0xEF) length = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4) length = 4;
    else return 0;
    if (s[0] == 0xE0) low = 0xA0;  /* shorter forms exist */
    if (s[0] == 0xED) high = 0x9F; /* surrogates */
    if (s[0] == 0xF0) low = 0x90;
    if (s[0] == 0xF4) high = 0x8F; /* beyond U+10FFFF */
    if (size < (size_t)length || s[1] < low || s[1] > high) return 0;
    for (int i = 2; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return length;
}

MIRT__LIB bool mirt__utf8_valid(const char *text, size_t size) {
    while (size > 0) {
        int length = mirt__utf8_length(text, size);
        if (length == 0) return false;
        text += length;
        size -= (size_t)length;
    }
    return true;
}

/* Whether a valid character of `length` bytes moves the cursor, starts an escape sequence or reorders text around
   it. */
static bool mirt__steers(const char *text, int length) {
    const unsigned char *c = (const unsigned char *)text;
    if (length == 1) return c[0] < 0x20 || c[0] == 0x7F;
    if (length == 2) return (c[0] == 0xC2 && c[1] < 0xA0) || (c[0] == 0xD8 && c[1] == 0x9C); /* C1, U+061C */
    if (length != 3 || c[0] != 0xE2) return false;
    /* U+200E, U+200F; U+2028 to U+202E */
    if (c[1] == 0x80) return c[2] == 0x8E || c[2] == 0x8F || (c[2] >= 0xA8 && c[2] <= 0xAE);
    return c[1] == 0x81 && c[2] >= 0xA6 && c[2] <= 0xA9;   /* U+2066 to U+2069 */
}

MIRT_API size_t mirt_printable(const char *text, char *out, size_t size) {
    size_t length = 0, left = text ? strlen(text) : 0, used = 0;
    bool fits = size > 0;
    while (left > 0) {
        int bytes = mirt__utf8_length(text, left);
        const bool plain = bytes > 0 && !mirt__steers(text, bytes);
        if (bytes == 0) bytes = 1;
        const size_t more = (size_t)bytes * (plain ? 1 : 4);
        fits = fits && more < size - used;
        for (int i = 0; fits && !plain && i < bytes; i++) {
            snprintf(out + used + 4 * i, 5, "\\x%02x", (unsigned)(unsigned char)text[i]);
        }
        if (fits && plain) memcpy(out + used, text, (size_t)bytes);
        if (fits) used += more;
        length += more;
        text += bytes;
        left -= (size_t)bytes;
    }
    if (size > 0) out[used] = 0;
    return length;
}

/* Removes an incomplete character from the end of a truncated text. */
static void mirt__drop_cut_character(char *text) {
    size_t end = strlen(text), start = end;
    while (start > 0 && end - start < 3 && ((unsigned char)text[start - 1] & 0xC0) == 0x80) start--;
    if (start == 0 || (unsigned char)text[--start] < 0xC0) return;
    if (!mirt__utf8_length(text + start, end - start)) text[start] = 0;
}

MIRT__LIB void mirt__vprint(char *out, size_t size, const char *format, va_list args) {
    char text[512];
    const int length = vsnprintf(text, sizeof text, format, args);
    if (length >= (int)sizeof text) mirt__drop_cut_character(text);
    mirt_printable(text, out, size);
}

MIRT__LIB mirt__phrase mirt__shown(const char *name) {
    mirt__phrase out;
    mirt_printable(name, out.text, sizeof out.text);
    return out;
}

/* >>width on a terminal */

typedef struct mirt__code_range {
    uint32_t first, last;
    int columns;
} mirt__code_range;

static int mirt__code_columns(uint32_t code) {
    static const mirt__code_range ranges[] = {
        {0x0300, 0x036F, 0},   {0x0483, 0x0489, 0},   {0x0591, 0x05BD, 0},   {0x064B, 0x065F, 0},
        {0x1100, 0x115F, 2},   {0x1AB0, 0x1AFF, 0},   {0x1DC0, 0x1DFF, 0},   {0x200B, 0x200D, 0},
        {0x20D0, 0x20FF, 0},   {0x231A, 0x232A, 2},   {0x23E9, 0x23F3, 2},   {0x25FD, 0x25FE, 2},
        {0x2600, 0x27BF, 2},   {0x2B1B, 0x2B55, 2},   {0x2E80, 0x303E, 2},   {0x3041, 0xA4CF, 2},
        {0xA960, 0xA97F, 2},   {0xAC00, 0xD7A3, 2},   {0xF900, 0xFAFF, 2},   {0xFE00, 0xFE0F, 0},
        {0xFE10, 0xFE1F, 2},   {0xFE20, 0xFE2F, 0},   {0xFE30, 0xFE6F, 2},   {0xFF01, 0xFF60, 2},
        {0xFFE0, 0xFFE6, 2},   {0x16FE0, 0x18DFF, 2}, {0x1AFF0, 0x1B2FF, 2}, {0x1F000, 0x1FAFF, 2},
        {0x20000, 0x3FFFD, 2}, {0xE0100, 0xE01EF, 0},
    };
    for (int i = 0; i < MIRT__COUNT(ranges) && code >= ranges[i].first; i++) {
        if (code <= ranges[i].last) return ranges[i].columns;
    }
    return 1;
}

MIRT__LIB int mirt__columns(const char *text) {
    int columns = 0;
    for (size_t left = strlen(text); left > 0;) {
        const int length = mirt__utf8_length(text, left), bytes = length > 0 ? length : 1;
        uint32_t code = (unsigned char)text[0] & (bytes > 1 ? 0x7Fu >> bytes : 0xFFu);
        for (int i = 1; i < bytes; i++) code = code << 6 | ((unsigned char)text[i] & 0x3Fu);
        columns += mirt__code_columns(code);
        text += bytes;
        left -= (size_t)bytes;
    }
    return columns;
}

/* >>suggestions */

#define MIRT__WORD_MAX 64

static int mirt__lower(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* The number of insertions, deletions, replacements and swaps of neighbors, ignoring case. Both lengths are below
   MIRT__WORD_MAX. */
static int mirt__edit_distance(const char *a, int a_length, const char *b, int b_length) {
    int rows[3][MIRT__WORD_MAX + 1];
    for (int j = 0; j <= b_length; j++) rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3];
        const int *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            bool same = mirt__lower(a[i - 1]) == mirt__lower(b[j - 1]);
            int best = above[j - 1] + (same ? 0 : 1);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && mirt__lower(a[i - 1]) == mirt__lower(b[j - 2]) &&
                           mirt__lower(a[i - 2]) == mirt__lower(b[j - 1]);
            if (swapped && above2[j - 2] + 1 < best) best = above2[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[a_length % 3][b_length];
}

MIRT__LIB const char *mirt__nearest(const char *word, const char *const *candidates, int count) {
    const char *nearest = NULL;
    size_t length = word ? strlen(word) : 0;
    if (length == 0 || length >= MIRT__WORD_MAX) return NULL;
    /* Allows one edit per three letters, and at least one. */
    int limit = length < 6 ? 1 : (int)length / 3;
    for (int i = 0; i < count; i++) {
        size_t other = strlen(candidates[i]);
        if (other >= MIRT__WORD_MAX) continue;
        int distance = mirt__edit_distance(word, (int)length, candidates[i], (int)other);
        if (distance <= limit) {
            nearest = candidates[i];
            limit = distance - 1;
        }
    }
    return nearest;
}

MIRT__LIB void mirt__guess(mirt__suggestion *s, const char *candidate) {
    const char *pair[2] = {candidate, s->nearest};
    s->nearest = mirt__nearest(s->word, pair, s->nearest ? 2 : 1);
}

MIRT__LIB const char *mirt__did_you_mean(mirt__suggestion *s) {
    if (s->nearest) snprintf(s->text, sizeof s->text, "; did you mean \"%s\"?", s->nearest);
    else s->text[0] = 0;
    return s->text;
}

#undef MIRT__WORD_MAX
