// SPDX-License-Identifier: Apache-2.0
// The engine cuda.conv.wgmma, for the engines that add something to it: wgmma_3xtf32 and wgmma_statistics. Host only.
#pragma once
#include "cpp/conv/conv.h"
#include "cuda/gemm/sm90/operand_relayout.h"

namespace minidnn::cuda::conv {

const RelayoutEngine<ConvProblem>& wgmma();

}  // namespace minidnn::cuda::conv
