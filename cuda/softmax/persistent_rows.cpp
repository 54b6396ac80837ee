// SPDX-License-Identifier: Apache-2.0
// cuda.softmax.persistent_rows is the engine for softmax along the innermost dimension. A few lanes of a warp, a block
// or a cluster keep a row in registers.
#include "cpp/engine/engine_object.h"
#include "cpp/softmax/softmax.h"
#include "cuda/rows/launch.h"
#include "cuda/softmax/softmax_params.h"

namespace minidnn {
namespace cuda::softmax {
namespace {

constexpr DType kDTypes[] = {DType::float32, DType::float16, DType::bfloat16};

int64_t width_of(const SoftmaxProblem& p) { return 16 / itemsize(p.in.dtype); }

SoftmaxRows params_of(const SoftmaxProblem& p, const Device& d) {
  const bool backward = p.direction == SoftmaxDirection::backward;
  SoftmaxRows t;
  t.log = int32_t(p.log);
  const int64_t width = width_of(p), item = int64_t(itemsize(p.in.dtype));
  int64_t vectors_of_thread = backward ? kSoftmaxBackwardVectors : softmax_forward_vectors(item, p.masked);
  const int64_t vectors = rows::vectors_of(p.cols(), width);
  if (item == 2 && vectors <= kSoftmaxShortRow) vectors_of_thread = min_of(vectors_of_thread, int64_t(4));
  // A row of at most four vectors gets two vectors per thread, so that threads read whole sectors of 32 bytes.
  if (vectors <= 4) vectors_of_thread = 2;
  t.shape = rows::shape_of(p.rows(), p.cols(), width, vectors_of_thread, cuda::largest_cluster(d));
  if (p.masked == SoftmaxMask::none) return t;
  const RowLayout w = row_layout(p, p.mask, outer_dims(p));
  t.mask.dims = int32_t(w.dims);
  for (int64_t i = 0; i < w.dims; ++i) {
    t.mask.size[i] = FastDivmod(w.size[i]);
    t.mask.stride[i] = w.stride[i];
  }
  return t;
}

bool in_chunks(const SoftmaxRows& t) { return t.shape.chunks > 1 && !t.shape.clustered; }

}  // namespace

struct PersistentRows final : Engine<SoftmaxProblem> {
  std::string name() const override { return "cuda.softmax.persistent_rows"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const SoftmaxProblem& p, const Device& d) const override {
    if (p.in.dtype == DType::float64) return "float64 is not supported";
    const bool backward = p.direction == SoftmaxDirection::backward;
    const int64_t width = width_of(p);
    if (!is_dense(p.in) || !same_strides(p.in, p.out) || (backward && !same_strides(p.in, p.dy)))
      return "needs dense tensors with equal strides";
    if (p.cols() > 1 && p.in.stride[p.axis] != 1) return "needs axis to be the innermost dimension in memory";
    if (p.alignment < 16) return cat("needs tensors aligned to 16 bytes; got ", p.alignment);
    if (p.cols() > 1 << 30) return cat("supports rows of at most 2^30 elements; got ", p.cols());
    if (p.masked != SoftmaxMask::none) {
      if (p.rows() > INT32_MAX) return cat("supports masks for at most 2^31 - 1 rows; got ", p.rows());
      bool whole_vectors = p.cols() % width == 0 && (p.mask.stride[p.axis] == 1);
      for (int64_t i = 0; i < p.in.rank; ++i)
        whole_vectors = whole_vectors &&
                        (i == p.axis || p.in.shape[i] == 1 || (p.mask.stride[i] >= 0 && p.mask.stride[i] % width == 0));
      if (!whole_vectors)
        return cat("needs contiguous rows of the mask, with lengths and offsets that are multiples of ", width,
                   " elements");
    }
    const int64_t blocks = rows::blocks_of(params_of(p, d).shape);
    if (blocks > INT32_MAX) return cat("supports at most 2^31 - 1 blocks; got ", blocks);
    return "";
  }
  // The estimate of the time is a guess: 0.88 of the copy rate. The rate is lower if rows have fewer than four vectors,
  // or if there are too few rows to fill the GPU.
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    const SoftmaxRows t = params_of(p, d);
    const double bytes = softmax_bytes(p), tensor = double(p.in.numel() * itemsize(p.in.dtype));
    const double useful = std::min(1.0, double(p.cols()) / (4.0 * double(width_of(p))));
    const double filled =
        std::min(1.0, double(rows::blocks_of(t.shape) * rows::block_of(t.shape)) / (512.0 * d.sm_count));
    if (!in_chunks(t)) return 1 + roofline_us(0, bytes, d, 0.88 * useful * filled);
    return 4 + roofline_us(0, bytes + (p.direction == SoftmaxDirection::backward ? 2 : 1) * tensor, d, 0.85 * filled);
  }
  size_t workspace_bytes(const SoftmaxProblem& p, const Device& d, const Config&) const override {
    const SoftmaxRows t = params_of(p, d);
    return in_chunks(t) ? size_t(t.shape.rows * t.shape.chunks) * 8 : 0;
  }
  KernelSpec spec(DType dtype, SoftmaxDirection direction, int64_t option) const {
    const bool forward = direction == SoftmaxDirection::forward;
    return {"cuda/softmax/persistent_rows.cu",
            cat("minidnn::softmax_rows_", forward ? "forward" : "backward", "<", cuda_name(dtype), ", ",
                forward ? "(minidnn::SoftmaxMask)" : "", option, ">")};
  }
  std::unique_ptr<Plan<SoftmaxProblem>> build(const SoftmaxProblem& p, const Device& d, const Config&) const override {
    const bool forward = p.direction == SoftmaxDirection::forward;
    auto kernel = cuda::load_kernel(spec(p.in.dtype, p.direction, forward ? int64_t(p.masked) : p.log), d.place.index);
    SoftmaxRows params = params_of(p, d);
    const cuda::LaunchConfig config = rows::launch_config(params.shape, rows::blocks_of(params.shape));
    if (params.shape.clustered) cuda::allow_cluster(*kernel, config);
    const bool chunks = in_chunks(params);
    return make_plan<SoftmaxProblem>([=](const SoftmaxArgs& a, void* workspace, Stream stream) {
      SoftmaxRows stage = params;
      if (chunks) {
        stage.stage = SoftmaxRows::reduce;
        cuda::launch(*kernel, config, stream, stage, a, workspace);
        stage.stage = SoftmaxRows::finish;
      }
      cuda::launch(*kernel, config, stream, stage, a, workspace);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kDTypes) {
      for (int64_t mask : {0, 1, 2}) all.push_back(spec(t, SoftmaxDirection::forward, mask));
      for (int64_t log : {0, 1}) all.push_back(spec(t, SoftmaxDirection::backward, log));
    }
    return all;
  }
};

}  // namespace cuda::softmax

template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cuda::softmax::PersistentRows>();

}  // namespace minidnn
