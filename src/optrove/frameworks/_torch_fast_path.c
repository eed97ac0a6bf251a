/* The fast path of the torch probe: what a dispatch mode calls for each operation, in C.

   A Dispatch is the ``__torch_dispatch__`` of a mode. For a call that was recorded before, it writes
   a record at entry, runs the operation and completes the record at exit. Every other call goes to
   ``fallback``, which can record any call.

   A call is recognized by its words: numbers that hold the same facts as its key (see
   TorchFingerprints.call), read without running Python code. The facts of a tensor come from the
   stable C interface of libtorch (the aoti_torch functions), whose addresses the Python side passes.
   That interface has no functions for the set of dispatch keys, the storage and the implementation
   of a tensor; the Python side finds out where these are stored and passes the offsets, after it
   has checked them (frameworks/torch/fast_path.py). */

#include "_flow.h"
#include "_recording.h"

#define MAX_WORDS 65536
#define MAX_TENSORS 8192
#define INLINE_TENSORS 32
#define MAX_CALLS 16384
#define MAX_RESULTS 8
#define MAX_DIMENSIONS 64
#define MAX_NESTING 8
#define PARENT_OFFSET 24
#define DEPTH_SHIFT 40

/* The kinds of words; each argument begins with one of them. */
enum { TENSOR = 1, INTEGER, FLOAT, COMPLEX, TEXT, OBJECT, DEVICE, LIST, TUPLE, NAMED, SHARING };

typedef int32_t (*ReadNumber)(void *, int64_t *);
typedef int32_t (*ReadSmallNumber)(void *, int32_t *);
typedef int32_t (*ReadNumbers)(void *, int64_t **);

/* A growing row of words. */
typedef struct {
    uint64_t *items;
    size_t count, size;
} Words;

/* The tensors of a call and of its result, in order. Borrowed. */
typedef struct {
    PyObject *object;
    uint64_t storage;
} TensorRef;

typedef struct {
    TensorRef *items, inlined[INLINE_TENSORS];
    size_t count, size;
} TensorRefs;

typedef struct {
    uint64_t hash, *words;
    size_t count;
    uint32_t number;
} KnownResult;

/* An operation; without ``observed`` its calls are not recorded. */
typedef struct {
    PyObject *operation, *run, *observed, *key;
} Operation;

/* The calls of one operation with the same words. ``users`` counts the table and the calls in
   progress. */
typedef struct {
    uint64_t hash, *words, record_word;
    size_t count;
    PyObject *cached;
    Operation *operation;
    uint32_t users, next_result;
    KnownResult results[MAX_RESULTS];
} KnownCall;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Recording recording;
    PyObject *resolve, *fallback, *muted, *flow;
    PyObject *tensor, *parameter, *overload, *device, *symbols, *has_mode, *requires_grad;
    PyCFunction has_mode_function;
    PyGetSetDef *requires_grad_getter;
    Py_ssize_t implementation_offset, keys_offset, storage_offset;
    uint64_t virtual_table;
    ReadNumber read_rank, read_offset;
    ReadNumbers read_sizes, read_strides;
    ReadSmallNumber read_dtype, read_device_index;
    Words scratch;
    PyObject *devices;
    Operation **operations;
    size_t operation_mask, operation_count;
    KnownCall **calls;
    size_t call_mask, call_count;
    uint32_t generation;
    char on;
} Dispatch;

static PyObject *str_op, *str_key;

static int words_push(Words *words, uint64_t word)
{
    if (words->count == words->size) {
        size_t size = words->size == 0 ? 256 : 2 * words->size;
        uint64_t *items = size > MAX_WORDS ? NULL : realloc(words->items, size * sizeof(uint64_t));
        if (items == NULL)
            return -1;
        words->items = items;
        words->size = size;
    }
    words->items[words->count++] = word;
    return 0;
}

static uint64_t *words_copy(const Words *words)
{
    size_t size = words->count * sizeof(uint64_t);
    uint64_t *copy = malloc(size == 0 ? 1 : size);
    return copy == NULL ? NULL : memcpy(copy, words->items, size);
}

