/* Pictures of a report, as inline SVG colored by the style sheet of report.c. */
#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* >>text */

static bool reserve(page *p, size_t more) {
    if (p->failed) return false;
    if (p->capacity - p->size > more) return true;
    size_t capacity = p->capacity ? p->capacity : 1 << 16;
    while (capacity - p->size <= more) capacity *= 2;
    char *data = (char *)realloc(p->data, capacity);
    if (!data) {
        p->failed = true;
        return false;
    }
    p->data = data;
    p->capacity = capacity;
    return true;
}

void add(page *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !reserve(p, (size_t)length)) return;
    va_start(args, format);
    vsnprintf(p->data + p->size, (size_t)length + 1, format, args);
    va_end(args);
    p->size += (size_t)length;
}

/* Bytes of the UTF-8 character at `s`, which ends in 0; 0: it is invalid. */
static int character(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    const int length = s[0] < 0x80                   ? 1
                       : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                       : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                       : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                     : 0;
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
    }
    /* overlong or a surrogate */
    if (length == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F))) return 0;
    if (length == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))) return 0;
    return length;
}

/* Characters that change the text direction or end a line: U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069.
   */
static bool turns(const char *text, int length) {
    const unsigned char *c = (const unsigned char *)text;
    if (length == 2) return c[0] == 0xd8 && c[1] == 0x9c;
    if (length != 3 || c[0] != 0xe2) return false;
    if (c[1] == 0x80) return c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae);
    return c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9;
}

/* At most `most` characters; "..." replaces the rest. */
void add_start(page *p, const char *text, int most) {
    while (text && *text) {
        const int length = character(text);
        const unsigned char c = (unsigned char)*text;
        if (most-- == 0) {
            add(p, "\xe2\x80\xa6");
            return;
        }
        if (length == 0 || turns(text, length) || c == 127 || (c < 32 && c != '\n' && c != '\t'))
            add(p, "\xef\xbf\xbd");
        else if (strchr("<>&\"'", c)) add(p, "&#%d;", c);
        else add(p, "%.*s", length, text);
        text += length ? length : 1;
    }
}

void add_text(page *p, const char *text) { add_start(p, text, -1); }

void add_number(page *p, double number) {
    const double size = fabs(number);
    if (isnan(number)) add(p, "NaN");
    else if (isinf(number)) add(p, "%s\xe2\x88\x9e", number < 0 ? "\xe2\x88\x92" : "");
    else if (size == 0) add(p, "0");
    else if (size >= 1e6 || size < 1e-4) add(p, "%.3g", number);
    else if (size >= 1000) add(p, "%.0f", number);
    else add(p, "%.4g", number);
}

static void add_value(page *p, double number, bool share) {
    if (share && isfinite(number)) add(p, "%.2f\xc2\xa0%%", 100 * number);
    else add_number(p, number);
}

/* >>charts */

enum { MOST_POINTS = 2000, WIDE = 400, HIGH = 220, LEFT = 46, RIGHT = 12, TOP = 10, BOTTOM = 30 };

typedef struct axes {
    double low[2], high[2], step[2]; /* of x and y */
} axes;

/* The step, 1, 2 or 5 times a power of ten, that divides `range` into about `ticks` parts. */
static double tick_of(double range, int ticks) {
    const double power = pow(10, floor(log10(range / ticks)));
    const double more = range / ticks / power;
    return (more < 1.5 ? 1 : more < 3.2 ? 2 : more < 7 ? 5 : 10) * power;
}

/* Of larger numbers the differences overflow. */
static bool is_drawn(const series *line, int k) {
    return fabs(line->x[k]) < 1e300 && fabs(line->y[k]) < 1e300; /* false for NaN */
}

static bool find_range(const series *lines, int count, axes *a) {
    bool any = false;
    for (int axis = 0; axis < 2; axis++) {
        a->low[axis] = HUGE_VAL;
        a->high[axis] = -HUGE_VAL;
    }
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < lines[i].count; k++) {
            const double at[2] = {lines[i].x[k], lines[i].y[k]};
            if (!is_drawn(&lines[i], k)) continue;
            any = true;
            for (int axis = 0; axis < 2; axis++) {
                a->low[axis] = fmin(a->low[axis], at[axis]);
                a->high[axis] = fmax(a->high[axis], at[axis]);
            }
        }
    }
    return any;
}

