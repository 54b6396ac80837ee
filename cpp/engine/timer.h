// SPDX-License-Identifier: Apache-2.0
// Times a plan for find(), and provides the memory on which it is timed.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "cpp/core/handle.h"

namespace minidnn {

// The median time of one run in microseconds: warm-up runs, then samples for about 50 ms at most. `before` is called
// before each run; on a GPU it should evict the L2 cache and take long enough for the host to enqueue the run. Waits
// for the stream.
double median_us(const Handle&, const std::function<void()>& before, const std::function<void()>& run);

// Allocates tensors that live as long as the Scratch. They are filled with small values: not with zeros, which run
// faster than real data, and not with NaN.
class Scratch {
 public:
  Scratch(Place place, Stream stream) : place_(place), stream_(stream) {}
  void* tensor(const TensorDesc&);  // covers everything that the strides reach; null if there are no elements
  // Null if the problem does not have this tensor; its description then has no dimensions.
  void* optional(const TensorDesc& d) { return d.rank ? tensor(d) : nullptr; }
  std::shared_ptr<Storage> bytes(size_t);

 private:
  Place place_;
  Stream stream_;
  std::vector<std::shared_ptr<Storage>> kept_;
};

}  // namespace minidnn
