// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the random family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/random/random.h"

namespace minidnn {

const Engine<RandomProblem>& random_fours();

}  // namespace minidnn
