// SPDX-License-Identifier: Apache-2.0
// Random tensors and dropout: the public functions. random_math.h defines how the numbers are computed.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/random/random_math.h"

namespace minidnn {

template <> struct Family<RandomProblem> {
  using Args = RandomArgs;
  static constexpr const char* name = "random";
  static std::string text(const RandomProblem&);
  static void ports(const RandomProblem&, Args&, Ports&);
  static const Engines<RandomProblem>& cpu_engines();
  static const Engines<RandomProblem>& cuda_engines();
};

// fill_uniform() fills `out` with uniformly distributed random numbers in [low, high). fill_normal() fills `out` with
// normally distributed random numbers.
void fill_uniform(const Tensor& out, int64_t seed, int64_t offset, double low, double high, const Call&);
void fill_normal(const Tensor& out, int64_t seed, int64_t offset, double mean, double std, const Call&);
// Dropout. Each element of x gets a random word, which is read as a fraction in [0, 1). If the fraction is less than p,
// the result is 0. If not, the result is x / (1 - p). Dropout of dy with the same arguments computes the gradient.
// `out` may be the same tensor as x.
Tensor dropout(const char* call, const char* name, const Tensor& x, double p, int64_t seed, int64_t offset,
               const Call& options);

// Computes dropout of the elements [i, i + n) of a row-major tensor on the CPU. `type` is float32 or float64. The
// arguments point to element i of x and of the result, which may be the same memory.
void dropout_on_span(const RandomArgs&, DType type, int64_t i, int64_t n);

double random_bytes(const RandomProblem&);
double random_flop(const RandomProblem&);

}  // namespace minidnn
