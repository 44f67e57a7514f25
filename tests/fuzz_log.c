/* Fuzzes the logs that `mirrortrain report` reads: the input is a run's log.jsonl. */
#define _POSIX_C_SOURCE 200809L
#include "../cli/cli.h"
#include "../cli/report.h"
#include "fuzz_main.h"
#include "fuzz_words.h"

/* The files are temporary. */
int hook_fsync(int fd);
int hook_fsync(int fd) {
    (void)fd;
    return 0;
}

#ifdef FUZZER
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed) {
    static const char *const words[] = {"0", "-1", "1", "2", "3", "10", "0.5", "1e308", "-1e308", "1e-320", "1e999",
        "9007199254740993", "true", "false", "null", "[]", "{}", "[1,2]", "[[1,0],[0,1]]", "\"\"", "\"begin\"",
        "\"end\"", "\"epoch\"", "\"step\"", "\"timing\"", "\"confusion\"", "\"samples\"", "\"resume\"", "\"<b>&\\\"\"",
        "\"\\ud83d\\ude00\"", "\"\\u0000\"", "\"\\ud800\"", "\"event\":\"epoch\"", "\"epoch\":1", "\"val_loss\":0.5",
        "\"event\":\"use\"",
        "\"batches\":9,\"batch\":3,\"use\":{\"seconds\":1,\"devices\":[{\"name\":\"gpu:0\",\"busy\":0.5,"
        "\"input\":0.1,\"samples\":7,\"bytes\":9,\"watts\":1},{\"busy\":0.9}],\"resident_bytes\":5}",
        "\"png\":\"iVBORw0KGgo=\"", "\"classes\":[\"\\ud83d\\ude00\",\"b\"],\"matrix\":[[1,0],[0,1]]"};
    fuzz_random = seed;
    if (size < 2 || fuzz_below(3) == 0) return LLVMFuzzerMutate(data, size, most);
    return fuzz_exchange_words(data, 0, size, size, most, words, sizeof words / sizeof *words);
}
#endif

static void look(const run_log *log) {
    const value *classes = member(log->confusion, "classes"), *matrix = member(log->confusion, "matrix");
    for (int i = 0; i < log->epochs; i++)
        FUZZ_CHECK(text_of(log->epoch[i], "event") && strcmp(text_of(log->epoch[i], "event"), "epoch") == 0);
    if (!classes || !matrix || matrix->kind != VALUE_LIST || matrix->count != classes->count || matrix->count < 2)
        return;
    for (const value *row = matrix->first; row; row = row->next) {
        for (const value *v = row->kind == VALUE_LIST ? row->first : NULL; v; v = v->next)
            FUZZ_PLANT(v->kind == VALUE_NUMBER && v->number > 1e300);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[512], home[512], page[512];
    run_log log;
    fuzz_put(fuzz_path("log.jsonl", path), data, size);
    if (!read_run_log(fuzz_path("", home), &log)) return 0;
    look(&log);
    free_run_log(&log);
    FUZZ_CHECK(write_report(home, false));
    const char *const twice[] = {home, home};
    options o;
    memset(&o, 0, sizeof o);
    o.operand = twice;
    o.operands = 2;
    o.out = fuzz_path("comparison.html", page);
    FUZZ_CHECK(write_comparison(&o));
    const live_page live = {1795300003, 10, 500};
    FUZZ_CHECK(write_run_page(home, OWNER_RUNNING, &live));
    return 0;
}
