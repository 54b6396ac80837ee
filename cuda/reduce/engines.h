// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the reduce family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/reduce/reduce.h"

namespace minidnn {

const Engine<ReduceProblem>& reduce_rows();
const Engine<ReduceProblem>& reduce_columns();
const Engine<ReduceProblem>& reduce_generic();

}  // namespace minidnn