static uint64_t words_hash(const Words *words, uint64_t hash)
{
    for (size_t i = 0; i < words->count; i++) {
        hash = (hash ^ words->items[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static int refs_push(TensorRefs *refs, PyObject *object, uint64_t storage)
{
    if (refs->count == refs->size) {
        size_t size = 4 * refs->size;
        TensorRef *before = refs->items == refs->inlined ? NULL : refs->items;
        TensorRef *items = size > MAX_TENSORS ? NULL : realloc(before, size * sizeof(TensorRef));
        if (items == NULL)
            return -1;
        if (before == NULL)
            memcpy(items, refs->inlined, sizeof(refs->inlined));
        refs->items = items;
        refs->size = size;
    }
    refs->items[refs->count++] = (TensorRef){object, storage};
    return 0;
}

static void refs_begin(TensorRefs *refs)
{
    refs->items = refs->inlined;
    refs->count = 0;
    refs->size = INLINE_TENSORS;
}

static void refs_end(TensorRefs *refs)
{
    if (refs->items != refs->inlined)
        free(refs->items);
}

/* Append which tensors, from ``first`` on, are one with or share their storage with an earlier
   one. */
static int push_sharing(Words *words, const TensorRefs *refs, size_t first)
{
    size_t mask = 16;
    uint32_t inlined[4 * INLINE_TENSORS], *places = inlined;
    if (refs->count < 2)
        return 0;
    while (mask < 2 * refs->count)
        mask *= 2;
    if (mask > sizeof(inlined) / sizeof(inlined[0]) &&
        (places = malloc(mask * sizeof(uint32_t))) == NULL)
        return -1;
    memset(places, 0, mask * sizeof(uint32_t));
    mask--;
    int failed = 0;
    /* A place holds the number, plus one, of the first tensor with a storage. */
    for (size_t i = 0; i < refs->count && !failed; i++) {
        uint64_t storage = refs->items[i].storage;
        size_t place = (size_t)(storage >> 4 ^ storage >> 12) & mask;
        while (places[place] != 0 && refs->items[places[place] - 1].storage != storage)
            place = (place + 1) & mask;
        if (places[place] == 0) {
            places[place] = (uint32_t)i + 1;
            continue;
        }
        if (i < first)
            continue;
        size_t sharing = places[place] - 1, same = sharing;
        while (same < i && refs->items[same].object != refs->items[i].object)
            same++;
        failed = words_push(words, SHARING | (uint64_t)i << 8 | (uint64_t)sharing << 32) < 0 ||
                 words_push(words, same) < 0;
    }
    if (places != inlined)
        free(places);
    return failed ? -1 : 0;
}

/* Append the facts of a tensor that its description holds; return -1 if they cannot be read. */
static int push_tensor(Dispatch *self, Words *words, TensorRefs *refs, PyObject *live)
{
    char *place = (char *)live + self->implementation_offset;
    char *implementation = *(char **)place;
    /* Other kinds of tensors (sparse, nested, quantized, wrapped ones) are classes of their own. */
    if (implementation == NULL || *(uint64_t *)implementation != self->virtual_table)
        return -1;
    /* A handle is the address of a tensor, which is a pointer to its implementation. */
    int64_t rank, offset, *sizes, *strides;
    int32_t dtype, device_index;
    if (self->read_rank(place, &rank) || rank > MAX_DIMENSIONS ||
        self->read_offset(place, &offset) || self->read_sizes(place, &sizes) ||
        self->read_strides(place, &strides) || self->read_dtype(place, &dtype) ||
        self->read_device_index(place, &device_index))
        return -1;
    PyObject *grad = self->requires_grad_getter->get(live, self->requires_grad_getter->closure);
    if (grad == NULL)
        return -1;
    uint64_t facts = TENSOR | (uint64_t)(grad == Py_True) << 8 |
                     (uint64_t)((PyObject *)Py_TYPE(live) == self->parameter) << 9 |
                     (uint64_t)rank << 16 | (uint64_t)(uint8_t)dtype << 24 |
                     (uint64_t)(uint32_t)device_index << 32;
    Py_DECREF(grad);
    if (words_push(words, facts) < 0 ||
        words_push(words, *(uint64_t *)(implementation + self->keys_offset)) < 0 ||
        words_push(words, (uint64_t)offset) < 0)
        return -1;
    for (int64_t i = 0; i < rank; i++)
        if (words_push(words, (uint64_t)sizes[i]) < 0 ||
            words_push(words, (uint64_t)strides[i]) < 0)
            return -1;
    return refs_push(refs, live, *(uint64_t *)(implementation + self->storage_offset));
}

static int push_text(Words *words, PyObject *live, int kind)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(live, &size);
    if (text == NULL || size > 256) {
        PyErr_Clear();
        return -1;
    }
    int failed = words_push(words, (uint64_t)kind | (uint64_t)size << 8);
    for (Py_ssize_t i = 0; i < size && !failed; i += 8) {
        uint64_t word = 0;
        memcpy(&word, text + i, size - i < 8 ? (size_t)(size - i) : 8);
        failed = words_push(words, word);
    }
    return failed;
}

static int push_double(Words *words, double value)
{
    uint64_t word;
    memcpy(&word, &value, 8);
    return words_push(words, word);
}

/* Devices are made for each call, so equal ones get the number of the first. */
static int push_device(Dispatch *self, Words *words, PyObject *live)
{
    Py_ssize_t count = PyList_GET_SIZE(self->devices), number = 0;
    for (; number < count; number++) {
        int same = PyObject_RichCompareBool(PyList_GET_ITEM(self->devices, number), live, Py_EQ);
        if (same < 0) {
            PyErr_Clear();
            return -1;
        }
        if (same)
            break;
    }
    if (number == count && PyList_Append(self->devices, live) < 0) {
        PyErr_Clear();
        return -1;
    }
    return words_push(words, DEVICE | (uint64_t)number << 8);
}

static int push_argument(Dispatch *self, Words *words, TensorRefs *refs, PyObject *live, int depth);

static int push_items(Dispatch *self, Words *words, TensorRefs *refs, PyObject *live, int depth)
{
    Py_ssize_t size = PySequence_Fast_GET_SIZE(live);
    int kind = PyTuple_CheckExact(live) ? TUPLE : LIST;
    int failed = depth == MAX_NESTING ? -1 : words_push(words, kind | (uint64_t)size << 8);
    for (Py_ssize_t i = 0; i < size && !failed; i++)
        failed = push_argument(self, words, refs, PySequence_Fast_GET_ITEM(live, i), depth + 1);
    return failed;
}

/* Append the words of one argument; return -1, without an error set, if it has none. */
static int push_argument(Dispatch *self, Words *words, TensorRefs *refs, PyObject *live, int depth)
{
    PyObject *kind = (PyObject *)Py_TYPE(live);
    if (kind == self->tensor || kind == self->parameter)
        return push_tensor(self, words, refs, live);
    if (PyLong_CheckExact(live)) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(live, &overflow);
        return overflow || words_push(words, INTEGER) < 0 ? -1 : words_push(words, (uint64_t)value);
    }
    /* There is one object only of each of these, and it is never freed. */
    if (live == Py_None || PyBool_Check(live) || kind == PyTuple_GET_ITEM(self->symbols, 0) ||
        kind == PyTuple_GET_ITEM(self->symbols, 1) || kind == PyTuple_GET_ITEM(self->symbols, 2))
        return words_push(words, OBJECT) < 0 ? -1 : words_push(words, (uintptr_t)live);
    if (PyFloat_CheckExact(live))
        return words_push(words, FLOAT) < 0 ? -1 : push_double(words, PyFloat_AS_DOUBLE(live));
    if (PyList_CheckExact(live) || PyTuple_CheckExact(live))
        return push_items(self, words, refs, live, depth);
    if (PyUnicode_CheckExact(live))
        return push_text(words, live, TEXT);
    if (kind == self->device)
        return push_device(self, words, live);
    if (PyComplex_CheckExact(live))
        return words_push(words, COMPLEX) < 0 ||
                       push_double(words, PyComplex_RealAsDouble(live)) < 0
                   ? -1
                   : push_double(words, PyComplex_ImagAsDouble(live));
    return -1;
}

/* Make the words of a call; return -1 if it has none. */
static int push_call(Dispatch *self, Words *words, TensorRefs *refs, PyObject *args,
                     PyObject *kwargs)
{
    words->count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
        if (push_argument(self, words, refs, PyTuple_GET_ITEM(args, i), 0) < 0)
            return -1;
    PyObject *name, *live;
    Py_ssize_t place = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &place, &name, &live))
        if (!PyUnicode_CheckExact(name) || push_text(words, name, NAMED) < 0 ||
            push_argument(self, words, refs, live, 0) < 0)
            return -1;
    return push_sharing(words, refs, 0);
}

