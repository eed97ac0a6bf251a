/* The fast path of the ttnn probe: probe/fast_path.py, in C, with identical behavior.

   A FastPath replaces the function of one operation. For a call that was recorded before, it finds
   the cached case, writes a record at entry, calls the function, and completes the record at exit.
   Every other call goes to ``fallback``, which can record any call. journal/format.py defines the
   records, TtnnFingerprints.call the keys of calls.

   ttnn evicts the processor's caches between two calls, so the number of memory locations read
   decides the cost. Each FastPath therefore remembers its recent calls as short rows of words
   (RecentCall); only a call that is not among them gets a key. */

#include "_flow.h"
#include "_recording.h"

/* ProbeState is what all operations of one probe share. */
typedef struct {
    PyObject_HEAD
    Recording recording;
    PyObject *tensor, *id_of, *spec_of;
    IntTable *tensor_parts, *object_parts;
    PyObject *rules, *have_own_buffers, *flow;
    Py_ssize_t usual_offset;
} ProbeState;

/* Return the stream of a probe; NULL if the flow is not recorded. */
static inline Stream *flow_of(ProbeState *state)
{
    return state->flow == Py_None ? NULL : (Stream *)state->flow;
}

/* The words of a call are made of the same facts as its key, so calls with equal words have equal
   keys. Calls with many arguments, or with arguments of other kinds, have no words. */

#define MAX_TENSORS 24
#define MAX_WORDS 12
#define MIN_RECENT 8
#define MAX_RECENT 512
#define MAX_PROBES 4

/* The tensors of a call, by ttnn's ids; ``may_share`` if one may share its buffer. The objects are
   borrowed from the arguments. */
typedef struct {
    uint64_t numbers[MAX_TENSORS];
    PyObject *objects[MAX_TENSORS];
    int count, may_share;
} TensorIds;

/* The arguments of a call as vectorcall passes them; ``names`` has the names of the last ``named``
   values, or is NULL. */
typedef struct {
    PyObject *const *values;
    Py_ssize_t count, named;
    PyObject *names;
} Arguments;

/* The kinds of words. */
enum { TENSOR = 1, CONFIG, OBJECT, INTEGER, FLOAT, TUPLE, LIST, NAME };

/* A recent call: its cached case, the first word of its records, and the words that identify it,
   with four bits in ``kinds`` for each. Objects among the words are owned. Without ``cached`` the
   place is free. */
typedef struct {
    PyObject *cached;
    uint64_t record_word, kinds;
    uint32_t hash, count;
    uint64_t words[MAX_WORDS];
} RecentCall;

/* The recent calls of one operation, each at the place of its hash or soon after it. They are void
   when ``generation`` is not that of the ProbeState. */
typedef struct {
    RecentCall *calls;
    uint32_t size, generation;
} RecentCalls;

/* Return the key part of a tensor and note its id; zero if it has no part yet. */
static int64_t note_tensor(ProbeState *state, TensorIds *tensors, PyObject *live)
{
    if (tensors->count == MAX_TENSORS)
        return 0;
    PyObject *number = PyObject_CallOneArg(state->id_of, live);
    if (number == NULL)
        return 0;
    uint64_t id = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    int64_t part = int_table_find(state->tensor_parts, id);
    tensors->objects[tensors->count] = live;
    tensors->numbers[tensors->count++] = id;
    tensors->may_share |= part < 0;
    return part;
}

/* Return whether the tensors are all different, each in its own buffer. */
static int are_distinct(const TensorIds *tensors)
{
    if (tensors->count < 2)
        return 1;
    int alone = !tensors->may_share;
    for (int i = 1; i < tensors->count; i++)
        for (int j = 0; j < i; j++)
            alone = alone && tensors->numbers[i] != tensors->numbers[j];
    return alone;
}

