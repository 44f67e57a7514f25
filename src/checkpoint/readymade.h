#ifndef MIRT__READYMADE_H
#define MIRT__READYMADE_H
/* What fit and its checkpoints know of ready-made callbacks. */
#include "../formats/json.h"
#include "../nn/model.h"

#define MIRT__STATE_FIELDS 8 /* most members of a ready-made callback that checkpoints keep */

typedef enum mirt__moment {
    MIRT__TRAIN_BEGIN,
    MIRT__TRAIN_END,
    MIRT__EPOCH_BEGIN,
    MIRT__EPOCH_END,
    MIRT__BATCH_BEGIN,
    MIRT__BATCH_END,
    MIRT__TEST_BEGIN,
    MIRT__TEST_END,
    MIRT__INTERRUPTED /* training ends in the middle of an epoch: for ready-made callbacks */
} mirt__moment;

typedef struct mirt__state_value {
    double number;
    int64_t integer;
    bool truth;
    char *text; /* allocated, or NULL */
} mirt__state_value;
/* The state of a ready-made callback, in the order of its fields. */
typedef struct mirt__ready_state {
    mirt__state_value value[MIRT__STATE_FIELDS];
} mirt__ready_state;

/* Members of a ready-made callback that checkpoints keep. */
typedef enum mirt__state_kind {
    MIRT__STATE_DOUBLE, MIRT__STATE_INT64, MIRT__STATE_BOOL,
    MIRT__STATE_TEXT /* char *, allocated, may be NULL */
} mirt__state_kind;
typedef struct mirt__state_field {
    const char *name;
    mirt__state_kind kind;
    size_t offset;
    int64_t least, most; /* of integers */
    bool (*valid)(const char *text); /* of texts; NULL: any will do */
} mirt__state_field;
/* Rows of a table of fields of `type`. Epochs: how many, or the number of one. Bytes: the length of a file. */
#define MIRT__STATE_EPOCHS(type, member) {#member, MIRT__STATE_INT64, offsetof(type, member), 0, INT_MAX, NULL}
#define MIRT__STATE_BYTES(type, member) {#member, MIRT__STATE_INT64, offsetof(type, member), 0, (int64_t)1 << 53, NULL}
#define MIRT__STATE_FLAG(type, member) {#member, MIRT__STATE_BOOL, offsetof(type, member), 0, 0, NULL}
#define MIRT__STATE_NUMBER(type, member) {#member, MIRT__STATE_DOUBLE, offsetof(type, member), 0, 0, NULL}

/* What every ready-made callback begins with; its `user` points here. */
typedef struct mirt__readymade {
    mirt_callback base;
    const mirt__state_field *fields;
    int num_fields;
    bool loaded; /* the state is that of a checkpoint: train_begin must not start it over, and clears this */
    /* Called for every moment once all callbacks have been told of it: what checkpoints call. May be NULL. */
    int (*after)(struct mirt__readymade *self, const mirt_event *event, mirt__moment moment);
    void (*release)(struct mirt__readymade *self); /* frees what it holds; may be NULL */
    /* Whether a state whose fields are valid can be taken: what depends on this callback or its files. May be NULL. */
    mirt_status (*accepts)(const struct mirt__readymade *self, const mirt__ready_state *state);
    /* Brings files whose lengths are in its state to the disk, before a checkpoint says what these are. May be NULL. */
    mirt_status (*sync)(struct mirt__readymade *self);
    bool logs;           /* all that it does is to write files: processes that write none go without it */
    const char *file;    /* that it writes, or a pattern; or NULL */
    bool shows_progress; /* fit shows none then */
    int64_t every; /* it reads weights or writes files after each step whose number is a multiple; 0: after none */
    const char *restores; /* the directory whose checkpoint the fit goes on from, or NULL */
    mirt__real *weights; /* a copy of all weights, one after the other, which checkpoints keep; or NULL */
    int64_t num_weights; /* elements there is room for */
    bool weights_set;
} mirt__readymade;

/* `size` bytes that begin with mirt__readymade, zeroed, under a name that stays. NULL with the error set. */
MIRT__LIB mirt__readymade *mirt__ready_new(size_t size, const char *name, const mirt__state_field *fields,
                                           int num_fields);
/* The ready-made callback behind a row of functions, or NULL. */
MIRT__LIB mirt__readymade *mirt__ready_of(const mirt_callback *callback);
/* A state as mirt__ready_new's callbacks save it: every field is there, of its type and in its range, and the callback
   accepts it. Freed after a failure too. */
MIRT__LIB mirt_status mirt__ready_parse(const mirt__readymade *self, const char *text, mirt__ready_state *out);
/* Takes over a parsed state. */
MIRT__LIB void mirt__ready_take(mirt__readymade *self, mirt__ready_state *state);
MIRT__LIB void mirt__ready_state_free(mirt__ready_state *state);
/* Room for a copy of the model's weights. */
MIRT__LIB mirt_status mirt__ready_reserve(mirt__readymade *self, const mirt_model *model);
MIRT__LIB void mirt__ready_keep(mirt__readymade *self, const mirt_model *model);
/* The model's weights become those kept, on every device. */
MIRT__LIB void mirt__ready_restore(const mirt__readymade *self, mirt_model *model);
/* Sets the thread's error unless `status` has (it is not MIRT_OK: it did); returns MIRT_CALLBACK_FAILED, or 0 for
   MIRT_OK. */
MIRT__LIB int mirt__callback_result(mirt_status status);

#endif
