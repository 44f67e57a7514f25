/* mirrortrain graph --svg: draws what mirroring inserts, from the library's texts. */
#include "cli.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LAYERS = 8,    /* boxes of a column */
    MOST_REPLICAS = 8,  /* columns */
    MOST_SUMS = 6,      /* lines of the all-reduce */
    MARGIN = 28, COLUMN = 178, GAP = 18, BOX = 32, LINK = 12, HEAD = 96, STEP = BOX + LINK, UPDATE = 58
};

/* The contents of the texts. */
typedef struct layer_line {
    char name[64], kind[64], shape[64];
} layer_line;
typedef struct split_line {
    char rows[64], device[32]; /* "": no rows */
} split_line;
typedef struct update_line {
    char device[32], what[128];
} update_line;
typedef struct picture {
    layer_line *layer;
    split_line *split;
    update_line *update;
    char (*sum)[96];
    int layers, splits, updates, sums, buckets;
    char model[64];
    int64_t batch;
} picture;

/* Appends an element of `size` bytes; NULL: out of memory. */
static void *one_more(void **list, int count, size_t size) {
    if ((count & (count - 1)) == 0) {
        void *more = realloc(*list, (size_t)(count ? 2 * count : 1) * size);
        if (!more) return NULL;
        *list = more;
    }
    void *place = (char *)*list + (size_t)count * size;
    memset(place, 0, size);
    return place;
}

/* The rest of the line from `at`, without blanks around it, at most size - 1 bytes. */
static void rest_of_line(const char *at, char *out, size_t size) {
    size_t length;
    at += strspn(at, " ");
    length = strcspn(at, "\n");
    while (length && at[length - 1] == ' ') length--;
    snprintf(out, size, "%.*s", (int)length, at);
}

/* "conv2d (Conv2D)      (rows, 26, 26, 32)      320     194688" */
static bool read_layers(const char *text, picture *p) {
    const char *line = strchr(text, '\n');
    while (line && (line = strchr(line + 1, '\n')) != NULL && strncmp(line + 1, "Total parameters", 16) != 0) {
        const char *at = line + 1, *kind = strstr(at, " ("), *shape = strstr(at, "(rows"), *end = strchr(at, '\n');
        if (!kind || !shape || !end || shape > end || kind >= shape) continue;
        layer_line *l = (layer_line *)one_more((void **)&p->layer, p->layers, sizeof *l);
        if (!l) return false;
        p->layers++;
        snprintf(l->name, sizeof l->name, "%.*s", (int)(kind - at), at);
        snprintf(l->kind, sizeof l->kind, "%.*s", (int)strcspn(kind + 2, ")"), kind + 2);
        snprintf(l->shape, sizeof l->shape, "%.*s)", (int)strcspn(shape, ")"), shape);
    }
    return true;
}

/* "cpu:0: adam on elements 0 to 319, written to ..."; of each device the first. */
static bool read_update(const char *at, picture *p) {
    const char *colon = strstr(at, ": ");
    for (int i = 0; colon && i < p->updates; i++) {
        const char *device = p->update[i].device;
        if (strlen(device) == (size_t)(colon - at) && strncmp(at, device, strlen(device)) == 0) return true;
    }
    update_line *u = (update_line *)one_more((void **)&p->update, p->updates, sizeof *u);
    if (!u) return false;
    p->updates++;
    if (!colon) return true;
    snprintf(u->device, sizeof u->device, "%.*s", (int)(colon - at), at);
    rest_of_line(colon + 2, u->what, sizeof u->what);
    return true;
}

static int by_device(const void *a, const void *b) {
    const update_line *x = (const update_line *)a, *y = (const update_line *)b;
    const size_t lx = strlen(x->device), ly = strlen(y->device);
    return lx != ly ? (lx < ly ? -1 : 1) : strcmp(x->device, y->device);
}

