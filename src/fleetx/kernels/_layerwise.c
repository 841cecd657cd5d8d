/* LARS and LAMB on single-precision tensors in memory, with several threads if requested.
 *
 * Both need the norm of a whole tensor before they may change it, so they make two passes. That
 * makes them slower than plain momentum or Adam by the additional reads, and nothing else: they are
 * bound by memory. A tensor is therefore processed at several places at once, which keeps more
 * memory requests in flight than one place does, and memory is prefetched. LAMB writes its
 * direction past the caches in the first pass, so that the second reads two tensors, not three. Sums are
 * single precision over short stretches, and double precision over these.
 *
 * Rows are tuples of addresses and a count; the caller ensures that they are valid.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "_glibc.h"

LOADS_ON_OLDER_SYSTEMS(pthread_create)
LOADS_ON_OLDER_SYSTEMS(pthread_join)
LOADS_ON_OLDER_SYSTEMS(pthread_barrier_init)
LOADS_ON_OLDER_SYSTEMS(pthread_barrier_wait)
LOADS_ON_OLDER_SYSTEMS(pthread_barrier_destroy)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#define LANES 16   /* elements of one cache line */
#define PLACES 8   /* places at which a tensor is processed at the same time */
#define AHEAD 1024 /* prefetch distance in elements */
#define STRETCH 4096
/* Smaller tensors are processed by one thread each. */
#define SMALL 65536
/* LAMB recomputes the direction of larger tensors instead of storing it. */
#define LARGEST 33554432
#define MOST_THREADS 256

typedef struct {
    float *p;
    const float *g;
    float *a; /* velocity, or first moment */
    float *b; /* second moment */
    Py_ssize_t n;
} Row;

typedef struct {
    int lamb;
    int adapt;
    double rate, coeff, decay, epsilon; /* epsilon: of LARS */
    float mu;                           /* of LARS */
    float beta1, rest1, beta2, rest2, factor, add; /* of LAMB: add is epsilon in the root's units */
} Formula;

typedef struct {
    const Row *rows;
    Py_ssize_t count;
    const Formula *f;
    int threads;
    float *direction; /* one area per thread */
    Py_ssize_t area;
    double (*sums)[2]; /* [row * threads + thread] */
    pthread_mutex_t begin; /* held until the number of threads is known */
    pthread_barrier_t barrier;
} Work;

typedef float Line __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* The distance between the places at which a tensor is processed, in elements.
 *
 * An odd number of cache lines: at distances that are powers of two all places would compete for
 * the same cache sets and the same memory bank.
 */
static inline Py_ssize_t distance(Py_ssize_t n, int places) {
    Py_ssize_t lines = n / (places * LANES);
    return (lines > 4096 ? (lines - 64) / 64 * 64 + 9 : lines) * LANES;
}

#define REQUEST(x) __builtin_prefetch((x) + AHEAD)

/* The squares of two tensors, summed. */
FAST static void sum_squares(const float *restrict p, const float *restrict g, Py_ssize_t n,
                             double *restrict sums) {
    Py_ssize_t part = distance(n, PLACES);
    for (Py_ssize_t start = 0; start < part; start += STRETCH) {
        Py_ssize_t end = start + STRETCH < part ? start + STRETCH : part;
        Line x = {0}, y = {0};
        for (Py_ssize_t j = start; j < end; j += LANES) {
            for (int w = 0; w < PLACES; w++) {
                const float *q = p + w * part + j, *h = g + w * part + j;
                REQUEST(q);
                REQUEST(h);
                Line u = *(const Line *)q, v = *(const Line *)h;
                x += u * u;
                y += v * v;
            }
        }
        for (int k = 0; k < LANES; k++) {
            sums[0] += x[k];
            sums[1] += y[k];
        }
    }
    for (Py_ssize_t j = PLACES * part; j < n; j++) {
        sums[0] += (double)p[j] * p[j];
        sums[1] += (double)g[j] * g[j];
    }
}

/* v = mu * v + rate * (g + decay * p); p -= v */
FAST static void descend(float *restrict p, const float *restrict g, float *restrict v,
                         Py_ssize_t n, float mu, float rate, float decay) {
    Py_ssize_t part = distance(n, PLACES);
    for (Py_ssize_t j = 0; j < part; j += LANES) {
        for (int w = 0; w < PLACES; w++) {
            float *q = p + w * part + j, *u = v + w * part + j;
            const float *h = g + w * part + j;
            REQUEST(q);
            REQUEST(h);
            REQUEST(u);
            Line old = *(Line *)q, x = mu * *(Line *)u + rate * (*(const Line *)h + decay * old);
            *(Line *)u = x;
            *(Line *)q = old - x;
        }
    }
    for (Py_ssize_t j = PLACES * part; j < n; j++) {
        v[j] = mu * v[j] + rate * (g[j] + decay * p[j]);
        p[j] -= v[j];
    }
}

