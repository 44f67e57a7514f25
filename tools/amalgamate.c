/* Writes mirrortrain.h, mirrortrain.c, mirrortrain_cuda.cu, mirrortrain_mpi.c and mirrortrain_tcp.c from src/.

       amalgamate [--check] SRC_DIR OUT_DIR

   SRC_DIR/FILES lists the source files, one path a line, in the order in which they are laid out; its
   first line is the public API, which comes first in the header, verbatim but for its line @MANUAL@,
   which stands for SRC_DIR/manual.txt, and the files of SRC_DIR/api it includes, each copied in where it is
   included first. What stands before the line @IMPLEMENTATION is for backends too. Of the other files only
   #include "..." lines are changed: a file that stands earlier in the list is already there, a .inc file is copied in,
   and anything else is an error. Of a .inc file that a line @ONCE names, the header holds one copy, where a file
   includes it last, and includes itself for the others. The files between @WITHOUT MACRO and @END are left out where
   the program defines MACRO. Prototypes of functions that MIRRORTRAIN_NO_TRAIN leaves out begin with MIRT__ABSENT_LIB
   in place of MIRT__LIB, those that MIRT__ALONE leaves out with MIRT__TOGETHER_LIB.
   SRC_DIR/../LICENSE ends the header. SRC_DIR/cuda/FILES lists those of mirrortrain_cuda.cu, and
   SRC_DIR/mpi/FILES and SRC_DIR/tcp/FILES those of mirrortrain_mpi.c and mirrortrain_tcp.c.

   --check compares with what is in OUT_DIR instead. Exit status: 0 ok, 1 stale or failed, 2 usage. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 500
#define MAX_PATH_LENGTH 512
#define MAX_INC_DEPTH 8
#define MAX_MACRO_LENGTH 64
#define MAX_NAME_LENGTH 128
#define MAX_ABSENT 1000
#define MAX_ONCE 8

typedef struct text {
    char *data;
    size_t size, capacity;
} text;

typedef struct source_list {
    char path[MAX_FILES][MAX_PATH_LENGTH]; /* relative to SRC_DIR */
    char without[MAX_FILES][MAX_MACRO_LENGTH]; /* the macro that leaves the file out, or "" */
    int count;
    int shared; /* so many of them are for backends too */
} source_list;

/* The .inc files of which the header holds one copy. */
static struct {
    char path[MAX_ONCE][MAX_PATH_LENGTH];
    bool there[MAX_ONCE]; /* the copy is */
    int count;
} once;

static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("amalgamate: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void append(text *t, const char *data, size_t size) {
    if (t->capacity - t->size <= size) {
        t->capacity = 2 * (t->size + size) + 1;
        t->data = (char *)realloc(t->data, t->capacity);
        if (!t->data) die("out of memory");
    }
    memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

static void append_string(text *t, const char *string) {
    append(t, string, strlen(string));
}

static void join(char out[MAX_PATH_LENGTH], const char *directory, const char *path) {
    int length = snprintf(out, MAX_PATH_LENGTH, "%s/%s", directory, path);
    if (length < 0 || length >= MAX_PATH_LENGTH) die("%s/%s: path is too long", directory, path);
}

/* False if the file does not exist; every other failure ends the program. */
static bool read_file(const char *path, text *out) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        if (errno == ENOENT) return false;
        die("%s: %s", path, strerror(errno));
    }
    char block[65536];
    size_t size;
    append(out, "", 0);
    while ((size = fread(block, 1, sizeof block, file)) > 0) append(out, block, size);
    if (ferror(file)) die("%s: cannot be read", path);
    fclose(file);
    if (strlen(out->data) != out->size) die("%s: holds a zero byte", path);
    return true;
}

static text read_existing(const char *path) {
    text t = {0};
    if (!read_file(path, &t)) die("%s: no such file", path);
    if (t.size && t.data[t.size - 1] != '\n') append_string(&t, "\n");
    return t;
}