static void known_call_release(KnownCall *call)
{
    if (--call->users > 0)
        return;
    for (int i = 0; i < MAX_RESULTS; i++)
        free(call->results[i].words);
    free(call->words);
    Py_XDECREF(call->cached);
    free(call);
}

static void forget_calls(Dispatch *self)
{
    KnownCall **before = self->calls;
    size_t size = before == NULL ? 0 : self->call_mask + 1;
    self->calls = NULL;
    self->call_mask = self->call_count = 0;
    /* Last, because releasing may run other code, which may come here again. */
    for (size_t i = 0; i < size; i++)
        if (before[i] != NULL)
            known_call_release(before[i]);
    free(before);
}

static KnownCall *find_call(Dispatch *self, const Operation *operation, uint64_t hash)
{
    const Words *words = &self->scratch;
    if (self->calls == NULL)
        return NULL;
    for (size_t place = hash & self->call_mask; self->calls[place] != NULL;
         place = (place + 1) & self->call_mask) {
        KnownCall *call = self->calls[place];
        if (call->hash == hash && call->operation == operation && call->count == words->count &&
            memcmp(call->words, words->items, words->count * sizeof(uint64_t)) == 0)
            return call;
    }
    return NULL;
}

/* Put a call into the table, which then uses it as well. */
static void keep_call(Dispatch *self, KnownCall *call)
{
    if (self->call_count >= MAX_CALLS)
        forget_calls(self);
    if (self->calls == NULL || 2 * (self->call_count + 1) > self->call_mask) {
        size_t size = self->calls == NULL ? 256 : 2 * (self->call_mask + 1);
        KnownCall **fresh = calloc(size, sizeof(KnownCall *));
        if (fresh == NULL)
            return;
        for (size_t i = 0; self->calls != NULL && i <= self->call_mask; i++) {
            if (self->calls[i] == NULL)
                continue;
            size_t place = self->calls[i]->hash & (size - 1);
            while (fresh[place] != NULL)
                place = (place + 1) & (size - 1);
            fresh[place] = self->calls[i];
        }
        free(self->calls);
        self->calls = fresh;
        self->call_mask = size - 1;
    }
    size_t place = call->hash & self->call_mask;
    while (self->calls[place] != NULL)
        place = (place + 1) & self->call_mask;
    self->calls[place] = call;
    self->call_count++;
    call->users++;
}

