// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/epilogue/split_k.h"

#include "cpp/activation/activation.h"

namespace minidnn {
namespace {

KernelSpec spec(DType type, DType y, Activation activation, int threads) {
  return {"cuda/gemm/epilogue/split_k.cu", cat("minidnn::gemm_split_k_reduce<", cuda_name(type), ", ", cuda_name(y),
                                               ", minidnn::Activation::", name(activation), ", ", threads, ">")};
}

// 8 threads add up a quad (four columns of a row) if there are many splits and few quads, else one thread.
int threads_of_quad(const SplitKPartitions& s, const Device& d) {
  return s.count >= 16 && s.partition_stride < int64_t(512) * d.sm_count ? 8 : 1;
}

}  // namespace

SplitKWorkspace::SplitKWorkspace(const GemmView& v, bool by_columns) {
  const int64_t rows = by_columns ? v.n.size : v.m.size;
  // a multiple of the widest stores of an epilogue
  columns = ceil_div(by_columns ? v.m.size : v.n.size, int64_t(8)) * 8;
  partition_stride = columns * rows * v.batch.size;
  GemmView sums;
  sums.m.size = sums.m.digit[3] = rows;
  sums.n.size = sums.n.digit[3] = columns;
  sums.batch.size = sums.batch.digit[3] = v.batch.size;
  sums.y_m.of[3] = columns;
  sums.y_n.of[3] = 1;
  sums.y_batch.of[3] = columns * rows;
  output = output_of(by_columns ? transposed(sums) : sums, DType::float32, 16, false, false);
}

SplitKReduce::SplitKReduce(const GemmTask& t, const GemmOutput& whole, int64_t columns, int64_t splits, const Device& d)
    : output_(whole) {
  sums_.columns = FastDivmod(columns / 4);
  sums_.rows = FastDivmod(whole.m.size);
  sums_.count = splits;
  sums_.partition_stride = columns / 4 * whole.m.size * whole.batch.size;
  sums_.quads = uint32_t(sums_.partition_stride);
  const int threads = threads_of_quad(sums_, d);
  kernel_ = cuda::load_kernel(spec(t.type, t.y, t.activation, threads), d.place.index);
  launch_.block = {256};
  launch_.grid = {unsigned(ceil_div(sums_.partition_stride, int64_t(256 / threads)))};
  launch_.programmatic = d.arch >= 90;
}

SplitKReduce::SplitKReduce(const GemmTask& t, const GemmView& v, int64_t splits, const Device& d)
    : SplitKReduce(t, output_of(v, t.y, t.alignment, t.has_c, t.has_bias), SplitKWorkspace(v).columns, splits, d) {}

void SplitKReduce::run(const GemmArgs& args, const void* workspace, Stream stream) const {
  SplitKPartitions sums = sums_;
  sums.sums = static_cast<const float*>(workspace);
  cuda::launch(*kernel_, launch_, stream, output_, args, sums);
}

std::vector<KernelSpec> split_k_reduce_kernels() {
  std::vector<KernelSpec> all;
  for (DType type : {DType::float32, DType::float16, DType::bfloat16})
    for (Activation a : {Activation::identity, Activation::relu})
      for (int threads : {1, 8}) all.push_back(spec(type, type, a, threads));
  return all;
}

}  // namespace minidnn
