/* An index of 64-bit ids: the mapping from an id to its row of a table.
 *
 * Open addressing with linear probing. A slot holds an id and its row in 12 bytes; at most three
 * quarters of the slots are used, and a full index grows by a quarter, so an id costs 16 to 20 bytes.
 * Removing moves later slots back, so there are no tombstones. Rows of removed ids are reused.
 * All calls take whole arrays; the slots of the following ids are prefetched.
 */
#include "_common.h"
#include "_pages.h"
#include <stdio.h>

#define EMPTY UINT32_MAX
#define FIRST_SLOTS 64

typedef struct {
    uint32_t low, high; /* two halves, so that a slot needs no padding */
    uint32_t row;       /* EMPTY: no id */
} Slot;

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    Slot *slots;
    uint64_t capacity; /* number of slots */
    uint64_t used;     /* number of ids */
    uint64_t rows;     /* number of rows ever assigned: all are below this */
    uint32_t *spare;   /* rows to reuse */
    uint64_t spare_count, spare_capacity;
} Index;

static inline uint64_t home_of(const Index *self, uint64_t id) {
    return reduce64(mix64(id), self->capacity);
}

static inline uint64_t id_of(const Slot *slot) {
    return (uint64_t)slot->high << 32 | slot->low;
}

static inline uint64_t next_slot(const Index *self, uint64_t place) {
    return place + 1 == self->capacity ? 0 : place + 1;
}

/* The slot that holds the id, or the empty one where it would go. */
static inline uint64_t find_slot(const Index *self, uint64_t id, uint64_t place) {
    const uint32_t low = (uint32_t)id, high = (uint32_t)(id >> 32);
    for (;;) {
        const Slot *slot = &self->slots[place];
        if (slot->row == EMPTY || (slot->low == low && slot->high == high)) {
            return place;
        }
        place = next_slot(self, place);
    }
}

/* The bytes of slots. */
static inline size_t size_of(uint64_t capacity) {
    return PAGES_SIZE(capacity * sizeof(Slot));
}

/* Whether slots have pages of their own. */
static inline int are_many(uint64_t capacity) {
    return capacity * sizeof(Slot) >= 2 * LARGE_PAGE;
}

static Slot *new_slots(uint64_t capacity) {
    if (capacity > (SIZE_MAX >> 1) / sizeof(Slot)) {
        return NULL;
    }
    Slot *slots = are_many(capacity) ? (Slot *)(void *)new_pages(size_of(capacity), 1)
                                     : malloc(capacity * sizeof(Slot));
    if (slots != NULL) {
        memset(slots, 0xff, capacity * sizeof(Slot)); /* row = EMPTY */
    }
    return slots;
}

static void free_slots(Slot *slots, uint64_t capacity) {
    if (slots != NULL && are_many(capacity)) {
        free_pages(slots, size_of(capacity));
    } else {
        free(slots);
    }
}

/* Make room for `more` ids; returns 0, or -1 without memory. */
static int make_room(Index *self, uint64_t more) {
    const uint64_t wanted = self->used + more;
    if (wanted <= self->capacity / 4 * 3) {
        return 0;
    }
    uint64_t capacity = self->capacity;
    while (wanted > capacity / 4 * 3) {
        capacity += capacity / 4;
    }
    Slot *old = self->slots, *slots = new_slots(capacity);
    if (slots == NULL) {
        return -1;
    }
    const uint64_t old_capacity = self->capacity;
    self->slots = slots;
    self->capacity = capacity;
    /* Homes are in the order of hashes at any capacity: both are passed from front to back. */
    for (uint64_t i = 0; i < old_capacity; i++) {
        if (old[i].row != EMPTY) {
            const uint64_t id = id_of(&old[i]);
            slots[find_slot(self, id, home_of(self, id))] = old[i];
        }
    }
    free_slots(old, old_capacity);
    return 0;
}

