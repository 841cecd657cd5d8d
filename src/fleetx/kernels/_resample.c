/* Resizing, mirroring and normalising of a part of an image in one pass.
 *
 * Pixels are bytes in R, G, B order, row by row; the result is single precision, plane by plane. The
 * filter is a triangle of the width of an output pixel in the source (at least that of a source
 * pixel), as in Pillow's BILINEAR. Rows are weighted first, with one weight per row;
 * pixels of the weighted row are then summed four values at a time, ignoring the fourth.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FAST __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FAST
#endif

typedef float Four __attribute__((vector_size(16)));

/* The source pixels of an output pixel along one side: `taps` weights from `first`. */
typedef struct {
    int taps;
    int *first;
    float *weight;
} Filter;

typedef struct {
    const unsigned char *pixels;
    Py_ssize_t stride; /* bytes from row to row */
    int width, height;
} Source;

static void filter_free(Filter *f)
{
    free(f->first);
    free(f->weight);
}

/* Source pixels are 0..size-1; the `count` output pixels are adjacent, starting at `start`. */
static int filter_make(Filter *f, int size, double start, double length, int count)
{
    double step = length / count, reach = step > 1 ? step : 1;
    f->taps = (int)ceil(2 * reach);
    f->first = malloc(count * sizeof *f->first);
    f->weight = calloc((size_t)count * f->taps, sizeof *f->weight);
    if (!f->first || !f->weight)
        return -1;
    for (int i = 0; i < count; i++) {
        double middle = start + (i + 0.5) * step, sum = 0;
        int low = (int)(middle - reach + 0.5), high = (int)(middle + reach + 0.5);
        float *weight = f->weight + (size_t)i * f->taps;
        low = low < 0 ? 0 : low > size - 1 ? size - 1 : low;
        high = high > size ? size : high;
        high = high <= low ? low + 1 : high > low + f->taps ? low + f->taps : high;
        f->first[i] = low;
        for (int k = low; k < high; k++) {
            double away = (k + 0.5 - middle) / reach, w = 1 - (away < 0 ? -away : away);
            weight[k - low] = w > 0 ? (float)w : 0;
            sum += weight[k - low];
        }
        if (sum == 0) /* a box outside the source: its nearest pixel */
            weight[0] = (float)(sum = 1);
        for (int k = 0; k < high - low; k++)
            weight[k] /= (float)sum;
    }
    return 0;
}

/* Sum rows of the source by weight; two at a time halves the traffic with the result. */
FAST static void weigh_rows(const Source *s, const float *weight, int first, int taps,
                            float *restrict row)
{
    int n = 3 * s->width;
    while (taps > 1 && weight[taps - 1] == 0)
        taps--;
    for (int k = 0; k < taps; k += 2) {
        const unsigned char *restrict a = s->pixels + (first + k) * s->stride;
        const unsigned char *restrict b = k + 1 < taps ? a + s->stride : a;
        float wa = weight[k], wb = k + 1 < taps ? weight[k + 1] : 0;
        if (k == 0)
            for (int i = 0; i < n; i++)
                row[i] = wa * a[i] + wb * b[i];
        else
            for (int i = 0; i < n; i++)
                row[i] += wa * a[i] + wb * b[i];
    }
}

/* One row of the result: sum pixels of the weighted row, split colours into planes. */
typedef struct {
    const float *row;
    const Filter *filter;
    int count, flip;
    Four scale, shift;
    float *plane[3];
} Line;

/* `taps` is a constant at the call, which unrolls the loop over them. */
static inline __attribute__((always_inline)) void weigh_taps(const Line *line, int taps)
{
    const float *weight = line->filter->weight;
    const int *first = line->filter->first;
    float *restrict red = line->plane[0], *restrict green = line->plane[1];
    float *restrict blue = line->plane[2];
    int at = line->flip ? line->count - 1 : 0, on = line->flip ? -1 : 1;
    for (int i = 0; i < line->count; i++, at += on, weight += taps) {
        const float *p = line->row + 3 * first[i];
        Four sum = {0, 0, 0, 0}, four;
        for (int k = 0; k < taps; k++) {
            memcpy(&four, p + 3 * k, sizeof four);
            sum += weight[k] * four;
        }
        sum = sum * line->scale + line->shift;
        red[at] = sum[0];
        green[at] = sum[1];
        blue[at] = sum[2];
    }
}