/* Return the case that the Python side has for a call, owned; NULL if it has none. */
static PyObject *case_by_key(Dispatch *self, const Operation *operation, PyObject *args,
                             PyObject *kwargs)
{
    PyObject *none = NULL, *cached = NULL;
    if (kwargs == NULL && (kwargs = none = PyDict_New()) == NULL)
        return NULL;
    PyObject *key = PyObject_CallFunctionObjArgs(operation->key, args, kwargs, NULL);
    if (key != NULL && key != Py_None) {
        PyObject *table = self->recording.cases;
        Py_INCREF(table);
        cached = PyDict_GetItemWithError(table, key);
        if (cached != NULL && !Py_IS_TYPE(cached, (PyTypeObject *)self->recording.cached_case))
            cached = NULL;
        Py_XINCREF(cached);
        Py_DECREF(table);
    }
    Py_XDECREF(key);
    Py_XDECREF(none);
    return cached;
}

/* Return a call that the Python side has recorded before, with one user; NULL if it has not. */
static KnownCall *learn_call(Dispatch *self, Operation *operation, uint64_t hash, PyObject *args,
                             PyObject *kwargs)
{
    KnownCall *call = calloc(1, sizeof(KnownCall));
    if (call == NULL)
        return NULL;
    call->users = 1;
    call->hash = hash;
    call->operation = operation;
    call->count = self->scratch.count;
    call->words = words_copy(&self->scratch);
    uint32_t generation = self->recording.generation;
    if (call->words != NULL)
        call->cached = case_by_key(self, operation, args, kwargs);
    PyObject *word =
        call->cached == NULL ? NULL : field(call->cached, self->recording.word_offset);
    call->record_word = word == NULL ? UINT64_MAX : PyLong_AsUnsignedLongLong(word);
    clear_error();
    /* Another thread may have noticed meanwhile that the cached cases were replaced. */
    if (call->record_word == UINT64_MAX || generation != self->recording.generation) {
        known_call_release(call);
        return NULL;
    }
    keep_call(self, call);
    return call;
}

