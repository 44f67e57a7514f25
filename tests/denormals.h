#ifndef DENORMALS_H
#define DENORMALS_H
/* Counts denormal numbers in a model's weights and optimizer slots. */

static int64_t denormals_in(const float *x, int64_t count, int64_t *zeros) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits; /* comparing floats may flush them */
        memcpy(&bits, &x[i], sizeof bits);
        found += (bits & 0x7f800000u) == 0 && (bits & 0x7fffffu) != 0;
        *zeros += (bits & 0x7fffffffu) == 0;
    }
    return found;
}

TAP_UNUSED static int64_t denormal_weights(mirt_model *model) {
    int64_t found = 0, zeros = 0;
    mirt_weight_info info;
    for (int i = 0; i < mirt_num_weights(model); i++) {
        if (mirt_weight(model, i, &info) != MIRT_OK) return -1;
        float *values = (float *)malloc((size_t)info.count * sizeof *values);
        if (!values || mirt_get_weight(model, info.name, 0, values, (size_t)info.count) != MIRT_OK)
            return free(values), -1;
        found += denormals_in(values, info.count, &zeros);
        free(values);
    }
    return found;
}

/* *zeros: how many are zero. */
TAP_UNUSED static int64_t denormal_slots(const mirt_model *model, int64_t *zeros) {
    int64_t found = 0;
    for (int i = 0; i < MIRT__MAX_SLOTS && model->slot[i]; i++)
        found += denormals_in((const float *)(const void *)model->slot[i],
                              (int64_t)(model->trained_bytes / sizeof(float)), zeros);
    return found;
}

#endif
