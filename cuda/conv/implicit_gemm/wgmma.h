// SPDX-License-Identifier: Apache-2.0
// Gives other engines access to cuda.conv.wgmma: the engines wgmma_3xtf32 and wgmma_statistics call it. Host only.
#pragma once
#include "cpp/conv/conv.h"
#include "cuda/gemm/sm90/operand_relayout.h"

namespace minidnn::cuda::conv {

const RelayoutEngine<ConvProblem>& wgmma();

}  // namespace minidnn::cuda::conv
