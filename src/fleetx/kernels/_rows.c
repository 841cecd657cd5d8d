/* A store of rows of fixed size (`_row_store.h`), and random numbers by id.
 *
 * A row is a record of bytes: a parameter's row followed by its optimizer state. `gather` and
 * `scatter` copy one field of many rows, `add` adds to it, `update` is an optimizer's step
 * (`_row_updates.h`); the following rows are prefetched. `add_rows` does the same as `add` for an
 * ordinary array.
 */
#include "_row_store.h"
#include "_row_updates.h"

#include <math.h>

/* A newer log exists only in glibc 2.29; both compute the same. */
LOADS_ON_OLDER_SYSTEMS(log)

static void store_dealloc(RowStore *self) {
    free_blocks(self);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    free_object((PyObject *)self);
}

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"record", "block", NULL};
    Py_ssize_t record, block = BLOCK_BYTES;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|n:RowStore", names, &record, &block)) {
        return NULL;
    }
    if (record < 1 || record > (Py_ssize_t)1 << 28) {
        return PyErr_Format(PyExc_ValueError, "a row cannot have %zd bytes.", record);
    }
    if (block < 1 || block > (Py_ssize_t)1 << 28) {
        return PyErr_Format(PyExc_ValueError, "a block cannot have %zd bytes.", block);
    }
    RowStore *self = (RowStore *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->file = -1;
    self->record = (size_t)record;
    while (((size_t)2 << self->shift) * self->record <= (size_t)block) {
        self->shift++;
    }
    self->block_size = PAGES_SIZE(((size_t)1 << self->shift) * self->record);
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static PyObject *finish_growth(const RowStore *self, int error) {
    if (error == 0) {
        return Py_NewRef(Py_None);
    }
    if (error == ENOMEM) {
        return PyErr_NoMemory();
    }
    errno = error;
    return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, self->path);
}

static PyObject *store_grow(RowStore *self, PyObject *object) {
    const unsigned long long rows = PyLong_AsUnsignedLongLong(object);
    if (rows == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (rows > (unsigned long long)UINT32_MAX) {
        return PyErr_Format(PyExc_ValueError, "a store cannot have %llu rows.", rows);
    }
    hold(self->lock);
    const size_t wanted = (size_t)((rows + ((uint64_t)1 << self->shift) - 1) >> self->shift);
    const int error = grow_blocks(self, wanted);
    PyThread_release_lock(self->lock);
    return finish_growth(self, error);
}

static PyObject *store_spill(RowStore *self, PyObject *args) {
    int file;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "iO:spill", &file, &path)) {
        return NULL;
    }
    int error = 0;
    hold(self->lock);
    const int possible = self->file < 0 && self->block_count > 0;
    if (possible) {
        Py_XDECREF(self->path); /* of a file that could not be used */
        self->path = Py_NewRef(path);
        error = begin_file(self, file);
    }
    PyThread_release_lock(self->lock);
    if (!possible) {
        PyErr_SetString(PyExc_RuntimeError, "a store with rows in memory takes one file.");
        return NULL;
    }
    return finish_growth(self, error);
}

/* The arguments of gather, scatter and add, validated except for the row numbers. */
typedef struct {
    Py_buffer rows, values;
    size_t offset, width;
    Py_ssize_t count;
    double scale; /* of add */
} Copy;

