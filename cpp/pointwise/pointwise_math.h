// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of one, two or three tensors. The list MINIDNN_POINTWISE below has one line for each function.
// Both g++ and NVRTC compile it. The CPU engines and the CUDA kernels are loops around these functions.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"

namespace minidnn {

// Groups of functions that are compiled together.
//   unary, binary, ternary: one, two or three operands; the result has their dtype
//   maths1, maths2: one or two operands, tens of instructions per element; the result has their dtype
//   test1, test2: one or two operands; the result is bool
//   select: the first operand is bool; the result has the dtype of the others
enum class PointwiseGroup : int64_t { unary, maths1, test1, binary, maths2, test2, ternary, select };

// Masks of the dtypes that operands may have. A mask is a sum of 1 for floating dtypes, 2 for integers, and 4 for bool.
constexpr int kRealOperands = 1, kIntegerOperands = 2, kNumberOperands = 3, kBitOperands = 6, kAnyOperands = 7;

// The list of functions. Each has a name, a group, a mask of dtypes, and a formula. In a formula, the operands are a, b
// and c. Their type A is float, double, int32_t or int64_t.
#define MINIDNN_POINTWISE(F)                                              \
  F(neg, unary, kNumberOperands, negative(a))                             \
  F(abs, unary, kNumberOperands, absolute(a))                             \
  F(sign, unary, kNumberOperands, a != a ? a : A(a > A(0)) - A(a < A(0))) \
  F(bitwise_not, unary, kIntegerOperands, ~a)                             \
  F(square, unary, kNumberOperands, times(a, a))                          \
  F(reciprocal, unary, kRealOperands, A(1) / a)                           \
  F(sqrt, unary, kRealOperands, maths::sqrt(a))                           \
  F(rsqrt, unary, kRealOperands, A(1) / maths::sqrt(a))                   \
  F(floor, unary, kRealOperands, down(a))                                 \
  F(ceil, unary, kRealOperands, up(a))                                    \
  F(round, unary, kRealOperands, nearest(a))                              \
  F(trunc, unary, kRealOperands, truncate(a))                             \
  F(exp, maths1, kRealOperands, maths::exp(a))                            \
  F(expm1, maths1, kRealOperands, maths::expm1(a))                        \
  F(log, maths1, kRealOperands, maths::log(a))                            \
  F(log1p, maths1, kRealOperands, maths::log1p(a))                        \
  F(log2, maths1, kRealOperands, base2(a))                                \
  F(log10, maths1, kRealOperands, base10(a))                              \
  F(sin, maths1, kRealOperands, sine(a))                                  \
  F(cos, maths1, kRealOperands, cosine(a))                                \
  F(tan, maths1, kRealOperands, tangent(a))                               \
  F(atan, maths1, kRealOperands, arc(a))                                  \
  F(asin, maths1, kRealOperands, arc_sine(a))                             \
  F(acos, maths1, kRealOperands, arc_cosine(a))                           \
  F(sinh, maths1, kRealOperands, hyperbolic_sine(a))                      \
  F(cosh, maths1, kRealOperands, hyperbolic_cosine(a))                    \
  F(tanh, maths1, kRealOperands, maths::tanh(a))                          \
  F(asinh, maths1, kRealOperands, area_sine(a))                           \
  F(acosh, maths1, kRealOperands, area_cosine(a))                         \
  F(atanh, maths1, kRealOperands, area_tangent(a))                        \
  F(erf, maths1, kRealOperands, error_function(a))                        \
  F(isnan, test1, kRealOperands, a != a)                                  \
  F(isinf, test1, kRealOperands, a == a && a - a != A(0))                 \
  F(isfinite, test1, kRealOperands, a - a == A(0))                        \
  F(signbit, test1, kRealOperands, with_sign_of(A(1), a) < A(0))          \
  F(logical_not, test1, kAnyOperands, a == A(0))                          \
  F(add, binary, kNumberOperands, plus(a, b))                             \
  F(sub, binary, kNumberOperands, minus(a, b))                            \
  F(mul, binary, kNumberOperands, times(a, b))                            \
  F(div, binary, kRealOperands, a / b)                                    \
  F(minimum, binary, kNumberOperands, smaller(a, b))                      \
  F(maximum, binary, kNumberOperands, larger(a, b))                       \
  F(add_square, binary, kNumberOperands, plus(a, times(b, b)))            \
  F(copysign, binary, kRealOperands, with_sign_of(a, b))                  \
  F(bitwise_and, binary, kBitOperands, a& b)                              \
  F(bitwise_or, binary, kBitOperands, a | b)                              \
  F(bitwise_xor, binary, kBitOperands, a ^ b)                             \
  F(left_shift, binary, kIntegerOperands, shifted_left(a, b))             \
  F(right_shift, binary, kIntegerOperands, shifted_right(a, b))           \
  F(pow, maths2, kNumberOperands, power(a, b))                            \
  F(mod, maths2, kNumberOperands, remainder(a, b))                        \
  F(floor_div, maths2, kNumberOperands, floor_quotient(a, b))             \
  F(hypot, maths2, kRealOperands, hypotenuse(a, b))                       \
  F(logaddexp, maths2, kRealOperands, log_of_sum(a, b))                   \
  F(atan2, maths2, kRealOperands, arc(a, b))                              \
  F(eq, test2, kAnyOperands, a == b)                                      \
  F(ne, test2, kAnyOperands, a != b)                                      \
  F(lt, test2, kAnyOperands, a < b)                                       \
  F(le, test2, kAnyOperands, a <= b)                                      \
  F(gt, test2, kAnyOperands, a > b)                                       \
  F(ge, test2, kAnyOperands, a >= b)                                      \
  F(logical_and, test2, kAnyOperands, a != A(0) && b != A(0))             \
  F(logical_or, test2, kAnyOperands, a != A(0) || b != A(0))              \
  F(logical_xor, test2, kAnyOperands, (a != A(0)) != (b != A(0)))         \
  F(clamp, ternary, kNumberOperands, smaller(larger(a, b), c))            \
  F(multiply_add, ternary, kNumberOperands, plus(times(a, b), c))         \
  F(lerp, ternary, kRealOperands, a + c * (b - a))                        \
  F(where, select, kAnyOperands, a != A(0) ? b : c)

enum class Pointwise : int64_t {
#define MINIDNN_NAME(name, group, operands, formula) name,
  MINIDNN_POINTWISE(MINIDNN_NAME)
#undef MINIDNN_NAME
};

namespace elements {

// Integers wrap around on overflow, because they are computed as unsigned numbers. int8 and uint8 are computed as
// int32_t, and wrap around when they are stored.
template <class A> struct UnsignedOf {
  using type = A;
};
template <> struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <> struct UnsignedOf<int64_t> {
  using type = uint64_t;
};
template <class A> using Unsigned = typename UnsignedOf<A>::type;

template <class A> MINIDNN_HD A plus(A a, A b) { return A(Unsigned<A>(a) + Unsigned<A>(b)); }
template <class A> MINIDNN_HD A times(A a, A b) { return A(Unsigned<A>(a) * Unsigned<A>(b)); }
template <class A> MINIDNN_HD A minus(A a, A b) { return A(Unsigned<A>(a) - Unsigned<A>(b)); }
MINIDNN_HD float negative(float a) { return -a; }
MINIDNN_HD double negative(double a) { return -a; }
template <class A> MINIDNN_HD A negative(A a) { return minus(A(0), a); }
MINIDNN_HD float absolute(float a) { return maths::abs(a); }
MINIDNN_HD double absolute(double a) { return maths::abs(a); }
template <class A> MINIDNN_HD A absolute(A a) { return a < A(0) ? negative(a) : a; }
// larger() and smaller() return the larger and the smaller of two numbers, or NaN if either is NaN.
template <class A> MINIDNN_HD A larger(A a, A b) { return a < b || b != b ? b : a; }
template <class A> MINIDNN_HD A smaller(A a, A b) { return b < a || b != b ? b : a; }

MINIDNN_HD float down(float a) { return ::floorf(a); }
MINIDNN_HD double down(double a) { return ::floor(a); }
MINIDNN_HD float up(float a) { return ::ceilf(a); }
MINIDNN_HD double up(double a) { return ::ceil(a); }
MINIDNN_HD float nearest(float a) { return ::rintf(a); }
MINIDNN_HD double nearest(double a) { return ::rint(a); }
MINIDNN_HD float truncate(float a) { return ::truncf(a); }
MINIDNN_HD double truncate(double a) { return ::trunc(a); }
MINIDNN_HD float base2(float a) { return ::log2f(a); }
MINIDNN_HD double base2(double a) { return ::log2(a); }
MINIDNN_HD float sine(float a) { return ::sinf(a); }
MINIDNN_HD double sine(double a) { return ::sin(a); }
MINIDNN_HD float cosine(float a) { return ::cosf(a); }
MINIDNN_HD double cosine(double a) { return ::cos(a); }
MINIDNN_HD float tangent(float a) { return ::tanf(a); }
MINIDNN_HD double tangent(double a) { return ::tan(a); }
MINIDNN_HD float arc(float a) { return ::atanf(a); }
MINIDNN_HD double arc(double a) { return ::atan(a); }
MINIDNN_HD float arc(float a, float b) { return ::atan2f(a, b); }
MINIDNN_HD double arc(double a, double b) { return ::atan2(a, b); }
MINIDNN_HD float base10(float a) { return ::log10f(a); }
MINIDNN_HD double base10(double a) { return ::log10(a); }
MINIDNN_HD float arc_sine(float a) { return ::asinf(a); }
MINIDNN_HD double arc_sine(double a) { return ::asin(a); }
MINIDNN_HD float arc_cosine(float a) { return ::acosf(a); }
MINIDNN_HD double arc_cosine(double a) { return ::acos(a); }
MINIDNN_HD float hyperbolic_sine(float a) { return ::sinhf(a); }
MINIDNN_HD double hyperbolic_sine(double a) { return ::sinh(a); }
MINIDNN_HD float hyperbolic_cosine(float a) { return ::coshf(a); }
MINIDNN_HD double hyperbolic_cosine(double a) { return ::cosh(a); }
MINIDNN_HD float area_sine(float a) { return ::asinhf(a); }
MINIDNN_HD double area_sine(double a) { return ::asinh(a); }
MINIDNN_HD float area_cosine(float a) { return ::acoshf(a); }
MINIDNN_HD double area_cosine(double a) { return ::acosh(a); }
MINIDNN_HD float area_tangent(float a) { return ::atanhf(a); }
MINIDNN_HD double area_tangent(double a) { return ::atanh(a); }
MINIDNN_HD float hypotenuse(float a, float b) { return ::hypotf(a, b); }
MINIDNN_HD double hypotenuse(double a, double b) { return ::hypot(a, b); }
MINIDNN_HD float with_sign_of(float a, float b) { return ::copysignf(a, b); }
MINIDNN_HD double with_sign_of(double a, double b) { return ::copysign(a, b); }
MINIDNN_HD float error_function(float a) { return ::erff(a); }
MINIDNN_HD double error_function(double a) { return ::erf(a); }
MINIDNN_HD float power(float a, float b) { return ::powf(a, b); }
MINIDNN_HD double power(double a, double b) { return ::pow(a, b); }
// Computes a^b for integers by repeated squaring. For a negative b, the result is 1 / a^-b truncated to an integer. If
// b is negative and a is 0, the result is 0.
template <class A> MINIDNN_HD A power(A a, A b) {
  if (b < A(0)) return a == A(1) ? A(1) : a == A(-1) ? (b % 2 == 0 ? A(1) : A(-1)) : A(0);
  A result = 1;
  for (; b > A(0); b /= 2) {
    if (b % 2 != 0) result = times(result, a);
    a = times(a, a);
  }
  return result;
}

// Returns the remainder of the truncated division a / b. It has the sign of a.
MINIDNN_HD float rest(float a, float b) { return ::fmodf(a, b); }
MINIDNN_HD double rest(double a, double b) { return ::fmod(a, b); }

// remainder() returns a - b floor(a / b), which has the sign of b, as in Python, and 0 for integers with b = 0.
// of_sign() computes it from the remainder of the truncated division.
MINIDNN_HD float of_sign(float r, float b) { return r == 0 ? ::copysignf(r, b) : (r < 0) != (b < 0) ? r + b : r; }
MINIDNN_HD double of_sign(double r, double b) { return r == 0 ? ::copysign(r, b) : (r < 0) != (b < 0) ? r + b : r; }
MINIDNN_HD float remainder(float a, float b) { return of_sign(rest(a, b), b); }
MINIDNN_HD double remainder(double a, double b) { return of_sign(rest(a, b), b); }
template <class A> MINIDNN_HD A remainder(A a, A b) {
  // On the CPU, dividing the least integer by -1 would trap.
  if (b == A(0) || b == A(-1)) return A(0);
  A r = a % b;
  return r != A(0) && (r < A(0)) != (b < A(0)) ? r + b : r;
}

// Computes floor(a / b) from the exact remainder, because a rounded quotient could be wrong. It is 0 for integers with
// b = 0.
template <class A> MINIDNN_HD A floor_of_quotient(A a, A b) {
  if (b == A(0)) return a / b;
  const A r = rest(a, b);
  const bool below = r != A(0) && (r < A(0)) != (b < A(0));
  const A quotient = nearest((a - r) / b) - A(below);
  return quotient == A(0) ? with_sign_of(quotient, a / b) : quotient;
}
MINIDNN_HD float floor_quotient(float a, float b) { return floor_of_quotient(a, b); }
MINIDNN_HD double floor_quotient(double a, double b) { return floor_of_quotient(a, b); }
template <class A> MINIDNN_HD A floor_quotient(A a, A b) {
  if (b == A(0)) return A(0);
  // On the CPU, dividing the least integer by -1 would trap.
  if (b == A(-1)) return negative(a);
  const A quotient = a / b;
  return a % b != A(0) && (a < A(0)) != (b < A(0)) ? quotient - A(1) : quotient;
}

// Computes log(e^a + e^b). Neither e^a nor e^b is computed, so neither can overflow.
template <class A> MINIDNN_HD A log_of_sum(A a, A b) {
  const A largest = larger(a, b);
  // If the larger operand is infinite, or one of the operands is NaN, `largest` is the result. The formula below would
  // give NaN for two equal infinities.
  if (largest - largest != A(0)) return largest;
  return largest + maths::log1p(maths::exp(-absolute(a - b)));
}

// Shift a by b bits. If b is negative or not less than the number of bits of A, all bits of a are shifted out.
template <class A> MINIDNN_HD A shifted_left(A a, A b) {
  return b < A(0) || b >= A(8 * sizeof(A)) ? A(0) : A(Unsigned<A>(a) << b);
}
template <class A> MINIDNN_HD A shifted_right(A a, A b) {
  constexpr A kLast = A(8 * sizeof(A) - 1);
  return a >> (b < A(0) || b > kLast ? kLast : b);
}

}  // namespace elements

template <Pointwise op> struct PointwiseOp;
#define MINIDNN_DEFINE(name, which, takes, formula)                                                                  \
  template <> struct PointwiseOp<Pointwise::name> {                                                                  \
    static constexpr PointwiseGroup group = PointwiseGroup::which;                                                   \
    static constexpr int operands = takes;                                                                           \
    template <class A> MINIDNN_HD static auto of([[maybe_unused]] A a, [[maybe_unused]] A b, [[maybe_unused]] A c) { \
      using namespace elements;                                                                                      \
      return formula;                                                                                                \
    }                                                                                                                \
  };
MINIDNN_POINTWISE(MINIDNN_DEFINE)
#undef MINIDNN_DEFINE

// The C++ type in which elements of type T are computed. double and int64_t are computed as they are. All other
// floating dtypes are computed as float. All other integers and bool are computed as int32_t.
template <class T> struct PointwiseTypeOf {
  using type = int32_t;
  static constexpr int operand = 2;
};
template <> struct PointwiseTypeOf<bool> {
  using type = int32_t;
  static constexpr int operand = 4;
};
template <> struct PointwiseTypeOf<int64_t> {
  using type = int64_t;
  static constexpr int operand = 2;
};
template <> struct PointwiseTypeOf<double> {
  using type = double;
  static constexpr int operand = 1;
};
template <> struct PointwiseTypeOf<float> {
  using type = float;
  static constexpr int operand = 1;
};
template <> struct PointwiseTypeOf<float16> : PointwiseTypeOf<float> {};
template <> struct PointwiseTypeOf<bfloat16> : PointwiseTypeOf<float> {};
template <class T> using PointwiseType = typename PointwiseTypeOf<T>::type;

template <Pointwise value> struct PointwiseName {
  static constexpr Pointwise op = value;
};

// Calls f(PointwiseName<op>{}) if `op` belongs to the group of the template and accepts operands of type T.
template <PointwiseGroup group, class T, class F> MINIDNN_HD void with_pointwise(Pointwise op, const F& f) {
  switch (op) {
#define MINIDNN_CASE(name, which, takes, formula)                                               \
  case Pointwise::name:                                                                         \
    if constexpr (group == PointwiseGroup::which && (takes & PointwiseTypeOf<T>::operand) != 0) \
      f(PointwiseName<Pointwise::name>{});                                                      \
    break;
    MINIDNN_POINTWISE(MINIDNN_CASE)
#undef MINIDNN_CASE
  }
}

struct PointwiseProblem {
  Pointwise op{};
  // All tensors have the shape of the result, with stride 0 in broadcast dimensions. Missing operands have empty
  // descriptions.
  TensorDesc a, b, c, out;
};

struct PointwiseArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* out = nullptr;
};

