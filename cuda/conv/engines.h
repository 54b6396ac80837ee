// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the conv family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/conv/conv.h"

namespace minidnn {

const Engine<ConvProblem>& conv_wgmma();
const Engine<ConvProblem>& conv_wgmma_3xtf32();
const Engine<ConvProblem>& conv_window();
const Engine<ConvProblem>& conv_wgmma_taps();
const Engine<ConvProblem>& conv_image();
const Engine<ConvProblem>& conv_simt();
const Engine<ConvProblem>& conv_winograd();
const Engine<ConvProblem>& conv_mma();
const Engine<ConvProblem>& conv_mma_3xtf32();
const Engine<ConvProblem>& conv_direct();
const Engine<ConvProblem>& conv_depthwise();
const Engine<ConvProblem>& conv_grouped();
const Engine<ConvProblem>& conv_im2col_gemm();
const Engine<ConvProblem>& conv_planes();
const Engine<ConvProblem>& conv_image_filter();
const Engine<ConvStatisticsProblem>& conv_wgmma_statistics();

}  // namespace minidnn
