// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the norm family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/norm/row_norm.h"

namespace minidnn {

const Engine<NormProblem>& norm_split();
const Engine<NormProblem>& norm_generic();
const Engine<RowNormProblem>& norm_rows();
const Engine<RowNormProblem>& norm_groups();
const Engine<RowNormProblem>& norm_rows_generic();
KernelSpec norm_rows_finish();  // rows.cu: joins [count][columns] pairs of dscale and dbias

}  // namespace minidnn
