/* Tests the numerical law of fused networks, in float32 and bfloat16. The bits of training depend on the number of
   replicas, not on the number of devices and threads; those of a prediction depend on the image alone. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "conv_networks.h"
#include "tap.h"

static const char *const in_policy[] = {"", " in store_bfloat16", " in mixed_bfloat16"};

enum { STEPS = 5 };
static const int batches[STEPS] = {SAMPLES, SAMPLES - 3, SAMPLES - 1, 1, 5};

/* Wide enough for Winograd's convolutions. */
static mirt_tensor *wide(mirt_tensor *x, const how *h) {
    x = mirt_relu(norm(conv(x, 24, 3, 1, MIRT_SAME, false), h));
    x = mirt_relu(norm(conv(x, 24, 3, 1, MIRT_SAME, true), h));
    return mirt_silu(norm(conv(x, 25, 3, 1, MIRT_VALID, false), h));
}

static mirt_array samples_x(int first, int rows) {
    return mirt_make_array(data_x[first], MIRT_UINT8, MIRT_SHAPE(rows, SIDE, SIDE, 3));
}
static mirt_array samples_y(int first, int rows) {
    return mirt_make_array(data_y + first, MIRT_UINT8, MIRT_SHAPE(rows));
}

/* Trained with odd batches, some smaller than there are replicas; `text` is what became of it on all devices. */
static mirt_model *trained(mirt_strategy *s, const network *net, const how *h, char text[MIRT__SHA256_HEX]) {
    mirt__sha256 sha;
    float logits[SAMPLES * CLASSES];
    mirt_model *m = build(s, net, h);
    bool good = m != NULL;
    mirt__sha256_begin(&sha);
    for (int i = 0; good && i < STEPS; i++) {
        double loss = 0;
        const int first = (SAMPLES - batches[i]) / 2;
        good = mirt_train_step(m, samples_x(first, batches[i]), samples_y(first, batches[i]), &loss) == MIRT_OK &&
               loss > 0 && loss < 100;
        mirt__sha256_add(&sha, &loss, sizeof loss);
    }
    good =
        good && mirt_predict_arrays(m, samples_x(0, SAMPLES), logits, SAMPLES * CLASSES) == MIRT_OK && copies_agree(m);
    mirt__sha256_add(&sha, logits, sizeof logits);
    if (good) digest_weights(m, 0, text);
    mirt__sha256_add(&sha, text, MIRT__SHA256_HEX - 1);
    mirt__sha256_end(&sha, text);
    if (!good) {
        snprintf(text, MIRT__SHA256_HEX, "failed");
        printf("# %s: %s\n", net->name, mirt_last_error());
    }
    return m;
}

static void check_devices(const network *net, const how *h, int replicas, bool winograd) {
    char want[MIRT__SHA256_HEX] = "", have[MIRT__SHA256_HEX] = "", differ[64] = "";
    bool good = true;
    for (int devices = 1; devices <= 3 && devices <= replicas; devices++) {
        for (int threads = 1; threads <= 3; threads++) {
            const bool first = devices == 1 && threads == 1;
            mirt_strategy *s = strategy_of(devices, replicas, threads);
            s->winograd = winograd;
            trained(s, net, h, first ? want : have);
            mirt_strategy_destroy(s);
            if (first ? strcmp(want, "failed") != 0 : strcmp(want, have) == 0) continue;
            snprintf(differ, sizeof differ, "; not those of %d devices of %d threads", devices, threads);
            good = false;
        }
    }
    ok(good, "%s%s%s, %d replicas: the same bits on 1 to %d devices of 1 to 3 threads%s", net->name,
       in_policy[h->policy], winograd ? " by Winograd's convolutions" : "", replicas,
       replicas < 3 ? replicas : 3, differ);
}

/* Products and sums of float32 are the same chains on all of them, whatever is stored; what has no instructions for
   products of bfloat16 differs from what has. */
static void check_instruction_sets(const network *net, const how *h, bool winograd) {
    static const char *const simd[] = {"avx512bf16", "avx512", "avx2", "neonbf16", "neon"};
    char want[MIRT__SHA256_HEX] = "", have[MIRT__SHA256_HEX] = "";
    const char *first = NULL;
    int compared = 0;
    for (int i = 0; i < MIRT__COUNT(simd); i++) {
        setenv("MIRT_CPU", simd[i], 1);
        mirt_strategy *s = strategy_of(2, 3, 2);
        if (s && strcmp(s->kernels->name, simd[i]) == 0) {
            s->winograd = winograd;
            trained(s, net, h, first ? have : want);
            if (first)
                ok(strcmp(have, want) == 0 && strcmp(want, "failed") != 0, "%s%s%s: %s trains to the bits of %s",
                   net->name, in_policy[h->policy], winograd ? " by Winograd's convolutions" : "", simd[i], first);
            compared += first != NULL;
            first = simd[i];
        }
        mirt_strategy_destroy(s);
    }
    unsetenv("MIRT_CPU");
    if (!compared) skip("this machine has one instruction set to compare");
}

static void check_places(const network *net, const how *h, bool winograd) {
    float whole[SAMPLES * CLASSES], some[SAMPLES * CLASSES], one[CLASSES];
    char text[MIRT__SHA256_HEX];
    mirt_strategy *s = strategy_of(2, 2, 2);
    s->winograd = winograd;
    mirt_model *m = trained(s, net, h, text);
    bool good = strcmp(text, "failed") != 0 &&
                mirt_predict_arrays(m, samples_x(0, SAMPLES), whole, SAMPLES * CLASSES) == MIRT_OK,
         differ = false;
    for (int i = 0; good && i < SAMPLES; i++) {
        good = mirt_predict_arrays(m, samples_x(i, 1), one, CLASSES) == MIRT_OK &&
               memcmp(one, whole + i * CLASSES, sizeof one) == 0;
        differ = differ || memcmp(one, whole, sizeof one) != 0;
    }
    for (int first = 1; good && first < 5; first += 3) {
        const int rows = SAMPLES - 2 * first;
        good = mirt_predict_arrays(m, samples_x(first, rows), some, (size_t)(rows * CLASSES)) == MIRT_OK &&
               memcmp(some, whole + first * CLASSES, (size_t)(rows * CLASSES) * sizeof(float)) == 0;
    }
    ok(good && differ, "%s%s%s: an image's prediction is the same alone, in a batch and in another one", net->name,
       in_policy[h->policy], winograd ? " by Winograd's convolutions" : "");
    mirt_strategy_destroy(s);
}

int main(void) {
    const network more = {"wide", wide};
    draw_data();
    for (int n = 0; n <= MIRT__COUNT(networks); n++) {
        const network *net = n < MIRT__COUNT(networks) ? &networks[n] : &more;
        const bool winograd = net == &more;
        for (int p = MIRT__POLICY_FLOAT32; p <= MIRT__POLICY_MIXED_BFLOAT16; p++) {
            const how h = {false, false, (mirt__policy)p}, together = {true, false, (mirt__policy)p};
            const bool only_stored = p == MIRT__POLICY_STORE_BFLOAT16,
                       transformed = winograd && p != MIRT__POLICY_MIXED_BFLOAT16;
            for (int replicas = 1; replicas <= 4; replicas++) {
                if (only_stored ? replicas == 3 : !small_tier() || replicas == 1 + n % 2 * 2 || replicas == 4)
                    check_devices(net, replicas == 3 ? &together : &h, replicas, transformed);
            }
            check_places(net, &h, transformed);
            if (p != MIRT__POLICY_MIXED_BFLOAT16) check_instruction_sets(net, &h, transformed);
        }
    }
    return done_testing();
}
