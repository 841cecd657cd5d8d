/* Collectives of processes on one machine through a segment of shared memory.
 *
 * Every member has a slot of two buffers in the segment. A message is processed in chunks of one
 * buffer, small enough to stay in the caches: each member copies its chunk into its slot, all wait
 * for one another, and each computes what it needs from all slots. Sums are always formed in the
 * order of ranks, so that every member and every run gets the same bits.
 *
 * Members wait for one another by a counter each: it is increased at every synchronisation, and all
 * members pass the same synchronisations in the same order. Chunks alternate between the two
 * buffers, so one wait per chunk suffices: whoever has passed synchronisation k + 1 knows that all
 * others have finished reading the chunk of synchronisation k.
 *
 * Waiting is a short spin, then a futex. A wait ends with an error when a member has died (its
 * pidfd is readable), has left, has reported a failure, or at the deadline; the group is unusable
 * from then on, for all its members. The two halves of a call, what each member says it calls and
 * how far it has come, are compared at its first synchronisation.
 *
 * A call may be impatient: if another member does not come to its first synchronisation for a while,
 * it returns NOT_YET, and the next call resumes it. A process that a member has forked is no member.
 *
 * Addresses and counts come from tensors; the caller ensures that they are valid.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "_glibc.h"

#if !defined(SYS_pidfd_open)
#define SYS_pidfd_open 434
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* Of the functions below: increased when their arguments or results change. */
#define VERSION 2
#define MAGIC UINT64_C(0x316d68735f786c66)
#define MOST_MEMBERS 256
#define LINE 64
/* A message of at most this many bytes is reduced as a whole by every member: one wait, not two. */
#define SMALL 16384
/* How long to spin before sleeping, in nanoseconds, if every member can have a core. */
#define SPIN 50000
/* How often a sleeping member looks whether the others are alive, and handles signals. */
#define GLANCE 50000000L

enum { ABSENT, PRESENT, LEFT, FAILED };
enum { OK, PEER_DIED, PEER_LEFT, PEER_FAILED, TIMED_OUT, INTERRUPTED, DISAGREED, NOT_YET };
enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, BARRIER };
enum { SUM, PRODUCT, MINIMUM, MAXIMUM };
enum { FLOAT32, FLOAT64, BFLOAT16, FLOAT16, INT8, UINT8, INT16, INT32, INT64, TYPES };

static const size_t sizes[TYPES] = {4, 8, 2, 2, 1, 1, 2, 4, 8};

typedef struct {
    uint32_t kind, type, operation, root;
    uint64_t count;
} Call;

typedef struct {
    _Alignas(LINE) _Atomic uint32_t progress;
    _Atomic uint32_t sleepers;
    _Atomic uint32_t state;
    int32_t pid;
    _Alignas(LINE) Call calls[2];
} Member;

typedef struct {
    _Alignas(LINE) uint64_t magic;
    uint32_t members;
    uint32_t chunk;
    unsigned char token[16];
} Head;

typedef struct {
    Head *head;
    Member *member;
    char *slots;
    size_t length;
    uint32_t rank, members, chunk;
    uint32_t progress; /* of this member */
    uint32_t call;     /* number of calls so far */
    uint32_t buffer;   /* of the next chunk */
    int spins;
    int resumed;       /* the first synchronisation has begun in an earlier call */
    int64_t patience;  /* when the first synchronisation gives up for now; 0 for never */
    int64_t deadline;  /* of the call that is to be resumed */
    int32_t pid;
    int failed;        /* a code of the enumeration above */
    uint32_t culprit;
    int watches[MOST_MEMBERS]; /* pidfds */
} Group;

static size_t rounded(size_t bytes) { return (bytes + 4095) & ~(size_t)4095; }

static size_t slots_offset(uint32_t members) {
    return rounded(rounded(sizeof(Head)) + members * sizeof(Member));
}

static size_t segment_length(uint32_t members, uint32_t chunk) {
    return slots_offset(members) + (size_t)members * 2 * chunk;
}