/* The lines after "after mirroring": additions of the first bucket, the first update of each device. */
static bool read_step(const char *text, picture *p) {
    const char *line = strstr(text, "\nafter mirroring");
    bool first = false;
    line = line ? strchr(line + 1, '\n') : NULL;
    for (; line && line[1]; line = strchr(line + 1, '\n')) {
        const char *at = line + 1 + strspn(line + 1, " "), *arrow;
        if (strncmp(at, "scatter", 7) == 0 && (arrow = strstr(at, "->")) != NULL) {
            split_line *s = (split_line *)one_more((void **)&p->split, p->splits, sizeof *s);
            if (!s) return false;
            p->splits++;
            at += 7 + strspn(at + 7, " ");
            if (strncmp(at, "no rows", 7) != 0) snprintf(s->rows, sizeof s->rows, "%.*s", (int)(arrow - at - 1), at);
            const char *on = strstr(arrow, " on ");
            if (on) rest_of_line(on + 4, s->device, sizeof s->device);
        } else if (strncmp(at, "all_reduce", 10) == 0 || strncmp(at, "update", 6) == 0) {
            first = strncmp(at + 11, "bucket 0,", 9) == 0;
            p->buckets += *at == 'a';
        } else if (first && strncmp(at, "add ", 4) == 0) {
            char (*sum)[96] = (char (*)[96])one_more((void **)&p->sum, p->sums, sizeof *p->sum);
            if (!sum) return false;
            p->sums++;
            rest_of_line(at + 4, *sum, sizeof *sum);
        } else if (strncmp(at, "on ", 3) == 0 && !read_update(at + 3 + strspn(at + 3, " "), p)) {
            return false;
        }
    }
    qsort(p->update, (size_t)p->updates, sizeof *p->update, by_device);
    return true;
}

/* >>drawing */

static void box(page *g, const char *style, double x, double y, double w, double h) {
    add(g, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"6\"/>\n", style, x, y, w, h);
}

