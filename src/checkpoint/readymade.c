/* What ready-made callbacks share: their state as JSON, weights kept aside. */
#include "readymade.h"

static void mirt__ready_destroy(void *user) {
    mirt__readymade *self = (mirt__readymade *)user;
    if (self->release) self->release(self);
    for (int i = 0; i < self->num_fields; i++) {
        if (self->fields[i].kind == MIRT__STATE_TEXT)
            mirt__free(*(char **)(void *)((char *)self + self->fields[i].offset));
    }
    mirt__free(self->weights);
    mirt__free(self);
}

MIRT_API void mirt_callback_destroy(mirt_callback *callback) {
    MIRT__ENTER;
    if (!callback || !callback->destroy) return;
    if (mirt__ready_of(callback)) {
        callback->destroy(callback->user);
        return;
    }
    MIRT__OUTSIDE;
    callback->destroy(callback->user);
}

static void mirt__state_write(mirt__text *out, const mirt__state_field *field, const char *self) {
    const char *at = self + field->offset;
    const char *text = field->kind == MIRT__STATE_TEXT ? *(char *const *)(const void *)at : NULL;
    double number = 0;
    mirt__json_write_string(out, field->name);
    mirt__text_add(out, ":");
    switch (field->kind) {
    case MIRT__STATE_DOUBLE:
        memcpy(&number, at, sizeof number);
        if (isfinite(number)) mirt__json_write_number(out, number);
        else mirt__text_add(out, number != number ? "\"nan\"" : number > 0 ? "\"inf\"" : "\"-inf\"");
        break;
    case MIRT__STATE_INT64: mirt__text_add(out, "%lld", (long long)*(const int64_t *)(const void *)at); break;
    case MIRT__STATE_BOOL: mirt__text_add(out, *(const bool *)at ? "true" : "false"); break;
    case MIRT__STATE_TEXT: mirt__json_write_string(out, text ? text : ""); break;
    }
}

static size_t mirt__ready_save(char *text, size_t capacity, void *user) {
    const mirt__readymade *self = (const mirt__readymade *)user;
    mirt__text out = {NULL, 0, 0, false};
    for (int i = 0; i < self->num_fields; i++) {
        mirt__text_add(&out, i ? "," : "{");
        mirt__state_write(&out, &self->fields[i], (const char *)self);
    }
    mirt__text_add(&out, self->num_fields ? "}" : "{}");
    size_t size = out.failed ? SIZE_MAX : out.size; /* a size nobody has room for */
    if (!out.failed && capacity > size) memcpy(text, out.data, size + 1);
    mirt__text_free(&out);
    return size;
}

static mirt_status mirt__state_read_double(const mirt__state_field *field, const mirt__json *value, double *out) {
    const char *word = value->type == MIRT__JSON_STRING ? value->string : NULL;
    *out = value->number;
    if (!word) return MIRT_OK;
    if (strcmp(word, "inf") != 0 && strcmp(word, "-inf") != 0)
        return mirt__fail(MIRT_E_FORMAT, "\"%s\" must be a number, \"inf\" or \"-inf\"", field->name);
    *out = word[0] == '-' ? -(double)INFINITY : (double)INFINITY;
    return MIRT_OK;
}

static mirt_status mirt__state_read_text(const mirt__state_field *field, const mirt__json *value, char **out) {
    if (field->valid && !field->valid(value->string)) {
        return mirt__fail(MIRT_E_FORMAT, "\"%s\" cannot be \"%s\"", field->name,
                          mirt__label(value->string).text);
    }
    *out = mirt__strdup(value->string);
    return *out ? MIRT_OK : mirt_last_status();
}

