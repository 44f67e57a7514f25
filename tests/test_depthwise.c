/* Depthwise convolutions of every fast table: what is read, every epilogue, both gradients alone and in one pass, float32
   and bfloat16, against plain double arithmetic; the same bits from AVX2 and AVX-512 and from any team, and for an image
   in any place. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include "conv_calls.h"

static const shape shapes[] = {
    {2, 7, 9, 16, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 9, 8, 7, 7, 7, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1},
    {3, 6, 6, 33, 33, 33, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0}, {2, 8, 7, 24, 24, 24, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2},
    {1, 11, 10, 17, 17, 17, 5, 5, 2, 2, 1, 1, 1, 2, 2, 2}, {2, 5, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0},
    {1, 6, 7, 40, 40, 40, 2, 4, 1, 2, 1, 1, 0, 1, 1, 1}, {1, 9, 9, 20, 20, 20, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2},
    {2, 10, 12, 8, 8, 8, 3, 2, 2, 3, 2, 1, 0, 0, 0, 0}, {1, 7, 7, 5, 5, 5, 1, 2, 3, 3, 1, 1, 0, 0, 0, 0},
    {17, 4, 5, 32, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {66, 3, 3, 4, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {1, 40, 12, 19, 19, 19, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 33, 21, 16, 16, 16, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1},
    {1, 2, 300, 6, 6, 6, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 4, 601, 3, 3, 3, 3, 3, 1, 2, 1, 1, 1, 1, 1, 1},
    {1, 12, 12, 2, 2, 2, 7, 7, 1, 1, 1, 1, 3, 3, 3, 3}, {1, 130, 17, 20, 20, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {0, 4, 4, 8, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}};

int main(void) {
    const shape placed = {3, 9, 7, 21, 21, 21, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1};
    depthwise = true;
    check_all(shapes, (int)(sizeof shapes / sizeof *shapes), &placed);
    return done_testing();
}
