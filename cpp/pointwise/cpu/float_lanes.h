// SPDX-License-Identifier: Apache-2.0
// A vector of floats as a type that formulas of pointwise_math.h accept. Their helper functions, such as larger(), are
// found by the type of their arguments. So loops over 16-bit elements keep each vector in registers from its load to its
// store. Only files X_isa.cpp include this header.
#pragma once
#include "cpp/pointwise/pointwise_math.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {

struct FloatLanes {
  Floats v;
  MINIDNN_HD FloatLanes(Floats x) : v(x) {}
  MINIDNN_HD explicit FloatLanes(int x) : v(Floats{} + float(x)) {}
};

MINIDNN_HD FloatLanes operator+(FloatLanes a, FloatLanes b) { return a.v + b.v; }
MINIDNN_HD FloatLanes operator-(FloatLanes a, FloatLanes b) { return a.v - b.v; }
MINIDNN_HD FloatLanes operator*(FloatLanes a, FloatLanes b) { return a.v * b.v; }
MINIDNN_HD FloatLanes operator/(FloatLanes a, FloatLanes b) { return a.v / b.v; }
MINIDNN_HD FloatLanes negative(FloatLanes a) { return -a.v; }
MINIDNN_HD FloatLanes absolute(FloatLanes a) { return (Floats)((Words)a.v & 0x7fffffff); }
MINIDNN_HD FloatLanes with_sign_of(FloatLanes a, FloatLanes b) {
  return (Floats)(((Words)a.v & 0x7fffffff) | ((Words)b.v & 0x80000000));
}
MINIDNN_HD FloatLanes larger(FloatLanes a, FloatLanes b) { return (a.v < b.v) | (b.v != b.v) ? b.v : a.v; }
MINIDNN_HD FloatLanes smaller(FloatLanes a, FloatLanes b) { return (b.v < a.v) | (b.v != b.v) ? b.v : a.v; }

// Whether FloatLanes has everything that the formula of a function needs.
constexpr bool takes_float_lanes(Pointwise op) {
  switch (op) {
    case Pointwise::neg:
    case Pointwise::abs:
    case Pointwise::square:
    case Pointwise::reciprocal:
    case Pointwise::add:
    case Pointwise::sub:
    case Pointwise::mul:
    case Pointwise::div:
    case Pointwise::minimum:
    case Pointwise::maximum:
    case Pointwise::add_square:
    case Pointwise::copysign:
    case Pointwise::clamp:
    case Pointwise::multiply_add:
    case Pointwise::lerp:
      return true;
    default:
      return false;
  }
}

}  // namespace minidnn::MINIDNN_ISA
