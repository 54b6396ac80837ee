// SPDX-License-Identifier: Apache-2.0
// How cuda.reduce.contiguous_axis and cuda.reduce.strided_axis divide a reduction among blocks and threads. If there
// are few outputs with many elements, the elements of each output are divided into chunks.
#pragma once
#include "cpp/reduce/reduce.h"
#include "cuda/reduce/reduce_params.h"

namespace minidnn::cuda::reduce {

constexpr int64_t kThreads = kReduceThreads, kAhead = kReduceAhead;

// The number of threads that reduce `vectors` vectors, about kAhead vectors each. It is a power of two, at most
// kThreads.
int64_t lanes_for(int64_t vectors);
// Fill in the tiling, which is also the parameter of the kernel. Return "", or the reason for rejecting the problem.
std::string tile_contiguous_axis(const ReduceProblem&, const Device&, ReduceRows&);
std::string tile_strided_axis(const ReduceProblem&, const Device&, ReduceColumns&);

}  // namespace minidnn::cuda::reduce
