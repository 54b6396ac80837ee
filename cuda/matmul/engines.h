// SPDX-License-Identifier: Apache-2.0
// The CUDA engines of the matmul family, one accessor each; the list is in engines.cpp.
#pragma once
#include "cpp/matmul/matmul.h"

namespace minidnn {

const Engine<MatmulProblem>& matmul_wgmma();
const Engine<MatmulProblem>& matmul_wgmma_3xtf32();
const Engine<MatmulProblem>& matmul_simt();
const Engine<MatmulProblem>& matmul_mma();
const Engine<MatmulProblem>& matmul_mma_3xtf32();
const Engine<MatmulProblem>& matmul_tiled();
const Engine<MatmulProblem>& matmul_generic();

}  // namespace minidnn
