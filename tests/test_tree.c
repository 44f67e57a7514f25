/* Compares the split of a batch and the fixed tree of sums with plain definitions. */
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

static void make_plan(mirt_collective collective, int devices, int replicas) {
    memset(&plan, 0, sizeof plan);
    plan.collective = collective;
    plan.num_devices = plan.all_devices = devices;
    plan.num_replicas = replicas;
}

/* Does as devices do: each adds its own replicas on a stack of buffers, or in a buffer per replica, then
   the exchange of `device` adds the rest. The sum, or NULL if that did not follow the rules. */
static const char *act_out(int replicas, int active, bool slot_per_replica, int device) {
    mirt__exchange x;
    int slots = mirt__gradient_slots(&plan, replicas, slot_per_replica);
    for (int d = 0; d < plan.num_devices; d++) {
        mirt__tree_stack stack;
        int first, count = mirt__device_replicas(&plan, replicas, d, &first);
        stack.depth = 0;
        for (int r = first; r < first + count && r < active; r++) {
            if (slot_per_replica) {
                if (r - first >= slots) return NULL;
                snprintf(buffer[d][r - first], TEXT, "%d", r);
                mirt__tree_push(&stack, r, 1);
                const mirt__subtree *top = &stack.node[stack.depth - 1];
                for (int size = 1; size < top->size; size *= 2) {
                    int right = r - first + 1 - size, left = right - size;
                    add_text(buffer[d][left], buffer[d][right]);
                }
                continue;
            }
            if (stack.depth >= slots) return NULL;
            snprintf(buffer[d][stack.depth], TEXT, "%d", r);
            for (int merges = mirt__tree_push(&stack, r, 1), top = stack.depth - 1 + merges; merges > 0;
                 merges--, top--) {
                add_text(buffer[d][top - 1], buffer[d][top]);
            }
        }
    }
    memset(&x, 0x5a, sizeof x);
    mirt__exchange_plan(&plan, replicas, active, slot_per_replica, device, &x);
    if (x.parts < 1 || x.parts > MIRT__MAX_PARTS) return NULL;
    for (int i = x.parts; i < MIRT__MAX_PARTS; i++) { /* the rest is untouched */
        if (x.device[i] != 0x5a5a5a5a || x.slot[i] != 0x5a5a5a5a || x.add[i - 1].into != 0x5a5a5a5a) return NULL;
    }
    for (int i = 0; i < x.parts; i++) {
        if (x.device[i] < 0 || x.device[i] >= plan.num_devices || x.slot[i] < 0 || x.slot[i] >= slots) return NULL;
    }
    for (int i = 0; i + 1 < x.parts; i++) {
        int into = x.add[i].into, from = x.add[i].from;
        if (into < 0 || into >= x.parts || from < 0 || from >= x.parts) return NULL;
        add_text(buffer[x.device[into]][x.slot[into]], buffer[x.device[from]][x.slot[from]]);
    }
    if (x.parts > 1 && x.add[x.parts - 2].into != 0) return NULL;
    return buffer[x.device[0]][x.slot[0]];
}

/* The definition: devices in the order first, first + 1, ..., each with what the tree leaves it: the
   largest complete subtrees of its replicas, from the left. All one chain. */
static void chain_definition(int replicas, int active, int first_device, char *out) {
    char part[TEXT];
    out[0] = 0;
    for (int i = 0; i < plan.num_devices; i++) {
        int64_t first;
        int d = (first_device + i) % plan.num_devices, end = (int)mirt__share(replicas, plan.num_devices, d, &first);
        end = end + (int)first < active ? end + (int)first : active;
        for (int lo = (int)first, size; lo < end; lo += size) {
            for (size = 1; lo % (2 * size) == 0 && lo + 2 * size <= end; size *= 2) {}
            definition(lo, lo + size, part);
            if (out[0]) add_text(out, part);
            else memcpy(out, part, TEXT);
        }
    }
}

