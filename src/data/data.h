#ifndef MIRT__DATA_H
#define MIRT__DATA_H
/* Data sets: chains of stages, each pulling samples from the one before. */

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
    int64_t batch;   /* global batch size, 0 when there is no batch stage */
    int64_t samples; /* in one epoch; -1: a stream of unknown length or without an end */
    int accumulate;  /* batches that make one step, 1 unless a stage says so */
    bool features;   /* the inputs are what a model's frozen layers made of them */
} mirt__data_spec;

/* One element or one batch: `rows` samples in sample order of this epoch. */
typedef struct mirt__batch {
    const void *field[MIRT__MAX_FIELDS]; /* dense [rows, ...] as the spec says; valid until the next call */
    int64_t rows;
    const int64_t *index; /* [rows] each sample's index in the first stage's data */
} mirt__batch;

MIRT__LIB const mirt__data_spec *mirt__dataset_spec(const mirt_dataset *dataset);
/* Starts an epoch (also in mid-epoch): order keyed by (seed, epoch). May load and allocate the
   first time only. */
MIRT__LIB mirt_status mirt__dataset_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
/* The next mirt__dataset_begin begins after the first `batches` batches without making their samples; false: it
   cannot. */
MIRT__LIB bool mirt__dataset_pass_over(mirt_dataset *dataset, int64_t batches);
/* Next batch (or single sample, rows == 1, without a batch stage); rows == 0 at the end of the
   epoch. Never allocates. */
MIRT__LIB mirt_status mirt__dataset_next(mirt_dataset *dataset, mirt__batch *out);
/* Whether a stage that is not filled yet keeps what its first pass makes, which differs from epoch to epoch. */
MIRT__LIB bool mirt__dataset_keeps(const mirt_dataset *dataset);
/* MIRT_E_STATE while another call is in the middle of a pass. */
MIRT__LIB mirt_status mirt__dataset_idle(const char *caller, const mirt_dataset *dataset);
/* Copies the next samples of the pass, up to `count` or to its end, into the arrays of `out` that have memory; *rows:
   their number. */
MIRT__LIB mirt_status mirt__dataset_pull(mirt_dataset *dataset, int64_t count, mirt_data *out, int64_t *rows);
/* A batch stage (and before it, if `shuffle`, a shuffle stage) on a data set without one, which is
   borrowed; and a prefetch stage, if its samples cost something. */
MIRT__LIB mirt_dataset *mirt__dataset_batch_view(mirt_dataset *dataset, int64_t batch, bool shuffle);
/* Rows of the largest batch; 1 without a batch stage. */
MIRT__LIB int64_t mirt__data_most_rows(const mirt__data_spec *spec);

/* The spec of samples in arrays; the arrays' data into field[num_fields]. */
MIRT__LIB mirt_status mirt__arrays_spec(const mirt_data *data, mirt__data_spec *spec, const void **field);
/* "x", "y[1]", "weights" into `out`, which is also returned. */
MIRT__LIB const char *mirt__field_name(const mirt__data_spec *spec, int field, char out[16]);

/* The rest is for stages. */

typedef struct mirt__sample {
    const void *field[MIRT__MAX_FIELDS];
    int64_t index;
} mirt__sample;

/* Memory for samples. */
typedef struct mirt__slot {
    void *block; /* what the others point into */
    void *field[MIRT__MAX_FIELDS];
    int64_t *index;
    int64_t rows; /* filled */
} mirt__slot;

/* What one thread needs to make samples: room for each stage, such as for a sample before it is mapped. */
typedef struct mirt__work mirt__work;
typedef struct mirt__worker_pool mirt__worker_pool; /* workers.h */
MIRT__LIB mirt__work *mirt__work_create(void);
MIRT__LIB void mirt__work_destroy(mirt__work *work);
/* The data set's own, made when first asked for; false with the error set. */
MIRT__LIB bool mirt__dataset_work(mirt_dataset *dataset);
MIRT__LIB bool mirt__dataset_worker_pool(mirt_dataset *dataset, mirt_dataset *source);
/* This stage's room, at least `bytes`, aligned to MIRT__ALIGN; it keeps its place and what is in it until more is asked
   for. NULL with the error set. */