static char *slot(const Group *g, uint32_t rank) {
    return g->slots + ((size_t)rank * 2 + g->buffer) * g->chunk;
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *t) {
    return syscall(SYS_futex, (uint32_t *)word, operation, value, t, NULL, 0);
}

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void publish(Group *g) {
    Member *own = &g->member[g->rank];
    atomic_store(&own->progress, ++g->progress);
    if (atomic_load(&own->sleepers)) {
        futex(&own->progress, FUTEX_WAKE, INT32_MAX, NULL);
    }
}

/* Tell the others, and wake those that wait for this member. */
static void announce(Group *g, uint32_t state) {
    Member *own = &g->member[g->rank];
    uint32_t was = PRESENT;
    atomic_compare_exchange_strong(&own->state, &was, state);
    futex(&own->progress, FUTEX_WAKE, INT32_MAX, NULL);
}

static int fail(Group *g, int code, uint32_t culprit) {
    g->failed = code;
    g->culprit = culprit;
    announce(g, FAILED);
    return code;
}

static int has_come(const Group *g, uint32_t rank) {
    uint32_t progress = atomic_load_explicit(&g->member[rank].progress, memory_order_acquire);
    return (int32_t)(progress - g->progress) >= 0;
}

/* Return why a member will not come, or OK if it may. It may have come before it ended. */
static int trouble(Group *g, uint32_t rank) {
    uint32_t state = atomic_load(&g->member[rank].state);
    int code = OK;
    if (state == LEFT) {
        code = PEER_LEFT;
    } else if (state == FAILED) {
        code = PEER_FAILED;
    } else if (g->watches[rank] >= 0) {
        struct pollfd watch = {.fd = g->watches[rank], .events = POLLIN};
        code = poll(&watch, 1, 0) > 0 ? PEER_DIED : OK;
    }
    return has_come(g, rank) ? OK : code;
}

/* Look at all members: the one waited for may itself wait for one that has died. */
static int trouble_of_any(Group *g, uint32_t *culprit) {
    int found = OK;
    for (uint32_t rank = 0; rank < g->members; rank++) {
        int code = rank == g->rank ? OK : trouble(g, rank);
        /* A death explains more than the failures it causes. */
        if (code != OK && (found == OK || code == PEER_DIED)) {
            found = code;
            *culprit = rank;
        }
    }
    return found;
}

/* Return how many nanoseconds to sleep before looking up. */
static long glance(const Group *g) {
    int64_t left = g->patience ? g->patience - now() : GLANCE;
    return left > GLANCE ? GLANCE : left < 0 ? 0 : (long)left;
}

static int await(Group *g, uint32_t rank, int64_t deadline) {
    Member *other = &g->member[rank];
    int64_t began = 0;
    for (unsigned turn = 0; g->spins; turn++) {
        if (has_come(g, rank)) {
            return OK;
        }
        pause_briefly();
        if (turn % 64 == 63) {
            int64_t time = now();
            began = began ? began : time;
            if (time - began > SPIN) {
                break;
            }
        }
    }
    for (;;) {
        struct timespec pause = {0, glance(g)};
        atomic_fetch_add(&other->sleepers, 1);
        uint32_t seen = atomic_load(&other->progress);
        long result = 0;
        int error = 0;
        if (!has_come(g, rank) && atomic_load(&other->state) == PRESENT) {
            result = futex(&other->progress, FUTEX_WAIT, seen, &pause);
            error = result < 0 ? errno : 0;
        }
        atomic_fetch_sub(&other->sleepers, 1);
        if (has_come(g, rank)) {
            return OK;
        }
        if (error == ETIMEDOUT || error == EINTR || atomic_load(&other->state) != PRESENT) {
            uint32_t culprit = rank;
            int code = trouble_of_any(g, &culprit);
            if (code != OK) {
                return fail(g, code, culprit);
            }
            int64_t time = now();
            if (time > deadline) {
                return fail(g, TIMED_OUT, rank);
            }
            if (g->patience && time >= g->patience) {
                return NOT_YET;
            }
            PyGILState_STATE lock = PyGILState_Ensure();
            int interrupted = PyErr_CheckSignals();
            PyGILState_Release(lock);
            if (interrupted) {
                return fail(g, INTERRUPTED, rank);
            }
        }
    }
}

