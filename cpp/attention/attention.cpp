// SPDX-License-Identifier: Apache-2.0
#include "cpp/attention/attention.h"

#include <cmath>

namespace minidnn {
namespace {

using OptionalTensor = AttentionOptions::OptionalTensor;

TensorDesc contiguous(DType t, std::initializer_list<int64_t> shape) {
  return dense(t, shape, Layout::channels_first, "attention");
}

// Returns a description with the sizes `shape`, dense in the order of the strides of `like`.
TensorDesc in_order_of(const TensorDesc& like, DType t, std::array<int64_t, 4> shape) {
  std::array<int, 4> order{0, 1, 2, 3};
  std::ranges::stable_sort(order, std::greater{},
                           [&](int i) { return like.shape[i] == 1 ? 0 : std::abs(like.stride[i]); });
  // Dimensions of size 1 have no order. They keep their places among the others.
  std::array<int, 4> sorted{};
  size_t next = 0;
  for (int i = 0; i < 4; ++i)
    if (like.shape[i] == 1) sorted[size_t(i)] = i;
  for (int i = 0; i < 4; ++i) {
    if (like.shape[i] == 1) continue;
    while (like.shape[order[next]] == 1) ++next;
    sorted[size_t(i)] = order[next++];
  }
  TensorDesc d{t, 4};
  int64_t stride = 1;
  for (int i = 3; i >= 0; --i) {
    const int of = sorted[size_t(i)];
    d.shape[of] = shape[size_t(of)];
    d.stride[of] = stride;
    stride *= std::max(shape[size_t(of)], int64_t(1));
  }
  return d;
}

// How the caller's dimensions become [B, H, S, D].
enum class Dimensions { bhsd, bshd, packed };

// Returns the tensor as [B, H, S, D], and the other way round. Both exchange rows and heads.
Tensor as_bhsd(Tensor t, Dimensions from) {
  TensorDesc& d = t.desc;
  if (from == Dimensions::packed) {
    for (int i = 3; i > 0; --i) {
      d.shape[i] = d.shape[i - 1];
      d.stride[i] = d.stride[i - 1];
    }
    d.rank = 4;
    d.shape[0] = 1;
    d.stride[0] = std::max(d.shape[1], int64_t(1)) * d.stride[1];
  }
  if (from != Dimensions::bhsd) {
    std::swap(d.shape[1], d.shape[2]);
    std::swap(d.stride[1], d.stride[2]);
  }
  return t;
}
Tensor from_bhsd(Tensor t, Dimensions to) {
  TensorDesc& d = t.desc;
  if (to != Dimensions::bhsd) {
    std::swap(d.shape[1], d.shape[2]);
    std::swap(d.stride[1], d.stride[2]);
  }
  if (to == Dimensions::packed) {
    for (int i = 0; i < 3; ++i) {
      d.shape[i] = d.shape[i + 1];
      d.stride[i] = d.stride[i + 1];
    }
    d.rank = 3;
    d.shape[3] = d.stride[3] = 0;
  }
  return t;
}

// A call while its arguments are checked.
struct Checked {
  const char* call;
  const AttentionOptions& options;
  Handle& handle;
  Dimensions dimensions;
  AttentionProblem p{};
  AttentionArgs args{};
  std::vector<Operand> inputs{};  // tensors that results must not overlap
  // The names of arguments in error messages.
  const char *k_name = "k", *v_name = "v", *kv_lengths_name = "kv_lengths";
  bool is_decode() const { return p.direction == AttentionDirection::decode; }

  // Checks a tensor that does not have the dtype of q: its device, dtype, shape, and that it is contiguous.
  void take(const char* label, const Tensor& t, DType dtype, std::initializer_list<int64_t> shape, const char* why,
            const void*& to) {
    MINIDNN_CHECK(DeviceError, t.place() == handle.place(), call, ": q is on ", name(handle.place()), ", ", label,
                  " is on ", name(t.place()), "; move one with .to(device=...)");
    MINIDNN_CHECK(DTypeError, t.desc.dtype == dtype, call, ": ", label, " must be ", name(dtype), "; got ",
                  name(t.desc.dtype));
    check_shape(call, {label, t}, {shape.begin(), shape.size()}, why);
    MINIDNN_CHECK(ShapeError, is_row_major(t.desc), call, ": ", label, " must be contiguous; its strides are [",
                  join(strides_of(t.desc)), "]");
    use(t, handle.stream());
    inputs.push_back({label, t});
    to = t.data;
  }

