// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the transform family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/transform/gather.h"
#include "cpp/transform/pad.h"
#include "cpp/transform/transform.h"

namespace minidnn {

const Engine<TransformProblem>& transform_dense();
const Engine<TransformProblem>& transform_tiled();
const Engine<TransformProblem>& transform_runs();
const Engine<TransformProblem>& transform_generic();

const Engine<PadProblem>& pad_lines();
const Engine<PadProblem>& pad_generic();

const Engine<GatherProblem>& gather_rows();
const Engine<GatherProblem>& gather_generic();

}  // namespace minidnn