static void check_plans(mirt_collective collective, const char *name, int replicas, int most_devices) {
    char want[TEXT];
    bool good = true;
    for (int devices = 1; devices <= replicas && devices <= most_devices; devices++) {
        make_plan(collective, devices, replicas);
        int some = collective == MIRT_RING || devices < 2 ? devices : 2; /* the first and the last, or all that
                                                                            differ */
        for (int run = 0; run < 4 * replicas * some && good; run++) {
            int active = 1 + run / 4 % replicas,
                device = some == devices ? run / 4 / replicas : run / 4 / replicas * (devices - 1);
            bool slot_per_replica = run & 1;
            /* as all of the strategy's replicas, and as those of two batches */
            plan.num_replicas = run & 2 && replicas % 2 == 0 && replicas / 2 >= devices ? replicas / 2 : replicas;
            if (collective == MIRT_RING) chain_definition(replicas, active, device + 1, want);
            else if (collective == MIRT_REDUCE_TO_ONE_DEVICE) chain_definition(replicas, active, 0, want);
            else definition(0, active, want);
            const char *have = act_out(replicas, active, slot_per_replica, device);
            good = have && strcmp(have, want) == 0;
            if (!good)
                printf("# %d devices, %d active, for device %d: %s, not %s\n", devices, active, device,
                       have ? have : "broken", want);
        }
    }
    ok(good,
       "%d replicas, %s: every part is added once, in the order defined, for any devices and any number of active "
       "replicas",
       replicas, name);
}

static void check_ranges(void) {
    static const int64_t elements[] = {0, 1, 15, 16, 17, 160, 1000, 4096, 4100};
    static const mirt_collective collective[] = {MIRT_COLLECTIVE_AUTO, MIRT_TREE, MIRT_RING, MIRT_REDUCE_TO_ONE_DEVICE};
    const int64_t vector = MIRT__ALIGN / (int64_t)sizeof(mirt__real);
    for (int c = 0; c < MIRT__COUNT(collective); c++) {
        bool good = true;
        for (int k = 0; k < MIRT__COUNT(elements); k++) {
            for (int devices = 1; devices <= 6; devices++) {
                int64_t at = 0, begin, end;
                make_plan(collective[c], devices, devices);
                for (int d = 0; d < devices; d++) {
                    mirt__exchange_range(&plan, elements[k], d, &begin, &end);
                    good = good && begin == at && end >= begin && (end == elements[k] || end % vector == 0);
                    if (collective[c] == MIRT_REDUCE_TO_ONE_DEVICE && d == 0) good = good && end == elements[k];
                    at = end;
                }
                good = good && at == elements[k];
            }
        }
        ok(good, "collective %d: ranges of whole vectors cover every element once", (int)collective[c]);
    }
}

/* Devices with their own memory update all weights; devices that share a block, or write all copies, update a share. */
static void check_update_ranges(void) {
    bool good = true;
    for (int run = 0; run < 4; run++) {
        for (int d = 0; d < 3; d++) {
            int64_t begin, end, own_begin, own_end;
            make_plan(MIRT_TREE, 3, 3);
            plan.kind = run & 1 ? MIRT_CENTRAL_STORAGE : MIRT_MIRRORED;
            plan.able.shards = !(run & 2);
            mirt__exchange_range(&plan, 1000, d, &own_begin, &own_end);
            mirt__update_range(&plan, 1000, d, &begin, &end);
            good = good && own_end - own_begin < 1000;
            good = good && (run == 2 ? begin == 0 && end == 1000 : begin == own_begin && end == own_end);
        }
    }
    ok(good, "a device updates its share of the weights, or all where it writes its own copy alone");
}

