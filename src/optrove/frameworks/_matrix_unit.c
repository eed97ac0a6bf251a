/* Sums of products as the matrix unit of a Tensix core takes them: MatrixUnit._by_torch of
   ttnn/shadow/arithmetic.py in C, with identical results.

   A float32 is a significand and an exponent here, so that no product is too large or too small.
   Each phase multiplies 7 bits of the left significand by 5 bits of the right one. Eight products
   are rounded to the exponent of the largest and summed; two such groups are added to the
   destination, which keeps 8 or 24 bits of its significand. Halves are rounded away from zero.

   Eight columns are summed side by side, in the vectors that gcc and clang have for any processor.
   On x86 the module needs AVX2 and refuses to load without it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define TILE 32
#define FACE 16
#define GROUP 8
#define STRIP 8       /* columns that are summed at the same time */
#define ROWS 32       /* rows that share the right operand's significands */
#define DEPTH 128     /* elements of the inner dimension whose left significands are kept */
#define NOTHING -2000 /* the exponent of zero */
#define WHOLE(size) (((size) + TILE - 1) / TILE * TILE)

#ifdef __x86_64__
#define FAST __attribute__((target("avx2")))
#else
#define FAST
#endif
#define INLINED FAST inline __attribute__((always_inline))

typedef int32_t Ints __attribute__((vector_size(4 * STRIP)));
typedef uint32_t Words __attribute__((vector_size(4 * STRIP)));
typedef float Floats __attribute__((vector_size(4 * STRIP)));

/* Values as a phase multiplies them: the leading bits of each significand or those that follow, as
   whole numbers with a sign, and the exponent. */
typedef struct {
    Floats part[2];
    Ints exponent;
} Values;

typedef struct {
    float part[2];
    int32_t exponent;
} Value;

/* The destination register: significand times 2 ^ (exponent - fraction). */
typedef struct {
    Ints significand, exponent;
} Destination;

typedef struct {
    const float *left, *right;
    float *total;
    Py_ssize_t rows, inner, columns;
    Py_ssize_t first, last; /* the columns that are added */
    int phases, wide;
} Product;

static INLINED Ints choose(Ints where, Ints one, Ints other)
{
    return (where & one) | (~where & other);
}

static INLINED Ints larger(Ints one, Ints other)
{
    return choose(one > other, one, other);
}

static INLINED Ints smaller(Ints one, Ints other)
{
    return choose(one < other, one, other);
}

/* Divides by a power of two, and rounds halves up. */
static INLINED Ints divided(Ints whole, Ints times)
{
    const Ints one = (Ints){0} + 1;
    return (whole + ((one << times) >> 1)) >> times;
}

static INLINED Floats read_columns(const float *from, Py_ssize_t count)
{
    Floats values = {0};
    if (count >= STRIP)
        memcpy(&values, from, sizeof values);
    else
        memcpy(&values, from, (size_t)count * sizeof(float));
    return values;
}

/* Splits significands into their leading ``high`` bits behind the point and ``low`` further ones,
   which are raised to ``width`` bits. There are no subnormal numbers. */
static INLINED void split(Floats values, int high, int low, int width, Values *to)
{
    Ints bits = (Ints)values, field = (bits >> 23) & 0xff, sign = bits >> 31;
    Ints whole = ~(field == 0) & ((bits & 0x7fffff) | 0x800000);
    Ints first = whole >> (23 - high);
    Ints second = ((whole >> (23 - high - low)) & ((1 << low) - 1)) << (width - low);
    to->part[0] = __builtin_convertvector((first ^ sign) - sign, Floats);
    to->part[1] = __builtin_convertvector((second ^ sign) - sign, Floats);
    to->exponent = choose(field == 0, (Ints){0} + NOTHING, field - 127);
}

