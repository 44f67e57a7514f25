#ifndef MIRT__DATA_API_H
#define MIRT__DATA_API_H
/* Data sets and their stages. */

#include "strategy_api.h"

MIRT__BEGIN_C

/* >>data ---------------------------------------------------------------------------------- */
/* Threads: a dataset, with the stages it owns, is for one thread at a time; during fit, evaluate and predict it
   is the model's. Different datasets may be used, and any created, by different threads at once. */

/* A stream of samples (inputs, labels, weight) built from stages. A stage takes ownership of the stage it is given and
   hands NULL through, so a chain is checked once, at its end: a stage that fails destroys the stages it was given and
   returns NULL. Destroying the last stage destroys them all. Errors of all stages: MIRT_E_INVALID, MIRT_E_SHAPE,
   MIRT_E_NOMEM. */
typedef struct mirt_dataset mirt_dataset;

typedef enum mirt_split { MIRT_TRAIN = 0, MIRT_TEST } mirt_split;
#define MIRT_AUTOTUNE (-1)

/* Samples in arrays whose first dimensions agree: inputs, labels (there may be none), one float32
   weight a sample ([n], or no data: none). Each list ends at its first array without data. */
typedef struct mirt_data {
    mirt_array x[MIRT_MAX_INPUTS];
    mirt_array y[MIRT_MAX_OUTPUTS];
    mirt_array weights;
    bool same; /* for one batch: these are the arrays of the call before, and nothing in them has changed: devices with
                  memory of their own keep their copy */
} mirt_data;

/* Samples borrowed from arrays until the dataset is destroyed; y.data may be NULL (no labels).
   mirt_arrays is the short form for one input and at most one array of labels. */
MIRT_API mirt_dataset *mirt_arrays(mirt_array x, mirt_array y);
MIRT_API mirt_dataset *mirt_arrays_of(const mirt_data *data);
#ifndef MIRRORTRAIN_NO_TRAIN
/* IDX files, plain or gzipped (recognized by content), images as [n, h, w, 1] uint8 and labels as
   [n] uint8. Errors: MIRT_E_NOT_FOUND, MIRT_E_FORMAT with the offset, MIRT_E_IO. */
MIRT_API mirt_dataset *mirt_idx(const char *images_path, const char *labels_path);
/* MNIST in its usual four files, plain or .gz, in a directory. Keras: datasets.mnist.load_data. */
MIRT_API mirt_dataset *mirt_mnist(const char *directory, mirt_split split);
/* Digits this library draws itself: strokes, a random affine distortion, noise; [28, 28, 1] uint8.
   The same (count, seed, split) gives the same pixels everywhere; splits do not overlap. */
MIRT_API mirt_dataset *mirt_drawn_digits(int64_t count, uint64_t seed, mirt_split split);
#endif
/* Writes sample `index` of this pass: out[i] is the memory of its inputs, labels and weight (1 so far), in this order,
   dense. MIRT_END_OF_DATA: there is none, the pass is over; any other code but 0 is an error of the run
   (MIRT_E_CALLBACK), which names it. */
typedef int (*mirt_generator_fn)(void *const *out, int64_t index, void *user);
#define MIRT_END_OF_DATA (-1)
typedef struct mirt_generator_desc {
    mirt_generator_fn fn; /* called with 0, 1, 2, ... */
    int (*begin)(int64_t epoch, void *user); /* before a pass; may be NULL; not 0 is an error */
    void *user;
    mirt_array x[MIRT_MAX_INPUTS];  /* [num_x] dtype and shape of one sample, rank 0 for a number; data is not read */
    mirt_array y[MIRT_MAX_OUTPUTS]; /* [num_y] */
    int num_x, num_y;
    bool weights;         /* samples have a float32 weight */
    int64_t samples;      /* in a pass; 0: a stream, whose length nobody knows */
    bool any_order;       /* fn is thread safe and may be called with any index below `samples` at any time: shuffles
                             are full, and worker threads call it */
    const char *name;     /* for errors; default "the generator" */
} mirt_generator_desc;
/* Samples from a custom source. Copies desc. tf.data: Dataset.from_generator. */
MIRT_API mirt_dataset *mirt_dataset_from_generator(const mirt_generator_desc *desc);
#ifndef MIRRORTRAIN_NO_TRAIN
/* Keeps every sample in memory, all made when the first epoch begins. Comes before mirt_batch.
   tf.data: cache. */
MIRT_API mirt_dataset *mirt_cache(mirt_dataset *dataset);
#endif
typedef struct mirt_cache_desc {
    uint64_t budget_bytes; /* samples that take more are refused (MIRT_E_NOMEM); 0: no limit */
    /* keeps them in this file, from which every epoch reads them, and the next run too if they are as many, of the same
       shapes, from the same stages and files, which are known by their names; otherwise, or if its head is damaged or
       its length wrong, it is written anew. Maps and generators are known by their names too, arrays by nothing. */
    const char *file;
} mirt_cache_desc;
#ifndef MIRRORTRAIN_NO_TRAIN
/* desc NULL: mirt_cache. Samples are checked when they are read: MIRT_E_FORMAT, MIRT_E_IO. */
MIRT_API mirt_dataset *mirt_cache_with(mirt_dataset *dataset, const mirt_cache_desc *desc);
/* A new order every epoch, keyed by (strategy seed, epoch). Where the stage before has random
   access (arrays, images, cache, a part or a map of these) it is a full permutation whatever `buffer`; otherwise a
   buffer of that many samples. Samples of mirt_tar_dataset have a new order of shards, each read from its begin to its
   end, and then go through the buffer, which holds only their places; a cache before it makes the permutation full.
   Comes before mirt_batch. tf.data: shuffle. */
