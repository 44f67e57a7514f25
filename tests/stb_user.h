#ifndef STB_USER_H
#define STB_USER_H
/* Where tests/stb_unit.c finds its stb_image, and an allocator for it. */
#include <stddef.h>

#ifndef STB_HEADER
#if __has_include(<stb/stb_image.h>)
#define STB_HEADER <stb/stb_image.h>
#else
#define STB_HEADER <stb_image.h>
#endif
#endif

extern int user_allocations;
void *user_malloc(size_t size);
void *user_realloc(void *block, size_t size);
void user_free(void *block);
#ifdef USER_ALLOCATES
#define STBI_MALLOC(size) user_malloc(size)
#define STBI_REALLOC(block, size) user_realloc(block, size)
#define STBI_FREE(block) user_free(block)
#endif
#endif