#define LAMB_PLACES 4

/* Write a cache line; `past` the caches, if it would be evicted before it is read. */
static inline void write_line(float *restrict to, const float *restrict line, int past) {
#if defined(__SSE__)
    if (past) {
        for (int k = 0; k < LANES; k += 4) {
            _mm_stream_ps(to + k, _mm_load_ps(line + k));
        }
        return;
    }
#endif
    (void)past;
    for (int k = 0; k < LANES; k++) {
        to[k] = line[k];
    }
}

/* Advance the moments; write the direction to `d`, if there is one; sum its squares and p's. */
FAST static void advance(const float *restrict p, const float *restrict g, float *restrict m,
                         float *restrict v, float *restrict d, Py_ssize_t n, const Formula *f,
                         double *restrict sums) {
    float beta1 = f->beta1, rest1 = f->rest1, beta2 = f->beta2, rest2 = f->rest2;
    float factor = f->factor, add = f->add, decay = (float)f->decay;
    Py_ssize_t part = distance(n, LAMB_PLACES);
    for (Py_ssize_t start = 0; start < part; start += STRETCH) {
        Py_ssize_t end = start + STRETCH < part ? start + STRETCH : part;
        float x[LANES] = {0}, y[LANES] = {0};
        for (Py_ssize_t j = start; j < end; j += LANES) {
            for (int w = 0; w < LAMB_PLACES; w++) {
                Py_ssize_t at = w * part + j;
                const float *q = p + at, *h = g + at;
                float *s = m + at, *t = v + at;
                float r[LANES] __attribute__((aligned(64)));
                REQUEST(q);
                REQUEST(h);
                REQUEST(s);
                REQUEST(t);
                for (int k = 0; k < LANES; k++) {
                    s[k] = beta1 * s[k] + rest1 * h[k];
                    t[k] = beta2 * t[k] + rest2 * (h[k] * h[k]);
                    r[k] = s[k] * factor / (sqrtf(t[k]) + add) + decay * q[k];
                    x[k] += q[k] * q[k];
                    y[k] += r[k] * r[k];
                }
                if (d != NULL) {
                    write_line(d + at, r, n >= SMALL);
                }
            }
        }
        for (int k = 0; k < LANES; k++) {
            sums[0] += x[k];
            sums[1] += y[k];
        }
    }
    for (Py_ssize_t j = LAMB_PLACES * part; j < n; j++) {
        m[j] = beta1 * m[j] + rest1 * g[j];
        v[j] = beta2 * v[j] + rest2 * (g[j] * g[j]);
        float r = m[j] * factor / (sqrtf(v[j]) + add) + decay * p[j];
        if (d != NULL) {
            d[j] = r;
        }
        sums[0] += (double)p[j] * p[j];
        sums[1] += (double)r * r;
    }
#if defined(__SSE__)
    _mm_sfence();
#endif
}

/* p -= rate * d */
FAST static void follow(float *restrict p, const float *restrict d, Py_ssize_t n, float rate) {
    Py_ssize_t part = distance(n, PLACES);
    for (Py_ssize_t j = 0; j < part; j += LANES) {
        for (int w = 0; w < PLACES; w++) {
            float *q = p + w * part + j;
            const float *r = d + w * part + j;
            REQUEST(q);
            REQUEST(r);
            *(Line *)q -= rate * *(const Line *)r;
        }
    }
    for (Py_ssize_t j = PLACES * part; j < n; j++) {
        p[j] -= rate * d[j];
    }
}

/* The same with the direction recomputed. */
FAST static void follow_again(float *restrict p, const float *restrict m, const float *restrict v,
                              Py_ssize_t n, const Formula *f, float rate) {
    float factor = f->factor, add = f->add, decay = (float)f->decay;
    for (Py_ssize_t j = 0; j < n; j++) {
        p[j] -= rate * (m[j] * factor / (sqrtf(v[j]) + add) + decay * p[j]);
    }
}

