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

// Offsets in an arena are multiples of kArenaUnit. in_arena_units() rounds bytes up to such a multiple.
constexpr size_t kArenaUnit = 512;
constexpr size_t in_arena_units(size_t bytes) { return (bytes + kArenaUnit - 1) / kArenaUnit * kArenaUnit; }

// Stores the offset of each tensor in `at`, and returns the bytes of the arena.
size_t place_in_arena(const std::vector<Lifetime>&, std::vector<size_t>& at);

}  // namespace minidnn::graph
