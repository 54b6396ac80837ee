// SPDX-License-Identifier: Apache-2.0
// What the tilings of the kernels nchw.cu, nchw_3x3.cu, nhwc.cu and nhwc_3x3.cu have in common. A tiling describes how
// a kernel divides a problem. It is a pure function of the problem and the device, and loads no kernel. Host only.
#pragma once
#include "cpp/conv/conv.h"
#include "cuda/conv/depthwise/group_conv_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::conv {

constexpr int64_t kIndexLimit = int64_t(1) << 31;
constexpr int64_t kMaxThreads = 256;
// The preferred limit on shared memory of a block, in bytes. With 74 KB, three blocks fit on an SM.
constexpr int64_t kWishedSmem = 74 << 10;
constexpr int64_t kMaxPartialSums = 512;  // the largest number of partial sums of dw that filter_reduce.cu adds up

struct GroupConvTiling {
  GroupConv p;
  GroupConvTiles tiles;
  int64_t threads = 0, smem_bytes = 0;  // threads of a block, bytes of its shared memory
  // The grid has channel_tiles * tiles.splits blocks; splits is at most most_splits.
  int64_t channel_tiles = 0, most_splits = 0;
  int64_t registers = 0;       // estimated registers of a thread; the loaded kernel tells the exact number
  double instructions = 0;     // counted instructions that a warp issues for one tile
  bool dy_by_filters = false;  // whether nchw_filter.cu copies several filters of dy at a time
  std::string why_not;         // empty if the kernel can run the problem, else a sentence that names the limit
};

// A window with its own specialised kernel, which has the template arguments kS = columns and kHop = hop. All other
// windows use the kernel with kS = kHop = 0.
struct CompiledWindow {
  int columns = 0, hop = 0;
};
CompiledWindow choose_window(const GroupConv&, const std::vector<CompiledWindow>& compiled);

inline bool is_dw(const ConvProblem& p) { return p.direction == ConvDirection::backward_filter; }
inline int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }
// Divides `length` into equal chunks of at most `most` elements, and returns the length of a chunk.
inline int64_t equal_chunk(int64_t length, int64_t most) { return ceil_div(length, ceil_div(length, most)); }
inline int64_t outputs_of_phase(const GroupConvDim& d) { return ceil_div(d.out, d.spread); }
inline bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

// Returns whether all strides that a kernel adds to an address are multiples of `elements`. The strides along the
// image, depth and row always count. If strided_columns, the stride along the column counts, too; otherwise columns are
// contiguous, and the stride along the channel counts.
bool steps_by(const GroupConvStrides&, int64_t elements, bool strided_columns);
// Returns whether the problem is y or dx with a 3 x 3 window without dilation, at stride 1, in two dimensions, and all
// addresses are multiples of four elements. steps_by() explains strided_columns.
bool is_3x3(const ConvProblem&, const GroupConv&, bool strided_columns);

// Computes the tiles and distributes them among blocks, for a kernel that is not loaded yet, so its number of registers
// is unknown.
void count_tiles(GroupConvTiling&, int64_t images, int64_t channel_tiles, int64_t most_splits, const Device&);
// Describes a launch of `blocks` blocks without shared memory whose threads issue `instructions` instructions each. The
// kernel does not loop over tiles.
void set_blocks(GroupConvTiling&, int64_t blocks, int64_t threads, double instructions, int64_t registers);
// Returns the estimated time to issue all instructions. The time includes SMs that are idle in the last round of
// blocks, and clocks without an instruction where an SM has too few warps.
double issue_us(const GroupConvTiling&, const Device&);
std::string too_much_smem(int64_t bytes, const Device&);

// load() loads a kernel and distributes the tiles again, by the kernel's exact number of registers. After load(),
// tiles.splits is final.
struct GroupConvLaunch {
  std::shared_ptr<const Kernel> kernel;
  LaunchConfig config;
};
GroupConvLaunch load(const KernelSpec&, const ConvProblem&, GroupConvTiling&, const Device&);

}  // namespace minidnn::cuda::conv