static double rate_of(const Formula *f, double p_square, double other_square) {
    double p_norm = sqrt(p_square), other = sqrt(other_square);
    if (!f->adapt || !(p_norm > 0) || !(other > 0)) {
        return f->rate;
    }
    if (f->lamb) {
        return f->rate * p_norm / other;
    }
    return f->rate * f->coeff * p_norm / (other + f->decay * p_norm + f->epsilon);
}

/* The number of elements per thread, in whole cache lines. */
static Py_ssize_t share_of(Py_ssize_t n, int threads) { return (n / threads / LANES + 1) * LANES; }

/* The first pass over elements [from, to) of a row. */
static void look(const Formula *f, const Row *row, Py_ssize_t from, Py_ssize_t to, float *d,
                 double *sums) {
    Py_ssize_t n = to - from;
    if (f->lamb) {
        advance(row->p + from, row->g + from, row->a + from, row->b + from,
                d, n, f, sums);
    } else if (f->adapt) {
        sum_squares(row->p + from, row->g + from, n, sums);
    }
}

/* The second pass. */
static void change(const Formula *f, const Row *row, Py_ssize_t from, Py_ssize_t to, const float *d,
                   double rate) {
    Py_ssize_t n = to - from;
    if (!f->lamb) {
        descend(row->p + from, row->g + from, row->a + from, n, f->mu, (float)rate,
                (float)f->decay);
    } else if (d != NULL) {
        follow(row->p + from, d, n, (float)rate);
    } else {
        follow_again(row->p + from, row->a + from, row->b + from, n, f, (float)rate);
    }
}

static void run(Work *work, int thread) {
    const Formula *f = work->f;
    for (Py_ssize_t i = 0; i < work->count; i++) {
        const Row *row = &work->rows[i];
        float *d = NULL;
        if (f->lamb && row->n <= LARGEST) {
            d = work->direction + thread * work->area;
        }
        if (row->n < SMALL || work->threads == 1) {
            if (i % work->threads == thread) {
                double sums[2] = {0, 0};
                look(f, row, 0, row->n, d, sums);
                change(f, row, 0, row->n, d, rate_of(f, sums[0], sums[1]));
            }
            continue;
        }
        Py_ssize_t share = share_of(row->n, work->threads);
        Py_ssize_t from = share * thread < row->n ? share * thread : row->n;
        Py_ssize_t to = from + share < row->n ? from + share : row->n;
        double(*sums)[2] = work->sums + i * work->threads;
        look(f, row, from, to, d, sums[thread]);
        pthread_barrier_wait(&work->barrier);
        double total[2] = {0, 0};
        for (int t = 0; t < work->threads; t++) {
            total[0] += sums[t][0];
            total[1] += sums[t][1];
        }
        change(f, row, from, to, d, rate_of(f, total[0], total[1]));
    }
}

typedef struct {
    Work *work;
    int thread;
} Share;

static void *run_share(void *argument) {
    Share *share = argument;
    pthread_mutex_lock(&share->work->begin);
    int runs = share->thread < share->work->threads;
    pthread_mutex_unlock(&share->work->begin);
    if (runs) {
        run(share->work, share->thread);
    }
    return NULL;
}

/* Memory for directions is kept between calls, guarded by the GIL. */
static float *spare;
static size_t spare_size;

static float *take_memory(size_t size) {
    float *memory = spare;
    if (memory != NULL && spare_size >= size) {
        spare = NULL;
        return memory;
    }
    void *fresh;
    if (posix_memalign(&fresh, 64, size) != 0) {
        return NULL;
    }
    return fresh;
}

static void give_memory(float *memory, size_t size) {
    if (spare != NULL && spare_size >= size) {
        free(memory);
        return;
    }
    free(spare);
    spare = memory;
    spare_size = size;
}

/* Run on as many threads as the system grants, up to work->threads. */
static void run_all(Work *work) {
    pthread_t threads[MOST_THREADS];
    Share shares[MOST_THREADS];
    int started = 1;
    pthread_mutex_lock(&work->begin);
    for (; started < work->threads; started++) {
        shares[started] = (Share){work, started};
        if (pthread_create(&threads[started], NULL, run_share, &shares[started]) != 0) {
            break;
        }
    }
    work->threads = started;
    int meets = pthread_barrier_init(&work->barrier, NULL, (unsigned)started) == 0;
    if (!meets) {
        work->threads = 1;
    }
    pthread_mutex_unlock(&work->begin);
    run(work, 0);
    for (int t = 1; t < started; t++) {
        pthread_join(threads[t], NULL);
    }
    if (meets) {
        pthread_barrier_destroy(&work->barrier);
    }
}

