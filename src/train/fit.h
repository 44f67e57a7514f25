#ifndef MIRT__FIT_H
#define MIRT__FIT_H
/* One fit: what it was asked for and where it is. */
#include "trainer.h"

typedef enum mirt__moment {
    MIRT__TRAIN_BEGIN, MIRT__TRAIN_END, MIRT__EPOCH_BEGIN, MIRT__EPOCH_END, MIRT__BATCH_BEGIN, MIRT__BATCH_END, MIRT__TEST_BEGIN, MIRT__TEST_END,
    MIRT__INTERRUPTED /* training ends in the middle of an epoch: for ready-made callbacks */
} mirt__moment;

typedef struct mirt__fit {
    mirt_model *model;
    const mirt_fit_desc *desc;
    mirt_dataset *train, *validation;
    mirt__features *features[2]; /* of these two, or NULL */
    mirt_event event;
    mirt_logs logs;
    mirt__sums sums;
    mirt__progress progress;
    int64_t images; /* trained on so far */
    bool begun;     /* the data set is in the middle of a pass */
    bool stop, warned;
    int told;              /* callbacks whose train_begin was called */
    mirt_status status;    /* of a callback that failed, */
    char failure[512];     /* and its sentence */
} mirt__fit;

#endif
