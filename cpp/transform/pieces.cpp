// SPDX-License-Identifier: Apache-2.0
#include "cpp/transform/pieces.h"

#include <algorithm>

namespace minidnn {
namespace {

// Part of a tensor, without a share in its storage.
struct Piece {
  TensorDesc desc;
  char* data;

  explicit Piece(const Tensor& t) : desc(t.desc), data(static_cast<char*>(t.data)) {}
  // From the element `first` of a dimension on, every step-th: backwards if negative, the same again if 0.
  Piece along(int dim, int64_t first, int64_t count, int64_t step = 1) const {
    Piece p = *this;
    p.data += first * desc.stride[dim] * int64_t(itemsize(desc.dtype));
    p.desc.shape[dim] = count, p.desc.stride[dim] *= step;
    return p;
  }
};

void copy(Handle& h, const Piece& from, const Piece& to) {
  if (to.desc.numel() == 0) return;
  run(h, TransformProblem{from.desc, to.desc}, TransformArgs{from.data, to.data}, "");
}

}  // namespace

Tensor concat(const std::vector<Tensor>& tensors, int64_t axis, const Call& call) {
  const char* me = "concat";
  MINIDNN_CHECK(ShapeError, !tensors.empty(), me, ": there is nothing to put together");
  const TensorDesc& first = tensors.front().desc;
  const int64_t dim = axis < 0 ? axis + first.rank : axis;
  MINIDNN_CHECK(ShapeError, 0 <= dim && dim < first.rank, me, ": axis=", axis, " is no dimension of ",
                shape_text(first));
  Handle& h = handle_for(call.handle, tensors.front().place(), me, "the first tensor");
  Shape shape(first.shape, first.shape + first.rank);
  shape[size_t(dim)] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    MINIDNN_CHECK(DeviceError, t.place() == h.place(), me, ": the first tensor is on ", name(h.place()), ", tensor ", i,
                  " on ", name(t.place()));
    MINIDNN_CHECK(DTypeError, t.desc.dtype == first.dtype, me, ": the first tensor is ", name(first.dtype), ", tensor ",
                  i, " ", name(t.desc.dtype));
    bool alike = t.desc.rank == first.rank;
    for (int d = 0; alike && d < first.rank; ++d) alike = d == dim || t.desc.shape[d] == first.shape[d];
    MINIDNN_CHECK(ShapeError, alike, me, ": the first tensor is ", shape_text(first), ", so all but dimension ", dim,
                  " of tensor ", i, " must be so, too; got ", shape_text(t.desc));
    shape[size_t(dim)] += t.desc.shape[dim];
  }
  Tensor y = output(me, "out", call.out, dense(first.dtype, shape, preferred_layout(first), "concat: result"), h, {});
  for (size_t i = 0; i < tensors.size(); ++i)
    MINIDNN_CHECK(ShapeError, !share_memory(y, tensors[i]), me, ": out shares memory with tensor ", i,
                  "; pass another tensor");
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    t.storage->used_on(h.stream());
    copy(h, Piece(t), Piece(y).along(int(dim), at, t.desc.shape[dim]));
    at += t.desc.shape[dim];
  }
  return y;
}

PadMode pad_mode(const std::string& word, const char* call) {
  constexpr const char* kWords[] = {"constant", "replicate", "reflect"};
  const auto at = std::ranges::find(kWords, word);
  MINIDNN_CHECK(ShapeError, at != std::end(kWords), call, ": mode '", word,
                "' is not 'constant', 'replicate' or 'reflect'");
  return PadMode(at - kWords);
}

// Dimension after dimension: those before are whole already, those behind still x's own.
Tensor pad(const Tensor& x, const std::vector<Sides>& widths, PadMode mode, double value, const Call& call) {
  const char* me = "pad";
  Handle& h = handle_for(call.handle, x.place(), me, "x");
  MINIDNN_CHECK(ShapeError, std::ssize(widths) == x.desc.rank, me, ": x ", shape_text(x.desc), " needs widths for ",
                x.desc.rank, " dimensions; there are ", widths.size());
  Shape shape(x.desc.shape, x.desc.shape + x.desc.rank);
  for (int d = 0; d < x.desc.rank; ++d) {
    const auto [before, after] = widths[size_t(d)];
    const int64_t n = x.desc.shape[d], most = mode == PadMode::reflect ? n - 1 : n == 0 ? 0 : INT64_MAX;
    MINIDNN_CHECK(ShapeError, before >= 0 && after >= 0, me, ": widths are at least 0; got (", before, ", ", after,
                  ") for dimension ", d);
    MINIDNN_CHECK(ShapeError, mode == PadMode::constant || max_of(before, after) <= max_of<int64_t>(most, 0), me,
                  ": dimension ", d, " of x ", shape_text(x.desc), " has too few elements to give ",
                  max_of(before, after), mode == PadMode::reflect ? " beside its edge" : " of its edge");
    MINIDNN_CHECK(ShapeError, before <= kMaxAttribute && after <= kMaxAttribute, me, ": a width is below 2^31; got (",
                  before, ", ", after, ")");
    shape[size_t(d)] += before + after;
  }
  Tensor y =
      output(me, "out", call.out, dense(x.desc.dtype, shape, preferred_layout(x.desc), "pad: result"), h, {{"x", x}});
  if (y.desc.numel() == 0) return y;
  x.storage->used_on(h.stream());
  Piece inside(y);
  for (int d = 0; d < x.desc.rank; ++d) inside = inside.along(d, widths[size_t(d)].before, x.desc.shape[d]);
  copy(h, Piece(x), inside);
  std::optional<Tensor> constant;
  if (mode == PadMode::constant) {
    constant = transform(scalar_of(value), 1, 0, x.desc.dtype, {}, {});
    if (h.place().is_cuda) {  // on this call's stream, as all that follows
      Tensor there = empty(constant->desc, h.place(), h.stream(), me, "value");
      memory_of(h.place()).copy(there.data, constant->data, itemsize(x.desc.dtype), h.stream());
      constant = there;
    }
    constant->desc.rank = x.desc.rank;
    for (int d = 0; d < x.desc.rank; ++d) constant->desc.shape[d] = 1, constant->desc.stride[d] = 0;
  }
  for (int d = 0; d < x.desc.rank; ++d) {
    const auto [before, after] = widths[size_t(d)];
    const int64_t n = x.desc.shape[d], end = before + n;
    Piece line(y);  // whole in dimensions up to this one
    for (int e = d + 1; e < x.desc.rank; ++e) line = line.along(e, widths[size_t(e)].before, x.desc.shape[e]);
    auto fill = [&](int64_t first, int64_t count, int64_t edge, int64_t opposite) {
      const Piece to = line.along(d, first, count);
      if (count == 0) return;
      if (mode == PadMode::constant) {
        Piece from(*constant);
        for (int e = 0; e < x.desc.rank; ++e) from.desc.shape[e] = to.desc.shape[e];
        copy(h, from, to);
      } else if (mode == PadMode::replicate) {
        copy(h, line.along(d, edge, count, 0), to);
      } else {
        copy(h, line.along(d, opposite, count, -1), to);
      }
    };
    fill(0, before, before, 2 * before);
    fill(end, after, end - 1, end - 2);
  }
  return y;
}

}  // namespace minidnn