/* `format` describes the arguments of the calling method. */
static int take_copy(RowStore *self, PyObject *args, const char *format, Copy *copy, int writable) {
    PyObject *rows_object, *values_object;
    Py_ssize_t offset, width;
    if (!PyArg_ParseTuple(args, format, &rows_object, &offset, &width, &values_object,
                          &copy->scale)) {
        return -1;
    }
    if (offset < 0 || width < 1 || (size_t)offset > self->record ||
        (size_t)width > self->record - (size_t)offset) {
        PyErr_Format(PyExc_ValueError, "bytes %zd to %zd + %zd are outside a row of %zu bytes.",
                     offset, offset, width, self->record);
        return -1;
    }
    if (take_ids(rows_object, &copy->rows, 0, "rows") < 0) {
        return -1;
    }
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(values_object, &copy->values, flags) < 0) {
        PyBuffer_Release(&copy->rows);
        return -1;
    }
    copy->offset = (size_t)offset;
    copy->width = (size_t)width;
    copy->count = copy->rows.len / 8;
    if (copy->values.len % width != 0 || copy->values.len / width != copy->count) {
        PyErr_Format(PyExc_ValueError, "%zd rows of %zd bytes do not make %zd bytes.", copy->count,
                     width, copy->values.len);
        PyBuffer_Release(&copy->rows);
        PyBuffer_Release(&copy->values);
        return -1;
    }
    return 0;
}

static PyObject *finish_copy(Copy *copy, int bad) {
    PyBuffer_Release(&copy->rows);
    PyBuffer_Release(&copy->values);
    if (bad) {
        PyErr_SetString(PyExc_IndexError, "a row number is outside the store.");
        return NULL;
    }
    return Py_NewRef(Py_None);
}

/* The highest row is checked before anything is copied: all or nothing. */
static int rows_fit(const Copy *copy, int64_t lowest, uint64_t limit) {
    const int64_t *row = copy->rows.buf;
    int fit = 1;
    for (Py_ssize_t i = 0; i < copy->count; i++) {
        fit &= row[i] >= lowest && (row[i] < 0 || (uint64_t)row[i] < limit);
    }
    return fit;
}

static inline void prefetch_field(const RowStore *self, const Copy *copy, Py_ssize_t i) {
    const int64_t *row = copy->rows.buf;
    if (i < copy->count && row[i] >= 0) {
        prefetch_row(self, (uint64_t)row[i], copy->offset, copy->width);
    }
}

/* Check row numbers and begin to fetch the first rows; returns whether a number is invalid. */
static int begin_copy(RowStore *self, const Copy *copy, int64_t lowest) {
    if (!rows_fit(copy, lowest, row_limit(self))) {
        return 1;
    }
    announce_rows(self, copy->rows.buf, copy->count);
    for (Py_ssize_t i = 0; i < AHEAD; i++) {
        prefetch_field(self, copy, i);
    }
    return 0;
}

static PyObject *store_gather(RowStore *self, PyObject *args) {
    Copy copy;
    if (take_copy(self, args, "OnnO:gather", &copy, 1) < 0) {
        return NULL;
    }
    const int64_t *row = copy.rows.buf;
    uint8_t *out = copy.values.buf;
    const size_t width = copy.width;
    int bad;
    hold(self->lock);
    BEGIN_LONG(copy.count)
    bad = begin_copy(self, &copy, -1);
    for (Py_ssize_t i = 0; i < copy.count && !bad; i++) {
        prefetch_field(self, &copy, i + AHEAD);
        if (row[i] < 0) {
            memset(out + (size_t)i * width, 0, width);
        } else {
            memcpy(out + (size_t)i * width, row_to_read(self, (uint64_t)row[i]) + copy.offset,
                   width);
        }
    }
    END_LONG
    PyThread_release_lock(self->lock);
    return finish_copy(&copy, bad);
}

static PyObject *store_scatter(RowStore *self, PyObject *args) {
    Copy copy;
    if (take_copy(self, args, "OnnO:scatter", &copy, 0) < 0) {
        return NULL;
    }
    const int64_t *row = copy.rows.buf;
    const uint8_t *values = copy.values.buf;
    const size_t width = copy.width;
    int bad;
    hold(self->lock);
    BEGIN_LONG(copy.count)
    bad = begin_copy(self, &copy, 0);
    for (Py_ssize_t i = 0; i < copy.count && !bad; i++) {
        prefetch_field(self, &copy, i + AHEAD);
        memcpy(row_to_change(self, (uint64_t)row[i]) + copy.offset, values + (size_t)i * width,
               width);
    }
    END_LONG
    PyThread_release_lock(self->lock);
    return finish_copy(&copy, bad);
}