MIRT__LIB void *mirt__work_room(mirt__work *work, const mirt_dataset *stage, size_t bytes);

/* Of `make`, and of `at` where the data set says that it skips: this sample is to be left out. No error is set. */
#define MIRT__SKIPPED MIRT__STATUS_COUNT

/* What a kind of stage does; NULL where it does nothing. */
typedef struct mirt__stage {
    mirt_status (*begin)(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
    mirt_status (*next)(mirt_dataset *dataset, mirt__batch *out);
    /* Sample i of this epoch's order, without copying; NULL: a stream. */
    mirt_status (*at)(mirt_dataset *dataset, int64_t i, mirt__sample *out);
    /* Sample i of this epoch's order into field[num_fields] and *index, at some expense; one of `at` and `make` makes a
       stage reachable. field NULL: the index alone. Called by several threads at once, each with its own work, in any
       order; what it depends on is set in begin. */
    mirt_status (*make)(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field, int64_t *index);
    /* `next` into memory of the caller, who has set `lent` before begin; NULL: copy what next gives. May be
       MIRT__SKIPPED: again. */
    mirt_status (*fill)(mirt_dataset *dataset, mirt__slot *out);
    /* Frees what the stage holds, not its slot nor the stage before. */
    void (*release)(mirt_dataset *dataset);
    /* Samples in the first `batches` batches, of which there are as many; NULL: as many as in those of the stage
       before. */
    int64_t (*rows)(const mirt_dataset *dataset, int64_t batches);
} mirt__stage;

/* A sample that some thread is at, and the stage that makes it; name NULL: none. Both atomic. */
typedef struct mirt__at {
    const char *name;
    int64_t index;
} mirt__at;

/* The first member of every stage's own struct. */
struct mirt_dataset {
    const mirt__stage *stage;
    int64_t process;      /* that created it */
    mirt_dataset *source; /* the stage before, or NULL */
    mirt__at at;          /* of the thread that goes through the stages, where it has no work of its own */
    uint64_t made;        /* atomic: grows with samples, or now and then loses one */
    bool lost;            /* abandoned threads may still use it: nothing of it may be freed */
    bool borrows;         /* source is not ours to destroy */
    bool contiguous;      /* `at` finds sample i + 1 right after sample i */
    bool pointing;        /* `next` points into memory that stays: preparing ahead would gain nothing */
    bool lent;            /* the next stage calls fill, never next */
    bool busy;            /* a call is reading it, such as mirt_fit: calls from within are refused */
    bool begun;           /* mirt_dataset_next is in the middle of an epoch */
    bool foreign;         /* code of the user makes its samples */
    char varies;          /* the sample of an index may differ from epoch to epoch; 2: also within one */
    mirt_dataset *samples; /* whose samples, in its order, the batches are made of; NULL: none, or other ones by now */
    bool skips;           /* samples may turn out MIRT__SKIPPED, which spec.samples counts all the same */
    int shuffles;         /* stages so far that draw by (seed, epoch); gives each its own stream */
    mirt__data_spec spec;
    int64_t batches;  /* in one epoch; 0 before a batch stage, -1 like samples */
    int64_t position; /* samples given in this epoch, in stages that count */
    int64_t current;  /* index of the sample last given, in stages without batches */
    mirt__slot slot;  /* samples the stage holds, freed with it */
    mirt__work *work; /* for samples made one by one */
    mirt__worker_pool *worker_pool; /* for samples made in parallel */
    int workers;      /* threads that make samples; 0: as the stall says */
    bool fed;         /* the consumer did not wait lately */
    int joins; /* batches of the stage before that make one, where a pass can begin after some of them; -1: the batch
                  stage that does it */
    int64_t pass_over; /* batches that it leaves out when it begins the next time */
    const char *cost; /* what making samples costs here, for messages; NULL: nothing to speak of */
    bool kept;        /* those of the stages before are made once */
    bool ahead;       /* samples are made while others are used */
    uint64_t identity; /* of what samples are made of and how, for files of them; that of arrays is 0 */
    /* Where samples come in passes, each of which can be reached by `make`: the next ones are `make`'s first .. first +
       count - 1, at most `most`, until the next call; count is 0 at the end, and at that of a pass unless `turn`. NULL:
       position counts. */
    mirt_status (*run)(mirt_dataset *dataset, int64_t most, bool turn, int64_t *first, int64_t *count);
    char **names;     /* of classes; NULL: those of the stage before */
    int num_names;
};

/* A stage of `size` bytes on `source` (NULL for a first stage), with its spec. NULL with the error
   set, `source` then being destroyed unless borrowed. */
MIRT__LIB mirt_dataset *mirt__dataset_new(size_t size, const mirt__stage *stage, mirt_dataset *source, bool borrows);
/* Around what may take for ever: code of users, files. `work` may be NULL. */
MIRT__LIB void mirt__at_begin(mirt_dataset *dataset, mirt__work *work, const char *name, int64_t index);
MIRT__LIB void mirt__at_end(mirt_dataset *dataset, mirt__work *work);
/* For any thread: how far all stages are; and the sample that some thread is at, the least of them, with its stage's
   name ("": none). */
MIRT__LIB uint64_t mirt__dataset_made(const mirt_dataset *dataset);
MIRT__LIB int64_t mirt__dataset_at(const mirt_dataset *dataset, char *name, size_t size);
/* Destroys the stages before. */
MIRT__LIB void mirt__dataset_leave(mirt_dataset *dataset);
/* Marks all stages as lost. */
MIRT__LIB void mirt__dataset_lose(mirt_dataset *dataset);
/* Checks the spec of a first stage (the fields' bytes and num_fields excepted, which are set). */
MIRT__LIB mirt_status mirt__dataset_set_spec(mirt_dataset *dataset, const mirt__data_spec *spec);
/* The next field of a spec under way. */
MIRT__LIB void mirt__data_add_field(mirt__data_spec *spec, mirt_dtype dtype, mirt_shape shape);
/* `next` for stages that have `at`. */
MIRT__LIB mirt_status mirt__dataset_next_at(mirt_dataset *dataset, mirt__batch *out);
/* `fill` for stages that have `make`. */
MIRT__LIB mirt_status mirt__dataset_fill_made(mirt_dataset *dataset, mirt__slot *out);
/* Whether samples can be reached at random. */
MIRT__LIB bool mirt__reachable(const mirt_dataset *dataset);
/* `make` and `run` that hand on to the stage before; field NULL: the index alone. */
MIRT__LIB mirt_status mirt__dataset_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                         int64_t *index);
MIRT__LIB mirt_status mirt__dataset_run(mirt_dataset *dataset, int64_t most, bool turn, int64_t *first, int64_t *count);
/* Sample i of a reachable data set: where it lies, or made in the work's room. */
MIRT__LIB mirt_status mirt__dataset_reach(mirt_dataset *dataset, int64_t i, mirt__work *work, mirt__sample *out);
/* `next` for stages that have `fill`, and `begin`, which makes the slot and begins the stage before. */
MIRT__LIB mirt_status mirt__dataset_next_filled(mirt_dataset *dataset, mirt__batch *out);
MIRT__LIB mirt_status mirt__dataset_begin_filled(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
MIRT__LIB mirt_status mirt__dataset_begin_slot(mirt_dataset *dataset); /* the first half of that */
/* The stage that names the classes, or NULL. */
MIRT__LIB mirt_dataset *mirt__names_of(mirt_dataset *dataset);
/* What is known of a data set's identity, and one thing more. */
MIRT__LIB uint64_t mirt__identity_with(uint64_t identity, uint64_t more);
/* Destroys `dataset` unless borrowed; returns NULL: the way out of a constructor that failed. */
MIRT__LIB mirt_dataset *mirt__dataset_give_up(mirt_dataset *dataset, bool borrowed);

/* Samples in the first `batches` batches of a data set that has as many. */
MIRT__LIB int64_t mirt__dataset_rows(const mirt_dataset *dataset, int64_t batches);
/* A copy of names (of classes) in one block. NULL with the error set. */
MIRT__LIB char **mirt__names_copy(const char *caller, const char *const *names, int count);
/* Calls the classes "0" to "9"; hands NULL through. */
MIRT__LIB mirt_dataset *mirt__dataset_name_digits(mirt_dataset *dataset);

/* Room for `rows` samples; without `samples` only for their indices. */
MIRT__LIB mirt_status mirt__slot_create(mirt__slot *slot, const mirt__data_spec *spec, int64_t rows, bool samples);
/* What the samples of a batched data set cost, for messages. */
typedef struct mirt__data_cost {
    char what[64];
    int workers;    /* threads that make them */
    double seconds; /* one of them takes for a sample; 0: not known */
    bool parallel;  /* there could be more */
    bool ahead;     /* they work while others are used */
} mirt__data_cost;
MIRT__LIB void mirt__dataset_cost(const mirt_dataset *dataset, mirt__data_cost *out);
/* Copies samples to the place of sample `row`. */
MIRT__LIB void mirt__slot_put(mirt__slot *slot, const mirt__data_spec *spec, int64_t row, const void *const *from,
                              const int64_t *index, int64_t rows);
MIRT__LIB void mirt__slot_give(const mirt__slot *slot, const mirt__data_spec *spec, int64_t row, int64_t rows,
                               mirt__batch *out);
/* Whether a sample may come more than once in an epoch, by mirt_repeat; `pass` tells its passes apart. */
MIRT__LIB bool mirt__dataset_repeats(const mirt_dataset *dataset, uint64_t *pass);
/* Says that what this stage makes of a sample may differ: from epoch to epoch, after mirt_repeat also from pass to
   pass. */
MIRT__LIB void mirt__dataset_vary(mirt_dataset *dataset);
/* The next batch of `source`, with slot->rows 0 at the end. */
MIRT__LIB mirt_status mirt__slot_pull(mirt__slot *slot, mirt_dataset *source);

MIRT__LIB mirt_dataset *mirt__shuffle_over(mirt_dataset *source, int64_t buffer, bool borrows);
MIRT__LIB mirt_dataset *mirt__batch_over(mirt_dataset *source, int64_t batch, bool borrows, bool drop);
#ifndef MIRRORTRAIN_NO_THREADS
/* If `dataset` is a batch stage with workers: they begin on the next batch, for the slot of a later `fill`, in the
   order of calls. */
MIRT__LIB bool mirt__batch_ask(mirt_dataset *dataset, const mirt__slot *slot);
#endif

/* Samples in memory: arrays, caches, drawn digits. */
typedef struct mirt__block_dataset {
    mirt_dataset base;
    const void *field[MIRT__MAX_FIELDS];
    uint64_t seed; /* of drawn digits */
    mirt_split split;
} mirt__block_dataset;
MIRT__LIB mirt_status mirt__block_at(mirt_dataset *dataset, int64_t i, mirt__sample *out);
/* The samples are now those in the slot. */
MIRT__LIB void mirt__block_from_slot(mirt__block_dataset *block);

/* A file read from its start through a small buffer. */
typedef struct mirt__bytes {
    int fd;
    uint64_t file_size;
    uint64_t end;    /* offset in the file of the end of data */
    size_t at, size; /* data[at, size) is still to be read */
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
/* Fewer than `size` bytes come only at the end, whose checksum and length have then been checked. */
MIRT__LIB mirt_status mirt__gunzip_read(mirt__gunzip *gunzip, unsigned char *out, size_t size, size_t *got);
MIRT__LIB void mirt__gunzip_destroy(mirt__gunzip *gunzip);

#endif
