// SPDX-License-Identifier: Apache-2.0
// cuda.conv.wgmma: an engine that computes an implicit GEMM by the tensor-core main loop of sm_90a
// (cuda/gemm/sm90/kernel.cu). im2col tensor maps load the pixels, so no im2col matrix is written to memory. If TMA
// cannot read an operand in the caller's layout, the engine first copies it. x and dy are copied to NHWC. Filters are
// copied to a layout that wgmma reads. Results are written in the caller's layout.
#include "cuda/conv/implicit_gemm/wgmma.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cuda::conv {
namespace {

// The order of dimensions: outer, spatial, inner.
std::vector<int> order_of(const TensorDesc& d, int outer, int inner) {
  std::vector<int> order{outer};
  for (int i = 2; i < d.rank; ++i) order.push_back(i);
  order.push_back(inner);
  return order;
}

}  // namespace

struct Wgmma final : RelayoutEngine<ConvProblem> {
  std::string name() const override { return "cuda.conv.wgmma"; }
  std::string refusal(const ConvProblem& p) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (p.ieee) return "math='ieee' is not supported: float32 is multiplied as TF32";
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "x, w or y is empty";
    return "";
  }
  OperandRelayout<ConvProblem> relayout(const ConvProblem& p) const override {
    OperandRelayout<ConvProblem> r{p, {}};
    auto along = [&](TensorDesc ConvProblem::* tensor, const void* ConvArgs::* data, int outer, int inner) {
      if (!fits_tma(p.*tensor, inner)) r.copy(tensor, data, tma_layout(p.*tensor, order_of(p.*tensor, outer, inner)));
    };
    // backward_data: whether filters are the contiguous dimension of w, instead of channels
    bool by_filter = false;
    if (p.direction == ConvDirection::backward_data) {
      const int64_t channels = p.x.shape[1], tiles_of_128 = ceil_div(channels, int64_t(128));
      const double flop = 2.0 * double(p.y.numel()) * double(p.w.numel() / p.w.shape[0]);
      if (operand_dtype(p) == DType::float32) by_filter = channels > 1 && p.x.stride[1] != 1;
      // Contiguous filters allow tiles of 160 channels, if tiles of 128 would waste over 15 % of the work.
      else by_filter = channels % 160 == 0 && double(tiles_of_128 * 128) > 1.15 * double(channels) && flop > 4e10;
    }
    if (p.direction != ConvDirection::backward_data) along(&ConvProblem::x, &ConvArgs::x, 0, 1);
    if (p.direction != ConvDirection::forward) along(&ConvProblem::y, &ConvArgs::dy, 0, 1);
    if (p.direction != ConvDirection::backward_filter) along(&ConvProblem::w, &ConvArgs::w, by_filter, !by_filter);
    return r;
  }
  GemmArgs product_args(const ConvProblem& p, const ConvArgs& a) const override { return gemm_args(p, a); }
  std::vector<KernelSpec> kernels() const override { return sm90_kernels(true); }
};

const RelayoutEngine<ConvProblem>& wgmma() { return static_cast<const Wgmma&>(engine_object<ConvProblem, Wgmma>()); }

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Wgmma>();

}  // namespace minidnn