static int synchronise(Group *g, int64_t deadline) {
    if (!g->resumed) {
        publish(g);
    }
    for (uint32_t step = 1; step < g->members; step++) {
        int code = await(g, (g->rank + step) % g->members, deadline);
        if (code != OK) {
            g->resumed = code == NOT_YET;
            return code;
        }
    }
    g->resumed = 0;
    g->patience = 0;
    return OK;
}

/* Copy into this member's slot; a call that is resumed has done so. */
static void fill(const Group *g, size_t offset, const char *data, size_t bytes) {
    if (!g->resumed) {
        memcpy(slot(g, g->rank) + offset, data, bytes);
    }
}

static int same_call(const Call *a, const Call *b) {
    return a->kind == b->kind && a->type == b->type && a->operation == b->operation &&
           a->root == b->root && a->count == b->count;
}

/* Say what this member calls; `agree` compares after the first synchronisation. */
static void say(Group *g, Call call) { g->member[g->rank].calls[g->call & 1] = call; }

static int agree(Group *g) {
    uint32_t parity = g->call++ & 1;
    for (uint32_t rank = 0; rank < g->members; rank++) {
        if (!same_call(&g->member[rank].calls[parity], &g->member[g->rank].calls[parity])) {
            return fail(g, DISAGREED, rank);
        }
    }
    return OK;
}

/* ---- arithmetic: result = sources[0] op sources[1] op ..., in this order ---------------------- */

#define LOOP(expression)                                  \
    for (uint32_t s = 1; s < sources; s++) {              \
        const T *restrict b = (const T *)from[s] + start; \
        for (size_t i = 0; i < n; i++) {                  \
            T x = a[i], y = b[i];                         \
            a[i] = (expression);                          \
        }                                                 \
    }                                                     \
    break;

/* Blocks of sums stay in the first cache while sources are added to them. NaN stays NaN. */
#define KERNEL(name, type)                                                                    \
    WIDE static void name(void *to, char **from, uint32_t sources, size_t count, uint32_t op) { \
        typedef type T;                                                                       \
        enum { BLOCK = 1024 };                                                                \
        T a[BLOCK];                                                                           \
        for (size_t start = 0; start < count; start += BLOCK) {                               \
            size_t n = count - start < BLOCK ? count - start : BLOCK;                         \
            memcpy(a, (const T *)from[0] + start, n * sizeof(T));                             \
            switch (op) {                                                                     \
            case SUM: LOOP((T)(x + y))                                                        \
            case PRODUCT: LOOP((T)(x * y))                                                    \
            case MINIMUM: LOOP(x < y || x != x ? x : y)                                       \
            case MAXIMUM: LOOP(x > y || x != x ? x : y)                                       \
            }                                                                                 \
            memcpy((T *)to + start, a, n * sizeof(T));                                        \
        }                                                                                     \
    }

KERNEL(reduce_float32, float)
KERNEL(reduce_float64, double)
KERNEL(reduce_int8, int8_t)
KERNEL(reduce_uint8, uint8_t)
KERNEL(reduce_int16, int16_t)
KERNEL(reduce_int32, int32_t)
KERNEL(reduce_int64, int64_t)

static inline float from_bfloat16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static inline uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t even = bits + 0x7fff + ((bits >> 16) & 1); /* round to nearest, ties to even */
    return value != value ? 0x7fc0 : (uint16_t)(even >> 16);
}

