#ifndef MIRT__DATA_H
#define MIRT__DATA_H
/* Data sets: chains of stages, each of which pulls samples from the previous one. */

#include "../base/base.h"

#define MIRT__MAX_FIELDS 17 /* inputs, labels, sample weights */

typedef struct mirt__data_field {
    mirt_dtype dtype;
    mirt_shape shape; /* of one sample; rank may be 0 (a scalar) */
    size_t bytes;     /* of one sample */
} mirt__data_field;

typedef struct mirt__data_spec {
    int num_x, num_y;
    bool has_weights;
    int num_fields; /* inputs, labels, weights, in this order */
    mirt__data_field field[MIRT__MAX_FIELDS];
    int64_t batch;   /* global batch size, 0 without a batch stage */
    int64_t samples; /* in one epoch; -1: a stream of unknown or infinite length */
    int accumulate;  /* batches per step, 1 unless a stage sets it */
    bool features;   /* the inputs are features computed by a model's frozen layers */
} mirt__data_spec;

/* One element or one batch: `rows` samples in sample order of this epoch. */
typedef struct mirt__batch {
    const void *field[MIRT__MAX_FIELDS]; /* dense [rows, ...] as in the spec; valid until the next call */
    int64_t rows;
    const int64_t *index; /* [rows] index of each sample in the first stage's data */
    int64_t first;        /* of a part of a batch: the number of its first sample in this pass */
    bool same;            /* as mirt_data's */
    bool met;             /* processes that train together have agreed on it; */
    int64_t begin, end;   /* then these rows of x are there */
} mirt__batch;

/* The rows of a batch that this process makes: of the balanced shares of `of`, those from begin to before end. The rows
   of others are left alone, but for their index, and skipped rows keep their places, with index MIRT__NO_INDEX. */
typedef struct mirt__data_part {
    int64_t of, begin, end; /* of 0: all rows, those that are skipped are closed up */
} mirt__data_part;
MIRT__LIB void mirt__part_rows(const mirt__data_part *part, int64_t rows, int64_t *begin, int64_t *end);
/* Of the next pass. Nothing changes where samples cannot be made one without the others. */
MIRT__TOGETHER_ONLY_LIB void mirt__dataset_set_part(mirt_dataset *dataset, const mirt__data_part *part);
/* Of the pass under way. */
MIRT__TOGETHER_ONLY_LIB const mirt__data_part *mirt__dataset_part(const mirt_dataset *dataset);
/* Makes sample number `i` of the pass under way of a data set that makes parts. */
MIRT__TOGETHER_ONLY_LIB mirt_status mirt__dataset_make_again(mirt_dataset *dataset, int64_t i, void *const *field,
                                                        int64_t *index);

MIRT__LIB const mirt__data_spec *mirt__dataset_spec(const mirt_dataset *dataset);
/* Starts an epoch, also in the middle of one: the order depends on (seed, epoch). Loads and allocates only the first
   time. */
MIRT__LIB mirt_status mirt__dataset_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
/* The next mirt__dataset_begin skips the first `batches` batches without making their samples; false: not possible. */
MIRT__LIB bool mirt__dataset_pass_over(mirt_dataset *dataset, int64_t batches);
/* The next batch (or single sample, rows == 1, without a batch stage); rows == 0 at the end of the epoch. Never
   allocates. */
MIRT__LIB mirt_status mirt__dataset_next(mirt_dataset *dataset, mirt__batch *out);
/* Whether a cache that is not filled yet would keep samples that differ from epoch to epoch. */
MIRT__LIB bool mirt__dataset_keeps(const mirt_dataset *dataset);
/* MIRT_E_STATE while another call is in the middle of a pass. */
MIRT__LIB mirt_status mirt__dataset_idle(const char *caller, const mirt_dataset *dataset);
/* Copies the next samples of the pass, at most `count`, into the arrays of `out` that have memory; *rows: their
   number. */
MIRT__LIB mirt_status mirt__dataset_pull(mirt_dataset *dataset, int64_t count, mirt_data *out, int64_t *rows);
/* `dataset` itself if it is batched. Otherwise a view that borrows it: with a batch stage, before it a shuffle stage if
   `shuffle`, and a prefetch stage if its samples are expensive. NULL with the error set. *view are the stages made, to
   be destroyed after use or failure. */
