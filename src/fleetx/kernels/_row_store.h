/* Rows of fixed size in growing blocks of memory that never move, some of them in a file.
 *
 * A store begins in memory. When it is given a file, further blocks are mapped from there, and every
 * row, of which each has one place, may be in either. A row that is changed in the
 * file changes places with one in memory that has not been used for a while (the clock algorithm),
 * so nothing is ever written twice, and the page that is written has just been read. Reading leaves
 * rows where they are.
 */
#ifndef FLEETX_ROW_STORE_H
#define FLEETX_ROW_STORE_H

#include "_common.h"
#include "_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Blocks are about this large; only pages that were written take memory. */
#define BLOCK_BYTES ((size_t)8 << 20)
/* Between the pull of a worker and its push there may be requests of others. */
#define ANNOUNCED 8
/* Parts of the file in one call; the system takes up to 1024. */
#define PARTS 256

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    uint8_t **blocks;
    size_t block_count;
    size_t record;     /* bytes of a row */
    unsigned shift;    /* a block has 1 << shift rows */
    size_t block_size; /* bytes of a block */
    int file;          /* the descriptor of a file for further rows, or -1; then the rest is unused */
    PyObject *path;    /* its name, for errors */
    size_t hot_blocks; /* this many blocks are in memory */
    uint32_t *places;  /* of rows */
    uint32_t *owners;  /* the rows at places in memory */
    uint8_t *used;     /* places in memory that were used since the hand passed */
    uint64_t hand;     /* the next place in memory that a row may have to leave */
    uint8_t *swapping; /* room for a row */
    uintptr_t page_mask;
    int process; /* a descriptor of this process, or -1 */
    struct {
        const int64_t *rows;
        Py_ssize_t count;
    } announced[ANNOUNCED]; /* the last arrays of rows whose pages have been asked for */
    size_t next_announced;
    uint8_t *marks; /* a bit per row, all zero between calls */
    size_t mark_bytes;
} RowStore;

static inline uint8_t *place_at(const RowStore *self, uint64_t place) {
    const uint64_t mask = ((uint64_t)1 << self->shift) - 1;
    return self->blocks[place >> self->shift] + (place & mask) * self->record;
}

static inline uint64_t row_limit(const RowStore *self) {
    return (uint64_t)self->block_count << self->shift;
}

static inline uint64_t hot_limit(const RowStore *self) {
    return (uint64_t)self->hot_blocks << self->shift;
}

/* Where a row is now. */
static inline uint8_t *row_at(const RowStore *self, uint64_t row) {
    return place_at(self, self->places == NULL ? row : self->places[row]);
}

/* Where a row is read. */
static inline const uint8_t *row_to_read(RowStore *self, uint64_t row) {
    if (self->places == NULL) {
        return place_at(self, row);
    }
    const uint64_t place = self->places[row];
    if (place < hot_limit(self)) {
        self->used[place] = 1;
    }
    return place_at(self, place);
}

/* Let a row of the file change places with one in memory. */
static uint8_t *move_to_memory(RowStore *self, uint64_t row, uint64_t place) {
    const uint64_t limit = hot_limit(self);
    uint64_t hand = self->hand;
    while (self->used[hand]) {
        self->used[hand] = 0;
        hand = hand + 1 == limit ? 0 : hand + 1;
    }
    uint8_t *in_memory = place_at(self, hand), *in_file = place_at(self, place);
    memcpy(self->swapping, in_memory, self->record);
    memcpy(in_memory, in_file, self->record);
    memcpy(in_file, self->swapping, self->record);
    self->places[self->owners[hand]] = (uint32_t)place;
    self->places[row] = (uint32_t)hand;
    self->owners[hand] = (uint32_t)row;
    self->used[hand] = 1;
    self->hand = hand + 1 == limit ? 0 : hand + 1;
    return in_memory;
}

/* Where a row is changed: in memory. */
static inline uint8_t *row_to_change(RowStore *self, uint64_t row) {
    if (self->places == NULL) {
        return place_at(self, row);
    }
    const uint64_t place = self->places[row];
    if (place < hot_limit(self)) {
        self->used[place] = 1;
        return place_at(self, place);
    }
    return move_to_memory(self, row, place);
}

/* Hint that parts of the file are needed soon: one call for all of them where there is one. */
static void read_soon(const RowStore *self, const struct iovec *parts, size_t count) {
#ifdef SYS_process_madvise
    if (count == 0 ||
        syscall(SYS_process_madvise, self->process, parts, count, MADV_WILLNEED, 0) >= 0) {
        return;
    }
#endif
    for (size_t i = 0; i < count; i++) {
        madvise(parts[i].iov_base, parts[i].iov_len, MADV_WILLNEED);
    }
}

/* Let the system read the pages of rows in the file, all at the same time. */
static void announce_rows(RowStore *self, const int64_t *rows, Py_ssize_t count) {
    if (self->places == NULL) {
        return;
    }
    /* A push uses the array of its pull, whose pages have just been read. */
    for (size_t i = 0; i < ANNOUNCED; i++) {
        if (self->announced[i].rows == rows && self->announced[i].count == count) {
            self->announced[i].rows = NULL;
            return;
        }
    }
    self->announced[self->next_announced].rows = rows;
    self->announced[self->next_announced].count = count;
    self->next_announced = (self->next_announced + 1) % ANNOUNCED;
    struct iovec parts[PARTS];
    size_t filled = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (rows[i] >= 0 && self->places[rows[i]] >= hot_limit(self)) {
            const uintptr_t row = (uintptr_t)row_at(self, (uint64_t)rows[i]);
            const uintptr_t page = row & self->page_mask;
            parts[filled].iov_base = (void *)page;
            parts[filled++].iov_len = row - page + self->record;
            if (filled == PARTS) {
                read_soon(self, parts, filled);
                filled = 0;
            }
        }
    }
    read_soon(self, parts, filled);
}

