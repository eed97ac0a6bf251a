/* How tensors flow from call to call: a Stream writes which tensors each call gets and returns.

   Included by _fast_path.c (ttnn) and _torch_fast_path.c. journal/flow.py defines the entries and
   has the same in Python, for installations without a compiler. */

#pragma once

#include "_int_table.h"
#include <structmember.h>

/* The layout of an entry, as in journal/flow.py. */
#define FLOW_ENTRY_SIZE 16
#define FLOW_PLACE_SHIFT 8
#define FLOW_CALL_SHIFT 24
enum { FLOW_INPUT = 1, FLOW_OUTPUT, FLOW_BUFFER, FLOW_FREED };

/* ``numbers`` has the numbers of live tensor objects by address, ``holders`` how many objects there
   are for a number, and ``references`` the weak references to objects, if their class takes them.
   ``next_window`` returns a buffer for more entries. Without a ``number_of``, tensors are numbered
   in the order in which they are met, after ``first``. */
typedef struct {
    PyObject_HEAD
    PyObject *next_window, *number_of, *buffer_of;
    IntTable *numbers, *holders, *references;
    Py_buffer window;
    Py_ssize_t offset;
    uint64_t last_call, last_number, lost;
    char is_open, is_weak;
} Stream;

static PyTypeObject StreamType;

/* Make room for an entry; return NULL, and count it, if there is no room. */
static char *stream_room(Stream *self)
{
    if (!self->is_open || self->offset + FLOW_ENTRY_SIZE > self->window.len) {
        PyObject *type, *value, *trace, *buffer = NULL;
        PyErr_Fetch(&type, &value, &trace);
        if (self->is_open) {
            self->is_open = 0;
            PyBuffer_Release(&self->window);
        }
        if (self->next_window != Py_None)
            buffer = PyObject_CallNoArgs(self->next_window);
        if (buffer != NULL && buffer != Py_None && !self->is_open &&
            PyObject_GetBuffer(buffer, &self->window, PyBUF_WRITABLE) == 0) {
            self->is_open = 1;
            self->offset = 0;
        }
        Py_XDECREF(buffer);
        /* The program must not see errors of the recording; the entry counts as lost. */
        PyErr_Clear();
        PyErr_Restore(type, value, trace);
    }
    if (!self->is_open) {
        self->lost++;
        return NULL;
    }
    char *room = (char *)self->window.buf + self->offset;
    self->offset += FLOW_ENTRY_SIZE;
    return room;
}

/* Write an entry. The number is stored last: an entry without one is not complete. */
static void stream_put(Stream *self, uint64_t kind, uint64_t place, uint64_t call, uint64_t number)
{
    char *room = stream_room(self);
    if (room == NULL)
        return;
    uint64_t word = kind | place << FLOW_PLACE_SHIFT | call << FLOW_CALL_SHIFT;
    memcpy(room, &word, 8);
    __atomic_store_n((uint64_t *)(room + 8), number, __ATOMIC_RELEASE);
}

/* Forget a tensor object that is gone; the last one of a tensor frees it. */
static void stream_drop(Stream *self, uint64_t address)
{
    int64_t number = int_table_find(self->numbers, address);
    if (number == 0)
        return;
    int_table_drop(self->numbers, address);
    int64_t holders = int_table_find(self->holders, (uint64_t)number);
    if (holders > 1) {
        int_table_place(self->holders, (uint64_t)number)->value = holders - 1;
        return;
    }
    int_table_drop(self->holders, (uint64_t)number);
    stream_put(self, FLOW_FREED, 0, self->last_call, (uint64_t)number);
}

/* The callback of a weak reference. */
typedef struct {
    PyObject_HEAD
    Stream *stream;
    uint64_t address;
} Ending;

static PyObject *ending_call(Ending *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    int64_t reference = int_table_find(self->stream->references, self->address);
    int_table_drop(self->stream->references, self->address);
    stream_drop(self->stream, self->address);
    if (reference != 0)
        Py_DECREF((PyObject *)(uintptr_t)reference);
    Py_RETURN_NONE;
}

static void ending_dealloc(Ending *self)
{
    Py_XDECREF(self->stream);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject EndingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks.Ending",
    .tp_basicsize = sizeof(Ending),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = (ternaryfunc)ending_call,
    .tp_dealloc = (destructor)ending_dealloc,
};

static int stream_refer(Stream *self, PyObject *live)
{
    Ending *ending = (Ending *)EndingType.tp_alloc(&EndingType, 0);
    if (ending == NULL)
        return -1;
    Py_INCREF(self);
    ending->stream = self;
    ending->address = (uint64_t)(uintptr_t)live;
    PyObject *reference = PyWeakref_NewRef(live, (PyObject *)ending);
    Py_DECREF(ending);
    if (reference == NULL)
        return -1;
    return int_table_put(self->references, ending->address, (int64_t)(uintptr_t)reference);
}