/* Centered on x. */
static void words(page *g, const char *style, double x, double y, const char *text, int most) {
    add(g, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", style, x, y);
    add_start(g, text, most);
    add(g, "</text>\n");
}

static void arrow(page *g, const char *style, double x1, double y1, double x2, double y2) {
    add(g, "<path class=\"%s\" d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" marker-end=\"url(#%s)\"/>\n", style, x1,
        y1, x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2 - 4, style[0] == 'n' ? "tip-new" : "tip");
}

/* A box with one or two lines, its top at y. */
static void labeled(page *g, const char *style, double x, double y, double w, double h, const char *first,
                    const char *second) {
    const int most = (int)(w / 7);
    box(g, style, x, y, w, h);
    words(g, "name", x + w / 2, y + (second ? h / 2 - 3 : h / 2 + 4), first, most);
    if (second) words(g, "small", x + w / 2, y + h / 2 + 10, second, (int)(w / 5.2));
}

static int boxes_of(const picture *p) { return p->layers < MOST_LAYERS ? p->layers : MOST_LAYERS; }

/* The layer at place i of a column of at most MOST_LAYERS; -1: the place that stands for the omitted layers. */
static int layer_at(const picture *p, int i) {
    if (p->layers <= MOST_LAYERS || i < MOST_LAYERS / 2) return i;
    return i == MOST_LAYERS / 2 ? -1 : p->layers - (MOST_LAYERS - i);
}

/* Draws the model as a column: layers, with or without their shapes, loss, gradients. Returns the y where it ends. */
static double column(page *g, const picture *p, double x, double y, bool shapes) {
    for (int i = 0; i < boxes_of(p); i++, y += STEP) {
        const int number = layer_at(p, i);
        if (i) arrow(g, "link", x + COLUMN / 2.0, y - LINK, x + COLUMN / 2.0, y);
        if (number < 0) {
            char more[48];
            snprintf(more, sizeof more, "%d more layers", p->layers - MOST_LAYERS + 1);
            words(g, "small", x + COLUMN / 2.0, y + BOX / 2.0 + 4, more, 40);
            continue;
        }
        labeled(g, "layer", x, y, COLUMN, BOX, p->layer[number].name, shapes ? p->layer[number].shape : NULL);
    }
    arrow(g, "link", x + COLUMN / 2.0, y - LINK, x + COLUMN / 2.0, y);
    labeled(g, "layer", x, y, COLUMN, BOX, "loss, backward", NULL);
    y += STEP;
    arrow(g, "link", x + COLUMN / 2.0, y - LINK, x + COLUMN / 2.0, y);
    labeled(g, "gradient", x, y, COLUMN, BOX, "gradients", NULL);
    return y + BOX;
}

static void draw_before(page *g, const picture *p, double x, double update_y) {
    char text[96];
    words(g, "title", x + COLUMN / 2.0, HEAD - 50, "before", 40);
    snprintf(text, sizeof text, "batch of %lld", (long long)p->batch);
    labeled(g, "data", x, HEAD - 28, COLUMN, BOX, text, NULL);
    arrow(g, "link", x + COLUMN / 2.0, HEAD - 28 + BOX, x + COLUMN / 2.0, HEAD + 62);
    double end = column(g, p, x, HEAD + 62, true);
    arrow(g, "link", x + COLUMN / 2.0, end, x + COLUMN / 2.0, update_y);
    snprintf(text, sizeof text, "%.*s", p->updates ? (int)strcspn(p->update[0].what, " ") : 0,
             p->updates ? p->update[0].what : "");
    labeled(g, "layer", x, update_y, COLUMN, UPDATE, text, "updates the weights");
}

static int shown_of(const picture *p) { return p->splits < MOST_REPLICAS ? p->splits : MOST_REPLICAS; }
static double replica_x(double x, int r) { return x + r * (double)(COLUMN + GAP); }

/* Draws a frame around the replicas of each device. */
static void draw_devices(page *g, const picture *p, double x, double bottom) {
    for (int r = 0, shown = shown_of(p); r < shown;) {
        int end = r;
        while (end < shown && strcmp(p->split[end].device, p->split[r].device) == 0) end++;
        box(g, "device", replica_x(x, r) - 5, HEAD + 30, (end - r) * (double)(COLUMN + GAP) - GAP + 10,
            bottom - HEAD - 20);
        add(g, "<text class=\"device-name\" x=\"%.1f\" y=\"%.1f\">", replica_x(x, r), HEAD + 48.0);
        add_start(g, p->split[r].device, 11);
        add(g, "</text>\n");
        r = end;
    }
}

static double sums_high(const picture *p, bool local) {
    return 40 + 15.0 * ((p->sums < MOST_SUMS ? p->sums : MOST_SUMS) + local);
}

static double draw_sums(page *g, const picture *p, double x, double y, double wide, bool local) {
    const int lines = p->sums <= MOST_SUMS ? p->sums : MOST_SUMS - 1;
    const double high = sums_high(p, local);
    char text[96];
    box(g, "new", x, y, wide, high);
    words(g, "name", x + wide / 2, y + 20,
          wide > 430 ? "all-reduce: the sum over all replicas, scaled by the actual number of rows"
                     : "all-reduce: the sum",
          120);
    double at = y + 37;
    if (local) {
        words(g, "small", x + wide / 2, at, "each device first adds the gradients of its own replicas", 120);
        at += 15;
    }
    for (int i = 0; i < lines; i++, at += 15) words(g, "small", x + wide / 2, at, p->sum[i], 90);
    snprintf(text, sizeof text, "and %d more additions", p->sums - lines);
    if (p->sums > lines) words(g, "small", x + wide / 2, at, text, 90);
    return y + high;
}

/* "adam on elements 0 to 173583, written to every device's copy" as three lines. */
static void draw_update(page *g, const update_line *u, double x, double y, double w) {
    const char *on = strstr(u->what, " on "), *comma = strstr(u->what, ", ");
    char text[192];
    snprintf(text, sizeof text, "%s: %.*s", u->device, on ? (int)(on - u->what) : 0, u->what);
    box(g, "new", x, y, w, UPDATE);
    words(g, "name", x + w / 2, y + 20, text, (int)(w / 7));
    snprintf(text, sizeof text, "%.*s", on && comma > on ? (int)(comma - on - 4) : 0, on ? on + 4 : "");
    words(g, "small", x + w / 2, y + 35, text, (int)(w / 5.2));
    words(g, "small", x + w / 2, y + 49, comma ? comma + 2 : "", (int)(w / 5.2));
}

static void draw_after(page *g, const picture *p, double x, double columns_end, double *update_y, bool local) {
    const int shown = shown_of(p);
    const double wide = shown * (double)(COLUMN + GAP) - GAP;
    char text[192];
    words(g, "title", x + wide / 2, HEAD - 50, "after mirroring", 40);
    snprintf(text, sizeof text, p->splits == 1 ? "split" : "split a batch of %lld over %d replicas",
             (long long)p->batch, p->splits);
    labeled(g, "new", x, HEAD - 28, wide, BOX, text, NULL);
    for (int r = 0; r < shown; r++) {
        const double middle = replica_x(x, r) + COLUMN / 2.0;
        arrow(g, "new-link", middle, HEAD - 28 + BOX, middle, HEAD + 62);
        words(g, "rows", middle, HEAD + 22, p->split[r].rows[0] ? p->split[r].rows : "no rows", 26);
        column(g, p, replica_x(x, r), HEAD + 62, false);
        arrow(g, "new-link", middle, columns_end, middle, columns_end + 34);
    }
    double end = draw_sums(g, p, x, columns_end + 34, wide, local);
    *update_y = end + 30;
    const int updates = p->updates < shown ? p->updates : shown;
    for (int u = 0; u < updates; u++) {
        const double w = (wide - GAP * (updates - 1.0)) / updates, left = x + u * (w + GAP);
        arrow(g, "new-link", left + w / 2, end, left + w / 2, *update_y);
        draw_update(g, &p->update[u], left, *update_y, w);
    }
    if (p->splits > shown) {
        snprintf(text, sizeof text, "and %d more replicas like these", p->splits - shown);
        words(g, "small", x + wide / 2, *update_y + UPDATE + 18, text, 60);
    }
}

static const char *const style =
    "<style>\n"
    "svg{background:#fff}text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;"
    "text-anchor:middle;fill:#1f2328}\n"
    ".title{font-size:16px;font-weight:600}.name{font-size:12px}.small,.rows{font-size:10px;fill:#57606a}"
    ".rows{paint-order:stroke;stroke:#fff;stroke-width:4px}\n"
    ".device-name{font-size:11px;fill:#57606a;text-anchor:start}\n"
    "rect{stroke-width:1.2}.layer{fill:#f6f8fa;stroke:#8c959f}.gradient{fill:#fff4e0;stroke:#b0791c}"
    ".data{fill:#f6f8fa;stroke:#8c959f}\n"
    ".new{fill:#ddf0ff;stroke:#0a66c2}.device{fill:none;stroke:#8c959f;stroke-dasharray:5 4}\n"
    "path{fill:none;stroke-width:1.2}.link{stroke:#8c959f}.new-link{stroke:#0a66c2}#tip path{fill:#8c959f}"
    "#tip-new path{fill:#0a66c2}\n"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.small,.rows,.device-name{fill:#9da7b3}"
    ".rows{stroke:#0d1117}\n"
    ".layer,.data{fill:#161b22;stroke:#6e7681}.gradient{fill:#3a2a0a;stroke:#d29922}.new{fill:#0c2d4a;stroke:#58a6ff}"
    ".device{stroke:#6e7681}\n"
    ".link{stroke:#6e7681}.new-link{stroke:#58a6ff}#tip path{fill:#6e7681}#tip-new path{fill:#58a6ff}}\n"
    "</style>\n"
    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"4\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
    "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker>"
    "<marker id=\"tip-new\" viewBox=\"0 0 8 8\" refX=\"4\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
    "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n";

static void draw(page *g, const picture *p) {
    int devices = 0;
    for (int r = 0; r < p->splits; r++) devices += r == 0 || strcmp(p->split[r].device, p->split[r - 1].device) != 0;
    const bool local = p->splits > devices;
    const int shown = shown_of(p);
    const double left = MARGIN, right = MARGIN + COLUMN + 60,
                 width = right + shown * (double)(COLUMN + GAP) - GAP + MARGIN;
    const double columns_end = HEAD + 62 + (boxes_of(p) + 2) * (double)STEP - LINK;
    const double height = columns_end + 34 + sums_high(p, local) + 30 + UPDATE + (p->splits > shown ? 26 : 0) + 46;
    double update_y = 0;
    add(g, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
           "role=\"img\">\n<title>", width, height, width, height);
    add_text(g, p->model);
    add(g, ": a training step before and after mirroring over %d replica%s</title>\n%s", p->splits,
        p->splits == 1 ? "" : "s", style);
    draw_devices(g, p, right, columns_end);
    draw_after(g, p, right, columns_end, &update_y, local);
    draw_before(g, p, left, update_y);
    box(g, "new", left, height - 36, 14, 14);
    add(g, "<text class=\"device-name\" x=\"%.1f\" y=\"%.1f\">inserted by mirroring%s; %s</text>\n</svg>\n", left + 20,
        height - 25.0, p->buckets > 1 ? " (one bucket of several)" : "",
        p->updates && strstr(p->update[0].what, "the one copy") ? "all devices read one copy of the weights"
                                                                : "each device keeps its own copy of the weights");
}

int write_graph_svg(mirt_model *model, int64_t batch, const char *path) {
    picture p;
    page g;
    int status = EXIT_FAILED;
    memset(&p, 0, sizeof p);
    memset(&g, 0, sizeof g);
    p.batch = batch;
    const char *layers = mirt_summary(model, batch), *step = layers ? mirt_graph_text(model, batch) : NULL;
    if (!step) return complain_of_library();
    const char *name = strchr(layers, '"');
    if (name) snprintf(p.model, sizeof p.model, "%.*s", (int)strcspn(name + 1, "\""), name + 1);
    if (!read_layers(layers, &p) || !read_step(step, &p)) {
        complain("out of memory");
    } else {
        draw(&g, &p);
        if (write_page(&g, path)) {
            tell("svg: %s", path);
            status = EXIT_OK;
        }
    }
    free(p.layer);
    free(p.split);
    free(p.update);
    free(p.sum);
    free(g.data);
    return status;
}
