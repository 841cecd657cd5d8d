/* The common parts of the extension modules: arguments as arrays, one lock per object, one hash.
 *
 * Objects may be used by several threads: every method that touches an object holds its lock. Long
 * calls release the GIL; short ones keep it, since acquiring it again can take longer than they do.
 */
#ifndef FLEETX_PS_COMMON_H
#define FLEETX_PS_COMMON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "_glibc.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Calls on at least this many elements let other Python threads run. */
#define LONG_CALL 16384
/* The prefetch distance in elements. */
#define AHEAD 16

/* Loops that wider registers make faster; every variant gives the same bits, since none of them
 * fuses a multiplication and an addition. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* The final steps of splitmix64: every bit of the input affects every bit of the result. */
static inline uint64_t mix64(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Map a hash to 0 .. range-1 without division. */
static inline uint64_t reduce64(uint64_t hash, uint64_t range) {
    return (uint64_t)(((unsigned __int128)hash * range) >> 64);
}

/* Reject misaligned memory: loops over it are compiled for aligned numbers only. */
static inline int check_alignment(const Py_buffer *view, size_t size, const char *name) {
    if (view->len == 0 || (uintptr_t)view->buf % size == 0) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s must begin at a multiple of %zu bytes in memory.", name,
                 size);
    return -1;
}

/* Take a contiguous array of 64-bit integers, or of doubles if `kinds` says so. */
static inline int take_array(PyObject *object, Py_buffer *view, int writable, const char *kinds,
                             const char *name) {
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0) {
        return -1;
    }
    const char *format = view->format == NULL ? "B" : view->format;
    if (*format == '@' || *format == '=' || *format == '<') {
        format++;
    }
    if (view->itemsize != 8 || format[0] == '\0' || format[1] != '\0' ||
        strchr(kinds, format[0]) == NULL) {
        PyErr_Format(PyExc_TypeError, "%s must be an array of 64-bit %s, not of format '%s'.", name,
                     kinds[0] == 'd' ? "floating-point numbers" : "integers",
                     view->format == NULL ? "B" : view->format);
        PyBuffer_Release(view);
        return -1;
    }
    if (check_alignment(view, 8, name) < 0) {
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

/* Free an object of a type created by PyType_FromSpec. */
static inline void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static inline int take_ids(PyObject *object, Py_buffer *view, int writable, const char *name) {
    return take_array(object, view, writable, "lq", name);
}

static inline int same_length(const Py_buffer *first, const Py_buffer *second, const char *names) {
    if (first->len == second->len) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s must have equal lengths, not %zd and %zd bytes.", names,
                 first->len, second->len);
    return -1;
}

/* Wait for an object's lock; other Python threads, such as its holder, run meanwhile. */
static inline void hold(PyThread_type_lock lock) {
    if (PyThread_acquire_lock(lock, NOWAIT_LOCK)) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS
}

#define BEGIN_LONG(count) \
    { \
        PyThreadState *_saved = (count) >= LONG_CALL ? PyEval_SaveThread() : NULL;
#define END_LONG \
        if (_saved != NULL) { \
            PyEval_RestoreThread(_saved); \
        } \
    }

#endif
