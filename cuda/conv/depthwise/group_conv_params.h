// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in nchw.cu and nhwc.cu: convolutions with few channels in a group. One kernel computes y
// from in = x, and dx from in = dy. In each spatial dimension
//   out[o] = sum over r of w[r] in[(o * stride - pad + r * step) / up]
// Terms whose index is fractional or outside of `in` are zero. For y, `step` is the dilation and `up` is 1. For dx,
// `stride` is 1, `up` is the stride of the convolution, and the window is reversed. Another kernel computes dw from in
// = x and out = dy. Offsets within a plane (an image of one channel) and within w have 32 bits. This header does not
// use std.
#pragma once
#include "cpp/conv/conv_math.h"
#include "cpp/core/fast_divmod.h"

namespace minidnn {

// The positions first, first + step, first + 2 step ... in a dimension of `size` elements that is upsampled by `up`.
// index(i) returns the index of the element at the i-th position. It returns -1 if the position is outside the
// dimension or between two elements.
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
  int32_t in = 1, out = 1, taps = 1;  // sizes of `in` and out; number of taps of the window
  int32_t stride = 1, pad = 0, step = 1, up = 1;
  // The windows of outputs o and o + spread start `hop` steps apart, so they share inputs. The outputs o, o + spread,
  // o + 2 spread ... are called a phase. A tile has up to `tile` outputs of one phase.
  int32_t spread = 1, hop = 1, phases = 1, tile = 1;

  MINIDNN_HD int32_t tiles() const { return phases * ceil_div(ceil_div(out, spread), tile); }
  // Returns the first output of tile number `i`.
  MINIDNN_HD int32_t first(int32_t i) const {
    if (phases == 1) return i * tile * spread;
    const int32_t of_phase = i / phases;  // index of the tile within its phase
    return i - of_phase * phases + of_phase * tile * spread;
  }
  // Returns the number of positions of `in` that a tile reads.
  MINIDNN_HD int32_t in_tile() const { return (tile - 1) * hop + taps; }
  // For the tile whose first output is o, in_line(o) returns the positions of `in` that the tile reads, and out_line(o)
  // returns the outputs of the tile.
  MINIDNN_HD StridedIndex in_line(int32_t o) const { return {o * stride - pad, step, up, in}; }
  MINIDNN_HD StridedIndex out_line(int32_t o) const { return {o, spread, 1, out}; }
};

// Strides of a tensor, in elements.
struct GroupConvStrides {
  int64_t image = 0, channel = 0, depth = 0;
  int32_t row = 0, column = 0;
};

struct GroupConv {
  // A tile has one position along the depth.
  GroupConvDim depth, height, width;
  int32_t groups = 1, in_channels = 1, out_channels = 1;  // in_channels, out_channels: channels of a group
  GroupConvStrides in, out, residual;
  int32_t w_origin = 0, w_group = 0, w_out = 0, w_in = 0, w_tap[3]{};
  int32_t has_bias = 0, has_residual = 0;
  int32_t wide = 0;  // 1 if out and residual are float32 and `in` is float16 or bfloat16, else 0
  int64_t bias_stride = 0;
  Activation activation{};

  MINIDNN_HD int32_t taps() const { return depth.taps * height.taps * width.taps; }
};

// The arguments of y and dx that differ between the calls of a plan. T is the type of `in`, w and bias.
template <class T> struct GroupConvOperands {
  const T *in, *w, *bias;
  const void* residual;
  void* out;
};

// A tile is a rectangle of outputs in one plane (one channel of one image). The index of a tile is composed of, from
// slowest to fastest: image, depth, tile along the height, tile along the width.
struct GroupConvTiles {
  FastDivmod depth, height, width;
  uint32_t count = 0;
  // The work is divided in two ways. Each channel tile has some of the channels; for dw, some of the elements of w.
  // Each split has some of the `count` tiles: split i has the tiles i, i + splits, i + 2 splits ... A block of threads
  // computes one channel tile for one split.
  FastDivmod channel_tiles;
  uint32_t splits = 0;
};
// The coordinates of the first output of a tile.
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