/* The line at *cursor, with its '\n', which *cursor moves past; 0 at the end. */
static size_t next_line(const char **cursor, const char **line) {
    const char *end = strchr(*cursor, '\n');
    *line = *cursor;
    if (!end) return 0;
    *cursor = end + 1;
    return (size_t)(*cursor - *line);
}

static bool is_blank(const char *line, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\n') return false;
    }
    return true;
}

/* Adds what src/`name` lists. */
static void read_list(const char *src, const char *name, source_list *list) {
    char path[MAX_PATH_LENGTH];
    join(path, src, name);
    text t = read_existing(path);
    const char *cursor = t.data, *line;
    char without[MAX_MACRO_LENGTH] = "";
    size_t size;
    for (int number = 1; (size = next_line(&cursor, &line)) > 0; number++) {
        while (size > 0 && strchr(" \t\r\n", line[size - 1])) size--;
        if (size == 0 || line[0] == '#') continue;
        if (size > 9 && memcmp(line, "@WITHOUT ", 9) == 0) {
            if (without[0]) die("%s:%d: @WITHOUT %s has no @END", path, number, without);
            if (size - 9 >= MAX_MACRO_LENGTH) die("%s:%d: macro name is too long", path, number);
            memcpy(without, line + 9, size - 9);
            without[size - 9] = 0;
            continue;
        }
        if (size == 4 && memcmp(line, "@END", size) == 0) {
            if (!without[0]) die("%s:%d: @END has no @WITHOUT", path, number);
            without[0] = 0;
            continue;
        }
        if (size > 6 && memcmp(line, "@ONCE ", 6) == 0) {
            if (once.count == MAX_ONCE) die("%s:%d: more than %d lines @ONCE; raise MAX_ONCE", path, number, MAX_ONCE);
            if (size - 6 >= MAX_PATH_LENGTH) die("%s:%d: path is too long", path, number);
            memcpy(once.path[once.count], line + 6, size - 6);
            once.path[once.count++][size - 6] = 0;
            continue;
        }
        if (size == 15 && memcmp(line, "@IMPLEMENTATION", size) == 0) {
            list->shared = list->count;
            continue;
        }
        if (size >= MAX_PATH_LENGTH) die("%s:%d: path is too long", path, number);
        if (list->count == MAX_FILES) die("%s:%d: more than %d files; raise MAX_FILES", path, number, MAX_FILES);
        memcpy(list->path[list->count], line, size);
        list->path[list->count][size] = 0;
        memcpy(list->without[list->count], without, sizeof without);
        bool snippet = size > 4 &&
                       strcmp(list->path[list->count] + size - 4, ".inc") == 0; /* may stand anywhere, often */
        for (int i = 0; i < list->count && !snippet; i++) {
            if (strcmp(list->path[i], list->path[list->count]) == 0)
                die("%s:%d: %s is listed twice", path, number, list->path[i]);
        }
        list->count++;
    }
    if (without[0]) die("%s: @WITHOUT %s has no @END", path, without);
    if (list->count == 0) die("%s: lists no file", path);
    free(t.data);
}

/* "ops/pool.c" and "../graph/graph.h" give "graph/graph.h"; false if it leaves SRC_DIR. */
static bool resolve(char out[MAX_PATH_LENGTH], const char *from, const char *name) {
    char joined[MAX_PATH_LENGTH];
    const char *slash = strrchr(from, '/');
    int directory = slash ? (int)(slash - from) + 1 : 0;
    int length = snprintf(joined, sizeof joined, "%.*s%s", directory, from, name);
    if (length < 0 || length >= MAX_PATH_LENGTH) return false;
    size_t size = 0;
    for (const char *part = joined; *part;) {
        size_t part_size = strcspn(part, "/");
        if (part_size == 2 && memcmp(part, "..", 2) == 0) {
            if (size == 0) return false;
            size--;
            while (size > 0 && out[size - 1] != '/') size--;
        } else if (part_size > 0 && !(part_size == 1 && part[0] == '.')) {
            memcpy(out + size, part, part_size);
            size += part_size;
            if (part[part_size] == '/') out[size++] = '/';
        }
        part += part_size + (part[part_size] == '/');
    }
    out[size] = 0;
    return size > 0;
}

