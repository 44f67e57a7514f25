#include "../base/base.h"
/* Draws a confusion matrix as a picture. */

/* ASCII letters from the space on: five columns per letter, lowest bit at the top. */
static const uint8_t mirt__letters[95 * 5] = {
    0, 0, 0, 0, 0, 0, 0, 95, 0, 0, 0, 7, 0, 7, 0, 20, 127, 20, 127, 20, 36, 42, 127, 42, 18, 35, 19, 8, 100, 98, 54,
    73, 86, 32, 80, 0, 8, 7, 3, 0, 0, 28, 34, 65, 0, 0, 65, 34, 28, 0, 42, 28, 127, 28, 42, 8, 8, 62, 8, 8, 0, 128,
    112, 48, 0, 8, 8, 8, 8, 8, 0, 0, 96, 96, 0, 32, 16, 8, 4, 2, 62, 81, 73, 69, 62, 0, 66, 127, 64, 0, 114, 73, 73,
    73, 70, 33, 65, 73, 77, 51, 24, 20, 18, 127, 16, 39, 69, 69, 69, 57, 60, 74, 73, 73, 49, 65, 33, 17, 9, 7, 54, 73,
    73, 73, 54, 70, 73, 73, 41, 30, 0, 0, 20, 0, 0, 0, 64, 52, 0, 0, 0, 8, 20, 34, 65, 20, 20, 20, 20, 20, 0, 65, 34,
    20, 8, 2, 1, 89, 9, 6, 62, 65, 93, 89, 78, 124, 18, 17, 18, 124, 127, 73, 73, 73, 54, 62, 65, 65, 65, 34, 127, 65,
    65, 65, 62, 127, 73, 73, 73, 65, 127, 9, 9, 9, 1, 62, 65, 65, 81, 115, 127, 8, 8, 8, 127, 0, 65, 127, 65, 0, 32,
    64, 65, 63, 1, 127, 8, 20, 34, 65, 127, 64, 64, 64, 64, 127, 2, 28, 2, 127, 127, 4, 8, 16, 127, 62, 65, 65, 65,
    62, 127, 9, 9, 9, 6, 62, 65, 81, 33, 94, 127, 9, 25, 41, 70, 38, 73, 73, 73, 50, 3, 1, 127, 1, 3, 63, 64, 64, 64,
    63, 31, 32, 64, 32, 31, 63, 64, 56, 64, 63, 99, 20, 8, 20, 99, 3, 4, 120, 4, 3, 97, 89, 73, 77, 67, 0, 127, 65,
    65, 65, 2, 4, 8, 16, 32, 0, 65, 65, 65, 127, 4, 2, 1, 2, 4, 64, 64, 64, 64, 64, 0, 3, 7, 8, 0, 32, 84, 84, 120,
    64, 127, 40, 68, 68, 56, 56, 68, 68, 68, 40, 56, 68, 68, 40, 127, 56, 84, 84, 84, 24, 0, 8, 126, 9, 2, 24, 164,
    164, 156, 120, 127, 8, 4, 4, 120, 0, 68, 125, 64, 0, 32, 64, 64, 61, 0, 127, 16, 40, 68, 0, 0, 65, 127, 64, 0,
    124, 4, 120, 4, 120, 124, 8, 4, 4, 120, 56, 68, 68, 68, 56, 252, 24, 36, 36, 24, 24, 36, 36, 24, 252, 124, 8, 4,
    4, 8, 72, 84, 84, 84, 36, 4, 4, 63, 68, 36, 60, 64, 64, 32, 124, 28, 32, 64, 32, 28, 60, 64, 48, 64, 60, 68, 40,
    16, 40, 68, 76, 144, 144, 144, 124, 68, 100, 84, 76, 68, 0, 8, 54, 65, 0, 0, 0, 119, 0, 0, 0, 65, 54, 8, 0, 2, 1,
    2, 4, 2
};

