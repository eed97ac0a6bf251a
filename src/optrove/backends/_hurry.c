/* The hot path of tracing, in C: what ttnn/hurried.py does, call for call, in a fifth of the time.

   A Hurried stands in the place of a function. It makes the key of a call, looks up what is known
   about such calls, writes a record at entry and completes it at exit. Whatever it does not know
   it leaves to ``general``, which records any call. The form of records is that of
   codec/journal.py; keys are those of TtnnFingerprints.call. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <structmember.h>
#include <time.h>

#define MAX_PARTS 160
#define MAX_TENSORS 24
#define EXIT_OFFSET 32
#define RECORD_SIZE 48
#define NO_NUMBER UINT64_MAX
#define RETURNED 1
#define RAISED 2

static PyObject *str_tensor_id, *str_spec, *str_word, *str_usual, *str_window, *str_scope;
static PyObject *str_take, *str_memory, *str_doc, *get_frame;

/* What all calls of one probe share: the window that records go to, mapped. */
typedef struct {
    PyObject_HEAD
    PyObject *slots, *window, *take;
    Py_buffer buffer;
} Desk;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Desk *desk;
    PyObject *op, *function, *general, *form, *outputs, *error, *site_of;
    PyObject *known, *sites, *facts, *held, *rules, *apart, *tensor, *current;
    PyObject *depth;
    int forgets;
} Hurried;

/* A key in the making. Parts are owned. */
typedef struct {
    PyObject *parts[MAX_PARTS];
    Py_ssize_t count;
    long long tensors[MAX_TENSORS];
    PyObject *numbers[MAX_TENSORS];
    int tensor_count;
    int doubt;
    int nested;
} Key;

/* What goes wrong in here is left to others or counted by them. But an interrupt of the program,
   such as KeyboardInterrupt, which may come while any Python code runs, has to go on. */
static void drop_error(void)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void key_clear(Key *key)
{
    for (Py_ssize_t i = 0; i < key->count; i++)
        Py_DECREF(key->parts[i]);
    for (int i = 0; i < key->tensor_count; i++)
        Py_DECREF(key->numbers[i]);
}

static int key_push(Key *key, PyObject *part)
{
    if (key->count == MAX_PARTS)
        return -1;
    Py_INCREF(part);
    key->parts[key->count++] = part;
    return 0;
}

