// SPDX-License-Identifier: Apache-2.0
// The public functions of gather.h: checks of the arguments, time estimates, and the text that names a call in tuning
// files and tests.
#include "cpp/gather/gather.h"

#include "cpp/core/recording.h"

namespace minidnn {
namespace {

GatherProblem problem_of(const char* call, GatherDirection direction, const TensorDesc& x, const Tensor& index,
                         int64_t axis, const Handle& h) {
  MINIDNN_CHECK(DeviceError, index.place() == h.place(), call, ": the first tensor is on ", name(h.place()),
                ", index is on ", name(index.place()), "; move one with .to(device=...)");
  const DType t = index.desc.dtype;
  MINIDNN_CHECK(DTypeError, t == DType::int32 || t == DType::int64, call, ": index must be int32 or int64; got ",
                name(t));
  GatherProblem p{direction, checked_axis(call, {"x", Tensor{x}}, axis), x, index.desc, {}};
  MINIDNN_CHECK(ShapeError, x.rank - 1 + index.desc.rank <= kMaxRank, call, ": x ", shape_text(x), " by index ",
                shape_text(index.desc), " has ", x.rank - 1 + index.desc.rank, " dimensions; at most ", kMaxRank,
                " are supported");
  constexpr int64_t kMost = 0x7fffffff;
  MINIDNN_CHECK(ShapeError, p.rows() <= kMost && index.desc.numel() <= kMost, call, ": x ", shape_text(x), " by index ",
                shape_text(index.desc), " must have at most 2^31 - 1 rows and indices; got ", p.rows(), " and ",
                index.desc.numel());
  use(index, h.stream());
  return p;
}

Shape shape_of_result(const GatherProblem& p) {
  Shape shape(p.x.shape, p.x.shape + p.axis);
  shape.insert(shape.end(), p.index.shape, p.index.shape + p.index.rank);
  shape.insert(shape.end(), p.x.shape + p.axis + 1, p.x.shape + p.x.rank);
  return shape;
}

// Checks all indices before anything is written. Indices on a GPU are not checked, because the CPU would have to wait
// for the GPU. Indices of a recorded call are checked when the graph runs.
void check_indices(const GatherProblem& p, const Tensor& index) {
  if (!index.place().is_cuda && !is_stand_in(index)) Family<GatherProblem>::check(p, {nullptr, index.data});
}

template <class T> bool all_in_range(const T* index, int64_t n, int64_t rows) {
  T low = 0, high = 0;
  for (int64_t k = 0; k < n; ++k) {
    low = min_of(low, index[k]);
    high = max_of(high, index[k]);
  }
  return low >= -rows && high < rows;
}
}  // namespace

void Family<GatherProblem>::check(const GatherProblem& p, const GatherArgs& a) {
  if (is_row_major(p.index) && p.rows() > 0) {
    const int64_t n = p.index.numel();
    if (p.index.dtype == DType::int32 ? all_in_range(static_cast<const int32_t*>(a.index), n, p.rows())
                                      : all_in_range(static_cast<const int64_t*>(a.index), n, p.rows()))
      return;
  }
  const char* call = p.direction == GatherDirection::backward ? "gather_backward" : "gather";
  for (int64_t k = 0; k < p.index.numel(); ++k) {
    if (gather_row(p, a.index, k) >= 0) continue;
    const int64_t at = p.index.offset_of(k);
    const int64_t value = p.index.dtype == DType::int32 ? static_cast<const int32_t*>(a.index)[at]
                                                        : static_cast<const int64_t*>(a.index)[at];
    throw ShapeError(cat(call, ": index must be from ", -p.rows(), " to ", p.rows() - 1, " for axis ", p.axis, "; got ",
                         value, " as element ", k));
  }
}

std::string Family<GatherProblem>::text(const GatherProblem& p) {
  const bool backward = p.direction == GatherDirection::backward;
  std::string text = cat(head_text("gather", backward ? "backward" : "forward", p.x.dtype), " x=", problem_text(p.x),
                         " index=", problem_text(p.index), " axis=", p.axis);
  if (p.index.dtype == DType::int32) text += " indices=i32";
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  const TensorDesc like = dense(p.y.dtype, shape_of(p.y), Layout::channels_first, name);
  if (backward) return same_strides(p.y, like) ? text : text + " dy=" + problem_text(p.y);
  return text + out_text(p.y, like);
}

void Family<GatherProblem>::ports(const GatherProblem& p, GatherArgs& a, Ports& v) {
  const bool backward = p.direction == GatherDirection::backward;
  v.in(backward ? "dy" : "x", backward ? p.y : p.x, a.from);
  v.in("index", p.index, a.index);
  v.out(backward ? "dx" : "y", backward ? p.x : p.y, a.to);
}

Tensor gather(const Tensor& x, const Tensor& index, int64_t axis, const Call& call) {
  const char* me = "gather";
  Handle& h = handle_for(call.handle, x.place(), me, "x");
  GatherProblem p = problem_of(me, GatherDirection::forward, x.desc, index, axis, h);
  check_indices(p, index);
  Tensor y = output(me, "out", call.out, dense(x.desc.dtype, shape_of_result(p), Layout::channels_first, "gather: y"),
                    h, {{"x", x}, {"index", index}});
  p.y = y.desc;
  if (y.desc.numel() == 0) return y;
  p.alignment = alignment_of(h, {x.data, y.data});
  use(x, h.stream());
  run(h, p, GatherArgs{x.data, index.data, y.data}, call.algo);
  return y;
}

Tensor gather_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape, int64_t axis, const Call& call) {
  const char* me = "gather_backward";
  Handle& h = check_operands(me, call, {{"dy", dy}});
  const TensorDesc want = dense(dy.desc.dtype, x_shape, Layout::channels_first, "gather_backward: x_shape");
  GatherProblem p = problem_of(me, GatherDirection::backward, want, index, axis, h);
  check_shape(me, {"dy", dy}, shape_of_result(p), "like the result of gather");
  check_indices(p, index);
  Tensor dx = output(me, "out", call.out, want, h, {{"dy", dy}, {"index", index}});
  p.x = dx.desc;
  p.y = dy.desc;
  if (dx.desc.numel() == 0) return dx;
  p.alignment = alignment_of(h, {dy.data, dx.data});
  run(h, p, GatherArgs{dy.data, index.data, dx.data}, call.algo);
  return dx;
}

