/* A mapping of integers, for the fast paths.

   Included by _fast_path.c and, through _flow.h, by _torch_fast_path.c. */

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* IntTable maps integers to integers other than zero. It has those methods of dict that tracing
   needs, and a lookup reads one memory location where a dict reads four. */

#define MIN_PAIRS 64

/* A pair with the value zero is free. */
typedef struct {
    uint64_t key;
    int64_t value;
} Pair;

/* Open addressing: a pair is stored at the home of its key or at the next free place after it. */
typedef struct {
    PyObject_HEAD
    Pair *pairs;
    size_t mask, count;
} IntTable;

/* Consecutive numbers stay neighbors; addresses differ in their higher bits. */
static inline size_t int_table_home(const IntTable *self, uint64_t key)
{
    return (size_t)(key ^ key >> 4 ^ key >> 16) & self->mask;
}

static inline Pair *int_table_place(const IntTable *self, uint64_t key)
{
    size_t place = int_table_home(self, key);
    while (self->pairs[place].value != 0 && self->pairs[place].key != key)
        place = (place + 1) & self->mask;
    return &self->pairs[place];
}

/* Return the value of a key; zero if it has none. */
static inline int64_t int_table_find(const IntTable *self, uint64_t key)
{
    return int_table_place(self, key)->value;
}

static int int_table_begin(IntTable *self, size_t size)
{
    Pair *pairs = PyMem_Calloc(size, sizeof(Pair));
    if (pairs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->pairs = pairs;
    self->mask = size - 1;
    self->count = 0;
    return 0;
}

static int int_table_grow(IntTable *self)
{
    IntTable before = *self;
    if (int_table_begin(self, 2 * (before.mask + 1)) < 0)
        return -1;
    for (size_t i = 0; i <= before.mask; i++)
        if (before.pairs[i].value != 0)
            *int_table_place(self, before.pairs[i].key) = before.pairs[i];
    self->count = before.count;
    PyMem_Free(before.pairs);
    return 0;
}

/* Set the value of a key, which is not zero; return -1 with MemoryError set on failure. */
static int int_table_put(IntTable *self, uint64_t key, int64_t value)
{
    Pair *pair = int_table_place(self, key);
    if (pair->value == 0) {
        if (2 * (self->count + 1) > self->mask) {
            if (int_table_grow(self) < 0)
                return -1;
            pair = int_table_place(self, key);
        }
        self->count++;
        pair->key = key;
    }
    pair->value = value;
    return 0;
}

/* Remove a key. Later pairs that would be nearer to their home in the gap move there. */
static void int_table_drop(IntTable *self, uint64_t key)
{
    Pair *pair = int_table_place(self, key);
    if (pair->value == 0)
        return;
    self->count--;
    size_t gap = (size_t)(pair - self->pairs), place = gap;
    for (;;) {
        place = (place + 1) & self->mask;
        if (self->pairs[place].value == 0)
            break;
        size_t home = int_table_home(self, self->pairs[place].key);
        if (((place - home) & self->mask) >= ((place - gap) & self->mask)) {
            self->pairs[gap] = self->pairs[place];
            gap = place;
        }
    }
    self->pairs[gap].value = 0;
}

static int int_table_key(PyObject *number, uint64_t *key)
{
    *key = PyLong_AsUnsignedLongLong(number);
    return *key == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static PyObject *int_table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", names))
        return NULL;
    IntTable *self = (IntTable *)type->tp_alloc(type, 0);
    if (self != NULL && int_table_begin(self, MIN_PAIRS) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void int_table_dealloc(IntTable *self)
{
    PyMem_Free(self->pairs);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t int_table_length(PyObject *self)
{
    return (Py_ssize_t)((IntTable *)self)->count;
}

static PyObject *int_table_item(PyObject *self, PyObject *number)
{
    uint64_t key;
    if (int_table_key(number, &key) < 0)
        return NULL;
    int64_t value = int_table_find((IntTable *)self, key);
    if (value == 0) {
        PyErr_SetObject(PyExc_KeyError, number);
        return NULL;
    }
    return PyLong_FromLongLong(value);
}

static int int_table_set_item(PyObject *self, PyObject *number, PyObject *given)
{
    uint64_t key;
    if (int_table_key(number, &key) < 0)
        return -1;
    if (given == NULL) {
        if (int_table_find((IntTable *)self, key) == 0) {
            PyErr_SetObject(PyExc_KeyError, number);
            return -1;
        }
        int_table_drop((IntTable *)self, key);
        return 0;
    }
    long long value = PyLong_AsLongLong(given);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value == 0) {
        PyErr_SetString(PyExc_ValueError, "zero means no value; use another number");
        return -1;
    }
    return int_table_put((IntTable *)self, key, value);
}

static int int_table_contains(PyObject *self, PyObject *number)
{
    uint64_t key;
    return int_table_key(number, &key) < 0 ? -1 : int_table_find((IntTable *)self, key) != 0;
}

/* Return the value of the key in (key, default), or the default. */
static PyObject *int_table_get_or(PyObject *self, PyObject *args, const char *format,
                                  uint64_t *key)
{
    PyObject *number, *otherwise = Py_None;
    if (!PyArg_ParseTuple(args, format, &number, &otherwise) || int_table_key(number, key) < 0)
        return NULL;
    int64_t value = int_table_find((IntTable *)self, *key);
    if (value != 0)
        return PyLong_FromLongLong(value);
    Py_INCREF(otherwise);
    return otherwise;
}

static PyObject *int_table_get(PyObject *self, PyObject *args)
{
    uint64_t key;
    return int_table_get_or(self, args, "O|O:get", &key);
}

static PyObject *int_table_pop(PyObject *self, PyObject *args)
{
    uint64_t key;
    PyObject *found = int_table_get_or(self, args, "OO:pop", &key);
    if (found != NULL)
        int_table_drop((IntTable *)self, key);
    return found;
}

static PyObject *int_table_clear(PyObject *self, PyObject *Py_UNUSED(arguments))
{
    Pair *before = ((IntTable *)self)->pairs;
    if (int_table_begin((IntTable *)self, MIN_PAIRS) < 0)
        return NULL;
    PyMem_Free(before);
    Py_RETURN_NONE;
}

static PyMethodDef int_table_methods[] = {
    {"get", int_table_get, METH_VARARGS, NULL},
    {"pop", int_table_pop, METH_VARARGS, NULL},
    {"clear", int_table_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMappingMethods int_table_mapping = {
    .mp_length = int_table_length,
    .mp_subscript = int_table_item,
    .mp_ass_subscript = int_table_set_item,
};

static PySequenceMethods int_table_sequence = {.sq_contains = int_table_contains};

static PyTypeObject IntTableType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks.IntTable",
    .tp_doc = "A mapping from integers to integers other than zero.",
    .tp_basicsize = sizeof(IntTable),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = int_table_new,
    .tp_dealloc = (destructor)int_table_dealloc,
    .tp_methods = int_table_methods,
    .tp_as_mapping = &int_table_mapping,
    .tp_as_sequence = &int_table_sequence,
};
