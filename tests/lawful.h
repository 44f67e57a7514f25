#ifndef LAWFUL_H
#define LAWFUL_H
/* The numerical law binds the kernels of CPUs. A GPU's (tests/sim runs these tests with them) give the same bits
   whenever the same work is done again, and otherwise values near the reference's. */
static bool lawful(const mirt__kernels *k) { return strcmp(k->name, "cuda") != 0; }

/* Numbers as near to each other as roundings in another order leave them; bytes and integers are the same. */
static bool near_values(const void *a, const void *b, size_t count, bool floats, double roundings) {
    const float *x = (const float *)a, *y = (const float *)b;
    double largest = 1;
    if (!floats) return memcmp(a, b, count) == 0;
    for (size_t i = 0; i < count; i++)
        largest = fabs((double)y[i]) > largest && fabs((double)y[i]) < INFINITY ? fabs((double)y[i]) : largest;
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)x[i] - (double)y[i]) <= roundings * largest * FLT_EPSILON) &&
            !(x[i] != x[i] && y[i] != y[i]) && x[i] != y[i])
            return false;
    }
    return true;
}
#endif