MIRT__LIB mirt_dataset *mirt__dataset_batched(mirt_dataset *dataset, int64_t batch, bool shuffle, mirt_dataset **view);
/* Rows of the largest batch; 1 without a batch stage. */
MIRT__LIB int64_t mirt__data_most_rows(const mirt__data_spec *spec);

/* Makes the spec of samples in arrays; writes the arrays' data to field[num_fields]. */
MIRT__LIB mirt_status mirt__arrays_spec(const mirt_data *data, mirt__data_spec *spec, const void **field);
/* Writes "x", "y[1]" or "weights" to `out`, and returns it. */
MIRT__LIB const char *mirt__field_name(const mirt__data_spec *spec, int field, char out[16]);

/* The following declarations are for stages. */

typedef struct mirt__sample {
    const void *field[MIRT__MAX_FIELDS];
    int64_t index;
} mirt__sample;

/* Memory for samples. */
typedef struct mirt__slot {
    void *block; /* memory that the other pointers refer to */
    void *field[MIRT__MAX_FIELDS];
    int64_t *index;
    int64_t rows; /* filled */
    int64_t first; /* as a batch's */
} mirt__slot;

/* The buffers that one thread needs to make samples: one per stage, such as for a sample before it is mapped. */
typedef struct mirt__work mirt__work;
typedef struct mirt__worker_pool mirt__worker_pool; /* workers.h */
MIRT__LIB mirt__work *mirt__work_create(void);
MIRT__LIB void mirt__work_destroy(mirt__work *work);
/* This stage's buffer of at least `bytes`, aligned to MIRT__ALIGN; it keeps its address and contents until a larger one
   is requested. NULL with the error set. */
MIRT__LIB void *mirt__work_room(mirt__work *work, const mirt_dataset *stage, size_t bytes);

/* Returned by `make`, and by `at` if the data set skips samples: leave this sample out. No error is set. */
#define MIRT__SKIPPED MIRT__STATUS_COUNT
#define MIRT__NO_INDEX INT64_MIN /* of a skipped row that keeps its place */

/* The functions of a kind of stage; NULL if it does not have one, or the usual one. */
typedef struct mirt__stage {
    /* Begins the pass of dataset->seed and dataset->epoch; NULL: mirt__dataset_begin_source. */
    mirt_status (*begin)(mirt_dataset *dataset);
    mirt_status (*next)(mirt_dataset *dataset, mirt__batch *out); /* NULL: as `at` or `fill` give samples */
    /* Returns sample i of this epoch's order without copying; NULL: a stream. */
    mirt_status (*at)(mirt_dataset *dataset, int64_t i, mirt__sample *out);
    /* Computes sample i of this epoch's order into field[num_fields] and *index; one of `at` and `make` gives random
       access. field NULL: only the index. Several threads may call it at once, each with its own work, in any order; it
       depends only on state set in begin. */
    mirt_status (*make)(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field, int64_t *index);
    /* `next` into memory of the caller, which has set `lent` before begin; NULL: copy the result of next. On
       MIRT__SKIPPED call it again. */
    mirt_status (*fill)(mirt_dataset *dataset, mirt__slot *out);
    /* Frees the stage's memory, but not its slot nor the previous stage. */
    void (*release)(mirt_dataset *dataset);
    /* The number of samples in the first `batches` batches, which exist and are not all; NULL: the same as in the
       previous stage. */
    int64_t (*rows)(const mirt_dataset *dataset, int64_t batches);
} mirt__stage;

/* Samples first .. first + count - 1. */
typedef struct mirt__sample_range {
    int64_t first, count;
} mirt__sample_range;

/* Makes a sample of one of the previous stage. */
typedef mirt_status (*mirt__sample_fn)(mirt_dataset *dataset, const mirt__sample *in, mirt__work *work,
                                       void *const *out);

/* The sample that some thread is making, and the stage that makes it; name NULL: none. Both atomic. */
typedef struct mirt__at {
    const char *name;
    int64_t index;
} mirt__at;

