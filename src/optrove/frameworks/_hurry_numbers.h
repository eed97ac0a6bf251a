/* A table from whole numbers to whole numbers other than zero: a dict of such, as far as tracing
   needs one, where a look-up reads one place in memory instead of four. */

#ifndef OPTROVE_HURRY_NUMBERS_H
#define OPTROVE_HURRY_NUMBERS_H

#include <Python.h>
#include <stdint.h>

#define FEWEST_PAIRS 64

/* A pair with the value zero is free. */
typedef struct {
    uint64_t key;
    int64_t value;
} Pair;

/* Pairs lie at the place of their key or, if that is taken, as soon after it as possible. */
typedef struct {
    PyObject_HEAD
    Pair *pairs;
    size_t mask, count;
} Numbers;

/* Numbers that follow one another stay neighbours; addresses differ in their higher bits. */
static inline size_t numbers_home(const Numbers *self, uint64_t key)
{
    return (size_t)(key ^ key >> 4 ^ key >> 16) & self->mask;
}

static inline Pair *numbers_place(const Numbers *self, uint64_t key)
{
    size_t place = numbers_home(self, key);
    while (self->pairs[place].value != 0 && self->pairs[place].key != key)
        place = (place + 1) & self->mask;
    return &self->pairs[place];
}

/* Return the value of a key; zero if it has none. */
static inline int64_t numbers_find(const Numbers *self, uint64_t key)
{
    return numbers_place(self, key)->value;
}

static int numbers_begin(Numbers *self, size_t size)
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

static int numbers_grow(Numbers *self)
{
    Numbers before = *self;
    if (numbers_begin(self, 2 * (before.mask + 1)) < 0)
        return -1;
    for (size_t i = 0; i <= before.mask; i++)
        if (before.pairs[i].value != 0)
            *numbers_place(self, before.pairs[i].key) = before.pairs[i];
    self->count = before.count;
    PyMem_Free(before.pairs);
    return 0;
}

/* Give a key its value, which is not zero; return -1 with MemoryError set if that fails. */
static int numbers_put(Numbers *self, uint64_t key, int64_t value)
{
    Pair *pair = numbers_place(self, key);
    if (pair->value == 0) {
        if (2 * (self->count + 1) > self->mask) {
            if (numbers_grow(self) < 0)
                return -1;
            pair = numbers_place(self, key);
        }
        self->count++;
        pair->key = key;
    }
    pair->value = value;
    return 0;
}

/* Take a key out. Pairs behind it that would be nearer to their place in the gap move there. */
static void numbers_drop(Numbers *self, uint64_t key)
{
    Pair *pair = numbers_place(self, key);
    if (pair->value == 0)
        return;
    self->count--;
    size_t gap = (size_t)(pair - self->pairs), place = gap;
    for (;;) {
        place = (place + 1) & self->mask;
        if (self->pairs[place].value == 0)
            break;
        size_t home = numbers_home(self, self->pairs[place].key);
        if (((place - home) & self->mask) >= ((place - gap) & self->mask)) {
            self->pairs[gap] = self->pairs[place];
            gap = place;
        }
    }
    self->pairs[gap].value = 0;
}

static int numbers_key(PyObject *number, uint64_t *key)
{
    *key = PyLong_AsUnsignedLongLong(number);
    return *key == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static PyObject *numbers_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", names))
        return NULL;
    Numbers *self = (Numbers *)type->tp_alloc(type, 0);
    if (self != NULL && numbers_begin(self, FEWEST_PAIRS) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void numbers_dealloc(Numbers *self)
{
    PyMem_Free(self->pairs);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t numbers_length(PyObject *self)
{
    return (Py_ssize_t)((Numbers *)self)->count;
}

static PyObject *numbers_item(PyObject *self, PyObject *number)
{
    uint64_t key;
    if (numbers_key(number, &key) < 0)
        return NULL;
    int64_t value = numbers_find((Numbers *)self, key);
    if (value == 0) {
        PyErr_SetObject(PyExc_KeyError, number);
        return NULL;
    }
    return PyLong_FromLongLong(value);
}

static int numbers_set_item(PyObject *self, PyObject *number, PyObject *given)
{
    uint64_t key;
    if (numbers_key(number, &key) < 0)
        return -1;
    if (given == NULL) {
        if (numbers_find((Numbers *)self, key) == 0) {
            PyErr_SetObject(PyExc_KeyError, number);
            return -1;
        }
        numbers_drop((Numbers *)self, key);
        return 0;
    }
    long long value = PyLong_AsLongLong(given);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value == 0) {
        PyErr_SetString(PyExc_ValueError, "zero stands for no value; give another number");
        return -1;
    }
    return numbers_put((Numbers *)self, key, value);
}

static int numbers_contains(PyObject *self, PyObject *number)
{
    uint64_t key;
    return numbers_key(number, &key) < 0 ? -1 : numbers_find((Numbers *)self, key) != 0;
}

/* Return the value of the key in (key, default), or what was given in its place. */
static PyObject *numbers_look_up(PyObject *self, PyObject *args, const char *form, uint64_t *key)
{
    PyObject *number, *otherwise = Py_None;
    if (!PyArg_ParseTuple(args, form, &number, &otherwise) || numbers_key(number, key) < 0)
        return NULL;
    int64_t value = numbers_find((Numbers *)self, *key);
    if (value != 0)
        return PyLong_FromLongLong(value);
    Py_INCREF(otherwise);
    return otherwise;
}

static PyObject *numbers_get(PyObject *self, PyObject *args)
{
    uint64_t key;
    return numbers_look_up(self, args, "O|O:get", &key);
}

static PyObject *numbers_pop(PyObject *self, PyObject *args)
{
    uint64_t key;
    PyObject *found = numbers_look_up(self, args, "OO:pop", &key);
    if (found != NULL)
        numbers_drop((Numbers *)self, key);
    return found;
}

static PyObject *numbers_clear(PyObject *self, PyObject *Py_UNUSED(arguments))
{
    Pair *before = ((Numbers *)self)->pairs;
    if (numbers_begin((Numbers *)self, FEWEST_PAIRS) < 0)
        return NULL;
    PyMem_Free(before);
    Py_RETURN_NONE;
}

static PyMethodDef numbers_methods[] = {
    {"get", numbers_get, METH_VARARGS, NULL},
    {"pop", numbers_pop, METH_VARARGS, NULL},
    {"clear", numbers_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMappingMethods numbers_mapping = {
    .mp_length = numbers_length,
    .mp_subscript = numbers_item,
    .mp_ass_subscript = numbers_set_item,
};

static PySequenceMethods numbers_sequence = {.sq_contains = numbers_contains};

static PyTypeObject NumbersType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks._hurry.Numbers",
    .tp_doc = "A table from whole numbers to whole numbers other than zero.",
    .tp_basicsize = sizeof(Numbers),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = numbers_new,
    .tp_dealloc = (destructor)numbers_dealloc,
    .tp_methods = numbers_methods,
    .tp_as_mapping = &numbers_mapping,
    .tp_as_sequence = &numbers_sequence,
};

#endif