static int recent_call_push(RecentCall *call, int kind, uint64_t word)
{
    if (call->count == MAX_WORDS)
        return -1;
    call->kinds |= (uint64_t)kind << 4 * call->count;
    call->words[call->count++] = word;
    return 0;
}

static int recent_call_push_integer(RecentCall *call, PyObject *live)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(live, &overflow);
    return overflow ? -1 : recent_call_push(call, INTEGER, (uint64_t)value);
}

static int recent_call_push_integers(RecentCall *call, PyObject *live)
{
    Py_ssize_t size = PySequence_Fast_GET_SIZE(live);
    int failed = recent_call_push(call, PyTuple_CheckExact(live) ? TUPLE : LIST, (uint64_t)size);
    for (Py_ssize_t i = 0; !failed && i < size; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(live, i);
        failed = PyLong_CheckExact(item) ? recent_call_push_integer(call, item) : -1;
    }
    return failed;
}

/* Append the words of one argument; return -1 if it has none. */
static int recent_call_add(ProbeState *state, RecentCall *call, TensorIds *tensors, PyObject *live)
{
    PyTypeObject *kind = Py_TYPE(live);
    if ((PyObject *)kind == state->tensor) {
        int64_t part = note_tensor(state, tensors, live);
        return part == 0 ? -1 : recent_call_push(call, TENSOR, (uint64_t)part);
    }
    if (kind == &PyLong_Type)
        return recent_call_push_integer(call, live);
    /* By identity; strings that were made for this call only would fill the table in vain. */
    if (live == Py_None || kind == &PyBool_Type ||
        (kind == &PyUnicode_Type && PyUnicode_CHECK_INTERNED(live)))
        return recent_call_push(call, OBJECT, (uint64_t)(uintptr_t)live);
    if (kind == &PyFloat_Type) {
        double value = PyFloat_AS_DOUBLE(live);
        uint64_t word;
        memcpy(&word, &value, 8);
        return recent_call_push(call, FLOAT, word);
    }
    if (kind == &PyTuple_Type || kind == &PyList_Type)
        return recent_call_push_integers(call, live);
    int64_t number = int_table_find(state->object_parts, (uint64_t)(uintptr_t)live);
    return number == 0 ? -1 : recent_call_push(call, CONFIG, (uint64_t)number);
}

