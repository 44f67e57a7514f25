#ifndef GOLDEN_SEGMENT_H
#define GOLDEN_SEGMENT_H
/* Made by make_segment.py with TensorFlow 2.21.0, Keras 3.15.1 in float64; do not edit. */
#include "formula.h"

/* Twenty steps of SGD(0.1, momentum 0.9) on SEGMENT_ROWS images of 48 by 48. (Adam makes whole steps of gradients that
   are 0 but for rounding: float32 Keras itself is 4e-4 off.) The images' bytes are floor((u + 1) * 127.5), u being
   golden_uniform(2000); the class of a pixel is its first byte by 64. Even steps take the first half of the rows, odd
   ones the second. The i-th convolution begins with half of golden_uniform(2010 + i), everything else as in Keras. */
enum { SEGMENT_ROWS = 8, SEGMENT_STEPS = 20 };
static const double golden_segment[] = {
    1.55676505107, 1.54132050834, 1.51636270821, 1.48783204157, 1.46050160726, 1.43792148944, 1.42335055024,
    1.41225681626, 1.40910645307, 1.40453026927, 1.40542035115, 1.40165212157, 1.4011714802, 1.39579576138,
    1.39281952411, 1.38648810442, 1.38260453399, 1.37707806974, 1.37399808545, 1.37037131869
};

#endif