/* The first member of every stage's struct. */
struct mirt_dataset {
    const mirt__stage *stage;
    int64_t process;      /* process that created it */
    mirt_dataset *source; /* the previous stage, or NULL */
    uint64_t seed;        /* of the pass under way, */
    int64_t epoch;        /* and its number */
    void *own;            /* memory of this stage, from mirt__calloc, freed with it */
    mirt__at at;          /* of the thread that runs the stages without its own work */
    uint64_t made;        /* atomic: counts samples; may miss some */
    bool lost;            /* abandoned threads may still use it, so nothing may be freed */
    bool borrows;         /* the source belongs to the caller */
    bool contiguous;      /* sample i + 1 of `at` directly follows sample i in memory */
    bool pointing;        /* `next` points into permanent memory, so prefetching gains nothing */
    bool lent;            /* the next stage calls fill instead of next */
    bool busy;            /* a call such as mirt_fit is reading it: nested calls are refused */
    bool begun;           /* mirt_dataset_next is in the middle of an epoch */
    bool foreign;         /* user code makes its samples */
    char varies;          /* the sample of an index may differ between epochs; 2: also within one */
    mirt_dataset *samples; /* the stage whose samples, in its order, form the batches; NULL: none, or no longer */
    bool skips;           /* samples may be MIRT__SKIPPED; spec.samples includes them */
    int shuffles;         /* number of stages so far that draw random numbers by (seed, epoch); each gets its own
                             stream */
    mirt__data_spec spec;
    int64_t batches;  /* batches in one epoch; 0 before a batch stage, -1 as for samples */
    int64_t position; /* samples returned in this epoch, in stages that count them */
    int64_t current;  /* index of the last returned sample, in stages without batches */
    mirt__slot slot;  /* samples the stage holds, freed with it */
    mirt__work *work; /* for samples made one at a time */
    mirt__worker_pool *worker_pool; /* for samples made in parallel */
    int workers;      /* number of threads that make samples; 0: chosen by the stall */
    bool fed;         /* the consumer has not waited recently */
    int joins; /* batches of the previous stage per batch, if a pass can begin after some of them; -1: this is the batch
                  stage */
    mirt__data_part part, next_part; /* of a batch stage, in this pass and the next */
    int64_t part_batches; /* that make a step, whose rows have that part */
    int64_t pass_over; /* batches to skip when the next pass begins */
    const char *cost; /* name of the expensive work of this stage, for messages; NULL: cheap */
    bool kept;        /* samples of the previous stages are made once */
    bool ahead;       /* samples are made while others are in use */
    bool keeps_pass;  /* samples wait here, and `pass` is that of the previous stages for the sample returned last */
    uint64_t pass;
    const int32_t *shard; /* of each sample in the first stage's data, the file to be read from its begin to its end */
    int num_shards;       /* that it is in; NULL: none */
    uint64_t identity; /* identifies the origin and processing of samples, for cache files; 0 for arrays */
    /* For samples that come in passes with random access by `make`: the next ones, at most `most`, valid until the next
       call; none at the end, and at the end of a pass unless `turn`. NULL: use the position. */
    mirt_status (*run)(mirt_dataset *dataset, int64_t most, bool turn, mirt__sample_range *run);
    mirt__sample_fn apply; /* of stages of mirt__dataset_add_each */
    char **names;     /* names of classes; NULL: those of the previous stage */
    int num_names;
    bool names_in_files; /* they are UTF-8, which files require */
};

/* Creates a first stage of `size` bytes. NULL with the error set. */
MIRT__LIB mirt_dataset *mirt__dataset_new(size_t size, const mirt__stage *stage);
/* Adds a stage of `size` bytes to the chain that ends with *chain; it begins with the spec of the stage before. Whoever
   has a chain destroys it when a stage cannot be added or set up: those that do this never destroy. */
MIRT__LIB mirt_status mirt__dataset_add(mirt_dataset **chain, size_t size, const mirt__stage *stage);
/* Adds a stage that makes each sample of one of the stage before; `caller` adds it. What it makes of a sample may
   differ between epochs and, after mirt_repeat, between passes. */
MIRT__LIB mirt_status mirt__dataset_add_each(const char *caller, mirt_dataset **chain, size_t size,
                                             mirt__sample_fn apply);
