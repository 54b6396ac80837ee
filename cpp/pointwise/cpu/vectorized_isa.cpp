// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pointwise.vectorized, compiled once per CPU instruction set.
#include <type_traits>

#include "cpp/pointwise/cpu/element_loop.h"
#include "cpp/pointwise/cpu/float_lanes.h"
#include "cpp/pointwise/cpu/vectorized_kernel.h"
#include "cpp/simd/convert.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class A, Pointwise op> void function(const void* a, const void* b, const void* c, void* out, int64_t n) {
  PointwiseLoop<A>{static_cast<const A*>(a), static_cast<const A*>(b), static_cast<const A*>(c), static_cast<A*>(out),
                   n}(PointwiseName<op>{});
}
template <class T, Pointwise op> constexpr PointwiseFunction function_for() {
  if constexpr ((PointwiseOp<op>::operands & PointwiseTypeOf<T>::operand) != 0) return function<PointwiseType<T>, op>;
  else return nullptr;
}

template <class T> constexpr bool kIs16Bits = false;
template <> constexpr bool kIs16Bits<float16> = true;
template <> constexpr bool kIs16Bits<bfloat16> = true;
// Whether elements of type T are computed as they are in memory.
template <class T> constexpr bool kIsComputed = std::is_same_v<T, PointwiseType<T>>;

// Elements are copied as words of their size, so that dtypes of one size share the loops. As vectors, these loops would
// be larger and not faster.
template <int bytes>
using Word =
    std::conditional_t<bytes == 1, uint8_t,
                       std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;
template <class W>
__attribute__((noinline, optimize("no-tree-vectorize"))) void copy_words(const void* from, int64_t from_stride,
                                                                         void* to, int64_t to_stride, int64_t n) {
  const W* x = static_cast<const W*>(from);
  W* y = static_cast<W*>(to);
  for (int64_t i = 0; i < n; ++i) y[i * to_stride] = x[i * from_stride];
}
template <class T> void copy_strided(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n) {
  copy_words<Word<sizeof(T)>>(from, from_stride, to, to_stride, n);
}

// Converts n contiguous elements to the type in which they are computed.
template <class T> void read_contiguous(const T* from, PointwiseType<T>* out, int64_t n) {
  if constexpr (kIsComputed<T>) {
    __builtin_memcpy(out, from, size_t(n) * sizeof(T));
  } else if constexpr (kIs16Bits<T>) {
    const int64_t whole = n & -kStep;
    widen<Order::memory>(from, out, whole);
    if (whole == n) return;
    T rest[kStep] = {};
    float floats[kStep];
    __builtin_memcpy(rest, from + whole, size_t(n - whole) * sizeof(T));
    widen<Order::memory>(rest, floats, kStep);
    __builtin_memcpy(out + whole, floats, size_t(n - whole) * sizeof(float));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = read_element<T>(from, i);
  }
}
template <class T> void read(const void* from, int64_t stride, int64_t n, void* to) {
  using A = PointwiseType<T>;
  const T* x = static_cast<const T*>(from);
  A* out = static_cast<A*>(to);
  if (stride == 1) return read_contiguous(x, out, n);
  if (stride == 0) {
    const A v = read_element<T>(from, 0);
    for (int64_t i = 0; i < n; ++i) out[i] = v;
  } else if constexpr (kIsComputed<T>) {
    copy_strided<T>(from, stride, to, 1, n);
  } else {
    alignas(64) T gathered[kPointwiseSpan];
    for (int64_t begin = 0, count; begin < n; begin += count) {
      count = min_of(kPointwiseSpan, n - begin);
      copy_strided<T>(x + begin * stride, stride, gathered, 1, count);
      read_contiguous(gathered, out + begin, count);
    }
  }
}
// Converts n contiguous elements from the type in which they are computed.
template <class T> void write_contiguous(const PointwiseType<T>* x, T* out, int64_t n) {
  if constexpr (kIs16Bits<T>) {
    const int64_t whole = n & -kStep;
    narrow<Order::memory>(x, out, whole);
    if (whole == n) return;
    float floats[kStep] = {};
    T rest[kStep];
    __builtin_memcpy(floats, x + whole, size_t(n - whole) * sizeof(float));
    narrow<Order::memory>(floats, rest, kStep);
    __builtin_memcpy(out + whole, rest, size_t(n - whole) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) write_element<T>(out, i, x[i]);
  }
}
template <class T> void write(const void* from, int64_t n, void* to, bool non_temporal) {
  const PointwiseType<T>* x = static_cast<const PointwiseType<T>*>(from);
  T* out = static_cast<T*>(to);
  if constexpr (kIsComputed<T>) {
    copy_span(x, out, n, non_temporal);
  } else if (non_temporal) {
    alignas(64) T narrowed[kPointwiseSpan];
    write_contiguous(x, narrowed, n);
    copy_span(narrowed, out, n, true);
  } else {
    write_contiguous(x, out, n);
  }
}
template <class T> void write_strided(const void* from, int64_t n, void* to, int64_t stride) {
  if constexpr (kIsComputed<T>) {
    copy_strided<T>(from, 1, to, stride, n);
  } else {
    alignas(64) T narrowed[kPointwiseSpan];
    for (int64_t begin = 0, count; begin < n; begin += count) {
      count = min_of(kPointwiseSpan, n - begin);
      write_contiguous(static_cast<const PointwiseType<T>*>(from) + begin, narrowed, count);
      copy_strided<T>(narrowed, 1, static_cast<T*>(to) + begin * stride, stride, count);
    }
  }
}
template <class A> void write_bool(const void* from, int64_t n, void* to, int64_t stride) {
  const A* x = static_cast<const A*>(from);
  uint8_t* out = static_cast<uint8_t*>(to);
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] != A(0);
  else
    for (int64_t i = 0; i < n; ++i) out[i * stride] = x[i] != A(0);
}

