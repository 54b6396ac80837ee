// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the pointwise family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/pointwise/pointwise.h"

namespace minidnn {

const Engine<PointwiseProblem>& pointwise_vectors();

}  // namespace minidnn
