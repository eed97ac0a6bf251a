/* The hot path of tracing, in C: what ttnn/hurried.py does, call for call.

   A Hurried stands in the place of a function. It makes the key of a call, looks up what is known
   about such calls, writes a record at entry and completes it at exit. Whatever it does not know
   it leaves to ``general``, which records any call. The form of records is that of
   journal/format.py; keys are those of TtnnFingerprints.call.

   ttnn empties the processor's caches between two calls, so that what counts is how many places in
   memory are read. So each Hurried remembers the calls that it has found (_hurry_quick.h); only for
   a call that is not among these a key is made (_hurry_key.h). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_hurry_desk.h"
#include "_hurry_key.h"
#include "_hurry_numbers.h"
#include "_hurry_quick.h"

#define NO_WORD UINT64_MAX

static PyObject *str_doc;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Desk *desk;
    PyObject *function, *depth;
    Found found;
    int forgets;
    PyObject *op, *general, *form;
} Hurried;

/* Return what is known about calls with a key, owned; NULL if that is nothing. */
static PyObject *known_by_key(Hurried *self, const Key *key)
{
    PyObject *table = self->desk->known, *tuple = positional(key->parts, key->count);
    if (tuple == NULL)
        return NULL;
    /* Other threads may clear the table or put another in its place. */
    Py_INCREF(table);
    PyObject *known = PyDict_GetItemWithError(table, tuple);
    if (known != NULL && !Py_IS_TYPE(known, (PyTypeObject *)self->desk->kind))
        known = NULL;
    Py_XINCREF(known);
    Py_DECREF(table);
    Py_DECREF(tuple);
    return known;
}

/* Find by its key what is known about a call, owned, and the first word of its records. */
static void find_by_key(Hurried *self, Quick *call, Tensors *tensors, PyObject *const *args,
                        Py_ssize_t count, PyObject *names)
{
    Key key;
    key.count = key.nested = 0;
    tensors->count = tensors->doubt = 0;
    /* Tensors in sequences are not among those that can be forgotten. */
    if (key_make(self->desk, self->op, &key, tensors, args, count, names) == 0 &&
        !(self->forgets && key.nested))
        call->known = known_by_key(self, &key);
    key_clear(&key);
    if (call->known == NULL)
        return;
    PyObject *word = field(call->known, self->desk->word_at);
    call->record_word = word == NULL ? NO_WORD : PyLong_AsUnsignedLongLong(word);
    if (call->record_word == NO_WORD)
        Py_CLEAR(call->known);
}

/* Return what is known about calls like this one, owned, and the first word of their records;
   NULL if that is nothing. */
static PyObject *find_known(Hurried *self, Tensors *tensors, uint64_t *word, PyObject *const *args,
                            Py_ssize_t count, PyObject *names)
{
    uint32_t generation = self->desk->generation;
    if (self->found.generation != generation) {
        self->found.generation = generation;
        forget_quick(&self->found);
    }
    Quick call;
    call.known = NULL;
    call.record_word = NO_WORD;
    call.kinds = call.count = 0;
    tensors->count = tensors->doubt = 0;
    int is_quick = quick_make(self->desk, &call, tensors, args, count, names) == 0;
    Quick *found = is_quick ? find_quick(&self->found, &call) : NULL;
    if (found != NULL) {
        *word = found->record_word;
        Py_INCREF(found->known);
        return found->known;
    }
    drop_error();
    if (PyErr_Occurred())
        return NULL;
    find_by_key(self, &call, tensors, args, count, names);
    *word = call.record_word;
    /* Not if another thread has seen meanwhile that what was known is void. */
    if (call.known != NULL && is_quick && generation == self->desk->generation &&
        generation == self->found.generation)
        remember_quick(&self->found, &call);
    return call.known;
}

/* Number the exception that is set, which stays set unless an interrupt takes its place. */
static uint32_t number_of_error(Hurried *self)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *number = value == NULL ? NULL : PyObject_CallOneArg(self->desk->error, value);
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

/* Tell whether a tensor is as one was before, and if so note its part. */
static int is_alike(Desk *desk, PyObject *live, PyObject *same_as, PyObject *part)
{
    PyObject *spec = PyObject_CallOneArg(desk->spec_of, live), *number = NULL;
    PyObject *same = spec == NULL ? NULL : PyObject_CallOneArg(same_as, spec);
    if (same == Py_True)
        number = PyObject_CallOneArg(desk->id_of, live);
    int answer = 0;
    if (number != NULL) {
        uint64_t id = PyLong_AsUnsignedLongLong(number);
        int64_t value = PyLong_AsLongLong(part);
        answer = !PyErr_Occurred() && value != 0 && numbers_put(desk->facts, id, value) == 0;
    }
    Py_XDECREF(number);
    Py_XDECREF(same);
    Py_XDECREF(spec);
    return answer;
}