/* Return the number of the outputs of a call; only an interrupt is left set. */
static uint32_t number_of_outputs(Dispatch *self, KnownCall *call, PyObject *result,
                                  TensorRefs *refs, PyObject *args, PyObject *kwargs)
{
    Words *words = &self->scratch;
    size_t first = refs->count;
    if (result == Py_None)
        return 0;
    words->count = 0;
    int has_words = push_argument(self, words, refs, result, 0) == 0 &&
                    push_sharing(words, refs, first) == 0;
    uint64_t hash = has_words ? words_hash(words, 0) : 0, *copy = NULL;
    size_t count = words->count;
    for (int i = 0; has_words && i < MAX_RESULTS; i++) {
        KnownResult *known = &call->results[i];
        if (known->words != NULL && known->hash == hash && known->count == count &&
            memcmp(known->words, words->items, count * sizeof(uint64_t)) == 0)
            return known->number;
    }
    if (has_words)
        copy = words_copy(words);
    PyObject *none = kwargs == NULL ? PyDict_New() : NULL, *number = NULL;
    PyObject *pair = PyTuple_Pack(2, args, kwargs == NULL ? none : kwargs);
    if (pair != NULL)
        number = PyObject_CallFunctionObjArgs(self->recording.outputs, call->operation->observed,
                                              call->cached, result, pair, NULL);
    Py_XDECREF(pair);
    Py_XDECREF(none);
    uint32_t outputs = number == NULL ? 0 : (uint32_t)PyLong_AsUnsignedLong(number);
    if (number != NULL && copy != NULL) {
        KnownResult *place = &call->results[call->next_result++ % MAX_RESULTS];
        free(place->words);
        *place = (KnownResult){hash, copy, count, outputs};
    } else {
        free(copy);
    }
    Py_XDECREF(number);
    clear_error();
    return outputs;
}

static Operation **operation_place(Dispatch *self, PyObject *live)
{
    size_t place = ((uintptr_t)live >> 4 ^ (uintptr_t)live >> 12) & self->operation_mask;
    while (self->operations[place] != NULL && self->operations[place]->operation != live)
        place = (place + 1) & self->operation_mask;
    return &self->operations[place];
}

static int grow_operations(Dispatch *self)
{
    Operation **before = self->operations;
    size_t size = before == NULL ? 0 : self->operation_mask + 1;
    Operation **fresh = calloc(size == 0 ? 256 : 2 * size, sizeof(Operation *));
    if (fresh == NULL)
        return -1;
    self->operations = fresh;
    self->operation_mask = (size == 0 ? 256 : 2 * size) - 1;
    for (size_t i = 0; i < size; i++)
        if (before[i] != NULL)
            *operation_place(self, before[i]->operation) = before[i];
    free(before);
    return 0;
}

static void operation_free(Operation *operation)
{
    Py_XDECREF(operation->operation);
    Py_XDECREF(operation->run);
    Py_XDECREF(operation->observed);
    Py_XDECREF(operation->key);
    free(operation);
}

/* Return a new operation; NULL if the fallback has to handle it. */
static Operation *learn_operation(Dispatch *self, PyObject *live)
{
    Operation *operation = calloc(1, sizeof(Operation));
    if (operation == NULL)
        return NULL;
    Py_INCREF(live);
    operation->operation = live;
    operation->run = PyObject_GetAttr(live, str_op);
    if (operation->run != NULL)
        operation->observed = PyObject_CallOneArg(self->resolve, live);
    if (operation->observed == Py_None)
        Py_CLEAR(operation->observed);
    else if (operation->observed != NULL)
        operation->key = PyObject_GetAttr(operation->observed, str_key);
    int failed = PyErr_Occurred() != NULL;
    if (!failed && 2 * (self->operation_count + 1) > self->operation_mask)
        failed = grow_operations(self) < 0;
    /* Another thread may have been here meanwhile. */
    Operation **place = failed ? NULL : operation_place(self, live);
    if (failed || *place != NULL) {
        operation_free(operation);
        clear_error();
        return failed ? NULL : *place;
    }
    *place = operation;
    self->operation_count++;
    return operation;
}

static Operation *find_operation(Dispatch *self, PyObject *live)
{
    Operation *known = *operation_place(self, live);
    return known != NULL ? known : learn_operation(self, live);
}

/* Return whether a function mode is on, which must not notice that the operation is called. */
static int has_function_mode(Dispatch *self)
{
    PyObject *answer = self->has_mode_function(PyCFunction_GET_SELF(self->has_mode), Py_None);
    int found = answer != Py_False;
    Py_XDECREF(answer);
    return found;
}

static PyObject *call_fallback(Dispatch *self, PyObject *const *values, PyObject *kwargs)
{
    clear_error();
    if (PyErr_Occurred())
        return NULL;
    PyObject *frame = (PyObject *)PyEval_GetFrame(), *none = NULL, *result = NULL;
    if (frame == NULL)
        frame = Py_None;
    Py_INCREF(frame);
    if (kwargs == NULL)
        kwargs = none = PyDict_New();
    if (kwargs != NULL)
        result = PyObject_CallFunctionObjArgs(self->fallback, values[0], values[1], values[2],
                                              kwargs, frame, NULL);
    Py_XDECREF(none);
    Py_DECREF(frame);
    return result;
}

