// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.pooling.nhwc. A work item is what a thread computes at a time, such as 4
// windows for 4 channels. For gradients of maxima with windows of compile-time size, it is a strip, which a warp
// computes: some rows of a few columns of dx. The key of a window is the index of its maximum among the elements of dx
// in the block.
#pragma once
#include "cuda/pooling/window_params.h"

namespace minidnn::cuda::pooling {

// The members are not grouped into nested structs, because the compiler would then order the instructions of the
// kernels differently.
struct NhwcParams {
  Windows h, w;
  int64_t images;
  // Strides in elements. In backward, y_image, y_line and y_column are the strides of dy.
  int64_t x_image, x_line, x_column, y_image, y_line, y_column, dx_image, dx_line, dx_column;
  int64_t indices_image, indices_line, indices_column;
  int32_t vectors;  // the number of 16-byte vectors in the channels of a position
  int32_t index_bytes, exclude_padding;
  // 1 if a thread computes kDownOf windows, one below the other; 0 for windows of compile-time size
  int32_t several_windows;
  // The work items of an image, and the teams of threads of a block that share each window.
  int32_t items, teams;
  // These divisors split the index of a work item into coordinates.
  FastDivmod by_vectors, by_words, by_channels, by_columns;
  // For backward: the size of the tile of dx of a block or, for strips, the rows of a strip (tile_lines); and the
  // maximum number of rows and columns of windows that overlap the tile.
  int32_t tile_vectors, tile_lines, tile_columns, window_lines, window_columns;
  // 1 if windows add their dy to dx. 0 if each dx reads the windows that contain it.
  int32_t scatter;
  // the smallest distances, in windows, at which two windows do not overlap
  int32_t phases_down, phases_across;
  int32_t dy_at, keys_at;  // byte offsets of dy and of the keys in shared memory
  // These divisors split the index of a block into the coordinates of its tile of dx.
  FastDivmod by_vector_groups, by_tiles_across;
  FastDivmod by_tile_vectors, by_tile_channels, by_window_columns, by_phase_columns, by_result_columns;
  FastDivmod by_x_columns;  // splits the given index of a maximum into row and column
  FastDivmod by_tile_columns;
  float mean_factor;  // for averages: 1 / divisor if all windows have the same divisor, else 0
};

constexpr int kNhwcThreads = 256;  // the number of threads in a block

// The number of windows, or of elements of dx, that a thread computes one below the other, limited by its registers.
// `lanes` is the number of elements in 16 bytes.
MINIDNN_HD constexpr int down_of(int lanes) { return lanes == 4 ? 4 : 2; }
// The number of windows of compile-time size that a thread computes one below the other.
constexpr int kStaticDown = 4;
// The width of a thread's tile, for windows of compile-time size. From stride 2 on, adjacent windows have few elements
// in common.
MINIDNN_HD constexpr int across_of(int stride) { return stride > 1 ? 1 : 2; }
// Whether a forward thread computes a tile for one 32-bit word of channels, rather than a 16-byte vector. Sums of
// vectors need too many registers, and the windows of a tile have many elements in common if windows are large.
MINIDNN_HD constexpr bool takes_words(bool is_max, int window) { return !is_max || window > 3; }

constexpr int kStripThreads = 128;  // the number of threads in a block of nhwc_max_backward
// Returns the number of columns of a strip, divided by the stride.
MINIDNN_HD constexpr int strip_steps(int stride) { return stride > 1 ? 4 : 8; }
// The maximum number of rows in a strip, because the elements of a strip have 16-bit numbers.
constexpr int kMostStripLines = 1024;
// The number of rows of dx whose sums are in shared memory at the same time. It is a power of two.
MINIDNN_HD constexpr int lines_of_sums(int window, int stride) { return window == stride ? 2 : window > 4 ? 8 : 4; }
// The number of blocks that fit the registers of an SM, and the number of stages of a warp. A stage is the buffer for
// one row of windows. `given` tells whether the indices of the maxima are given.
MINIDNN_HD constexpr int strip_blocks(int window, int stride, int item_bytes, bool given) {
  return given || stride > 1 ? 4 : (window > 4 ? 3 : 4) - (item_bytes > 2 ? 1 : 0);
}
MINIDNN_HD constexpr int strip_stages(int window, int item_bytes, bool given) {
  return given || (item_bytes > 2 && window < 5) ? 3 : 4;
}

// The layout of shared memory for gradients of maxima by strips: the sums of dx, then the stages of each warp. A stage
// is the buffer for one row of windows: x (unless indices are given), dy, and the given indices.
struct StripLayout {
  // the byte offsets of dy and of the given indices in a stage
  int dy_at = 0, indices_at = 0;
  int stage_bytes = 0, sums_bytes = 0, smem_bytes = 0;
  MINIDNN_HD constexpr StripLayout(int window, int stride, int item_bytes, int index_bytes) {
    const int windows = strip_steps(stride) + (window - 1) / stride, columns = (windows - 1) * stride + window;
    dy_at = index_bytes ? 0 : stride * columns * 32 * item_bytes;
    indices_at = dy_at + windows * 32 * item_bytes;
    stage_bytes = indices_at + windows * 32 * index_bytes;
    sums_bytes = lines_of_sums(window, stride) * 32 * kStripThreads;
    smem_bytes = sums_bytes + kStripThreads / 32 * strip_stages(window, item_bytes, index_bytes > 0) * stage_bytes;
  }
};

}  // namespace minidnn::cuda::pooling
