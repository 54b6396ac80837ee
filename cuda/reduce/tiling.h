// SPDX-License-Identifier: Apache-2.0
// How cuda.reduce.contiguous_axis and cuda.reduce.strided_axis divide a reduction among blocks and threads. If many
// elements are reduced to few results, the elements of each result are divided into chunks.
#pragma once
#include "cpp/reduce/reduce.h"
#include "cuda/reduce/reduce_params.h"

namespace minidnn::cuda::reduce {

constexpr int64_t kThreads = kReduceThreads, kAhead = kReduceAhead;

// Returns the number of threads that reduce `vectors` vectors, so that each thread has about kAhead of them. It is a
// power of two, and at most kThreads.
int64_t lanes_for(int64_t vectors);
// These functions fill in the tiling, which is also the parameter of the kernel. They return "" if the engine supports
// the problem. If not, they return the reason.
std::string tile_contiguous_axis(const ReduceProblem&, const Device&, ReduceRows&);
std::string tile_strided_axis(const ReduceProblem&, const Device&, ReduceColumns&);

}  // namespace minidnn::cuda::reduce