static inline float from_float16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff, wide;
    float value;
    if (rest >= 0x7c00) { /* infinite, or not a number */
        wide = sign | 0x7f800000 | (rest & 0x3ff) << 13;
    } else { /* shifted exponents are too small by 112, also those of subnormal numbers */
        uint32_t shifted = rest << 13;
        memcpy(&value, &shifted, sizeof(value));
        value *= 0x1p112f;
        memcpy(&wide, &value, sizeof(wide));
        wide |= sign;
    }
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static inline uint16_t to_float16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) {
        return sign | 0x7e00;
    }
    if (rest >= 0x477ff000) { /* rounds to more than 65504 */
        return sign | 0x7c00;
    }
    if (rest < 0x38800000) { /* subnormal: the unit in the last place is 2^-24 */
        float magnitude, shifter = 0x1p-1f; /* its unit in the last place is 2^-24 too */
        memcpy(&magnitude, &rest, sizeof(magnitude));
        magnitude += shifter;
        memcpy(&rest, &magnitude, sizeof(rest));
        return sign | (uint16_t)(rest - 0x3f000000);
    }
    uint32_t even = rest + 0xfff + ((rest >> 13) & 1);
    return sign | (uint16_t)((even - 0x38000000) >> 13);
}

/* Half precision: computed in single precision, rounded once. */
#define HALF(name, decode, encode)                                                             \
    WIDE static void name(void *to, char **from, uint32_t sources, size_t count, uint32_t op) { \
        enum { BLOCK = 1024 };                                                                 \
        typedef float T;                                                                       \
        T a[BLOCK];                                                                            \
        for (size_t start = 0; start < count; start += BLOCK) {                                \
            size_t n = count - start < BLOCK ? count - start : BLOCK;                          \
            for (uint32_t s = 0; s < sources; s++) {                                           \
                const uint16_t *restrict b = (const uint16_t *)from[s] + start;                \
                for (size_t i = 0; i < n; i++) {                                               \
                    float x = a[i], y = decode(b[i]);                                          \
                    a[i] = s == 0          ? y                                                 \
                           : op == SUM     ? x + y                                             \
                           : op == PRODUCT ? x * y                                             \
                           : op == MINIMUM ? (x < y || x != x ? x : y)                         \
                                           : (x > y || x != x ? x : y);                        \
                }                                                                              \
            }                                                                                  \
            uint16_t *restrict out = (uint16_t *)to + start;                                   \
            for (size_t i = 0; i < n; i++) {                                                   \
                out[i] = encode(a[i]);                                                         \
            }                                                                                  \
        }                                                                                      \
    }

HALF(reduce_bfloat16, from_bfloat16, to_bfloat16)
HALF(reduce_float16, from_float16, to_float16)

static void (*const kernels[TYPES])(void *, char **, uint32_t, size_t, uint32_t) = {
    reduce_float32, reduce_float64, reduce_bfloat16, reduce_float16, reduce_int8,
    reduce_uint8,   reduce_int16,   reduce_int32,    reduce_int64,
};

static void reduce(Group *g, void *to, size_t offset, size_t count, const Call *call) {
    char *from[MOST_MEMBERS];
    for (uint32_t rank = 0; rank < g->members; rank++) {
        from[rank] = slot(g, rank) + offset;
    }
    kernels[call->type](to, from, g->members, count, call->operation);
}

/* ---- collectives ------------------------------------------------------------------------------ */

static void next_buffer(Group *g) { g->buffer ^= 1; }

static int all_reduce_small(Group *g, char *data, const Call *call, int64_t deadline) {
    fill(g, 0, data, call->count * sizes[call->type]);
    int code = synchronise(g, deadline);
    code = code != OK ? code : agree(g);
    if (code == OK) {
        reduce(g, data, 0, call->count, call);
        next_buffer(g);
    }
    return code;
}

static int all_reduce(Group *g, char *data, const Call *call, int64_t deadline) {
    size_t size = sizes[call->type], left = call->count, most = g->chunk / size;
    say(g, *call);
    if (call->count * size <= SMALL) {
        return all_reduce_small(g, data, call, deadline);
    }
    for (int first = 1; left; first = 0) {
        size_t n = left < most ? left : most;
        /* Parts begin at multiples of a cache line. */
        size_t part = ((n + g->members - 1) / g->members * size + LINE - 1) / LINE * LINE / size;
        fill(g, 0, data, n * size);
        int code = synchronise(g, deadline);
        code = code == OK && first ? agree(g) : code;
        if (code != OK) {
            return code;
        }
        size_t from = part * g->rank;
        if (from < n) {
            size_t count = n - from < part ? n - from : part;
            /* Nobody else reads this part of this member's slot. */
            reduce(g, slot(g, g->rank) + from * size, from * size, count, call);
        }
        if ((code = synchronise(g, deadline)) != OK) {
            return code;
        }
        for (uint32_t rank = 0; rank < g->members && part * rank < n; rank++) {
            size_t start = part * rank, count = n - start < part ? n - start : part;
            memcpy(data + start * size, slot(g, rank) + start * size, count * size);
        }
        next_buffer(g);
        data += n * size;
        left -= n;
    }
    return OK;
}