/* Empty a slot and move back those that were pushed behind it. */
static void clear_slot(Index *self, uint64_t hole) {
    uint64_t place = hole;
    for (;;) {
        place = next_slot(self, place);
        if (self->slots[place].row == EMPTY) {
            break;
        }
        const uint64_t home = home_of(self, id_of(&self->slots[place]));
        /* A slot may move to the hole unless its home is cyclically after the hole. */
        const int after = hole <= place ? hole < home && home <= place
                                        : hole < home || home <= place;
        if (!after) {
            self->slots[hole] = self->slots[place];
            hole = place;
        }
    }
    self->slots[hole].row = EMPTY;
    self->used--;
}

static int room_for_spare(Index *self, uint64_t more) {
    if (self->spare_count + more <= self->spare_capacity) {
        return 0;
    }
    uint64_t capacity = self->spare_capacity * 2;
    if (capacity < self->spare_count + more) {
        capacity = self->spare_count + more;
    }
    uint32_t *spare = realloc(self->spare, capacity * sizeof(uint32_t));
    if (spare == NULL) {
        return -1;
    }
    self->spare = spare;
    self->spare_capacity = capacity;
    return 0;
}

/* Begin to fetch the slot of an id, which is needed soon. */
static inline uint64_t fetch_home(const Index *self, int64_t id) {
    const uint64_t home = home_of(self, (uint64_t)id);
    __builtin_prefetch(&self->slots[home]);
    return home;
}

static void look_up(const Index *self, const int64_t *ids, int64_t *rows, Py_ssize_t count) {
    uint64_t homes[AHEAD];
    for (Py_ssize_t i = 0; i < count && i < AHEAD; i++) {
        homes[i] = fetch_home(self, ids[i]);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const uint64_t home = homes[i % AHEAD];
        if (i + AHEAD < count) {
            homes[i % AHEAD] = fetch_home(self, ids[i + AHEAD]);
        }
        const uint32_t row = self->slots[find_slot(self, (uint64_t)ids[i], home)].row;
        rows[i] = row == EMPTY ? -1 : (int64_t)row;
    }
}

/* Assign a row to every id; write positions of new ids to `fresh`, return their number or -1. */
static Py_ssize_t insert_all(Index *self, const int64_t *ids, int64_t *rows, int64_t *fresh,
                             Py_ssize_t count) {
    uint64_t homes[AHEAD];
    Py_ssize_t made = 0;
    for (Py_ssize_t start = 0; start < count; start += AHEAD) {
        const Py_ssize_t here = count - start < AHEAD ? count - start : AHEAD;
        if (make_room(self, (uint64_t)here) < 0) {
            return -1 - made;
        }
        for (Py_ssize_t i = 0; i < here; i++) {
            homes[i] = home_of(self, (uint64_t)ids[start + i]);
            __builtin_prefetch(&self->slots[homes[i]], 1);
        }
        for (Py_ssize_t i = 0; i < here; i++) {
            const uint64_t id = (uint64_t)ids[start + i];
            Slot *slot = &self->slots[find_slot(self, id, homes[i])];
            if (slot->row == EMPTY) {
                if (self->spare_count == 0 && self->rows == EMPTY) {
                    return -1 - made;
                }
                slot->row = self->spare_count > 0 ? self->spare[--self->spare_count]
                                                  : (uint32_t)self->rows++;
                slot->low = (uint32_t)id;
                slot->high = (uint32_t)(id >> 32);
                self->used++;
                fresh[made++] = start + i;
            }
            rows[start + i] = slot->row;
        }
    }
    return made;
}

/* -- arguments -------------------------------------------------------------------------------- */
static void release_arrays(Py_buffer *arrays, int count) {
    for (int i = 0; i < count; i++) {
        PyBuffer_Release(&arrays[i]);
    }
}

/* Take arrays of 64-bit integers, the first to read and the others to write; the first `alike` have
 * the same length. Returns 0, or -1 with an error and nothing taken. */
static int take_arrays(PyObject *const *objects, Py_buffer *arrays, const char *const *names,
                       int count, int alike) {
    for (int i = 0; i < count; i++) {
        if (take_ids(objects[i], &arrays[i], i > 0, names[i]) < 0) {
            release_arrays(arrays, i);
            return -1;
        }
    }
    for (int i = 1; i < alike; i++) {
        char both[40];
        snprintf(both, sizeof(both), "%s and %s", names[0], names[i]);
        if (same_length(&arrays[0], &arrays[i], both) < 0) {
            release_arrays(arrays, count);
            return -1;
        }
    }
    return 0;
}

