#ifndef MIRT__DATA_H
#define MIRT__DATA_H
/* Data sets: chains of stages, each pulling samples from the one before. */

#include "../base/base.h"

/* One element or one batch: `rows` samples in sample order of this epoch. */
typedef struct mirt__batch {
    const void *x, *y; /* dense [rows, ...] of the spec's dtypes; y NULL without labels; valid until the next call */
    int64_t rows;
    const int64_t *index; /* [rows] each sample's index in the data set */
} mirt__batch;

typedef struct mirt__data_spec {
    mirt_dtype x_dtype, y_dtype;
    mirt_shape x_shape, y_shape; /* of one sample; y_shape.rank may be 0 (a scalar) */
    bool has_y;
    int64_t batch;   /* global batch size, 0 when there is no batch stage */
    int64_t samples; /* in one epoch */
} mirt__data_spec;

MIRT__LIB const mirt__data_spec *mirt__dataset_spec(const mirt_dataset *dataset);
/* Starts an epoch (also in mid-epoch): order keyed by (seed, epoch). May load and allocate the
   first time only. */
MIRT__LIB mirt_status mirt__dataset_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
/* Next batch (or single sample, rows == 1, without a batch stage); rows == 0 at the end of the
   epoch. Never allocates. */
MIRT__LIB mirt_status mirt__dataset_next(mirt_dataset *dataset, mirt__batch *out);
/* A batch stage (and before it, if `shuffle`, a shuffle stage) on a data set without one, which is
   borrowed. */
MIRT__LIB mirt_dataset *mirt__dataset_batch_view(mirt_dataset *dataset, int64_t batch, bool shuffle);

/* The spec of samples in arrays, as mirt_arrays takes them. */
MIRT__LIB mirt_status mirt__arrays_spec(const mirt_array *x, const mirt_array *y, mirt__data_spec *spec);

/* The rest is for stages. */

typedef struct mirt__sample {
    const void *x, *y;
    int64_t index;
} mirt__sample;

/* Memory for one batch; y may be NULL. */
typedef struct mirt__slot {
    void *x, *y;
    int64_t *index;
    int64_t rows;
} mirt__slot;

/* What a kind of stage does; NULL where it does nothing. */
typedef struct mirt__stage {
    mirt_status (*begin)(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
    mirt_status (*next)(mirt_dataset *dataset, mirt__batch *out);
    /* Sample i of this epoch's order, without copying; NULL: a stream. */
    mirt_status (*at)(mirt_dataset *dataset, int64_t i, mirt__sample *out);
    /* `next` into memory of the caller, who has set `lent` before begin; NULL: copy what next gives. */
    mirt_status (*fill)(mirt_dataset *dataset, mirt__slot *out);
    /* Frees what the stage holds, not the stage before. */
    void (*release)(mirt_dataset *dataset);
} mirt__stage;

/* The first member of every stage's own struct. */
struct mirt_dataset {
    const mirt__stage *stage;
    mirt_dataset *source; /* the stage before, or NULL */
    bool borrows;         /* source is not ours to destroy */
    bool contiguous;      /* `at` finds sample i + 1 right behind sample i */
    bool pointing;        /* `next` points into memory that stays: preparing ahead would gain nothing */
    bool lent;            /* the next stage calls fill, never next */
    bool busy;            /* a fit is passing through it */
    int shuffles;         /* shuffle stages so far; gives each its own order */
    mirt__data_spec spec;
    size_t x_bytes, y_bytes; /* of one sample */
    int64_t position;        /* samples given in this epoch, in stages that count */
    int64_t current;         /* index of the sample last given, in stages without batches */
};

/* A stage of `size` bytes on `source` (NULL for a first stage), with its spec. NULL with the error
   set, `source` then being destroyed unless borrowed. */
MIRT__LIB mirt_dataset *mirt__dataset_new(size_t size, const mirt__stage *stage, mirt_dataset *source, bool borrows);
/* Checks the spec of a first stage and sets the sizes that follow from it. */
MIRT__LIB mirt_status mirt__dataset_set_spec(mirt_dataset *dataset, const mirt__data_spec *spec);
/* `next` for stages that have `at`. */
MIRT__LIB mirt_status mirt__dataset_next_at(mirt_dataset *dataset, mirt__batch *out);
/* Destroys `dataset` unless borrowed; returns NULL: the way out of a constructor that failed. */
MIRT__LIB mirt_dataset *mirt__dataset_give_up(mirt_dataset *dataset, bool borrowed);
/* Bytes of `rows` samples, x and labels each rounded up to MIRT__ALIGN; false on overflow. */
MIRT__LIB bool mirt__dataset_block_bytes(const mirt_dataset *dataset, int64_t rows, size_t *x_bytes, size_t *all_bytes);

MIRT__LIB mirt_dataset *mirt__shuffle_over(mirt_dataset *source, int64_t buffer, bool borrows);
MIRT__LIB mirt_dataset *mirt__batch_over(mirt_dataset *source, int64_t batch, bool borrows);

/* Samples in one block of memory: arrays, caches, drawn digits. */
typedef struct mirt__block_dataset {
    mirt_dataset base;
    const unsigned char *x, *y;
    void *owned; /* the block, when it is ours */
    uint64_t seed; /* of drawn digits */
    mirt_split split;
} mirt__block_dataset;
MIRT__LIB mirt_status mirt__block_at(mirt_dataset *dataset, int64_t i, mirt__sample *out);
MIRT__LIB void mirt__block_release(mirt_dataset *dataset);
/* Allocates the block for all samples; *x and *y point into it, *y being NULL without labels. */
MIRT__LIB mirt_status mirt__block_create(mirt__block_dataset *block, unsigned char **x, unsigned char **y);

/* A file read from its start through a small buffer. */
typedef struct mirt__bytes {
    FILE *file;
    uint64_t end;    /* offset in the file of the end of data */
    size_t at, size; /* data[at, size) is still to be read */
    unsigned char data[16384];
} mirt__bytes;
MIRT__LIB mirt_status mirt__bytes_rewind(mirt__bytes *bytes);
/* Refills the buffer once it is used up; size is 0 at the end of the file. */
MIRT__LIB mirt_status mirt__bytes_fill(mirt__bytes *bytes);

/* The unpacked content of a gzip file. */
typedef struct mirt__gunzip mirt__gunzip;
MIRT__LIB mirt__gunzip *mirt__gunzip_create(mirt__bytes *bytes);
/* Starts at the gzip header, to which `bytes` has been rewound. */
MIRT__LIB mirt_status mirt__gunzip_begin(mirt__gunzip *gunzip);
/* Fewer than `size` bytes come only at the end, whose checksum and length have then been checked. */
MIRT__LIB mirt_status mirt__gunzip_read(mirt__gunzip *gunzip, unsigned char *out, size_t size, size_t *got);
MIRT__LIB void mirt__gunzip_destroy(mirt__gunzip *gunzip);

#endif