MIRT_API mirt_dataset *mirt_shuffle(mirt_dataset *dataset, int64_t buffer);
#endif
/* The first `count` samples, or batches after mirt_batch; all but those. Random access stays. Nothing
   left is an error. tf.data: take, skip. */
MIRT_API mirt_dataset *mirt_take(mirt_dataset *dataset, int64_t count);
MIRT_API mirt_dataset *mirt_skip(mirt_dataset *dataset, int64_t count);
#ifndef MIRRORTRAIN_NO_TRAIN
/* Passes `count` times, or for ever (0 or less), as one epoch. To the stages before each pass is an
   epoch of its own: their shuffles differ. Before mirt_batch, batches cross the ends of passes.
   tf.data: repeat. */
MIRT_API mirt_dataset *mirt_repeat(mirt_dataset *dataset, int64_t count);
#endif

/* Makes one sample of another: in[i] and out[i] are one sample's inputs, labels and weight, in this
   order, dense. `out` begins as a copy of `in` where dtype and shape stay. `index`: the sample's
   place in the first stage. Not 0 is an error of the run (MIRT_E_CALLBACK), which names the stage, the
   code and the sample. It may be called from several threads at once and in any order: it must be thread safe. */
typedef int (*mirt_map_fn)(const void *const *in, void *const *out, int64_t index, void *user);
typedef struct mirt_map_desc {
    mirt_map_fn fn;
    void *user;
    mirt_dtype dtype;  /* of the resulting x[0], and */
    mirt_shape shape;  /* its shape; left zero, both stay as they are */
    bool add_weights;  /* samples get a weight, 1 unless fn writes another */
    const char *name;  /* for errors; default "mirt_map" */
    mirt_array x[MIRT_MAX_INPUTS];  /* [num_x] the resulting inputs, as in mirt_generator_desc, and */
    mirt_array y[MIRT_MAX_OUTPUTS]; /* [num_y] labels */
    int num_x, num_y;  /* 0: they stay as they are; num_y -1: there are no labels any more */
} mirt_map_desc;
/* Calls fn for every sample; comes before mirt_batch. Random access stays, and where there is any the threads
   of the batch or cache stage after it make the samples. Copies desc. tf.data: map. */
MIRT_API mirt_dataset *mirt_map(mirt_dataset *dataset, const mirt_map_desc *desc);
#ifndef MIRRORTRAIN_NO_TRAIN
/* Class numbers as one-hot rows: y[0], one number per sample, becomes float32 of shape (classes), as
   MIRT_CATEGORICAL_CROSSENTROPY needs. `classes` 0: the number of class names. Otherwise like mirt_map. A label that is
   none of the classes is an error of the run (MIRT_E_INVALID). Keras: to_categorical. */
MIRT_API mirt_dataset *mirt_one_hot_labels(mirt_dataset *dataset, int64_t classes);
/* Mixes each sample with another one of the data set, at random of this pass: x[0] and the labels, which are float32
   (mirt_one_hot_labels), become share * own + (1 - share) * other, the share Beta(alpha, alpha) distributed; alpha
   above 0 to 1, 0 for the default, 0.2. x[0] of uint8 stays uint8, rounded; other inputs and the weight stay. Samples
   are made twice, so costly ones go through mirt_cache before it. What a sample gets depends on (seed, epoch, index of
   the sample), bit for bit; if the other one is skipped (MIRT_CORRUPT_SKIP), it stays as it is. Comes before
   mirt_batch, and needs random access. Keras: MixUp. */
MIRT_API mirt_dataset *mirt_mix_up(mirt_dataset *dataset, float alpha);
/* The same, but x[0], (height, width, channels), gets a rectangle of the other image, whose part of the area is
   1 - share; alpha is drawn between low and high, within 0 to 1; 0, 0 for 0 to 1. Keras: CutMix. */
MIRT_API mirt_dataset *mirt_cut_mix(mirt_dataset *dataset, float low, float high);
#endif
/* Groups samples into *global* batches; the last may be smaller. tf.data: batch. */
MIRT_API mirt_dataset *mirt_batch(mirt_dataset *dataset, int64_t batch);
/* The same without a last batch that is not full. tf.data: batch(drop_remainder=True). */
MIRT_API mirt_dataset *mirt_batch_drop_remainder(mirt_dataset *dataset, int64_t batch);
/* Threads that make the samples of costly stages (images, maps) for each batch and cache stage of this data set: 1 to
   256, or MIRT_AUTOTUNE, the default: what the time lost in waiting asks for, at most one thread per core. No number
   changes a sample or its place. Comes before the first epoch (MIRT_E_STATE). tf.data: num_parallel_calls. */
