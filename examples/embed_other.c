// cc -O2 examples/embed.c examples/embed_other.c -o embed -lm -lpthread
/* The part of embed.c that predicts; it includes only the declarations. One core, no log. */
#include "../mirrortrain.h"

#include <math.h>
#include <stdio.h>

int digits_open(const void *data, size_t size);
int digits_classify(const unsigned char pixels[28 * 28], float *confidence);
void digits_close(void);

static mirt_strategy *strategy;
static mirt_model *model;

/* `data` holds a saved model; it may be freed afterwards. */
int digits_open(const void *data, size_t size) {
    strategy = mirt_strategy_create(&(mirt_strategy_desc){.devices = "cpu:0", .threads = 1, .silent = true});
    model = mirt_load_memory(strategy, data, size);
    if (!model) fprintf(stderr, "%s\n", mirt_last_error());
    return model ? 0 : 1;
}

/* Returns the digit, or -1, and its probability from the ten logits. */
int digits_classify(const unsigned char pixels[28 * 28], float *confidence) {
    float logits[10], sum = 0;
    int digit = 0;
    mirt_array image = mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(1, 28, 28, 1));
    if (mirt_predict_arrays(model, image, logits, 10) != MIRT_OK) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return -1;
    }
    for (int i = 1; i < 10; i++) {
        if (logits[i] > logits[digit]) digit = i;
    }
    for (int i = 0; i < 10; i++) sum += expf(logits[i] - logits[digit]);
    *confidence = 1 / sum;
    return digit;
}

void digits_close(void) {
    mirt_strategy_destroy(strategy); /* and the model in it */
    strategy = NULL;
    model = NULL;
}
