// SPDX-License-Identifier: Apache-2.0
// Pooling and its gradient: the public functions, their checks, and the struct that describes a call. The formulas are
// in pooling_math.h.
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
  static void ports(const PoolingProblem&, Args&, Ports&);
  static const Engines<PoolingProblem>& cpu_engines();
  static const Engines<PoolingProblem>& cuda_engines();
};

std::string name(PoolingMode);  // Returns the name of a mode, such as "avg_exclude_padding".
// Returns the mode of the given name. If there is none, throws a ShapeError that lists the modes.
PoolingMode pooling_mode_from(const std::string& name, const char* call);

struct PoolingAttributes {
  std::vector<int64_t> window;
  PoolingMode mode = PoolingMode::max;
  std::optional<std::vector<int64_t>> stride{};  // the stride of the windows; if absent, it is the size of the window
  std::vector<Sides> padding{{0, 0}};
  std::vector<int64_t> dilation{1};
  bool ceil_mode = false;
  int64_t norm = 2;  // the exponent of lp pooling
  // If not empty, pooling is adaptive: `size` has the spatial sizes of y, and the sizes of the windows are as equal as
  // possible. If empty, the members above describe the windows.
  std::vector<int64_t> size{};
};

// Pools x and returns y. x is [N, C, spatial...] with 3 to 5 dimensions.
Tensor pool_forward(const Tensor& x, const PoolingAttributes&, const Call& call);
// Returns y and the index of each maximum, as int32 or int64. The index counts the elements of a plane of x (the
// spatial positions of one channel) in row-major order. It is -1 if the window contains only padding.
std::pair<Tensor, Tensor> pool_forward_with_indices(const Tensor& x, const PoolingAttributes&, DType indices,
                                                    const Call& call);
// Returns dx. `y` is the result of pool_forward(x). Only lp pooling reads the elements of y. If `indices` is absent,
// max pooling searches the maxima in x again.
Tensor pool_backward(const Tensor& dy, const Tensor& x, const Tensor& y, const PoolingAttributes&, const Call& call,
                     const std::optional<Tensor>& indices = {});

// The bytes and FLOP of a call. CPU and CUDA engines estimate their time from these numbers.
double pooling_bytes(const PoolingProblem&);
double pooling_flop(const PoolingProblem&);
// Returns the same call with three spatial dimensions. Missing dimensions are added in front, with size 1.
PoolingProblem padded_in_front(const PoolingProblem&);

}  // namespace minidnn
