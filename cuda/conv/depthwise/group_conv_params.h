// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in nchw.cu and nhwc.cu: convolutions with few channels in a group. y = x * w and dx =
// dy * w are the same gather. In each spatial dimension
//   out[o] = sum over r of w[r] in[(o * stride - pad + r * step) / up],  where that is an index of in
// Forward has up = 1. The gradient by x has stride = 1, up = the convolution's stride, and reads the window backwards.
// dw sums products of in = x and out = dy. Offsets within a plane and within w are 32 bits. Std-free.
#pragma once
#include "cpp/conv/conv_math.h"
#include "cpp/core/fast_divmod.h"

namespace minidnn {

// The positions first, first + step, ... in a dimension upsampled by `up`. index(i) returns the element at the i-th
// position, or -1 if the position is outside the dimension or between two elements.
struct StridedIndex {
  int32_t first, step, up, size;

  MINIDNN_HD int32_t index(int32_t i) const {
    int32_t position = first + i * step;
    if (up != 1) {
      const int32_t element = position / up;
      if (element * up != position) return -1;
      position = element;
    }
    return uint32_t(position) < uint32_t(size) ? position : -1;
  }
};

struct GroupConvDim {
  int32_t in = 1, out = 1, taps = 1;  // sizes; taps of the window
  int32_t stride = 1, pad = 0, step = 1, up = 1;
  // The windows of outputs o and o + spread start `hop` steps apart, so they read the same inputs in part. The outputs
  // o, o + spread, o + 2 spread ... form a phase. A tile holds `tile` outputs of one phase.
  int32_t spread = 1, hop = 1, phases = 1, tile = 1;

  MINIDNN_HD int32_t tiles() const { return phases * ceil_div(ceil_div(out, spread), tile); }
  // The first output of tile number `i`.
  MINIDNN_HD int32_t first(int32_t i) const {
    if (phases == 1) return i * tile * spread;
    const int32_t of_phase = i / phases;  // number of the tile among those of its phase
    return i - of_phase * phases + of_phase * tile * spread;
  }
  // The number of positions of `in` that a tile reads.
  MINIDNN_HD int32_t in_tile() const { return (tile - 1) * hop + taps; }
  // The positions of `in` that the tile from output o on reads, and the outputs that it computes.
  MINIDNN_HD StridedIndex in_line(int32_t o) const { return {o * stride - pad, step, up, in}; }
  MINIDNN_HD StridedIndex out_line(int32_t o) const { return {o, spread, 1, out}; }
};

// Strides of a tensor, in elements.
struct GroupConvStrides {
  int64_t image = 0, channel = 0, depth = 0;
  int32_t row = 0, column = 0;
};

struct GroupConv {
  GroupConvDim depth, height, width;                      // a tile has one depth
  int32_t groups = 1, in_channels = 1, out_channels = 1;  // in_channels and out_channels are those of a group
  GroupConvStrides in, out, residual;
  int32_t w_origin = 0, w_group = 0, w_out = 0, w_in = 0, w_tap[3]{};
  int32_t has_bias = 0, has_residual = 0;
  int32_t wide = 0;  // whether out and residual are float32 although `in` has 16 bits
  int64_t bias_stride = 0;
  Activation activation{};

  MINIDNN_HD int32_t taps() const { return depth.taps * height.taps * width.taps; }
};

// What differs from call to call. The operands have the type that is the kernel's template argument.
template <class T> struct GroupConvOperands {
  const T *in, *w, *bias;
  const void* residual;
  void* out;
};

// A tile is a rectangle of outputs in one plane. The index of a tile has the digits image, depth, tile of the height,
// tile of the width; the last one is the fastest.
struct GroupConvTiles {
  FastDivmod depth, height, width;
  uint32_t count = 0;
  // The channels are divided into channel tiles; for dw, all elements of w are. A block of threads computes one channel
  // tile. Its tiles are i, i + splits, i + 2 splits ..., where i < splits is a digit of the block's index.
  FastDivmod channel_tiles;
  uint32_t splits = 0;
};
// The first output of a tile.
struct GroupConvTile {
  uint32_t image;
  int32_t depth, row, column;

  MINIDNN_HD GroupConvTile(const GroupConv& p, const GroupConvTiles& tiles, uint32_t index) {
    column = p.width.first(tiles.width.divmod(index));
    row = p.height.first(tiles.height.divmod(index));
    depth = tiles.depth.divmod(index);
    image = index;
  }
  MINIDNN_HD int64_t offset(const GroupConvStrides& s) const {
    return image * s.image + depth * s.depth + row * int64_t(s.row) + column * int64_t(s.column);
  }
};

}  // namespace minidnn
