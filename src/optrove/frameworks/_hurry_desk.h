/* What all operations of one probe share: where records are written, and the sites of calls. */

#ifndef OPTROVE_HURRY_DESK_H
#define OPTROVE_HURRY_DESK_H

#include <Python.h>
#include <frameobject.h>
#include <stdint.h>
#include <structmember.h>
#include <time.h>

#include "_hurry_numbers.h"

#define EXIT_OFFSET 32
#define RECORD_SIZE 48
#define RETURNED 1
#define RAISED 2

#define SITES 512
#define NO_SITE -1
#define INTERNAL -2
#define NOT_MET -3

static PyObject *str_memory, *str_places, *get_frame;

/* The site of an instruction. Its code is not owned: the Python side keeps it as long as what is
   known holds, and so does the table of these. */
typedef struct {
    PyCodeObject *code;
    int instruction, number;
} Site;

/* A window that is written to, and the place after its last record that was taken. */
typedef struct {
    PyObject *window, *places;
    char *memory;
    Py_ssize_t next, length;
    Py_buffer buffer;
} Paper;

/* The first fields are those that every call reads. ``generation`` counts how often what was known
   has become void. The ``_at`` are the places of fields in objects of the Python side. */
typedef struct {
    PyObject_HEAD
    PyObject *slots, *known, *scope;
    uint32_t scope_number, generation;
    Py_ssize_t window_at, known_at, scope_at, word_at, usual_at;
    PyObject *current, *tensor, *id_of, *spec_of;
    Numbers *facts, *held;
    Paper paper;
    PyObject *sites, *site_of, *rules, *apart, *outputs, *error, *kind;
    Site quick_sites[SITES];
} Desk;

/* What goes wrong in here is left to others or counted by them. But an interrupt of the program,
   such as KeyboardInterrupt, which may come while any Python code runs, has to go on. */
static void drop_error(void)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
}

/* Return a field of an object, borrowed; NULL if it is not set. */
static inline PyObject *field(PyObject *owner, Py_ssize_t place)
{
    return *(PyObject **)((char *)owner + place);
}

/* Return the place of a field in the objects of a class with ``__slots__``; -1 if it has none. */
static Py_ssize_t place_of(PyTypeObject *kind, const char *name)
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

static void paper_let_go(Paper paper)
{
    if (paper.window != NULL)
        PyBuffer_Release(&paper.buffer);
    Py_XDECREF(paper.places);
    Py_XDECREF(paper.window);
}

static int desk_move(Desk *desk, PyObject *window)
{
    PyObject *memory = PyObject_GetAttr(window, str_memory);
    Paper paper = {.places = memory == NULL ? NULL : PyObject_GetAttr(window, str_places)};
    int failed = paper.places == NULL || !PyIter_Check(paper.places) ||
                 PyObject_GetBuffer(memory, &paper.buffer, PyBUF_WRITABLE) < 0;
    Py_XDECREF(memory);
    if (failed) {
        Py_XDECREF(paper.places);
        return -1;
    }
    Py_INCREF(window);
    paper.window = window;
    paper.memory = paper.buffer.buf;
    paper.length = paper.buffer.len;
    /* Letting go of a mapped window lets other threads run, so the desk must be in order before. */
    Paper before = desk->paper;
    desk->paper = paper;
    paper_let_go(before);
    return 0;
}

/* Forget all that refers to numbers of a journal. */
static void desk_begin_anew(Desk *desk, PyObject *known)
{
    PyObject *before = desk->known;
    Py_INCREF(known);
    desk->known = known;
    desk->generation++;
    memset(desk->quick_sites, 0, sizeof(desk->quick_sites));
    Py_XDECREF(before);
}

/* Go where the Python side writes now, and return -1 if it does not. */
static inline int desk_follow(Desk *desk)
{
    PyObject *known = field(desk->slots, desk->known_at);
    if (known != desk->known) {
        if (known == NULL || !PyDict_CheckExact(known))
            return -1;
        desk_begin_anew(desk, known);
    }
    PyObject *window = field(desk->slots, desk->window_at);
    if (window == desk->paper.window)
        return window == NULL ? -1 : 0;
    if (window == NULL)
        return -1;
    Py_INCREF(window);
    int failed = desk_move(desk, window);
    Py_DECREF(window);
    return failed;
}

