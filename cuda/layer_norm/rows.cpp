// SPDX-License-Identifier: Apache-2.0
#include "cuda/layer_norm/rows.h"

namespace minidnn {
namespace {

int64_t vector_of(const LayerNormProblem& p, const RowTiling& r) {
  const int64_t wide = 16 / int64_t(itemsize(p.x.dtype));
  // The number of elements in a channel (group norm) or in a row. A vector must not extend beyond it.
  const int64_t even = r.groups ? r.columns / r.of_group : r.columns;
  return p.alignment == 16 && even % wide == 0 ? wide : 1;
}

}  // namespace

std::string contiguous_rows(const LayerNormProblem& p, RowTiling& r, int64_t& vector) {
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (p.x.numel() == 0) return "x is empty";
  const LayerNormSpaces s = row_norm_spaces(p);
  auto equal_steps = [](const NormOffsets& o) { return o.dy == o.x && o.out == o.x; };
  r.rows = s.rows.size;
  r.columns = s.members.size;
  r.centered = s.centered;
  r.per_column = 1 / float(r.columns);
  const bool contiguous =
      (r.columns == 1 || (s.members.rank <= 2 && equal_steps(s.members.span_step()) && s.members.span_step().x == 1)) &&
      (r.rows == 1 || (s.rows.rank <= 2 && equal_steps(s.rows.span_step()) && s.rows.span_step().x == r.columns));
  const char* const layout = "needs contiguous rows, one after another, in all tensors";
  if (!contiguous) return layout;
  if (s.members.rank == 2) {
    const NormOffsets& outer = s.members.step[0];
    if (!equal_steps(outer) || outer.x != s.members.span()) return layout;
  }
  if (s.rows.rank == 2) {
    const NormOffsets& outer = s.rows.step[0];
    if (!equal_steps(outer) || outer.x != s.rows.span() * r.columns) return layout;
  }
  if (p.kind == RowNorm::group) {
    if (p.backward) return "the gradient of group and instance norm is not supported";
    if (!channels_in_order(p.x)) return "needs x in the order NCHW for group and instance norm";
    r.groups = uint32_t(p.groups);
    r.of_group = uint32_t(p.x.shape[1] / p.groups);
  }
  if (p.kind != RowNorm::group && r.columns > 1 && (s.members.rank > 1 || s.members.span_step().parameter != 1))
    return "needs scale and bias in the memory order of the elements of a row";
  vector = vector_of(p, r);
  if (r.columns / vector >= int64_t(1) << 24)
    return cat("supports rows of fewer than 2^24 vectors; got ", r.columns / vector);
  r.vectors = uint32_t(r.columns / vector);
  if (r.groups) r.span = FastDivmod(r.vectors / r.of_group);
  return "";
}

ParameterSums parameter_sums(int64_t count) {
  constexpr int64_t kFew = 16;
  if (count <= kFew)
    return {{"cuda/layer_norm/parameter_sums.cu", "minidnn::layer_norm_few_parameter_sums<0>"},
            kFewSumsThreads,
            kFewSumsThreads};
  return {{"cuda/layer_norm/parameter_sums.cu", "minidnn::layer_norm_parameter_sums<0>"}, kJoinThreads, kJoinChannels};
}

}  // namespace minidnn