/* The same for a sequence of tensors: ``elements`` are pairs of what tells and the part. */
static int are_alike(Desk *desk, PyObject *result, PyObject *elements)
{
    if (!PyTuple_CheckExact(result) && !PyList_CheckExact(result))
        return 0;
    int answer = PyTuple_GET_SIZE(elements) == PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t i = 0; answer && i < PyTuple_GET_SIZE(elements); i++) {
        PyObject *element = PyTuple_GET_ITEM(elements, i);
        PyObject *live = PySequence_Fast_GET_ITEM(result, i);
        answer = (PyObject *)Py_TYPE(live) == desk->tensor &&
                 is_alike(desk, live, PyTuple_GET_ITEM(element, 0), PyTuple_GET_ITEM(element, 1));
    }
    return answer;
}

/* Tell whether a result is the usual one; if so, note its parts and give the outputs' number. All
   that is usual is together in one tuple, so that no thread can change one without the other. */
static int is_usual(Desk *desk, PyObject *known, PyObject *result, uint32_t *outputs)
{
    PyObject *usual = field(known, desk->usual_at);
    if (usual == NULL || !PyTuple_CheckExact(usual) || PyTuple_GET_SIZE(usual) != 3)
        return 0;
    Py_INCREF(usual);
    PyObject *first = PyTuple_GET_ITEM(usual, 0);
    int answer = 0;
    if (PyTuple_CheckExact(first))
        answer = are_alike(desk, result, first);
    else if ((PyObject *)Py_TYPE(result) == desk->tensor)
        answer = is_alike(desk, result, first, PyTuple_GET_ITEM(usual, 1));
    if (answer)
        *outputs = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(usual, 2));
    Py_DECREF(usual);
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
    if (is_usual(self->desk, known, result, &outputs))
        return outputs;
    if (PyErr_Occurred())
        return 0;
    PyObject *call = whole_call(args, count, names), *number = NULL;
    if (call != NULL)
        number = PyObject_CallFunctionObjArgs(self->desk->outputs, self->form, known, result, call,
                                              NULL);
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

static int is_outermost(Desk *desk)
{
    PyObject *current;
    if (PyContextVar_Get(desk->current, NULL, &current) < 0)
        return 0;
    int outermost = current == Py_None;
    Py_XDECREF(current);
    return outermost;
}

/* Write the beginning of a call's record and return that record; NULL if it cannot be. */
static char *begin_record(Hurried *self, const Tensors *tensors, uint64_t word, PyObject **window)
{
    Desk *desk = self->desk;
    PyObject *frame = find_frame(self);
    if (frame == NULL || frame == Py_None) {
        Py_XDECREF(frame);
        return NULL;
    }
    int site = find_site(desk, (PyFrameObject *)frame);
    int64_t scope = site < 0 ? -1 : desk_scope(desk);
    char *record = scope < 0 ? NULL : take_record(desk, window);
    if (record == NULL)
        return NULL;
    for (int i = 0; self->forgets && i < tensors->count; i++)
        numbers_drop(desk->facts, tensors->numbers[i]);
    write_entry(record, word, (uint32_t)site, (uint32_t)scope);
    return record;
}

