/* Draws digits that look handwritten. Strokes through a few points are bent, slanted, rotated, scaled and shifted at
   random and drawn with a round pen and noise. Integer arithmetic gives the same pixels with every compiler and
   machine. */

#include "data.h"

#define MIRT__DIGIT_SIDE 28
#define MIRT__DIGIT_PIXELS (MIRT__DIGIT_SIDE * MIRT__DIGIT_SIDE)
/* Coordinates on the canvas are in 1/256 of a pixel. */
#define MIRT__DIGIT_ONE 256

/* Variants of digits: points x, y in a square of 100 by 100, y downwards, joined by a curve, with a corner at points
   that occur twice. 255 ends a stroke, 254 the digit. */
static const unsigned char mirt__digit_ways[][32] = {
    {50, 10, 31, 24, 25, 50, 31, 77, 50, 90, 69, 77, 75, 50, 69, 24, 50, 10, 254},
    {64, 12, 40, 16, 27, 44, 30, 78, 50, 90, 70, 74, 73, 40, 58, 14, 46, 18, 254},
    {50, 10, 50, 50, 50, 90, 254},
    {36, 30, 52, 11, 52, 11, 51, 50, 50, 90, 254},
    {36, 26, 51, 11, 51, 11, 51, 89, 255, 34, 89, 68, 89, 254},
    {28, 30, 38, 13, 58, 11, 70, 27, 61, 49, 43, 70, 27, 88, 27, 88, 74, 87, 254},
    {29, 26, 43, 11, 63, 15, 68, 34, 54, 60, 34, 83, 27, 78, 38, 73, 56, 87, 75, 86, 254},
    {28, 19, 48, 10, 67, 21, 64, 39, 45, 47, 45, 47, 67, 56, 71, 74, 53, 90, 27, 82, 254},
    {28, 12, 28, 12, 70, 12, 70, 12, 46, 42, 46, 42, 68, 52, 72, 72, 54, 90, 28, 83, 254},
    {32, 12, 27, 54, 27, 54, 74, 53, 255, 63, 16, 61, 50, 59, 90, 254},
    {61, 90, 62, 50, 63, 10, 63, 10, 24, 62, 24, 62, 79, 61, 254},
    {70, 12, 37, 13, 37, 13, 33, 45, 33, 45, 54, 40, 72, 56, 68, 79, 48, 90, 27, 82, 254},
    {36, 14, 32, 48, 32, 48, 56, 44, 70, 60, 64, 82, 44, 90, 28, 80, 255, 36, 14, 72, 11, 254},
    {64, 11, 43, 29, 30, 56, 33, 80, 51, 90, 68, 79, 67, 60, 50, 52, 33, 64, 254},
    {50, 10, 35, 40, 31, 68, 40, 88, 58, 88, 68, 72, 56, 60, 34, 70, 254},
    {26, 14, 26, 14, 73, 13, 73, 13, 53, 50, 43, 90, 254},
    {27, 14, 27, 14, 74, 13, 74, 13, 55, 50, 44, 90, 255, 36, 52, 66, 49, 254},
    {50, 47, 33, 36, 33, 18, 50, 10, 67, 18, 66, 36, 50, 47, 30, 62, 30, 81, 50, 90, 70, 81, 69, 62, 50, 47, 254},
    {68, 22, 52, 10, 34, 20, 39, 40, 61, 57, 69, 76, 50, 90, 31, 76, 39, 58, 60, 40, 68, 22, 254},
    {68, 32, 54, 48, 34, 43, 30, 25, 46, 10, 64, 16, 68, 32, 66, 60, 60, 90, 254},
    {67, 28, 52, 46, 33, 38, 34, 18, 52, 10, 67, 22, 68, 50, 60, 80, 44, 90, 30, 82, 254},
};
static const unsigned char mirt__digit_first_way[11] = {0, 2, 5, 7, 9, 11, 13, 15, 17, 19, 21};

/* How one image is distorted: a second-degree map from the square to the canvas, then the pen. */
typedef struct mirt__digit_hand {
    int turn, slant;     /* tangents in 1/1024 */
    int width, height;   /* canvas units per unit of the square */
    int shift_x, shift_y;
    int bend[6];         /* coefficients of xx, xy, yy for x and y, in 1/1024 of half a square */
    int wobble;          /* shift of single points, in the square's units */
    int pen;             /* pen radius */
    int ink, noise;      /* out of 255 */
} mirt__digit_hand;

typedef struct mirt__digit_point {
    int x, y;
} mirt__digit_point;

