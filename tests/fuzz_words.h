#ifndef FUZZ_WORDS_H
#define FUZZ_WORDS_H
/* For libFuzzer: exchanges words of JSON and similar texts. Words are separated by commas, colons, brackets and line
   ends. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef FUZZER
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed);

static uint64_t fuzz_random;
static size_t fuzz_below(size_t bound) {
    fuzz_random = fuzz_random * 6364136223846793005u + 1442695040888963407u;
    return bound ? (size_t)(fuzz_random >> 33) % bound : 0;
}

static bool fuzz_is_edge(uint8_t c) { return strchr(",:[]{}\n", c) && c; }

/* The word around a random place of [from, to): up to the next comma or bracket, or a whole bracket. */
static void fuzz_pick(const uint8_t *data, size_t from, size_t to, size_t *begin, size_t *end) {
    size_t at = from + fuzz_below(to - from);
    while (at > from && !fuzz_is_edge(data[at - 1])) at--;
    *begin = at;
    int depth = 0;
    bool whole = fuzz_below(3) == 0;
    while (at < to &&
           (depth > 0 || !fuzz_is_edge(data[at]) || (whole && at == *begin && (data[at] == '{' || data[at] == '[')))) {
        if (whole && (data[at] == '{' || data[at] == '[')) depth++;
        if (whole && (data[at] == '}' || data[at] == ']')) depth--;
        at++;
        if (whole && depth == 0 && at > *begin && (data[at - 1] == '}' || data[at - 1] == ']')) break;
    }
    *end = at;
}

/* Up to three words of [from, to), which ends before `size`, become one of `words` or another one of the text, or get
 * one before them. */
static size_t fuzz_exchange_words(
    uint8_t *data, size_t from, size_t to, size_t size, size_t most, const char *const *words, size_t count) {
    static uint8_t copy[1 << 16];
    for (size_t changes = 1 + fuzz_below(3); changes > 0; changes--) {
        size_t begin, end, other, length;
        const uint8_t *word;
        if (to <= from) return size;
        const bool number = fuzz_below(2); /* keys are most of the words, but numbers matter more */
        for (int tries = 0; tries < 8; tries++) {
            fuzz_pick(data, from, to, &begin, &end);
            if (!number || (begin < to && (data[begin] == '-' || (data[begin] >= '0' && data[begin] <= '9')))) break;
        }
        if (fuzz_below(2)) {
            word = (const uint8_t *)words[fuzz_below(count)];
            length = strlen((const char *)word);
        } else {
            fuzz_pick(data, from, to, &other, &length);
            length = length - other < sizeof copy ? length - other : 0;
            memcpy(copy, data + other, length);
            word = copy;
        }
        bool insert = fuzz_below(4) == 0;
        if (insert) end = begin;
        if (size - (end - begin) + length + 1 > most) continue;
        memmove(data + begin + length + insert, data + end, size - end);
        memcpy(data + begin, word, length);
        if (insert) data[begin + length] = ',';
        size = size - (end - begin) + length + insert;
        to = to - (end - begin) + length + insert;
    }
    return size;
}
#endif

#endif