  void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
    const int64_t rank = dimensions == Dimensions::packed ? 3 : 4;
    const char* const wanted = dimensions == Dimensions::packed
                                   ? "cu_q is given, so q, k and v must be [rows, heads, D]"
                                   : "q, k and v must have 4 dimensions";
    for (const Operand& o : {Operand{"q", q}, Operand{k_name, k}, Operand{v_name, v}})
      MINIDNN_CHECK(ShapeError, o.tensor.desc.rank == rank, call, ": ", wanted, "; got ", o.name, ' ',
                    shape_text(o.tensor.desc));
    p.q = as_bhsd(q, dimensions).desc;
    p.k = as_bhsd(k, dimensions).desc;
    p.v = as_bhsd(v, dimensions).desc;
    const auto equal = [&](const char* what, int i, const Tensor& a, const char* a_name, const TensorDesc& a_desc,
                           const Tensor& b, const char* b_name, const TensorDesc& b_desc) {
      MINIDNN_CHECK(ShapeError, a_desc.shape[i] == b_desc.shape[i], call, ": ", a_name, ' ', shape_text(a.desc),
                    " and ", b_name, ' ', shape_text(b.desc), " must have equal ", what, "; got ", a_desc.shape[i],
                    " and ", b_desc.shape[i]);
    };
    if (!options.pages) equal("batch sizes", 0, q, "q", p.q, k, k_name, p.k);
    equal(options.pages ? "numbers of pages" : "batch sizes", 0, k, k_name, p.k, v, v_name, p.v);
    equal("numbers of heads", 1, k, k_name, p.k, v, v_name, p.v);
    equal("numbers of rows", 2, k, k_name, p.k, v, v_name, p.v);
    equal("head sizes", 3, q, "q", p.q, k, k_name, p.k);
    MINIDNN_CHECK(ShapeError, p.kv_heads() > 0 && p.heads() % p.kv_heads() == 0, call, ": q has ", p.heads(),
                  " heads, ", k_name, " has ", p.kv_heads(), "; heads of q must be a multiple of those of ", k_name);
    for (const Operand& o : {Operand{"q", q}, Operand{v_name, v}}) {
      const int64_t size = o.tensor.desc.shape[rank - 1];
      MINIDNN_CHECK(ShapeError, 1 <= size && size <= kAttentionMostHead, call, ": ", o.name, ' ',
                    shape_text(o.tensor.desc), " has heads of ", size, " elements; supported are 1 to ",
                    kAttentionMostHead);
    }
    args.q = q.data;
    args.k = k.data;
    args.v = v.data;
    for (const Operand& o : {Operand{"q", q}, Operand{k_name, k}, Operand{v_name, v}}) inputs.push_back(o);
  }

