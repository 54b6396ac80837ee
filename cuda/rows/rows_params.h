// SPDX-License-Identifier: Apache-2.0
// How kernels distribute contiguous rows to threads, which keep the rows in registers. The device functions are in
// rows.cuh.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn::rows {

// With kBlock threads and 64 registers per thread, four blocks fit on an SM, so that some load while others compute.
constexpr int kBlock = 256;          // the number of threads in most blocks
constexpr int kLargestBlock = 1024;  // the maximum number of threads in a block, for long rows
// the maximum number of blocks in a cluster (see largest_cluster() in cuda/runtime/launch.h)
constexpr int kMaxCluster = 16;
constexpr int kPortableCluster = 8;    // the largest cluster that every GPU with clusters allows
constexpr int kMaxSharedThreads = 64;  // the maximum number of threads per row if a block has more than two rows

// A row is divided into aligned vectors of 16 bytes. A chunk is the part of a row that one block has in registers. The
// chunks of a row are processed by the blocks of a cluster (clustered = 1), or independently of each other (clustered =
// 0). For example, a row of 2^16 floats may have 8 chunks of 8192 floats.
struct Shape {
  int64_t rows = 0;
  int32_t cols = 0;
  // The number of threads per chunk: 1, 2, 4 ... 64 if a block has more than two rows, else a multiple of 32.
  int32_t threads = 32;
  int32_t teams = 8;   // the number of rows of a block
  int32_t chunks = 1;  // the number of chunks of a row
  int32_t clustered = 0;

  MINIDNN_HD void set_threads(int32_t n) {
    threads = n;
    teams = n <= kMaxSharedThreads ? kBlock / n : 1;
  }
};

// Returns the maximum number of vectors of `width` elements that a row of `cols` elements can overlap.
MINIDNN_HD int64_t vectors_of(int64_t cols, int64_t width) {
  return cols % width == 0 ? cols / width : (cols + 2 * width - 2) / width;
}

// Returns how rows of `cols` elements are distributed to threads, with vectors_per_thread vectors of `width` elements
// in the registers of each. A cluster has at most max_cluster blocks (1 without clusters), and a block at most
// largest_block threads. Longer rows are processed in chunks of kBlock threads.
MINIDNN_HD Shape shape_of(int64_t rows, int64_t cols, int64_t width, int64_t vectors_per_thread, int64_t max_cluster,
                          int64_t largest_block = kLargestBlock) {
  Shape s;
  s.rows = rows;
  s.cols = int32_t(cols);
  const int64_t vectors = vectors_of(cols, width), wanted = ceil_div(vectors, vectors_per_thread);
  auto power_of_two = [](int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return int32_t(power);
  };
  auto warps = [](int64_t n) { return int32_t(ceil_div<int64_t>(n, 32) * 32); };
  if (wanted <= kBlock) {
    s.set_threads(wanted <= kMaxSharedThreads ? power_of_two(wanted) : warps(wanted));
    return s;
  }
  s.set_threads(kBlock);
  s.chunks = int32_t(ceil_div<int64_t>(wanted, kBlock));
  if (max_cluster > 1 && wanted <= max_cluster * largest_block) {
    s.clustered = 1;
    s.chunks = wanted > kPortableCluster * largest_block ? int32_t(max_cluster)
                                                         : min_of<int32_t>(power_of_two(s.chunks), kPortableCluster);
    s.threads = warps(ceil_div<int64_t>(wanted, s.chunks));
  } else if (wanted <= largest_block) {
    s.chunks = 1;
    s.threads = warps(wanted);
  }
  return s;
}
MINIDNN_HD int32_t block_of(const Shape& s) { return s.threads * s.teams; }
MINIDNN_HD int64_t blocks_of(const Shape& s) { return ceil_div<int64_t>(s.rows, s.teams) * s.chunks; }

}  // namespace minidnn::rows
