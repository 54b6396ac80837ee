// SPDX-License-Identifier: Apache-2.0
// A dense batch norm as cuda.norm.split cuts it, for host and kernels: planes [images][channels][plane], each channel's
// vectors counted over all images, or columns [rows][channels]. cuda.norm.groups cuts each sample for itself: its planes
// are channels of one image, its columns those of `samples` tensors.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kNormThreads = 256;
constexpr int kNormBatch = 8;  // rows of columns in flight a thread; backward half of them, of two tensors
// Blocks that join partial results: of few channels, for columns leave a thousand chunks; or a lane a channel.
constexpr int kFinishThreads = 512, kFinishChannels = 8;
constexpr int kNormFinishWarps = 16, kNormFinishThreads = 32 * kNormFinishWarps, kNormFinishChannels = 32;

struct NormSplit {
  int64_t channels = 0, members = 0;  // members: elements of a statistic
  int64_t samples = 1;
  int64_t parameters = 0;  // channels of a sample
  uint32_t tiles = 1;      // of columns
  FastDivmod by_tiles;
  FastDivmod by_group{1};          // channels, of all samples, that share a statistic; batch norm: see split_of()
  int64_t plane = 1;               // elements of a plane; 1: columns
  uint32_t items = 0;              // of a channel: vectors, or rows
  uint32_t chunk = 0, chunks = 0;  // items that a block takes; blocks of a channel, or of a tile of columns
  FastDivmod by_chunks, by_plane;  // by_plane: vectors of a plane
  // Columns: a block is `rows` by `width` threads, a vector of channels each; `width` of `vectors` in a row.
  FastDivmod by_width;
  uint32_t width = 0, rows = 0, vectors = 0;
};

// cuda.norm.resident: a chunk is what one block of a cluster holds of its channels, a plane's or a tile's.
struct NormResident {
  NormSplit split;
  uint32_t statistics = 1;     // of a cluster
  uint32_t held = 0;           // vectors of a tensor in a block
  uint32_t portion = 0;        // of a thread's vectors, which it waits for at a time
  uint32_t within_warps = 0;   // 1: rows of threads first join within their warp
  uint32_t meeting_bytes = 0;  // of shared memory, before what is held
};
constexpr int kNormPortions = 4, kNormHeldBatch = 4;  // portions of a thread's vectors; of those, as many at a time
// Of a block at most, and of an SM: what else than a float's moments is summed takes more than 64 registers.
MINIDNN_HD constexpr int resident_threads(bool backward, bool columns) { return backward || columns ? 512 : 1024; }

// What a channel's elements have in common: y = (x - mean) factor + offset;  dx = dy factor - offset - (x - mean) slope.
struct alignas(16) NormLine {
  float mean, factor, offset, slope;
};

}  // namespace minidnn