  void check_lengths() {
    const AttentionOptions& o = options;
    MINIDNN_CHECK(ShapeError, o.cu_q.has_value() == o.cu_kv.has_value(), call,
                  ": cu_q and cu_kv must be given together");
    if (!o.cu_q) {
      MINIDNN_CHECK(ShapeError, !o.max_q && !o.max_kv, call,
                    ": max_q and max_kv are for packed sequences; cu_q is not given");
    } else {
      MINIDNN_CHECK(ShapeError, !o.q_lengths && !o.kv_lengths, call,
                    ": cu_q is given, so q_lengths and kv_lengths must not be");
      MINIDNN_CHECK(ShapeError, o.max_q && o.max_kv, call, ": cu_q is given, so max_q and max_kv must be, too");
      MINIDNN_CHECK(ShapeError, *o.max_q >= 0 && *o.max_kv >= 0, call, ": max_q and max_kv must not be negative; got ",
                    *o.max_q, " and ", *o.max_kv);
      MINIDNN_CHECK(ShapeError, o.cu_q->desc.rank == 1 && o.cu_q->desc.shape[0] >= 2, call,
                    ": cu_q must be [sequences + 1] with at least one sequence; got ", shape_text(o.cu_q->desc));
      p.packed = o.cu_q->desc.shape[0] - 1;
      p.max_q = *o.max_q;
      p.max_kv = *o.max_kv;
      take("cu_q", *o.cu_q, DType::int32, {p.packed + 1}, "for the sequences", args.cu_q);
      take("cu_kv", *o.cu_kv, DType::int32, {p.packed + 1}, "like cu_q", args.cu_kv);
    }
    if (o.q_lengths) take("q_lengths", *o.q_lengths, DType::int32, {p.batch()}, "for the batch", args.q_lengths);
    if (o.kv_lengths) take(kv_lengths_name, *o.kv_lengths, DType::int32, {p.batch()}, "for the batch", args.kv_lengths);
    p.has_q_lengths = o.q_lengths.has_value();
    p.has_kv_lengths = o.kv_lengths.has_value();
    constexpr int64_t kMost = int64_t(1) << 29;
    MINIDNN_CHECK(ShapeError, p.q_size() <= kMost && p.kv_size() <= kMost, call,
                  ": sequences must have at most 2^29 rows; got ", p.q_size(), " of q and ", p.kv_size(), " of k");
  }

  void check_window() {
    const AttentionOptions& o = options;
    MINIDNN_CHECK(ShapeError, o.align == "top_left" || o.align == "bottom_right", call,
                  ": align must be 'top_left' or 'bottom_right'; got '", o.align, "'");
    MINIDNN_CHECK(ShapeError, !is_decode() || !o.left || *o.left >= 0, call, ": window must not be negative; got ",
                  *o.left);
    for (const auto& [label, size] : {std::pair("left", o.left), std::pair("right", o.right)})
      MINIDNN_CHECK(ShapeError, !size || *size >= 0, call,
                    ": window must be two sizes that are not negative, or None; its ", label, " size is ", *size);
    const int64_t most = p.q_size() + p.kv_size();  // a larger window hides nothing
    p.bottom_right = o.align == "bottom_right";
    p.left = o.left && *o.left < most ? *o.left : -1;
    p.right = o.causal ? 0 : o.right && *o.right < most ? *o.right : -1;
  }

  void check_scores() {
    const AttentionOptions& o = options;
    args.scale = o.scale.value_or(1 / std::sqrt(double(p.head_size())));
    MINIDNN_CHECK(ShapeError, std::isfinite(args.scale), call, ": scale must be finite; got ", args.scale);
    p.negative_scale = !(args.scale > 0);
    MINIDNN_CHECK(ShapeError, std::isfinite(o.softcap) && o.softcap >= 0, call,
                  ": softcap must be finite and not negative; got ", o.softcap);
    p.has_softcap = o.softcap > 0;
    args.softcap = o.softcap;
    const DType sums = sum_dtype(p.q.dtype);
    if (o.bias) check_bias(*o.bias);
    if (o.alibi) {
      p.alibi = o.alibi->desc.rank == 2 ? 2 : 1;
      if (p.alibi == 2) take("alibi", *o.alibi, sums, {p.batch(), p.heads()}, "or [heads]", args.alibi);
      else take("alibi", *o.alibi, sums, {p.heads()}, "or [batch, heads]", args.alibi);
    }
    if (o.sink) take("sink", *o.sink, sums, {p.heads()}, "for the heads of q", args.sink);
    p.has_sink = o.sink.has_value();
    MINIDNN_CHECK(ShapeError, 0 <= o.dropout && o.dropout < 1, call, ": dropout must be at least 0 and below 1; got ",
                  o.dropout);
    MINIDNN_CHECK(ShapeError, o.seed >= 0 && o.offset >= 0, call, ": seed and offset must not be negative; got ",
                  o.seed, " and ", o.offset);
    p.has_dropout = o.dropout > 0;
    if (!p.has_dropout) return;
    args.seed = uint64_t(o.seed);
    args.offset = uint64_t(o.offset);
    args.threshold = uint64_t(o.dropout * 0x1p32);
    args.keep = 1 / (1 - o.dropout);
  }