/* Adds two sums of products, on the exponents of their groups, to the destination. */
static INLINED void accumulate(Destination *to, const Ints *sums, const Ints *exponents, int shrunk,
                               int wide)
{
    const int fraction = wide ? 23 : 10, kept = wide ? 23 : 7;
    const Ints zero = {0}, limit = zero + 30;
    Ints largest = larger(larger(exponents[0], exponents[1]) - shrunk, to->exponent);
    Ints sign = to->significand >> 31;
    Ints size = divided((to->significand ^ sign) - sign, smaller(largest - to->exponent, limit));
    Ints whole = (size ^ sign) - sign;
    for (int half = 0; half < 2; half++) {
        Ints below = smaller(largest - exponents[half] + shrunk, limit);
        whole += divided(sums[half] << (fraction - 10), below);
    }
    sign = whole >> 31;
    size = (whole ^ sign) - sign;
    /* Without its second bit, a number is not rounded up to the next power of two. */
    Ints top = ((Ints)__builtin_convertvector(size & ~(size >> 1), Floats) >> 23) - 127;
    top = larger(top, zero);
    Ints lost = larger(top - kept, zero);
    size = divided(size, lost) << lost;
    top += size >> (top + 1);
    Ints exponent = largest + top - fraction;
    size = (Ints)((Words)(size << (31 - top)) >> (31 - fraction));
    Ints vanished = (size == 0) | (exponent < -126);
    to->significand = ~vanished & ((size ^ sign) - sign);
    to->exponent = choose(vanished, zero + NOTHING, exponent);
}

/* Adds the products of one row and one tile of the inner dimension to the destination. */
static INLINED void add_tile(const Value *left, const Values *right, Destination *to, int phases,
                             int wide)
{
    const Ints zero = {0};
    Floats scale[TILE];
    Ints largest[TILE / GROUP];
    for (int group = 0; group < TILE / GROUP; group++) {
        const int start = group * GROUP;
        Ints highest = zero + 2 * NOTHING;
        for (int place = start; place < start + GROUP; place++)
            highest = larger(highest, right[place].exponent + left[place].exponent);
        for (int place = start; place < start + GROUP; place++) {
            Ints below = right[place].exponent + left[place].exponent - highest;
            scale[place] = (Floats)((larger(below, zero - 30) + 127) << 23);
        }
        largest[group] = highest;
    }
    for (int phase = 0; phase < phases; phase++)
        for (int face = 0; face < TILE / FACE; face++) {
            Ints sums[2];
            for (int half = 0; half < 2; half++) {
                const int start = face * FACE + half * GROUP;
                Ints sum = zero;
                for (int place = start; place < start + GROUP; place++) {
                    Floats value = right[place].part[phase & 1] * scale[place];
                    value *= left[place].part[phase >> 1];
                    Ints half_away = ((Ints)value & INT32_MIN) | 0x3f000000;
                    sum += __builtin_convertvector(value + (Floats)half_away, Ints);
                }
                sums[half] = sum;
            }
            accumulate(to, sums, largest + 2 * face, 5 * (phase & 1) + 7 * (phase >> 1), wide);
        }
}

static INLINED Destination load(Floats values, int wide)
{
    Ints bits = (Ints)values, field = (bits >> 23) & 0xff, sign = bits >> 31;
    Ints whole = ~(field == 0) & (((bits & 0x7fffff) | 0x800000) >> (wide ? 0 : 13));
    Destination read = {(whole ^ sign) - sign, choose(field == 0, (Ints){0} + NOTHING, field - 127)};
    return read;
}

static INLINED Floats stored(Destination from, int wide)
{
    Ints sign = from.significand >> 31;
    Ints size = ((from.significand ^ sign) - sign) << (wide ? 0 : 13);
    Ints bits = (size & 0x7fffff) | ((from.exponent + 127) << 23);
    bits = choose(from.exponent > 127, (Ints){0} + 0x7f800000, bits);
    return (Floats)(~(size == 0) & (bits | (sign << 31)));
}

/* Reads the left operand's rows; there are ``count`` of them, and ``depth`` elements in each. */
static FAST void read_left(const Product *product, Py_ssize_t first, Py_ssize_t count,
                           Py_ssize_t start, Py_ssize_t depth, Value left[ROWS][DEPTH])
{
    for (Py_ssize_t row = 0; row < count; row++) {
        const float *from = product->left + (first + row) * product->inner + start;
        for (Py_ssize_t place = 0; place < WHOLE(depth); place += STRIP) {
            Values values;
            split(read_columns(from + place, place < depth ? depth - place : 0), 6, 4, 7, &values);
            for (int lane = 0; lane < STRIP; lane++) {
                Value one = {{values.part[0][lane], values.part[1][lane]}, values.exponent[lane]};
                left[row][place + lane] = one;
            }
        }
    }
}

