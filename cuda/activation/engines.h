// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the activation family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/activation/activation.h"

namespace minidnn {

const Engine<ActivationProblem>& activation_dense();
const Engine<ActivationProblem>& activation_generic();

}  // namespace minidnn
