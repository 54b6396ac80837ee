// SPDX-License-Identifier: Apache-2.0
// What the tilings of the kernels nchw.cu, nchw_3x3.cu, nhwc.cu and nhwc_3x3.cu have in common. A tiling is a pure
// function of a problem and a device: it loads no kernel. Host only.
#pragma once
#include "cpp/conv/conv.h"
#include "cuda/conv/depthwise/group_conv_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::conv {

constexpr int64_t kIndexLimit = int64_t(1) << 31;
constexpr int64_t kMaxThreads = 256;
constexpr int64_t kWishedSmem = 74 << 10;  // bytes of shared memory of a block: three blocks then fit on an SM
constexpr int64_t kMaxPartialSums = 512;   // the most partial sums of dw that filter_reduce.cu adds up

struct GroupConvTiling {
  GroupConv p;
  GroupConvTiles tiles;
  int64_t threads = 0, smem_bytes = 0;         // threads and bytes of shared memory of a block
  int64_t channel_tiles = 0, most_splits = 0;  // the grid is channel_tiles x tiles.splits blocks; splits <= most_splits
  int64_t registers = 0;       // estimated registers of a thread; the loaded kernel has the exact number
  double instructions = 0;     // counted instructions of a warp for one tile
  bool dy_by_filters = false;  // nchw.cu copies dy several filters at a time
  std::string why_not;         // empty, or one sentence on a limit of the kernel
};

// The windows that have a specialised kernel: its template arguments kS and kHop. All other windows use the kernel with
// kS = kHop = 0.
struct CompiledWindow {
  int columns = 0, hop = 0;
};
CompiledWindow choose_window(const GroupConv&, const std::vector<CompiledWindow>& compiled);

inline bool is_dw(const ConvProblem& p) { return p.direction == ConvDirection::backward_filter; }
inline int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }
// Splits `length` into equal chunks of at most `most`; returns the length of a chunk.
inline int64_t equal_chunk(int64_t length, int64_t most) { return ceil_div(length, ceil_div(length, most)); }
inline int64_t outputs_of_phase(const GroupConvDim& d) { return ceil_div(d.out, d.spread); }
inline bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

// Whether all strides that a kernel adds to the address of the first element are multiples of `elements`. The kernel
// adds the column stride if `strided_columns`, else (columns are contiguous) the channel stride.
bool steps_by(const GroupConvStrides&, int64_t elements, bool strided_columns);
// Whether the window is 3 x 3 adjacent elements of one plane at stride 1, and all addresses are multiples of four
// elements; see steps_by() for `strided_columns`.
bool is_3x3(const ConvProblem&, const GroupConv&, bool strided_columns);

// Sets the tiles and their distribution among blocks, for a kernel whose number of registers is not known yet.
void count_tiles(GroupConvTiling&, int64_t images, int64_t channel_tiles, int64_t most_splits, const Device&);
// Describes a launch of `blocks` blocks without shared memory, whose threads issue `instructions` each. No tiles are
// distributed.
void set_blocks(GroupConvTiling&, int64_t blocks, int64_t threads, double instructions, int64_t registers);
// The time to issue all instructions. It includes idle block slots in the last round, and idle issue slots where an SM
// has too few warps.
double issue_us(const GroupConvTiling&, const Device&);
std::string too_much_smem(int64_t bytes, const Device&);

// Loads a kernel and distributes the tiles by its exact number of registers. Afterwards tiles.splits is final.
struct GroupConvLaunch {
  std::shared_ptr<const Kernel> kernel;
  LaunchConfig config;
};
GroupConvLaunch load(const KernelSpec&, const ConvProblem&, GroupConvTiling&, const Device&);

}  // namespace minidnn::cuda::conv
