/* Proposes shares for processes of different speeds. */
#include "posix.h"
#include "scaling.h"

#include <math.h>
#include <stdio.h>

/* How far speeds are from whole numbers, as a share of each, if the slowest is `scale`. */
static double misfit(const double *speed, int count, double least, int scale) {
    double most = 0;
    for (int i = 0; i < count; i++) {
        const double exact = speed[i] / least * scale;
        most = fmax(most, fabs(round(exact) - exact) / exact);
    }
    return most;
}

bool propose_shares(const double *speed, int count, char *out, size_t size) {
    const double equal = 1.1, close = 0.05;
    double least = speed[0], most = speed[0];
    int scale = 1;
    size_t used = 0;
    for (int i = 1; i < count; i++) {
        least = fmin(least, speed[i]);
        most = fmax(most, speed[i]);
    }
    if (!(least > 0) || most / least < equal) return false;
    while (scale < 8 && misfit(speed, count, least, scale) > close) scale++;
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%.0f", i ? "," : "", round(speed[i] / least * scale));
    return used < size;
}
