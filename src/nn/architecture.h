#ifndef MIRT__ARCHITECTURE_H
#define MIRT__ARCHITECTURE_H
/* The fields of operations and variables in saved models. */

#include "../ops/ops.h"
#include "model.h"

/* Attributes of the operations in a file. */
typedef struct mirt__file_attr {
    mirt__field field;
    size_t size;
    unsigned bit;
} mirt__file_attr;
#define MIRT__PLACE_plain(name) name
#define MIRT__PLACE_matmul(name) own.matmul.name
#define MIRT__PLACE_reduce(name) own.reduce.name
#define MIRT__PLACE_one_hot(name) own.one_hot.name
#define MIRT__PLACE_axis(name) own.axis.name
#define MIRT__PLACE_move(name) own.move.name
#define MIRT__FILE_ATTR(name, kind, family) \
    {{#name, MIRT__FIELD_##kind, offsetof(mirt__attrs, MIRT__PLACE_##family(name)), false}, \
     sizeof(((mirt__attrs *)NULL)->MIRT__PLACE_##family(name)), MIRT__SAVES_##name},
static const mirt__file_attr mirt__file_attrs[] = {MIRT__SAVED_ATTR_LIST(MIRT__FILE_ATTR)};
#undef MIRT__FILE_ATTR
#undef MIRT__PLACE_plain
#undef MIRT__PLACE_matmul
#undef MIRT__PLACE_reduce
#undef MIRT__PLACE_one_hot
#undef MIRT__PLACE_axis
#undef MIRT__PLACE_move

/* A variable created outside of layers. */
typedef struct mirt__variable_desc {
    mirt_shape shape;
    mirt_initializer initializer;
    bool trainable;
} mirt__variable_desc;
static const mirt__field mirt__variable_fields[] = {MIRT__OWN_FIELD(mirt__variable_desc, DIMS, shape),
                                                    MIRT__OWN_FIELD(mirt__variable_desc, INITIALIZER, initializer),
                                                    MIRT__OWN_FIELD(mirt__variable_desc, BOOL, trainable)};

/* Values of mirt_training. */
static const mirt__field mirt__part_field = MIRT__ONLY_FIELD("training", TRAINING);

#endif