typedef struct mirt__picture {
    uint8_t *pixel; /* [height, width, 3] */
    int width, height;
} mirt__picture;

static void mirt__picture_fill(const mirt__picture *p, int x, int y, int width, int height, const uint8_t color[3]) {
    for (int i = y < 0 ? 0 : y; i < y + height && i < p->height; i++) {
        for (int j = x < 0 ? 0 : x; j < x + width && j < p->width; j++)
            memcpy(p->pixel + (i * p->width + j) * 3, color, 3);
    }
}

/* Draws letters of 6 by 8 dots of `size` pixels; `up`: from bottom to top. Non-ASCII letters become question marks. */
static void mirt__picture_write(const mirt__picture *p, int x, int y, int size, bool up, const char *text, int length,
                                const uint8_t color[3]) {
    for (int i = 0; i < length; i++) {
        const int letter = text[i] >= 32 && text[i] < 127 ? text[i] - 32 : '?' - 32;
        for (int dot = 0; dot < 40; dot++) {
            if (!(mirt__letters[letter * 5 + dot / 8] >> dot % 8 & 1)) continue;
            const int along = (6 * i + dot / 8) * size, across = dot % 8 * size;
            if (up) mirt__picture_fill(p, x + across, y - along - size, size, size, color);
            else mirt__picture_fill(p, x + along, y + across, size, size, color);
        }
    }
}

typedef struct mirt__confusion {
    const int64_t *counts;
    int classes, cell, left, top;
    int letters, digits; /* sizes of letters next to and in the matrix; 0: no letters */
    const char *const *names;
} mirt__confusion;

enum { MIRT__NAME_MOST = 16 };

/* The name of a class, or its number: each multi-byte letter counts as one unknown letter, and long names are
   truncated. Returns the length. */
static int mirt__confusion_name(const mirt__confusion *m, int i, char text[MIRT__NAME_MOST + 1]) {
    int length = 0;
    if (!m->names || !m->names[i]) return snprintf(text, MIRT__NAME_MOST + 1, "%d", i);
    for (const char *at = m->names[i]; *at && length < MIRT__NAME_MOST; at++) {
        if (((unsigned char)*at & 0xc0) != 0x80) text[length++] = *at;
    }
    return length;
}

/* Blue on the diagonal, orange elsewhere, as intense as the share of the row. */
static void mirt__confusion_cell(const mirt__picture *p, const mirt__confusion *m, int row, int column, int64_t sum) {
    static const uint8_t right[3] = {31, 95, 168}, wrong[3] = {214, 90, 24}, dark[3] = {32, 32, 32},
                         white[3] = {255, 255, 255}, nothing[3] = {247, 247, 247};
    const int64_t count = m->counts[row * m->classes + column];
    const double share = sum > 0 ? (double)count / (double)sum : 0, depth = count ? 0.12 + 0.88 * sqrt(share) : 0;
    const uint8_t *deep = row == column ? right : wrong;
    uint8_t color[3];
    char text[32];
    const int gap = m->cell > 6, x = m->left + column * m->cell, y = m->top + row * m->cell;
    for (int k = 0; k < 3; k++)
        color[k] = (uint8_t)((double)nothing[k] + depth * ((double)deep[k] - (double)nothing[k]) + 0.5);
    mirt__picture_fill(p, x, y, m->cell - gap, m->cell - gap, color);
    const int length = snprintf(text, sizeof text, "%lld", (long long)count);
    const int size = m->digits;
    if (size && count)
        mirt__picture_write(p, x + (m->cell - gap - length * 6 * size + size) / 2, y + (m->cell - 7 * size) / 2, size,
                            false, text, length, depth > 0.55 ? white : dark);
}