static mirt__digit_hand mirt__digit_draw_hand(mirt__random *random) {
    mirt__digit_hand hand;
    hand.turn = mirt__random_between(random, -300, 300);
    hand.slant = mirt__random_between(random, -350, 350);
    hand.width = mirt__random_between(random, 40, 78);
    hand.height = mirt__random_between(random, 45, 76);
    hand.shift_x = mirt__random_between(random, -2 * MIRT__DIGIT_ONE, 2 * MIRT__DIGIT_ONE);
    hand.shift_y = mirt__random_between(random, -2 * MIRT__DIGIT_ONE, 2 * MIRT__DIGIT_ONE);
    for (int i = 0; i < 6; i++) hand.bend[i] = mirt__random_between(random, -160, 160);
    hand.wobble = mirt__random_between(random, 1, 6);
    hand.pen = mirt__random_between(random, 170, 440);
    hand.ink = mirt__random_between(random, 150, 255);
    hand.noise = mirt__random_between(random, 0, 80);
    return hand;
}

static mirt__digit_point mirt__digit_place(const mirt__digit_hand *hand, mirt__random *random, int x, int y) {
    const int center = MIRT__DIGIT_SIDE / 2 * MIRT__DIGIT_ONE;
    x += mirt__random_between(random, -hand->wobble, hand->wobble) - 50;
    y += mirt__random_between(random, -hand->wobble, hand->wobble) - 50;
    /* From here on in 1/16 of the square's units. */
    int xx = x * x, xy = x * y, yy = y * y;
    int bent_x = x * 16 + (hand->bend[0] * xx + hand->bend[1] * xy + hand->bend[2] * yy) * 16 / (50 * 1024);
    int bent_y = y * 16 + (hand->bend[3] * xx + hand->bend[4] * xy + hand->bend[5] * yy) * 16 / (50 * 1024);
    int wide = bent_x * hand->width / 16, high = bent_y * hand->height / 16;
    mirt__digit_point point;
    point.x = center + hand->shift_x + wide - high * (hand->turn + hand->slant) / 1024;
    point.y = center + hand->shift_y + high + wide * hand->turn / 1024;
    return point;
}

/* The first pixel of the range [center - reach, center + reach], kept inside the canvas. */
static int mirt__digit_pixel(int coordinate) {
    const int most = MIRT__DIGIT_SIDE - 1;
    return coordinate < 0 ? 0 : coordinate / MIRT__DIGIT_ONE < most ? coordinate / MIRT__DIGIT_ONE : most;
}

/* Darkens the pixels near the straight line from a to b: fully inside the pen, fading over one pixel at its edge. */
static void mirt__digit_line(unsigned char *canvas, mirt__digit_point a, mirt__digit_point b, int pen) {
    const int half = MIRT__DIGIT_ONE / 2;
    int reach = pen + half;
    int outer = reach * reach, inner = (pen - half) * (pen - half);
    int dx = b.x - a.x, dy = b.y - a.y;
    int64_t length2 = (int64_t)dx * dx + (int64_t)dy * dy;
    int64_t inverse = length2 > 0 ? ((int64_t)1 << 40) / length2 : 0;
    int left = mirt__digit_pixel((a.x < b.x ? a.x : b.x) - reach),
        right = mirt__digit_pixel((a.x < b.x ? b.x : a.x) + reach);
    int top = mirt__digit_pixel((a.y < b.y ? a.y : b.y) - reach),
        bottom = mirt__digit_pixel((a.y < b.y ? b.y : a.y) + reach);
    for (int row = top; row <= bottom; row++) {
        for (int column = left; column <= right; column++) {
            int x = column * MIRT__DIGIT_ONE + half - a.x, y = row * MIRT__DIGIT_ONE + half - a.y;
            int64_t along = (int64_t)x * dx + (int64_t)y * dy;
            along = along < 0 ? 0 : along > length2 ? length2 : along;
            int part = (int)((along * inverse) >> 32); /* position on the line, in 1/256 */
            int64_t away_x = x - dx * part / 256, away_y = y - dy * part / 256;
            int64_t away2 = away_x * away_x + away_y * away_y;
            if (away2 >= outer) continue;
            int shade = away2 <= inner ? 255 : (int)(255 * (outer - away2) / (outer - inner));
            unsigned char *pixel = &canvas[row * MIRT__DIGIT_SIDE + column];
            if (shade > *pixel) *pixel = (unsigned char)shade;
        }
    }
}

/* Catmull-Rom spline from b to c, with neighbors a and d, at `part` / 4. */
static int mirt__digit_spline(int a, int b, int c, int d, int part) {
    int t = part, t2 = t * t, t3 = t2 * t;
    return (2 * b * 64 + (c - a) * t * 16 + (2 * a - 5 * b + 4 * c - d) * t2 * 4 + (3 * b - a - 3 * c + d) * t3) / 128;
}