/* Return the number of a tensor, which is held from now on; zero if it has none. ``number`` is its
   number and ``buffer`` that of its memory if the caller knows them, else zero. */
static uint64_t stream_number(Stream *self, PyObject *live, uint64_t number, uint64_t buffer)
{
    uint64_t address = (uint64_t)(uintptr_t)live;
    uint64_t known = (uint64_t)int_table_find(self->numbers, address);
    if (self->number_of == Py_None) {
        number = known;
    } else if (number == 0) {
        PyObject *found = PyObject_CallOneArg(self->number_of, live);
        number = found == NULL ? 0 : PyLong_AsUnsignedLongLong(found) + 1;
        Py_XDECREF(found);
    }
    if (number == known && number != 0)
        return number;
    if (known != 0)
        stream_drop(self, address);
    if (self->number_of == Py_None)
        number = ++self->last_number;
    if (number == 0 || PyErr_Occurred())
        return 0;
    if (self->is_weak && stream_refer(self, live) < 0)
        return 0;
    int64_t holders = int_table_find(self->holders, number);
    if (int_table_put(self->numbers, address, (int64_t)number) < 0 ||
        int_table_put(self->holders, number, holders + 1) < 0)
        return 0;
    if (holders != 0)
        return number;
    if (buffer == 0 && self->buffer_of != Py_None) {
        PyObject *found = PyObject_CallOneArg(self->buffer_of, live);
        if (found != NULL && found != Py_None)
            buffer = PyLong_AsUnsignedLongLong(found) + 1;
        Py_XDECREF(found);
    }
    if (buffer != 0 && !PyErr_Occurred()) {
        stream_put(self, FLOW_BUFFER, 0, self->last_call, number);
        stream_put(self, FLOW_BUFFER, 1, self->last_call, buffer);
    }
    return PyErr_Occurred() ? 0 : number;
}

/* Write that a call gets or returns a tensor; errors do not reach the program. */
static void stream_tensor(Stream *self, uint64_t kind, uint64_t place, uint64_t call,
                          PyObject *live, uint64_t number, uint64_t buffer)
{
    self->last_call = call;
    number = stream_number(self, live, number, buffer);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    if (number == 0)
        self->lost++;
    else
        stream_put(self, kind, place, call, number);
}

/* Return the identity, within its case, of the tensor at a place of a call. */
static inline uint64_t order_at(PyObject *order, size_t place)
{
    if (order == NULL || !PyBytes_CheckExact(order) ||
        (size_t)PyBytes_GET_SIZE(order) < 2 * (place + 1))
        return UINT16_MAX;
    uint16_t identity;
    memcpy(&identity, PyBytes_AS_STRING(order) + 2 * place, 2);
    return identity;
}

/* enter(op_index, order, tensors): a call begins with these tensors. */
static PyObject *stream_enter(Stream *self, PyObject *args)
{
    unsigned long long call;
    PyObject *order, *tensors;
    if (!PyArg_ParseTuple(args, "KOO!:enter", &call, &order, &PyTuple_Type, &tensors))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); i++)
        stream_tensor(self, FLOW_INPUT, order_at(order, (size_t)i), call,
                      PyTuple_GET_ITEM(tensors, i), 0, 0);
    self->last_call = call;
    Py_RETURN_NONE;
}

/* leave(op_index, tensors): a call has returned these tensors. */
static PyObject *stream_leave(Stream *self, PyObject *args)
{
    unsigned long long call;
    PyObject *tensors;
    if (!PyArg_ParseTuple(args, "KO!:leave", &call, &PyTuple_Type, &tensors))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); i++)
        stream_tensor(self, FLOW_OUTPUT, (uint64_t)i, call, PyTuple_GET_ITEM(tensors, i), 0,
                      0);
    Py_RETURN_NONE;
}

/* ttnn's tensors take no weak references, so the class itself tells when one is freed. There is
   one trace in a process at a time. */
static PyTypeObject *watched_type;
static destructor watched_dealloc;
static Stream *watching;

static void dealloc_watched(PyObject *live)
{
    Stream *stream = watching;
    if (stream != NULL) {
        Py_INCREF(stream);
        stream_drop(stream, (uint64_t)(uintptr_t)live);
        Py_DECREF(stream);
    }
    watched_dealloc(live);
}

