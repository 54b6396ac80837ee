// SPDX-License-Identifier: Apache-2.0
// What the tilings of the kernels nchw.cu, nchw_3x3.cu, nhwc.cu and nhwc_3x3.cu have in common. A tiling describes how
// a kernel divides the work among blocks of threads. It depends only on the problem and the device, and is computed
// without loading a kernel. Host only.
#pragma once
#include "cpp/conv/conv.h"
#include "cuda/conv/depthwise/group_conv_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::conv {

constexpr int64_t kIndexLimit = int64_t(1) << 31;
constexpr int64_t kMaxThreads = 256;
// The preferred limit on the shared memory of a block, in bytes. With 74 KB per block, three blocks fit on an SM.
constexpr int64_t kWishedSmem = 74 << 10;
constexpr int64_t kMaxPartialSums = 512;  // the largest number of partial sums of dw that filter_reduce.cu adds up

struct GroupConvTiling {
  GroupConv p;
  GroupConvTiles tiles;
  int64_t threads = 0, smem_bytes = 0;  // the number of threads of a block, and its shared memory in bytes
  // The grid has channel_tiles * tiles.splits blocks (GroupConvTiles), with at most most_splits splits.
  int64_t channel_tiles = 0, most_splits = 0;
  // An estimate of the registers per thread. The exact number is known when the kernel is loaded.
  int64_t registers = 0;
  double instructions = 0;     // estimated instructions of a warp per tile
  bool dy_by_filters = false;  // whether nchw_filter.cu loads several filters of dy at a time
  // empty, or why the kernel cannot run the problem
  std::string why_not;
};

// The window for which a kernel is compiled: its width, and the stride `hop`. Zeros mean any window.
struct CompiledWindow {
  int columns = 0, hop = 0;
};
CompiledWindow choose_window(const GroupConv&, const std::vector<CompiledWindow>& compiled);

inline bool is_dw(const ConvProblem& p) { return p.direction == ConvDirection::backward_filter; }
// Divides `length` into as few equal chunks as possible, each at most `most` long. Returns their length.
inline int64_t equal_chunk(int64_t length, int64_t most) { return ceil_div(length, ceil_div(length, most)); }
inline int64_t outputs_of_phase(const GroupConvDim& d) { return ceil_div(d.out, d.spread); }
inline bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

// Whether all strides are multiples of `elements`, apart from that of the contiguous dimension: channels if
// strided_columns, else columns.
bool steps_by(const GroupConvStrides&, int64_t elements, bool strided_columns);
// Whether the 3 x 3 kernels support the call: y or dx in two dimensions, stride 1, no dilation, strides that are
// multiples of four (see steps_by()).
bool is_3x3(const ConvProblem&, const GroupConv&, bool strided_columns);

// Computes the tiles and distributes them among blocks, before the kernel is loaded.
void count_tiles(GroupConvTiling&, int64_t images, int64_t channel_tiles, int64_t most_splits, const Device&);
// Describes a kernel without shared memory and without a loop over tiles.
void set_blocks(GroupConvTiling&, int64_t blocks, int64_t threads, double instructions, int64_t registers);
// The estimated time in us to issue all instructions, including idle SMs at the end and SMs with too few warps.
double issue_us(const GroupConvTiling&, const Device&);
std::string too_much_smem(int64_t bytes, const Device&);

// load() loads the kernel, whose exact number of registers is then known, and distributes the tiles again. tiles.splits
// is final only after load().
struct GroupConvLaunch {
  std::shared_ptr<const Kernel> kernel;
  LaunchConfig config;
};
GroupConvLaunch load(const KernelSpec&, const ConvProblem&, GroupConvTiling&, const Device&);

}  // namespace minidnn::cuda::conv
