// SPDX-License-Identifier: Apache-2.0
// The public function of pad.h: checks of the arguments, time estimates, the text that names a call in tuning files and
// tests, and the division of y into lines.
#include "cpp/pad/pad.h"

#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

constexpr const char* kModes[] = {"constant", "replicate", "reflect"};

int64_t after(const PadProblem& p, int64_t d) { return p.y.shape[d] - p.x.shape[d] - p.before[d]; }

}  // namespace

PadMode pad_mode(const std::string& word, const char* call) {
  const auto at = std::ranges::find(kModes, word);
  MINIDNN_CHECK(ShapeError, at != std::end(kModes), call, ": mode must be 'constant', 'replicate' or 'reflect'; got '",
                word, "'");
  return PadMode(at - kModes);
}

std::string Family<PadProblem>::text(const PadProblem& p) {
  std::vector<std::string> widths;
  for (int64_t d = 0; d < p.x.rank; ++d)
    widths.push_back(p.before[d] == after(p, d) ? cat(p.before[d]) : cat(p.before[d], ":", after(p, d)));
  if (std::ranges::all_of(widths, [&](const std::string& w) { return w == widths[0]; })) widths.resize(1, "0");
  std::string text = cat(head_text("pad", "forward", p.x.dtype), " x=", problem_text(p.x), " pad=", join(widths, ","),
                         " mode=", kModes[int64_t(p.mode)]);
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return text + out_text(p.y, dense(p.x.dtype, shape_of(p.y), preferred_layout(p.x), "pad"));
}

void Family<PadProblem>::ports(const PadProblem& p, PadArgs& a, Ports& v) {
  v.in("x", p.x, a.x);
  v.out("y", p.y, a.y);
  v.bits(a.value, 0);
}

Tensor pad(const Tensor& x, const std::vector<Sides>& widths, PadMode mode, double value, const Call& call) {
  const char* me = "pad";
  Handle& h = handle_for(call.handle, x.place(), me, "x");
  MINIDNN_CHECK(ShapeError, std::ssize(widths) == x.desc.rank, me, ": widths must have an entry for each of the ",
                x.desc.rank, " dimensions of x ", shape_text(x.desc), "; got ", widths.size());
  PadProblem p{x.desc};
  p.mode = mode;
  Shape shape(x.desc.shape, x.desc.shape + x.desc.rank);
  for (int d = 0; d < x.desc.rank; ++d) {
    const auto [before, after] = widths[size_t(d)];
    const int64_t n = x.desc.shape[d], most = mode == PadMode::reflect ? n - 1 : n == 0 ? 0 : INT64_MAX;
    MINIDNN_CHECK(ShapeError, before >= 0 && after >= 0, me, ": widths must be 0 or more; got (", before, ", ", after,
                  ") for dimension ", d);
    MINIDNN_CHECK(ShapeError, mode == PadMode::constant || max_of(before, after) <= max_of<int64_t>(most, 0), me,
                  ": widths of dimension ", d, " of x ", shape_text(x.desc), " must be at most ",
                  max_of<int64_t>(most, 0), " for mode '", kModes[int64_t(mode)], "'; got ", max_of(before, after));
    MINIDNN_CHECK(ShapeError, before <= kMaxAttribute && after <= kMaxAttribute, me,
                  ": widths must be below 2^31; got (", before, ", ", after, ")");
    shape[size_t(d)] += before + after;
    p.before[d] = before;
  }
  Tensor y =
      output(me, "out", call.out, dense(x.desc.dtype, shape, preferred_layout(x.desc), "pad: result"), h, {{"x", x}});
  p.y = y.desc;
  if (y.desc.numel() == 0) return y;
  p.alignment = alignment_of(h, {x.data, y.data});
  use(x, h.stream());
  PadArgs args{x.data, y.data};
  with_any(x.desc.dtype, [&](auto type) {
    const auto v = cast<typename decltype(type)::type>(value);
    std::memcpy(&args.value, &v, sizeof v);
  });
  run(h, p, args, call.algo);
  return y;
}