/* 4 or 8 for an array of floats or doubles, else 0 and an error. */
static size_t number_size(const Py_buffer *view, const char *name) {
    const char *format = view->format == NULL ? "B" : view->format;
    if (*format == '@' || *format == '=' || *format == '<') {
        format++;
    }
    if ((format[0] == 'f' || format[0] == 'd') && format[1] == '\0') {
        const size_t size = format[0] == 'f' ? 4 : 8;
        return check_alignment(view, size, name) < 0 ? 0 : size;
    }
    PyErr_Format(PyExc_TypeError, "%s must be float32 or float64, not of format '%s'.", name,
                 view->format == NULL ? "B" : view->format);
    return 0;
}

static inline void add_scaled(void *into, const void *from, size_t bytes, size_t number,
                              double scale) {
    if (number == 4) {
        float *a = into;
        const float *b = from, by = (float)scale;
        for (size_t i = 0; i < bytes / 4; i++) {
            a[i] += by * b[i];
        }
    } else {
        double *a = into;
        const double *b = from;
        for (size_t i = 0; i < bytes / 8; i++) {
            a[i] += scale * b[i];
        }
    }
}

static PyObject *store_add(RowStore *self, PyObject *args) {
    Copy copy;
    if (take_copy(self, args,
                  "OnnOd;add needs rows, offset, width, values and scale, a number", &copy, 0) < 0) {
        return NULL;
    }
    size_t number = number_size(&copy.values, "values");
    if (number != 0 && (copy.offset % number != 0 || self->record % number != 0 ||
                        copy.width % number != 0)) {
        PyErr_SetString(PyExc_ValueError, "a field of numbers must consist of whole ones.");
        number = 0;
    }
    if (number == 0) {
        PyBuffer_Release(&copy.rows);
        PyBuffer_Release(&copy.values);
        return NULL;
    }
    const int64_t *row = copy.rows.buf;
    const uint8_t *values = copy.values.buf;
    int bad;
    hold(self->lock);
    BEGIN_LONG(copy.count)
    bad = begin_copy(self, &copy, 0);
    for (Py_ssize_t i = 0; i < copy.count && !bad; i++) {
        prefetch_field(self, &copy, i + AHEAD);
        add_scaled(row_to_change(self, (uint64_t)row[i]) + copy.offset,
                   values + (size_t)i * copy.width, copy.width, number, copy.scale);
    }
    END_LONG
    PyThread_release_lock(self->lock);
    return finish_copy(&copy, bad);
}

/* Take the settings of an update; returns 0, or -1 with an error set. */
static int take_settings(PyObject *object, Rule rule, double *settings) {
    Py_buffer given;
    if (take_array(object, &given, 0, "d", "settings") < 0) {
        return -1;
    }
    const int fits = given.len == RULE_SETTINGS[rule] * 8;
    if (fits) {
        memcpy(settings, given.buf, (size_t)given.len);
    } else {
        PyErr_Format(PyExc_ValueError, "%s has %zd settings, not %zd.", RULE_NAMES[rule],
                     RULE_SETTINGS[rule], given.len / 8);
    }
    PyBuffer_Release(&given);
    return fits ? 0 : -1;
}

