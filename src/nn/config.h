#ifndef MIRT__CONFIG_H
#define MIRT__CONFIG_H
/* Models and compile settings as JSON with Keras's names: writing and reading. */
#include "../formats/json.h"
#include "model.h"

/* --- config_write.c --- */
/* Writes `"key":`, after a comma unless it is the object's first. */
MIRT__LIB void mirt__write_key(mirt__text *out, const char *key, bool first);
MIRT__LIB void mirt__write_name(mirt__text *out, const char *key, const char *value, bool first);
MIRT__LIB void mirt__write_number(mirt__text *out, const char *key, double value, bool first);
/* Writes the member `field` of `object`; or all of them, but for optional zeros. */
MIRT__LIB void mirt__write_field(mirt__text *out, const mirt__field *field, const void *object, bool first);
MIRT__LIB void mirt__write_fields(mirt__text *out, const mirt__field *fields, int count, const void *object,
                                  bool first);
/* Writes {"class_name", "config"}. */
MIRT__LIB void mirt__write_object(mirt__text *out, const mirt__object_class *cls, const void *object);
/* There is at least one. */
MIRT__LIB void mirt__write_floats(mirt__text *out, const float *number, int count);

/* --- config.c --- */
/* Reads members of `object`: the index of a string among `names`; */
MIRT__LIB mirt_status mirt__read_name(const mirt__json *object, const char *key, const char *const *names, int count,
                                      int *out);
MIRT__LIB mirt_status mirt__read_float(const mirt__json *object, const char *key, float *out);
MIRT__LIB mirt_status mirt__read_bool(const mirt__json *object, const char *key, bool *out);
/* {"class_name", "config"}: which of the classes, and its fields into *out; */
#define MIRT__MAX_CLASSES 8
MIRT__LIB mirt_status mirt__read_object(const mirt__json *object, const char *key, const mirt__object_class *classes,
                                        int count, int *index, void *out);
/* and fields, of which optional ones may be missing. */
MIRT__LIB mirt_status mirt__read_field(const mirt__json *json, const mirt__field *field, void *object);
MIRT__LIB mirt_status mirt__read_fields(const mirt__json *json, const mirt__field *fields, int count, void *object);

/* --- compile_config.c --- */
MIRT__LIB void mirt__compile_write(const mirt_model *model, mirt__text *out);
MIRT__LIB mirt_status mirt__compile_read(const mirt_strategy *strategy, const mirt__json *json, mirt_compile_desc *out);

/* --- architecture.c and architecture_write.c --- */
/* {"name", "layers": [...], "output"}: the layers and bare operations in the order of their recording, as
     {"class_name": "Conv2D", "name", "input", "config"}
     {"class_name": "Operation", "name", "op", "input", "attributes"}: attributes that are not zero; a constant has
     "data"
     {"class_name": "Variable", "name", "config"}: made outside of layers
     {"class_name": "Functional", "name", "input", "config", "training", "architecture" or "part"}: a model called
       as a layer: all of it again, or the name of the layer that has it.
   A tensor is the name of what made it, or [name, number of its output]; several are "inputs": [...], and
   "outputs". "losses": terms of the loss that are no layer's. "frozen": names of weights. */
MIRT__LIB mirt_status mirt__architecture_write(mirt_model *model, mirt__text *out);
/* Records all that into an empty model. */
MIRT__LIB mirt_status mirt__architecture_read(mirt_model *model, const mirt__json *architecture);

#endif
