// SPDX-License-Identifier: Apache-2.0
// Places temporary tensors in one block of memory, the arena. Two of them share bytes if they are not in use at the same
// time.
#pragma once
#include <cstddef>
#include <vector>

namespace minidnn::graph {

// The steps during which a tensor is in use: from `first` to `last`, inclusive. A tensor with last < 0 gets no memory.
struct Lifetime {
  size_t bytes = 0;
  int first = -1, last = -1;
};

// Stores the offset of each tensor in `at`, a multiple of kArenaUnit, and returns the bytes of the arena.
constexpr size_t kArenaUnit = 512;
size_t place_in_arena(const std::vector<Lifetime>&, std::vector<size_t>& at);

}  // namespace minidnn::graph
