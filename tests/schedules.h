#ifndef SCHEDULES_H
#define SCHEDULES_H
/* Trains while every device is delayed at random places. Nothing hangs, and the weights do not change. */

static void check_schedules(int count) {
    char want[MIRT__SHA256_HEX] = "", have[MIRT__SHA256_HEX];
    int same = 0, done = 0;
    for (int i = 0; i < count; i++) {
        mirt_strategy_desc d;
        mirt_fit_desc fit;
        char devices[16];
        memset(&d, 0, sizeof d);
        memset(&fit, 0, sizeof fit);
        snprintf(devices, sizeof devices, "%d", 1 + i % 4);
        d.devices = devices;
        d.replicas = 4;
        d.threads = 1 + i / 4 % 2;
        d.seed = 11;
        d.silent = true;
        d.timeout_seconds = i % 3 ? 1000 : 0; /* nothing hangs, but a busy machine may take its time */
        fit.max_steps = 6;
        fit.epochs = 2;
        fit.no_progress = true;
        injected.seed = (uint64_t)i * 7919;
        __atomic_store_n(&injected.fault, (int)RANDOM, __ATOMIC_RELEASE);
        mirt_strategy *s = mirt_strategy_create(&d);
        mirt_model *m = s ? image_model(s, mirt_adam(1e-3f), 0.2f) : NULL;
        mirt_dataset *data =
            mirt_batch(mirt_shuffle(mirt_arrays(images_x(0, IMAGES), images_y(0, IMAGES)), IMAGES), 37);
        if (i % 2) data = mirt_prefetch(data, 2);
        bool good = m && mirt_fit(m, data, &fit) && mirt_step(m) == 6;
        __atomic_store_n(&injected.fault, (int)NO_FAULT, __ATOMIC_RELEASE);
        if (good) digest_weights(m, mirt_num_devices(s) - 1, have);
        if (good && !want[0]) memcpy(want, have, sizeof want);
        done += good;
        same += good && strcmp(want, have) == 0;
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
    ok(done == count && same == count, "%d random schedules: %d ended, %d bit-identical", count, done,
       same);
}

#endif