/* Adds up to DEPTH elements of the inner dimension to up to ROWS rows. */
static FAST void add_depth(const Product *product, Py_ssize_t first, Py_ssize_t count,
                           Py_ssize_t start, Value left[ROWS][DEPTH])
{
    const Py_ssize_t rest = product->inner - start, depth = rest < DEPTH ? rest : DEPTH;
    read_left(product, first, count, start, depth, left);
    for (Py_ssize_t column = product->first; column < product->last; column += STRIP) {
        const Py_ssize_t width = product->last - column;
        Values right[DEPTH];
        for (Py_ssize_t place = 0; place < WHOLE(depth); place++) {
            const float *from = product->right + (start + place) * product->columns + column;
            split(read_columns(from, place < depth ? width : 0), 4, 5, 5, &right[place]);
        }
        for (Py_ssize_t row = 0; row < count; row++) {
            float *place = product->total + (first + row) * product->columns + column;
            Destination to = load(read_columns(place, width), product->wide);
            for (Py_ssize_t tile = 0; tile < depth; tile += TILE)
                if (product->wide)
                    add_tile(&left[row][tile], &right[tile], &to, product->phases, 1);
                else
                    add_tile(&left[row][tile], &right[tile], &to, product->phases, 0);
            Floats values = stored(to, product->wide);
            memcpy(place, &values, (size_t)(width < STRIP ? width : STRIP) * sizeof(float));
        }
    }
}

static int add_matrices(const Product *product)
{
    Value(*left)[DEPTH] = PyMem_RawMalloc(ROWS * sizeof *left);
    if (left == NULL)
        return -1;
    for (Py_ssize_t row = 0; row < product->rows; row += ROWS) {
        const Py_ssize_t rest = product->rows - row;
        for (Py_ssize_t start = 0; start < product->inner; start += DEPTH)
            add_depth(product, row, rest < ROWS ? rest : ROWS, start, left);
    }
    PyMem_RawFree(left);
    return 0;
}

static int has_size(const Py_buffer *buffer, Py_ssize_t one, Py_ssize_t other, const char *name)
{
    if (one >= 0 && other >= 0 && buffer->len == one * other * (Py_ssize_t)sizeof(float))
        return 1;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes, not those of %zd x %zd float32", name,
                 buffer->len, one, other);
    return 0;
}

static PyObject *add_product(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer left, right, total;
    Product product;
    int failed = -1;
    if (!PyArg_ParseTuple(arguments, "y*y*w*nnnnnip", &left, &right, &total, &product.rows,
                          &product.inner, &product.columns, &product.first, &product.last,
                          &product.phases, &product.wide))
        return NULL;
    product.left = left.buf;
    product.right = right.buf;
    product.total = total.buf;
    if (product.phases < 1 || product.phases > 4)
        PyErr_Format(PyExc_ValueError, "%d phases, not 1 to 4", product.phases);
    else if (product.first < 0 || product.last > product.columns)
        PyErr_Format(PyExc_ValueError, "columns %zd to %zd of %zd", product.first, product.last,
                     product.columns);
    else if (has_size(&left, product.rows, product.inner, "left") &&
             has_size(&right, product.inner, product.columns, "right") &&
             has_size(&total, product.rows, product.columns, "total")) {
        Py_BEGIN_ALLOW_THREADS
        failed = add_matrices(&product);
        Py_END_ALLOW_THREADS
        if (failed)
            PyErr_NoMemory();
    }
    PyBuffer_Release(&left);
    PyBuffer_Release(&right);
    PyBuffer_Release(&total);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"add_product", add_product, METH_VARARGS,
     "add_product(left, right, total, rows, inner, columns, first, last, phases, wide)\n\n"
     "Add the product of two float32 matrices to a third, as the matrix unit does; only columns\n"
     "from first to last are added."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "optrove.frameworks._matrix_unit",
    .m_doc = "Sums of products of the matrix unit, in C.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__matrix_unit(void)
{
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx2")) {
        PyErr_SetString(PyExc_ImportError, "this processor has no AVX2");
        return NULL;
    }
#endif
    return PyModule_Create(&module);
}
