/* Calls by words in a row: the quickest way to what is known about a call.

   The words are made of the same facts as keys are (_hurry_key.h), so that calls with the same
   words have the same key. Calls with arguments of other kinds, or with many, have no words. */

#ifndef OPTROVE_HURRY_QUICK_H
#define OPTROVE_HURRY_QUICK_H

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#include "_hurry_desk.h"
#include "_hurry_numbers.h"

#define MAX_TENSORS 24
#define MAX_WORDS 12
#define FEWEST_QUICK 8
#define MOST_QUICK 512
#define TRIES 4

/* The tensors of a call, by ttnn's numbers for them; ``doubt`` if one may share its buffer. */
typedef struct {
    uint64_t numbers[MAX_TENSORS];
    int count, doubt;
} Tensors;

/* What a word of a call is. */
enum { TENSOR = 1, HELD, OBJECT, INTEGER, FLOAT, TUPLE, LIST, NAME };

/* A call that was found: what is known about it, the first word of its records, and the words that
   tell it from others, with four bits in ``kinds`` for each. Objects among them are owned. Free
   without ``known``. */
typedef struct {
    PyObject *known;
    uint64_t record_word, kinds;
    uint32_t hash, count;
    uint64_t words[MAX_WORDS];
} Quick;

/* The calls that one operation has found, each at the place of its hash or soon after it. Those of
   another generation of the desk are void. */
typedef struct {
    Quick *calls;
    uint32_t size, generation;
} Found;

/* Return the part of a tensor and note it; zero if that is unknown. */
static int64_t note_tensor(Desk *desk, Tensors *tensors, PyObject *live)
{
    if (tensors->count == MAX_TENSORS)
        return 0;
    PyObject *number = PyObject_CallOneArg(desk->id_of, live);
    if (number == NULL)
        return 0;
    uint64_t id = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    int64_t part = numbers_find(desk->facts, id);
    tensors->numbers[tensors->count++] = id;
    tensors->doubt |= part < 0;
    return part;
}

/* Tell whether each of the tensors is another, in a buffer of its own. */
static int are_alone(const Tensors *tensors)
{
    if (tensors->count < 2)
        return 1;
    int alone = !tensors->doubt;
    for (int i = 1; i < tensors->count; i++)
        for (int j = 0; j < i; j++)
            alone = alone && tensors->numbers[i] != tensors->numbers[j];
    return alone;
}

static int quick_push(Quick *quick, int kind, uint64_t word)
{
    if (quick->count == MAX_WORDS)
        return -1;
    quick->kinds |= (uint64_t)kind << 4 * quick->count;
    quick->words[quick->count++] = word;
    return 0;
}

static int quick_push_integer(Quick *quick, PyObject *live)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(live, &overflow);
    return overflow ? -1 : quick_push(quick, INTEGER, (uint64_t)value);
}

static int quick_push_integers(Quick *quick, PyObject *live)
{
    Py_ssize_t size = PySequence_Fast_GET_SIZE(live);
    int failed = quick_push(quick, PyTuple_CheckExact(live) ? TUPLE : LIST, (uint64_t)size);
    for (Py_ssize_t i = 0; !failed && i < size; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(live, i);
        failed = PyLong_CheckExact(item) ? quick_push_integer(quick, item) : -1;
    }
    return failed;
}

/* Append the words of one argument; -1 if it has none. */
static int quick_add(Desk *desk, Quick *quick, Tensors *tensors, PyObject *live)
{
    PyTypeObject *kind = Py_TYPE(live);
    if ((PyObject *)kind == desk->tensor) {
        int64_t part = note_tensor(desk, tensors, live);
        return part == 0 ? -1 : quick_push(quick, TENSOR, (uint64_t)part);
    }
    if (kind == &PyLong_Type)
        return quick_push_integer(quick, live);
    /* By identity: other texts, made for this call only, would be kept for nothing. */
    if (live == Py_None || kind == &PyBool_Type ||
        (kind == &PyUnicode_Type && PyUnicode_CHECK_INTERNED(live)))
        return quick_push(quick, OBJECT, (uint64_t)(uintptr_t)live);
    if (kind == &PyFloat_Type) {
        double value = PyFloat_AS_DOUBLE(live);
        uint64_t word;
        memcpy(&word, &value, 8);
        return quick_push(quick, FLOAT, word);
    }
    if (kind == &PyTuple_Type || kind == &PyList_Type)
        return quick_push_integers(quick, live);
    int64_t number = numbers_find(desk->held, (uint64_t)(uintptr_t)live);
    return number == 0 ? -1 : quick_push(quick, HELD, (uint64_t)number);
}

