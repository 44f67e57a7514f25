/* The split of a batch and the fixed tree of sums, against their definitions written down plainly. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

enum { MOST_REPLICAS = 40, MOST_DEVICES = 16, TEXT = 512 };

static void check_share(void) {
    bool good = true;
    for (int64_t total = 0; total <= 200 && good; total++) {
        for (int64_t shares = 1; shares <= 41; shares++) {
            int64_t at = 0, first, last = INT64_MAX;
            for (int64_t i = 0; i < shares; i++) {
                int64_t rows = mirt__share(total, shares, i, &first);
                good = good && first == at && rows <= last && (rows == total / shares || rows == total / shares + 1);
                last = rows;
                at += rows;
            }
            good = good && at == total;
        }
    }
    ok(good, "shares are contiguous, cover everything, and differ by at most one, the larger ones first");
}

/* The definition: the sum over [lo, hi) is that of the largest power of two below hi - lo, plus that of the rest. */
static void definition(int lo, int hi, char *out) {
    char left[TEXT], right[TEXT];
    int half = 1;
    if (hi - lo == 1) {
        snprintf(out, TEXT, "%d", lo);
        return;
    }
    while (2 * half < hi - lo) half *= 2;
    definition(lo, lo + half, left);
    definition(lo + half, hi, right);
    size_t a = strlen(left), b = strlen(right);
    if (a + b + 4 > TEXT) return;
    out[0] = '(';
    memcpy(out + 1, left, a);
    out[1 + a] = '+';
    memcpy(out + 2 + a, right, b);
    memcpy(out + 2 + a + b, ")", 2);
}

/* into = "(into+from)" */
static void add_text(char *into, const char *from) {
    size_t a = strlen(into), b = strlen(from);
    if (a + b + 4 > TEXT) return;
    memmove(into + 1, into, a);
    into[0] = '(';
    into[1 + a] = '+';
    memcpy(into + 2 + a, from, b);
    memcpy(into + 2 + a + b, ")", 2);
}

static char buffer[MOST_DEVICES][64][TEXT]; /* what each device's gradient buffers hold */
static mirt_strategy plan;

/* Does as devices do: each adds its own replicas on a stack of buffers, then the exchange adds the
   rest. Returns whether it followed the rules; the sum is in buffer[0][0]. */
static bool act_out(int active) {
    mirt__exchange x;
    for (int d = 0; d < plan.num_devices; d++) {
        const mirt__device *own = &plan.device[d];
        mirt__tree_stack stack;
        stack.depth = 0;
        for (int r = own->first_replica; r < own->first_replica + own->num_replicas && r < active; r++) {
            if (stack.depth >= mirt__tree_slots(own->first_replica, own->num_replicas)) return false;
            snprintf(buffer[d][stack.depth], TEXT, "%d", r);
            for (int merges = mirt__tree_push(&stack, r, 1), top = stack.depth - 1 + merges; merges > 0; merges--, top--) {
                add_text(buffer[d][top - 1], buffer[d][top]);
            }
        }
    }
    mirt__exchange_plan(&plan, active, &x);
    if (x.parts < 1 || x.parts > MIRT__MAX_PARTS || x.device[0] != 0 || x.slot[0] != 0) return false;
    for (int i = 0; i + 1 < x.parts; i++) {
        int into = x.add[i].into, from = x.add[i].from;
        if (into < 0 || into >= x.parts || from < 0 || from >= x.parts) return false;
        add_text(buffer[x.device[into]][x.slot[into]], buffer[x.device[from]][x.slot[from]]);
    }
    return true;
}

static void check_tree(int replicas) {
    char want[TEXT];
    bool good = true;
    int devices_failed = 0, active_failed = 0;
    for (int devices = 1; devices <= replicas && devices <= MOST_DEVICES; devices++) {
        memset(&plan, 0, sizeof plan);
        plan.num_devices = devices;
        plan.num_replicas = replicas;
        for (int d = 0; d < devices; d++) {
            int64_t first;
            plan.device[d].num_replicas = (int)mirt__share(replicas, devices, d, &first);
            plan.device[d].first_replica = (int)first;
        }
        for (int active = 1; active <= replicas; active++) {
            definition(0, active, want);
            if (act_out(active) && strcmp(buffer[0][0], want) == 0) continue;
            if (good) {
                devices_failed = devices;
                active_failed = active;
            }
            good = false;
        }
    }
    ok(good, "%d replicas: the sum is that of the tree for any devices and any number of active replicas%s", replicas, good ? "" : " but not here:");
    if (!good) printf("# %d devices, %d active: %s\n", devices_failed, active_failed, buffer[0][0]);
}

/* mirt__tree of the kernels adds its parts in the same order. */
static void check_kernel_tree(void) {
    bool good = true;
    for (int parts = 1; parts <= MOST_REPLICAS; parts++) {
        float part[MOST_REPLICAS][3];
        double stack[64];
        int size[64], depth = 0;
        for (int i = 0; i < parts; i++) {
            for (int k = 0; k < 3; k++) part[i][k] = 1.0f / (float)(3 + i * 7 + k);
            stack[depth] = (double)part[i][1];
            size[depth++] = 1;
            for (; depth > 1 && size[depth - 2] == size[depth - 1]; depth--) {
                stack[depth - 2] = (double)((float)stack[depth - 2] + (float)stack[depth - 1]);
                size[depth - 2] *= 2;
            }
        }
        for (; depth > 1; depth--) stack[depth - 2] = (double)((float)stack[depth - 2] + (float)stack[depth - 1]);
        mirt__tree(part[0], parts, 3, 3);
        good = good && part[0][1] == (float)stack[0];
    }
    ok(good, "partial sums of kernels meet in the same tree");
}

int main(void) {
    check_share();
    for (int replicas = 1; replicas <= MOST_REPLICAS; replicas++) check_tree(replicas);
    check_kernel_tree();
    return done_testing();
}
