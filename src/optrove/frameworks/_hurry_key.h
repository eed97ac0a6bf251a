/* Keys of calls, as TtnnFingerprints.call makes them. */

#ifndef OPTROVE_HURRY_KEY_H
#define OPTROVE_HURRY_KEY_H

#include <Python.h>
#include <stdint.h>

#include "_hurry_desk.h"
#include "_hurry_numbers.h"
#include "_hurry_quick.h"

#define MAX_PARTS 160

/* A key in the making. Parts are owned. */
typedef struct {
    PyObject *parts[MAX_PARTS];
    Py_ssize_t count;
    int nested;
} Key;

static void key_clear(Key *key)
{
    for (Py_ssize_t i = 0; i < key->count; i++)
        Py_DECREF(key->parts[i]);
}

static int key_push(Key *key, PyObject *part)
{
    if (key->count == MAX_PARTS)
        return -1;
    Py_INCREF(part);
    key->parts[key->count++] = part;
    return 0;
}

static int key_push_number(Key *key, int64_t value)
{
    PyObject *number = value == 0 ? NULL : PyLong_FromLongLong(value);
    int failed = number == NULL ? -1 : key_push(key, number);
    Py_XDECREF(number);
    return failed;
}

static int is_plain(PyObject *live)
{
    PyTypeObject *kind = Py_TYPE(live);
    return live == Py_None || kind == &PyLong_Type || kind == &PyUnicode_Type ||
           kind == &PyBool_Type || kind == &PyBytes_Type;
}

/* Tell whether there may be tensors within an object. */
static int may_hold_tensors(PyObject *live)
{
    if (PyDict_CheckExact(live))
        return 1;
    if (!PyList_CheckExact(live) && !PyTuple_CheckExact(live))
        return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(live); i++)
        if (!is_plain(PySequence_Fast_GET_ITEM(live, i)))
            return 1;
    return 0;
}

/* Append what a rule, which is written in Python, says about an object. */
static int key_push_by_rule(Desk *desk, Key *key, PyObject *live)
{
    PyObject *rule = PyDict_GetItemWithError(desk->rules, (PyObject *)Py_TYPE(live));
    if (rule == NULL)
        return -1;
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return -1;
    if (may_hold_tensors(live))
        key->nested = 1;
    /* Another thread may put another rule in its place. */
    Py_INCREF(rule);
    PyObject *done = PyObject_CallFunctionObjArgs(rule, list, live, NULL);
    Py_DECREF(rule);
    int failed = done == NULL;
    Py_XDECREF(done);
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(list); i++)
        failed = key_push(key, PyList_GET_ITEM(list, i)) < 0;
    Py_DECREF(list);
    return failed ? -1 : 0;
}

/* Append two parts, of which the second is let go. */
static int key_push_both(Key *key, PyObject *first, PyObject *second)
{
    int failed = second == NULL || key_push(key, first) < 0 || key_push(key, second) < 0;
    Py_XDECREF(second);
    return failed ? -1 : 0;
}

static int are_integers(PyObject *live)
{
    if (!PyList_CheckExact(live) && !PyTuple_CheckExact(live))
        return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(live); i++)
        if (!PyLong_CheckExact(PySequence_Fast_GET_ITEM(live, i)))
            return 0;
    return 1;
}

/* Append the parts of one argument, as the rules do; -1 if it has none. No Python code runs for
   arguments that have words. */
static int key_add(Desk *desk, Key *key, Tensors *tensors, PyObject *live)
{
    PyObject *kind = (PyObject *)Py_TYPE(live);
    if (kind == desk->tensor)
        return key_push_number(key, note_tensor(desk, tensors, live));
    /* Zero has a sign, which its text tells. */
    if (PyFloat_CheckExact(live) && PyFloat_AS_DOUBLE(live) == 0.0)
        return key_push_both(key, kind, PyObject_Repr(live));
    if (is_plain(live) || PyFloat_CheckExact(live)) {
        Py_INCREF(live);
        return key_push_both(key, kind, live);
    }
    if (are_integers(live))
        return key_push_both(key, kind, PySequence_Tuple(live));
    int64_t number = numbers_find(desk->held, (uint64_t)(uintptr_t)live);
    return number != 0 ? key_push_number(key, number) : key_push_by_rule(desk, key, live);
}

static PyObject *positional(PyObject *const *args, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SET_ITEM(tuple, i, args[i]);
    }
    return tuple;
}

static PyObject *keywords(PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *dict = PyDict_New();
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; dict != NULL && i < named; i++) {
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(names, i), args[count + i]) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

/* Return (arguments, keywords), as the Python side knows a call. */
static PyObject *whole_call(PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *given = positional(args, count), *named = keywords(args, count, names), *call = NULL;
    if (given != NULL && named != NULL)
        call = PyTuple_Pack(2, given, named);
    Py_XDECREF(given);
    Py_XDECREF(named);
    return call;
}

/* Tell whether the tensors of a call, also those in sequences, have a buffer each. */
static int lie_apart(Desk *desk, const Key *key, const Tensors *tensors, PyObject *const *args,
                     Py_ssize_t count, PyObject *names)
{
    if (!key->nested && are_alone(tensors))
        return 1;
    PyObject *call = whole_call(args, count, names);
    PyObject *answer = call == NULL ? NULL : PyObject_CallOneArg(desk->apart, call);
    Py_XDECREF(call);
    int apart = answer == NULL ? 0 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return apart > 0;
}

/* Make the key of a call; -1 if it has none, or none in a hurry. */
static int key_make(Desk *desk, PyObject *op, Key *key, Tensors *tensors, PyObject *const *args,
                    Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    int failed = key_push(key, op);
    for (Py_ssize_t i = 0; !failed && i < count + named; i++)
        failed = key_add(desk, key, tensors, args[i]);
    if (failed || !lie_apart(desk, key, tensors, args, count, names))
        return -1;
    return named > 0 ? key_push(key, names) : 0;
}

#endif
