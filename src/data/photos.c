/* Draws pictures of heads of cats and dogs. They consist of ellipses and triangles, rotated, scaled and lit at random,
   in front of a cluttered background, with film grain. Cats have pointed ears and slit pupils, dogs hanging ears and
   long muzzles; everything else is the same. Integer arithmetic gives the same pixels with every compiler and
   machine. */

#include "data.h"

/* Coordinates of the head: 1024 is about half its width, y points down. */
typedef struct mirt__photo_shape {
    int x, y, width, height; /* center, and half sizes */
    int lean;                /* sideways shift of the tip of a triangle, which points up; MIRT__PHOTO_ROUND: an
                                ellipse */
    int color[3];
} mirt__photo_shape;

#define MIRT__PHOTO_ROUND INT32_MAX
#define MIRT__PHOTO_GRID 8 /* cells of the background's clouds per side */

typedef struct mirt__photo {
    mirt__random random;
    unsigned char *pixels;
    int width, height;
    int64_t centre_x, centre_y, radius; /* center of the head, in 1/256 pixel */
    int turn;                           /* tangent in 1/1024 */
    int light, stripes;                 /* shading to one side; period of the stripes, or 0 */
} mirt__photo;

static int mirt__photo_between(mirt__photo *photo, int low, int high) {
    return mirt__random_between(&photo->random, low, high);
}

static void mirt__photo_background(mirt__photo *photo) {
    int cloud[MIRT__PHOTO_GRID + 1][MIRT__PHOTO_GRID + 1][3], base[3], wild = mirt__photo_between(photo, 10, 90);
    for (int c = 0; c < 3; c++) base[c] = mirt__photo_between(photo, 30, 220);
    for (int i = 0; i < (MIRT__PHOTO_GRID + 1) * (MIRT__PHOTO_GRID + 1) * 3; i++)
        (&cloud[0][0][0])[i] = base[i % 3] + mirt__photo_between(photo, -wild, wild);
    for (int y = 0; y < photo->height; y++) {
        int row = (int)((int64_t)y * MIRT__PHOTO_GRID * 256 / photo->height), v = row & 255;
        for (int x = 0; x < photo->width; x++) {
            int column = (int)((int64_t)x * MIRT__PHOTO_GRID * 256 / photo->width), u = column & 255;
            for (int c = 0; c < 3; c++) {
                int above = cloud[row >> 8][column >> 8][c] * (256 - u) + cloud[row >> 8][(column >> 8) + 1][c] * u;
                int below = cloud[(row >> 8) + 1][column >> 8][c] * (256 - u) +
                            cloud[(row >> 8) + 1][(column >> 8) + 1][c] * u;
                photo->pixels[((size_t)y * (size_t)photo->width + (size_t)x) * 3 + (size_t)c] = mirt__byte_of(
                    (above * (256 - v) + below * v) / 65536);
            }
        }
    }
}

static bool mirt__photo_inside(const mirt__photo_shape *shape, int64_t x, int64_t y) {
    x -= shape->x;
    y -= shape->y;
    if (x < -3 * shape->width || x > 3 * shape->width || y < -shape->height || y > shape->height) return false;
    if (shape->lean == MIRT__PHOTO_ROUND) {
        int64_t u = x * 1024 / shape->width, v = y * 1024 / shape->height;
        return u * u + v * v < 1024 * 1024;
    }
    int64_t down = y + shape->height, half = shape->width * down / (2 * shape->height),
            middle = shape->lean * (2 * shape->height - down) / (2 * shape->height);
    return x > middle - half && x < middle + half;
}

static void mirt__photo_paint(mirt__photo *photo, const mirt__photo_shape *shape) {
    int64_t reach = (shape->width + shape->height + 300) * photo->radius / 1024;
    int64_t x0 = photo->centre_x + (shape->x * 1024 - shape->y * photo->turn) / 1024 * photo->radius / 1024;
    int64_t y0 = photo->centre_y + (shape->y * 1024 + shape->x * photo->turn) / 1024 * photo->radius / 1024;
    int64_t left = (x0 - reach) / 256, right = (x0 + reach) / 256, top = (y0 - reach) / 256,
            bottom = (y0 + reach) / 256;
    for (int64_t y = top < 0 ? 0 : top; y <= bottom && y < photo->height; y++) {
        for (int64_t x = left < 0 ? 0 : left; x <= right && x < photo->width; x++) {
            int64_t dx = x * 256 + 128 - photo->centre_x, dy = y * 256 + 128 - photo->centre_y;
            int64_t u = (dx * 1024 + dy * photo->turn) / photo->radius,
                    v = (dy * 1024 - dx * photo->turn) / photo->radius;
            if (!mirt__photo_inside(shape, u, v)) continue;
            int shade = (int)(u * photo->light / 1024);
            if (photo->stripes && ((u + 4096) / photo->stripes + (v * v / 400000)) % 2) shade -= 25;
            for (int c = 0; c < 3; c++)
                photo->pixels[(size_t)(y * photo->width + x) * 3 + (size_t)c] = mirt__byte_of(shape->color[c] +
                                                                                                 shade);
        }
    }
}

