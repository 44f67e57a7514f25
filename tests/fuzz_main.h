#ifndef FUZZ_MAIN_H
#define FUZZ_MAIN_H
/* What the fuzzers share. Without libFuzzer (FUZZER is not defined) a fuzzer is a program that takes files: each is one check,
   which what the sanitizers say ends. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef FUZZER
/* Blocks that were freed are kept for a while, so that their use is seen, but few: most runs take microseconds. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "quarantine_size_mb=8:thread_local_quarantine_size_kb=256:malloc_context_size=8:max_malloc_fill_size=0"; }
#else
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        static uint8_t data[1 << 16];
        FILE *file = fopen(argv[i], "rb");
        if (!file) return 1;
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        uint8_t *exact = (uint8_t *)malloc(size + !size); /* a read beyond it is seen */
        if (!exact) return 1;
        for (size_t k = 0; k < size; k++) exact[k] = data[k];
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
        printf("ok %d - %s\n", i, argv[i]);
    }
    printf("1..%d\n", argc - 1);
    return 0;
}
#endif

#endif