// How to compute the offset of an operand's element from i, the index of the result's element in memory order.
enum class Access : int64_t {
  // The operand has the order of the result: the offset is i.
  dense,
  // The operand is a scalar, or a vector of `length` elements along one dimension. The offset is (i / inner % length) *
  // stride, where `inner` is the product of the sizes of all inner dimensions.
  periodic,
  // Any strides: the offset is computed from the coordinates.
  strided,
};
struct PointwiseAccess {
  Access kind{};
  int64_t inner = 1, length = 1, stride = 0;
  int64_t strides[kMaxRank]{};  // the strides of the operand along the dimensions of PointwiseIndexing
};
// The divisors of a periodic operand, for tensors with fewer than 2^31 elements.
struct PointwisePeriod {
  FastDivmod inner, length;
};
// The dimensions of a problem in memory order of the result. Dimensions that are contiguous in every tensor are joined.
struct ElementIndexing {
  int64_t n = 0, rank = 0;
  int64_t shape[kMaxRank]{};

  MINIDNN_HD int64_t offset(const PointwiseAccess& x, int64_t i) const {
    if (x.kind == Access::dense) return i;
    if (x.kind == Access::periodic) return i / x.inner % x.length * x.stride;
    int64_t at = 0;
    for (int d = int(rank) - 1; d > 0; --d) {
      at += i % shape[d] * x.strides[d];
      i /= shape[d];
    }
    return at + i * x.strides[0];
  }
};
struct PointwiseIndexing : ElementIndexing {
  PointwiseAccess a, b, c, out;
};

}  // namespace minidnn