static void mirt__confusion_draw(const mirt__picture *p, const mirt__confusion *m) {
    static const uint8_t ink[3] = {64, 64, 64}, white[3] = {255, 255, 255};
    const int side = m->classes * m->cell, size = m->letters;
    char text[MIRT__NAME_MOST + 1];
    mirt__picture_fill(p, 0, 0, p->width, p->height, white);
    for (int i = 0; i < m->classes; i++) {
        int64_t sum = 0;
        for (int j = 0; j < m->classes; j++) sum += m->counts[i * m->classes + j];
        for (int j = 0; j < m->classes; j++) mirt__confusion_cell(p, m, i, j, sum);
        if (!size) continue;
        const int length = mirt__confusion_name(m, i, text), middle = i * m->cell + (m->cell - 8 * size) / 2;
        mirt__picture_write(p, m->left - 6 - length * 6 * size, m->top + middle, size, false, text, length, ink);
        mirt__picture_write(p, m->left + middle, m->top - 6, size, true, text, length, ink);
    }
    mirt__picture_write(p, 6, m->top + side / 2 + 24, 2, true, "true", 4, ink);
    mirt__picture_write(p, m->left + side / 2 - 54, 6, 2, false, "predicted", 9, ink);
}

/* Counts must not be negative, and the sum of a row must be exact in double precision. */
static mirt_status mirt__confusion_check(const int64_t *counts, int classes) {
    const int64_t most = (int64_t)1 << 53;
    for (int i = 0; i < classes; i++) {
        int64_t sum = 0;
        for (int j = 0; j < classes; j++) {
            const int64_t count = counts[i * classes + j];
            if (count < 0 || count > most - sum)
                return mirt__fail(MIRT_E_INVALID,
                                  count < 0 ? "mirt_save_confusion_png: the count of row %d, column %d is %lld; a "
                                              "count cannot be negative"
                                            : "mirt_save_confusion_png: the counts of row %d add up to more than "
                                              "2^53 (column %d is %lld)",
                                  i, j, (long long)count);
            sum += count;
        }
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_save_confusion_png(const char *path, const int64_t *counts, int classes,
                                             const char *const *names) {
    MIRT__ENTER;
    mirt__confusion m;
    mirt__picture p;
    char text[MIRT__NAME_MOST + 1];
    int longest = 1;
    if (!path || !counts) return mirt__fail_missing(__func__, path ? "matrix" : "path");
    if (classes < 2 || classes > 4096)
        return mirt__fail(MIRT_E_INVALID, "mirt_save_confusion_png: %d classes; the number must be 2 to 4096", classes);
    if (mirt__confusion_check(counts, classes) != MIRT_OK) return mirt_last_status();
    memset(&m, 0, sizeof m);
    m.counts = counts;
    m.classes = classes;
    m.names = names;
    m.cell = classes <= 12 ? 56 : classes <= 32 ? 28 : classes <= 128 ? 12 : classes <= 512 ? 4 : 2;
    m.letters = m.cell >= 20 ? 2 : m.cell >= 10 ? 1 : 0;
    for (int i = 0; i < classes; i++) {
        const int length = mirt__confusion_name(&m, i, text);
        longest = length > longest ? length : longest;
    }
    int64_t most = 0;
    for (int i = 0; i < classes * classes; i++) most = counts[i] > most ? counts[i] : most;
    const int digits = snprintf(text, sizeof text, "%.0f", (double)most);
    m.digits = 2;
    while (m.digits && (digits * 6 * m.digits > m.cell - 4 || 8 * m.digits > m.cell - 4)) m.digits--;
    m.left = m.top = 40 + 6 * longest * m.letters;
    p.width = m.left + classes * m.cell + 12;
    if (p.width < m.left + 120) p.width = m.left + 120;
    p.height = m.top + classes * m.cell + 12;
    p.pixel = (uint8_t *)mirt__calloc((size_t)p.width * 3, (size_t)p.height);
    if (!p.pixel) return mirt_last_status();
    mirt__confusion_draw(&p, &m);
    mirt_status status = mirt_write_png(
        path, mirt_make_array(p.pixel, MIRT_UINT8, mirt_make_shape(p.height, p.width, 3, 0, 0, 0)), 1);
    mirt__free(p.pixel);
    return status;
}
