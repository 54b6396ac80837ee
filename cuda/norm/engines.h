// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the norm family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/norm/local_norm.h"
#include "cpp/norm/row_norm.h"

namespace minidnn {

struct NormRows;
struct NormSplit;

const Engine<NormProblem>& norm_resident();
const Engine<NormProblem>& norm_split();
const Engine<NormProblem>& norm_generic();
const Engine<RowNormProblem>& norm_rows();
const Engine<RowNormProblem>& norm_long_rows();
const Engine<RowNormProblem>& norm_groups();
const Engine<RowNormProblem>& norm_rows_generic();
const Engine<LocalNormProblem>& norm_across();
const Engine<LocalNormProblem>& norm_around();
const Engine<LocalNormProblem>& norm_local_generic();

// The kernel (rows.cu) that joins pairs of dscale and dbias, [count][columns]; `columns` of them per block.
struct NormFinish {
  KernelSpec kernel;
  int64_t threads, columns;
};
NormFinish norm_rows_finish(int64_t count);

// Takes a dense batch norm as planes or columns: fills in channels, members and plane (1: columns). Returns "", or why
// the layout is neither.
std::string dense_norm(const NormProblem&, NormSplit&);
// The layout of cuda.norm.rows and cuda.norm.long_rows: contiguous rows that follow each other in memory. Fills in
// rows, columns, centered and groups, and the elements of a vector. Returns "", or why the layout is another one.
std::string contiguous_rows(const RowNormProblem&, NormRows&, int64_t& vector);

}  // namespace minidnn
