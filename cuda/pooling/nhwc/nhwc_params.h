// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.pooling.nhwc.
#pragma once
#include "cuda/pooling/window_params.h"

namespace minidnn::cuda::pooling {

// Flat: with nested structs, the compiler orders the instructions of the kernels differently.
struct NhwcParams {
  Windows h, w;
  int64_t images;
  // Strides in elements; those of y are also those of dy.
  int64_t x_image, x_line, x_column, y_image, y_line, y_column, dx_image, dx_line, dx_column;
  int64_t indices_image, indices_line, indices_column;
  int32_t vectors;  // vectors of channels, 16 bytes each
  int32_t index_bytes, exclude_padding;
  // 1: the size of the windows is unknown to the compiler, and a thread takes kDownOf of them below each other.
  int32_t several_windows;
  // Items per image: what a thread (for strips: a warp) computes alone. Teams per block: they divide a window.
  int32_t items, teams;
  FastDivmod by_vectors, by_words, by_channels, by_columns;  // split the number of an item
  // Backward, a block's tile of dx and of the windows over it; or the lines of a strip.
  int32_t tile_vectors, tile_lines, tile_columns, window_lines, window_columns;
  int32_t scatter;                               // 1: windows add to dx; 0: each dx reads the windows over it
  int32_t phases_down, phases_across;            // windows this far from each other do not overlap
  int32_t dy_at, keys_at;                        // offsets in shared memory, after dx
  FastDivmod by_vector_groups, by_tiles_across;  // split the number of a block
  FastDivmod by_tile_vectors, by_tile_channels, by_window_columns, by_phase_columns, by_result_columns;
  FastDivmod by_x_columns;  // splits a given index
  FastDivmod by_tile_columns;
  float mean_factor;  // each element's factor in a mean if all windows divide by the same number, else 0
};

constexpr int kNhwcThreads = 256;  // per block

// Windows, or elements of dx, below each other that a thread takes: the registers hold this many maxima and their
// indices.
MINIDNN_HD constexpr int down_of(int lanes) { return lanes == 4 ? 4 : 2; }
constexpr int kStaticDown = 4;  // the same for windows of static size
// Width in columns of a thread's tile of words, for windows of static size. At stride 2, neighbouring windows share
// little.
MINIDNN_HD constexpr int across_of(int stride) { return stride > 1 ? 1 : 2; }
// Whether forward computes tiles of words rather than vectors: vectors would need too many registers for sums, and
// large windows share much.
MINIDNN_HD constexpr bool takes_words(bool is_max, int window) { return !is_max || window > 3; }

constexpr int kStripThreads = 128;  // per block
// Width of a strip of dx, in steps of the windows.
MINIDNN_HD constexpr int strip_steps(int stride) { return stride > 1 ? 4 : 8; }
constexpr int kMostStripLines = 1024;  // the numbers of elements have 16 bits
// Lines of dx whose sums are in shared memory at a time; a power of two.
MINIDNN_HD constexpr int lines_of_sums(int window, int stride) { return window == stride ? 2 : window > 4 ? 8 : 4; }
// Blocks per SM, as the registers allow; and, for strip_stages(), lines of windows whose data is in flight or has
// arrived.
MINIDNN_HD constexpr int strip_blocks(int window, int stride, int item_bytes, bool given) {
  return given || stride > 1 ? 4 : (window > 4 ? 3 : 4) - (item_bytes > 2 ? 1 : 0);
}
MINIDNN_HD constexpr int strip_stages(int window, int item_bytes, bool given) {
  return given || (item_bytes > 2 && window < 5) ? 3 : 4;
}

// Layout of shared memory for gradients of maxima by strips: the sums of dx, then the stages of each warp. A stage
// holds x line by line (if the kernel finds the maxima), then dy, then the indices; 32 channels of each.
struct StripLayout {
  int dy_at = 0, indices_at = 0;  // in a stage
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