/* The name of an #include "name" line. */
static bool local_include(const char *line, size_t size, char name[MAX_PATH_LENGTH]) {
    size_t i = 0, length = 0;
    while (i < size && (line[i] == ' ' || line[i] == '\t')) i++;
    if (i >= size || line[i++] != '#') return false;
    while (i < size && (line[i] == ' ' || line[i] == '\t')) i++;
    if (size - i < 8 || memcmp(line + i, "include", 7) != 0) return false;
    i += 7;
    while (i < size && (line[i] == ' ' || line[i] == '\t')) i++;
    if (i >= size || line[i++] != '"') return false;
    while (i < size && line[i] != '"' && length < MAX_PATH_LENGTH - 1) name[length++] = line[i++];
    name[length] = 0;
    return true;
}

static bool ends_in(const char *path, const char *suffix) {
    size_t a = strlen(path), b = strlen(suffix);
    return a >= b && strcmp(path + a - b, suffix) == 0;
}

/* The functions that predict-only programs, or those of one process, leave out. */
static struct {
    char name[MAX_ABSENT][MAX_NAME_LENGTH];
    bool together[MAX_ABSENT]; /* only for several processes */
    int count;
} absent;

/* The name of the function that a line "MIRT__LIB type name(..." declares or defines. */
static bool library_function(const char *line, size_t size, char name[MAX_NAME_LENGTH]) {
    if (size < 10 || memcmp(line, "MIRT__LIB ", 10) != 0) return false;
    const char *end = (const char *)memchr(line, '(', size), *begin = end;
    if (!end) return false;
    while (begin > line && strchr(" *", begin[-1]) == NULL) begin--;
    if (end - begin >= MAX_NAME_LENGTH) die("%.*s: name is too long", (int)(end - begin), begin);
    memcpy(name, begin, (size_t)(end - begin));
    name[end - begin] = 0;
    return true;
}

/* What its prototype begins with in place of MIRT__LIB; NULL: it is never left out. */
static const char *linkage_of(const char *name) {
    for (int i = 0; i < absent.count; i++) {
        if (strcmp(absent.name[i], name) == 0) return absent.together[i] ? "MIRT__TOGETHER_LIB" : "MIRT__ABSENT_LIB";
    }
    return NULL;
}

/* Notes the functions of a .c file. */
static void find_absent(const char *src, const char *path, bool together) {
    char full[MAX_PATH_LENGTH], name[MAX_NAME_LENGTH];
    join(full, src, path);
    text t = read_existing(full);
    const char *cursor = t.data, *line;
    size_t size;
    while ((size = next_line(&cursor, &line)) > 0) {
        if (!library_function(line, size, name) || linkage_of(name)) continue;
        if (absent.count == MAX_ABSENT) die("%s: more than %d functions; raise MAX_ABSENT", full, MAX_ABSENT);
        absent.together[absent.count] = together;
        memcpy(absent.name[absent.count++], name, sizeof name);
    }
    free(t.data);
}

/* Its number in `once`, or -1. */
static int once_number(const char *path) {
    for (int i = 0; i < once.count; i++) {
        if (strcmp(once.path[i], path) == 0) return i;
    }
    return -1;
}

/* Whether the lines from `cursor` on, of the file `from`, include `wanted`. */
static bool includes(const char *cursor, const char *from, const char *wanted) {
    char name[MAX_PATH_LENGTH], target[MAX_PATH_LENGTH];
    const char *line;
    size_t size;
    while ((size = next_line(&cursor, &line)) > 0) {
        if (local_include(line, size, name) && resolve(target, from, name) && strcmp(target, wanted) == 0) return true;
    }
    return false;
}

