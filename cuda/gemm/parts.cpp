// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/parts.h"

#include "cpp/activation/activation.h"

namespace minidnn {
namespace {

KernelSpec spec(DType type, DType y, Activation activation) {
  return {"cuda/gemm/split_k.cu", cat("minidnn::gemm_add_parts<", cuda_name(type), ", ", cuda_name(y),
                                      ", minidnn::Activation::", name(activation), ">")};
}

}  // namespace

Parts::Parts(const GemmView& v) : columns(ceil_div(v.n.size, int64_t(8)) * 8) {  // eight: the epilogue's longest stores
  part_stride = columns * v.m.size * v.batch.size;
  GemmView parts;
  parts.m.size = parts.m.digit[3] = v.m.size, parts.n.size = parts.n.digit[3] = columns;
  parts.batch.size = parts.batch.digit[3] = v.batch.size;
  parts.y_m.of[3] = columns, parts.y_n.of[3] = 1, parts.y_batch.of[3] = columns * v.m.size;
  output = output_of(parts, DType::float32, 16, false, false);
}

AddParts::AddParts(const GemmTask& t, const GemmView& v, int64_t splits, const Device& d)
    : kernel_(cuda::load_kernel(spec(t.type, t.y, t.activation), d.place.index)),
      output_(output_of(v, t.y, t.alignment, t.has_c, t.has_bias)) {
  const Parts parts(v);
  sums_.columns = parts.columns, sums_.part_stride = parts.part_stride, sums_.count = splits;
  constexpr int64_t kMostBlocks = 65535;  // along y
  const int64_t rows = v.m.size * v.batch.size;
  launch_.block = {32, 8};
  launch_.grid = {unsigned(ceil_div(parts.columns, int64_t(128))), unsigned(min_of(rows, kMostBlocks)),
                  unsigned(ceil_div(rows, kMostBlocks))};
}

void AddParts::run(const GemmArgs& args, const void* workspace, Stream stream) const {
  cuda::LaunchConfig launch = launch_;
  launch.stream = stream;
  SplitSums sums = sums_;
  sums.parts = static_cast<const float*>(workspace);
  cuda::launch(*kernel_, launch, output_, args, sums);
}

std::vector<KernelSpec> add_parts_kernels() {
  std::vector<KernelSpec> all;
  for (DType type : {DType::float32, DType::float16, DType::bfloat16})
    for (Activation a : {Activation::identity, Activation::relu}) {
      all.push_back(spec(type, type, a));
      if (type != DType::float32) all.push_back(spec(type, DType::float32, a));
    }
  return all;
}

}  // namespace minidnn
