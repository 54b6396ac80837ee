// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the softmax family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/softmax/softmax.h"

namespace minidnn {

const Engine<SoftmaxProblem>& softmax_rows();
const Engine<SoftmaxProblem>& softmax_columns();
const Engine<SoftmaxProblem>& softmax_thread();
const Engine<SoftmaxProblem>& softmax_generic();

}  // namespace minidnn