FAST static void weigh_pixels(const Line *line)
{
    switch (line->filter->taps) {
    case 2: /* an enlarged part */
        weigh_taps(line, 2);
        break;
    case 3: /* most of the others */
        weigh_taps(line, 3);
        break;
    case 4:
        weigh_taps(line, 4);
        break;
    default:
        weigh_taps(line, line->filter->taps);
    }
}

static int resample(const Source *s, const double *box, float *out, int height, int width, int flip,
                    Four scale, Four shift)
{
    Filter across = {0}, down = {0};
    float *row = NULL;
    int failed = filter_make(&across, s->width, box[0], box[2], width) ||
                 filter_make(&down, s->height, box[1], box[3], height);
    if (!failed) /* beyond the row, weights are zero, but values must be finite */
        row = calloc((size_t)(s->width + across.taps) * 3 + 4, sizeof *row);
    if (row) {
        size_t plane = (size_t)height * width;
        for (int y = 0; y < height; y++) {
            float *to = out + (size_t)y * width;
            Line line = {row, &across, width, flip, scale, shift, {to, to + plane, to + 2 * plane}};
            weigh_rows(s, down.weight + (size_t)y * down.taps, down.first[y], down.taps, row);
            weigh_pixels(&line);
        }
    }
    failed = row == NULL;
    free(row);
    filter_free(&across);
    filter_free(&down);
    return failed ? -1 : 0;
}

/* The side of a picture; its products with small numbers fit into integers. */
static int is_length(Py_ssize_t side) { return side >= 1 && side <= 1 << 24; }

static int check(const Py_buffer *in, const Py_buffer *out, const double *box)
{
    if (in->ndim != 3 || in->itemsize != 1 || in->shape[2] != 3 || in->strides[2] != 1 ||
        in->strides[1] != 3 || !is_length(in->shape[0]) || !is_length(in->shape[1])) {
        PyErr_SetString(PyExc_ValueError, "pixels must be bytes [height, width, 3], row by row");
        return -1;
    }
    if (out->ndim != 3 || out->itemsize != 4 || out->format == NULL || strcmp(out->format, "f") ||
        (uintptr_t)out->buf % 4 != 0 || out->shape[0] != 3 || !is_length(out->shape[1]) ||
        !is_length(out->shape[2])) {
        PyErr_SetString(PyExc_ValueError, "out must be float32 [3, height, width]");
        return -1;
    }
    if (!(box[2] > 0 && box[3] > 0 && box[2] < 1e6 && box[3] < 1e6 && box[0] > -1e6 &&
          box[1] > -1e6 && box[0] < 1e6 && box[1] < 1e6)) {
        PyErr_SetString(PyExc_ValueError, "box must be (left, top, width, height) of some size");
        return -1;
    }
    return 0;
}

static PyObject *py_resample(PyObject *self, PyObject *args)
{
    PyObject *pixels, *target;
    Py_buffer in, out;
    double box[4];
    float m[3], a[3];
    int flip, failed;
    (void)self;
    if (!PyArg_ParseTuple(args, "O(dddd)Op(fff)(fff)", &pixels, &box[0], &box[1], &box[2], &box[3],
                          &target, &flip, &m[0], &m[1], &m[2], &a[0], &a[1], &a[2]))
        return NULL;
    if (PyObject_GetBuffer(pixels, &in, PyBUF_STRIDED_RO | PyBUF_FORMAT))
        return NULL;
    if (PyObject_GetBuffer(target, &out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT)) {
        PyBuffer_Release(&in);
        return NULL;
    }
    failed = check(&in, &out, box);
    if (!failed) {
        Source s = {in.buf, in.strides[0], (int)in.shape[1], (int)in.shape[0]};
        Four scale = {m[0], m[1], m[2], 0}, shift = {a[0], a[1], a[2], 0};
        Py_BEGIN_ALLOW_THREADS
        failed = resample(&s, box, out.buf, (int)out.shape[1], (int)out.shape[2], flip, scale,
                          shift);
        Py_END_ALLOW_THREADS
        if (failed)
            PyErr_NoMemory();
    }
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"resample", py_resample, METH_VARARGS,
     "resample(pixels, box, out, flip, scale, shift): write the part `box` (left, top, width, "
     "height) of the pixels to `out`, resized, times scale plus shift per colour."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_resample", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__resample(void) { return PyModule_Create(&module); }