/* What functions return that users make a stage with: the chain, or NULL after an error, which destroys it. */
MIRT__LIB mirt_dataset *mirt__dataset_checked(mirt_status status, mirt_dataset *const *chain);
/* Enclose code that may never return: user code and file access. `work` may be NULL. */
MIRT__LIB void mirt__at_begin(mirt_dataset *dataset, mirt__work *work, const char *name, int64_t index);
MIRT__LIB void mirt__at_end(mirt_dataset *dataset, mirt__work *work);
/* Callable by any thread: the progress of all stages, and the smallest sample that a thread is making, with its stage's
   name ("": none). */
MIRT__TRAINING_LIB uint64_t mirt__dataset_made(const mirt_dataset *dataset);
MIRT__TRAINING_LIB int64_t mirt__dataset_at(const mirt_dataset *dataset, char *name, size_t size);
/* Destroys the previous stages. */
MIRT__LIB void mirt__dataset_leave(mirt_dataset *dataset);
/* Marks all stages as lost. */
MIRT__LIB void mirt__dataset_lose(mirt_dataset *dataset);
/* Checks the fields of a stage's spec and the number of samples, and sets the bytes of fields. */
MIRT__LIB mirt_status mirt__dataset_check_spec(mirt_dataset *dataset);
/* `own` and `cost` become a copy of `name`. */
MIRT__LIB mirt_status mirt__dataset_name_cost(mirt_dataset *dataset, const char *name);
/* Appends a field to a spec under construction. */
MIRT__LIB void mirt__data_add_field(mirt__data_spec *spec, mirt_dtype dtype, mirt_shape shape);
/* `fill` for stages that have `make`. */
MIRT__LIB mirt_status mirt__dataset_fill_made(mirt_dataset *dataset, mirt__slot *out);
/* Whether samples can be reached at random. */
MIRT__LIB bool mirt__reachable(const mirt_dataset *dataset);
/* `make` that forwards to the previous stage; field NULL: only the index. */
MIRT__LIB mirt_status mirt__dataset_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                         int64_t *index);

/* Sample i of a data set with random access: in place, or made in the work's buffer. */
MIRT__LIB mirt_status mirt__dataset_reach(mirt_dataset *dataset, int64_t i, mirt__work *work, mirt__sample *out);
/* `next` for stages that have `fill`. */
MIRT__LIB mirt_status mirt__dataset_next_filled(mirt_dataset *dataset, mirt__batch *out);
/* `begin` that begins the previous stage, and makes the slot, and the work if needed, of a stage that has `fill`. */
MIRT__LIB mirt_status mirt__dataset_begin_source(mirt_dataset *dataset);
MIRT__LIB mirt_status mirt__dataset_begin_slot(mirt_dataset *dataset); /* without the previous stage */
/* The stage that names the classes, or NULL. */
MIRT__LIB mirt_dataset *mirt__names_of(mirt_dataset *dataset);
/* Combines a data set's identity with another number. */
MIRT__LIB uint64_t mirt__identity_with(uint64_t identity, uint64_t more);

/* The number of samples in the first `batches` batches, which exist. */
MIRT__LIB int64_t mirt__dataset_rows(const mirt_dataset *dataset, int64_t batches);
/* Copies names (of classes) to *own, one block that mirt__free frees, and their number to *number; frees those that
   were there. */
MIRT__LIB mirt_status mirt__names_set(const char *caller, const char *const *names, int count, char ***own,
                                      int *number);
/* The first name that is not UTF-8, which files require, or -1. */
MIRT__LIB int mirt__bad_name(const char *const *names, int count);
/* Names the classes "0" to "9". */
MIRT__LIB mirt_status mirt__dataset_name_digits(mirt_dataset *dataset);