/* Read tuples of addresses and a count; NULL with an exception if they are invalid. */
static Row *take_rows(PyObject *list, int tensors, Py_ssize_t *count, Py_ssize_t *longest) {
    PyObject *fast = PySequence_Tuple(list);
    if (fast == NULL) {
        return NULL;
    }
    *count = PyTuple_Size(fast);
    *longest = 0;
    Row *rows = PyMem_Calloc((size_t)*count + 1, sizeof(Row));
    if (rows == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; rows != NULL && i < *count; i++) {
        unsigned long long at[4] = {0, 0, 0, 0};
        PyObject *item = PyTuple_GetItem(fast, i);
        const char *kind = tensors == 3 ? "nKKK" : "nKKKK";
        int taken = PyTuple_Check(item) &&
                    PyArg_ParseTuple(item, kind, &rows[i].n, &at[0], &at[1], &at[2], &at[3]);
        if (!taken || rows[i].n < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError, "rows must be tuples of a count and addresses.");
            }
            PyMem_Free(rows);
            rows = NULL;
            break;
        }
        rows[i].p = (float *)(uintptr_t)at[0];
        rows[i].g = (const float *)(uintptr_t)at[1];
        rows[i].a = (float *)(uintptr_t)at[2];
        rows[i].b = (float *)(uintptr_t)at[3];
        if (rows[i].n > *longest) {
            *longest = rows[i].n;
        }
    }
    Py_DECREF(fast);
    return rows;
}

static PyObject *update(PyObject *list, const Formula *f, int threads) {
    Work work = {.f = f, .threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads};
    Py_ssize_t longest;
    Row *rows = take_rows(list, f->lamb ? 4 : 3, &work.count, &longest);
    if (rows == NULL) {
        return NULL;
    }
    size_t size = 0;
    work.rows = rows;
    work.sums = PyMem_Calloc((size_t)(work.count * work.threads + 1), sizeof(*work.sums));
    if (f->lamb) {
        /* For any number of threads up to the requested one: the system may grant fewer. */
        work.area = share_of(longest > LARGEST ? LARGEST : longest, 1);
        work.area = work.area < SMALL ? SMALL : work.area;
        size = sizeof(float) * (size_t)(work.area * work.threads);
        work.direction = take_memory(size);
    }
    int ready = work.sums != NULL && (size == 0 || work.direction != NULL);
    if (ready) {
        Py_BEGIN_ALLOW_THREADS
        if (work.threads == 1) {
            run(&work, 0);
        } else {
            pthread_mutex_init(&work.begin, NULL);
            run_all(&work);
            pthread_mutex_destroy(&work.begin);
        }
        Py_END_ALLOW_THREADS
    }
    if (work.direction != NULL) {
        give_memory(work.direction, size);
    }
    PyMem_Free(work.sums);
    PyMem_Free(rows);
    if (!ready) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

static PyObject *lars(PyObject *module, PyObject *arguments) {
    PyObject *list;
    Formula f = {.lamb = 0};
    double mu;
    int threads;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Odddddpi", &list, &f.rate, &mu, &f.coeff, &f.decay,
                          &f.epsilon, &f.adapt, &threads)) {
        return NULL;
    }
    f.mu = (float)mu;
    return update(list, &f, threads);
}

static PyObject *lamb(PyObject *module, PyObject *arguments) {
    PyObject *list;
    Formula f = {.lamb = 1};
    double beta1, beta2, factor, add;
    int threads;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Oddddddpi", &list, &f.rate, &beta1, &beta2, &factor, &add,
                          &f.decay, &f.adapt, &threads)) {
        return NULL;
    }
    f.beta1 = (float)beta1;
    f.rest1 = (float)(1 - beta1);
    f.beta2 = (float)beta2;
    f.rest2 = (float)(1 - beta2);
    f.factor = (float)factor;
    f.add = (float)add;
    return update(list, &f, threads);
}

static PyMethodDef methods[] = {
    {"lars", lars, METH_VARARGS,
     "lars(rows, rate, mu, coeff, decay, epsilon, adapt, threads)\n\n"
     "Update parameters; rows are tuples (elements, parameter, gradient, velocity)."},
    {"lamb", lamb, METH_VARARGS,
     "lamb(rows, rate, beta1, beta2, factor, add, decay, adapt, threads)\n\n"
     "Update parameters; rows are tuples (elements, parameter, gradient, moment, moment)."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_layerwise",
    .m_doc = "LARS and LAMB on tensors in memory.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__layerwise(void) { return PyModule_Create(&definition); }