/* -- the Python type -------------------------------------------------------------------------- */
static void index_dealloc(Index *self) {
    free_slots(self->slots, self->capacity);
    free(self->spare);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    free_object((PyObject *)self);
}

static PyObject *index_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Index", names)) {
        return NULL;
    }
    Index *self = (Index *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->lock = PyThread_allocate_lock();
    self->slots = new_slots(FIRST_SLOTS);
    self->capacity = FIRST_SLOTS;
    if (self->lock == NULL || self->slots == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static PyObject *index_lookup(Index *self, PyObject *args) {
    static const char *const names[] = {"ids", "rows"};
    PyObject *objects[2];
    Py_buffer arrays[2];
    if (!PyArg_ParseTuple(args, "OO:lookup", &objects[0], &objects[1]) ||
        take_arrays(objects, arrays, names, 2, 2) < 0) {
        return NULL;
    }
    const Py_ssize_t count = arrays[0].len / 8;
    hold(self->lock);
    BEGIN_LONG(count)
    look_up(self, arrays[0].buf, arrays[1].buf, count);
    END_LONG
    PyThread_release_lock(self->lock);
    release_arrays(arrays, 2);
    return Py_NewRef(Py_None);
}

static PyObject *index_insert(Index *self, PyObject *args) {
    static const char *const names[] = {"ids", "rows", "fresh"};
    PyObject *objects[3];
    Py_buffer arrays[3];
    if (!PyArg_ParseTuple(args, "OOO:insert", &objects[0], &objects[1], &objects[2]) ||
        take_arrays(objects, arrays, names, 3, 3) < 0) {
        return NULL;
    }
    const Py_ssize_t count = arrays[0].len / 8;
    const int64_t *id = arrays[0].buf;
    int64_t *fresh = arrays[2].buf;
    int full;
    Py_ssize_t made;
    hold(self->lock);
    BEGIN_LONG(count)
    made = insert_all(self, id, arrays[1].buf, fresh, count);
    full = self->rows == EMPTY;
    if (made < 0) { /* all or nothing: remove what was inserted, the last first */
        for (Py_ssize_t i = -2 - made; i >= 0; i--) {
            const uint64_t gone = (uint64_t)id[fresh[i]];
            const uint64_t place = find_slot(self, gone, home_of(self, gone));
            const uint32_t row = self->slots[place].row;
            clear_slot(self, place);
            if (row == self->rows - 1) {
                self->rows--;
            } else { /* it was a spare one, so there is room for it */
                self->spare[self->spare_count++] = row;
            }
        }
    }
    END_LONG
    PyThread_release_lock(self->lock);
    release_arrays(arrays, 3);
    if (made >= 0) {
        return PyLong_FromSsize_t(made);
    }
    if (full) {
        PyErr_SetString(PyExc_OverflowError, "a table has at most 2**32 - 1 rows.");
        return NULL;
    }
    return PyErr_NoMemory();
}

static PyObject *index_remove(Index *self, PyObject *object) {
    Py_buffer ids;
    if (take_ids(object, &ids, 0, "ids") < 0) {
        return NULL;
    }
    const Py_ssize_t count = ids.len / 8;
    const int64_t *id = ids.buf;
    Py_ssize_t removed = 0;
    int failed;
    hold(self->lock);
    BEGIN_LONG(count)
    failed = room_for_spare(self, (uint64_t)count) < 0;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        const uint64_t place = find_slot(self, (uint64_t)id[i], home_of(self, (uint64_t)id[i]));
        if (self->slots[place].row != EMPTY) {
            self->spare[self->spare_count++] = self->slots[place].row;
            clear_slot(self, place);
            removed++;
        }
    }
    END_LONG
    PyThread_release_lock(self->lock);
    PyBuffer_Release(&ids);
    return failed ? PyErr_NoMemory() : PyLong_FromSsize_t(removed);
}

static PyObject *index_ids_by_row(Index *self, PyObject *args) {
    PyObject *ids_object, *live_object;
    Py_buffer ids, live;
    if (!PyArg_ParseTuple(args, "OO:ids_by_row", &ids_object, &live_object)) {
        return NULL;
    }
    if (take_ids(ids_object, &ids, 1, "ids") < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(live_object, &live, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&ids);
        return NULL;
    }
    PyObject *result = NULL;
    hold(self->lock);
    if ((uint64_t)ids.len / 8 != self->rows || (uint64_t)live.len != self->rows) {
        PyErr_Format(PyExc_ValueError, "ids and live must have %llu elements.",
                     (unsigned long long)self->rows);
    } else {
        int64_t *id = ids.buf;
        uint8_t *flag = live.buf;
        BEGIN_LONG(self->rows)
        if (self->rows > 0) { /* empty memory may have a null address, which memset rejects */
            memset(id, 0, (size_t)ids.len);
            memset(flag, 0, (size_t)live.len);
        }
        for (uint64_t i = 0; i < self->capacity; i++) {
            const Slot *slot = &self->slots[i];
            if (slot->row != EMPTY) {
                id[slot->row] = (int64_t)id_of(slot);
                flag[slot->row] = 1;
            }
        }
        END_LONG
        result = Py_NewRef(Py_None);
    }
    PyThread_release_lock(self->lock);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&live);
    return result;
}