/* Allocates memory for `rows` samples; without `samples` only for their indices. */
MIRT__LIB mirt_status mirt__slot_create(mirt__slot *slot, const mirt__data_spec *spec, int64_t rows, bool samples);
/* The cost of the samples of a batched data set, for messages. */
typedef struct mirt__data_cost {
    char what[64];
    int workers;    /* threads that make them */
    double seconds; /* seconds that one of them takes per sample; 0: unknown */
    bool parallel;  /* more threads are possible */
    bool ahead;     /* they work while other samples are in use */
} mirt__data_cost;
MIRT__LIB void mirt__dataset_cost(const mirt_dataset *dataset, mirt__data_cost *out);
/* Copies samples to sample `row` of a slot. */
MIRT__LIB void mirt__slot_put(mirt__slot *slot, const mirt__data_spec *spec, int64_t row, const void *const *from,
                              const int64_t *index, int64_t rows);
MIRT__LIB void mirt__slot_give(const mirt__slot *slot, const mirt__data_spec *spec, int64_t row, int64_t rows,
                               mirt__batch *out);
/* Whether `count` lies between `least` and INT32_MAX; fails in the name of `caller`. */
MIRT__LIB mirt_status mirt__stage_count(const char *caller, int64_t count, int least);
/* Whether a shape may have so many dimensions; likewise. */
MIRT__LIB mirt_status mirt__shape_check(const char *caller, const mirt_shape *shape);
/* Whether mirt_repeat may return a sample more than once in an epoch; `pass` becomes a number for the pass from which
   the sample returned last comes. */
MIRT__LIB bool mirt__dataset_repeats(const mirt_dataset *dataset, uint64_t *pass);

/* The next batch of `source`, with slot->rows 0 at the end. */
MIRT__LIB mirt_status mirt__slot_pull(mirt__slot *slot, mirt_dataset *source);

/* Add a stage to a chain, as mirt__dataset_add does. */
MIRT__LIB mirt_status mirt__shuffle_over(mirt_dataset **chain, int64_t buffer);
MIRT__LIB mirt_status mirt__batch_over(mirt_dataset **chain, int64_t batch, bool drop);
MIRT__LIB mirt_status mirt__prefetch_over(mirt_dataset **chain, int depth);
#ifndef MIRRORTRAIN_NO_THREADS
/* If `dataset` is a batch stage with workers, they start the next batch in the slot of a later `fill`, in the order of
   calls. */
MIRT__LIB bool mirt__batch_ask(mirt_dataset *dataset, mirt__slot *slot);
#endif

/* `at` of stages that have all samples in their slot: arrays, which have no indices there, caches, drawn digits. */
MIRT__LIB mirt_status mirt__slot_sample(mirt_dataset *dataset, int64_t i, mirt__sample *out);

/* A first stage that draws images. */
typedef struct mirt__drawn {
    mirt_dataset base;
    uint64_t seed; /* of the images, unlike base.seed */
    mirt_split split;
} mirt__drawn;
/* Whether a split is one of the two; fails in the name of `caller`. */
MIRT__TRAINING_LIB bool mirt__split_known(const char *caller, mirt_split split);
/* low to high, both included. */
MIRT__TRAINING_LIB int mirt__random_between(mirt__random *random, int low, int high);
MIRT__TRAINING_LIB unsigned char mirt__byte_of(int value);

/* A file read from its start through a small buffer. */
typedef struct mirt__bytes {
    int fd;
    uint64_t file_size;
    uint64_t end;    /* offset in the file of the end of data */
    size_t at, size; /* data[at, size) has not been read yet */
    unsigned char data[16384];
} mirt__bytes;
MIRT__LIB void mirt__bytes_rewind(mirt__bytes *bytes);
/* Refills the buffer once it is used up; size is 0 at the end of the file. */
MIRT__LIB mirt_status mirt__bytes_fill(mirt__bytes *bytes);

/* The unpacked content of a gzip file. */
typedef struct mirt__gunzip mirt__gunzip;
MIRT__LIB mirt__gunzip *mirt__gunzip_create(mirt__bytes *bytes);
/* Starts at the gzip header, to which `bytes` has been rewound. */
MIRT__LIB mirt_status mirt__gunzip_begin(mirt__gunzip *gunzip);
/* Returns fewer than `size` bytes only at the end, after its checksum and length have been verified. */
MIRT__LIB mirt_status mirt__gunzip_read(mirt__gunzip *gunzip, unsigned char *out, size_t size, size_t *got);
MIRT__LIB void mirt__gunzip_destroy(mirt__gunzip *gunzip);

#endif
