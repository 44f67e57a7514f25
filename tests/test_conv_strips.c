/* Convolutions of every fast table: what is read into strips, every epilogue, both gradients, groups, float32 and bfloat16,
   products in bfloat16, against plain double arithmetic; the same bits from AVX2 and AVX-512 and from any team, and for an
   image in any place. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include "conv_calls.h"

static const shape shapes[] = {
    {2, 5, 6, 16, 96, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}, {3, 7, 7, 33, 24, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}, {2, 9, 7, 3, 33, 1, 3, 3, 2, 2, 1, 1, 0, 1, 1, 1},
    {1, 20, 17, 24, 7, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}, {2, 6, 7, 7, 16, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 3, 4, 96, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {2, 8, 9, 16, 24, 1, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0}, {1, 9, 10, 7, 96, 1, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1}, {2, 9, 8, 1, 16, 1, 5, 3, 1, 2, 1, 1, 0, 0, 0, 0},
    {1, 11, 9, 24, 33, 1, 3, 3, 1, 1, 2, 3, 2, 3, 2, 3}, {2, 7, 6, 24, 48, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 7, 8, 21, 14, 7, 3, 2, 2, 3, 1, 1, 1, 0, 1, 1},
    {30, 3, 3, 7, 24, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 33, 31, 3, 16, 1, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3}, {1, 2, 300, 7, 7, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {1, 40, 40, 33, 24, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 5, 5, 7, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {0, 4, 4, 8, 3, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {2, 9, 5, 600, 70, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}, {2, 4, 4, 70, 330, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 6, 6, 16, 7, 1, 2, 2, 3, 3, 1, 1, 0, 0, 0, 0}};

int main(void) {
    const shape placed = {3, 9, 7, 21, 26, 1, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1};
    check_all(shapes, (int)(sizeof shapes / sizeof *shapes), &placed);
    return done_testing();
}