// Whether a function of int8 gives the bits of the same function of uint8.
constexpr bool is_signless(Pointwise op) {
  switch (op) {
    case Pointwise::neg:
    case Pointwise::bitwise_not:
    case Pointwise::square:
    case Pointwise::logical_not:
    case Pointwise::add:
    case Pointwise::sub:
    case Pointwise::mul:
    case Pointwise::add_square:
    case Pointwise::bitwise_and:
    case Pointwise::bitwise_or:
    case Pointwise::bitwise_xor:
    case Pointwise::eq:
    case Pointwise::ne:
    case Pointwise::logical_and:
    case Pointwise::logical_or:
    case Pointwise::logical_xor:
    case Pointwise::multiply_add:
      return true;
    default:
      return false;
  }
}
// Computes the last `bytes` bytes of a result, fewer than a vector has, by a function of n elements that fill a vector.
__attribute__((noinline)) void compute_padded(PointwiseFunction f, const char* a, const char* b, const char* c,
                                              char* out, int64_t bytes, int64_t n) {
  alignas(kVectorBytes) char padded[3][kVectorBytes] = {};
  __builtin_memcpy(padded[0], a, size_t(bytes));
  __builtin_memcpy(padded[1], b, size_t(bytes));
  __builtin_memcpy(padded[2], c, size_t(bytes));
  f(padded[0], padded[1], padded[2], padded[0], n);
  __builtin_memcpy(out, padded[0], size_t(bytes));
}
// Computes a function of 8-bit or 16-bit elements in registers, a vector of elements at a time. Tests of 8-bit integers
// write bools.
template <class T, Pointwise op> void direct(const void* a, const void* b, const void* c, void* out, int64_t n) {
  constexpr int64_t kStep = kVectorBytes / int64_t(sizeof(T));
  auto as = static_cast<const T*>(a), bs = static_cast<const T*>(b), cs = static_cast<const T*>(c);
  auto outs = static_cast<T*>(out);
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    if constexpr (sizeof(T) == 1) {
      const Vector<T> x = load(as + i), y = load(bs + i), z = load(cs + i);
      Vector<T> result;
      for (int j = 0; j < kStep; ++j) result[j] = T(PointwiseOp<op>::of(x[j], y[j], z[j]));
      store(outs + i, result);
    } else {
      const Pair x = load_pair(as + i), y = load_pair(bs + i), z = load_pair(cs + i);
      auto f = [](FloatLanes x, FloatLanes y, FloatLanes z)
                   __attribute__((always_inline)) { return FloatLanes(PointwiseOp<op>::of(x, y, z)).v; };
      store_pair(outs + i, {f(x.first, y.first, z.first), f(x.second, y.second, z.second)});
    }
  }
  if (i < n)
    compute_padded(direct<T, op>, reinterpret_cast<const char*>(as + i), reinterpret_cast<const char*>(bs + i),
                   reinterpret_cast<const char*>(cs + i), reinterpret_cast<char*>(outs + i),
                   (n - i) * int64_t(sizeof(T)), kStep);
}

template <class T, Pointwise op> constexpr PointwiseFunction direct_for() {
  using Op = PointwiseOp<op>;
  // Machines without AVX2 compute these dtypes in buffers, too: size matters more there (CMakeLists.txt).
#if !defined(__x86_64__) || defined(__AVX2__)
  if constexpr (kIs16Bits<T>) {
    if constexpr (takes_float_lanes(op)) return direct<T, op>;
  } else if constexpr ((Op::operands & kIntegerOperands) != 0 && Op::group != PointwiseGroup::maths2 &&
                       Op::group != PointwiseGroup::select && op != Pointwise::left_shift &&
                       op != Pointwise::right_shift) {
    return direct<std::conditional_t<is_signless(op), uint8_t, T>, op>;
  }
#endif
  return nullptr;
}

template <class T> constexpr PointwiseTypeKernels kernels_of() {
  return {{read<T>, write<T>, write_strided<T>, write_bool<PointwiseType<T>>},
          {
#define MINIDNN_FUNCTION(name, group, operands, formula) function_for<T, Pointwise::name>(),
              MINIDNN_POINTWISE(MINIDNN_FUNCTION)
#undef MINIDNN_FUNCTION
          }};
}
template <class T> constexpr DirectFunctions direct_of() {
  return {{
#define MINIDNN_FUNCTION(name, group, operands, formula) direct_for<T, Pointwise::name>(),
      MINIDNN_POINTWISE(MINIDNN_FUNCTION)
#undef MINIDNN_FUNCTION
  }};
}

void copy_non_temporal(const void* from, void* to, int64_t bytes) {
  copy_span(static_cast<const char*>(from), static_cast<char*>(to), bytes, true);
}

}  // namespace

extern const PointwiseKernels pointwise_kernels;
const PointwiseKernels pointwise_kernels = {
    {kernels_of<float>(), kernels_of<double>(), kernels_of<float16>(), kernels_of<bfloat16>(), kernels_of<int8_t>(),
     kernels_of<uint8_t>(), kernels_of<int32_t>(), kernels_of<int64_t>(), kernels_of<bool>()},
    {direct_of<float16>(), direct_of<bfloat16>(), direct_of<int8_t>(), direct_of<uint8_t>()},
    copy_non_temporal,
    store_fence};

}  // namespace minidnn::MINIDNN_ISA