/* The limit on partial sums, against plans made for every number of active replicas. */
static void check_too_many_parts(void) {
    static mirt__exchange x;
    make_plan(MIRT_TREE, 16, 16);
    for (int replicas = 16; replicas <= 160; replicas += 8) {
        int most = 0;
        if (mirt__check_parts(&plan, replicas) != MIRT_OK) {
            ok(replicas % 16 && strstr(mirt_last_error(), "partial sums") != NULL, "%d replicas on 16 devices: \"%s\"",
               replicas, mirt_last_error());
            continue;
        }
        for (int active = 1; active <= replicas; active++) {
            mirt__exchange_plan(&plan, replicas, active, false, 0, &x);
            if (x.parts > most) most = x.parts;
        }
        ok(most <= MIRT__MAX_PARTS, "%d replicas on 16 devices: %d partial sums", replicas, most);
    }
    make_plan(MIRT_TREE, 32, 32);
    ok(mirt__check_parts(&plan, 4096) == MIRT_OK && mirt__check_parts(&plan, 32 * 7) == MIRT_E_INVALID &&
           strstr(mirt_last_error(), "224 replicas on 32 devices"),
       "4096 replicas on 32 devices work, 224 do not: \"%s\"", mirt_last_error());
}

/* The complete subtrees, from the left, of a device's replicas that come before `active`. */
static int subtrees(int replicas, int active, int device) {
    int64_t first;
    int count = 0, end = (int)mirt__share(replicas, plan.num_devices, device, &first) + (int)first;
    for (int lo = (int)first, size = 1; lo < end && lo < active; lo += size, count++) {
        for (size = 1; lo % (2 * size) == 0 && lo + 2 * size <= end && lo + 2 * size <= active; size *= 2) {}
    }
    return count;
}

/* Buffers and the limit on partial sums, neither too few nor too many, counted for each number of active replicas. */
static void check_counts(void) {
    bool slots = true, parts = true;
    int at_limit = 0;
    for (int devices = 1; devices <= 32; devices += devices < 5 ? 1 : 3) {
        for (int replicas = 1; replicas <= 256; replicas += replicas < 80 ? 1 : 11) {
            int most_parts = 0, most_slots = 1, most_replicas = (replicas + devices - 1) / devices;
            make_plan(MIRT_TREE, devices, replicas);
            for (int active = 1; active <= replicas; active++) {
                int sum = 0;
                for (int d = 0; d < devices; d++) {
                    int first, own = mirt__device_replicas(&plan, replicas, d, &first);
                    int before = subtrees(replicas, active - 1, d);
                    sum += subtrees(replicas, active, d);
                    /* the last replica's gradients are made beside the sums of those before */
                    if (active > first && active <= first + own && before + 1 > most_slots) most_slots = before + 1;
                }
                if (sum > most_parts) most_parts = sum;
            }
            slots = slots && mirt__gradient_slots(&plan, replicas, false) == most_slots &&
                    mirt__gradient_slots(&plan, replicas, true) == (most_replicas > 1 ? most_replicas : 1);
            parts = parts && (mirt__check_parts(&plan, replicas) == MIRT_OK) == (most_parts <= MIRT__MAX_PARTS);
            at_limit += most_parts == MIRT__MAX_PARTS;
        }
    }
    ok(slots, "a device has as many buffers of gradients as it needs at once, and none to spare");
    ok(parts && at_limit, "%d partial sums are allowed, one more is not (%d plans have that many)", MIRT__MAX_PARTS,
       at_limit);
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
    for (int replicas = 1; replicas <= MOST_REPLICAS; replicas++)
        check_plans(MIRT_COLLECTIVE_AUTO, "tree", replicas, MOST_DEVICES);
    for (int replicas = 1; replicas <= 17; replicas++) {
        check_plans(MIRT_RING, "ring", replicas, 5);
        check_plans(MIRT_REDUCE_TO_ONE_DEVICE, "one device", replicas, 5);
    }
    check_ranges();
    check_update_ranges();
    check_too_many_parts();
    check_counts();
    check_kernel_tree();
    return done_testing();
}
