// SPDX-License-Identifier: Apache-2.0
// cuda.conv.wgmma: implicit matrix products by the tensor-core main loop of sm_90a (cuda/gemm/sm90.cuh). Pixels come by
// im2col tensor maps, so nothing is lowered in memory. Where they lie otherwise, x and dy are copied to NHWC, and
// filters to where the dimension that is summed is contiguous. Results are written in their own layout.
#include "cuda/conv/engines.h"
#include "cuda/gemm/relaid.h"

namespace minidnn {
namespace {

// The dimensions with `inner` last: {outer, spatial..., inner}.
std::vector<int> order_of(const TensorDesc& d, int outer, int inner) {
  std::vector<int> order{outer};
  for (int i = 2; i < d.rank; ++i) order.push_back(i);
  order.push_back(inner);
  return order;
}

struct Wgmma final : RelaidEngine<ConvProblem> {
  std::string name() const override { return "cuda.conv.wgmma"; }
  std::string refusal(const ConvProblem& p) const override {
    if (p.direction == ConvDirection::backward_bias) return "computes products; the gradient of a bias is none";
    if (p.ieee) return "multiplies float32 as TF32, and math='ieee' forbids it";
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "needs something to sum; an operand is empty";
    return "";
  }
  Relaid<ConvProblem> relaid(const ConvProblem& p) const override {
    Relaid<ConvProblem> r{p, {}};
    auto along = [&](TensorDesc ConvProblem::* tensor, const void* ConvArgs::* data, int outer, int inner) {
      if (!in_lines(p.*tensor, inner)) r.copy(tensor, data, in_order(p.*tensor, order_of(p.*tensor, outer, inner)));
    };
    // backward_data sums over filters, which wgmma needs side by side in TF32, or channels to read into registers: those
    // fit a dx whose channels are side by side.
    bool by_filter = false;
    if (p.direction == ConvDirection::backward_data) {
      const int64_t channels = p.x.shape[1], tiles_of_128 = ceil_div(channels, int64_t(128));
      const double flop = 2.0 * double(p.y.numel()) * double(p.w.numel() / p.w.shape[0]);
      if (operand_dtype(p) == DType::float32) by_filter = channels > 1 && p.x.stride[1] != 1;
      // Tiles of 160 channels need filters side by side, too: worth a copy where those of 128 would be a sixth empty.
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

}  // namespace

const Engine<ConvProblem>& conv_wgmma() {
  static const Wgmma engine;
  return engine;
}

}  // namespace minidnn
