// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.pooling.nhwc.
#pragma once
#include "cuda/pooling/window_params.h"

namespace minidnn::cuda::pooling {

// The members are not grouped into nested structs: with these, the compiler orders the instructions of the kernels
// differently.
struct NhwcParams {
  Windows h, w;
  int64_t images;
  // Strides in elements. dy has the strides of y.
  int64_t x_image, x_line, x_column, y_image, y_line, y_column, dx_image, dx_line, dx_column;
  int64_t indices_image, indices_line, indices_column;
  int32_t vectors;  // number of vectors of channels, 16 bytes each
  int32_t index_bytes, exclude_padding;
  // 1 if the window size is unknown to the compiler and a thread computes kDownOf windows below each other, else 0.
  int32_t several_windows;
  // items: items of an image. An item is what a thread (in strips: a warp) computes. teams: teams of threads in a
  // block, which share each window.
  int32_t items, teams;
  FastDivmod by_vectors, by_words, by_channels, by_columns;  // these split the number of an item into coordinates
  // Backward: the tile of dx that a block computes, and the windows over this tile. In strips, tile_lines is the number
  // of lines of a strip.
  int32_t tile_vectors, tile_lines, tile_columns, window_lines, window_columns;
  // 1 if windows add to dx; 0 if each dx reads the windows that contain it.
  int32_t scatter;
  // Windows that are this many windows apart, down or across, do not overlap.
  int32_t phases_down, phases_across;
  int32_t dy_at, keys_at;  // offsets in shared memory, after the sums of dx
  // These split the number of a block into its tile's coordinates.
  FastDivmod by_vector_groups, by_tiles_across;
  FastDivmod by_tile_vectors, by_tile_channels, by_window_columns, by_phase_columns, by_result_columns;
  FastDivmod by_x_columns;  // splits a given index into line and column
  FastDivmod by_tile_columns;
  float mean_factor;  // 1 / divisor if all windows have the same divisor, else 0
};

constexpr int kNhwcThreads = 256;  // threads per block

// The number of windows, or of elements of dx, below each other that a thread computes. The registers hold this many
// maxima and their indices.
MINIDNN_HD constexpr int down_of(int lanes) { return lanes == 4 ? 4 : 2; }
// Number of windows below each other that a thread computes, for windows of compile-time size.
constexpr int kStaticDown = 4;
// The width in columns of a thread's tile of words, for windows of compile-time size. It is 1 from stride 2 on, where
// neighbouring windows share few elements.
MINIDNN_HD constexpr int across_of(int stride) { return stride > 1 ? 1 : 2; }
// Whether forward computes tiles of 32-bit words rather than 16-byte vectors. Words are better for sums, because sums
// of vectors need too many registers. Words are also better for large windows, because windows in a tile share many
// elements.
MINIDNN_HD constexpr bool takes_words(bool is_max, int window) { return !is_max || window > 3; }

constexpr int kStripThreads = 128;  // threads per block
// The width of a strip of dx, in units of the stride.
MINIDNN_HD constexpr int strip_steps(int stride) { return stride > 1 ? 4 : 8; }
constexpr int kMostStripLines = 1024;  // largest number of lines in a strip: element numbers have 16 bits
// The number of lines of dx whose sums are in shared memory at a time. It is a power of two.
MINIDNN_HD constexpr int lines_of_sums(int window, int stride) { return window == stride ? 2 : window > 4 ? 8 : 4; }
// strip_blocks(): blocks per SM, as the registers allow. strip_stages(): lines of windows whose data is in flight or
// has arrived. given: whether the indices of the maxima are given.
MINIDNN_HD constexpr int strip_blocks(int window, int stride, int item_bytes, bool given) {
  return given || stride > 1 ? 4 : (window > 4 ? 3 : 4) - (item_bytes > 2 ? 1 : 0);
}
MINIDNN_HD constexpr int strip_stages(int window, int item_bytes, bool given) {
  return given || (item_bytes > 2 && window < 5) ? 3 : 4;
}

// The layout of shared memory for gradients of maxima by strips: the sums of dx, then the stages of each warp. A stage
// is a buffer for one step of the loop over lines of windows. It has 32 channels of each of these: lines of x (only if
// the kernel finds the maxima), dy, and given indices.
struct StripLayout {
  int dy_at = 0, indices_at = 0;  // byte offsets in a stage
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