static PyObject *store_update(RowStore *self, PyObject *args) {
    const char *name;
    PyObject *rows_object, *grads_object, *settings_object;
    if (!PyArg_ParseTuple(args, "sOOO:update", &name, &rows_object, &grads_object,
                          &settings_object)) {
        return NULL;
    }
    Rule rule = ADAGRAD;
    while (rule < RULES && strcmp(name, RULE_NAMES[rule]) != 0) {
        rule++;
    }
    if (rule == RULES) {
        return PyErr_Format(PyExc_ValueError, "there is no update %s of rows.", name);
    }
    Update update = {.store = self};
    if (take_settings(settings_object, rule, update.settings) < 0) {
        return NULL;
    }
    Copy copy = {0};
    if (take_ids(rows_object, &copy.rows, 0, "rows") < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(grads_object, &copy.values, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyBuffer_Release(&copy.rows);
        return NULL;
    }
    const size_t number = number_size(&copy.values, "grads");
    copy.count = copy.rows.len / 8;
    copy.width = self->record;
    if (number != 0 && copy.count > 0) {
        update.columns = (size_t)copy.values.len / number / (size_t)copy.count;
    }
    const int whole = update.columns * number * (size_t)copy.count == (size_t)copy.values.len &&
                      (copy.count == 0 ||
                       record_numbers(rule, update.columns, update.settings) * number ==
                           self->record);
    int bad = 0;
    if (number != 0 && !whole) {
        PyErr_Format(PyExc_ValueError, "%zd rows of %zu bytes cannot have gradients of %zd bytes.",
                     copy.count, self->record, copy.values.len);
    } else if (number != 0) {
        update.rows = copy.rows.buf;
        update.grads = copy.values.buf;
        update.count = copy.count;
        hold(self->lock);
        BEGIN_LONG(copy.count)
        bad = begin_copy(self, &copy, 0);
        if (!bad) {
            update_rows(rule, number, &update);
        }
        END_LONG
        PyThread_release_lock(self->lock);
    }
    if (number == 0 || !whole) {
        PyBuffer_Release(&copy.rows);
        PyBuffer_Release(&copy.values);
        return NULL;
    }
    return finish_copy(&copy, bad);
}

static PyObject *store_differ(RowStore *self, PyObject *object) {
    Copy copy = {0};
    if (take_ids(object, &copy.rows, 0, "rows") < 0) {
        return NULL;
    }
    copy.count = copy.rows.len / 8;
    int bad, differ = 0;
    hold(self->lock);
    const int full = grow_marks(self) < 0;
    BEGIN_LONG(copy.count)
    bad = !rows_fit(&copy, 0, row_limit(self));
    if (!bad && !full) {
        differ = rows_differ(self, copy.rows.buf, copy.count);
    }
    END_LONG
    PyThread_release_lock(self->lock);
    PyBuffer_Release(&copy.rows);
    if (bad) {
        PyErr_SetString(PyExc_IndexError, "a row number is outside the store.");
        return NULL;
    }
    return full ? PyErr_NoMemory() : PyBool_FromLong(differ);
}

static PyObject *store_limit(RowStore *self, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(row_limit(self));
}

static PyObject *store_block(RowStore *self, void *closure) {
    (void)closure;
    return PyLong_FromSize_t(self->block_size);
}

static PyObject *store_has_file(RowStore *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->file >= 0);
}

