/* How a fast path in C writes the journal: records, windows and the sites of calls.

   Included by _fast_path.c (ttnn) and _torch_fast_path.c. journal/format.py defines the records. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <stdint.h>
#include <stdlib.h>
#include <structmember.h>
#include <time.h>

/* The layout of a record, as in journal/format.py. */
#define SITE_OFFSET 8
#define SCOPE_OFFSET 12
#define ENTERED_OFFSET 16
#define EXIT_OFFSET 32
#define NUMBER_OFFSET 40
#define OUTCOME_OFFSET 44
#define RECORD_SIZE 48
#define RETURNED 1
#define RAISED 2

#define SITES 512
#define NO_SITE -1
#define INTERNAL_CODE -2
#define UNKNOWN_CODE -3

static PyObject *str_memory, *str_places, *str_first, *get_frame;

/* The site of an instruction. The code is not owned: the Python side keeps it alive until it
   replaces the cached cases, and that also clears these sites. */
typedef struct {
    PyCodeObject *code;
    int instruction, number;
} Site;

/* The window that records are written to, which begins with the record ``first``; ``next`` is the
   offset after the last record taken. */
typedef struct {
    PyObject *window, *places;
    char *memory;
    uint64_t first;
    Py_ssize_t next, length;
    Py_buffer buffer;
} JournalWindow;

/* The first fields are those that every call reads. ``shared`` is the FastPathState of the Python
   side, ``cases`` its table of cached cases; ``generation`` counts how often that was replaced. The
   ``_offset`` fields locate slots of Python objects. */
typedef struct {
    PyObject *shared, *cases, *scope;
    uint32_t scope_number, generation;
    Py_ssize_t window_offset, cases_offset, scope_offset, word_offset, order_offset;
    JournalWindow journal;
    PyObject *current, *sites, *site_of, *outputs, *error, *cached_case;
    Site recent_sites[SITES];
} Recording;

/* An error in here sends the call to the fallback, or the Python side counts it. An interrupt of
   the program, such as KeyboardInterrupt, may come while any Python code runs: it stays set. */
static void clear_error(void)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
}

/* Return a field of an object, borrowed; NULL if it is not set. */
static inline PyObject *field(PyObject *owner, Py_ssize_t place)
{
    return *(PyObject **)((char *)owner + place);
}