static int key_push_tensor(Hurried *self, Key *key, PyObject *live)
{
    if (key->tensor_count == MAX_TENSORS)
        return -1;
    PyObject *number = PyObject_GetAttr(live, str_tensor_id);
    if (number == NULL)
        return -1;
    PyObject *part = PyDict_GetItemWithError(self->facts, number);
    if (part == NULL || key_push(key, part) < 0) {
        Py_DECREF(number);
        return -1;
    }
    key->tensors[key->tensor_count] = PyLong_AsLongLong(number);
    key->numbers[key->tensor_count++] = number;
    if (PyLong_AsLongLong(part) < 0)
        key->doubt = 1;
    return 0;
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
static int key_push_by_rule(Hurried *self, Key *key, PyObject *live)
{
    PyObject *rule = PyDict_GetItemWithError(self->rules, (PyObject *)Py_TYPE(live));
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

static int key_add(Hurried *self, Key *key, PyObject *live)
{
    PyTypeObject *kind = Py_TYPE(live);
    if ((PyObject *)kind == self->tensor)
        return key_push_tensor(self, key, live);
    /* Zero has a sign, which its rule tells. */
    if (is_plain(live) || (PyFloat_CheckExact(live) && PyFloat_AS_DOUBLE(live) != 0.0)) {
        if (key_push(key, (PyObject *)kind) < 0)
            return -1;
        return key_push(key, live);
    }
    PyObject *identity = PyLong_FromVoidPtr(live);
    if (identity == NULL)
        return -1;
    PyObject *number = PyDict_GetItemWithError(self->held, identity);
    Py_DECREF(identity);
    if (number != NULL)
        return key_push(key, number);
    return PyErr_Occurred() ? -1 : key_push_by_rule(self, key, live);
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

static int lie_apart(Hurried *self, Key *key, PyObject *const *args, Py_ssize_t count,
                     PyObject *names)
{
    int alone = !key->doubt;
    for (int i = 1; alone && i < key->tensor_count; i++)
        for (int j = 0; j < i; j++)
            alone = alone && key->tensors[i] != key->tensors[j];
    if (!key->nested && (alone || key->tensor_count < 2))
        return 1;
    PyObject *call = whole_call(args, count, names);
    PyObject *answer = call == NULL ? NULL : PyObject_CallOneArg(self->apart, call);
    Py_XDECREF(call);
    int apart = answer == NULL ? 0 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return apart > 0;
}

/* Return what is known about calls like this one; NULL if that is nothing. */
static PyObject *find_known(Hurried *self, Key *key, PyObject *const *args, Py_ssize_t count,
                            PyObject *names)
{
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    if (key_push(key, self->op) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < all; i++)
        if (key_add(self, key, args[i]) < 0)
            return NULL;
    if (!lie_apart(self, key, args, count, names))
        return NULL;
    if (names != NULL && PyTuple_GET_SIZE(names) > 0 && key_push(key, names) < 0)
        return NULL;
    PyObject *tuple = positional(key->parts, key->count);
    if (tuple == NULL)
        return NULL;
    PyObject *known = PyDict_GetItemWithError(self->known, tuple);
    /* At once, as another thread may clear the table. */
    Py_XINCREF(known);
    Py_DECREF(tuple);
    return known;
}

static long find_site(Hurried *self, PyObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
    PyObject *identity = PyLong_FromVoidPtr(code);
    Py_DECREF(code);
    if (identity == NULL)
        return -1;
    PyObject *lines = PyDict_GetItemWithError(self->sites, identity), *site = NULL;
    Py_DECREF(identity);
    if (lines != NULL) {
#if PY_VERSION_HEX >= 0x030B0000
        PyObject *place = PyLong_FromLong(PyFrame_GetLasti((PyFrameObject *)frame));
#else
        PyObject *place = PyObject_GetAttrString(frame, "f_lasti");
#endif
        if (place == NULL)
            return -1;
        site = PyDict_GetItemWithError(lines, place);
        Py_DECREF(place);
        return site == NULL ? -1 : PyLong_AsLong(site);
    }
    if (PyErr_Occurred())
        return -1;
    site = PyObject_CallOneArg(self->site_of, frame);
    long number = site == NULL ? -1 : PyLong_AsLong(site);
    Py_XDECREF(site);
    return number;
}

static void desk_let_go(Desk *desk)
{
    Desk before = *desk;
    /* Letting go of a mapped window lets other threads run, so the desk must be in order before. */
    desk->window = desk->take = NULL;
    if (before.window != NULL)
        PyBuffer_Release(&before.buffer);
    Py_XDECREF(before.take);
    Py_XDECREF(before.window);
}

static int desk_move(Desk *desk, PyObject *window)
{
    PyObject *memory = PyObject_GetAttr(window, str_memory);
    PyObject *take = memory == NULL ? NULL : PyObject_GetAttr(window, str_take);
    Py_buffer buffer;
    if (take == NULL || PyObject_GetBuffer(memory, &buffer, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(memory);
        Py_XDECREF(take);
        return -1;
    }
    Py_DECREF(memory);
    Desk before = *desk;
    Py_INCREF(window);
    desk->window = window;
    desk->take = take;
    desk->buffer = buffer;
    desk_let_go(&before);
    return 0;
}

/* Return the memory of a free record and the window that keeps it mapped, owned; NULL when the
   window is full or gone. */
static char *take_record(Desk *desk, PyObject **window)
{
    PyObject *now = PyObject_GetAttr(desk->slots, str_window);
    if (now == NULL)
        return NULL;
    int failed = now != desk->window && desk_move(desk, now) < 0;
    Py_DECREF(now);
    if (failed || desk->window == NULL)
        return NULL;
    /* Other threads may move the desk while any of these is let go. */
    PyObject *held = desk->window, *take = desk->take;
    char *memory = desk->buffer.buf;
    Py_ssize_t length = desk->buffer.len, offset = -1;
    Py_INCREF(held);
    Py_INCREF(take);
    PyObject *place = PyObject_CallNoArgs(take);
    Py_DECREF(take);
    if (place != NULL) {
        offset = PyLong_AsSsize_t(place);
        Py_DECREF(place);
    }
    if (offset < 0 || offset > length - RECORD_SIZE) {
        Py_DECREF(held);
        return NULL;
    }
    *window = held;
    return memory + offset;
}

static uint64_t attribute(PyObject *owner, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(owner, name);
    uint64_t number = value == NULL ? NO_NUMBER : PyLong_AsUnsignedLongLong(value);
    Py_XDECREF(value);
    return number;
}

/* The clock at entry is stored last, as a whole: until then the record has not begun. */
static void write_entry(char *record, uint64_t word, uint32_t site, uint32_t scope)
{
    memcpy(record, &word, 8);
    memcpy(record + 8, &site, 4);
    memcpy(record + 12, &scope, 4);
    __atomic_store_n((uint64_t *)(record + 16), clock_ns(), __ATOMIC_RELEASE);
}

/* The outcome is stored last, as a whole: until then the call is unfinished. */
static void write_exit(char *record, uint64_t stopped, uint32_t number, uint32_t outcome)
{
    memcpy(record + EXIT_OFFSET, &stopped, 8);
    memcpy(record + EXIT_OFFSET + 8, &number, 4);
    __atomic_store_n((uint32_t *)(record + EXIT_OFFSET + 12), outcome, __ATOMIC_RELEASE);
}

/* Number the exception that is set, which stays set unless an interrupt takes its place. */
static uint32_t number_of_error(Hurried *self)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *number = value == NULL ? NULL : PyObject_CallOneArg(self->error, value);
    uint32_t found = number == NULL ? 0 : (uint32_t)PyLong_AsUnsignedLong(number);
    Py_XDECREF(number);
    drop_error();
    if (!PyErr_Occurred()) {
        PyErr_Restore(type, value, trace);
        return found;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return found;
}

/* Tell whether a result is the usual one; if so, note its part and give the outputs' number. */
static int is_usual(Hurried *self, PyObject *known, PyObject *result, uint32_t *outputs)
{
    PyObject *usual = PyObject_GetAttr(known, str_usual), *spec = NULL, *same = NULL;
    int answer = 0;
    if (usual != NULL && PyTuple_CheckExact(usual) && PyTuple_GET_SIZE(usual) == 3 &&
        !PyTuple_CheckExact(PyTuple_GET_ITEM(usual, 0)))
        spec = PyObject_GetAttr(result, str_spec);
    if (spec != NULL)
        same = PyObject_CallOneArg(PyTuple_GET_ITEM(usual, 0), spec);
    if (same == Py_True) {
        PyObject *number = PyObject_GetAttr(result, str_tensor_id);
        if (number != NULL &&
            PyDict_SetItem(self->facts, number, PyTuple_GET_ITEM(usual, 1)) == 0) {
            *outputs = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(usual, 2));
            answer = 1;
        }
        Py_XDECREF(number);
    }
    Py_XDECREF(same);
    Py_XDECREF(spec);
    Py_XDECREF(usual);
    drop_error();
    return answer;
}

/* The same for a sequence of tensors: what tells the elements apart, and their parts, is together
   in one tuple, so that no other thread can change one without the other. */
static int are_usual(Hurried *self, PyObject *known, PyObject *result, uint32_t *outputs)
{
    PyObject *usual = PyObject_GetAttr(known, str_usual), *elements = NULL;
    int answer = 0;
    if (usual != NULL && PyTuple_CheckExact(usual) && PyTuple_GET_SIZE(usual) == 3)
        elements = PyTuple_GET_ITEM(usual, 0);
    if (elements != NULL && PyTuple_CheckExact(elements) &&
        PyTuple_GET_SIZE(elements) == PySequence_Fast_GET_SIZE(result)) {
        answer = 1;
        for (Py_ssize_t i = 0; answer && i < PyTuple_GET_SIZE(elements); i++) {
            PyObject *live = PySequence_Fast_GET_ITEM(result, i);
            PyObject *spec = NULL, *same = NULL, *number = NULL;
            if ((PyObject *)Py_TYPE(live) == self->tensor)
                spec = PyObject_GetAttr(live, str_spec);
            if (spec != NULL)
                same = PyObject_CallOneArg(
                    PyTuple_GET_ITEM(PyTuple_GET_ITEM(elements, i), 0), spec);
            if (same == Py_True)
                number = PyObject_GetAttr(live, str_tensor_id);
            answer = number != NULL &&
                     PyDict_SetItem(self->facts, number,
                                    PyTuple_GET_ITEM(PyTuple_GET_ITEM(elements, i), 1)) == 0;
            Py_XDECREF(number);
            Py_XDECREF(same);
            Py_XDECREF(spec);
        }
        if (answer)
            *outputs = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(usual, 2));
    }
    Py_XDECREF(usual);
    drop_error();
    return answer;
}

/* Number what a call gave; only an interrupt is left set. */
static uint32_t number_of_outputs(Hurried *self, PyObject *known, PyObject *result,
                                  PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    uint32_t outputs = 0;
    if (result == Py_None)
        return 0;
    if ((PyObject *)Py_TYPE(result) == self->tensor && is_usual(self, known, result, &outputs))
        return outputs;
    if ((PyTuple_CheckExact(result) || PyList_CheckExact(result)) &&
        are_usual(self, known, result, &outputs))
        return outputs;
    if (PyErr_Occurred())
        return 0;
    PyObject *call = whole_call(args, count, names), *number = NULL;
    if (call != NULL)
        number = PyObject_CallFunctionObjArgs(self->outputs, self->form, known, result, call, NULL);
    if (number != NULL)
        outputs = (uint32_t)PyLong_AsUnsignedLong(number);
    Py_XDECREF(call);
    Py_XDECREF(number);
    drop_error();
    return outputs;
}

/* Return the frame of the caller; None when no Python code has called, as at exit. */
static PyObject *find_frame(Hurried *self)
{
    PyObject *frame = PyObject_CallOneArg(get_frame, self->depth);
    if (frame == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return frame;
}

static PyObject *leave_to_general(Hurried *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *names)
{
    drop_error();
    if (PyErr_Occurred())
        return NULL;
    PyObject *frame = find_frame(self), *result = NULL;
    PyObject *given = frame == NULL ? NULL : positional(args, count);
    PyObject *named = given == NULL ? NULL : keywords(args, count, names);
    if (named != NULL)
        result = PyObject_CallFunctionObjArgs(self->general, frame, given, named, NULL);
    Py_XDECREF(frame);
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

static int is_outermost(Hurried *self)
{
    PyObject *current;
    if (PyContextVar_Get(self->current, NULL, &current) < 0)
        return 0;
    int outermost = current == Py_None;
    Py_XDECREF(current);
    return outermost;
}

/* Write the beginning of a call's record and return that record; NULL if it cannot be. */
static char *begin_record(Hurried *self, Key *key, PyObject *known, PyObject **window)
{
    /* Those are looked for at the top only. */
    if (self->forgets && key->nested)
        return NULL;
    PyObject *frame = find_frame(self);
    if (frame == NULL)
        return NULL;
    long site = frame == Py_None ? -1 : find_site(self, frame);
    Py_DECREF(frame);
    if (site < 0)
        return NULL;
    uint64_t word = attribute(known, str_word);
    uint64_t scope = word == NO_NUMBER ? NO_NUMBER : attribute(self->desk->slots, str_scope);
    char *record = scope == NO_NUMBER ? NULL : take_record(self->desk, window);
    if (record == NULL)
        return NULL;
    for (int i = 0; self->forgets && i < key->tensor_count; i++)
        if (PyDict_DelItem(self->facts, key->numbers[i]) < 0)
            PyErr_Clear();
    write_entry(record, word, (uint32_t)site, (uint32_t)scope);
    return record;
}

static PyObject *hurried_call(PyObject *callable, PyObject *const *args, size_t flags,
                              PyObject *names)
{
    Hurried *self = (Hurried *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    Key key;
    key.count = key.tensor_count = key.doubt = key.nested = 0;
    PyObject *known = NULL, *window = NULL;
    char *record = NULL;
    if (is_outermost(self))
        known = find_known(self, &key, args, count, names);
    if (known != NULL)
        record = begin_record(self, &key, known, &window);
    key_clear(&key);
    if (record == NULL) {
        Py_XDECREF(known);
        return leave_to_general(self, args, count, names);
    }
    PyObject *result = PyObject_Vectorcall(self->function, args, flags, names);
    uint64_t stopped = clock_ns();
    if (result == NULL) {
        write_exit(record, stopped, number_of_error(self), RAISED);
    } else {
        uint32_t outputs = number_of_outputs(self, known, result, args, count, names);
        write_exit(record, stopped, outputs, RETURNED);
        if (PyErr_Occurred())
            Py_CLEAR(result);
    }
    /* The window may have been replaced meanwhile; it has kept its memory mapped. */
    Py_DECREF(window);
    Py_DECREF(known);
    return result;
}

#define OWNED(VISIT)                                                                              \
    VISIT(desk) VISIT(op) VISIT(function) VISIT(general) VISIT(form) VISIT(outputs) VISIT(error)  \
    VISIT(site_of) VISIT(known) VISIT(sites) VISIT(facts) VISIT(held) VISIT(rules) VISIT(apart)   \
    VISIT(tensor) VISIT(current) VISIT(depth)

static int hurried_traverse(Hurried *self, visitproc visit, void *arg)
{
#define VISIT_MEMBER(name) Py_VISIT(self->name);
    OWNED(VISIT_MEMBER)
    return 0;
}

static int hurried_clear(Hurried *self)
{
    /* Whoever still calls it gets a TypeError. */
    self->vectorcall = NULL;
#define CLEAR_MEMBER(name) Py_CLEAR(self->name);
    OWNED(CLEAR_MEMBER)
    return 0;
}

static void hurried_dealloc(Hurried *self)
{
    PyObject_GC_UnTrack(self);
    hurried_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject DeskType;

static PyObject *hurried_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"desk",  "op",    "function", "general", "form",   "outputs",
                            "error", "site_of", "known",  "sites",   "facts",  "held",
                            "rules", "apart", "tensor",   "current", "depth",  "forgets", NULL};
    Hurried given;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!OOOOOOOO!O!O!O!O!OOOO!p", names, &DeskType, &given.desk, &given.op,
            &given.function, &given.general, &given.form, &given.outputs, &given.error,
            &given.site_of, &PyDict_Type, &given.known, &PyDict_Type, &given.sites, &PyDict_Type,
            &given.facts, &PyDict_Type, &given.held, &PyDict_Type, &given.rules, &given.apart,
            &given.tensor, &given.current, &PyLong_Type, &given.depth, &given.forgets))
        return NULL;
    Hurried *self = (Hurried *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
#define TAKE_MEMBER(name)                                                                         \
    Py_INCREF(given.name);                                                                        \
    self->name = given.name;
    OWNED(TAKE_MEMBER)
    self->forgets = given.forgets;
    self->vectorcall = hurried_call;
    return (PyObject *)self;
}

/* Whatever else is asked of the function, such as its name, the function tells. */
static PyObject *hurried_attribute(PyObject *callable, PyObject *name)
{
    Hurried *self = (Hurried *)callable;
    PyObject *found = PyObject_GenericGetAttr(callable, name);
    if (found != NULL || self->function == NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(self->function, name);
}

static PyObject *hurried_doc(PyObject *callable, void *Py_UNUSED(closure))
{
    Hurried *self = (Hurried *)callable;
    return PyObject_GetAttr(self->function == NULL ? Py_None : self->function, str_doc);
}

/* A function is its own copy. */
static PyObject *hurried_copy(PyObject *self, PyObject *Py_UNUSED(arguments))
{
    Py_INCREF(self);
    return self;
}

static PyObject *hurried_bind(PyObject *self, PyObject *owner, PyObject *Py_UNUSED(type))
{
    if (owner == NULL || owner == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, owner);
}

static PyMemberDef hurried_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Hurried, function), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef hurried_computed[] = {
    {"__doc__", hurried_doc, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef hurried_methods[] = {
    {"__copy__", hurried_copy, METH_NOARGS, NULL},
    {"__deepcopy__", hurried_copy, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject HurriedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.backends._hurry.Hurried",
    .tp_basicsize = sizeof(Hurried),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Hurried, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = hurried_new,
    .tp_getattro = hurried_attribute,
    .tp_dealloc = (destructor)hurried_dealloc,
    .tp_traverse = (traverseproc)hurried_traverse,
    .tp_clear = (inquiry)hurried_clear,
    .tp_descr_get = hurried_bind,
    .tp_members = hurried_members,
    .tp_getset = hurried_computed,
    .tp_methods = hurried_methods,
};

static PyObject *desk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slots", NULL};
    PyObject *slots;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &slots))
        return NULL;
    Desk *self = (Desk *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(slots);
    self->slots = slots;
    return (PyObject *)self;
}

static int desk_traverse(Desk *self, visitproc visit, void *arg)
{
    Py_VISIT(self->slots);
    Py_VISIT(self->window);
    Py_VISIT(self->take);
    if (self->window != NULL)
        Py_VISIT(self->buffer.obj);
    return 0;
}

static int desk_clear(Desk *self)
{
    desk_let_go(self);
    Py_CLEAR(self->slots);
    return 0;
}

static void desk_dealloc(Desk *self)
{
    PyObject_GC_UnTrack(self);
    desk_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject DeskType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.backends._hurry.Desk",
    .tp_doc = "Where the records of one probe are written.",
    .tp_basicsize = sizeof(Desk),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = desk_new,
    .tp_dealloc = (destructor)desk_dealloc,
    .tp_traverse = (traverseproc)desk_traverse,
    .tp_clear = (inquiry)desk_clear,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "optrove.backends._hurry",
    .m_doc = "The hot path of tracing, in C.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__hurry(void)
{
    struct {
        PyObject **place;
        const char *text;
    } names[] = {{&str_tensor_id, "tensor_id"}, {&str_spec, "spec"},     {&str_word, "word"},
                 {&str_usual, "usual"},         {&str_window, "window"}, {&str_scope, "scope"},
                 {&str_take, "take"},           {&str_memory, "memory"}, {&str_doc, "__doc__"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((*names[i].place = PyUnicode_InternFromString(names[i].text)) == NULL)
            return NULL;
    get_frame = PySys_GetObject("_getframe");
    if (get_frame == NULL || PyType_Ready(&HurriedType) < 0 || PyType_Ready(&DeskType) < 0)
        return NULL;
    Py_INCREF(get_frame);
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || PyModule_AddObjectRef(made, "Hurried", (PyObject *)&HurriedType) < 0 ||
        PyModule_AddObjectRef(made, "Desk", (PyObject *)&DeskType) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