  void check_bias(const Tensor& bias) {
    const DType t = bias.desc.dtype;
    MINIDNN_CHECK(DeviceError, bias.place() == handle.place(), call, ": q is on ", name(handle.place()),
                  ", bias is on ", name(bias.place()), "; move one with .to(device=...)");
    MINIDNN_CHECK(
        DTypeError, t == DType::boolean || t == DType::float32 || t == p.q.dtype, call,
        ": bias must be bool (false hides)",
        p.q.dtype == DType::float32 ? " or float32" : cat(", float32 or ", name(p.q.dtype), ", the dtype of q"),
        "; got ", name(t));
    const int64_t full[] = {p.batch(), p.heads(), p.q_size(), p.kv_size()};
    bool fits = bias.desc.rank <= 4;
    p.bias = {t, 4, {1, 1, 1, 1}, {}};
    for (int64_t i = bias.desc.rank - 1, to = 3; fits && i >= 0; --i, --to) {
      const int64_t size = bias.desc.shape[i];
      fits = size == 1 || size == full[to];
      p.bias.shape[to] = size;
      p.bias.stride[to] = size == 1 ? 0 : bias.desc.stride[i];
    }
    MINIDNN_CHECK(ShapeError, fits, call, ": bias ", shape_text(bias.desc), " does not broadcast to the scores [",
                  join(full), "]");
    use(bias, handle.stream());
    inputs.push_back({"bias", bias});
    args.bias = bias.data;
  }

  void check_all(const Tensor& q, const Tensor& k, const Tensor& v) {
    check_shapes(q, k, v);
    if (options.pages) check_pages(*options.pages);
    check_lengths();
    check_window();
    check_scores();
    const int64_t rows = p.q.shape[2];
    const DType sums = sum_dtype(p.q.dtype);
    p.lse = p.packed ? contiguous(sums, {p.heads(), rows}) : contiguous(sums, {p.batch(), p.heads(), rows});
    p.o = in_order_of(p.q, p.q.dtype, {p.q.shape[0], p.heads(), rows, p.value_size()});
    p.ieee = p.q.dtype == DType::float32 && handle.options().math == Math::ieee;
  }

  void check_pages(const Tensor& pages) {
    MINIDNN_CHECK(ShapeError, pages.desc.rank == 2, call, ": pages must be [batch, pages of a sequence]; got ",
                  shape_text(pages.desc));
    MINIDNN_CHECK(ShapeError, p.k.shape[2] > 0 && p.k.shape[2] % 16 == 0, call, ": ", k_name, " has pages of ",
                  p.k.shape[2], " rows; the page size must be a multiple of 16");
    take("pages", pages, DType::int32, {p.q.shape[0], pages.desc.shape[1]}, "for the batch", args.pages);
    p.pages_of_sequence = pages.desc.shape[1];
    if (p.pages_of_sequence == 0) {  // there are no columns
      p.k.shape[0] = p.v.shape[0] = p.q.shape[0];
      p.k.shape[2] = p.v.shape[2] = 0;
      return;
    }
    MINIDNN_CHECK(ShapeError, p.k.shape[0] > 0 || p.q.shape[0] == 0, call, ": ", k_name, " has no pages");
  }

  Tensor result(const char* label, const OptionalTensor& out, const TensorDesc& want) {
    // The caller's tensor has the caller's dimensions, so `want` takes them for the checks.
    const Tensor like = from_bhsd(Tensor{want}, want.rank == 4 ? dimensions : Dimensions::bhsd);
    Tensor made = output(call, label, out, like.desc, handle, {});
    for (const Operand& o : inputs)
      MINIDNN_CHECK(ShapeError, !out || !share_memory(made, o.tensor), call, ": ", label, " shares memory with ",
                    o.name, "; pass another tensor");
    return made;
  }
  // The problem of a call knows the alignment of all tensors that have the dtype of q.
  void align(std::initializer_list<const void*> others) {
    p.alignment = alignment_of(handle, {args.q, args.k, args.v, args.o});
    p.alignment = std::min(p.alignment, alignment_of(handle, others));
  }
};

Dimensions dimensions_of(const char* call, const AttentionOptions& o) {
  MINIDNN_CHECK(ShapeError, o.layout == "bhsd" || o.layout == "bshd", call, ": layout must be 'bhsd' or 'bshd'; got '",
                o.layout, "'");
  return o.cu_q ? Dimensions::packed : o.layout == "bshd" ? Dimensions::bshd : Dimensions::bhsd;
}

std::pair<Tensor, Tensor> compute(Checked& c, const Call& call) {
  AttentionProblem& p = c.p;
  Tensor o = c.result("out", call.out, p.o);
  Tensor lse = c.result("lse", {}, p.lse);
  p.o = as_bhsd(o, c.dimensions).desc;
  c.args.o = o.data;
  c.args.lse = lse.data;
  c.align({});
  if (p.o.numel() > 0) run(c.handle, p, c.args, call.algo);
  return {o, lse};
}

}  // namespace