static int broadcast(Group *g, char *data, const Call *call, int64_t deadline) {
    size_t left = call->count;
    say(g, *call);
    for (int first = 1; first || left; first = 0) {
        size_t n = left < g->chunk ? left : g->chunk;
        if (g->rank == call->root) {
            fill(g, 0, data, n);
        }
        int code = synchronise(g, deadline);
        code = code == OK && first ? agree(g) : code;
        if (code != OK) {
            return code;
        }
        if (g->rank != call->root) {
            memcpy(data, slot(g, call->root), n);
        }
        next_buffer(g);
        data += n;
        left -= n;
    }
    return OK;
}

static int all_gather(Group *g, char *to, const char *data, const Call *call, int64_t deadline) {
    size_t done = 0;
    say(g, *call);
    for (int first = 1; first || done < call->count; first = 0) {
        size_t n = call->count - done < g->chunk ? call->count - done : g->chunk;
        fill(g, 0, data + done, n);
        int code = synchronise(g, deadline);
        code = code == OK && first ? agree(g) : code;
        if (code != OK) {
            return code;
        }
        for (uint32_t rank = 0; rank < g->members; rank++) {
            memcpy(to + rank * call->count + done, slot(g, rank), n);
        }
        next_buffer(g);
        done += n;
    }
    return OK;
}

/* `count` elements for each member; every slot holds a piece for each of them. */
static int reduce_scatter(Group *g, char *to, const char *data, const Call *call,
                          int64_t deadline) {
    size_t size = sizes[call->type], done = 0;
    size_t room = g->chunk / g->members / LINE * LINE, most = room / size;
    say(g, *call);
    for (int first = 1; first || done < call->count; first = 0) {
        size_t n = call->count - done < most ? call->count - done : most;
        for (uint32_t rank = 0; rank < g->members; rank++) {
            fill(g, rank * room, data + (rank * call->count + done) * size, n * size);
        }
        int code = synchronise(g, deadline);
        code = code == OK && first ? agree(g) : code;
        if (code != OK) {
            return code;
        }
        reduce(g, to + done * size, g->rank * room, n, call);
        next_buffer(g);
        done += n;
    }
    return OK;
}

static int barrier(Group *g, const Call *call, int64_t deadline) {
    say(g, *call);
    int code = synchronise(g, deadline);
    return code != OK ? code : agree(g);
}

/* ---- Python ----------------------------------------------------------------------------------- */

#define CAPSULE "fleetx.kernels._shm.Group"

