// SPDX-License-Identifier: Apache-2.0
// Kernels that reduce contiguous rows on chip: how rows are distributed to threads. The device side is rows.cuh.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn::rows {

// A row is divided into vectors of 16 aligned bytes; its first and last vector may contain elements of the neighbouring
// rows. A chunk of a row is what one block holds: `threads` times the vectors that a thread keeps in registers. If a
// row has several chunks, either the blocks of a cluster hold it together (clustered), or a launch processes the chunks
// separately.
struct Shape {
  int64_t rows = 0;
  int32_t cols = 0;
  int32_t threads = 32;  // threads of a chunk: 1, 2, 4 ... 64 (a block has several chunks), or a whole block
  int32_t chunks = 1;    // of a row
  int32_t clustered = 0;
};

// Four blocks fit on an SM at 64 registers a thread: some load while others compute.
constexpr int kBlock = 256;            // threads
constexpr int kLargestBlock = 1024;    // if a cluster of smaller blocks can not hold a row
constexpr int kMaxCluster = 16;        // see largest_cluster() in cuda/runtime/launch.h
constexpr int kPortableCluster = 8;    // every GPU that has clusters allows this size
constexpr int kMaxSharedThreads = 64;  // max_cluster threads of a row that shares its block with other rows

// The max_cluster vectors that a row of `cols` elements can overlap, at `width` elements a vector.
MINIDNN_HD int64_t vectors_of(int64_t cols, int64_t width) {
  return cols % width == 0 ? cols / width : (cols + 2 * width - 2) / width;
}

// A thread keeps vectors_per_thread vectors in registers. A row that is too long for a cluster of max_cluster blocks
// (1: a GPU without clusters) is processed in separate chunks of kBlock threads.
MINIDNN_HD Shape shape_of(int64_t rows, int64_t cols, int64_t width, int64_t vectors_per_thread, int64_t max_cluster) {
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
    s.threads = wanted <= kMaxSharedThreads ? power_of_two(wanted) : warps(wanted);
    return s;
  }
  s.threads = kBlock;
  s.chunks = int32_t(ceil_div<int64_t>(wanted, kBlock));
  if (max_cluster > 1 && wanted <= max_cluster * kLargestBlock) {
    s.clustered = 1;
    s.chunks = wanted > kPortableCluster * kLargestBlock ? int32_t(max_cluster)
                                                         : min_of<int32_t>(power_of_two(s.chunks), kPortableCluster);
    s.threads = warps(ceil_div<int64_t>(wanted, s.chunks));
  } else if (wanted <= kLargestBlock) {
    s.chunks = 1;
    s.threads = warps(wanted);
  }
  return s;
}
MINIDNN_HD int32_t block_of(const Shape& s) { return s.threads <= kMaxSharedThreads ? kBlock : s.threads; }
MINIDNN_HD int64_t blocks_of(const Shape& s) { return ceil_div<int64_t>(s.rows, block_of(s) / s.threads) * s.chunks; }

}  // namespace minidnn::rows