static PyMethodDef store_methods[] = {
    {"grow", (PyCFunction)store_grow, METH_O, "grow(n): have room for n rows; new ones are zero."},
    {"spill", (PyCFunction)store_spill, METH_VARARGS,
     "spill(file, path): keep the rows so far in memory and as many others in this open file."},
    {"gather", (PyCFunction)store_gather, METH_VARARGS,
     "gather(rows, offset, width, out): copy a field of rows; a row of -1 gives zeros."},
    {"scatter", (PyCFunction)store_scatter, METH_VARARGS,
     "scatter(rows, offset, width, values): set a field of rows."},
    {"add", (PyCFunction)store_add, METH_VARARGS,
     "add(rows, offset, width, values, scale): add scaled numbers to a field of rows, in order."},
    {"differ", (PyCFunction)store_differ, METH_O, "differ(rows): whether no row occurs twice."},
    {"update", (PyCFunction)store_update, METH_VARARGS,
     "update(rule, rows, grads, settings): update distinct rows, and the state behind them."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef store_getset[] = {
    {"limit", (getter)store_limit, NULL, "There is room for this many rows.", NULL},
    {"block", (getter)store_block, NULL, "The bytes by which the store grows.", NULL},
    {"has_file", (getter)store_has_file, NULL, "Whether further rows are in a file.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot store_slots[] = {
    {Py_tp_new, store_new},
    {Py_tp_dealloc, store_dealloc},
    {Py_tp_methods, store_methods},
    {Py_tp_getset, store_getset},
    {Py_tp_doc, "RowStore(record, block): rows of `record` bytes, in blocks of `block` bytes."},
    {0, NULL},
};

static PyType_Spec store_spec = {
    .name = "fleetx.kernels._rows.RowStore",
    .basicsize = sizeof(RowStore),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = store_slots,
};

/* -- ordinary arrays -------------------------------------------------------------------------- */
static PyObject *add_rows(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *rows_object, *values_object, *out_object;
    Py_buffer rows, values, out;
    if (!PyArg_ParseTuple(args, "OOO:add_rows", &rows_object, &values_object, &out_object)) {
        return NULL;
    }
    if (take_ids(rows_object, &rows, 0, "rows") < 0) {
        return NULL;
    }
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
    if (PyObject_GetBuffer(values_object, &values, flags) < 0) {
        PyBuffer_Release(&rows);
        return NULL;
    }
    if (PyObject_GetBuffer(out_object, &out, flags | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&rows);
        PyBuffer_Release(&values);
        return NULL;
    }
    PyObject *result = NULL;
    const Py_ssize_t count = rows.len / 8;
    const size_t number = number_size(&values, "values");
    const size_t same = number == 0 ? 0 : number_size(&out, "out");
    const size_t width = count == 0 ? 0 : (size_t)(values.len / count);
    if (number == 0 || same == 0) {
        /* the error is set */
    } else if (number != same || (count > 0 && (values.len % count != 0 || width % number != 0)) ||
               (width > 0 && (size_t)out.len % width != 0)) {
        PyErr_Format(PyExc_ValueError, "%zd rows in %zd bytes do not fit %zd bytes.", count,
                     values.len, out.len);
    } else {
        const int64_t *row = rows.buf, limit = width == 0 ? 0 : (int64_t)((size_t)out.len / width);
        const uint8_t *from = values.buf;
        uint8_t *into = out.buf;
        int fit = 1;
        BEGIN_LONG(count)
        for (Py_ssize_t i = 0; i < count && width > 0; i++) {
            fit &= row[i] >= 0 && row[i] < limit;
        }
        for (Py_ssize_t i = 0; i < count && width > 0 && fit; i++) {
            add_scaled(into + (size_t)row[i] * width, from + (size_t)i * width, width, number, 1.0);
        }
        END_LONG
        if (fit) {
            result = Py_NewRef(Py_None);
        } else {
            PyErr_SetString(PyExc_IndexError, "a row number is outside the array.");
        }
    }
    PyBuffer_Release(&rows);
    PyBuffer_Release(&values);
    PyBuffer_Release(&out);
    return result;
}

/* -- random numbers --------------------------------------------------------------------------- */
static PyObject *uniform(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long seed;
    PyObject *ids_object, *out_object;
    Py_buffer ids, out;
    if (!PyArg_ParseTuple(args, "KOO:uniform", &seed, &ids_object, &out_object)) {
        return NULL;
    }
    if (take_ids(ids_object, &ids, 0, "ids") < 0) {
        return NULL;
    }
    if (take_array(out_object, &out, 1, "d", "out") < 0) {
        PyBuffer_Release(&ids);
        return NULL;
    }
    PyObject *result = NULL;
    const Py_ssize_t count = ids.len / 8;
    if (count == 0 ? out.len != 0 : out.len % ids.len != 0) {
        PyErr_Format(PyExc_ValueError, "%zd ids do not share %zd numbers.", count, out.len / 8);
    } else {
        const Py_ssize_t columns = count == 0 ? 0 : out.len / ids.len;
        const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15), key = mix64(seed + golden);
        const int64_t *id = ids.buf;
        double *value = out.buf;
        BEGIN_LONG(count * columns)
        for (Py_ssize_t i = 0; i < count; i++) {
            const uint64_t start = mix64((uint64_t)id[i] + key) + key;
            for (Py_ssize_t c = 0; c < columns; c++) {
                /* 52 bits plus one half: never 0, never 1. */
                const uint64_t bits = mix64(start + (uint64_t)(c + 1) * golden) >> 12;
                *value++ = ((double)bits + 0.5) * 0x1p-52;
            }
        }
        END_LONG
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&ids);
    PyBuffer_Release(&out);
    return result;
}

/* The inverse of the normal distribution, by P. J. Acklam's rational approximations, with relative
 * errors below 1.2e-9. */
static inline double tail_of(double p) {
    const double q = sqrt(-2.0 * log(p));
    const double above = ((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q -
                            2.400758277161838e+00) * q - 2.549732539343734e+00) * q +
                          4.374664141464968e+00) * q + 2.938163982698783e+00;
    const double below = (((7.784695709041462e-03 * q + 3.224671290700398e-01) * q +
                           2.445134137142996e+00) * q + 3.754408661907416e+00) * q + 1.0;
    return above / below;
}

static inline double centre_of(double p) {
    const double q = p - 0.5, r = q * q;
    const double above = ((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r -
                            2.759285104469687e+02) * r + 1.383577518672690e+02) * r -
                          3.066479806614716e+01) * r + 2.506628277459239e+00;
    const double below = ((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r -
                            1.556989798598866e+02) * r + 6.680131188771972e+01) * r -
                          1.328068155288572e+01) * r + 1.0;
    return above * q / below;
}