/* Return the number of the scope; -1 if there is none. */
static inline int64_t desk_scope(Desk *desk)
{
    PyObject *scope = field(desk->slots, desk->scope_at);
    if (scope != desk->scope) {
        unsigned long number = scope == NULL ? UINT32_MAX : PyLong_AsUnsignedLong(scope);
        if (number >= UINT32_MAX)
            return -1;
        PyObject *before = desk->scope;
        Py_INCREF(scope);
        desk->scope = scope;
        desk->scope_number = (uint32_t)number;
        Py_XDECREF(before);
    }
    return desk->scope_number;
}

/* Return the memory of a free record and the window that keeps it mapped, owned; NULL when the
   window is full or gone. */
static char *take_record(Desk *desk, PyObject **window)
{
    /* Other threads may move the desk while the place is let go. */
    PyObject *held = desk->paper.window, *places = desk->paper.places;
    char *memory = desk->paper.memory;
    Py_ssize_t length = desk->paper.length, offset = -1;
    if (held == NULL)
        return NULL;
    Py_INCREF(held);
    Py_INCREF(places);
    PyObject *place = Py_TYPE(places)->tp_iternext(places);
    Py_DECREF(places);
    if (place != NULL) {
        offset = PyLong_AsSsize_t(place);
        Py_DECREF(place);
    }
    if (offset < 0 || offset > length - RECORD_SIZE) {
        Py_DECREF(held);
        return NULL;
    }
    desk->paper.next = offset + RECORD_SIZE;
    *window = held;
    return memory + offset;
}

/* Have the memory of the next record brought near; whether it is the right one does not matter. */
static inline void expect_record(Desk *desk)
{
    if (desk->paper.next < desk->paper.length)
        __builtin_prefetch(desk->paper.memory + desk->paper.next, 1);
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

/* Return what the Python side knows about an instruction: its site, INTERNAL, NO_SITE or NOT_MET. */
static int known_site(Desk *desk, PyCodeObject *code, int instruction)
{
    PyObject *identity = PyLong_FromVoidPtr(code), *place = NULL, *site = NULL;
    PyObject *lines = identity == NULL ? NULL : PyDict_GetItemWithError(desk->sites, identity);
    Py_XDECREF(identity);
    if (lines == Py_None)
        return INTERNAL;
    if (lines == NULL)
        return PyErr_Occurred() ? NO_SITE : NOT_MET;
    place = PyLong_FromLong(instruction);
    if (place != NULL)
        site = PyDict_GetItemWithError(lines, place);
    Py_XDECREF(place);
    return site == NULL ? NO_SITE : (int)PyLong_AsLong(site);
}

/* Return the site of a frame; INTERNAL if it is not one of the user's. */
static int site_in(Desk *desk, PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int instruction = instruction_of(frame);
    Site *quick = &desk->quick_sites[((uintptr_t)code / 16 * 31 + (size_t)instruction / 2) % SITES];
    int number = quick->number;
    if (quick->code != code || quick->instruction != instruction) {
        number = known_site(desk, code, instruction);
        if (number >= 0 || number == INTERNAL)
            *quick = (Site){code, instruction, number};
    }
    Py_DECREF(code);
    return number;
}

/* Return the number of the user's line at or above a frame, which is let go; NO_SITE if it is not
   known yet. */
static int find_site(Desk *desk, PyFrameObject *frame)
{
    int number = INTERNAL;
    while (frame != NULL && number == INTERNAL) {
        number = site_in(desk, frame);
        if (number == NOT_MET) {
            PyObject *site = PyObject_CallOneArg(desk->site_of, (PyObject *)frame);
            number = site == NULL ? NO_SITE : (int)PyLong_AsLong(site);
            Py_XDECREF(site);
        }
        PyFrameObject *above = number == INTERNAL ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = above;
    }
    if (number == INTERNAL)
        return PyErr_Occurred() ? NO_SITE : 0;
    return number;
}

#endif