std::string Family<AttentionProblem>::text(const AttentionProblem& p) {
  constexpr const char* directions[] = {"forward", "backward", "decode"};
  std::string text = cat(head_text(name, directions[int64_t(p.direction)], p.q.dtype), " q=", problem_text(p.q),
                         " k=", problem_text(p.k), " v=", problem_text(p.v));
  if (p.left >= 0) text += cat(" left=", p.left);
  if (p.right >= 0 && p.direction != AttentionDirection::decode) text += cat(" right=", p.right);
  if (p.bottom_right && p.direction != AttentionDirection::decode) text += " bottom_right";
  if (p.bias.rank) text += cat(" bias=", short_name(p.bias.dtype), ':', problem_text(p.bias));
  if (p.alibi) text += p.alibi == 2 ? cat(" alibi=", p.batch(), 'x', p.heads()) : cat(" alibi=", p.heads());
  if (p.has_softcap) text += " softcap";
  if (p.has_sink) text += " sink";
  if (p.has_dropout) text += " dropout";
  if (p.has_q_lengths) text += " q_lengths";
  if (p.has_kv_lengths && p.direction != AttentionDirection::decode) text += " kv_lengths";
  if (p.packed) text += cat(" packed=", p.packed, " max=", p.max_q, ',', p.max_kv);
  if (p.pages_of_sequence) text += cat(" pages=", p.q.shape[0], 'x', p.pages_of_sequence);
  if (p.dbias.rank) text += " bias_gradient";
  if (p.negative_scale) text += " negative_scale";
  if (p.ieee) text += " math=ieee";
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  const TensorDesc o = in_order_of(p.q, p.q.dtype, {p.q.shape[0], p.heads(), p.q.shape[2], p.value_size()});
  if (!same_strides(p.o, o)) text += " o=" + problem_text(p.o);
  if (p.d_o.rank && !same_strides(p.d_o, o)) text += " do=" + problem_text(p.d_o);
  return text;
}

