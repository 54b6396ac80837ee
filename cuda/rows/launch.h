// SPDX-License-Identifier: Apache-2.0
// Launches and time estimates that softmax and loss share. Only host code includes this file.
#pragma once
#include <bit>

#include "cpp/engine/roofline.h"
#include "cuda/rows/rows_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn::rows {

// Returns the launch of a kernel whose threads keep rows in registers (see rows.cuh).
inline cuda::LaunchConfig launch_config(const Shape& s, int64_t blocks) {
  cuda::LaunchConfig config;
  config.block = {unsigned(block_of(s))};
  config.grid = {unsigned(blocks)};
  if (s.clustered) config.cluster = {unsigned(s.chunks)};
  return config;
}

// The work of a kernel that takes any axis and strides. It is the argument of the time estimates in this file, which
// are guesses.
struct AnyStrides {
  int64_t rows, cols, item_bytes;
  bool innermost;  // true if the elements of a row are contiguous
  double flop, bytes;
};

// Returns the number of threads for a row in a kernel with one block per row. Each thread has about four elements.
inline int64_t threads_of_row(int64_t cols) {
  return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div<int64_t>(cols, 4)))), 32, 1024);
}
inline cuda::LaunchConfig block_per_row_launch(int64_t rows, int64_t cols, const Device& d) {
  const int64_t threads = threads_of_row(cols), resident = 2048 / threads * d.sm_count;
  cuda::LaunchConfig config;
  config.block = {unsigned(threads)};
  config.grid = {unsigned(min_of(rows, 4 * resident))};
  return config;
}
// Returns the estimated time of a kernel with one block per row. The barriers of a row take about a microsecond. If the
// elements of a row are not contiguous, each element fetches a 32-byte sector, and about half of it is used by other
// rows.
inline double block_per_row_us(const AnyStrides& w, const Device& d) {
  const int64_t threads = threads_of_row(w.cols);
  const double at_once = std::min<double>(double(std::max<int64_t>(w.rows, 1)), 2048.0 / double(threads) * d.sm_count);
  const double filled = std::min(1.0, at_once * double(threads) / (1024.0 * d.sm_count));
  const double useful = w.innermost ? 0.5 : 0.5 * double(w.item_bytes) / 16;
  return roofline_us(w.flop, w.bytes, d, useful * filled) + double(w.rows) / at_once;
}

}  // namespace minidnn::rows