MIRT_API mirt_status mirt_dataset_workers(mirt_dataset *dataset, int workers);
#ifndef MIRRORTRAIN_NO_TRAIN
/* Joins `batches` batches into one step: equal in bits to one batch that many times as large with that
   many times the replicas. Comes after mirt_batch. Keras: gradient_accumulation_steps. */
MIRT_API mirt_dataset *mirt_accumulate(mirt_dataset *dataset, int batches);
#endif
/* Prepares up to `depth` batches ahead in a worker thread, unless there is nothing to prepare.
   MIRT_AUTOTUNE: 2, and more if the consumer has to wait. Also MIRT_E_THREAD. tf.data: prefetch. */
MIRT_API mirt_dataset *mirt_prefetch(mirt_dataset *dataset, int depth);
/* Samples in one epoch, and batches (steps, after mirt_accumulate); -1: without an end; 0 for NULL, and
   batches before mirt_batch. */
MIRT_API int64_t mirt_dataset_size(const mirt_dataset *dataset);
MIRT_API int64_t mirt_dataset_batches(const mirt_dataset *dataset);

#ifndef MIRRORTRAIN_NO_TRAIN
/* Copies all samples into arrays, in the order of the pass that mirt_dataset_read reads without a description: inputs,
   labels and weights of the data set's own types, of shape [samples, ...]. Batches are joined; images that
   MIRT_CORRUPT_SKIP leaves out are missing. The arrays belong to the caller: mirt_data_free. They may go to
   mirt_fit_arrays or mirt_arrays_of as they are. MIRT_E_INVALID: no end is known (mirt_repeat, a generator that is a
   stream); mirt_take gives one. Other errors as of mirt_dataset_read. Keras: datasets.mnist.load_data() is this of
   mirt_mnist. */
MIRT_API mirt_status mirt_dataset_arrays(mirt_dataset *dataset, mirt_data *out);
#endif
/* Which pass of a data set is read. Zero: the first of a strategy with the default seed. */
typedef struct mirt_read_desc {
    int64_t epoch; /* from 0; mirt_fit counts on from fit to fit. Validation data are always read as of epoch 0 */
    uint64_t seed; /* of the strategy (mirt_strategy_desc) */
} mirt_read_desc;
#ifndef MIRRORTRAIN_NO_TRAIN
/* Copies element `index` of a pass into arrays: a batch, or where there is no mirt_batch one sample, as [rows, ...].
   It is the element that mirt_fit trains on in that pass, bit for bit: shuffled, mapped and augmented. The call makes
   a pass of its own from the first stage on and is the first epoch for mirt_cache and mirt_dataset_workers; passes
   before and after it are as without it. It reads only this element where the stages have random access, otherwise all
   elements up to it. The arrays belong to the caller: mirt_data_free; on failure they are empty. desc NULL: zeros.
   MIRT_E_INVALID: no such element; MIRT_E_STATE: mirt_fit is training on the data set, or mirt_dataset_next is in the
   middle of an epoch; MIRT_E_SHAPE: samples of MIRT_MAX_RANK dimensions; MIRT_E_NOMEM; and what reading samples may
   give. tf.data: take(1), skip(index). */
MIRT_API mirt_status mirt_dataset_read(mirt_dataset *dataset, int64_t index, const mirt_read_desc *desc,
                                       mirt_data *out);
/* Frees arrays that mirt_dataset_arrays, mirt_dataset_read or mirt_to_categorical made, and no others, and empties the
   structure. NULL and empty arrays are allowed. Thread safe. */
MIRT_API void mirt_data_free(mirt_data *data);
/* The same for one array. Thread safe. */
MIRT_API void mirt_array_free(mirt_array *array);
/* Class numbers [n] or [n, 1] as one-hot rows, float32 [n, classes], into *out: mirt_array_free. `classes` 0: the
   largest label plus 1. MIRT_E_INVALID: a label that is none of the classes, with its sample; MIRT_E_SHAPE,
   MIRT_E_NOMEM. Any thread at any time. Keras: utils.to_categorical. */
MIRT_API mirt_status mirt_to_categorical(mirt_array labels, int64_t classes, mirt_array *out);
#endif

/* Names of the classes 0, 1, ...: copied, and kept by all later stages. MNIST's and the
   drawn digits' are "0" to "9". */
MIRT_API mirt_status mirt_set_class_names(mirt_dataset *dataset, const char *const *names, int count);
/* NULL and a count of 0 without names. Valid until names are set again or the data set is destroyed. */
MIRT_API const char *const *mirt_class_names(const mirt_dataset *dataset, int *count);
/* NULL is allowed. Refused while mirt_fit trains on it (MIRT_E_STATE); its validation data have to live as long. */
MIRT_API void mirt_dataset_destroy(mirt_dataset *dataset);

MIRT__END_C

#endif /* MIRT__DATA_API_H */