WIDE static void normals(double *value, Py_ssize_t count) {
    const double low = 0.02425;
    double before[AHEAD];
    for (Py_ssize_t start = 0; start < count; start += AHEAD) {
        const Py_ssize_t here = count - start < AHEAD ? count - start : AHEAD;
        double *part = value + start;
        memcpy(before, part, (size_t)here * sizeof(double));
        /* Most numbers are in the centre; without a branch the loop is vectorized. */
        for (Py_ssize_t i = 0; i < here; i++) {
            part[i] = centre_of(before[i]);
        }
        for (Py_ssize_t i = 0; i < here; i++) {
            if (before[i] < low) {
                part[i] = tail_of(before[i]);
            } else if (before[i] > 1.0 - low) {
                part[i] = -tail_of(1.0 - before[i]);
            }
        }
    }
}

static PyObject *normal(PyObject *module, PyObject *object) {
    (void)module;
    Py_buffer view;
    if (take_array(object, &view, 1, "d", "values") < 0) {
        return NULL;
    }
    const Py_ssize_t count = view.len / 8;
    BEGIN_LONG(count)
    normals(view.buf, count);
    END_LONG
    PyBuffer_Release(&view);
    return Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"add_rows", add_rows, METH_VARARGS,
     "add_rows(rows, values, out): add rows of numbers to those of out with these numbers."},
    {"normal", normal, METH_O,
     "normal(values): replace numbers between 0 and 1 by what normal variables fall below with"
     " that probability."},
    {"uniform", uniform, METH_VARARGS,
     "uniform(seed, ids, out): numbers between 0 and 1 that depend on seed, id and column only."},
    {NULL, NULL, 0, NULL},
};

static int fill_module(PyObject *module) {
    PyObject *type = PyType_FromSpec(&store_spec);
    if (type == NULL) {
        return -1;
    }
    const int failed = PyModule_AddObjectRef(module, "RowStore", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fleetx.kernels._rows",
    .m_doc = "Rows of fixed size, and random numbers by id.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__rows(void) {
    return PyModuleDef_Init(&definition);
}
