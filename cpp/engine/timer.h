// SPDX-License-Identifier: Apache-2.0
// Times a plan for find(), and allocates the memory on which the plan is timed.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "cpp/core/handle.h"

namespace minidnn {

// The median time of one run in microseconds. Warm-up runs precede the samples, which take about 50 ms at most.
// `before` is called before each run. On a GPU, `before` should evict the L2 cache, and take long enough for the host
// to enqueue the run. The function waits for the stream.
double median_us(const Handle&, const std::function<void()>& before, const std::function<void()>& run);

// Allocates tensors for timing, which live as long as the Scratch object. They are filled with small values: not with
// zeros, which run faster than real data, and not with NaN.
class Scratch {
 public:
  Scratch(Place place, Stream stream) : place_(place), stream_(stream) {}
  // Allocates all memory that the strides reach. Returns null if the tensor has no elements.
  void* tensor(const TensorDesc&);
  // Returns null if the problem does not have this optional tensor. The description of the tensor then has no
  // dimensions.
  void* optional(const TensorDesc& d) { return d.rank ? tensor(d) : nullptr; }
  std::shared_ptr<Storage> bytes(size_t);

 private:
  Place place_;
  Stream stream_;
  std::vector<std::shared_ptr<Storage>> kept_;
};

}  // namespace minidnn
