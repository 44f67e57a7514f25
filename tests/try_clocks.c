#include <stdio.h>
#include "tap.h"
int main(int argc, char **argv) {
    mirt_strategy *s = mirt_mirrored(argc > 1 ? argv[1] : "2");
    mirt_model *m = mirt_application(s, "mnist", NULL);
    mirt_compile_desc c; memset(&c, 0, sizeof c);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY; c.from_logits = true;
    mirt_compile(m, &c);
    mirt_dataset *d = mirt_batch(mirt_shuffle(mirt_drawn_digits(6400, 1, MIRT_TRAIN), 1000), 64);
    mirt_fit_desc f; memset(&f, 0, sizeof f);
    mirt_history *h = mirt_fit(m, d, &f);
    if (!h) { puts(mirt_last_error()); return 1; }
    puts(mirt_timing_text(m));    for (int k = 0; k < 0; k++) {
        double sum = 0;
        for (int i = 0; i < MIRT_PHASE_COUNT; i++) sum += s->timeline[k].total[i];
        printf("device %d: %lld samples, %g of %g s\n", k, (long long)s->timeline[k].samples, sum, h->seconds);
        for (int i = 0; i < MIRT_PHASE_COUNT; i++)
            printf("  %-20s %8.3f ms\n", mirt_phase_name((mirt_phase)i), s->timeline[k].total[i] * 1e3 / h->steps);
    }
    mirt_strategy_destroy(s);
    return 0;
}
