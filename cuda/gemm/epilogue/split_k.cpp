// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/epilogue/split_k.h"

#include "cpp/activation/activation.h"

namespace minidnn {
namespace {

KernelSpec spec(DType type, DType y, Activation activation, int share) {
  return {"cuda/gemm/epilogue/split_k.cu", cat("minidnn::gemm_add_parts<", cuda_name(type), ", ", cuda_name(y),
                                               ", minidnn::Activation::", name(activation), ", ", share, ">")};
}

// The number of threads that add the parts of one place: several if there are too few places to fill the device.
int share_of(const SplitSums& s, const Device& d) {
  return s.count >= 16 && s.part_stride < int64_t(512) * d.sm_count ? 8 : 1;
}

}  // namespace

SplitKWorkspace::SplitKWorkspace(const GemmView& v, bool by_columns) {
  const int64_t rows = by_columns ? v.n.size : v.m.size;
  columns = ceil_div(by_columns ? v.m.size : v.n.size, int64_t(8)) * 8;  // eight: the widest stores of the epilogue
  part_stride = columns * rows * v.batch.size;
  GemmView parts;
  parts.m.size = parts.m.digit[3] = rows;
  parts.n.size = parts.n.digit[3] = columns;
  parts.batch.size = parts.batch.digit[3] = v.batch.size;
  parts.y_m.of[3] = columns;
  parts.y_n.of[3] = 1;
  parts.y_batch.of[3] = columns * rows;
  output = output_of(by_columns ? transposed(parts) : parts, DType::float32, 16, false, false);
}

SplitKReduce::SplitKReduce(const GemmTask& t, const GemmOutput& whole, int64_t columns, int64_t splits, const Device& d)
    : output_(whole) {
  sums_.columns = FastDivmod(columns / 4);
  sums_.rows = FastDivmod(whole.m.size);
  sums_.count = splits;
  sums_.part_stride = columns / 4 * whole.m.size * whole.batch.size;
  sums_.places = uint32_t(sums_.part_stride);
  const int share = share_of(sums_, d);
  kernel_ = cuda::load_kernel(spec(t.type, t.y, t.activation, share), d.place.index);
  launch_.block = {256};
  launch_.grid = {unsigned(ceil_div(sums_.part_stride, int64_t(256 / share)))};
  launch_.programmatic = d.arch >= 90;
}

SplitKReduce::SplitKReduce(const GemmTask& t, const GemmView& v, int64_t splits, const Device& d)
    : SplitKReduce(t, output_of(v, t.y, t.alignment, t.has_c, t.has_bias), SplitKWorkspace(v).columns, splits, d) {}

void SplitKReduce::run(const GemmArgs& args, const void* workspace, Stream stream) const {
  SplitSums sums = sums_;
  sums.parts = static_cast<const float*>(workspace);
  cuda::launch(*kernel_, launch_, stream, output_, args, sums);
}

std::vector<KernelSpec> add_parts_kernels() {
  std::vector<KernelSpec> all;
  for (DType type : {DType::float32, DType::float16, DType::bfloat16})
    for (Activation a : {Activation::identity, Activation::relu})
      for (int share : {1, 8}) all.push_back(spec(type, type, a, share));
  return all;
}

}  // namespace minidnn
