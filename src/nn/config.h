#ifndef MIRT__CONFIG_H
#define MIRT__CONFIG_H
/* Layers and compile settings as JSON, in Keras's words, and back. */
#include "../formats/json.h"
#include "model.h"

/* {"name", "layers": [{"class_name", "name", "input", "config"}], "output"}; an error when the model
   holds operations outside of layers. */
MIRT__LIB mirt_status mirt__architecture_write(const mirt_model *model, mirt__text *out);
/* Records the layers into an empty model. */
MIRT__LIB mirt_status mirt__architecture_read(mirt_model *model, const mirt__json *architecture);
MIRT__LIB void mirt__compile_write(const mirt_model *model, mirt__text *out);
MIRT__LIB mirt_status mirt__compile_read(const mirt__json *json, mirt_compile_desc *out);

#endif
