// SPDX-License-Identifier: Apache-2.0
#include "cuda/gather/index_sort.h"

#include "cuda/gather/gather_params.h"

namespace minidnn::cuda::gather {

KernelSpec IndexSort::spec(bool contiguous) {
  return {"cuda/gather/index_sort.cu", cat("minidnn::gather_index_sort<", contiguous ? "true" : "false", ">")};
}

// The grid has about one block per SM, because each block reads all indices. It has more blocks if a block would have
// to sort the indices of more than kSortRows rows.
IndexSort::IndexSort(const GatherProblem& p, const Device& d)
    : problem_(p), kernel_(cuda::load_kernel(spec(is_row_major(p.index)), d.place.index)) {
  rows_ = int32_t(min_of<int64_t>(ceil_div<int64_t>(p.rows(), d.sm_count), kSortRows));
  config_.block = {kSortThreads};
  config_.grid = {unsigned(ceil_div<int64_t>(p.rows(), rows_))};
}

GatherOrder IndexSort::run(const GatherArgs& a, void* workspace, Stream stream) const {
  const GatherOrder order = gather_order(problem_, workspace);
  cuda::launch(*kernel_, config_, stream, problem_, a.index, order, rows_);
  return order;
}

// Estimates the time of the sort in us. Each block reads all indices twice from L2. The assumed rate, 2.5 TB/s, is half
// of the L2 bandwidth.
double index_sort_us(const GatherProblem& p, const Device& d) {
  if (!is_backward(p)) return 0;
  const double blocks = max_of(double(d.sm_count), double(p.rows()) / kSortRows);
  return 5 + 2 * blocks * double(p.index.numel()) * double(itemsize(p.index.dtype)) / 2.5e6;
}

}  // namespace minidnn::cuda::gather