void Family<AttentionProblem>::ports(const AttentionProblem& p, AttentionArgs& a, Ports& v) {
  const auto optional = [&](bool given, const char* label, const TensorDesc& d, const void*& slot) {
    if (given) v.in(label, d, slot);
    else v.unused(slot);
  };
  const bool backward = p.direction == AttentionDirection::backward;
  const TensorDesc heads = contiguous(p.lse.dtype, {p.heads()}), batch = contiguous(DType::int32, {p.batch()});
  const TensorDesc ends = contiguous(DType::int32, {p.packed + 1});
  optional(backward, "do", p.d_o, a.d_o);
  v.in("q", p.q, a.q);
  v.in("k", p.k, a.k);
  v.in("v", p.v, a.v);
  if (backward) {
    v.in("o", p.o, a.o);
    v.in("lse", p.lse, a.lse);
  }
  optional(p.bias.rank > 0, "bias", p.bias, a.bias);
  optional(p.alibi > 0, "alibi", p.alibi == 2 ? contiguous(p.lse.dtype, {p.batch(), p.heads()}) : heads, a.alibi);
  optional(p.has_sink, "sink", heads, a.sink);
  // find() times engines with full lengths, with packed sequences of equal lengths, and with pages in order.
  const auto integers = [&](bool given, const char* label, const TensorDesc& d, const void*& slot, auto usual) {
    if (given) v.integers(label, d, slot, usual);
    else v.unused(slot);
  };
  const char* const lengths = p.direction == AttentionDirection::decode ? "lengths" : "kv_lengths";
  const TensorDesc table = contiguous(DType::int32, {p.batch(), p.pages_of_sequence});
  integers(p.has_q_lengths, "q_lengths", batch, a.q_lengths, [&](int64_t) { return p.q_size(); });
  integers(p.has_kv_lengths, lengths, batch, a.kv_lengths, [&](int64_t) { return p.kv_size(); });
  integers(p.packed > 0, "cu_q", ends, a.cu_q, [&](int64_t i) { return i * p.q.shape[2] / p.packed; });
  integers(p.packed > 0, "cu_kv", ends, a.cu_kv, [&](int64_t i) { return i * p.k.shape[2] / p.packed; });
  integers(p.pages_of_sequence > 0, "pages", table, a.pages, [&](int64_t i) { return i % p.k.shape[0]; });
  if (!backward) {
    v.out("o", p.o, a.o);
    v.out("lse", p.lse, a.lse);
    for (void** slot : {&a.dq, &a.dk, &a.dv, &a.dbias, &a.dsink}) v.unused(*slot);
  } else {
    v.out("dq", p.dq, a.dq);
    v.out("dk", p.dk, a.dk);
    v.out("dv", p.dv, a.dv);
    if (p.dbias.rank) v.out("dbias", p.dbias, a.dbias);
    else v.unused(a.dbias);
    if (p.has_sink) v.out("dsink", heads, a.dsink);
    else v.unused(a.dsink);
  }
  v.number("scale", a.scale, p.negative_scale ? -0.1 : 0.1);
  v.number("softcap", a.softcap, p.has_softcap ? 30 : 0);
  v.seed("seed", a.seed);
  v.seed("offset", a.offset);
  v.bits(a.threshold, p.has_dropout ? uint64_t(1) << 29 : 0);
  v.number("keep", a.keep, p.has_dropout ? 1 / (1 - 0.125) : 1);
}

std::pair<Tensor, Tensor> attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, const Call& call) {
  const char* me = "attention_forward";
  Handle& h = check_operands(me, call, {{"q", q}, {"k", k}, {"v", v}});
  Checked c{me, options, h, dimensions_of(me, options)};
  c.check_all(q, k, v);
  return compute(c, call);
}

std::pair<Tensor, Tensor> attention_decode(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths,
                                           const AttentionOptions& given, const Call& call) {
  const char* me = "attention_decode";
  Handle& h = check_operands(me, call, {{"q", q}, {"k_cache", k}, {"v_cache", v}});
  AttentionOptions options = given;
  options.kv_lengths = lengths;
  options.causal = true;
  options.align = "bottom_right";
  Checked c{me, options, h, dimensions_of(me, options)};
  c.p.direction = AttentionDirection::decode;
  c.k_name = "k_cache";
  c.v_name = "v_cache";
  c.kv_lengths_name = "lengths";
  c.check_all(q, k, v);
  constexpr int64_t kMostRows = 16;
  MINIDNN_CHECK(ShapeError, c.p.q_size() <= kMostRows, me, ": q ", shape_text(q.desc), " has ", c.p.q_size(),
                " rows of a sequence; at most ", kMostRows, " are supported");
  return compute(c, call);
}