/* Adds a shape, or one on either side of the head if x is not 0. `color` varies by up to `vary`. */
static void mirt__photo_pair(mirt__photo *photo, int x, int y, int width, int height, int lean, const int color[3],
                             int vary) {
    mirt__photo_shape shape;
    int by = mirt__photo_between(photo, -vary, vary);
    shape.y = y;
    shape.width = width;
    shape.height = height;
    for (int c = 0; c < 3; c++) shape.color[c] = color[c] + by;
    for (int side = -1; side <= 1; side += 2) {
        shape.x = side * x;
        shape.lean = lean == MIRT__PHOTO_ROUND ? lean : side * lean;
        if (x || side > 0) mirt__photo_paint(photo, &shape);
    }
}

static void mirt__photo_clutter(mirt__photo *photo) {
    int count = mirt__photo_between(photo, 2, 7);
    for (int i = 0; i < count; i++) {
        mirt__photo_shape shape;
        shape.x = mirt__photo_between(photo, -2600, 2600);
        shape.y = mirt__photo_between(photo, -2600, 2600);
        shape.width = mirt__photo_between(photo, 100, 900);
        shape.height = mirt__photo_between(photo, 100, 900);
        shape.lean = mirt__photo_between(photo, 0, 1) ? MIRT__PHOTO_ROUND : mirt__photo_between(photo, -300, 300);
        for (int c = 0; c < 3; c++) shape.color[c] = mirt__photo_between(photo, 0, 255);
        mirt__photo_paint(photo, &shape);
    }
}

static void mirt__photo_head(mirt__photo *photo, bool dog) {
    static const int pink[3] = {215, 140, 140}, black[3] = {30, 25, 25}, white[3] = {235, 230, 220};
    int fur[3], eye[3], light[3], round = MIRT__PHOTO_ROUND, bright = mirt__photo_between(photo, 60, 220);
    for (int c = 0; c < 3; c++) {
        fur[c] = bright + mirt__photo_between(photo, -15, 15) - 18 * c;
        light[c] = fur[c] + 35;
        eye[c] = mirt__photo_between(photo, 60, 200) - 30 * c;
    }
    if (dog) {
        int down = mirt__photo_between(photo, -350, -50);
        mirt__photo_pair(photo, 0, 0, mirt__photo_between(photo, 720, 880), mirt__photo_between(photo, 850, 1000),
                         round, fur, 0);
        mirt__photo_pair(photo, mirt__photo_between(photo, 720, 900), down, mirt__photo_between(photo, 190, 320),
                         mirt__photo_between(photo, 480, 700), round, fur, 45);
        mirt__photo_pair(photo, 0, 430, mirt__photo_between(photo, 330, 470), mirt__photo_between(photo, 350, 480),
                         round, light, 30);
    } else {
        int x = mirt__photo_between(photo, 480, 640), y = mirt__photo_between(photo, -1000, -850),
            wide = mirt__photo_between(photo, 260, 380);
        mirt__photo_pair(photo, x, y, wide, 480, 120, fur, 20);
        mirt__photo_pair(photo, x, y + 80, wide / 2, 330, 90, pink, 30);
        mirt__photo_pair(photo, 0, 0, mirt__photo_between(photo, 850, 1000), mirt__photo_between(photo, 740, 880),
                         round, fur, 0);
        mirt__photo_pair(photo, 0, 330, mirt__photo_between(photo, 240, 380), mirt__photo_between(photo, 160, 260),
                         round, light, 30);
    }
    photo->stripes = 0;
    int x = mirt__photo_between(photo, 290, 420), y = mirt__photo_between(photo, -220, -80),
        size = mirt__photo_between(photo, 100, 160);
    mirt__photo_pair(photo, x, y, size + 30, size, round, white, 10);
    mirt__photo_pair(photo, x, y, size, size - 5, round, eye, 20);
    mirt__photo_pair(photo, x, y, dog ? size / 2 : size / 4, dog ? size / 2 : size - 10, round, black, 10);
    mirt__photo_pair(photo, 0, mirt__photo_between(photo, 180, 280), mirt__photo_between(photo, 80, 180),
                     mirt__photo_between(photo, 60, 130), round, mirt__photo_between(photo, 0, 2) ? black : pink, 20);
}

