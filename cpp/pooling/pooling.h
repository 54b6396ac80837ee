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
  std::optional<std::vector<int64_t>> stride{};  // empty: the window
  std::vector<Sides> padding{{0, 0}};
  std::vector<int64_t> dilation{1};
  bool ceil_mode = false;
  int64_t norm = 2;  // the exponent of lp
  // y's spatial sizes, of adaptive pooling, whose windows are as even as they can be; empty: windows as above.
  std::vector<int64_t> size{};
};

// x [N, C, spatial...] of 3 to 5 dimensions.
Tensor pool_forward(const Tensor& x, const PoolingAttributes&, const Call& call);
// Also where in its plane of x, counted in row-major order, each maximum is: int32 or int64, -1 for padding alone.
std::pair<Tensor, Tensor> pool_forward_with_indices(const Tensor& x, const PoolingAttributes&, DType indices,
                                                    const Call& call);
// y = pool_forward(x) is read by lp only; the maxima are found again in x, unless `indices` say where they are.
Tensor pool_backward(const Tensor& dy, const Tensor& x, const Tensor& y, const PoolingAttributes&, const Call& call,
                     const std::optional<Tensor>& indices = {});

// Bytes and flop for estimates, shared by the engines of both devices.
double pooling_bytes(const PoolingProblem&);
double pooling_flop(const PoolingProblem&);
PoolingProblem padded_in_front(
    const PoolingProblem&);                          // with three spatial dimensions, those that are missing in front
const Engine<PoolingProblem>& pooling_channels();    // pooling_cpu.cpp
const Engine<PoolingProblem>& pooling_places();      // pooling_places.cpp
const Engine<PoolingProblem>& pooling_cpu_planes();  // pooling_planes.cpp

}  // namespace minidnn
