/* What is known before a run: the environment, the machine, the largest batch, the usual traps. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"

static mirt_strategy *silent_strategy(const char *devices, int replicas) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = devices;
    desc.replicas = replicas;
    desc.silent = true;
    return mirt_strategy_create(&desc);
}

static void test_environment(void) {
    mirt__pool pool = {NULL};
    mirt_strategy *strategy = silent_strategy("2", 6);
    setenv("LD_PRELOAD", "a\"b\\\xff\n", 1);
    const char *text = mirt_environment(strategy);
    char *copy = text ? mirt__strdup(text) : NULL;
    const mirt__json *json = text ? mirt__json_parse(&pool, text, strlen(text)) : NULL;
    ok(json && json->type == MIRT__JSON_OBJECT && !strchr(text, '\n'), "the environment is one line of JSON: %s", text ? text : mirt_last_error());
    const mirt__json *version = mirt__json_member(json, "mirrortrain"), *kernels = mirt__json_member(json, "kernels");
    ok(version && strcmp(version->string, mirt_version()) == 0, "it holds the version");
    ok(kernels && strcmp(kernels->string, mirt__kernels_best()->name) == 0, "and the kernels that run");
    int64_t devices = 0, replicas = 0;
    ok(mirt__json_get_int(json, "devices", 2, 2, &devices) == MIRT_OK && mirt__json_get_int(json, "replicas", 6, 6, &replicas) == MIRT_OK, "and the strategy's numbers");
    const mirt__json *variables = mirt__json_member(json, "variables"), *preload = variables ? mirt__json_member(variables, "LD_PRELOAD") : NULL;
    ok(preload && strcmp(preload->string, "a\"b\\??") == 0, "variables that are no UTF-8 are mended: %s", preload ? preload->string : "none");
    ok(copy && strcmp(mirt_environment(strategy), copy) == 0, "asked again it says the same");
    unsetenv("LD_PRELOAD");
    mirt__free(copy);
    mirt__pool_free(&pool);
    mirt_strategy_destroy(strategy);
    ok(!mirt_environment(NULL) && mirt_last_status() == MIRT_E_INVALID, "without a strategy: %s", mirt_last_error());
}

int main(void) {
    test_environment();
    return done_testing();
}
