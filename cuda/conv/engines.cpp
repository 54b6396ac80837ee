// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/engines.h"

namespace minidnn {

const Engines<ConvProblem>& Family<ConvProblem>::cuda_engines() {
  static const Engines<ConvProblem> all{
      &conv_wgmma(),      &conv_wgmma_3xtf32(), &conv_window(),       &conv_image(),
      &conv_wgmma_taps(), &conv_mma(),          &conv_mma_3xtf32(),   &conv_depthwise(),
      &conv_grouped(),    &conv_planes(),       &conv_image_filter(), &conv_winograd(),
      &conv_simt(),       &conv_im2col_gemm(),  &conv_reduce(true),   &conv_direct()};
  return all;
}

const Engines<ConvStatisticsProblem>& Family<ConvStatisticsProblem>::cuda_engines() {
  static const Engines<ConvStatisticsProblem> all{&conv_wgmma_statistics(), &conv_then_reduce(true)};
  return all;
}

}  // namespace minidnn