/* watch(type): notice when objects of a class are freed. */
static PyObject *stream_watch(Stream *self, PyObject *type)
{
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "expected a class");
        return NULL;
    }
    if (watched_type == NULL) {
        Py_INCREF(type);
        watched_type = (PyTypeObject *)type;
        watched_dealloc = watched_type->tp_dealloc;
        watched_type->tp_dealloc = dealloc_watched;
    }
    if (watched_type != (PyTypeObject *)type) {
        PyErr_SetString(PyExc_RuntimeError, "another class is being watched");
        return NULL;
    }
    Py_INCREF(self);
    Py_XSETREF(watching, self);
    Py_RETURN_NONE;
}

/* Forget all tensors, and write nothing more. */
static void stream_release(Stream *self)
{
    IntTable references = *self->references;
    if (int_table_begin(self->references, MIN_PAIRS) == 0) {
        for (size_t i = 0; i <= references.mask; i++)
            if (references.pairs[i].value != 0)
                Py_DECREF((PyObject *)(uintptr_t)references.pairs[i].value);
        PyMem_Free(references.pairs);
    }
    Py_XDECREF(int_table_clear((PyObject *)self->numbers, NULL));
    Py_XDECREF(int_table_clear((PyObject *)self->holders, NULL));
    PyErr_Clear();
    if (self->is_open) {
        self->is_open = 0;
        PyBuffer_Release(&self->window);
    }
    Py_INCREF(Py_None);
    Py_XSETREF(self->next_window, Py_None);
}

/* close(): write nothing more, and watch no class any more. */
static PyObject *stream_close(Stream *self, PyObject *Py_UNUSED(args))
{
    stream_release(self);
    if (watching == self) {
        Py_CLEAR(watching);
        watched_type->tp_dealloc = watched_dealloc;
        Py_CLEAR(watched_type);
    }
    Py_RETURN_NONE;
}

/* restart(next_window): write into other windows from now on, as a forked process has to. */
static PyObject *stream_restart(Stream *self, PyObject *next_window)
{
    stream_release(self);
    Py_INCREF(next_window);
    Py_XSETREF(self->next_window, next_window);
    Py_RETURN_NONE;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"next_window", "number_of", "buffer_of", "first", "weak", NULL};
    PyObject *next_window, *number_of, *buffer_of;
    unsigned long long first;
    int weak;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOKp", names, &next_window, &number_of,
                                     &buffer_of, &first, &weak))
        return NULL;
    Stream *self = (Stream *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->next_window = Py_NewRef(next_window);
    self->number_of = Py_NewRef(number_of);
    self->buffer_of = Py_NewRef(buffer_of);
    self->last_number = first;
    self->is_weak = (char)weak;
    self->numbers = (IntTable *)PyObject_CallNoArgs((PyObject *)&IntTableType);
    self->holders = (IntTable *)PyObject_CallNoArgs((PyObject *)&IntTableType);
    self->references = (IntTable *)PyObject_CallNoArgs((PyObject *)&IntTableType);
    if (self->numbers == NULL || self->holders == NULL || self->references == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void stream_dealloc(Stream *self)
{
    if (self->is_open)
        PyBuffer_Release(&self->window);
    Py_XDECREF(self->next_window);
    Py_XDECREF(self->number_of);
    Py_XDECREF(self->buffer_of);
    Py_XDECREF(self->numbers);
    Py_XDECREF(self->holders);
    Py_XDECREF(self->references);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef stream_methods[] = {
    {"enter", (PyCFunction)stream_enter, METH_VARARGS, NULL},
    {"leave", (PyCFunction)stream_leave, METH_VARARGS, NULL},
    {"watch", (PyCFunction)stream_watch, METH_O, NULL},
    {"close", (PyCFunction)stream_close, METH_NOARGS, NULL},
    {"restart", (PyCFunction)stream_restart, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef stream_members[] = {
    {"lost", T_ULONGLONG, offsetof(Stream, lost), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject StreamType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks.Stream",
    .tp_doc = "The tensors of calls, as they are written to a journal.",
    .tp_basicsize = sizeof(Stream),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = stream_new,
    .tp_dealloc = (destructor)stream_dealloc,
    .tp_methods = stream_methods,
    .tp_members = stream_members,
};

/* Return whether an object is a Stream of this module or None; else set an error. */
static int is_stream(PyObject *live)
{
    if (live == Py_None || Py_IS_TYPE(live, &StreamType))
        return 1;
    PyErr_SetString(PyExc_TypeError, "expected a Stream or None");
    return 0;
}

static int add_stream(PyObject *made)
{
    if (PyType_Ready(&EndingType) < 0 || PyType_Ready(&StreamType) < 0 ||
        PyType_Ready(&IntTableType) < 0)
        return -1;
    return PyModule_AddObjectRef(made, "Stream", (PyObject *)&StreamType);
}