static void mirt__digit_stroke(unsigned char *canvas, const mirt__digit_point *point, int count, int pen) {
    const int parts = 4;
    mirt__digit_point from = point[0];
    for (int i = 0; i + 1 < count; i++) {
        mirt__digit_point a = point[i > 0 ? i - 1 : 0], b = point[i], c = point[i + 1],
                          d = point[i + 2 < count ? i + 2 : i + 1];
        for (int part = 1; part <= parts; part++) {
            mirt__digit_point to;
            to.x = mirt__digit_spline(a.x, b.x, c.x, d.x, part);
            to.y = mirt__digit_spline(a.y, b.y, c.y, d.y, part);
            if (to.x != from.x || to.y != from.y) mirt__digit_line(canvas, from, to, pen);
            from = to;
        }
    }
}

static void mirt__digit_add_noise(unsigned char *canvas, const mirt__digit_hand *hand, mirt__random *random) {
    uint32_t word = 0;
    for (int i = 0; i < MIRT__DIGIT_PIXELS; i++) {
        if (i % 4 == 0) word = mirt__random_u32(random);
        int grain = (int)(word & 255) - 128;
        word >>= 8;
        canvas[i] = mirt__byte_of(canvas[i] * hand->ink / 255 + grain * hand->noise / 128);
    }
}

static void mirt__digit_draw(unsigned char *canvas, int digit, mirt__random *random) {
    mirt__digit_point points[16];
    int first = mirt__digit_first_way[digit], last = mirt__digit_first_way[digit + 1] - 1, count = 0;
    const unsigned char *way = mirt__digit_ways[mirt__random_between(random, first, last)];
    mirt__digit_hand hand = mirt__digit_draw_hand(random);
    memset(canvas, 0, MIRT__DIGIT_PIXELS);
    for (bool more = true; more;) {
        if (*way >= 254) {
            mirt__digit_stroke(canvas, points, count, hand.pen);
            count = 0;
            more = *way++ == 255;
        } else if (count > 0 && way[0] == way[-2] && way[1] == way[-1]) {
            points[count] = points[count - 1]; /* keeps corners */
            count++;
            way += 2;
        } else {
            points[count++] = mirt__digit_place(&hand, random, way[0], way[1]);
            way += 2;
        }
    }
    mirt__digit_add_noise(canvas, &hand, random);
}

static mirt_status mirt__digits_begin(mirt_dataset *dataset) {
    const mirt__drawn *drawn = (const mirt__drawn *)dataset;
    if (dataset->slot.block) return MIRT_OK;
    mirt_status status = mirt__slot_create(&dataset->slot, &dataset->spec, dataset->spec.samples, true);
    if (status != MIRT_OK) return status;
    unsigned char *x = (unsigned char *)dataset->slot.field[0], *y = (unsigned char *)dataset->slot.field[1];
    for (int64_t i = 0; i < dataset->spec.samples; i++) {
        /* One random stream per image: splits have different ones, and drawing more images does not change the first
           ones. */
        uint64_t key = mirt__hash("digits") ^ ((uint64_t)i * 2 + (uint64_t)drawn->split);
        mirt__random random = mirt__random_stream(drawn->seed, key);
        int digit = (int)mirt__random_below(&random, 10);
        mirt__digit_draw(x + i * MIRT__DIGIT_PIXELS, digit, &random);
        y[i] = (unsigned char)digit;
        dataset->slot.index[i] = i;
    }
    return MIRT_OK;
}

static const mirt__stage mirt__digits_stage = {mirt__digits_begin, NULL, mirt__slot_sample, NULL, NULL, NULL, NULL};

MIRT_API mirt_dataset *mirt_drawn_digits(int64_t count, uint64_t seed, mirt_split split) {
    MIRT__ENTER;
    if (!mirt__split_known("mirt_drawn_digits", split)) return NULL;
    if (count < 1) {
        mirt__fail(MIRT_E_INVALID, "mirt_drawn_digits needs a count of at least 1, not %lld", (long long)count);
        return NULL;
    }
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__drawn), &mirt__digits_stage);
    if (!dataset) return NULL;
    ((mirt__drawn *)dataset)->seed = seed;
    ((mirt__drawn *)dataset)->split = split;
    dataset->identity = mirt__identity_with(mirt__identity_with(mirt__hash("digits"), seed), (uint64_t)split);
    dataset->contiguous = true;
    dataset->spec.num_x = dataset->spec.num_y = 1;
    mirt__data_add_field(&dataset->spec, MIRT_UINT8, MIRT_SHAPE(MIRT__DIGIT_SIDE, MIRT__DIGIT_SIDE, 1));
    mirt__data_add_field(&dataset->spec, MIRT_UINT8, MIRT_SHAPE(0));
    dataset->spec.samples = count;
    mirt_status status = mirt__dataset_check_spec(dataset);
    if (status == MIRT_OK) status = mirt__dataset_name_digits(dataset);
    return mirt__dataset_checked(status, &dataset);
}

#undef MIRT__DIGIT_SIDE
#undef MIRT__DIGIT_PIXELS
#undef MIRT__DIGIT_ONE
