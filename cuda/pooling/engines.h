// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the pooling family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/pooling/pooling.h"

namespace minidnn {

const Engine<PoolingProblem>& pooling_planes();
const Engine<PoolingProblem>& pooling_channels_cuda();  // pooling_channels() is the CPU's
const Engine<PoolingProblem>& pooling_generic();

}  // namespace minidnn
