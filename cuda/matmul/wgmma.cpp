// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.wgmma: an engine for matrix products by tensor cores of sm_90a (main loop: cuda/gemm/sm90/kernel.cu). If
// tensor maps do not support the layout of an operand, the operand is first copied to the workspace. An example is an
// operand whose rows are not a multiple of 16 bytes. For large TF32 products, b is also copied if neither operand is
// contiguous along K.
#include "cuda/matmul/wgmma.h"

namespace minidnn {
namespace cuda::matmul {

std::string Wgmma::name() const { return "cuda.matmul.wgmma"; }
std::string Wgmma::refusal(const MatmulProblem& p) const {
  if (std::string why = matmul_why_not(p); !why.empty()) return why;
  if (p.ieee) return "math='ieee' is not supported: float32 is multiplied as TF32";
  if (sizes_of(p).k == 0) return "needs K of at least 1; got 0";
  return "";
}
OperandRelayout<MatmulProblem> Wgmma::relayout(const MatmulProblem& p) const {
  OperandRelayout<MatmulProblem> r{p, {}};
  const int last = int(p.y.rank) - 1;
  // The layout of one matrix. The main loop checks the batch strides.
  auto matrix_of = [&](TensorDesc d) {
    for (int i = 0; i < last - 1; ++i) d.shape[i] = 1;
    return d;
  };
  auto copy_if_needed = [&](TensorDesc MatmulProblem::* tensor, const void* MatmulArgs::* data, int k, int other,
                            bool copied = false) {
    const TensorDesc& d = p.*tensor;
    const TensorDesc matrix = matrix_of(d);
    if (fits_tma(matrix, k) || (!copied && fits_tma(matrix, other))) return;
    std::vector<int> order;
    for (int i = 0; i < last - 1; ++i) order.push_back(i);
    const int inner =
        // The contiguous dimension of an operand's copy: k for TF32. For 16 bits, it is a dimension that is not
        // contiguous in the operand, because transposes are the fastest copies.
        d.dtype == DType::float32 || d.stride[k] != 1 ? k : other;
    order.push_back(inner == k ? other : k);
    order.push_back(inner);
    r.copy(tensor, data, tma_layout(d, order));
  };
  copy_if_needed(&MatmulProblem::a, &MatmulArgs::a, last, last - 1);
  // In TF32, the main loop transposes b if b is not contiguous along k. If y has many rows, a copy of b takes less
  // time.
  copy_if_needed(&MatmulProblem::b, &MatmulArgs::b, last - 1, last,
                 p.b.dtype == DType::float32 && p.y.shape[last - 1] >= 2048 && !fits_tma(matrix_of(r.problem.a), last));
  return r;
}
GemmArgs Wgmma::product_args(const MatmulProblem&, const MatmulArgs& a) const { return gemm_args(a); }
std::vector<KernelSpec> Wgmma::kernels() const { return sm90_kernels(false); }

}  // namespace cuda::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cuda::matmul::Wgmma>();

}  // namespace minidnn
