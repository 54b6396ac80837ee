// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the norm family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/norm/norm.h"

namespace minidnn {

const Engine<NormProblem>& norm_generic();

}  // namespace minidnn
