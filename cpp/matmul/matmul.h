// SPDX-License-Identifier: Apache-2.0
// Matrix products: the public function, its checks, and its problem. The maths is in matmul_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/matmul/matmul_math.h"

namespace minidnn {

template <>
struct Family<MatmulProblem> {
  using Args = MatmulArgs;
  static constexpr const char* name = "matmul";
  static std::string text(const MatmulProblem&);
  static Args scratch(const MatmulProblem&, Scratch&);
  static const Engines<MatmulProblem>& cpu_engines();
  static const Engines<MatmulProblem>& cuda_engines();
};

struct MatmulOptions {
  bool transpose_a = false, transpose_b = false;  // whether the last two dimensions are exchanged
  double alpha = 1, beta = 0;
  std::optional<Tensor> c;     // broadcast to y, not read if beta is 0. If it is empty and beta is not 0, `out` is read
  std::optional<Tensor> bias;  // [N]
  Activation activation = Activation::identity;
};

// activation(alpha * op(a) @ op(b) + beta * c + bias) for a [..., M, K] and b [..., K, N]; batch dimensions broadcast.
// The result is row-major. `out` may be c. `out` may be float32 if a has 16 bits; c is then float32 too.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions&, const Call& call);

// For engines: empty, or why these dtypes are not supported.
std::string matmul_why_not(const MatmulProblem&);
// Calls f(Type<T>, Type<Y>) for the dtypes of a and y, which matmul_why_not() has accepted.
template <class F>
void with_matmul_types(const MatmulProblem& p, F&& f) {
  with_product_types(p.a.dtype, p.y.dtype, std::forward<F>(f));
}
double matmul_bytes(const MatmulProblem&);  // repeated elements count once
double matmul_flop(const MatmulProblem&);

}  // namespace minidnn