/* Make the words of a call; return -1 if it has none. */
static int recent_call_make(ProbeState *state, RecentCall *call, TensorIds *tensors,
                            const Arguments *args)
{
    for (Py_ssize_t i = 0; i < args->count + args->named; i++)
        if (recent_call_add(state, call, tensors, args->values[i]) < 0)
            return -1;
    for (Py_ssize_t i = 0; i < args->named; i++)
        if (recent_call_push(call, NAME, (uintptr_t)PyTuple_GET_ITEM(args->names, i)) < 0)
            return -1;
    if (!are_distinct(tensors))
        return -1;
    uint64_t hash = call->kinds;
    for (uint32_t i = 0; i < call->count; i++) {
        hash = (hash ^ call->words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    call->hash = (uint32_t)hash;
    return 0;
}

static int is_owned(const RecentCall *call, uint32_t place)
{
    int kind = call->kinds >> 4 * place & 15;
    return kind == OBJECT || kind == NAME;
}

/* Release a call, which must not be reachable anymore. */
static void recent_call_release(RecentCall *call)
{
    for (uint32_t i = 0; i < call->count; i++)
        if (is_owned(call, i))
            Py_DECREF((PyObject *)(uintptr_t)call->words[i]);
    Py_DECREF(call->cached);
}

static void recent_call_release_all(RecentCall *table, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        if (table[i].cached != NULL)
            recent_call_release(&table[i]);
    free(table);
}

static void recent_calls_clear(RecentCalls *self)
{
    RecentCall *before = self->calls;
    uint32_t size = self->size;
    self->calls = NULL;
    self->size = 0;
    recent_call_release_all(before, size);
}

/* Return the recent call with the same words, or NULL. */
static RecentCall *recent_calls_find(const RecentCalls *self, const RecentCall *wanted)
{
    for (uint32_t i = 0; i < MAX_PROBES && self->size > 0; i++) {
        RecentCall *call = &self->calls[(wanted->hash + i) & (self->size - 1)];
        if (call->cached == NULL)
            return NULL;
        if (call->hash == wanted->hash && call->kinds == wanted->kinds &&
            call->count == wanted->count &&
            memcmp(call->words, wanted->words, wanted->count * sizeof(uint64_t)) == 0)
            return call;
    }
    return NULL;
}

/* Return the place for a call; NULL if the table has to grow. */
static RecentCall *recent_calls_free_place(RecentCalls *self, uint32_t hash)
{
    for (uint32_t i = 0; i < MAX_PROBES && self->size > 0; i++) {
        RecentCall *call = &self->calls[(hash + i) & (self->size - 1)];
        if (call->cached == NULL)
            return call;
    }
    if (self->size == MAX_RECENT)
        return &self->calls[hash & (MAX_RECENT - 1)];
    return NULL;
}

/* Add a call whose case was found by its key. */
static void recent_calls_add(RecentCalls *self, const RecentCall *found)
{
    RecentCall *place = recent_calls_free_place(self, found->hash), *old = NULL;
    uint32_t old_size = self->size;
    if (place == NULL) {
        /* The calls of the old table are found by their keys again. */
        uint32_t size = old_size == 0 ? MIN_RECENT : 4 * old_size;
        RecentCall *fresh = aligned_alloc(64, size * sizeof(RecentCall));
        if (fresh == NULL)
            return;
        old = self->calls;
        self->calls = memset(fresh, 0, size * sizeof(RecentCall));
        self->size = size;
        place = recent_calls_free_place(self, found->hash);
    }
    RecentCall before = *place;
    *place = *found;
    Py_INCREF(found->cached);
    for (uint32_t i = 0; i < found->count; i++)
        if (is_owned(found, i))
            Py_INCREF((PyObject *)(uintptr_t)found->words[i]);
    /* Last, because it may run other code, which may come here again. */
    if (before.cached != NULL)
        recent_call_release(&before);
    if (old != NULL)
        recent_call_release_all(old, old_size);
}

/* Keys of calls, as TtnnFingerprints.call makes them. */

#define MAX_PARTS 160

/* An unfinished key. The parts are owned; ``nested`` if an argument may contain tensors. */
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

/* Return whether an object may contain tensors. */
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

/* Append the parts that a rule, which is written in Python, makes of an object. */
static int key_push_by_rule(ProbeState *state, Key *key, PyObject *live)
{
    PyObject *rule = PyDict_GetItemWithError(state->rules, (PyObject *)Py_TYPE(live));
    if (rule == NULL)
        return -1;
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return -1;
    if (may_hold_tensors(live))
        key->nested = 1;
    /* Another thread may replace the rule. */
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

/* Append two parts, and release the second. */
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

/* Append the parts of one argument, as the rules do; return -1 if it has none. No Python code runs
   for arguments that have words. */
static int key_add(ProbeState *state, Key *key, TensorIds *tensors, PyObject *live)
{
    PyObject *kind = (PyObject *)Py_TYPE(live);
    if (kind == state->tensor)
        return key_push_number(key, note_tensor(state, tensors, live));
    /* 0.0 equals -0.0, but their texts differ. */
    if (PyFloat_CheckExact(live) && PyFloat_AS_DOUBLE(live) == 0.0)
        return key_push_both(key, kind, PyObject_Repr(live));
    if (is_plain(live) || PyFloat_CheckExact(live)) {
        Py_INCREF(live);
        return key_push_both(key, kind, live);
    }
    if (are_integers(live))
        return key_push_both(key, kind, PySequence_Tuple(live));
    int64_t number = int_table_find(state->object_parts, (uint64_t)(uintptr_t)live);
    return number != 0 ? key_push_number(key, number) : key_push_by_rule(state, key, live);
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

static PyObject *keywords(const Arguments *args)
{
    PyObject *dict = PyDict_New();
    for (Py_ssize_t i = 0; dict != NULL && i < args->named; i++) {
        PyObject *name = PyTuple_GET_ITEM(args->names, i);
        if (PyDict_SetItem(dict, name, args->values[args->count + i]) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

/* Return a call as the pair (arguments, keywords). */
static PyObject *whole_call(const Arguments *args)
{
    PyObject *given = positional(args->values, args->count), *named = keywords(args), *call = NULL;
    if (given != NULL && named != NULL)
        call = PyTuple_Pack(2, given, named);
    Py_XDECREF(given);
    Py_XDECREF(named);
    return call;
}

/* Return whether each tensor of a call, also within sequences, has its own buffer. */
static int use_own_buffers(ProbeState *state, const Key *key, const TensorIds *tensors,
                           const Arguments *args)
{
    if (!key->nested && are_distinct(tensors))
        return 1;
    PyObject *call = whole_call(args);
    PyObject *answer = call == NULL ? NULL : PyObject_CallOneArg(state->have_own_buffers, call);
    Py_XDECREF(call);
    int have_own_buffers = answer == NULL ? 0 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return have_own_buffers > 0;
}

/* Make the key of a call; return -1 if it has none or is left to the fallback. */
static int key_make(ProbeState *state, PyObject *op, Key *key, TensorIds *tensors,
                    const Arguments *args)
{
    int failed = key_push(key, op);
    for (Py_ssize_t i = 0; !failed && i < args->count + args->named; i++)
        failed = key_add(state, key, tensors, args->values[i]);
    if (failed || !use_own_buffers(state, key, tensors, args))
        return -1;
    return args->named > 0 ? key_push(key, args->names) : 0;
}

#define NO_WORD UINT64_MAX

static PyObject *str_doc;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    ProbeState *state;
    PyObject *function, *depth;
    RecentCalls recent;
    int invalidates;
    PyObject *op, *fallback, *observed;
} FastPath;

/* Return the cached case of calls with a key, owned, or NULL. */
static PyObject *case_by_key(FastPath *self, const Key *key)
{
    PyObject *table = self->state->recording.cases, *tuple = positional(key->parts, key->count);
    if (tuple == NULL)
        return NULL;
    /* Other threads may clear or replace the table. */
    Py_INCREF(table);
    PyObject *cached = PyDict_GetItemWithError(table, tuple);
    if (cached != NULL && !Py_IS_TYPE(cached, (PyTypeObject *)self->state->recording.cached_case))
        cached = NULL;
    Py_XINCREF(cached);
    Py_DECREF(table);
    Py_DECREF(tuple);
    return cached;
}

/* Set the cached case of a call, owned, and the first word of its records, by the call's key. */
static void find_case_by_key(FastPath *self, RecentCall *call, TensorIds *tensors,
                             const Arguments *args)
{
    Key key;
    key.count = key.nested = 0;
    tensors->count = tensors->may_share = 0;
    /* TensorIds has no tensors in sequences, which could be forgotten, or flow. */
    int needs_all = self->invalidates || flow_of(self->state) != NULL;
    if (key_make(self->state, self->op, &key, tensors, args) == 0 && !(needs_all && key.nested))
        call->cached = case_by_key(self, &key);
    key_clear(&key);
    if (call->cached == NULL)
        return;
    PyObject *word = field(call->cached, self->state->recording.word_offset);
    call->record_word = word == NULL ? NO_WORD : PyLong_AsUnsignedLongLong(word);
    if (call->record_word == NO_WORD)
        Py_CLEAR(call->cached);
}

/* Return the cached case of a call, owned, and the first word of its records; or NULL. */
static PyObject *find_case(FastPath *self, TensorIds *tensors, uint64_t *word,
                           const Arguments *args)
{
    uint32_t generation = self->state->recording.generation;
    if (self->recent.generation != generation) {
        self->recent.generation = generation;
        recent_calls_clear(&self->recent);
    }
    RecentCall call;
    call.cached = NULL;
    call.record_word = NO_WORD;
    call.kinds = call.count = 0;
    tensors->count = tensors->may_share = 0;
    int is_short = recent_call_make(self->state, &call, tensors, args) == 0;
    RecentCall *found = is_short ? recent_calls_find(&self->recent, &call) : NULL;
    if (found != NULL) {
        *word = found->record_word;
        Py_INCREF(found->cached);
        return found->cached;
    }
    clear_error();
    if (PyErr_Occurred())
        return NULL;
    find_case_by_key(self, &call, tensors, args);
    *word = call.record_word;
    /* Unless another thread has noticed meanwhile that the cached cases were replaced. */
    if (call.cached != NULL && is_short && generation == self->state->recording.generation &&
        generation == self->recent.generation)
        recent_calls_add(&self->recent, &call);
    return call.cached;
}

/* Return whether a tensor has the expected spec; if so, store its part. */
static int matches_spec(ProbeState *state, PyObject *live, PyObject *same_as, PyObject *part)
{
    PyObject *spec = PyObject_CallOneArg(state->spec_of, live), *number = NULL;
    PyObject *same = spec == NULL ? NULL : PyObject_CallOneArg(same_as, spec);
    if (same == Py_True)
        number = PyObject_CallOneArg(state->id_of, live);
    int answer = 0;
    if (number != NULL) {
        uint64_t id = PyLong_AsUnsignedLongLong(number);
        int64_t value = PyLong_AsLongLong(part);
        answer = !PyErr_Occurred() && value != 0 &&
                 int_table_put(state->tensor_parts, id, value) == 0;
    }
    Py_XDECREF(number);
    Py_XDECREF(same);
    Py_XDECREF(spec);
    return answer;
}

/* The same for a sequence of tensors: ``elements`` are pairs of a comparison and a part. */
static int match_specs(ProbeState *state, PyObject *result, PyObject *elements)
{
    if (!PyTuple_CheckExact(result) && !PyList_CheckExact(result))
        return 0;
    int answer = PyTuple_GET_SIZE(elements) == PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t i = 0; answer && i < PyTuple_GET_SIZE(elements); i++) {
        PyObject *element = PyTuple_GET_ITEM(elements, i);
        PyObject *live = PySequence_Fast_GET_ITEM(result, i);
        answer = (PyObject *)Py_TYPE(live) == state->tensor &&
                 matches_spec(state, live, PyTuple_GET_ITEM(element, 0),
                              PyTuple_GET_ITEM(element, 1));
    }
    return answer;
}

/* Return whether a result is the usual one; if so, store its parts and the number of the outputs.
   One tuple holds everything about it, so no thread can change one thing without the others. */
static int is_usual(ProbeState *state, PyObject *cached, PyObject *result, uint32_t *outputs)
{
    PyObject *usual = field(cached, state->usual_offset);
    if (usual == NULL || !PyTuple_CheckExact(usual) || PyTuple_GET_SIZE(usual) != 3)
        return 0;
    Py_INCREF(usual);
    PyObject *first = PyTuple_GET_ITEM(usual, 0);
    int answer = 0;
    if (PyTuple_CheckExact(first))
        answer = match_specs(state, result, first);
    else if ((PyObject *)Py_TYPE(result) == state->tensor)
        answer = matches_spec(state, result, first, PyTuple_GET_ITEM(usual, 1));
    if (answer)
        *outputs = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(usual, 2));
    Py_DECREF(usual);
    clear_error();
    return answer;
}

/* Return the number of the outputs of a call; only an interrupt is left set. */
static uint32_t number_of_outputs(FastPath *self, PyObject *cached, PyObject *result,
                                  const Arguments *args)
{
    uint32_t outputs = 0;
    if (result == Py_None)
        return 0;
    if (is_usual(self->state, cached, result, &outputs))
        return outputs;
    if (PyErr_Occurred())
        return 0;
    PyObject *call = whole_call(args), *number = NULL;
    if (call != NULL)
        number = PyObject_CallFunctionObjArgs(self->state->recording.outputs, self->observed, cached, result,
                                              call, NULL);
    if (number != NULL)
        outputs = (uint32_t)PyLong_AsUnsignedLong(number);
    Py_XDECREF(call);
    Py_XDECREF(number);
    clear_error();
    return outputs;
}

/* Return the frame of the caller; None if no Python code called, as at exit. */
static PyObject *find_frame(FastPath *self)
{
    PyObject *frame = PyObject_CallOneArg(get_frame, self->depth);
    if (frame == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return frame;
}

static PyObject *call_fallback(FastPath *self, const Arguments *args)
{
    clear_error();
    if (PyErr_Occurred())
        return NULL;
    PyObject *frame = find_frame(self), *result = NULL;
    PyObject *given = frame == NULL ? NULL : positional(args->values, args->count);
    PyObject *named = given == NULL ? NULL : keywords(args);
    if (named != NULL)
        result = PyObject_CallFunctionObjArgs(self->fallback, frame, given, named, NULL);
    Py_XDECREF(frame);
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

static int is_outermost(ProbeState *state)
{
    PyObject *current;
    if (PyContextVar_Get(state->recording.current, NULL, &current) < 0)
        return 0;
    int outermost = current == Py_None;
    Py_XDECREF(current);
    return outermost;
}

/* Write which tensors a call gets. */
static void flow_in(ProbeState *state, const TensorIds *tensors, PyObject *cached, uint64_t op_index)
{
    Stream *flow = flow_of(state);
    if (flow == NULL)
        return;
    PyObject *order = field(cached, state->recording.order_offset);
    for (int i = 0; i < tensors->count; i++)
        stream_tensor(flow, FLOW_INPUT, order_at(order, (size_t)i), op_index, tensors->objects[i],
                      tensors->numbers[i] + 1, 0);
    flow->last_call = op_index;
}

/* Write which tensors a call has returned, also in a sequence. */
static void flow_out(ProbeState *state, PyObject *result, uint64_t op_index)
{
    Stream *flow = flow_of(state);
    uint64_t place = 0;
    if (flow == NULL)
        return;
    if ((PyObject *)Py_TYPE(result) == state->tensor) {
        stream_tensor(flow, FLOW_OUTPUT, 0, op_index, result, 0, 0);
    } else if (PyTuple_CheckExact(result) || PyList_CheckExact(result)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++) {
            PyObject *live = PySequence_Fast_GET_ITEM(result, i);
            if ((PyObject *)Py_TYPE(live) == state->tensor)
                stream_tensor(flow, FLOW_OUTPUT, place++, op_index, live, 0, 0);
        }
    }
}

/* Write the entry of a call's record and return the record; NULL if that is not possible. */
static char *begin_record(FastPath *self, const TensorIds *tensors, uint64_t word,
                          PyObject **window, uint64_t *op_index)
{
    ProbeState *state = self->state;
    PyObject *frame = find_frame(self);
    if (frame == NULL || frame == Py_None) {
        Py_XDECREF(frame);
        return NULL;
    }
    int site = find_site(&state->recording, (PyFrameObject *)frame);
    int64_t scope = site < 0 ? -1 : recording_scope(&state->recording);
    char *record = scope < 0 ? NULL : take_record(&state->recording, window, op_index);
    if (record == NULL)
        return NULL;
    for (int i = 0; self->invalidates && i < tensors->count; i++)
        int_table_drop(state->tensor_parts, tensors->numbers[i]);
    write_entry(record, word, (uint32_t)site, (uint32_t)scope);
    return record;
}

static PyObject *fast_path_call(PyObject *callable, PyObject *const *values, size_t flags,
                              PyObject *names)
{
    FastPath *self = (FastPath *)callable;
    Arguments args = {values, PyVectorcall_NARGS(flags), 0, names};
    if (names != NULL)
        args.named = PyTuple_GET_SIZE(names);
    TensorIds tensors;
    uint64_t word = NO_WORD, op_index = 0;
    PyObject *cached = NULL, *window = NULL;
    char *record = NULL;
    prefetch_record(&self->state->recording);
    if (is_outermost(self->state) && recording_refresh(&self->state->recording) == 0)
        cached = find_case(self, &tensors, &word, &args);
    if (cached != NULL)
        record = begin_record(self, &tensors, word, &window, &op_index);
    if (record == NULL) {
        Py_XDECREF(cached);
        return call_fallback(self, &args);
    }
    flow_in(self->state, &tensors, cached, op_index);
    PyObject *result = PyObject_Vectorcall(self->function, values, flags, names);
    uint64_t stopped = clock_ns();
    if (result == NULL) {
        write_exit(record, stopped, number_of_error(&self->state->recording), RAISED);
    } else {
        uint32_t outputs = number_of_outputs(self, cached, result, &args);
        flow_out(self->state, result, op_index);
        write_exit(record, stopped, outputs, RETURNED);
        if (PyErr_Occurred())
            Py_CLEAR(result);
    }
    /* The window kept the memory mapped, even if it was replaced meanwhile. */
    Py_DECREF(window);
    Py_DECREF(cached);
    return result;
}

#define OWNED(VISIT)                                                                              \
    VISIT(state) VISIT(op) VISIT(function) VISIT(fallback) VISIT(observed) VISIT(depth)

static int fast_path_traverse(FastPath *self, visitproc visit, void *arg)
{
#define VISIT_MEMBER(name) Py_VISIT(self->name);
    OWNED(VISIT_MEMBER)
    for (uint32_t i = 0; i < self->recent.size; i++)
        Py_VISIT(self->recent.calls[i].cached);
    return 0;
}

static int fast_path_clear(FastPath *self)
{
    /* A later call gets a TypeError. */
    self->vectorcall = NULL;
#define CLEAR_MEMBER(name) Py_CLEAR(self->name);
    OWNED(CLEAR_MEMBER)
    recent_calls_clear(&self->recent);
    return 0;
}

static void fast_path_dealloc(FastPath *self)
{
    PyObject_GC_UnTrack(self);
    fast_path_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject ProbeStateType;

static PyObject *fast_path_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"state",    "op",    "function",    "fallback",
                            "observed", "depth", "invalidates", NULL};
    FastPath given;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOOO!p", names, &ProbeStateType,
                                     &given.state, &given.op, &given.function, &given.fallback,
                                     &given.observed, &PyLong_Type, &given.depth,
                                     &given.invalidates))
        return NULL;
    FastPath *self = (FastPath *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
#define TAKE_MEMBER(name)                                                                         \
    Py_INCREF(given.name);                                                                        \
    self->name = given.name;
    OWNED(TAKE_MEMBER)
    self->invalidates = given.invalidates;
    self->vectorcall = fast_path_call;
    return (PyObject *)self;
}

/* Other attributes, such as the name, are those of the function. */
static PyObject *fast_path_attribute(PyObject *callable, PyObject *name)
{
    FastPath *self = (FastPath *)callable;
    PyObject *found = PyObject_GenericGetAttr(callable, name);
    if (found != NULL || self->function == NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(self->function, name);
}

static PyObject *fast_path_doc(PyObject *callable, void *Py_UNUSED(closure))
{
    FastPath *self = (FastPath *)callable;
    return PyObject_GetAttr(self->function == NULL ? Py_None : self->function, str_doc);
}

/* Like a function, it is its own copy. */
static PyObject *fast_path_copy(PyObject *self, PyObject *Py_UNUSED(arguments))
{
    Py_INCREF(self);
    return self;
}

static PyObject *fast_path_bind(PyObject *self, PyObject *owner, PyObject *Py_UNUSED(type))
{
    if (owner == NULL || owner == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, owner);
}

static PyMemberDef fast_path_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(FastPath, function), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef fast_path_computed[] = {
    {"__doc__", fast_path_doc, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef fast_path_methods[] = {
    {"__copy__", fast_path_copy, METH_NOARGS, NULL},
    {"__deepcopy__", fast_path_copy, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject FastPathType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks._fast_path.FastPath",
    .tp_basicsize = sizeof(FastPath),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(FastPath, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = fast_path_new,
    .tp_getattro = fast_path_attribute,
    .tp_dealloc = (destructor)fast_path_dealloc,
    .tp_traverse = (traverseproc)fast_path_traverse,
    .tp_clear = (inquiry)fast_path_clear,
    .tp_descr_get = fast_path_bind,
    .tp_members = fast_path_members,
    .tp_getset = fast_path_computed,
    .tp_methods = fast_path_methods,
};

#define SHARED(VISIT)                                                                             \
    VISIT(tensor) VISIT(id_of) VISIT(spec_of) VISIT(tensor_parts) VISIT(object_parts) VISIT(rules) \
    VISIT(have_own_buffers) VISIT(flow)

static int state_traverse(ProbeState *self, visitproc visit, void *arg)
{
    SHARED(VISIT_MEMBER)
    return recording_traverse(&self->recording, visit, arg);
}

static int state_clear(ProbeState *self)
{
    SHARED(CLEAR_MEMBER)
    recording_clear(&self->recording);
    return 0;
}

static void state_dealloc(ProbeState *self)
{
    PyObject_GC_UnTrack(self);
    state_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"shared",           "cached_case", "tensor_parts", "object_parts",
                            "rules",            "tensor",      "spec_of",      "id_of",
                            "have_own_buffers", "current",     "sites",        "site_of",
                            "outputs",          "error",       "flow",         NULL};
    ProbeState given;
    Recording *recording = &given.recording;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO!O!O!O!OOOOOO!OOOO", names, &recording->shared, &PyType_Type,
            &recording->cached_case, &IntTableType, &given.tensor_parts, &IntTableType,
            &given.object_parts, &PyDict_Type, &given.rules, &given.tensor, &given.spec_of,
            &given.id_of, &given.have_own_buffers, &recording->current, &PyDict_Type,
            &recording->sites, &recording->site_of, &recording->outputs, &recording->error,
            &given.flow) ||
        !is_stream(given.flow))
        return NULL;
    ProbeState *self = (ProbeState *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    SHARED(TAKE_MEMBER)
    if (recording_take(&self->recording, recording) < 0 ||
        (self->usual_offset =
             slot_offset((PyTypeObject *)recording->cached_case, "usual")) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyTypeObject ProbeStateType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "optrove.frameworks._fast_path.ProbeState",
    .tp_doc = "The state that the fast paths of one probe share.",
    .tp_basicsize = sizeof(ProbeState),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = state_new,
    .tp_dealloc = (destructor)state_dealloc,
    .tp_traverse = (traverseproc)state_traverse,
    .tp_clear = (inquiry)state_clear,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "optrove.frameworks._fast_path",
    .m_doc = "The fast path of the ttnn probe, in C.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__fast_path(void)
{
    if (recording_prepare() < 0)
        return NULL;
    str_doc = PyUnicode_InternFromString("__doc__");
    if (str_doc == NULL)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || add_type(made, "IntTable", &IntTableType) < 0 || add_stream(made) < 0 ||
        add_type(made, "ProbeState", &ProbeStateType) < 0 ||
        add_type(made, "FastPath", &FastPathType) < 0 || add_layout(made) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