/* Appends a line of three parts, the second of which may be "". */
static void append_line(text *out, const char *before, const char *name, const char *after) {
    append_string(out, before);
    append_string(out, name);
    append_string(out, after);
}

static void append_source(text *out, const char *src, const char *path, const source_list *list, int known, int depth);

/* Appends what stands for an inclusion of once.path[number] in the file list->path[known]: the macro MIRT__ONLY_<name>,
   and the header or, if it is the last, the copy. All before the copy is guarded against a second inclusion, and what
   follows it by the macro MIRT__RESUMED_<name>. */
static void append_once(text *out, const char *src, int number, const source_list *list, int known, bool last) {
    char name[MAX_PATH_LENGTH];
    const char *path = once.path[number], *slash = strrchr(path, '/'), *without = list->without[known];
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
    name[strcspn(name, ".")] = 0;
    append_line(out, "#define MIRT__ONLY_", name, "\n");
    if (!last || once.there[number]) {
        append_string(out, "#include \"mirrortrain.h\"\n");
        return;
    }
    once.there[number] = true;
    if (without[0]) append_line(out, "#endif /* ", without, " */\n");
    append_line(out, "#define MIRT__RESUMED_", name, "\n#endif /* MIRRORTRAIN_IMPLEMENTATION */\n");
    append_line(out, "\n/* Above, the header includes itself for this text. */\n#ifdef MIRT__ONLY_", name, "\n");
    append_line(out, "#undef MIRT__ONLY_", name, "\n");
    append_line(out, "\n/* >>section ", path, " */\n\n");
    append_source(out, src, path, list, known, 1);
    append_line(out, "\n#endif\n\n#ifdef MIRT__RESUMED_", name, "\n");
    append_line(out, "#undef MIRT__RESUMED_", name, "\n");
    if (without[0]) append_line(out, "#ifndef ", without, "\n");
    append_line(out, "\n/* >>section ", list->path[known], ", resumed */\n\n");
}

/* Appends the file `path`; list->path[0 .. known) are there already. */
static void append_source(text *out, const char *src, const char *path, const source_list *list, int known, int depth) {
    char full[MAX_PATH_LENGTH];
    join(full, src, path);
    if (depth > MAX_INC_DEPTH) die("%s: .inc files include each other", full);
    text t = read_existing(full);
    const char *cursor = t.data, *line;
    size_t size;
    bool after_blank = true; /* what an #include leaves behind must not be two empty lines */
    for (int number = 1; (size = next_line(&cursor, &line)) > 0; number++) {
        char name[MAX_PATH_LENGTH], target[MAX_PATH_LENGTH];
        if (local_include(line, size, name)) {
            if (!resolve(target, path, name)) die("%s:%d: \"%s\" is outside of %s", full, number, name, src);
            const int number_once = once_number(target);
            if (number_once >= 0) {
                append_once(out, src, number_once, list, known, !includes(cursor, path, target));
                after_blank = false;
                continue;
            }
            if (ends_in(target, ".inc")) {
                append_source(out, src, target, list, known, depth + 1);
                after_blank = false;
                continue;
            }
            int i = 0;
            while (i < known && strcmp(list->path[i], target) != 0) i++;
            if (i == known) {
                die("%s:%d: includes \"%s\", which %s/FILES does not list before %s", full, number, name, src,
                    list->path[known]);
            }
            continue;
        }
        bool blank = is_blank(line, size);
        if (library_function(line, size, target) && linkage_of(target) && ends_in(path, ".h")) {
            append_string(out, linkage_of(target));
            append(out, line + 9, size - 9);
        } else if (!(blank && after_blank)) {
            append(out, line, size);
        }
        after_blank = blank;
    }
    free(t.data);
}