static void mirt__photo_grain(mirt__photo *photo) {
    int strength = mirt__photo_between(photo, 5, 40);
    size_t count = (size_t)photo->width * (size_t)photo->height * 3;
    uint32_t word = 0;
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) word = mirt__random_u32(&photo->random);
        photo->pixels[i] = mirt__byte_of(photo->pixels[i] + ((int)(word & 255) - 128) * strength / 128);
        word >>= 8;
    }
}

/* One of each pair is a dog, so that any number of pictures has equally many cats and dogs. */
static bool mirt__photo_is_dog(const mirt__drawn *photos, int64_t i) {
    mirt__random random = mirt__random_stream(photos->seed, mirt__hash("photos' order") ^
                                                                ((uint64_t)(i / 2) * 2 + (uint64_t)photos->split));
    return (mirt__random_below(&random, 2) + (uint64_t)i) % 2 != 0;
}

static mirt_status mirt__photos_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                     int64_t *index) {
    const mirt__drawn *photos = (const mirt__drawn *)dataset;
    mirt__photo photo;
    (void)work;
    *index = i;
    if (!field) return MIRT_OK;
    memset(&photo, 0, sizeof photo);
    photo.random = mirt__random_stream(photos->seed,
                                       mirt__hash("photos") ^ ((uint64_t)i * 2 + (uint64_t)photos->split));
    photo.pixels = (unsigned char *)field[0];
    photo.height = (int)dataset->spec.field[0].shape.dim[0];
    photo.width = (int)dataset->spec.field[0].shape.dim[1];
    bool dog = mirt__photo_is_dog(photos, i);
    int side = photo.width < photo.height ? photo.width : photo.height;
    photo.radius = (int64_t)side * mirt__photo_between(&photo, 50, 95) + 1;
    photo.centre_x = (int64_t)photo.width * mirt__photo_between(&photo, 90, 166);
    photo.centre_y = (int64_t)photo.height * mirt__photo_between(&photo, 100, 176);
    photo.turn = mirt__photo_between(&photo, -350, 350);
    photo.light = mirt__photo_between(&photo, -50, 50);
    mirt__photo_background(&photo);
    mirt__photo_clutter(&photo);
    if (mirt__photo_between(&photo, 0, 2) == 0) photo.stripes = mirt__photo_between(&photo, 70, 200);
    mirt__photo_head(&photo, dog);
    mirt__photo_grain(&photo);
    *(float *)field[1] = dog ? 1.0f : 0.0f;
    return MIRT_OK;
}

static const mirt__stage mirt__photos_stage = {
    NULL, NULL, NULL, mirt__photos_make, mirt__dataset_fill_made, NULL, NULL};

MIRT_API mirt_dataset *mirt_drawn_photos(int64_t count, int height, int width, uint64_t seed, mirt_split split) {
    MIRT__ENTER;
    static const char *const names[] = {"cats", "dogs"};
    const int most = 4096;
    if (!mirt__split_known("mirt_drawn_photos", split)) return NULL;
    if (count < 1 || height < 8 || width < 8 || height > most || width > most) {
        mirt__fail(MIRT_E_INVALID,
                   "mirt_drawn_photos: %lld pictures of %d x %d pixels: at least 1 is needed, with sides of 8 to %d",
                   (long long)count, height, width, most);
        return NULL;
    }
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__drawn), &mirt__photos_stage);
    if (!dataset) return NULL;
    ((mirt__drawn *)dataset)->seed = seed;
    ((mirt__drawn *)dataset)->split = split;
    dataset->cost = "drawing photographs";
    dataset->identity = mirt__identity_with(mirt__identity_with(mirt__hash("photos"), seed), (uint64_t)split);
    dataset->spec.num_x = dataset->spec.num_y = 1;
    mirt__data_add_field(&dataset->spec, MIRT_UINT8, MIRT_SHAPE(height, width, 3));
    mirt__data_add_field(&dataset->spec, MIRT_FLOAT32, MIRT_SHAPE(1));
    dataset->spec.samples = count;
    mirt_status status = mirt__dataset_check_spec(dataset);
    if (status == MIRT_OK) status = mirt_set_class_names(dataset, names, MIRT__COUNT(names));
    return mirt__dataset_checked(status, &dataset);
}

#undef MIRT__PHOTO_ROUND
#undef MIRT__PHOTO_GRID
