/* Checked allocation through MIRRORTRAIN_MALLOC and MIRRORTRAIN_FREE. */

#include "base.h"

MIRT__LIB void *mirt__no_memory(size_t bytes) {
    mirt__fail(MIRT_E_NOMEM, "out of memory: cannot allocate %zu bytes", bytes);
    return NULL;
}

MIRT__LIB bool mirt__mul_size(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

MIRT__LIB bool mirt__add_size(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}

MIRT__LIB size_t mirt__align_up(size_t bytes) {
    return (bytes + (MIRT__ALIGN - 1)) & ~(size_t)(MIRT__ALIGN - 1);
}

MIRT__LIB void *mirt__calloc(size_t count, size_t size) {
    size_t bytes;
    if (!mirt__mul_size(count, size, &bytes)) return mirt__no_memory(SIZE_MAX);
    if (bytes == 0) bytes = 1;
    void *pointer = MIRRORTRAIN_MALLOC(bytes);
    if (!pointer) return mirt__no_memory(bytes);
    return memset(pointer, 0, bytes);
}

MIRT__LIB bool mirt__grow(void **pointer, size_t used, size_t count, size_t size) {
    void *bigger = mirt__calloc(count, size);
    if (!bigger) return false;
    if (*pointer && used) memcpy(bigger, *pointer, used * size);
    mirt__free(*pointer);
    *pointer = bigger;
    return true;
}

MIRT__LIB bool mirt__grow_list(void **list, int used, int *capacity, size_t size) {
    if (used < *capacity) return true;
    if (used > INT_MAX / 2) return mirt__no_memory(SIZE_MAX), false;
    const int more = used ? 2 * used : 16;
    if (!mirt__grow(list, (size_t)used, (size_t)more, size)) return false;
    *capacity = more;
    return true;
}

MIRT__LIB void mirt__free(void *pointer) {
    if (pointer) MIRRORTRAIN_FREE(pointer);
}

MIRT__LIB char *mirt__strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = (char *)mirt__calloc(size, 1);
    if (copy) memcpy(copy, text, size);
    return copy;
}

/* Requests huge pages for large blocks, which makes reading up to twice as fast. Without huge pages nothing changes. */
#ifdef MIRT__HUGE_PAGES
#define MIRT__HUGE ((uintptr_t)2 << 20)
extern int mirt__madvise(void *start, size_t bytes, int advice) __asm__("madvise"); /* not declared by POSIX */
static void mirt__ask_huge(char *block, size_t bytes) {
    const uintptr_t start = ((uintptr_t)block + MIRT__HUGE - 1) & ~(MIRT__HUGE - 1),
                    end = ((uintptr_t)block + bytes) & ~(MIRT__HUGE - 1);
    const int number = errno;
    if (end > start && mirt__madvise(block + (start - (uintptr_t)block), end - start, 14 /* MADV_HUGEPAGE */) != 0)
        errno = number;
}
#undef MIRT__HUGE
#endif

/* Extra bytes of an aligned block: to move its start up to the alignment, and to store before it the pointer to
   free. */
#define MIRT__ALIGNED_EXTRA (MIRT__ALIGN + sizeof(void *))

MIRT__LIB void *mirt__aligned_alloc(size_t bytes) {
    size_t total;
    if (!mirt__add_size(bytes, MIRT__ALIGNED_EXTRA, &total)) return mirt__no_memory(bytes);
    char *base = (char *)MIRRORTRAIN_MALLOC(total);
    if (!base) return mirt__no_memory(bytes);
#ifdef MIRT__HUGE_PAGES
    mirt__ask_huge(base, total);
#endif
    size_t past = (size_t)((uintptr_t)(base + sizeof(void *)) & (MIRT__ALIGN - 1));
    char *start = base + sizeof(void *) + (past ? MIRT__ALIGN - past : 0);
    memcpy(start - sizeof(void *), &base, sizeof base);
    return start;
}

#undef MIRT__ALIGNED_EXTRA

MIRT__LIB void mirt__aligned_free(void *pointer) {
    if (!pointer) return;
    char *base;
    memcpy(&base, (char *)pointer - sizeof(void *), sizeof base);
    MIRRORTRAIN_FREE(base);
}

struct mirt__pool_block {
    mirt__pool_block *next;
    size_t left; /* bytes at the end that packed texts may take; it also keeps the data aligned to 16 bytes */
};

MIRT__LIB void *mirt__pool_alloc(mirt__pool *pool, size_t bytes) {
    size_t total;
    if (!mirt__add_size(bytes, sizeof(mirt__pool_block), &total)) return mirt__no_memory(bytes);
    mirt__pool_block *block = (mirt__pool_block *)mirt__calloc(total, 1);
    if (!block) return NULL;
    mirt__pool_block **before = pool->head && pool->head->left ? &pool->head->next : &pool->head;
    block->next = *before; /* a block with room stays the first */
    *before = block;
    return block + 1;
}

MIRT__LIB char *mirt__pool_strdup(mirt__pool *pool, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = (char *)mirt__pool_alloc(pool, size);
    if (copy) memcpy(copy, text, size);
    return copy;
}

MIRT__LIB char *mirt__pool_pack(mirt__pool *pool, const char *text) {
    const size_t many = 16000, size = strlen(text) + 1; /* with its header a block is a little less than 16 KiB */
    if (size > many) return mirt__pool_strdup(pool, text);
    if (!pool->head || pool->head->left < size) {
        if (pool->head) pool->head->left = 0;
        if (!mirt__pool_alloc(pool, many)) return NULL;
        pool->head->left = many;
    }
    char *copy = (char *)(pool->head + 1) + (many - pool->head->left);
    pool->head->left -= size;
    return (char *)memcpy(copy, text, size);
}

MIRT__LIB char *mirt__pool_print(mirt__pool *pool, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t size = (size_t)vsnprintf(NULL, 0, format, args) + 1;
    va_end(args);
    char *text = (char *)mirt__pool_alloc(pool, size);
    va_start(args, format);
    if (text) vsnprintf(text, size, format, args);
    va_end(args);
    return text;
}

MIRT__LIB void mirt__pool_free(mirt__pool *pool) {
    mirt__pool_block *block = pool->head;
    while (block) {
        mirt__pool_block *next = block->next;
        mirt__free(block);
        block = next;
    }
    pool->head = NULL;
}