static mirt_status mirt__state_read(const mirt__state_field *field, const mirt__json *state, mirt__state_value *out) {
    static const mirt__json_type type[] = {MIRT__JSON_NUMBER, MIRT__JSON_NUMBER, MIRT__JSON_BOOL, MIRT__JSON_STRING};
    const mirt__json *value = mirt__json_member(state, field->name);
    const bool word = value && value->type == MIRT__JSON_STRING && field->kind == MIRT__STATE_DOUBLE;
    if (!word && !(value = mirt__json_get(state, field->name, type[field->kind]))) return mirt_last_status();
    switch (field->kind) {
    case MIRT__STATE_DOUBLE: return mirt__state_read_double(field, value, &out->number);
    case MIRT__STATE_INT64: return mirt__json_get_int(state, field->name, field->least, field->most, &out->integer);
    case MIRT__STATE_BOOL: out->truth = value->truth; break;
    case MIRT__STATE_TEXT: return mirt__state_read_text(field, value, &out->text);
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__ready_parse(const mirt__readymade *self, const char *text, mirt__ready_state *out) {
    mirt__pool pool = {NULL};
    memset(out, 0, sizeof *out);
    const mirt__json *state = mirt__json_parse(&pool, text, strlen(text));
    mirt_status status = !state ? mirt_last_status() : state->type == MIRT__JSON_OBJECT ? MIRT_OK :
        mirt__fail(MIRT_E_FORMAT, "is %s, but must be an object", mirt__json_type_name(state->type));
    for (int i = 0; status == MIRT_OK && i < self->num_fields; i++)
        status = mirt__state_read(&self->fields[i], state, &out->value[i]);
    mirt__pool_free(&pool);
    return status == MIRT_OK && self->accepts ? self->accepts(self, out) : status;
}

MIRT__LIB void mirt__ready_take(mirt__readymade *self, mirt__ready_state *state) {
    for (int i = 0; i < self->num_fields; i++) {
        char *at = (char *)self + self->fields[i].offset;
        mirt__state_value *value = &state->value[i];
        switch (self->fields[i].kind) {
        case MIRT__STATE_DOUBLE: memcpy(at, &value->number, sizeof value->number); break;
        case MIRT__STATE_INT64: *(int64_t *)(void *)at = value->integer; break;
        case MIRT__STATE_BOOL: *(bool *)at = value->truth; break;
        case MIRT__STATE_TEXT:
            mirt__free(*(char **)(void *)at);
            *(char **)(void *)at = value->text;
            value->text = NULL;
            break;
        }
    }
    self->loaded = true;
}

MIRT__LIB void mirt__ready_state_free(mirt__ready_state *state) {
    for (int i = 0; i < MIRT__STATE_FIELDS; i++) {
        mirt__free(state->value[i].text);
        state->value[i].text = NULL;
    }
}

static int mirt__ready_load(const char *text, void *user) {
    mirt__readymade *self = (mirt__readymade *)user;
    mirt__ready_state state;
    mirt_status status = mirt__ready_parse(self, text, &state);
    if (status == MIRT_OK) mirt__ready_take(self, &state);
    mirt__ready_state_free(&state);
    return status != MIRT_OK;
}

MIRT__LIB mirt__readymade *mirt__ready_new(size_t size, const char *name, const mirt__state_field *fields,
                                           int num_fields) {
    mirt__readymade *self = (mirt__readymade *)mirt__calloc(1, size);
    if (!self) return NULL;
    self->base.user = self;
    self->base.name = name;
    self->base.save_state = mirt__ready_save;
    self->base.load_state = mirt__ready_load;
    self->base.destroy = mirt__ready_destroy;
    self->fields = fields;
    self->num_fields = num_fields;
    return self;
}

MIRT__LIB mirt__readymade *mirt__ready_of(const mirt_callback *callback) {
    return callback && callback->destroy == mirt__ready_destroy ? (mirt__readymade *)callback->user : NULL;
}

MIRT__LIB mirt_status mirt__ready_reserve(mirt__readymade *self, const mirt_model *model) {
    int64_t count = 0;
    for (int i = 0; i < model->num_variables; i++) count += model->variable[i].count;
    if (self->num_weights == count) return MIRT_OK;
    mirt__real *weights = (mirt__real *)mirt__calloc((size_t)count, sizeof *weights);
    if (!weights) return MIRT_E_NOMEM;
    mirt__free(self->weights);
    self->weights = weights;
    self->num_weights = count;
    self->weights_set = false;
    return MIRT_OK;
}

MIRT__LIB void mirt__ready_keep(mirt__readymade *self, const mirt_model *model) {
    mirt__real *to = self->weights;
    for (int i = 0; i < model->num_variables; i++) {
        memcpy(to, mirt__weight_at(model, i), (size_t)model->variable[i].count * sizeof *to);
        to += model->variable[i].count;
    }
    self->weights_set = true;
}

MIRT__LIB void mirt__ready_restore(const mirt__readymade *self, mirt_model *model) {
    const mirt__real *from = self->weights;
    for (int i = 0; i < model->num_variables; i++) {
        const mirt__variable *v = &model->variable[i];
        memcpy(mirt__weight_at(model, i), from, (size_t)v->count * sizeof *from);
        from += v->count;
    }
    mirt__root(model, NULL)->edits++;
    mirt__weights_changed(model);
}

MIRT__LIB int mirt__callback_result(mirt_status status) { return status == MIRT_OK ? 0 : MIRT_CALLBACK_FAILED; }