static Py_ssize_t index_length(Index *self) {
    return (Py_ssize_t)self->used;
}

static PyObject *index_rows(Index *self, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->rows);
}

static PyObject *index_nbytes(Index *self, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->capacity * sizeof(Slot) +
                                       self->spare_capacity * sizeof(uint32_t));
}

static PyMethodDef index_methods[] = {
    {"lookup", (PyCFunction)index_lookup, METH_VARARGS,
     "lookup(ids, rows): write the row of every id, -1 for unknown ones."},
    {"insert", (PyCFunction)index_insert, METH_VARARGS,
     "insert(ids, rows, fresh) -> n: give unknown ids a row too; fresh[:n] are their positions."},
    {"remove", (PyCFunction)index_remove, METH_O,
     "remove(ids) -> n: forget ids; their rows are given out again."},
    {"ids_by_row", (PyCFunction)index_ids_by_row, METH_VARARGS,
     "ids_by_row(ids, live): write the id of every row, and 1 for rows that have one."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef index_getset[] = {
    {"rows", (getter)index_rows, NULL, "All rows given out so far are below this number.", NULL},
    {"nbytes", (getter)index_nbytes, NULL, "The memory the index takes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot index_slots[] = {
    {Py_tp_new, index_new},
    {Py_tp_dealloc, index_dealloc},
    {Py_tp_methods, index_methods},
    {Py_tp_getset, index_getset},
    {Py_sq_length, index_length},
    {Py_tp_doc, "Index(): rows of 64-bit ids."},
    {0, NULL},
};

static PyType_Spec index_spec = {
    .name = "fleetx.kernels._index.Index",
    .basicsize = sizeof(Index),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = index_slots,
};

/* -- functions on arrays of ids --------------------------------------------------------------- */
static PyObject *unique(PyObject *module, PyObject *args) {
    (void)module;
    static const char *const names[] = {"ids", "found", "inverse"};
    PyObject *objects[3];
    Py_buffer arrays[3];
    if (!PyArg_ParseTuple(args, "OOO:unique", &objects[0], &objects[1], &objects[2]) ||
        take_arrays(objects, arrays, names, 3, 3) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    uint32_t *table = NULL;
    const Py_ssize_t count = arrays[0].len / 8;
    if ((uint64_t)count >= EMPTY / 2) {
        PyErr_SetString(PyExc_OverflowError, "too many ids in one call.");
        goto done;
    }
    uint64_t size = 16;
    while (size < (uint64_t)count * 2) {
        size *= 2;
    }
    table = malloc(size * sizeof(uint32_t));
    if (table == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Py_ssize_t number = 0;
    BEGIN_LONG(count)
    const int64_t *id = arrays[0].buf;
    int64_t *distinct = arrays[1].buf, *back = arrays[2].buf;
    memset(table, 0xff, size * sizeof(uint32_t));
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t place = mix64((uint64_t)id[i]) & (size - 1);
        while (table[place] != EMPTY && distinct[table[place]] != id[i]) {
            place = (place + 1) & (size - 1);
        }
        if (table[place] == EMPTY) {
            table[place] = (uint32_t)number;
            distinct[number++] = id[i];
        }
        back[i] = table[place];
    }
    END_LONG
    result = PyLong_FromSsize_t(number);
done:
    free(table);
    release_arrays(arrays, 3);
    return result;
}

/* A different hash than the index's: ids of one server must not cluster in its index. */
static inline uint64_t server_of(uint64_t id, uint64_t servers) {
    return reduce64(mix64(id + UINT64_C(0x9e3779b97f4a7c15)), servers);
}

static PyObject *route(PyObject *module, PyObject *args) {
    (void)module;
    static const char *const names[] = {"ids", "servers"};
    PyObject *objects[2];
    Py_ssize_t servers;
    Py_buffer arrays[2];
    if (!PyArg_ParseTuple(args, "OnO:route", &objects[0], &servers, &objects[1])) {
        return NULL;
    }
    if (servers < 1 || servers > (Py_ssize_t)UINT32_MAX) {
        return PyErr_Format(PyExc_ValueError,
                            "there must be a server, and at most 2**32 - 1, not %zd.", servers);
    }
    if (take_arrays(objects, arrays, names, 2, 2) < 0) {
        return NULL;
    }
    const Py_ssize_t count = arrays[0].len / 8;
    const int64_t *id = arrays[0].buf;
    int64_t *server = arrays[1].buf;
    BEGIN_LONG(count)
    for (Py_ssize_t i = 0; i < count; i++) {
        server[i] = (int64_t)server_of((uint64_t)id[i], (uint64_t)servers);
    }
    END_LONG
    release_arrays(arrays, 2);
    return Py_NewRef(Py_None);
}

static PyObject *split(PyObject *module, PyObject *args) {
    (void)module;
    static const char *const names[] = {"ids", "order", "counts"};
    PyObject *objects[3];
    Py_buffer arrays[3];
    if (!PyArg_ParseTuple(args, "OOO:split", &objects[0], &objects[1], &objects[2]) ||
        take_arrays(objects, arrays, names, 3, 2) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    const Py_ssize_t count = arrays[0].len / 8, servers = arrays[2].len / 8;
    int64_t *next = NULL;
    if (servers < 1) {
        PyErr_SetString(PyExc_ValueError, "counts must have an element for every server.");
        goto done;
    }
    next = calloc((size_t)servers, sizeof(int64_t));
    if (next == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    BEGIN_LONG(count)
    const int64_t *id = arrays[0].buf;
    int64_t *sorted = arrays[1].buf, *number = arrays[2].buf;
    memset(number, 0, (size_t)arrays[2].len);
    for (Py_ssize_t i = 0; i < count; i++) {
        number[server_of((uint64_t)id[i], (uint64_t)servers)]++;
    }
    for (Py_ssize_t s = 1; s < servers; s++) {
        next[s] = next[s - 1] + number[s - 1];
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        sorted[next[server_of((uint64_t)id[i], (uint64_t)servers)]++] = i;
    }
    END_LONG
    result = Py_NewRef(Py_None);
done:
    free(next);
    release_arrays(arrays, 3);
    return result;
}

static PyMethodDef functions[] = {
    {"unique", unique, METH_VARARGS,
     "unique(ids, found, inverse) -> n: found[:n] are the ids without repetitions, as they first "
     "appear; ids[i] == found[inverse[i]]."},
    {"route", route, METH_VARARGS, "route(ids, n, servers): write the server of every id."},
    {"split", split, METH_VARARGS,
     "split(ids, order, counts): write positions sorted by server, and how many each has."},
    {NULL, NULL, 0, NULL},
};

static int fill_module(PyObject *module) {
    PyObject *type = PyType_FromSpec(&index_spec);
    if (type == NULL) {
        return -1;
    }
    const int failed = PyModule_AddObjectRef(module, "Index", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fleetx.kernels._index",
    .m_doc = "An index of 64-bit ids.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__index(void) {
    return PyModuleDef_Init(&definition);
}
