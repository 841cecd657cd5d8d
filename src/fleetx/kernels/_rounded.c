/* Rounding of single-precision numbers to 8 or 4 bits, one pass over memory per call.
 *
 * rounded_blocks.py describes messages, and has the fallback in torch. Both give the same bits:
 * every product, sum and quotient is rounded by itself.
 *
 * Addresses and counts come from tensors; the caller ensures that they are valid.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

#define BLOCK 256
/* Added and subtracted again, it rounds small numbers to the nearest integer, ties to even. */
#define ROUNDS 12582912.0f
#define LARGEST_FINITE 3.40282347e+38f

/* One block: values += more, if there are any; codes and the scale; values -= what codes mean. */
WIDE static float round_block(float *restrict values, const float *restrict more, int most,
                              uint8_t *restrict codes) {
    uint32_t largest = 0;
    if (more != NULL) {
        for (int i = 0; i < BLOCK; i++) {
            values[i] += more[i];
        }
    }
    for (int i = 0; i < BLOCK; i++) {
        /* The order of magnitudes is that of their bits, and NaN comes last. */
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        bits &= UINT32_C(0x7fffffff);
        largest = bits > largest ? bits : largest;
    }
    float scale;
    memcpy(&scale, &largest, sizeof(scale));
    scale /= (float)most;
    if (!(scale <= LARGEST_FINITE)) {
        const uint32_t nan = UINT32_C(0x7fc00000);
        memcpy(&scale, &nan, sizeof(scale));
    }
    float divisor = scale > 0 ? scale : 1.0f, bound = (float)most;
    for (int i = 0; i < BLOCK; i++) {
        float code = values[i] / divisor;
        code = code == code ? code : 0.0f;
        code = code < bound ? code : bound;
        code = code > -bound ? code : -bound;
        code = (code + ROUNDS) - ROUNDS;
        codes[i] = (uint8_t)((int32_t)code + most + 1);
        values[i] -= code * scale;
    }
    return scale;
}

WIDE static void pack_block(const uint8_t *restrict codes, uint8_t *restrict packed) {
    for (int i = 0; i < BLOCK / 2; i++) {
        packed[i] = (uint8_t)(codes[2 * i] | (codes[2 * i + 1] << 4));
    }
}

WIDE static void unpack_block(const uint8_t *restrict packed, uint8_t *restrict codes) {
    for (int i = 0; i < BLOCK / 2; i++) {
        codes[2 * i] = packed[i] & 15;
        codes[2 * i + 1] = packed[i] >> 4;
    }
}

WIDE static void add_block(float *restrict sum, const uint8_t *restrict codes, float scale,
                           int zero) {
    for (int i = 0; i < BLOCK; i++) {
        sum[i] += (float)((int32_t)codes[i] - zero) * scale;
    }
}

static void round_all(float *values, const float *more, Py_ssize_t count, int bits,
                      uint8_t *message) {
    const int most = (1 << (bits - 1)) - 1;
    const Py_ssize_t blocks = (count + BLOCK - 1) / BLOCK, size = BLOCK * bits / 8;
    uint8_t *packed = message + blocks * (Py_ssize_t)sizeof(float);
    for (Py_ssize_t b = 0; b < blocks; b++) {
        float part[BLOCK], other[BLOCK];
        uint8_t codes[BLOCK];
        float *own = values + b * BLOCK;
        const float *added = more == NULL ? NULL : more + b * BLOCK;
        const Py_ssize_t left = count - b * BLOCK;
        if (left < BLOCK) { /* the last block is filled up with zeros */
            memset(part, 0, sizeof(part));
            memcpy(part, own, (size_t)left * sizeof(float));
            if (added != NULL) {
                memset(other, 0, sizeof(other));
                memcpy(other, added, (size_t)left * sizeof(float));
                added = other;
            }
        }
        float scale = round_block(left < BLOCK ? part : own, added, most,
                                  bits == 8 ? packed + b * size : codes);
        if (left < BLOCK) {
            memcpy(own, part, (size_t)left * sizeof(float));
        }
        if (bits == 4) {
            pack_block(codes, packed + b * size);
        }
        memcpy(message + b * (Py_ssize_t)sizeof(float), &scale, sizeof(scale));
    }
}

static void add_all(float *sum, Py_ssize_t count, int bits, const uint8_t *const *messages,
                    Py_ssize_t number) {
    const Py_ssize_t blocks = (count + BLOCK - 1) / BLOCK, size = BLOCK * bits / 8;
    for (Py_ssize_t b = 0; b < blocks; b++) {
        float part[BLOCK] = {0};
        for (Py_ssize_t m = 0; m < number; m++) {
            const uint8_t *codes = messages[m] + blocks * (Py_ssize_t)sizeof(float) + b * size;
            uint8_t unpacked[BLOCK];
            float scale;
            memcpy(&scale, messages[m] + b * (Py_ssize_t)sizeof(float), sizeof(scale));
            if (bits == 4) {
                unpack_block(codes, unpacked);
                codes = unpacked;
            }
            add_block(part, codes, scale, 1 << (bits - 1));
        }
        const Py_ssize_t left = count - b * BLOCK;
        memcpy(sum + b * BLOCK, part, (size_t)(left < BLOCK ? left : BLOCK) * sizeof(float));
    }
}

static int check(Py_ssize_t count, int bits) {
    if (count >= 0 && (bits == 8 || bits == 4)) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "cannot round %zd numbers to %d bits, only to 8 or 4.", count,
                 bits);
    return -1;
}

static PyObject *round_values(PyObject *module, PyObject *arguments) {
    unsigned long long values, more, message;
    Py_ssize_t count;
    int bits;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "KKniK", &values, &more, &count, &bits, &message) ||
        check(count, bits) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    round_all((float *)(uintptr_t)values, (const float *)(uintptr_t)more, count, bits,
              (uint8_t *)(uintptr_t)message);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *add_messages(PyObject *module, PyObject *arguments) {
    unsigned long long sum;
    Py_ssize_t count;
    int bits;
    PyObject *list;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "KniO", &sum, &count, &bits, &list) ||
        check(count, bits) < 0) {
        return NULL;
    }
    PyObject *fast = PySequence_Tuple(list);
    if (fast == NULL) {
        return NULL;
    }
    const Py_ssize_t number = PyTuple_Size(fast);
    const uint8_t **messages = PyMem_Calloc((size_t)number + 1, sizeof(*messages));
    if (messages == NULL) {
        Py_DECREF(fast);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t m = 0; m < number; m++) {
        unsigned long long address = PyLong_AsUnsignedLongLong(PyTuple_GetItem(fast, m));
        messages[m] = (const uint8_t *)(uintptr_t)address;
    }
    Py_DECREF(fast);
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        add_all((float *)(uintptr_t)sum, count, bits, messages, number);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(messages);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"round_values", round_values, METH_VARARGS,
     "round_values(values, more, count, bits, message)\n\n"
     "Add `more` (0: nothing) to values, write their message, keep what it loses in values."},
    {"add_messages", add_messages, METH_VARARGS,
     "add_messages(sum, count, bits, messages)\n\n"
     "Set `sum` to the sum of what messages stand for, added in their order."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_rounded",
    .m_doc = "Numbers rounded to 8 or 4 bits.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__rounded(void) { return PyModule_Create(&definition); }
