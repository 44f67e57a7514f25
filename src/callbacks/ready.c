/* What ready-made callbacks share: their state as JSON, weights kept aside. */
#include "callbacks.h"

static void mirt__ready_destroy(void *user) {
    mirt__readymade *self = (mirt__readymade *)user;
    if (self->release) self->release(self);
    for (int i = 0; i < self->num_fields; i++) {
        if (self->fields[i].kind == MIRT__STATE_TEXT) mirt__free(*(char **)(void *)((char *)self + self->fields[i].offset));
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

/* False with the error set. */
static bool mirt__state_read(const mirt__state_field *field, const mirt__json *value, char *self) {
    char *at = self + field->offset;
    const bool word = value->type == MIRT__JSON_STRING;
    double number = value->number;
    static const mirt__json_type type[] = {MIRT__JSON_NUMBER, MIRT__JSON_NUMBER, MIRT__JSON_BOOL, MIRT__JSON_STRING};
    if (value->type != type[field->kind] && !(word && field->kind == MIRT__STATE_DOUBLE)) {
        return mirt__fail(MIRT_E_FORMAT, "%s is %s", field->name, mirt__json_type_name(value->type)) == MIRT_OK;
    }
    char *copy = NULL;
    switch (field->kind) {
    case MIRT__STATE_DOUBLE:
        if (word) number = strcmp(value->string, "inf") == 0 ? (double)INFINITY : strcmp(value->string, "-inf") == 0 ? -(double)INFINITY : (double)NAN;
        memcpy(at, &number, sizeof number);
        break;
    case MIRT__STATE_INT64: *(int64_t *)(void *)at = value->integer; break;
    case MIRT__STATE_BOOL: *(bool *)at = value->truth; break;
    case MIRT__STATE_TEXT:
        if (!(copy = mirt__strdup(value->string))) return false;
        mirt__free(*(char **)(void *)at);
        *(char **)(void *)at = copy;
        break;
    }
    return true;
}

static int mirt__ready_load(const char *text, void *user) {
    mirt__readymade *self = (mirt__readymade *)user;
    mirt__pool pool = {NULL};
    const mirt__json *state = mirt__json_parse(&pool, text, strlen(text));
    bool good = state && state->type == MIRT__JSON_OBJECT;
    if (state && !good) mirt__fail(MIRT_E_FORMAT, "the state is %s", mirt__json_type_name(state->type));
    for (int i = 0; good && i < self->num_fields; i++) {
        const mirt__json *value = mirt__json_member(state, self->fields[i].name);
        if (value) good = mirt__state_read(&self->fields[i], value, (char *)self);
    }
    mirt__pool_free(&pool);
    self->loaded = good;
    return !good;
}

MIRT__LIB mirt__readymade *mirt__ready_new(size_t size, const char *name, const mirt__state_field *fields, int num_fields) {
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
        memcpy(to, mirt__weight_at(model, 0, i), (size_t)model->variable[i].count * sizeof *to);
        to += model->variable[i].count;
    }
    self->weights_set = true;
}

MIRT__LIB void mirt__ready_restore(const mirt__readymade *self, mirt_model *model) {
    const mirt__real *from = self->weights;
    for (int i = 0; i < model->num_variables; i++) {
        const mirt__variable *v = &model->variable[i];
        for (int d = 0; d < mirt__weight_copies(model->strategy); d++) memcpy(mirt__weight_at(model, d, i), from, (size_t)v->count * sizeof *from);
        from += v->count;
    }
    mirt__root(model, NULL)->edits++;
    mirt__weights_changed(model);
}

MIRT__LIB int mirt__callback_result(mirt_status status) { return status == MIRT_OK ? 0 : MIRT_CALLBACK_FAILED; }
