// SPDX-License-Identifier: Apache-2.0
// Timing one plan for find(), and the memory it is timed on.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "cpp/core/handle.h"

namespace minidnn {

// Median time of one run in microseconds: warmed up, then sampled for at most about 50 ms, `before` each of them (on a
// GPU that is to leave nothing in its L2, and to give the host time to enqueue the run). Waits for the stream.
double median_us(const Handle&, const std::function<void()>& before, const std::function<void()>& run);

// Tensors that live until the Scratch does, filled with small values: neither zeros, which run faster than data, nor
// NaN.
class Scratch {
 public:
  Scratch(Place place, Stream stream) : place_(place), stream_(stream) {}
  void* tensor(const TensorDesc&);  // memory for everything that the strides reach; null if there are no elements
  // Null for a tensor that the problem does not have, whose description has no dimensions.
  void* optional(const TensorDesc& d) { return d.rank ? tensor(d) : nullptr; }
  std::shared_ptr<Storage> bytes(size_t);

 private:
  Place place_;
  Stream stream_;
  std::vector<std::shared_ptr<Storage>> kept_;
};

}  // namespace minidnn