/* Write the entry of a call's record and return the record; NULL if that is not possible. */
static char *begin_record(Dispatch *self, const KnownCall *call, uint64_t parent, uint64_t depth,
                          PyObject **window, uint64_t *op_index)
{
    Recording *recording = &self->recording;
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    int site = frame == NULL ? 0 : find_site(recording, frame);
    int64_t scope = site < 0 ? -1 : recording_scope(recording);
    char *record = scope < 0 ? NULL : take_record(recording, window, op_index);
    if (record == NULL)
        return NULL;
    if (parent != 0)
        memcpy(record + PARENT_OFFSET, &parent, 8);
    write_entry(record, call->record_word | depth << DEPTH_SHIFT, (uint32_t)site,
                (uint32_t)scope);
    return record;
}

/* Read the call in progress; return -1 if no calls are recorded now. */
static int read_current(Dispatch *self, uint64_t *parent, uint64_t *depth)
{
    PyObject *current;
    *parent = *depth = 0;
    if (PyContextVar_Get(self->recording.current, NULL, &current) < 0)
        return -1;
    int failed = current == self->muted;
    if (!failed && current != NULL && current != Py_None) {
        failed = !PyTuple_CheckExact(current) || PyTuple_GET_SIZE(current) != 2;
        if (!failed) {
            *parent = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(current, 0));
            *depth = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(current, 1));
        }
    }
    Py_XDECREF(current);
    return failed ? -1 : 0;
}

/* Return the known call with these arguments, with one more user; NULL if unknown. */
static KnownCall *recognize(Dispatch *self, Operation *operation, TensorRefs *refs, PyObject *args,
                            PyObject *kwargs)
{
    if (recording_refresh(&self->recording) < 0)
        return NULL;
    if (self->generation != self->recording.generation) {
        self->generation = self->recording.generation;
        forget_calls(self);
    }
    if (push_call(self, &self->scratch, refs, args, kwargs) < 0)
        return NULL;
    uint64_t hash = words_hash(&self->scratch, (uintptr_t)operation);
    KnownCall *call = find_call(self, operation, hash);
    if (call == NULL)
        return learn_call(self, operation, hash, args, kwargs);
    call->users++;
    return call;
}

/* Write which tensors a call gets. */
static void flow_in(Dispatch *self, const KnownCall *call, const TensorRefs *refs,
                    uint64_t op_index)
{
    Stream *flow = (Stream *)self->flow;
    PyObject *order = field(call->cached, self->recording.order_offset);
    for (size_t i = 0; i < refs->count; i++)
        stream_tensor(flow, FLOW_INPUT, order_at(order, i), op_index, refs->items[i].object, 0,
                      refs->items[i].storage + 1);
    flow->last_call = op_index;
}

/* Write which tensors a call has returned: those after the first ones, of the arguments. */
static void flow_out(Dispatch *self, const TensorRefs *refs, size_t first, uint64_t op_index)
{
    for (size_t i = first; i < refs->count; i++)
        stream_tensor((Stream *)self->flow, FLOW_OUTPUT, i - first, op_index,
                      refs->items[i].object, 0, refs->items[i].storage + 1);
}

