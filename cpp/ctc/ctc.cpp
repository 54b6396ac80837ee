// SPDX-License-Identifier: Apache-2.0
#include "cpp/ctc/ctc.h"

namespace minidnn {
namespace {

constexpr const char* kReductions[] = {"none", "sum", "mean"};

TensorDesc contiguous(DType t, std::span<const int64_t> shape) {
  return dense(t, shape, Layout::channels_first, "ctc_loss");
}

// Returns [T, C] as [T, 1, C].
TensorDesc with_batch(TensorDesc d) {
  if (d.rank == 3) return d;
  d.rank = 3;
  d.shape[2] = d.shape[1];
  d.stride[2] = d.stride[1];
  d.shape[1] = 1;
  d.stride[1] = max_of(d.shape[2], int64_t(1)) * d.stride[2];
  return d;
}

// A call while its arguments are checked.
struct Checked {
  const char* call;
  Handle& handle;
  CtcProblem p{};
  CtcArgs args{};

  void check_place(const char* label, const Tensor& t) {
    MINIDNN_CHECK(DeviceError, t.place() == handle.place(), call, ": x is on ", name(handle.place()), ", ", label,
                  " is on ", name(t.place()), "; move one with .to(device=...)");
    use(t, handle.stream());
  }
  // Checks a tensor of int32 or int64.
  void check_integers(const char* label, const Tensor& t) {
    check_place(label, t);
    const DType d = t.desc.dtype;
    MINIDNN_CHECK(DTypeError, d == DType::int64 || d == DType::int32, call, ": ", label,
                  " must be int64 or int32; got ", name(d));
  }
  void check_contiguous(const char* label, const Tensor& t) {
    MINIDNN_CHECK(ShapeError, is_row_major(t.desc), call, ": ", label, " must be contiguous; its strides are [",
                  join(strides_of(t.desc)), "]");
  }
  TensorDesc lengths(const char* label, const Tensor& t, bool batched, const void*& to) {
    check_integers(label, t);
    const int64_t n = p.batch();
    if (batched || t.desc.rank != 0) check_shape(call, {label, t}, {&n, 1}, "for the sequences of x");
    check_contiguous(label, t);
    to = t.data;
    return contiguous(t.desc.dtype, {&n, 1});
  }
  // Checks a tensor that has the dtype of sums: float64 if x is float64, else float32.
  void check_sums(const char* label, const Tensor& t, std::span<const int64_t> shape) {
    check_place(label, t);
    MINIDNN_CHECK(DTypeError, t.desc.dtype == p.loss.dtype, call, ": ", label, " must be ", name(p.loss.dtype),
                  "; got ", name(t.desc.dtype));
    check_shape(call, {label, t}, shape, "like the result of ctc_loss_forward");
    check_contiguous(label, t);
  }

