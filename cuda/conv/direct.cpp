// SPDX-License-Identifier: Apache-2.0
// cuda.conv.direct: an engine that computes a convolution by its definition, for any strides (direct.cu). There is one
// kernel for y and dx, one for dw, and one for db.
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_object.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::conv {
namespace {

KernelSpec spec(ConvDirection direction, DType t, DType y) {
  std::string types = cuda_name(t);
  if (direction != ConvDirection::backward_bias) types += ", " + cuda_name(y);
  const char* kernel = direction == ConvDirection::backward_filter ? "conv_direct_filter"
                       : direction == ConvDirection::backward_bias ? "conv_direct_bias"
                                                                   : "conv_direct";
  return {"cuda/conv/direct.cu", cat("minidnn::", kernel, "<", types, ">")};
}

// Each element of y or dx is computed by a thread of its own, and each element of dw or db by a block of threads.
cuda::LaunchConfig launch_config(ConvDirection direction, const ConvGeometry& g, const Device& d) {
  if (direction == ConvDirection::forward || direction == ConvDirection::backward_data)
    return cuda::elementwise_launch(conv_out_numel(g), d);
  int64_t sums = direction == ConvDirection::backward_filter ? conv_weights(g) : g.groups * g.y.channels;
  cuda::LaunchConfig config;
  config.block = {256};
  config.grid = {unsigned(min_of(sums, int64_t(8) * d.sm_count))};
  return config;
}

}  // namespace

struct Direct final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.direct"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem&, const Device&) const override { return ""; }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    // The estimate assumes 0.03 of the peak rates, because each multiply-add needs two loads and the arithmetic of
    // their addresses.
    return roofline_us(conv_flop(p), conv_bytes(p), d, 0.03);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    auto kernel = cuda::load_kernel(spec(p.direction, operand_dtype(p), out_dtype(p)), d.place.index);
    ConvGeometry g = conv_geometry(p);
    return make_plan<ConvProblem>(
        [kernel, g, config = launch_config(p.direction, g, d)](const ConvArgs& a, void*, Stream stream) {
          cuda::launch(*kernel, config, stream, g, a);
        });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes) {
      for (auto d : {ConvDirection::forward, ConvDirection::backward_filter}) {
        all.push_back(spec(d, t, t));
        if (itemsize(t) == 2) all.push_back(spec(d, t, DType::float32));
      }
      all.push_back(spec(ConvDirection::backward_bias, t, t));
    }
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Direct>();

}  // namespace minidnn
