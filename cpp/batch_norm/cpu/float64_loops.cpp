// SPDX-License-Identifier: Apache-2.0
#include "cpp/batch_norm/cpu/reference_loops.h"

namespace minidnn::cpu::batch_norm {

template void compute<double>(NormDirection, const NormSpaces&, const BatchNormArgs&);

}  // namespace minidnn::cpu::batch_norm