static void append_manual(text *out, const char *src) {
    char path[MAX_PATH_LENGTH];
    join(path, src, "manual.txt");
    text t = read_existing(path);
    const char *cursor = t.data, *line;
    size_t size;
    for (int number = 1; (size = next_line(&cursor, &line)) > 0; number++) {
        for (size_t i = 0; i + 1 < size; i++) {
            if ((line[i] == '*' && line[i + 1] == '/') || (line[i] == '/' && line[i + 1] == '*')) {
                die("%s:%d: a comment mark would end or confuse the comment that the manual stands in", path, number);
            }
        }
        if (!is_blank(line, size)) append_string(out, "   ");
        append(out, line, size);
    }
    free(t.data);
}

/* Appends the API, or a part of it that is not there yet; returns how many manuals stand in it. `known` receives the
   paths of its parts. */
static int append_api(text *out, const char *src, const char *api, source_list *known) {
    char path[MAX_PATH_LENGTH], name[MAX_PATH_LENGTH], target[MAX_PATH_LENGTH];
    for (int i = 0; i < known->count; i++) {
        if (strcmp(known->path[i], api) == 0) return 0;
    }
    if (known->count == MAX_FILES) die("%s: more than %d files; raise MAX_FILES", api, MAX_FILES);
    snprintf(known->path[known->count++], MAX_PATH_LENGTH, "%s", api);
    join(path, src, api);
    text t = read_existing(path);
    const char *cursor = t.data, *line;
    size_t size;
    int manuals = 0;
    bool after_blank = false; /* what an #include leaves behind must not be two empty lines */
    while ((size = next_line(&cursor, &line)) > 0) {
        if (size == 9 && memcmp(line, "@MANUAL@", 8) == 0) {
            append_manual(out, src);
            manuals++;
        } else if (local_include(line, size, name) && resolve(target, api, name) && strncmp(target, "api/", 4) == 0) {
            const size_t before = out->size;
            manuals += append_api(out, src, target, known);
            if (out->size > before) append_string(out, "\n");
            after_blank = true;
            continue;
        } else if (!(after_blank && is_blank(line, size))) {
            append(out, line, size);
        }
        after_blank = is_blank(line, size);
    }
    free(t.data);
    return manuals;
}

static void append_sections(text *out, const char *src, const source_list *list, int begin, int end) {
    for (int i = begin; i < end; i++) {
        const char *without = list->without[i];
        if (without[0] && (i == begin || strcmp(list->without[i - 1], without) != 0)) {
            append_string(out, "\n#ifndef ");
            append_string(out, without);
            append_string(out, "\n");
        }
        append_string(out, "\n/* >>section ");
        append_string(out, list->path[i]);
        append_string(out, " */\n\n");
        append_source(out, src, list->path[i], list, i, 0);
        if (without[0] && (i + 1 == end || strcmp(list->without[i + 1], without) != 0)) {
            append_string(out, "\n#endif /* ");
            append_string(out, without);
            append_string(out, " */\n");
        }
    }
}

static void append_license(text *out, const char *src) {
    char path[MAX_PATH_LENGTH];
    join(path, src, "../LICENSE");
    text license = read_existing(path);
    append_string(out, "\n/*\n");
    append(out, license.data, license.size);
    free(license.data);
    append_string(out, "*/\n");
}

static text make_header(const char *src, const source_list *list) {
    text out = {0};
    static source_list parts;
    int manuals = append_api(&out, src, list->path[0], &parts);
    if (manuals != 1) die("%s/%s: has %d lines @MANUAL@, not one", src, list->path[0], manuals);
    append_string(
        &out, "\n/* What backends are made of (mirrortrain_cuda.cu defines MIRRORTRAIN_BACKEND); not for programs. */\n"
              "#if (defined(MIRRORTRAIN_IMPLEMENTATION) || defined(MIRRORTRAIN_BACKEND)) && "
              "!defined(MIRRORTRAIN_BACKEND_SHOWN)\n"
              "#define MIRRORTRAIN_BACKEND_SHOWN\n");
    append_sections(&out, src, list, 1, list->shared);
    append_string(&out, "\n#endif /* MIRRORTRAIN_BACKEND */\n"
                        "\n#if defined(MIRRORTRAIN_IMPLEMENTATION) && !defined(MIRRORTRAIN_IMPLEMENTED)\n"
                        "#define MIRRORTRAIN_IMPLEMENTED\n"
                        "\n/* In .cu files nvcc hands the pragmas for gcc on, but warns of them. */\n"
                        "#if defined(__NVCC__) && defined(__CUDACC__)\n#pragma nv_diagnostic push\n"
                        "#pragma nv_diag_suppress 1675\n#endif\n");
    append_sections(&out, src, list, list->shared, list->count);
    append_string(&out,
        "\n#if defined(__NVCC__) && defined(__CUDACC__)\n#pragma nv_diagnostic pop\n#endif\n"
        "\n#endif /* MIRRORTRAIN_IMPLEMENTATION */\n");
    append_license(&out, src);
    return out;
}