/* Make the words of a call; -1 if it has none. */
static int quick_make(Desk *desk, Quick *quick, Tensors *tensors, PyObject *const *args,
                      Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < count + named; i++)
        if (quick_add(desk, quick, tensors, args[i]) < 0)
            return -1;
    for (Py_ssize_t i = 0; i < named; i++)
        if (quick_push(quick, NAME, (uint64_t)(uintptr_t)PyTuple_GET_ITEM(names, i)) < 0)
            return -1;
    if (!are_alone(tensors))
        return -1;
    uint64_t hash = quick->kinds;
    for (uint32_t i = 0; i < quick->count; i++) {
        hash = (hash ^ quick->words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    quick->hash = (uint32_t)hash;
    return 0;
}

static int is_owned(const Quick *quick, uint32_t place)
{
    int kind = quick->kinds >> 4 * place & 15;
    return kind == OBJECT || kind == NAME;
}

/* Let go of a call that was found; it must not be reachable any more. */
static void quick_let_go(Quick *quick)
{
    for (uint32_t i = 0; i < quick->count; i++)
        if (is_owned(quick, i))
            Py_DECREF((PyObject *)(uintptr_t)quick->words[i]);
    Py_DECREF(quick->known);
}

static void quick_let_go_all(Quick *table, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        if (table[i].known != NULL)
            quick_let_go(&table[i]);
    free(table);
}

static void forget_quick(Found *self)
{
    Quick *before = self->calls;
    uint32_t size = self->size;
    self->calls = NULL;
    self->size = 0;
    quick_let_go_all(before, size);
}

/* Return the call that was found with the same words, NULL if there is none. */
static Quick *find_quick(const Found *self, const Quick *wanted)
{
    for (uint32_t i = 0; i < TRIES && self->size > 0; i++) {
        Quick *quick = &self->calls[(wanted->hash + i) & (self->size - 1)];
        if (quick->known == NULL)
            return NULL;
        if (quick->hash == wanted->hash && quick->kinds == wanted->kinds &&
            quick->count == wanted->count &&
            memcmp(quick->words, wanted->words, wanted->count * sizeof(uint64_t)) == 0)
            return quick;
    }
    return NULL;
}

/* Return where a call that was found can be put; NULL where there is no room. */
static Quick *room_for_quick(Found *self, uint32_t hash)
{
    for (uint32_t i = 0; i < TRIES && self->size > 0; i++) {
        Quick *quick = &self->calls[(hash + i) & (self->size - 1)];
        if (quick->known == NULL)
            return quick;
    }
    if (self->size == MOST_QUICK)
        return &self->calls[hash & (MOST_QUICK - 1)];
    return NULL;
}

/* Remember a call that was found by its key. */
static void remember_quick(Found *self, const Quick *found)
{
    Quick *place = room_for_quick(self, found->hash), *old = NULL;
    uint32_t old_size = self->size;
    if (place == NULL) {
        /* Those that were there are found by their keys again. */
        uint32_t size = old_size == 0 ? FEWEST_QUICK : 4 * old_size;
        Quick *fresh = aligned_alloc(64, size * sizeof(Quick));
        if (fresh == NULL)
            return;
        old = self->calls;
        self->calls = memset(fresh, 0, size * sizeof(Quick));
        self->size = size;
        place = room_for_quick(self, found->hash);
    }
    Quick before = *place;
    *place = *found;
    Py_INCREF(found->known);
    for (uint32_t i = 0; i < found->count; i++)
        if (is_owned(found, i))
            Py_INCREF((PyObject *)(uintptr_t)found->words[i]);
    /* Last, as it may run other code, which may come here again. */
    if (before.known != NULL)
        quick_let_go(&before);
    if (old != NULL)
        quick_let_go_all(old, old_size);
}

#endif
