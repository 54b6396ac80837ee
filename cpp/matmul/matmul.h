// SPDX-License-Identifier: Apache-2.0
// Matrix products: the public function, and functions for engines. MatmulProblem (shapes, strides, dtypes, options) and
// the arithmetic are in matmul_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/matmul/matmul_math.h"

namespace minidnn {

template <>
struct Family<MatmulProblem> {
  using Args = MatmulArgs;
  static constexpr const char* name = "matmul";
  static std::string text(const MatmulProblem&);
  static void ports(const MatmulProblem&, Args&, Ports&);
  static const Engines<MatmulProblem>& cpu_engines();
  static const Engines<MatmulProblem>& cuda_engines();
};

struct MatmulOptions {
  // True if the last two dimensions of a (or of b) are exchanged.
  bool transpose_a = false, transpose_b = false;
  double alpha = 1, beta = 0;
  // The matrix c, which is broadcast to the shape of y. It is not read if beta is 0. If beta is not 0 and the caller
  // passes no c, `out` is read as c.
  std::optional<Tensor> c;
  // The bias [N], which is added to each row of the product.
  std::optional<Tensor> bias;
  Activation activation = Activation::identity;
};

// Computes a matrix product. Returns activation(alpha * op(a) @ op(b) + beta * c + bias), where op(a) is [..., M, K]
// and op(b) is [..., K, N]. op() exchanges the last two dimensions if the options say so. Batch dimensions broadcast.
// If the caller passes no `out`, the result is row-major. `out` may be the same tensor as c. If a and b are 16-bit,
// `out` may be float32, and c must then be float32, too.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions&, const Call& call);

// For engines. Returns the reason why the dtypes of a problem are not supported. Returns an empty string if they are
// supported.
std::string matmul_why_not(const MatmulProblem&);
// Calls f(Type<T>, Type<Y>), where T is the C++ type of a, and Y is the C++ type of y. The caller has checked with
// matmul_why_not() that the dtypes are supported.
template <class F>
void with_matmul_types(const MatmulProblem& p, F&& f) {
  with_product_types(p.a.dtype, p.y.dtype, std::forward<F>(f));
}
// Returns the bytes that a product moves. Elements that a broadcast repeats count once.
double matmul_bytes(const MatmulProblem&);
double matmul_flop(const MatmulProblem&);

}  // namespace minidnn