/* Axes that end at ticks. An axis of losses begins at 0, and one of accuracies ends at 1, if that wastes at most a
   third of the height. */
static void round_axes(axes *a, bool share) {
    a->low[0] = 0;
    if (a->high[0] <= 0) a->high[0] = 1;
    if (a->high[0] > 1) a->high[0] = ceil(a->high[0] - 1e-9);
    const double range = a->high[1] - a->low[1];
    if (a->low[1] > 0 && a->low[1] <= 0.5 * a->high[1]) a->low[1] = 0;
    if (share && a->high[1] < 1 && 1 - a->high[1] < range / 3) a->high[1] = 1;
    if (a->high[1] - a->low[1] < 1e-12 * fmax(fabs(a->high[1]), 1e-30)) {
        const double room = a->high[1] ? 0.5 * fabs(a->high[1]) : 1;
        a->low[1] = a->high[1] > 0 ? 0 : a->low[1] - room;
        a->high[1] += room;
    }
    for (int axis = 0; axis < 2; axis++) {
        a->step[axis] = tick_of(a->high[axis] - a->low[axis], 4);
        if (axis == 0 && a->step[0] < 1 && a->high[0] >= 4) a->step[0] = 1;
    }
    a->low[1] = a->step[1] * floor(a->low[1] / a->step[1] + 1e-9);
    a->high[1] = a->step[1] * ceil(a->high[1] / a->step[1] - 1e-9);
}

static double place_x(const axes *a, double x) {
    return LEFT + (WIDE - LEFT - RIGHT) * (x - a->low[0]) / (a->high[0] - a->low[0]);
}
static double place_y(const axes *a, double y) {
    return HIGH - BOTTOM - (HIGH - TOP - BOTTOM) * (y - a->low[1]) / (a->high[1] - a->low[1]);
}

static void draw_axes(page *p, const axes *a, const chart *c) {
    add(p, "<g class=\"axes\">");
    for (int i = 0; a->low[1] + i * a->step[1] <= a->high[1] + 1e-9 * a->step[1] && i < 16; i++) {
        double y = a->low[1] + i * a->step[1];
        if (fabs(y) < 1e-9 * a->step[1]) y = 0;
        add(p,
            "<path class=\"grid%s\" d=\"M%d %.1fH%d\"/><text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">",
            i ? "" : " base", LEFT, place_y(a, y), WIDE - RIGHT, LEFT - 7, place_y(a, y) + 4);
        if (c->share) add(p, "%.4g%%", 100 * y);
        else add_number(p, y);
        add(p, "</text>");
    }
    for (int i = 0; i * a->step[0] <= a->high[0] + 1e-9 * a->step[0] && i < 16; i++) {
        add(p, "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%.4g</text>",
            place_x(a, i * a->step[0]), HIGH - BOTTOM + 16, i * a->step[0]);
    }
    add(p, "</g><text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%d\">%s</text>", WIDE - RIGHT, HIGH - 3, c->over);
}

/* The outline of a line's marks around the origin: lines differ in it as well as in color. */
static const char *mark_of(const char *look) {
    static const char *const outline[] = {
        "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z", "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z",
        "M-2.5-2.5h5v5h-5z", "M0-3.5l3.5 3.5l-3.5 3.5l-3.5-3.5z", "M0-3l3 5.5h-6z", "M0 3l3-5.5h-6z",
        "M-2.5-2.5h5v5h-5z", "M-3-3l6 6M3-3l-6 6"};
    const int number = look[0] == 's' ? look[1] - '1' : -1;
    return number >= 0 && number < MOST_LOOKS ? outline[number] : NULL;
}

