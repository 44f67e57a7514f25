/* Predicts arrays. Usage: predict_file FILE INPUT.f32 OUTPUT.f32 [SAVED | NETWORK ALPHA SIZE CLASSES SAVED] FILE holds
   a whole model, or the weights of NETWORK, without its top if CLASSES is 0. SAVED: the whole model is saved there. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mirt_model *open_model(mirt_strategy *strategy, int argc, char **argv) {
    mirt_application_desc desc;
    if (argc < 9) {
        mirt_model *model = mirt_load(strategy, argv[1]);
        return model && argc > 4 && mirt_save(model, argv[4], MIRT_SAVE_ALL) != MIRT_OK ? NULL : model;
    }
    memset(&desc, 0, sizeof desc);
    desc.alpha = (float)atof(argv[5]);
    desc.size = atoi(argv[6]);
    desc.classes = atoi(argv[7]);
    desc.no_top = desc.classes == 0;
    desc.pooling = desc.no_top ? MIRT_POOLING_AVG : MIRT_POOLING_NONE;
    desc.weights = argv[1];
    mirt_model *model = mirt_application(strategy, argv[4], &desc);
    return model && mirt_compile(model, NULL) == MIRT_OK && mirt_save(model, argv[8], MIRT_SAVE_ALL) == MIRT_OK ? model
                                                                                                                : NULL;
}

static bool predict(mirt_model *model, FILE *in, FILE *out) {
    mirt_shape x = mirt_tensor_shape(mirt_input_of(model, 0)), y = mirt_tensor_shape(mirt_output_of(model, 0));
    size_t pixels = (size_t)(x.dim[1] * x.dim[2] * x.dim[3]), scores = (size_t)y.dim[1];
    float *image = (float *)malloc(pixels * sizeof *image), *score = (float *)malloc(scores * sizeof *score);
    bool good = image && score;
    x.dim[0] = 1;
    while (good && fread(image, sizeof *image, pixels, in) == pixels) {
        good = mirt_predict_arrays(model, mirt_make_array(image, MIRT_FLOAT32, x), score, scores) == MIRT_OK &&
               fwrite(score, sizeof *score, scores, out) == scores;
    }
    free(image);
    free(score);
    return good;
}

int main(int argc, char **argv) {
    FILE *in = argc > 3 ? fopen(argv[2], "rb") : NULL, *out = in ? fopen(argv[3], "wb") : NULL;
    if (!out) return 2;
    mirt_strategy *strategy = mirt_strategy_create(NULL);
    mirt_model *model = strategy ? open_model(strategy, argc, argv) : NULL;
    bool good = model && predict(model, in, out);
    if (!good) fprintf(stderr, "%s\n", mirt_last_error());
    mirt_strategy_destroy(strategy);
    fclose(in);
    return fclose(out) == 0 && good ? 0 : 1;
}