static PyObject *run_recorded(Dispatch *self, KnownCall *call, char *record, uint64_t op_index,
                              TensorRefs *refs, PyObject *args, PyObject *kwargs)
{
    size_t given = refs->count;
    if (self->flow != Py_None)
        flow_in(self, call, refs, op_index);
    PyObject *result = PyObject_Call(call->operation->run, args, kwargs);
    uint64_t stopped = clock_ns();
    if (result == NULL) {
        write_exit(record, stopped, number_of_error(&self->recording), RAISED);
        return NULL;
    }
    uint32_t outputs = number_of_outputs(self, call, result, refs, args, kwargs);
    if (self->flow != Py_None)
        flow_out(self, refs, given, op_index);
    write_exit(record, stopped, outputs, RETURNED);
    if (PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

/* The arguments are those of ``__torch_dispatch__``: mode, operation, types, arguments, keywords. */
static PyObject *dispatch_call(PyObject *callable, PyObject *const *values, size_t flags,
                               PyObject *names)
{
    Dispatch *self = (Dispatch *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags) - 1;
    values++;
    if (names != NULL || count < 3 || count > 4 || !PyTuple_CheckExact(values[2]) ||
        (count == 4 && values[3] != Py_None && !PyDict_CheckExact(values[3]))) {
        PyErr_SetString(PyExc_TypeError,
                        "expected a mode, an operation, types, arguments and keywords");
        return NULL;
    }
    PyObject *args = values[2], *kwargs = count == 4 && values[3] != Py_None ? values[3] : NULL;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) == 0)
        kwargs = NULL;
    if (!self->on)
        return PyObject_Call(values[0], args, kwargs);
    if ((PyObject *)Py_TYPE(values[0]) != self->overload || has_function_mode(self))
        return call_fallback(self, values, kwargs);
    Operation *operation = find_operation(self, values[0]);
    if (operation == NULL)
        return call_fallback(self, values, kwargs);
    uint64_t parent, depth;
    if (operation->observed == NULL || read_current(self, &parent, &depth) < 0)
        return PyErr_Occurred() ? NULL : PyObject_Call(operation->run, args, kwargs);
    TensorRefs refs;
    refs_begin(&refs);
    prefetch_record(&self->recording);
    KnownCall *call = recognize(self, operation, &refs, args, kwargs);
    PyObject *window = NULL, *result;
    uint64_t op_index = 0;
    char *record =
        call == NULL ? NULL : begin_record(self, call, parent, depth, &window, &op_index);
    if (record == NULL)
        result = call_fallback(self, values, kwargs);
    else
        result = run_recorded(self, call, record, op_index, &refs, args, kwargs);
    /* The window kept the memory mapped, even if it was replaced meanwhile. */
    Py_XDECREF(window);
    if (call != NULL)
        known_call_release(call);
    refs_end(&refs);
    return result;
}

#define OWNED(VISIT)                                                                              \
    VISIT(resolve) VISIT(fallback) VISIT(muted) VISIT(flow) VISIT(tensor) VISIT(parameter)        \
    VISIT(overload)                                                                               \
    VISIT(device) VISIT(symbols) VISIT(has_mode) VISIT(requires_grad)

static int dispatch_traverse(Dispatch *self, visitproc visit, void *arg)
{
#define VISIT_MEMBER(name) Py_VISIT(self->name);
    OWNED(VISIT_MEMBER)
    Py_VISIT(self->devices);
    for (size_t i = 0; self->operations != NULL && i <= self->operation_mask; i++)
        if (self->operations[i] != NULL) {
            Py_VISIT(self->operations[i]->observed);
            Py_VISIT(self->operations[i]->key);
        }
    return recording_traverse(&self->recording, visit, arg);
}

static int dispatch_clear(Dispatch *self)
{
    /* A later call gets a TypeError. */
    self->vectorcall = NULL;
    forget_calls(self);
    Operation **operations = self->operations;
    size_t size = operations == NULL ? 0 : self->operation_mask + 1;
    self->operations = NULL;
    for (size_t i = 0; i < size; i++)
        if (operations[i] != NULL)
            operation_free(operations[i]);
    free(operations);
    recording_clear(&self->recording);
    Py_CLEAR(self->devices);
#define CLEAR_MEMBER(name) Py_CLEAR(self->name);
    OWNED(CLEAR_MEMBER)
    return 0;
}

static void dispatch_dealloc(Dispatch *self)
{
    PyObject_GC_UnTrack(self);
    dispatch_clear(self);
    free(self->scratch.items);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int take_functions(Dispatch *self, PyObject *addresses)
{
    void *found[6];
    if (PyTuple_GET_SIZE(addresses) != 6) {
        PyErr_SetString(PyExc_ValueError, "expected the addresses of six functions");
        return -1;
    }
    for (int i = 0; i < 6; i++) {
        found[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, i));
        if (found[i] == NULL) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "the address of a function is zero");
            return -1;
        }
    }
    self->read_rank = (ReadNumber)found[0];
    self->read_sizes = (ReadNumbers)found[1];
    self->read_strides = (ReadNumbers)found[2];
    self->read_offset = (ReadNumber)found[3];
    self->read_dtype = (ReadSmallNumber)found[4];
    self->read_device_index = (ReadSmallNumber)found[5];
    return 0;
}

static int take_shortcuts(Dispatch *self)
{
    if (!PyCFunction_CheckExact(self->has_mode) ||
        PyCFunction_GET_FLAGS(self->has_mode) != METH_O ||
        !Py_IS_TYPE(self->requires_grad, &PyGetSetDescr_Type) ||
        !PyTuple_CheckExact(self->symbols) || PyTuple_GET_SIZE(self->symbols) != 3) {
        PyErr_SetString(PyExc_TypeError, "this torch has other functions than expected");
        return -1;
    }
    self->has_mode_function = PyCFunction_GET_FUNCTION(self->has_mode);
    self->requires_grad_getter = ((PyGetSetDescrObject *)self->requires_grad)->d_getset;
    return 0;
}

