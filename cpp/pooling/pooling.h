// SPDX-License-Identifier: Apache-2.0
// Pooling forward and backward: the public functions, their checks and their problem. Maths: pooling_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

template <>
struct Family<PoolingProblem> {
  using Args = PoolingArgs;
  static constexpr const char* name = "pooling";
  static std::string text(const PoolingProblem&);
  static Args scratch(const PoolingProblem&, Scratch&);
  static const Engines<PoolingProblem>& cpu_engines();
  static const Engines<PoolingProblem>& cuda_engines();
};

std::string name(PoolingMode);                                             // "avg_exclude_padding"
PoolingMode pooling_mode_from(const std::string& name, const char* call);  // ShapeError lists the modes

struct PoolingAttributes {
  std::vector<int64_t> window;
  PoolingMode mode = PoolingMode::max;
  std::optional<std::vector<int64_t>> stride{};  // empty: equal to the window
  std::vector<Sides> padding{{0, 0}};
  std::vector<int64_t> dilation{1};
  bool ceil_mode = false;
  int64_t norm = 2;  // the exponent of lp
  // Not empty: y's spatial sizes for adaptive pooling, whose windows are as even as possible. Empty: windows as above.
  std::vector<int64_t> size{};
};

// x is [N, C, spatial...] with 3 to 5 dimensions.
Tensor pool_forward(const Tensor& x, const PoolingAttributes&, const Call& call);
// Also returns the index of each maximum in its plane of x, in row-major order: int32 or int64; -1 for windows of
// padding alone.
std::pair<Tensor, Tensor> pool_forward_with_indices(const Tensor& x, const PoolingAttributes&, DType indices,
                                                    const Call& call);
// Only lp reads y = pool_forward(x). Without `indices`, the maxima are searched again in x.
Tensor pool_backward(const Tensor& dy, const Tensor& x, const Tensor& y, const PoolingAttributes&, const Call& call,
                     const std::optional<Tensor>& indices = {});

// Bytes and flop for estimates, shared by the engines of both devices.
double pooling_bytes(const PoolingProblem&);
double pooling_flop(const PoolingProblem&);
// The problem with three spatial dimensions; missing ones are added in front.
PoolingProblem padded_in_front(const PoolingProblem&);

}  // namespace minidnn