/* Return the offset of a slot in the objects of a class; -1 with an error set if there is no such slot. */
static Py_ssize_t slot_offset(PyTypeObject *kind, const char *name)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)kind, name);
    Py_ssize_t place = -1;
    if (found != NULL && Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == T_OBJECT_EX)
            place = member->offset;
    }
    if (place < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s.%s is not a slot", kind->tp_name, name);
    Py_XDECREF(found);
    return place;
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void journal_window_release(JournalWindow journal)
{
    if (journal.window != NULL)
        PyBuffer_Release(&journal.buffer);
    Py_XDECREF(journal.places);
    Py_XDECREF(journal.window);
}

static int recording_map_window(Recording *recording, PyObject *window)
{
    PyObject *memory = PyObject_GetAttr(window, str_memory);
    JournalWindow journal = {0};
    if (memory != NULL)
        journal.places = PyObject_GetAttr(window, str_places);
    PyObject *first = journal.places == NULL ? NULL : PyObject_GetAttr(window, str_first);
    if (first != NULL)
        journal.first = PyLong_AsUnsignedLongLong(first);
    int failed = first == NULL || PyErr_Occurred() || !PyIter_Check(journal.places) ||
                 PyObject_GetBuffer(memory, &journal.buffer, PyBUF_WRITABLE) < 0;
    Py_XDECREF(first);
    Py_XDECREF(memory);
    if (failed) {
        Py_XDECREF(journal.places);
        return -1;
    }
    Py_INCREF(window);
    journal.window = window;
    journal.memory = journal.buffer.buf;
    journal.length = journal.buffer.len;
    /* Releasing a mapped window lets other threads run, so the state is made consistent before. */
    JournalWindow before = recording->journal;
    recording->journal = journal;
    journal_window_release(before);
    return 0;
}

/* Forget everything that refers to numbers of a journal. */
static void recording_reset(Recording *recording, PyObject *cases)
{
    PyObject *before = recording->cases;
    Py_INCREF(cases);
    recording->cases = cases;
    recording->generation++;
    memset(recording->recent_sites, 0, sizeof(recording->recent_sites));
    Py_XDECREF(before);
}

/* Follow the Python side to its present table and window; return -1 if it has none. */
static inline int recording_refresh(Recording *recording)
{
    PyObject *cases = field(recording->shared, recording->cases_offset);
    if (cases != recording->cases) {
        if (cases == NULL || !PyDict_CheckExact(cases))
            return -1;
        recording_reset(recording, cases);
    }
    PyObject *window = field(recording->shared, recording->window_offset);
    if (window == recording->journal.window)
        return window == NULL ? -1 : 0;
    if (window == NULL)
        return -1;
    Py_INCREF(window);
    int failed = recording_map_window(recording, window);
    Py_DECREF(window);
    return failed;
}

/* Return the number of the scope; -1 outside of scopes. */
static inline int64_t recording_scope(Recording *recording)
{
    PyObject *scope = field(recording->shared, recording->scope_offset);
    if (scope != recording->scope) {
        unsigned long number = scope == NULL ? UINT32_MAX : PyLong_AsUnsignedLong(scope);
        if (number >= UINT32_MAX)
            return -1;
        PyObject *before = recording->scope;
        Py_INCREF(scope);
        recording->scope = scope;
        recording->scope_number = (uint32_t)number;
        Py_XDECREF(before);
    }
    return recording->scope_number;
}

/* Return the memory of a free record, its op_index, and the window that keeps it mapped, owned;
   NULL when the window is full or gone. */
static char *take_record(Recording *recording, PyObject **window, uint64_t *op_index)
{
    /* Other threads may replace the window while the offset is released. */
    PyObject *owner = recording->journal.window, *places = recording->journal.places;
    char *memory = recording->journal.memory;
    uint64_t first = recording->journal.first;
    Py_ssize_t length = recording->journal.length, offset = -1;
    if (owner == NULL)
        return NULL;
    Py_INCREF(owner);
    Py_INCREF(places);
    PyObject *place = Py_TYPE(places)->tp_iternext(places);
    Py_DECREF(places);
    if (place != NULL) {
        offset = PyLong_AsSsize_t(place);
        Py_DECREF(place);
    }
    if (offset < 0 || offset > length - RECORD_SIZE) {
        Py_DECREF(owner);
        return NULL;
    }
    recording->journal.next = offset + RECORD_SIZE;
    *window = owner;
    *op_index = first + (uint64_t)(offset / RECORD_SIZE);
    return memory + offset;
}

/* Prefetch the memory of the record that is probably next. */
static inline void prefetch_record(Recording *recording)
{
    if (recording->journal.next < recording->journal.length)
        __builtin_prefetch(recording->journal.memory + recording->journal.next, 1);
}

/* The clock at entry is stored last, as a whole: until then the record has not begun. */
static void write_entry(char *record, uint64_t word, uint32_t site, uint32_t scope)
{
    memcpy(record, &word, 8);
    memcpy(record + SITE_OFFSET, &site, 4);
    memcpy(record + SCOPE_OFFSET, &scope, 4);
    __atomic_store_n((uint64_t *)(record + ENTERED_OFFSET), clock_ns(), __ATOMIC_RELEASE);
}

/* The outcome is stored last, as a whole: until then the call is unfinished. */
static void write_exit(char *record, uint64_t stopped, uint32_t number, uint32_t outcome)
{
    memcpy(record + EXIT_OFFSET, &stopped, 8);
    memcpy(record + NUMBER_OFFSET, &number, 4);
    __atomic_store_n((uint32_t *)(record + OUTCOME_OFFSET), outcome, __ATOMIC_RELEASE);
}

static int instruction_of(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    PyObject *place = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    int number = place == NULL ? -1 : (int)PyLong_AsLong(place);
    Py_XDECREF(place);
    return number;
#endif
}

/* Return the site that the Python side has for an instruction, or INTERNAL_CODE, NO_SITE or
   UNKNOWN_CODE. */
static int cached_site(Recording *recording, PyCodeObject *code, int instruction)
{
    PyObject *identity = PyLong_FromVoidPtr(code), *place = NULL, *site = NULL;
    PyObject *lines = identity == NULL ? NULL : PyDict_GetItemWithError(recording->sites, identity);
    Py_XDECREF(identity);
    if (lines == Py_None)
        return INTERNAL_CODE;
    if (lines == NULL)
        return PyErr_Occurred() ? NO_SITE : UNKNOWN_CODE;
    place = PyLong_FromLong(instruction);
    if (place != NULL)
        site = PyDict_GetItemWithError(lines, place);
    Py_XDECREF(place);
    return site == NULL ? NO_SITE : (int)PyLong_AsLong(site);
}

/* Return the site of a frame; INTERNAL_CODE if the frame is not one of the user's. */
static int site_in(Recording *recording, PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int instruction = instruction_of(frame);
    size_t home = ((uintptr_t)code / 16 * 31 + (size_t)instruction / 2) % SITES;
    Site *recent = &recording->recent_sites[home];
    int number = recent->number;
    if (recent->code != code || recent->instruction != instruction) {
        number = cached_site(recording, code, instruction);
        if (number >= 0 || number == INTERNAL_CODE)
            *recent = (Site){code, instruction, number};
    }
    Py_DECREF(code);
    return number;
}

/* Return the number of the user's line at or above a frame, which is released; NO_SITE if it has
   no number yet. */
static int find_site(Recording *recording, PyFrameObject *frame)
{
    int number = INTERNAL_CODE;
    while (frame != NULL && number == INTERNAL_CODE) {
        number = site_in(recording, frame);
        if (number == UNKNOWN_CODE) {
            PyObject *site = PyObject_CallOneArg(recording->site_of, (PyObject *)frame);
            number = site == NULL ? NO_SITE : (int)PyLong_AsLong(site);
            Py_XDECREF(site);
        }
        PyFrameObject *above = number == INTERNAL_CODE ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = above;
    }
    if (number == INTERNAL_CODE)
        return PyErr_Occurred() ? NO_SITE : 0;
    return number;
}

/* Return the number of the exception that is set, which stays set unless an interrupt replaces
   it. */
static uint32_t number_of_error(Recording *recording)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *number = value == NULL ? NULL : PyObject_CallOneArg(recording->error, value);
    uint32_t found = number == NULL ? 0 : (uint32_t)PyLong_AsUnsignedLong(number);
    Py_XDECREF(number);
    clear_error();
    if (!PyErr_Occurred()) {
        PyErr_Restore(type, value, trace);
        return found;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return found;
}

/* The members of a Recording that the Python side passes. */
#define RECORDING(VISIT)                                                                          \
    VISIT(shared) VISIT(current) VISIT(sites) VISIT(site_of) VISIT(outputs) VISIT(error)          \
    VISIT(cached_case)

static int recording_traverse(Recording *recording, visitproc visit, void *arg)
{
#define VISIT_RECORDED(name) Py_VISIT(recording->name);
    RECORDING(VISIT_RECORDED)
    Py_VISIT(recording->cases);
    Py_VISIT(recording->journal.window);
    Py_VISIT(recording->journal.places);
    if (recording->journal.window != NULL)
        Py_VISIT(recording->journal.buffer.obj);
    return 0;
}

static void recording_clear(Recording *recording)
{
    JournalWindow before = recording->journal;
    memset(&recording->journal, 0, sizeof(JournalWindow));
    journal_window_release(before);
    Py_CLEAR(recording->cases);
    Py_CLEAR(recording->scope);
#define CLEAR_RECORDED(name) Py_CLEAR(recording->name);
    RECORDING(CLEAR_RECORDED)
}

/* Take the members that were passed and find the slots that are read from Python objects; return
   -1 with an error set if one is missing. */
static int recording_take(Recording *recording, const Recording *given)
{
#define TAKE_RECORDED(name)                                                                       \
    Py_INCREF(given->name);                                                                       \
    recording->name = given->name;
    RECORDING(TAKE_RECORDED)
    PyTypeObject *shared = Py_TYPE(recording->shared);
    PyTypeObject *cached = (PyTypeObject *)recording->cached_case;
    struct {
        Py_ssize_t *offset;
        PyTypeObject *type;
        const char *name;
    } wanted[] = {{&recording->window_offset, shared, "window"},
                  {&recording->cases_offset, shared, "cached_cases"},
                  {&recording->scope_offset, shared, "scope"},
                  {&recording->word_offset, cached, "word"},
                  {&recording->order_offset, cached, "order"}};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if ((*wanted[i].offset = slot_offset(wanted[i].type, wanted[i].name)) < 0)
            return -1;
    return 0;
}

static int add_type(PyObject *made, const char *name, PyTypeObject *kind)
{
    return PyType_Ready(kind) < 0 ? -1 : PyModule_AddObjectRef(made, name, (PyObject *)kind);
}

/* Add the layout of records, which the Python side compares with journal/format.py. */
static int add_layout(PyObject *made)
{
    struct {
        const char *name;
        long value;
    } layout[] = {{"SITE_OFFSET", SITE_OFFSET},   {"SCOPE_OFFSET", SCOPE_OFFSET},
                  {"ENTERED_OFFSET", ENTERED_OFFSET}, {"EXIT_OFFSET", EXIT_OFFSET},
                  {"NUMBER_OFFSET", NUMBER_OFFSET}, {"OUTCOME_OFFSET", OUTCOME_OFFSET},
                  {"RECORD_SIZE", RECORD_SIZE},   {"RETURNED", RETURNED},
                  {"RAISED", RAISED}};
    for (size_t i = 0; i < sizeof(layout) / sizeof(layout[0]); i++)
        if (PyModule_AddIntConstant(made, layout[i].name, layout[i].value) < 0)
            return -1;
    return 0;
}

/* Prepare what all functions here use; return -1 with an error set on failure. */
static int recording_prepare(void)
{
    str_memory = PyUnicode_InternFromString("memory");
    str_places = PyUnicode_InternFromString("places");
    str_first = PyUnicode_InternFromString("first");
    get_frame = PySys_GetObject("_getframe");
    Py_XINCREF(get_frame);
    return str_memory == NULL || str_places == NULL || str_first == NULL || get_frame == NULL ? -1
                                                                                             : 0;
}