static PyObject *create(PyObject *module, PyObject *arguments) {
    unsigned int members, chunk;
    Py_buffer token;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "IIy*", &members, &chunk, &token)) {
        return NULL;
    }
    if (members < 2 || members > MOST_MEMBERS || token.len != 16 || chunk < SMALL ||
        chunk % (LINE * MOST_MEMBERS)) {
        PyBuffer_Release(&token);
        return PyErr_Format(PyExc_ValueError,
                            "a segment has 2 to %d members, a token of 16 bytes and chunks of a "
                            "multiple of %d bytes.",
                            MOST_MEMBERS, LINE * MOST_MEMBERS);
    }
    Head head = {.magic = MAGIC, .members = members, .chunk = chunk};
    memcpy(head.token, token.buf, sizeof(head.token));
    PyBuffer_Release(&token);
    int file = (int)syscall(SYS_memfd_create, "fleetx", 1u); /* closed by exec */
    if (file < 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    /* Allocated now: a lack of memory is an error here and not a signal later. */
    int error = posix_fallocate(file, 0, (off_t)segment_length(members, chunk));
    if (!error && pwrite(file, &head, sizeof(head), 0) != (ssize_t)sizeof(head)) {
        error = errno ? errno : EIO;
    }
    if (error) {
        close(file);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromLong(file);
}

static void release(Group *g) {
    if (g->head != NULL) {
        if (g->pid == (int32_t)getpid()) {
            announce(g, LEFT);
        }
        munmap(g->head, g->length);
        g->head = NULL;
    }
    for (uint32_t rank = 0; rank < g->members; rank++) {
        if (g->watches[rank] >= 0) {
            close(g->watches[rank]);
            g->watches[rank] = -1;
        }
    }
}

static void destroy(PyObject *capsule) {
    Group *g = PyCapsule_GetPointer(capsule, CAPSULE);
    release(g);
    PyMem_Free(g);
}

static int map_segment(Group *g, int file, const unsigned char *token) {
    struct stat facts;
    if (fstat(file, &facts) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    g->length = segment_length(g->members, g->chunk);
    if (facts.st_size != (off_t)g->length) {
        PyErr_SetString(PyExc_ValueError, "this is not the segment of this group: wrong size.");
        return -1;
    }
    Head *head = mmap(NULL, g->length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (head == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (head->magic != MAGIC || head->members != g->members || head->chunk != g->chunk ||
        memcmp(head->token, token, sizeof(head->token))) {
        munmap(head, g->length);
        PyErr_SetString(PyExc_ValueError, "this is not the segment of this group: wrong token.");
        return -1;
    }
    g->head = head;
    g->member = (Member *)((char *)head + rounded(sizeof(Head)));
    g->slots = (char *)head + slots_offset(g->members);
    return 0;
}

static PyObject *join(PyObject *module, PyObject *arguments) {
    int file, spins;
    unsigned int rank, members, chunk;
    Py_buffer token;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "iIIIy*p", &file, &rank, &members, &chunk, &token, &spins)) {
        return NULL;
    }
    if (members < 2 || members > MOST_MEMBERS || rank >= members || token.len != 16) {
        PyBuffer_Release(&token);
        return PyErr_Format(PyExc_ValueError, "rank %u of %u with a token of 16 bytes cannot join.",
                            rank, members);
    }
    Group *g = PyMem_Calloc(1, sizeof(Group));
    if (g == NULL) {
        PyBuffer_Release(&token);
        return PyErr_NoMemory();
    }
    g->rank = rank;
    g->members = members;
    g->chunk = chunk;
    g->spins = spins;
    memset(g->watches, -1, sizeof(g->watches));
    int mapped = map_segment(g, file, token.buf);
    PyBuffer_Release(&token);
    if (mapped < 0) {
        PyMem_Free(g);
        return NULL;
    }
    g->pid = g->member[rank].pid = (int32_t)getpid();
    atomic_store(&g->member[rank].state, PRESENT);
    PyObject *capsule = PyCapsule_New(g, CAPSULE, destroy);
    if (capsule == NULL) {
        release(g);
        PyMem_Free(g);
    }
    return capsule;
}

static Group *group_of(PyObject *capsule) {
    Group *g = PyCapsule_GetPointer(capsule, CAPSULE);
    if (g != NULL && g->head == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this process has left the group.");
        return NULL;
    }
    return g;
}

static Group *member_of(PyObject *capsule) {
    Group *g = group_of(capsule);
    if (g != NULL && g->pid != (int32_t)getpid()) {
        PyErr_Format(PyExc_RuntimeError,
                     "process %d is no member of the group: it was forked from worker %u.",
                     (int)getpid(), g->rank);
        return NULL;
    }
    return g;
}

/* Watch the processes of the others, which have all joined. */
static PyObject *watch(PyObject *module, PyObject *capsule) {
    (void)module;
    Group *g = member_of(capsule);
    if (g == NULL) {
        return NULL;
    }
    for (uint32_t rank = 0; rank < g->members; rank++) {
        if (rank != g->rank && g->watches[rank] < 0) {
            g->watches[rank] = (int)syscall(SYS_pidfd_open, g->member[rank].pid, 0);
            if (g->watches[rank] < 0) {
                return PyErr_SetFromErrno(PyExc_OSError);
            }
        }
    }
    Py_RETURN_NONE;
}

static PyObject *leave(PyObject *module, PyObject *capsule) {
    (void)module;
    Group *g = group_of(capsule);
    if (g == NULL) {
        return NULL;
    }
    release(g);
    Py_RETURN_NONE;
}

static PyObject *run(PyObject *module, PyObject *arguments) {
    PyObject *capsule;
    Call call = {0};
    unsigned long long count, to, from;
    double seconds, patience;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OIIIIKKKdd", &capsule, &call.kind, &call.type, &call.operation,
                          &call.root, &count, &to, &from, &seconds, &patience)) {
        return NULL;
    }
    Group *g = member_of(capsule);
    if (g == NULL) {
        return NULL;
    }
    if (call.kind > BARRIER || call.type >= TYPES || call.operation > MAXIMUM ||
        call.root >= g->members) {
        PyErr_SetString(PyExc_ValueError, "there is no such collective, type, operation or root.");
        return NULL;
    }
    call.count = count;
    if (g->resumed && !same_call(&g->member[g->rank].calls[g->call & 1], &call)) {
        PyErr_SetString(PyExc_RuntimeError, "another collective is to be resumed first.");
        return NULL;
    }
    int code = g->failed;
    if (code == OK) {
        /* Empty tensors have no address, and memcpy takes none that is null, even for no bytes. */
        static char nothing;
        char *target = to ? (char *)(uintptr_t)to : &nothing;
        const char *source = from ? (const char *)(uintptr_t)from : &nothing;
        Py_BEGIN_ALLOW_THREADS
        int64_t began = now();
        /* A call that is resumed keeps its deadline. */
        int64_t deadline = g->resumed ? g->deadline : began + (int64_t)(seconds * 1e9);
        g->deadline = deadline;
        g->patience = patience > 0 ? began + (int64_t)(patience * 1e9) : 0;
        switch (call.kind) {
        case ALL_REDUCE: code = all_reduce(g, target, &call, deadline); break;
        case BROADCAST: code = broadcast(g, target, &call, deadline); break;
        case ALL_GATHER: code = all_gather(g, target, source, &call, deadline); break;
        case REDUCE_SCATTER: code = reduce_scatter(g, target, source, &call, deadline); break;
        default: code = barrier(g, &call, deadline);
        }
        Py_END_ALLOW_THREADS
    }
    if (PyErr_Occurred()) { /* of a signal handler */
        return NULL;
    }
    if (code == OK) {
        Py_RETURN_NONE;
    }
    const Call *theirs = &g->member[g->culprit].calls[(g->call - 1) & 1];
    return Py_BuildValue("iI(IIIIK)", code, (unsigned int)g->culprit, theirs->kind, theirs->type,
                         theirs->operation, theirs->root, (unsigned long long)theirs->count);
}

static PyMethodDef methods[] = {
    {"create", create, METH_VARARGS,
     "create(members, chunk, token)\n\nCreate a segment; return its file descriptor."},
    {"join", join, METH_VARARGS,
     "join(file, rank, members, chunk, token, spins)\n\nMap a segment; return the group."},
    {"watch", watch, METH_O,
     "watch(group)\n\nWatch the processes of all members, once all have joined."},
    {"leave", leave, METH_O, "leave(group)\n\nUnmap the segment and tell the others."},
    {"run", run, METH_VARARGS,
     "run(group, kind, type, operation, root, count, to, from, seconds, patience)\n\n"
     "Run a collective. Return None, or (reason, rank, its call) if it failed. The reason NOT_YET is\n"
     "no failure: the same call, made again, resumes it."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_shm",
    .m_doc = "Collectives of processes on one machine through shared memory.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__shm(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "VERSION", VERSION) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