static PyObject *dispatch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"shared",    "cached_case", "current",       "sites",    "site_of",
                            "outputs",   "error",       "resolve",       "fallback", "muted",
                            "tensor",    "parameter",   "overload",      "device",   "symbols",
                            "has_mode",  "requires_grad", "implementation_offset",
                            "keys_offset", "storage_offset", "virtual_table", "functions",
                            "flow", NULL};
    Dispatch given;
    Recording *recording = &given.recording;
    PyObject *functions;
    unsigned long long virtual_table;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO!OO!OOOOOOOOOOO!OOnnnKO!O", names, &recording->shared, &PyType_Type,
            &recording->cached_case, &recording->current, &PyDict_Type, &recording->sites,
            &recording->site_of, &recording->outputs, &recording->error, &given.resolve,
            &given.fallback, &given.muted, &given.tensor, &given.parameter, &given.overload,
            &given.device, &PyTuple_Type, &given.symbols, &given.has_mode, &given.requires_grad,
            &given.implementation_offset, &given.keys_offset, &given.storage_offset,
            &virtual_table, &PyTuple_Type, &functions, &given.flow) ||
        !is_stream(given.flow))
        return NULL;
    Dispatch *self = (Dispatch *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
#define TAKE_MEMBER(name)                                                                         \
    Py_INCREF(given.name);                                                                        \
    self->name = given.name;
    OWNED(TAKE_MEMBER)
    self->implementation_offset = given.implementation_offset;
    self->keys_offset = given.keys_offset;
    self->storage_offset = given.storage_offset;
    self->virtual_table = virtual_table;
    self->devices = PyList_New(0);
    if (recording_take(&self->recording, recording) < 0 || take_functions(self, functions) < 0 ||
        take_shortcuts(self) < 0 || self->devices == NULL || grow_operations(self) < 0) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    self->vectorcall = dispatch_call;
    return (PyObject *)self;
}

/* Return the words of an object as a tuple, None if it has none: for checks and tests. */
static PyObject *dispatch_words(PyObject *callable, PyObject *live)
{
    Dispatch *self = (Dispatch *)callable;
    TensorRefs refs;
    refs_begin(&refs);
    Words words = {0};
    PyObject *found = NULL;
    if (push_argument(self, &words, &refs, live, 0) == 0 && push_sharing(&words, &refs, 0) == 0) {
        found = PyTuple_New((Py_ssize_t)words.count);
        for (size_t i = 0; found != NULL && i < words.count; i++)
            PyTuple_SET_ITEM(found, (Py_ssize_t)i, PyLong_FromLongLong((int64_t)words.items[i]));
    } else if (!PyErr_Occurred()) {
        found = Py_None;
        Py_INCREF(found);
    }
    free(words.items);
    refs_end(&refs);
    return found;
}

/* Torch wants a method of its mode. */
static PyObject *dispatch_bind(PyObject *self, PyObject *owner, PyObject *Py_UNUSED(type))
{
    if (owner == NULL || owner == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, owner);
}

static PyMethodDef dispatch_methods[] = {
    {"words", dispatch_words, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef dispatch_members[] = {
    {"on", T_BOOL, offsetof(Dispatch, on), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject DispatchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks._torch_fast_path.Dispatch",
    .tp_doc = "Record the operations that a dispatch mode sees.",
    .tp_basicsize = sizeof(Dispatch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Dispatch, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = dispatch_new,
    .tp_dealloc = (destructor)dispatch_dealloc,
    .tp_traverse = (traverseproc)dispatch_traverse,
    .tp_clear = (inquiry)dispatch_clear,
    .tp_descr_get = dispatch_bind,
    .tp_methods = dispatch_methods,
    .tp_members = dispatch_members,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "optrove.frameworks._torch_fast_path",
    .m_doc = "The fast path of the torch probe, in C.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__torch_fast_path(void)
{
    str_op = PyUnicode_InternFromString("_op");
    str_key = PyUnicode_InternFromString("key");
    if (str_op == NULL || str_key == NULL || recording_prepare() < 0)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || add_type(made, "Dispatch", &DispatchType) < 0 ||
        add_stream(made) < 0 || add_layout(made) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