static inline void prefetch_row(const RowStore *self, uint64_t row, size_t offset, size_t width) {
    const uint8_t *field = row_at(self, row) + offset;
    for (size_t at = 0; at < width && at < 512; at += 64) {
        __builtin_prefetch(field + at);
    }
    __builtin_prefetch(field + width - 1);
}

/* A block of the file, or NULL with the reason in *error. Its space is reserved now: a full disk
 * would end the process when a page is written. */
static uint8_t *new_file_block(const RowStore *self, int *error) {
    const size_t size = WHOLE_PAGES(self->block_size);
    const off_t start = (off_t)((self->block_count - self->hot_blocks) * size);
    do {
        *error = posix_fallocate(self->file, start, (off_t)size);
    } while (*error == EINTR);
    if (*error != 0) {
        return NULL;
    }
    uint8_t *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self->file, start);
    if (block == MAP_FAILED) {
        *error = errno;
        return NULL;
    }
    madvise(block, size, MADV_RANDOM); /* a hint: neighbours of a row are not read with it */
    return block;
}

/* Give the rows of new blocks their places, so that there are `blocks`; 0, or -1 without memory. */
static int grow_places(RowStore *self, size_t before, size_t blocks) {
    const size_t rows = blocks << self->shift;
    uint32_t *places = realloc(self->places, rows * sizeof(uint32_t));
    if (places == NULL) {
        return -1;
    }
    self->places = places;
    for (size_t i = before << self->shift; i < rows; i++) {
        places[i] = (uint32_t)i; /* new rows are at the end, and so are their places */
    }
    return 0;
}

/* Put all further rows into a file; returns 0, ENOMEM, or why the file cannot be used. */
static int begin_file(RowStore *self, int file) {
    const size_t hot = (size_t)row_limit(self);
    self->owners = malloc(hot * sizeof(uint32_t));
    self->used = calloc(hot, 1);
    self->swapping = malloc(self->record);
    const int copy = fcntl(file, F_DUPFD_CLOEXEC, 0);
    const int error = copy < 0 ? errno : ENOMEM;
    if (copy < 0 || self->owners == NULL || self->used == NULL || self->swapping == NULL ||
        grow_places(self, 0, self->block_count) < 0) {
        free(self->owners);
        free(self->used);
        free(self->swapping);
        self->owners = NULL;
        self->used = self->swapping = NULL;
        if (copy >= 0) {
            close(copy);
        }
        return error;
    }
    memcpy(self->owners, self->places, hot * sizeof(uint32_t));
    self->page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    self->hot_blocks = self->block_count;
    self->file = copy;
    self->process = -1;
#ifdef SYS_pidfd_open
    self->process = (int)syscall(SYS_pidfd_open, getpid(), 0);
#endif
    return 0;
}

/* Have at least `wanted` blocks; returns 0, ENOMEM, or why the file cannot grow. */
static int grow_blocks(RowStore *self, size_t wanted) {
    if (wanted <= self->block_count) {
        return 0;
    }
    uint8_t **blocks = realloc(self->blocks, wanted * sizeof(uint8_t *));
    if (blocks == NULL) {
        return ENOMEM;
    }
    self->blocks = blocks;
    if (self->file >= 0 && grow_places(self, self->block_count, wanted) < 0) {
        return ENOMEM;
    }
    while (self->block_count < wanted) {
        int error = ENOMEM;
        /* The first block has no large pages: a store may stay small. */
        uint8_t *block = self->file >= 0 ? new_file_block(self, &error)
                                         : new_pages(self->block_size, self->block_count > 0);
        if (block == NULL) {
            return error;
        }
        self->blocks[self->block_count++] = block;
    }
    return 0;
}

/* Have a mark for every row; returns 0, or -1 without memory. */
static int grow_marks(RowStore *self) {
    const size_t bytes = (size_t)(row_limit(self) / 8 + 1);
    if (bytes > self->mark_bytes) {
        uint8_t *marks = calloc(bytes, 1);
        if (marks == NULL) {
            return -1;
        }
        free(self->marks);
        self->marks = marks;
        self->mark_bytes = bytes;
    }
    return 0;
}

/* Whether no row, of those whose numbers have been checked, occurs twice. */
static int rows_differ(RowStore *self, const int64_t *rows, Py_ssize_t count) {
    Py_ssize_t marked = 0;
    int differ = 1;
    while (marked < count && differ) {
        uint8_t *byte = self->marks + (rows[marked] >> 3);
        const uint8_t bit = (uint8_t)(1u << (rows[marked] & 7));
        differ = (*byte & bit) == 0;
        *byte |= bit;
        marked++;
    }
    for (Py_ssize_t i = 0; i < marked; i++) {
        self->marks[rows[i] >> 3] = 0;
    }
    return differ;
}

static void free_blocks(RowStore *self) {
    for (size_t i = 0; i < self->block_count; i++) {
        if (self->file >= 0 && i >= self->hot_blocks) {
            munmap(self->blocks[i], WHOLE_PAGES(self->block_size));
        } else {
            free_pages(self->blocks[i], self->block_size);
        }
    }
    free(self->blocks);
    free(self->places);
    free(self->owners);
    free(self->used);
    free(self->swapping);
    free(self->marks);
    if (self->file >= 0) {
        close(self->file);
        if (self->process >= 0) {
            close(self->process);
        }
    }
    Py_XDECREF(self->path);
}

#endif