std::string gather_rows(const GatherProblem& p, GatherRows& g) {
  for (const TensorDesc& t : {p.x, p.y, p.index})
    if (!is_row_major(t)) return "needs row-major tensors";
  g = {1, p.rows(), p.index.numel(), 1};
  for (int64_t d = 0; d < p.axis; ++d) g.outer *= p.x.shape[d];
  for (int64_t d = p.axis + 1; d < p.x.rank; ++d) g.span *= p.x.shape[d];
  return "";
}

double gather_bytes(const GatherProblem& p) {
  const double touched = p.direction == GatherDirection::backward ? double(p.x.numel()) : double(p.y.numel());
  return (touched + double(p.y.numel())) * double(itemsize(p.x.dtype)) +
         double(p.index.numel()) * double(itemsize(p.index.dtype));
}

size_t gather_order_bytes(const GatherProblem& p) {
  return p.direction == GatherDirection::backward ? size_t(p.rows() + 1 + p.index.numel()) * sizeof(int32_t) : 0;
}
GatherOrder gather_order(const GatherProblem& p, void* workspace) {
  const auto words = static_cast<int32_t*>(workspace);
  return {words, words + p.rows() + 1};
}

size_t gather_cpu_bytes(const GatherProblem& p) {
  const bool backward = p.direction == GatherDirection::backward;
  return gather_order_bytes(p) + (backward ? size_t(p.index.numel()) * sizeof(int32_t) : 0);
}

GatherOrder sort_indices(const GatherProblem& p, const GatherArgs& a, void* workspace) {
  const int64_t n = p.index.numel();
  const GatherOrder o = gather_order(p, workspace);
  // For each index, the row of x that it selects, or -1 if the index is out of range.
  int32_t* const rows = o.order + n;
  std::fill(o.starts, o.starts + p.rows() + 1, 0);
  const bool row_major = is_row_major(p.index);
  for (int64_t k = 0; k < n; ++k) {
    rows[k] = int32_t(gather_row_at(p, a.index, row_major ? k : p.index.offset_of(k)));
    if (rows[k] >= 0) ++o.starts[rows[k]];
  }
  int32_t sum = 0;
  for (int64_t r = 0; r <= p.rows(); ++r) sum += std::exchange(o.starts[r], sum);
  // Each entry of row r increments starts[r], so in the end it is the index in `order` at which row r + 1 begins.
  for (int64_t k = 0; k < n; ++k)
    if (rows[k] >= 0) o.order[o.starts[rows[k]]++] = int32_t(k);
  std::move_backward(o.starts, o.starts + p.rows(), o.starts + p.rows() + 1);
  o.starts[0] = 0;
  return o;
}

}  // namespace minidnn
