// SPDX-License-Identifier: Apache-2.0
// Matrix products: the public function, its checks, and the type of its problem (shapes, strides, dtypes, options). The
// arithmetic is in matmul_math.h.
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
  bool transpose_a = false, transpose_b = false;  // whether the last two dimensions of a and of b are exchanged
  double alpha = 1, beta = 0;
  // c is broadcast to y. It is not read if beta is 0. If the caller passes no c and beta is not 0, `out` is read as c.
  std::optional<Tensor> c;
  std::optional<Tensor> bias;  // the bias [N], which is added to each row
  Activation activation = Activation::identity;
};

// Returns activation(alpha * op(a) @ op(b) + beta * c + bias) for op(a) [..., M, K] and op(b) [..., K, N], where op()
// exchanges the last two dimensions if the options say so. Batch dimensions broadcast. The result is row-major if the
// caller passes no `out`. `out` may be the same tensor as c. If a and b are 16-bit, `out` may be float32, and c must
// then be float32, too.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions&, const Call& call);

// For engines. Returns why the dtypes of a problem are not supported. Empty if they are supported.
std::string matmul_why_not(const MatmulProblem&);
// Calls f(Type<T>, Type<Y>), where T is the C++ type of a and Y that of y. matmul_why_not() must have accepted the
// dtypes.
template <class F>
void with_matmul_types(const MatmulProblem& p, F&& f) {
  with_product_types(p.a.dtype, p.y.dtype, std::forward<F>(f));
}
double matmul_bytes(const MatmulProblem&);  // bytes that a product moves; elements repeated by a broadcast count once
double matmul_flop(const MatmulProblem&);

}  // namespace minidnn