static void draw_marks(page *p, const axes *a, const series *line, bool all) {
    const char *mark = mark_of(line->style);
    if (!mark || line->count > 60) return;
    add(p, "<g class=\"dots %s\" data-all=\"%d\">", line->style, all);
    for (int k = 0; k < line->count; k++) {
        if (!is_drawn(line, k) || (!all && line->x[k] != floor(line->x[k]))) continue;
        add(p, "<path transform=\"translate(%.1f %.1f)\" d=\"%s\"/>", place_x(a, line->x[k]), place_y(a, line->y[k]),
            mark);
    }
    add(p, "</g>");
}

static void draw_line(page *p, const axes *a, const series *line, bool all) {
    bool pen = false;
    const int each = (line->count - 1) / MOST_POINTS + 1; /* more points than pixels are not visible */
    add(p, "<path class=\"line %s\" data-name=\"", line->style);
    add_text(p, line->name);
    add(p, "\" data-d=\"");
    for (int k = (line->count - 1) % each; k < line->count; k += each) {
        if (is_drawn(line, k)) add(p, "%s%.6g,%.5g", pen ? " " : "", line->x[k], line->y[k]);
        else add(p, "%s0,", pen ? " " : "");
        pen = true;
    }
    pen = false;
    add(p, "\" d=\"");
    for (int k = (line->count - 1) % each; k < line->count; k += each) {
        const bool good = is_drawn(line, k);
        if (good) add(p, "%c%.1f %.1f", pen ? 'L' : 'M', place_x(a, line->x[k]), place_y(a, line->y[k]));
        pen = good;
    }
    add(p, "\"/>");
    draw_marks(p, a, line, all);
}

void add_key(page *p, const char *look) {
    const char *mark = mark_of(look);
    add(p, "<svg class=\"key\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"line %s\" d=\"M0 5H28\"/>",
        look);
    if (mark) add(p, "<g class=\"dots %s\"><path transform=\"translate(14 5)\" d=\"%s\"/></g>", look, mark);
    add(p, "</svg>");
}

/* "- validation 97.1 % - best 97.3 % in epoch 4": the final values of the lines. */
static void draw_legend(page *p, const chart *c) {
    add(p, "<figcaption><ul class=\"legend\">");
    for (int i = 0; i < c->count; i++) {
        const series *line = &c->lines[i];
        int last = line->count - 1, top = -1;
        while (last >= 0 && !isfinite(line->y[last])) last--;
        add(p, "<li>");
        add_key(p, line->style);
        add_text(p, line->name);
        if (last >= 0 && strcmp(line->style, "faint") != 0) {
            add(p, " <b>");
            add_value(p, line->y[last], c->share);
            add(p, "</b>");
        }
        for (int k = 0; k < line->count; k++) {
            if (isfinite(line->y[k]) && (top < 0 || c->best * line->y[k] > c->best * line->y[top])) top = k;
        }
        if (c->best && (c->each || i == c->count - 1) && top >= 0 &&
            fabs(line->y[top] - line->y[last]) > 1e-4 * fabs(line->y[last])) {
            add(p, " <span class=\"muted\">(best ");
            add_value(p, line->y[top], c->share);
            add(p, " in %s %.4g)</span>", c->over, line->x[top]);
        }
        add(p, "</li>");
    }
    add(p, "</ul></figcaption>");
}

void draw_chart(page *p, const chart *c) {
    axes a;
    memset(&a, 0, sizeof a);
    if (!find_range(c->lines, c->count, &a)) return;
    round_axes(&a, c->share);
    add(p, "<figure class=\"card chart\"><h3>");
    add_text(p, c->title);
    add(p, "</h3><svg viewBox=\"0 0 %d %d\" data-view=\"%.6g %.6g %.6g %.6g\" data-over=\"%s\"%s role=\"img\" "
           "aria-label=\"", WIDE, HIGH, a.low[0], a.high[0], a.low[1], a.high[1], c->over,
        c->share ? " data-share=\"1\"" : "");
    add_text(p, c->title);
    add(p, " over %ss%s\">", c->over, c->tabled ? "; the numbers are in the table below" : "");
    draw_axes(p, &a, c);
    add(p, "<g class=\"plot\">");
    for (int i = 0; i < c->count; i++) draw_line(p, &a, &c->lines[i], c->all_marks);
    add(p, "</g></svg>");
    draw_legend(p, c);
    add(p, "</figure>");
}

