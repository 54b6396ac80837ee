// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the loss family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/loss/loss.h"

namespace minidnn {

const Engine<LossProblem>& loss_rows();
const Engine<LossProblem>& loss_columns();
const Engine<LossProblem>& loss_thread();
const Engine<LossProblem>& loss_generic();

}  // namespace minidnn