/* A file beside the header: what `files` lists, after the header's part for backends. */
static text make_beside(const char *src, const source_list *header, const char *files) {
    static source_list list;
    text out = {0};
    list = *header;
    list.count = header->shared;
    read_list(src, files, &list);
    append_string(&out, "#define MIRRORTRAIN_BACKEND\n#include \"mirrortrain.h\"\n");
    append_sections(&out, src, &list, header->shared, list.count);
    append_license(&out, src);
    return out;
}

/* Leaves a file alone that holds `wanted` already, so that nothing is built again for nothing.
   True if it did, or if `check` forbids writing and it did not. */
static bool update(const char *path, const text *wanted, bool check) {
    text old = {0};
    bool same = read_file(path, &old) && old.size == wanted->size && memcmp(old.data, wanted->data, old.size) == 0;
    free(old.data);
    if (same || check) return same;
    FILE *file = fopen(path, "wb");
    if (!file) die("%s: %s", path, strerror(errno));
    bool written = fwrite(wanted->data, 1, wanted->size, file) == wanted->size;
    if (fclose(file) != 0 || !written) die("%s: cannot be written", path);
    return true;
}

int main(int argc, char **argv) {
    bool check = argc == 4 && strcmp(argv[1], "--check") == 0;
    if (!check && argc != 3) {
        fputs("usage: amalgamate [--check] SRC_DIR OUT_DIR\n", stderr);
        return 2;
    }
    const char *src = argv[argc - 2], *out = argv[argc - 1];
    static source_list list;
    read_list(src, "FILES", &list);
    if (!list.shared) die("%s/FILES: has no line @IMPLEMENTATION", src);
    for (int i = list.shared; i < list.count; i++) {
        const bool together = strcmp(list.without[i], "MIRT__ALONE") == 0;
        bool leaves = together || strcmp(list.without[i], "MIRRORTRAIN_NO_TRAIN") == 0 ||
                      strcmp(list.without[i], "MIRT__NO_IMAGE_DATASETS") == 0;
        if (leaves && ends_in(list.path[i], ".c")) find_absent(src, list.path[i], together);
    }
    enum { FILES = 5 };
    text file[FILES] = {make_header(src, &list), {0}, make_beside(src, &list, "cuda/FILES"),
                        make_beside(src, &list, "mpi/FILES"), make_beside(src, &list, "tcp/FILES")};
    static const char *const name[FILES] = {"mirrortrain.h", "mirrortrain.c", "mirrortrain_cuda.cu",
                                            "mirrortrain_mpi.c", "mirrortrain_tcp.c"};
    append_string(&file[1], "#define MIRRORTRAIN_IMPLEMENTATION\n#include \"mirrortrain.h\"\n");
    const char *stale = NULL;
    for (int i = 0; i < FILES; i++) {
        char path[MAX_PATH_LENGTH];
        join(path, out, name[i]);
        if (!update(path, &file[i], check)) stale = name[i];
        free(file[i].data);
    }
    if (!stale) return 0;
    fprintf(stderr, "%s is out of date: run `make header` and commit it\n", stale);
    return 1;
}