static PyObject *hurried_call(PyObject *callable, PyObject *const *args, size_t flags,
                              PyObject *names)
{
    Hurried *self = (Hurried *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    Tensors tensors;
    uint64_t word = NO_WORD;
    PyObject *known = NULL, *window = NULL;
    char *record = NULL;
    expect_record(self->desk);
    if (is_outermost(self->desk) && desk_follow(self->desk) == 0)
        known = find_known(self, &tensors, &word, args, count, names);
    if (known != NULL)
        record = begin_record(self, &tensors, word, &window);
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
    VISIT(desk) VISIT(op) VISIT(function) VISIT(general) VISIT(form) VISIT(depth)

static int hurried_traverse(Hurried *self, visitproc visit, void *arg)
{
#define VISIT_MEMBER(name) Py_VISIT(self->name);
    OWNED(VISIT_MEMBER)
    for (uint32_t i = 0; i < self->found.size; i++)
        Py_VISIT(self->found.calls[i].known);
    return 0;
}

static int hurried_clear(Hurried *self)
{
    /* Whoever still calls it gets a TypeError. */
    self->vectorcall = NULL;
#define CLEAR_MEMBER(name) Py_CLEAR(self->name);
    OWNED(CLEAR_MEMBER)
    forget_quick(&self->found);
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
    static char *names[] = {"desk", "op", "function", "general", "form", "depth", "forgets", NULL};
    Hurried given;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOOO!p", names, &DeskType, &given.desk,
                                     &given.op, &given.function, &given.general, &given.form,
                                     &PyLong_Type, &given.depth, &given.forgets))
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
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks._hurry.Hurried",
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

#define SHARED(VISIT)                                                                             \
    VISIT(slots) VISIT(current) VISIT(tensor) VISIT(id_of) VISIT(spec_of) VISIT(facts)            \
    VISIT(held) VISIT(sites) VISIT(site_of) VISIT(rules) VISIT(apart) VISIT(outputs)              \
    VISIT(error) VISIT(kind)

static int desk_traverse(Desk *self, visitproc visit, void *arg)
{
    SHARED(VISIT_MEMBER)
    Py_VISIT(self->known);
    Py_VISIT(self->paper.window);
    Py_VISIT(self->paper.places);
    if (self->paper.window != NULL)
        Py_VISIT(self->paper.buffer.obj);
    return 0;
}

static int desk_clear(Desk *self)
{
    Paper before = self->paper;
    memset(&self->paper, 0, sizeof(Paper));
    paper_let_go(before);
    Py_CLEAR(self->known);
    Py_CLEAR(self->scope);
    SHARED(CLEAR_MEMBER)
    return 0;
}

static void desk_dealloc(Desk *self)
{
    PyObject_GC_UnTrack(self);
    desk_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Find the places of what is read from the objects of the Python side; -1 if one has none. */
static int desk_find_places(Desk *self)
{
    PyTypeObject *kind = (PyTypeObject *)self->kind;
    self->window_at = place_of(Py_TYPE(self->slots), "window");
    self->known_at = self->window_at < 0 ? -1 : place_of(Py_TYPE(self->slots), "known");
    self->scope_at = self->known_at < 0 ? -1 : place_of(Py_TYPE(self->slots), "scope");
    self->word_at = self->scope_at < 0 ? -1 : place_of(kind, "word");
    self->usual_at = self->word_at < 0 ? -1 : place_of(kind, "usual");
    return self->usual_at < 0 ? -1 : 0;
}

static PyObject *desk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slots",   "kind",  "facts",   "held",  "rules",  "apart", "tensor",
                            "spec_of", "id_of", "current", "sites", "site_of", "outputs", "error",
                            NULL};
    Desk given;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO!O!O!O!OOOOOO!OOO", names, &given.slots, &PyType_Type, &given.kind,
            &NumbersType, &given.facts, &NumbersType, &given.held, &PyDict_Type, &given.rules,
            &given.apart, &given.tensor, &given.spec_of, &given.id_of, &given.current,
            &PyDict_Type, &given.sites, &given.site_of, &given.outputs, &given.error))
        return NULL;
    Desk *self = (Desk *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    SHARED(TAKE_MEMBER)
    if (desk_find_places(self) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyTypeObject DeskType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks._hurry.Desk",
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
    .m_name = "optrove.frameworks._hurry",
    .m_doc = "The hot path of tracing, in C.",
    .m_size = -1,
};

static int add_type(PyObject *made, const char *name, PyTypeObject *kind)
{
    return PyType_Ready(kind) < 0 ? -1 : PyModule_AddObjectRef(made, name, (PyObject *)kind);
}

PyMODINIT_FUNC PyInit__hurry(void)
{
    struct {
        PyObject **place;
        const char *text;
    } names[] = {{&str_memory, "memory"}, {&str_places, "places"}, {&str_doc, "__doc__"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((*names[i].place = PyUnicode_InternFromString(names[i].text)) == NULL)
            return NULL;
    get_frame = PySys_GetObject("_getframe");
    if (get_frame == NULL)
        return NULL;
    Py_INCREF(get_frame);
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || add_type(made, "Numbers", &NumbersType) < 0 ||
        add_type(made, "Desk", &DeskType) < 0 || add_type(made, "Hurried", &HurriedType) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