std::string pad_lines(const PadProblem& p, int64_t widest, PadLines& l, int64_t& word) {
  struct Dim {
    // One dimension: its sizes in y and x, the padding before x, and its strides in x and y.
    int64_t size, before, x_size, x, y;
    bool grows() const { return size != x_size; }
  };
  std::vector<Dim> dims;
  for (int d = 0; d < p.y.rank; ++d)
    if (p.y.shape[d] != 1) dims.push_back({p.y.shape[d], p.before[d], p.x.shape[d], p.x.stride[d], p.y.stride[d]});
  std::ranges::sort(dims, std::ranges::greater{}, &Dim::y);
  int64_t dense = 1;
  for (size_t i = dims.size(); i-- > 0; dense *= dims[i].size)
    if (dims[i].y != dense) return "needs a dense result";
  if (dims.empty() || p.x.numel() == 0) dims = {{dense, 0, p.x.numel(), 1, 1}};
  // Joins an outer dimension with the next inner one, if the inner one is not padded and x has no gap between the two.
  // A padded outer dimension is joined only if the padding is constant.
  for (size_t i = 0; i + 1 < dims.size();) {
    const Dim &outer = dims[i], &inner = dims[i + 1];
    if (!inner.grows() && outer.x == inner.x * inner.size && (!outer.grows() || p.mode == PadMode::constant)) {
      dims[i] = {outer.size * inner.size, outer.before * inner.size, outer.x_size * inner.size, inner.x, inner.y};
      dims.erase(dims.begin() + std::ptrdiff_t(i) + 1);
    } else ++i;
  }
  const int64_t item = int64_t(itemsize(p.x.dtype));
  Dim& line = dims.back();
  word = item;
  if (line.x == 1 && (!line.grows() || p.mode == PadMode::constant)) {
    int64_t all = widest | (line.size | line.before | line.x_size) * item;
    for (size_t i = 0; i + 1 < dims.size(); ++i) all |= dims[i].x * item;
    word = max_of(item, all & -all);
  }
  // The number of elements that are copied together as a word.
  const int64_t items = word / item;
  line.size /= items;
  line.before /= items;
  line.x_size /= items;
  for (size_t i = 0; i + 1 < dims.size(); ++i) dims[i].x /= items;
  // Lines extend along the innermost dimension of y, or along the next outer dimension if the innermost has a single
  // word.
  if (line.size == 1 && dims.size() > 1) dims.pop_back();

  l = {};
  l.mode = p.mode;
  l.words = p.y.numel() / items;
  const int64_t width = dims.back().size, lines = l.words / width;
  for (const Dim& d : dims)
    if (d.size >= int64_t(1) << 30) return cat("supports fewer than 2^30 words along a dimension; got ", d.size);
  if (lines > kMaxAttribute) return cat("supports at most 2^31 - 1 lines; got ", lines);
  if (double(l.words) * double(width) >= 0x1p63)
    return cat("supports results whose words times the words of a line are below 2^63; got ", l.words, " and ", width);
  l.width = LongDivisor(width);
  auto dimension = [](const Dim& d) { return PadDimension{int32_t(d.before), int32_t(d.x_size), d.x}; };
  l.line = dimension(dims.back());
  if (std::abs(l.line.x) * word > kMaxAttribute)
    return cat("supports a stride along a line of x of at most 2^31 - 1 bytes; got ", l.line.x * word);
  for (size_t i = dims.size() - 1, k = 0; i-- > 0; ++k) {
    l.outer[k] = FastDivmod(dims[i].size);
    l.along[k] = dimension(dims[i]);
    l.outers = int64_t(k) + 1;
  }
  return "";
}

double pad_bytes(const PadProblem& p) { return double(p.x.numel() + p.y.numel()) * double(itemsize(p.x.dtype)); }

}  // namespace minidnn
