#ifndef TAP_H
#define TAP_H
/* Test Anything Protocol on stdout, the format prove(1) reads: one line a check. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define TAP_UNUSED __attribute__((unused))
#define TAP_RETURNED __attribute__((warn_unused_result))
#define TAP_FORMAT(at) __attribute__((format(printf, at, at + 1)))
#else
#define TAP_UNUSED
#define TAP_RETURNED
#define TAP_FORMAT(at)
#endif

/* A variable of bytes 0: C++17 lacks C's designated initializers. */
#define ZEROED(type, name) type name; memset(&name, 0, sizeof name)

static int tap_count, tap_failed;

/* Where tests put their files: TMPDIR, or the system's place. */
TAP_UNUSED static const char *tap_tmpdir(void) {
    const char *base = getenv("TMPDIR");
    return base && *base ? base : "/tmp";
}

TAP_UNUSED TAP_FORMAT(2) static int ok(int condition, const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%sok %d - ", condition ? "" : "not ", ++tap_count);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    if (!condition) tap_failed++;
    return condition;
}

TAP_UNUSED TAP_FORMAT(1) static void skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("ok %d # SKIP ", ++tap_count);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* Whether two files hold the same bytes, and any. */
TAP_UNUSED static int tap_same_file(const char *a, const char *b) {
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int c = 0, d = 0;
    long bytes = -1;
    while (f && g && c == d && c != EOF) {
        c = fgetc(f);
        d = fgetc(g);
        bytes++;
    }
    if (f) fclose(f);
    if (g) fclose(g);
    return f && g && c == d && bytes > 0;
}

/* Whether MIRT_TEST_SMALL asks for small shapes and few repetitions. */
TAP_UNUSED static int small_tier(void) {
    const char *small = getenv("MIRT_TEST_SMALL");
    return small && *small;
}

/* The larger of the worst error so far and another; what is not a number is infinitely wrong. */
TAP_UNUSED static double worse(double worst, double error) {
    return error <= worst ? worst : error == error ? error : (double)INFINITY;
}

/* Prints the plan; the value for main to return. */
TAP_RETURNED static int done_testing(void) {
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}
#endif
