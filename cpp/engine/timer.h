// SPDX-License-Identifier: Apache-2.0
// Times a plan for find(), and allocates the memory on which the plan is timed.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "cpp/core/handle.h"

namespace minidnn {

// Returns the median time of one call of run() in microseconds. Warm-up calls precede the measured calls, which take
// about 50 ms at most. `before` is called before each call of run(). On a GPU, `before` should evict the L2 cache, and
// take long enough for the host to enqueue run(). median_us() waits for the stream.
double median_us(const Handle&, const std::function<void()>& before, const std::function<void()>& run);

// Allocates tensors for timing, which exist as long as the Scratch object. They are filled with small values. Zeros
// would run faster than real data, and NaN is avoided, too.
class Scratch {
 public:
  Scratch(Place place, Stream stream) : place_(place), stream_(stream) {}
  // Allocates all memory that the strides of the tensor reach. Returns null if the tensor has no elements.
  void* tensor(const TensorDesc&);
  // A contiguous tensor of int32 or int64 with these elements.
  const void* integers(const TensorDesc&, const std::function<int64_t(int64_t)>& element);
  std::shared_ptr<Storage> bytes(size_t);

 private:
  Place place_;
  Stream stream_;
  std::vector<std::shared_ptr<Storage>> kept_;
};

}  // namespace minidnn
