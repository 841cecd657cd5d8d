/* Large memory that is accessed at random: zero at first, in large pages if possible.
 *
 * It is mapped and not allocated: malloc may take it from memory in small pages, and may keep what
 * is freed.
 */
#ifndef FLEETX_PAGES_H
#define FLEETX_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Large pages save most page table walks. */
#define LARGE_PAGE ((size_t)2 << 20)
/* Sizes are whole pages, of up to 64 KiB. AddressSanitizer only checks the heap, so with it
 * memory is allocated there and ends with its last byte. */
#define WHOLE_PAGES(size) (((size) + ((size_t)64 << 10) - 1) & ~(((size_t)64 << 10) - 1))
#ifdef __SANITIZE_ADDRESS__
#define PAGES_SIZE(size) (size)
#else
#define PAGES_SIZE(size) WHOLE_PAGES(size)
#endif

/* Return memory of a PAGES_SIZE, or NULL. */
static uint8_t *new_pages(size_t size, int large) {
#ifdef __SANITIZE_ADDRESS__
    (void)large;
    return calloc(1, size);
#else
    if (size > SIZE_MAX - LARGE_PAGE) {
        return NULL;
    }
    uint8_t *raw = mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        return NULL;
    }
    const size_t before = (size_t)(-(uintptr_t)raw & (LARGE_PAGE - 1));
    if (before > 0) {
        munmap(raw, before);
    }
    if (before < LARGE_PAGE) {
        munmap(raw + before + size, LARGE_PAGE - before);
    }
    if (large) {
        madvise(raw + before, size, MADV_HUGEPAGE); /* a hint: everything works without it */
    }
    return raw + before;
#endif
}

static void free_pages(void *pages, size_t size) {
#ifdef __SANITIZE_ADDRESS__
    (void)size;
    free(pages);
#else
    munmap(pages, size);
#endif
}

#endif
