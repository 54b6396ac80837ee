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
  // The grid has channel_tiles * tiles.splits blocks (see GroupConvTiles). most_splits is the limit on tiles.splits.
  int64_t channel_tiles = 0, most_splits = 0;
  // The number of registers of a thread, an estimate. The exact number is known when the kernel is loaded.
  int64_t registers = 0;
  double instructions = 0;     // an estimate of the instructions that a warp issues for one tile
  bool dy_by_filters = false;  // whether nchw_filter.cu loads several filters of dy at a time
  // Empty if the kernel can run the problem. If not, a sentence that names the limit.
  std::string why_not;
};

// The template arguments of a kernel that is specialised for one window size: `columns` is the width of the window, and
// `hop` is the distance of the windows of neighbouring outputs. Zeros stand for the kernel that supports any window.
struct CompiledWindow {
  int columns = 0, hop = 0;
};
CompiledWindow choose_window(const GroupConv&, const std::vector<CompiledWindow>& compiled);

inline bool is_dw(const ConvProblem& p) { return p.direction == ConvDirection::backward_filter; }
inline int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }
// Divides `length` into as few chunks as possible, each at most `most` long. Returns the length of a chunk; only the
// last chunk may be shorter.
inline int64_t equal_chunk(int64_t length, int64_t most) { return ceil_div(length, ceil_div(length, most)); }
inline int64_t outputs_of_phase(const GroupConvDim& d) { return ceil_div(d.out, d.spread); }
inline bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

// Returns whether all strides that a kernel adds to an address are multiples of `elements`. The strides along images,
// depth and rows always count. If strided_columns is true, the stride along columns counts, too. If it is false,
// columns are contiguous, and the stride along channels counts instead.
bool steps_by(const GroupConvStrides&, int64_t elements, bool strided_columns);
// Returns whether the kernels for 3 x 3 windows support the call: y or dx in two dimensions, without dilation, at
// stride 1, and all strides multiples of four elements. steps_by() explains strided_columns.
bool is_3x3(const ConvProblem&, const GroupConv&, bool strided_columns);

// Computes the tiles and distributes them among blocks. The kernel is not loaded yet, so its number of registers is
// unknown.
void count_tiles(GroupConvTiling&, int64_t images, int64_t channel_tiles, int64_t most_splits, const Device&);
// Describes a launch of `blocks` blocks without shared memory, whose kernel does not loop over tiles. Each thread
// issues `instructions` instructions.
void set_blocks(GroupConvTiling&, int64_t blocks, int64_t threads, double instructions, int64_t registers);
// Returns the estimated time in us to issue all instructions. It takes into account that SMs are idle while the last
// blocks run, and that an SM with too few warps cannot issue an instruction in each clock.
double issue_us(const GroupConvTiling&, const Device&);
std::string too_much_smem(int64_t bytes, const Device&);

// load() loads a kernel. It then distributes the tiles among blocks again, since the kernel's number of registers is
// now known. After load(), tiles.splits is final.
struct GroupConvLaunch {
  std::shared_ptr<const Kernel> kernel;
  LaunchConfig config;
};
GroupConvLaunch load(const KernelSpec&, const ConvProblem&, GroupConvTiling&, const Device&);

}  // namespace minidnn::cuda::conv