  void check(const Tensor& x, const CtcTargets& t, const CtcOptions& o) {
    check_rank(call, {"x", x}, 2, 3);
    const bool batched = x.desc.rank == 3;
    p.x = with_batch(x.desc);
    const auto found = std::ranges::find(kReductions, o.reduction);
    MINIDNN_CHECK(ShapeError, found != std::end(kReductions), call,
                  ": reduction must be 'none', 'sum' or 'mean'; got '", o.reduction, "'");
    p.reduction = CtcReduction(found - kReductions);
    MINIDNN_CHECK(ShapeError, p.classes() > 0, call, ": x ", shape_text(x.desc), " has no classes");
    MINIDNN_CHECK(ShapeError, 0 <= o.blank && o.blank < p.classes(), call, ": blank must be a class of x ",
                  shape_text(x.desc), ", from 0 to ", p.classes() - 1, "; got ", o.blank);
    p.blank = o.blank;
    p.logits = o.logits;
    p.zero_infinity = o.zero_infinity;
    check_integers("targets", t.targets);
    const TensorDesc& targets = t.targets.desc;
    MINIDNN_CHECK(ShapeError, targets.rank == 1 || (batched && targets.rank == 2 && targets.shape[0] == p.batch()),
                  call, ": targets must be ",
                  batched
                      ? cat("[", p.batch(), ", labels] for x ", shape_text(x.desc), ", or [labels of all sequences]")
                      : cat("[labels] for x ", shape_text(x.desc)),
                  "; got ", shape_text(targets));
    p.targets = targets;
    p.input_lengths = lengths("input_lengths", t.input_lengths, batched, args.input_lengths);
    p.target_lengths = lengths("target_lengths", t.target_lengths, batched, args.target_lengths);
    const DType sums = sum_dtype(x.desc.dtype);
    const int64_t states[] = {p.steps() * (2 * p.all_labels() + p.batch())}, rows[] = {p.steps(), p.batch()};
    p.alpha = contiguous(sums, states);
    if (p.logits) p.lse = contiguous(sums, rows);
    p.loss = p.reduction == CtcReduction::none ? contiguous(sums, {&rows[1], 1}) : contiguous(sums, {});
    args.x = x.data;
    args.targets = t.targets.data;
  }
  // The loss of one sequence, which x [T, C] describes, has no dimension.
  TensorDesc loss_like(const Tensor& x) const { return x.desc.rank == 2 ? contiguous(p.loss.dtype, {}) : p.loss; }
};

}  // namespace

std::string Family<CtcProblem>::text(const CtcProblem& p) {
  const bool backward = p.direction == CtcDirection::backward;
  std::string text = cat(head_text("ctc", backward ? "backward" : "forward", p.x.dtype), " x=", problem_text(p.x),
                         " targets=", problem_text(p.targets), " reduction=", kReductions[int64_t(p.reduction)]);
  if (p.blank != 0) text += cat(" blank=", p.blank);
  if (p.logits) text += " logits";
  if (p.zero_infinity) text += " zero_infinity";
  if (p.targets.dtype == DType::int32) text += " labels=i32";
  if (p.input_lengths.dtype == DType::int32) text += " input_lengths=i32";
  if (p.target_lengths.dtype == DType::int32) text += " target_lengths=i32";
  return backward ? text + out_text(p.dx, dense_like(p.x, p.x.dtype, name)) : text;
}

void Family<CtcProblem>::ports(const CtcProblem& p, CtcArgs& a, Ports& v) {
  v.in("x", p.x, a.x);
  // Labels that are no blanks, of which every third one is equal to the one before.
  const auto usual_label = [&](int64_t i) {
    return (p.blank + 1 + (i - i / 3) % max_of(p.classes() - 1, int64_t(1))) % p.classes();
  };
  if (is_row_major(p.targets)) v.integers("targets", p.targets, a.targets, usual_label);
  else v.in("targets", p.targets, a.targets);
  v.integers("input_lengths", p.input_lengths, a.input_lengths, [&](int64_t) { return p.steps(); });
  v.integers("target_lengths", p.target_lengths, a.target_lengths,
             [&](int64_t) { return p.concatenated() ? p.all_labels() / max_of(p.batch(), int64_t(1)) : p.longest(); });
  const bool backward = p.direction == CtcDirection::backward;
  const auto saved = [&](const char* label, const TensorDesc& d, void*& slot) {
    backward ? v.in(label, d, slot) : v.out(label, d, slot);
  };
  if (backward) v.in("dloss", p.loss, a.loss);
  else v.out("loss", p.loss, a.loss);
  saved("alpha", p.alpha, a.alpha);
  saved("exponents", p.alpha, a.exponents);
  if (p.logits) saved("lse", p.lse, a.lse);
  if (backward) v.out("dx", p.dx, a.dx);
}

CtcLoss ctc_loss_forward(const Tensor& x, const CtcTargets& t, const CtcOptions& o, const Call& call) {
  const char* me = "ctc_loss_forward";
  Checked c{me, check_operands(me, call, {{"x", x}})};
  c.check(x, t, o);
  const auto make = [&](const char* label, const TensorDesc& d) {
    return output(me, label, {}, d, c.handle, {{"x", x}, {"targets", t.targets}});
  };
  CtcLoss r{make("loss", c.loss_like(x)), {make("alpha", c.p.alpha), make("exponents", c.p.alpha), {}}};
  if (c.p.logits) r.saved.lse = make("lse", c.p.lse);
  if (c.p.loss.numel() == 0) return r;
  c.args.loss = r.loss.data;
  c.args.alpha = r.saved.alpha.data;
  c.args.exponents = r.saved.exponents.data;
  c.args.lse = c.p.logits ? r.saved.lse->data : nullptr;
  run(c.handle, c.p, c.args, call.algo);
  return r;
}

Tensor ctc_loss_backward(const Tensor& dloss, const Tensor& x, const CtcTargets& t, const CtcSaved& saved,
                         const CtcOptions& o, const Call& call) {
  const char* me = "ctc_loss_backward";
  Checked c{me, check_operands(me, call, {{"x", x}})};
  c.check(x, t, o);
  CtcProblem& p = c.p;
  p.direction = CtcDirection::backward;
  c.check_sums("dloss", dloss, shape_of(c.loss_like(x)));
  c.check_sums("alpha of saved", saved.alpha, shape_of(p.alpha));
  c.check_sums("exponents of saved", saved.exponents, shape_of(p.alpha));
  MINIDNN_CHECK(ShapeError, saved.lse.has_value() == (p.logits != 0), me, ": saved has ", saved.lse ? 3 : 2,
                " tensors; ctc_loss_forward returns ", p.logits ? 3 : 2, " with logits=", p.logits ? "True" : "False");
  if (saved.lse) c.check_sums("lse of saved", *saved.lse, shape_of(p.lse));
  Tensor dx = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), c.handle,
                     {{"x", x},
                      {"dloss", dloss},
                      {"targets", t.targets},
                      {"input_lengths", t.input_lengths},
                      {"target_lengths", t.target_lengths},
                      {"alpha of saved", saved.alpha},
                      {"exponents of saved", saved.exponents},
                      {"lse of saved", saved.lse ? *saved.lse : dloss}});
  p.dx = with_batch(dx.desc);
  if (dx.desc.numel() == 0) return dx;
  c.args.loss = dloss.data;
  c.args.alpha = saved.alpha.data;
  c.args.exponents = saved.exponents.data;
  c.args.lse = saved.lse ? saved.lse->data : nullptr;
  c.args.dx = dx.data;
  run(c.handle, p, c.args, call.algo);
  return dx;
}

double ctc_bytes(const CtcProblem& p) {
  const bool backward = p.direction == CtcDirection::backward;
  const double rows = double(p.x.numel() * itemsize(p.x.dtype));
  const double labels = double(p.steps() * (p.all_labels() + p.batch()) * itemsize(p.x.dtype));
  return (backward ? 2 * rows : p.logits ? rows : labels) + 2 * double(p.alpha.numel() * itemsize(p.alpha.dtype));
}
// A state takes about 30 FLOP forward and 50 backward; an exponential counts as 15.
double ctc_flop(const CtcProblem& p) {
  const bool backward = p.direction == CtcDirection::backward;
  const double dense = backward || p.logits ? 20 * double(p.x.numel()) : 0;
  return dense + (backward ? 50 : 30) * double(p.alpha.numel());
}

}  // namespace minidnn
