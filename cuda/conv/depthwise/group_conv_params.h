// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in nchw.cu, nchw_filter.cu and nhwc.cu, for convolutions with few channels in a group. One
// kernel computes y from in = x, and dx from in = dy. In each spatial dimension
//   out[o] = sum over r of w[r] in[(o * stride - pad + r * step) / up]
// Terms are zero if their index is fractional or outside of `in`. For y, `step` is the dilation and `up` is 1. For dx,
// `stride` is 1, `up` is the stride of the convolution, and the window is reversed. A second kernel computes dw from in
// = x and out = dy. Offsets within a plane (one channel of one image) and within w have 32 bits. This header does not
// use std.
#pragma once
#include "cpp/conv/conv_math.h"
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

// The positions first, first + step, first + 2 step ... in a dimension of `size` elements that are `up` positions
// apart. index(i) is the element at the i-th of these positions, or -1 if there is none.
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
  // the sizes of the input, the output and the window
  int32_t in = 1, out = 1, taps = 1;
  int32_t stride = 1, pad = 0, step = 1, up = 1;
  // With a dilation, adjacent outputs may share no inputs. At dilation 2 and stride 1, for example, outputs 0, 2, 4 ...
  // share inputs; they are one phase, and outputs 1, 3, 5 ... are the other. `spread` is the distance of the outputs of
  // a phase (here 2). From one output of a phase to the next, the window moves by `hop` taps (here 1). A tile is up to
  // `tile` outputs of one phase.
  int32_t spread = 1, hop = 1, phases = 1, tile = 1;

  MINIDNN_HD int32_t tiles() const { return phases * ceil_div(ceil_div(out, spread), tile); }
  // Returns the first output of the i-th tile.
  MINIDNN_HD int32_t first(int32_t i) const {
    if (phases == 1) return i * tile * spread;
    // the index of the tile within its phase
    const int32_t of_phase = i / phases;
    return i - of_phase * phases + of_phase * tile * spread;
  }
  // the number of positions of the input that a tile reads
  MINIDNN_HD int32_t in_tile() const { return (tile - 1) * hop + taps; }
  // The positions of the inputs and of the outputs of a tile whose first output is `o`.
  MINIDNN_HD StridedIndex in_line(int32_t o) const { return {o * stride - pad, step, up, in}; }
  MINIDNN_HD StridedIndex out_line(int32_t o) const { return {o, spread, 1, out}; }
};

// The strides of a tensor, in elements.
struct GroupConvStrides {
  int64_t image = 0, channel = 0, depth = 0;
  int32_t row = 0, column = 0;
};

struct GroupConv {
  // A tile has one output along the depth, and several outputs along height and width.
  GroupConvDim depth, height, width;
  // in_channels and out_channels count the channels of one group.
  int32_t groups = 1, in_channels = 1, out_channels = 1;
  GroupConvStrides in, out, residual;
  int32_t w_origin = 0, w_group = 0, w_out = 0, w_in = 0, w_tap[3]{};
  int32_t has_bias = 0, has_residual = 0;
  int32_t wide = 0;  // 1 if out and residual are float32 while `in` is float16 or bfloat16; else 0
  int64_t bias_stride = 0;
  Activation activation{};

  MINIDNN_HD int32_t taps() const { return depth.taps * height.taps * width.taps; }
};

// The operands of a kernel that computes y or dx. T is the type of `in`, w and bias.
template <class T> struct GroupConvOperands {
  const T *in, *w, *bias;
  const void* residual;
  void* out;
};

// A tile is a rectangle of outputs in one plane (one channel of one image). The index of a tile counts the tiles in the
// order [image][depth][tile along the height][tile along the width].
struct GroupConvTiles {
  FastDivmod depth, height, width;
  uint32_t count = 0;
  // Split i has the tiles i, i + splits, i + 2 splits ... A channel tile is some of the channels or, for dw, some of
  // the elements of w. A block computes one channel tile in all tiles of one split.
  FastDivmod channel_tiles;
  uint32_t splits = 0;
};
// the coordinates of the first output of a tile
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