AttentionGradients attention_backward(const Tensor& d_o, const AttentionForward& f, bool bias_gradient,
                                      const AttentionOptions& options, const Call& call) {
  const char* me = "attention_backward";
  Handle& h = check_operands(me, call, {{"q", f.q}, {"k", f.k}, {"v", f.v}, {"do", d_o}, {"o", f.o}});
  Checked c{me, options, h, dimensions_of(me, options)};
  AttentionProblem& p = c.p;
  p.direction = AttentionDirection::backward;
  c.check_all(f.q, f.k, f.v);
  const TensorDesc of_o = from_bhsd(Tensor{p.o}, c.dimensions).desc;
  check_shape(me, {"o", f.o}, shape_of(of_o), "like the result of attention_forward");
  check_shape(me, {"do", d_o}, shape_of(of_o), "like o");
  const void* lse = nullptr;
  MINIDNN_CHECK(DTypeError, f.lse.desc.dtype == p.lse.dtype, me, ": lse must be ", name(p.lse.dtype), "; got ",
                name(f.lse.desc.dtype));
  if (p.packed)
    c.take("lse", f.lse, p.lse.dtype, {p.heads(), p.q.shape[2]}, "like the result of attention_forward", lse);
  else
    c.take("lse", f.lse, p.lse.dtype, {p.batch(), p.heads(), p.q.shape[2]}, "like the result of attention_forward",
           lse);
  MINIDNN_CHECK(ShapeError, !bias_gradient || (options.bias && options.bias->desc.dtype != DType::boolean), me,
                ": bias_gradient needs a bias of floating-point numbers; ",
                options.bias ? "the bias is bool" : "bias is not given");
  p.o = as_bhsd(f.o, c.dimensions).desc;
  p.d_o = as_bhsd(d_o, c.dimensions).desc;

  AttentionGradients g;
  const auto gradient = [&](const char* label, const TensorDesc& of, TensorDesc& to, void*& slot) {
    Tensor t = c.result(label, {}, in_order_of(of, of.dtype, {of.shape[0], of.shape[1], of.shape[2], of.shape[3]}));
    to = as_bhsd(t, c.dimensions).desc;
    slot = t.data;
    return t;
  };
  g.dq = gradient("dq", p.q, p.dq, c.args.dq);
  g.dk = gradient("dk", p.k, p.dk, c.args.dk);
  g.dv = gradient("dv", p.v, p.dv, c.args.dv);
  if (bias_gradient) {
    const TensorDesc& b = p.bias;
    g.dbias = empty(dense(b.dtype, shape_of(options.bias->desc), Layout::channels_first, me), h.place(), h.stream(), me,
                    "dbias");
    p.dbias = contiguous(b.dtype, {b.shape[0], b.shape[1], b.shape[2], b.shape[3]});
    c.args.dbias = g.dbias->data;
  }
  if (options.sink) {
    g.dsink = empty(contiguous(p.lse.dtype, {p.heads()}), h.place(), h.stream(), me, "dsink");
    c.args.dsink = g.dsink->data;
  }
  c.args.d_o = d_o.data;
  c.args.o = f.o.data;
  c.args.lse = const_cast<void*>(lse);
  c.align({c.args.d_o, c.args.dq, c.args.dk, c.args.dv});
  const bool nothing =
      p.dq.numel() + p.dk.numel() + p.dv.numel() + p.dbias.numel() * (p.dbias.rank > 0) == 0 && !options.sink;
  if (!nothing) run(h, p, c.args, call.algo);
  return g;
}

double attention_pairs(const AttentionProblem& p) {
  AttentionSequence s{0, 0, 0, p.q_size(), p.kv_size(), 0};
  if (p.bottom_right) s.shift = s.kv_length - s.q_length;
  // The mean over some rows.
  const int64_t samples = std::min(p.q_size(), int64_t(64));
  double columns = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const AttentionRange seen = attention::columns_of(p, s, (2 * i + 1) * p.q_size() / (2 * samples));
    columns += double(seen.end - seen.begin);
  }
  return samples ? columns / double(samples) * double(p.q_size()) * double(p.heads()) * attention_sequences(p) : 0;
}

double attention_sequences(const AttentionProblem& p) {
  return p.packed ? std::max(1.0, double(p.q.shape[2]) / double(std::max(p.max_q, int64_t(1)))) : double(p.batch());
}

double attention_flop(const AttentionProblem& p) {
  const double once = 2.0 * double(p.head_size() + p.value_size()) * attention_pairs(p);
  return p.direction == AttentionDirection::backward ? 2.5 * once : once;
}

double attention_bytes(const AttentionProblem& p) {
  double bytes = 0;
  for (const TensorDesc* d : {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.dq, &p.dk, &p.dv, &p.lse, &p.bias, &p.dbias})
    if (d->rank) bytes += double(d->numel() * itemsize(d->dtype));
  return bytes;
}

}  // namespace minidnn