/* >>bars */

void draw_bar(page *p, const char *title, const double *part, const char *const *name, int parts, double whole) {
    double at = 0;
    add(p, "<svg class=\"bar\" viewBox=\"0 0 1000 26\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"");
    add_text(p, title);
    add(p, "\">");
    for (int i = 0; i < parts; i++) {
        const double wide = whole > 0 && part[i] > 0 ? 1000 * part[i] / whole : 0;
        if (wide < 0.5) continue;
        add(p, "<rect class=\"p%d\" x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"26\"><title>", i, at,
            wide > 2 ? wide - 1 : wide);
        add_text(p, name[i]);
        add(p, ": %.1f %%</title></rect>", wide / 10);
        at += wide;
    }
    add(p, "</svg>");
}

/* >>matrix */

/* The short name of a class. */
static void add_class(page *p, const char *const *names, int i, int most) {
    if (names) add_start(p, names[i], most);
    else add(p, "%d", i);
}

static void draw_cell(page *p, double count, double all, int row, int column, double cell, double left, double top,
                      const char *const *names, bool numbers) {
    const double share = all > 0 ? count / all : 0;
    add(p, "<g><title>");
    add_class(p, names, row, 60);
    add(p, " predicted as ");
    add_class(p, names, column, 60);
    add(p,
        ": %.0f of %.0f</title><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" "
        "fill-opacity=\"%.3f\"/>",
        count, all, row == column ? "right" : "wrong", left + column * cell, top + row * cell, cell - 1.5, cell - 1.5,
        count > 0 ? 0.08 + 0.92 * (row == column ? share * share : sqrt(share)) : 0.0);
    if (numbers && count > 0) {
        const bool dark = (row == column ? share * share : sqrt(share)) > 0.5;
        add(p, "<text class=\"%s\" text-anchor=\"middle\" font-size=\"%.1f\" x=\"%.1f\" y=\"%.1f\">%.0f</text>",
            dark ? "on" : "off", fmin(12, 1.5 * cell / fmax(3, floor(log10(count)) + 1)),
            left + (column + 0.5) * cell - 0.7, top + (row + 0.5) * cell + 3.4, count);
    }
    add(p, "</g>");
}

void draw_confusion(page *p, const double *count, int classes, const char *const *names) {
    size_t longest = 1;
    for (int i = 0; names && i < classes; i++) longest = strlen(names[i]) > longest ? strlen(names[i]) : longest;
    const int most = 12;
    const double side = 400, room = names ? 14 + 6.4 * (longest < (size_t)most ? (double)longest : most) : 24;
    const bool labels = classes <= 32, upright = labels && longest > 2;
    const double left = labels ? room : 8, top = labels ? (upright ? room : 22) : 8;
    const double cell = fmin((side - left - 4) / classes, 80), high = top + cell * classes + 18;
    add(p, "<svg class=\"matrix\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"Confusion matrix: a row for each "
           "true class, a column for each predicted one; the numbers are in the table below\">", side, high);
    for (int i = 0; labels && i < classes; i++) {
        const double middle = (i + 0.5) * cell;
        add(p, "<text class=\"tick\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">", left - 6, top + middle + 4);
        add_class(p, names, i, most);
        if (upright)
            add(p, "</text><text class=\"tick\" transform=\"translate(%.1f %.1f) rotate(-90)\">", left + middle + 4,
                top - 6);
        else
            add(p, "</text><text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">", left + middle, top - 7);
        add_class(p, names, i, most);
        add(p, "</text>");
    }
    for (int i = 0; i < classes; i++) {
        double all = 0;
        for (int j = 0; j < classes; j++) all += count[i * classes + j];
        for (int j = 0; j < classes; j++)
            draw_cell(p, count[i * classes + j], all, i, j, cell, left, top, names, classes <= 16);
    }
    add(p, "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">"
           "columns: predicted \xc2\xb7 rows: true</text></svg>", left + fmax(cell * classes, 150) / 2, high - 2);
}
