// SPDX-License-Identifier: Apache-2.0
#include "cpp/rnn/rnn.h"

#include <cmath>
#include <cstdlib>

#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

using OptionalTensor = RnnOptions::OptionalTensor;

constexpr const char* kModes[] = {"relu", "tanh", "lstm", "gru"};
constexpr const char* kWeightNames[] = {"w_ih", "w_hh", "b_ih", "b_hh"};

TensorDesc row_major(DType t, std::initializer_list<int64_t> shape) {
  return dense(t, shape, Layout::channels_first, "rnn");
}

// Exchanges the first two dimensions: [T, N, I] and [N, T, I].
TensorDesc exchanged(TensorDesc d) {
  std::swap(d.shape[0], d.shape[1]);
  std::swap(d.stride[0], d.stride[1]);
  return d;
}

// Describes a dense tensor with the rows of `like` and `features` columns. Steps come first in memory, or sequences if
// they do so in `like`.
TensorDesc with_features(const TensorDesc& like, int64_t features) {
  const int64_t *n = like.shape, *s = like.stride;
  if (like.rank == 2) return row_major(like.dtype, {n[0], features});
  if (n[0] > 1 && n[1] > 1 && std::abs(s[1]) > std::abs(s[0]))
    return exchanged(row_major(like.dtype, {n[1], n[0], features}));
  return row_major(like.dtype, {n[0], n[1], features});
}

// y of a layer, or a gradient of it, in the reserve or the workspace.
TensorDesc hidden_rows(const RnnProblem& p, DType t) {
  const int64_t features = p.directions * p.hidden;
  return p.packed ? row_major(t, {p.rows(), features}) : row_major(t, {p.steps, p.batch, features});
}

TensorDesc states_desc(const RnnProblem& p) {
  return row_major(p.x.dtype, {p.layers * p.directions, p.batch, p.hidden});
}
TensorDesc dgates_desc(const RnnProblem& p) {
  const int64_t gates = p.gate_gradients() * p.hidden;
  return p.packed ? row_major(p.x.dtype, {p.layers, p.directions, p.rows(), gates})
                  : row_major(p.x.dtype, {p.layers, p.directions, p.steps, p.batch, gates});
}
TensorDesc reserve_desc(const RnnProblem& p) { return row_major(DType::uint8, {RnnReserve(p).bytes}); }

// A weight: its layer, direction and kind, and its shape.
struct Weight {
  int64_t layer, direction, kind;
  TensorDesc desc;
  size_t slot() const { return size_t((layer * kRnnMostDirections + direction) * kRnnWeights + kind); }
  std::string text() const {
    return cat("(layer ", layer, direction ? ", backward, " : ", forward, ", kWeightNames[kind], ")");
  }
  // Such as "w_ih_l0", and "w_ih_l0_reverse" for the backward direction.
  std::string port() const { return cat(kWeightNames[kind], "_l", layer, direction ? "_reverse" : ""); }
};
std::vector<Weight> weights_of(const RnnProblem& p) {
  std::vector<Weight> all;
  const int64_t rows = p.gates() * p.hidden;
  for (int64_t layer = 0; layer < p.layers; ++layer)
    for (int64_t direction = 0; direction < p.directions; ++direction) {
      all.push_back({layer, direction, kInputWeight, row_major(p.x.dtype, {rows, p.input_size(layer)})});
      all.push_back({layer, direction, kHiddenWeight, row_major(p.x.dtype, {rows, p.hidden})});
      for (int64_t kind : {kInputBias, kHiddenBias})
        if (p.has_bias) all.push_back({layer, direction, kind, row_major(p.x.dtype, {rows})});
    }
  return all;
}

// The views of all weights in one tensor: the matrices come first, then the biases.
RnnWeights views_of(const Tensor& flat, const std::vector<Weight>& all) {
  RnnWeights views(all.size());
  auto* next = static_cast<char*>(flat.data);
  for (bool biases : {false, true})
    for (size_t i = 0; i < all.size(); ++i) {
      if ((all[i].kind >= kInputBias) != biases) continue;
      views[i] = {all[i].desc, next, flat.storage};
      next += views[i].nbytes();
    }
  return views;
}
int64_t elements_of(const std::vector<Weight>& all) {
  int64_t n = 0;
  for (const Weight& w : all) n += w.desc.numel();
  return n;
}

struct Workspace {
  int64_t lengths = 0, first_rows = 0, state = 0, q = 0, z = 0, dropped = 0, outputs[2] = {0, 0}, gradients = 0;
  int64_t bytes = 0;

  explicit Workspace(const RnnProblem& p) {
    const auto sums = int64_t(itemsize(sum_dtype(p.x.dtype))), size = int64_t(itemsize(p.x.dtype));
    const int64_t states = p.directions * p.batch * p.hidden, rows = p.rows() * p.directions * p.hidden;
    const bool forward = p.direction == RnnDirection::forward, data = p.direction == RnnDirection::backward_data;
    const auto take = [&](bool needed, int64_t& at, int64_t count) {
      at = bytes;
      if (needed) bytes += round_up(count, 16);
    };
    take(true, lengths, p.batch * 8);
    take(p.packed, first_rows, (p.steps + 1) * 8);
    take(forward || data, state, states * sums);
    take(forward && p.reset_before, q, states * sums);
    take(forward && p.reset_before, z, states * sums);
    take(p.has_dropout && !data, dropped, rows * size);
    for (int64_t i : {0, 1}) take(forward && !p.training && p.layers > i + 1, outputs[i], rows * size);
    take(data && p.layers > 1, gradients, rows * sums);
  }
};

// Returns the address `bytes` behind `data`, or null if `data` is null.
template <class T> T* behind(T* data, int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return data ? static_cast<Byte*>(data) + bytes : nullptr;
}

RnnLayer layer_of(const RnnProblem& p, const RnnArgs& a, void* workspace, int64_t index) {
  const Workspace w(p);
  const RnnReserve r(p);
  const bool is_last = index == p.layers - 1;
  const auto size = int64_t(itemsize(p.x.dtype)), sums = int64_t(itemsize(sum_dtype(p.x.dtype)));
  const int64_t rows = p.rows() * p.hidden * p.directions;
  const auto y_of = [&](int64_t layer) -> void* {
    if (layer == p.layers - 1) return a.y;
    return a.reserve ? behind(a.reserve, r.outputs + layer * rows * size) : behind(workspace, w.outputs[layer % 2]);
  };
  RnnLayer l;
  l.index = index;
  l.in = index ? hidden_rows(p, p.x.dtype) : p.x;
  l.out = is_last ? p.y : hidden_rows(p, p.x.dtype);
  l.dy = is_last ? p.dy : hidden_rows(p, sum_dtype(p.x.dtype));
  l.in_data = index == 0 ? a.x : p.has_dropout ? behind(workspace, w.dropped) : y_of(index - 1);
  l.undropped = index ? y_of(index - 1) : nullptr;
  l.out_data = y_of(index);
  l.dy_data = is_last ? a.dy : behind(workspace, w.gradients);
  l.dy_is_sum = !is_last;
  l.din_data = index ? behind(workspace, w.gradients) : a.dx;
  const int64_t states = index * p.directions * p.batch * p.hidden * size;
  l.h0 = behind(a.h0, states);
  l.c0 = behind(a.c0, states);
  l.dhn = behind(a.dhn, states);
  l.dcn = behind(a.dcn, states);
  l.hn = behind(a.hn, states);
  l.cn = behind(a.cn, states);
  l.dh0 = behind(a.dh0, states);
  l.dc0 = behind(a.dc0, states);
  l.gates = behind(a.reserve, r.gates + index * rows * p.saved_gates() * size);
  l.cells = behind(a.reserve, r.cells + index * rows * sums);
  l.dgates = behind(a.dgates, index * rows * p.gate_gradients() * size);
  for (int64_t d = 0; d < p.directions; ++d)
    for (int64_t k = 0; k < kRnnWeights; ++k) l.weights[d][k] = a.weights[Weight{index, d, k, {}}.slot()];
  l.clip = a.clip;
  l.keep = a.keep;
  l.seed = a.seed;
  l.offset = a.offset + uint64_t(index) - 1;
  l.threshold = a.threshold;
  l.given_lengths = a.lengths;
  l.given_batch_sizes = a.batch_sizes;
  l.lengths = static_cast<int64_t*>(behind(workspace, w.lengths));
  l.first_rows = static_cast<int64_t*>(behind(workspace, w.first_rows));
  l.state = behind(workspace, w.state);
  l.q = behind(workspace, w.q);
  l.z = behind(workspace, w.z);
  return l;
}

// A call while its arguments are checked.
struct Checked {
  const char* call;
  const RnnOptions& options;
  RnnProblem p{};
  RnnArgs args{};
  std::vector<Operand> inputs{};  // tensors that results must not overlap
  std::vector<const void*> addresses{};
  std::vector<Weight> weights{};
  Handle* handle = nullptr;

  // The dimensions of x and y as the caller has them.
  bool is_ntc() const { return !p.packed && options.layout == "ntc"; }
  TensorDesc as_tnc(const TensorDesc& d) const { return is_ntc() ? exchanged(d) : d; }

  // The options that say which weights there are.
  void check_options() {
    const RnnOptions& o = options;
    const auto mode = std::ranges::find(kModes, o.mode);
    MINIDNN_CHECK(ShapeError, mode != std::end(kModes), call, ": mode must be 'relu', 'tanh', 'lstm' or 'gru'; got '",
                  o.mode, "'");
    p.mode = RnnMode(mode - std::begin(kModes));
    constexpr int64_t kMostHidden = int64_t(1) << 24;
    MINIDNN_CHECK(ShapeError, 1 <= o.hidden_size && o.hidden_size <= kMostHidden, call,
                  ": hidden_size must be from 1 to ", kMostHidden, "; got ", o.hidden_size);
    MINIDNN_CHECK(ShapeError, 1 <= o.layers && o.layers <= kRnnMostLayers, call, ": layers must be from 1 to ",
                  kRnnMostLayers, "; got ", o.layers);
    p.hidden = o.hidden_size;
    p.layers = o.layers;
    p.directions = o.bidirectional ? 2 : 1;
    p.has_bias = o.bias;
  }
  void check_all_options() {
    const RnnOptions& o = options;
    check_options();
    const bool lstm = p.mode == RnnMode::lstm;
    MINIDNN_CHECK(ShapeError, o.reset_after || p.mode == RnnMode::gru, call,
                  ": reset_after=False is for mode 'gru'; mode is '", o.mode, "'");
    p.reset_before = !o.reset_after;
    MINIDNN_CHECK(ShapeError, lstm || !o.c0, call, ": c0 is for mode 'lstm'; mode is '", o.mode, "'");
    MINIDNN_CHECK(ShapeError, lstm || !o.clip, call, ": clip is for mode 'lstm'; mode is '", o.mode, "'");
    MINIDNN_CHECK(ShapeError, !o.clip || (std::isfinite(*o.clip) && *o.clip > 0), call,
                  ": clip must be finite and above 0; got ", *o.clip);
    p.has_clip = o.clip.has_value();
    args.clip = o.clip.value_or(0);
    MINIDNN_CHECK(ShapeError, 0 <= o.dropout && o.dropout < 1, call, ": dropout must be at least 0 and below 1; got ",
                  o.dropout);
    MINIDNN_CHECK(ShapeError, o.seed >= 0 && o.offset >= 0, call, ": seed and offset must not be negative; got ",
                  o.seed, " and ", o.offset);
    MINIDNN_CHECK(ShapeError, o.layout == "tnc" || o.layout == "ntc", call, ": layout must be 'tnc' or 'ntc'; got '",
                  o.layout, "'");
    MINIDNN_CHECK(ShapeError, !o.batch || o.batch_sizes, call,
                  ": batch is for packed sequences; batch_sizes is not given");
    MINIDNN_CHECK(ShapeError, !o.lengths || !o.batch_sizes, call, ": batch_sizes is given, so lengths must not be");
    p.packed = o.batch_sizes.has_value();
    p.has_dropout = o.dropout > 0 && o.layers > 1;
    if (!p.has_dropout) return;
    args.seed = uint64_t(o.seed);
    args.offset = uint64_t(o.offset);
    args.threshold = uint64_t(o.dropout * 0x1p32);
    args.keep = 1 / (1 - o.dropout);
  }

  // Checks a tensor: its device, dtype, shape, and that it is contiguous.
  void take(const char* label, const Tensor& t, const TensorDesc& want, const char* why, const void*& to) {
    MINIDNN_CHECK(DeviceError, t.place() == handle->place(), call, ": ", inputs.front().name, " is on ",
                  name(handle->place()), ", ", label, " is on ", name(t.place()), "; move one with .to(device=...)");
    MINIDNN_CHECK(DTypeError, t.desc.dtype == want.dtype, call, ": ", label, " must be ", name(want.dtype), "; got ",
                  name(t.desc.dtype));
    check_shape(call, {label, t}, shape_of(want), why);
    MINIDNN_CHECK(ShapeError, is_row_major(t.desc), call, ": ", label, " must be contiguous; its strides are [",
                  join(strides_of(t.desc)), "]");
    use(t, handle->stream());
    inputs.push_back({label, t});
    if (want.dtype == p.x.dtype) addresses.push_back(t.data);
    to = t.data;
  }
  void take(const char* label, const OptionalTensor& t, const TensorDesc& want, const char* why, const void*& to) {
    if (t) take(label, *t, want, why, to);
  }

  // The sizes, from a tensor [T, N, features], which is `label`.
  void check_rows(const Operand& o) {
    const TensorDesc& d = o.tensor.desc;
    MINIDNN_CHECK(ShapeError, d.rank == (p.packed ? 2 : 3), call, p.packed ? ": batch_sizes is given, so " : ": ",
                  o.name, " must be ",
                  p.packed   ? "[rows, features]"
                  : is_ntc() ? "[N, T, features]"
                             : "[T, N, features]",
                  "; got ", shape_text(d));
    const TensorDesc rows = as_tnc(d);
    if (!p.packed) {
      p.steps = rows.shape[0];
      p.batch = rows.shape[1];
    } else {
      const TensorDesc& sizes = options.batch_sizes->desc;
      MINIDNN_CHECK(ShapeError, sizes.rank == 1, call, ": batch_sizes must be [T]; got ", shape_text(sizes));
      MINIDNN_CHECK(ShapeError, options.batch || (options.h0 && options.h0->desc.rank == 3), call,
                    ": batch_sizes is given, so batch or h0 must say how many sequences there are");
      p.steps = sizes.shape[0];
      p.batch = options.batch ? *options.batch : options.h0->desc.shape[1];
      MINIDNN_CHECK(ShapeError, p.batch >= 0, call, ": batch must not be negative; got ", p.batch);
    }
    constexpr int64_t kMost = int64_t(1) << 31;
    MINIDNN_CHECK(ShapeError, p.steps < kMost && p.batch < kMost, call, ": ", o.name, ' ', shape_text(d), " has ",
                  p.steps, " steps of ", p.batch, " sequences; supported are fewer than 2^31 of each");
  }
  void check_y(const Operand& o, const TensorDesc& rows) {
    const TensorDesc want = with_features(rows, p.directions * p.hidden);
    check_shape(call, o, shape_of(as_tnc(want)), "for x, hidden_size and bidirectional");
  }
  void check_lengths() {
    take("lengths", options.lengths, row_major(DType::int32, {p.batch}), "for the sequences", args.lengths);
    take("batch_sizes", options.batch_sizes, row_major(DType::int32, {p.steps}), "for the steps", args.batch_sizes);
    p.has_lengths = options.lengths.has_value();
  }
  void check_states() {
    take("h0", options.h0, states_desc(p), "for [layers directions, N, H]", args.h0);
    take("c0", options.c0, states_desc(p), "for [layers directions, N, H]", args.c0);
    p.has_h0 = options.h0.has_value();
    p.has_c0 = options.c0.has_value();
  }

  void take_reserve(const Tensor& reserve) {
    const void* saved = nullptr;
    take("reserve", reserve, reserve_desc(p), "like that of rnn_forward with training=True", saved);
    const auto address = reinterpret_cast<uintptr_t>(saved);
    MINIDNN_CHECK(ShapeError, address % 16 == 0 || reserve.nbytes() == 0, call,
                  ": reserve must begin at a multiple of 16 bytes; its address is ", address);
    args.reserve = const_cast<void*>(saved);
  }

  // Whether the weights are one tensor.
  static bool is_flat(const RnnWeights& given) { return given.size() == 1 && given[0].desc.rank == 1; }
  // Returns the size of the input, which the weights of layer 0 have.
  int64_t input_size_of(const RnnWeights& given, const char* label = "weights") const {
    RnnProblem empty = p;  // with an input of no elements
    empty.x.rank = 1;
    empty.x.shape[0] = 0;
    const int64_t column = p.directions * p.gates() * p.hidden;
    if (is_flat(given)) {
      const int64_t rest = elements_of(weights_of(empty)), numel = given[0].desc.shape[0];
      MINIDNN_CHECK(ShapeError, numel > rest && (numel - rest) % column == 0, call, ": ", label, " must have ", rest,
                    " elements and ", column, " for each element of the input; got ", shape_text(given[0].desc));
      return (numel - rest) / column;
    }
    MINIDNN_CHECK(ShapeError, !given.empty() && given[0].desc.rank == 2 && given[0].desc.shape[1] > 0, call,
                  ": weights[0] (layer 0, forward, w_ih) must be [", p.gates() * p.hidden, ", input size]; got ",
                  given.empty() ? "no weights" : shape_text(given[0].desc));
    return given[0].desc.shape[1];
  }
  // Checks weights, or tensors for their gradients, and returns one tensor for each.
  RnnWeights check_weights(const char* label, const RnnWeights& given) {
    weights = weights_of(p);
    for (size_t i = 0; i < given.size(); ++i) {
      const Tensor& t = given[i];
      const std::string what = is_flat(given)       ? std::string(label)
                               : i < weights.size() ? cat(label, "[", i, "] ", weights[i].text())
                                                    : cat(label, "[", i, "]");
      MINIDNN_CHECK(DeviceError, t.place() == handle->place(), call, ": ", inputs.front().name, " is on ",
                    name(handle->place()), ", ", what, " is on ", name(t.place()), "; move one with .to(device=...)");
      MINIDNN_CHECK(DTypeError, t.desc.dtype == p.x.dtype, call, ": ", inputs.front().name, " is ", name(p.x.dtype),
                    ", ", what, " is ", name(t.desc.dtype), "; cast one with .to(dtype=...)");
      use(t, handle->stream());
    }
    if (is_flat(given)) {
      const int64_t want = elements_of(weights);
      MINIDNN_CHECK(ShapeError, given[0].desc.shape[0] == want, call, ": ", label, " must have ", want,
                    " elements for an input of ", p.input_size(0), "; got ", shape_text(given[0].desc));
      MINIDNN_CHECK(ShapeError, is_row_major(given[0].desc), call, ": ", label, " must be contiguous; its stride is ",
                    given[0].desc.stride[0]);
      return views_of(given[0], weights);
    }
    MINIDNN_CHECK(ShapeError, given.size() == weights.size(), call, ": ", label, " must be ", weights.size(),
                  " tensors, ", p.has_bias ? 4 : 2, " for each of ", p.layers, " layers and ", p.directions,
                  " directions, or one tensor with 1 dimension; got ", given.size(), " tensors");
    for (size_t i = 0; i < given.size(); ++i) {
      MINIDNN_CHECK(ShapeError, same_shape(given[i].desc, weights[i].desc), call, ": ", label, "[", i, "] ",
                    weights[i].text(), " must be ", shape_text(weights[i].desc), "; got ", shape_text(given[i].desc));
      MINIDNN_CHECK(ShapeError, is_row_major(given[i].desc), call, ": ", label, "[", i, "] ", weights[i].text(),
                    " must be contiguous; its strides are [", join(strides_of(given[i].desc)), "]");
    }
    return given;
  }
  void take_weights(const RnnWeights& given) {
    const RnnWeights checked = check_weights("weights", given);
    for (size_t i = 0; i < checked.size(); ++i) {
      args.weights[weights[i].slot()] = checked[i].data;
      addresses.push_back(checked[i].data);
    }
    for (const Tensor& t : given) inputs.push_back({"weights", t});
  }

  Tensor result(const char* label, const OptionalTensor& out, const TensorDesc& want) {
    Tensor made = output(call, label, out, want, *handle, {});
    check_apart(label, made, out.has_value());
    if (want.dtype == p.x.dtype) addresses.push_back(made.data);
    return made;
  }
  void check_apart(const char* label, const Tensor& out, bool is_given) const {
    for (const Operand& o : inputs)
      MINIDNN_CHECK(ShapeError, !is_given || !share_memory(out, o.tensor), call, ": ", label, " shares memory with ",
                    o.name, "; pass another tensor");
  }
  Tensor new_states(const char* label, void*& to) {
    Tensor t = result(label, {}, states_desc(p));
    to = t.data;
    return t;
  }

  // A call without a step of a sequence makes no plan: states stay, and sums are zero.
  bool is_empty() const { return p.rows() == 0 || p.batch == 0 || p.steps == 0; }
  void fill_zero(const Tensor& t) const {
    const Tensor zero = full(row_major(t.desc.dtype, {}), t.place(), scalar_of(0.0), handle->shared_from_this());
    transform(zero, 1, 0, {}, {}, {"", t, handle->shared_from_this()});
  }
  void copy_or_zero(const OptionalTensor& from, const Tensor& to) const {
    if (from) transform(*from, 1, 0, {}, {}, {"", to, handle->shared_from_this()});
    else fill_zero(to);
  }

  void run_call(const std::string& algo) {
    p.ieee = p.x.dtype == DType::float32 && handle->options().math == Math::ieee;
    for (const void* address : addresses) p.alignment = std::min(p.alignment, alignment_of(*handle, {address}));
    run(*handle, p, args, algo);
  }
};

}  // namespace

RnnReserve::RnnReserve(const RnnProblem& p) {
  const auto size = int64_t(itemsize(p.x.dtype)), sums = int64_t(itemsize(sum_dtype(p.x.dtype)));
  const int64_t rows = p.rows() * p.hidden * p.directions;
  cells = round_up(p.layers * rows * p.saved_gates() * size, 16);
  outputs = cells + (p.mode == RnnMode::lstm ? round_up(p.layers * rows * sums, 16) : 0);
  bytes = outputs + round_up((p.layers - 1) * rows * size, 16);
}

size_t rnn_workspace_bytes(const RnnProblem& p) { return size_t(Workspace(p).bytes); }

void run_rnn_passes(const RnnProblem& p, const RnnArgs& a, void* workspace, int64_t units, const RunRnnPass& run) {
  const int64_t sequences = p.directions * p.batch, states = sequences * p.hidden;
  const int64_t unit_blocks = sequences * ceil_div(p.hidden, units), features = p.directions * p.hidden;
  run(RnnPass::begin, layer_of(p, a, workspace, 0), 0, p.packed ? 1 : p.batch);
  for (int64_t i = 0; i < p.layers; ++i) {
    const bool data = p.direction == RnnDirection::backward_data;
    const RnnLayer l = layer_of(p, a, workspace, data ? p.layers - 1 - i : i);
    if (l.index && p.has_dropout && !data) run(RnnPass::drop, l, 0, p.rows() * features);
    if (p.direction == RnnDirection::forward) {
      for (int64_t step = 0; step < p.steps; ++step) {
        run(RnnPass::forward_unit, l, step, states);
        if (p.reset_before) run(RnnPass::forward_candidate, l, step, states);
      }
      run(RnnPass::last_state, l, 0, states);
      if (p.packed) run(RnnPass::clear_unused, l, 0, p.rows() * features);
    } else if (data) {
      for (int64_t step = p.steps - 1; step >= -1; --step) {
        run(RnnPass::backward_units, l, step, unit_blocks);
        if (p.reset_before && step >= 0) run(RnnPass::backward_reset, l, step, unit_blocks);
      }
      const int64_t inputs = p.input_size(l.index);
      run(RnnPass::input_gradient, l, 0, p.steps * p.batch * ceil_div(inputs, units));
      if (p.packed) run(RnnPass::clear_unused, l, 0, p.rows() * (p.gate_gradients() * features + inputs));
    } else {
      const int64_t blocks = rnn::weight_blocks(p, l.index, units);
      run(RnnPass::weight_gradient, l, 0, p.directions * p.gates() * p.hidden * blocks);
    }
  }
}

std::string Family<RnnProblem>::text(const RnnProblem& p) {
  constexpr const char* directions[] = {"forward", "backward_data", "backward_weights"};
  const bool data = p.direction == RnnDirection::backward_data;
  std::string text = cat(head_text(name, directions[int64_t(p.direction)], p.x.dtype), " x=", problem_text(p.x),
                         " mode=", kModes[int64_t(p.mode)], " hidden=", p.hidden);
  if (p.layers > 1) text += cat(" layers=", p.layers);
  if (p.packed) text += cat(" steps=", p.steps, " batch=", p.batch);
  if (p.directions > 1) text += " bidirectional";
  if (!p.has_bias) text += " no_bias";
  if (p.reset_before) text += " reset_before";
  if (p.has_h0) text += " h0";
  if (p.has_c0) text += " c0";
  if (p.has_dhn) text += " dhn";
  if (p.has_dcn) text += " dcn";
  if (p.has_lengths) text += " lengths";
  if (p.has_dropout) text += " dropout";
  if (p.has_clip) text += " clip";
  if (p.training) text += " training";
  if (p.accumulate) text += " accumulate";
  if (p.ieee) text += " math=ieee";
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  const TensorDesc y = with_features(p.x, p.directions * p.hidden);
  if (!same_strides(p.y, y)) text += " y=" + problem_text(p.y);
  if (data && !same_strides(p.dy, y)) text += " dy=" + problem_text(p.dy);
  return text;
}

void Family<RnnProblem>::ports(const RnnProblem& p, RnnArgs& a, Ports& v) {
  const bool forward = p.direction == RnnDirection::forward, data = p.direction == RnnDirection::backward_data;
  const bool lstm = p.mode == RnnMode::lstm;
  const TensorDesc states = states_desc(p);
  const auto in = [&](bool given, const char* label, const TensorDesc& d, auto& slot) {
    if (given) v.in(label, d, slot);
    else v.unused(slot);
  };
  const auto out = [&](bool given, const char* label, const TensorDesc& d, void*& slot) {
    if (given) v.out(label, d, slot);
    else v.unused(slot);
  };
  const auto integers = [&](bool given, const char* label, int64_t n, const void*& slot, auto usual) {
    if (given) v.integers(label, row_major(DType::int32, {n}), slot, usual);
    else v.unused(slot);
  };
  in(!data, "x", p.x, a.x);
  in(data, "dy", p.dy, a.dy);
  in(p.has_dhn, "dhn", states, a.dhn);
  in(p.has_dcn, "dcn", states, a.dcn);
  const std::vector<Weight> weights = weights_of(p);
  for (const Weight& w : weights)
    if (forward || data) v.in(w.port().c_str(), w.desc, a.weights[w.slot()]);
  in(p.has_h0, "h0", states, a.h0);
  in(p.has_c0, "c0", states, a.c0);
  // find() times engines with full lengths, and with packed sequences of nearly equal lengths.
  integers(p.has_lengths, "lengths", p.batch, a.lengths, [&](int64_t) { return p.steps; });
  integers(p.packed, "batch_sizes", p.steps, a.batch_sizes,
           [&](int64_t t) { return p.rows() / p.steps + (t < p.rows() % p.steps); });
  if (!forward) {
    v.in("y", p.y, a.y);
    v.in("reserve", reserve_desc(p), a.reserve);
  }
  if (forward) v.unused(a.dgates);
  else if (data) v.out("dgates", dgates_desc(p), a.dgates);
  else v.in("dgates", dgates_desc(p), a.dgates);
  if (forward) {
    v.out("y", p.y, a.y);
    out(p.training, "reserve", reserve_desc(p), a.reserve);
  }
  out(forward, "hn", states, a.hn);
  out(forward && lstm, "cn", states, a.cn);
  out(data, "dx", p.x, a.dx);
  out(data, "dh0", states, a.dh0);
  out(data && lstm, "dc0", states, a.dc0);
  for (const Weight& w : weights) {
    if (forward || data) break;
    const std::string label = "d" + w.port();
    if (p.accumulate) v.in_out(label.c_str(), w.desc, a.weights[w.slot()]);
    else v.out(label.c_str(), w.desc, a.weights[w.slot()]);
  }
  v.number("clip", a.clip, p.has_clip ? 1 : 0);
  v.seed("seed", a.seed);
  v.seed("offset", a.offset);
  v.bits(a.threshold, p.has_dropout ? uint64_t(1) << 29 : 0);
  v.number("keep", a.keep, p.has_dropout ? 1 / (1 - 0.125) : 1);
}

RnnResults rnn_forward(const Tensor& x, const RnnWeights& weights, bool training, const RnnOptions& options,
                       const Call& call) {
  const char* me = "rnn_forward";
  Checked c{me, options};
  RnnProblem& p = c.p;
  c.check_all_options();
  c.handle = &check_operands(me, call, {{"x", x}});
  c.inputs.push_back({"x", x});
  c.check_rows({"x", x});
  MINIDNN_CHECK(ShapeError, x.desc.shape[x.desc.rank - 1] > 0, me, ": x ", shape_text(x.desc), " has no features");
  p.x = c.as_tnc(x.desc);
  p.training = training;
  c.check_lengths();
  c.check_states();
  c.take_weights(weights);
  c.args.x = x.data;
  c.addresses.push_back(x.data);

  RnnResults r;
  const TensorDesc y = with_features(p.x, p.directions * p.hidden);
  r.y = c.result("out", call.out, c.as_tnc(y));
  p.y = c.as_tnc(r.y.desc);
  c.args.y = r.y.data;
  r.hn = c.new_states("hn", c.args.hn);
  if (p.mode == RnnMode::lstm) r.cn = c.new_states("cn", c.args.cn);
  if (training) {
    r.reserve = c.result("reserve", {}, reserve_desc(p));
    c.args.reserve = r.reserve->data;
  }
  if (!c.is_empty()) {
    c.run_call(call.algo);
    return r;
  }
  c.copy_or_zero(options.h0, r.hn);
  if (r.cn) c.copy_or_zero(options.c0, *r.cn);
  return r;
}

RnnDataGradients rnn_backward_data(const RnnOutputGradients& of, const Tensor& y, const RnnWeights& weights,
                                   const Tensor& reserve, const RnnOptions& options, const Call& call) {
  const char* me = "rnn_backward_data";
  Checked c{me, options};
  RnnProblem& p = c.p;
  p.direction = RnnDirection::backward_data;
  c.check_all_options();
  c.handle = &check_operands(me, call, {{"dy", of.dy}, {"y", y}});
  for (const Operand& o : {Operand{"dy", of.dy}, Operand{"y", y}}) c.inputs.push_back(o);
  c.check_rows({"y", y});
  p.y = c.as_tnc(y.desc);
  p.dy = c.as_tnc(of.dy.desc);
  p.x = with_features(p.y, c.input_size_of(weights));
  c.check_y({"y", y}, p.y);
  check_shape(me, {"dy", of.dy}, shape_of(y.desc), "like y");
  c.check_lengths();
  c.check_states();
  MINIDNN_CHECK(ShapeError, p.mode == RnnMode::lstm || !of.dcn, me, ": dcn is for mode 'lstm'; mode is '", options.mode,
                "'");
  c.take("dhn", of.dhn, states_desc(p), "like hn", c.args.dhn);
  c.take("dcn", of.dcn, states_desc(p), "like cn", c.args.dcn);
  p.has_dhn = of.dhn.has_value();
  p.has_dcn = of.dcn.has_value();
  c.take_weights(weights);
  c.take_reserve(reserve);
  c.args.dy = of.dy.data;
  c.args.y = y.data;
  c.addresses.insert(c.addresses.end(), {of.dy.data, y.data});

  RnnDataGradients g;
  g.dx = c.result("out", call.out, c.as_tnc(p.x));
  p.x = c.as_tnc(g.dx.desc);
  c.args.dx = g.dx.data;
  g.dh0 = c.new_states("dh0", c.args.dh0);
  if (p.mode == RnnMode::lstm) g.dc0 = c.new_states("dc0", c.args.dc0);
  g.dgates = c.result("dgates", {}, dgates_desc(p));
  c.args.dgates = g.dgates.data;
  if (!c.is_empty()) {
    c.run_call(call.algo);
    return g;
  }
  c.copy_or_zero(of.dhn, g.dh0);
  if (g.dc0) c.copy_or_zero(of.dcn, *g.dc0);
  return g;
}

RnnWeights rnn_backward_weights(const Tensor& x, const Tensor& y, const Tensor& dgates, const Tensor& reserve,
                                const RnnWeightGradients& to, const RnnOptions& options, const Call& call) {
  const char* me = "rnn_backward_weights";
  Checked c{me, options};
  RnnProblem& p = c.p;
  p.direction = RnnDirection::backward_weights;
  c.check_all_options();
  c.handle = &check_operands(me, call, {{"x", x}, {"y", y}, {"dgates", dgates}});
  for (const Operand& o : {Operand{"x", x}, Operand{"y", y}}) c.inputs.push_back(o);
  c.check_rows({"x", x});
  MINIDNN_CHECK(ShapeError, x.desc.shape[x.desc.rank - 1] > 0, me, ": x ", shape_text(x.desc), " has no features");
  p.x = c.as_tnc(x.desc);
  c.check_y({"y", y}, p.x);
  p.y = c.as_tnc(y.desc);
  c.check_lengths();
  c.take("h0", options.h0, states_desc(p), "for [layers directions, N, H]", c.args.h0);
  p.has_h0 = options.h0.has_value();
  const void* gradients = nullptr;
  c.take("dgates", dgates, dgates_desc(p), "like that of rnn_backward_data", gradients);
  c.args.dgates = const_cast<void*>(gradients);
  c.take_reserve(reserve);
  c.args.x = x.data;
  c.args.y = y.data;
  c.addresses.insert(c.addresses.end(), {x.data, y.data});
  MINIDNN_CHECK(ShapeError, !to.accumulate || !to.out.empty(), me, ": accumulate=True needs out, which is not given");
  p.accumulate = to.accumulate;

  RnnWeights results = to.out, pieces;
  if (!to.out.empty()) {
    pieces = c.check_weights("out", to.out);
    for (const Tensor& t : to.out) {
      output(me, "out", t, t.desc, *c.handle, {});
      c.check_apart("out", t, true);
      c.inputs.push_back({"another tensor of out", t});
    }
  } else {
    c.weights = weights_of(p);
    if (to.flat) {
      results = {empty(row_major(p.x.dtype, {elements_of(c.weights)}), x.place(), c.handle->stream(), me, "dweights")};
      pieces = views_of(results[0], c.weights);
    } else {
      for (const Weight& w : c.weights) results.push_back(empty(w.desc, x.place(), c.handle->stream(), me, "dweights"));
      pieces = results;
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    c.args.weights[c.weights[i].slot()] = pieces[i].data;
    c.addresses.push_back(pieces[i].data);
  }
  if (!c.is_empty()) c.run_call(call.algo);
  else if (!to.accumulate)
    for (const Tensor& t : results) c.fill_zero(t);
  return results;
}

Tensor rnn_pack(const RnnWeights& weights, const RnnOptions& options, const Call& call) {
  const char* me = "rnn_pack";
  Checked c{me, options};
  c.check_options();
  MINIDNN_CHECK(ShapeError, !weights.empty(), me, ": weights must hold a tensor for each weight; got none");
  c.handle = &check_operands(me, call, {{"weights[0]", weights[0]}});
  c.inputs.push_back({"weights[0]", weights[0]});
  c.p.x = row_major(weights[0].desc.dtype, {c.input_size_of(weights)});
  const RnnWeights from = c.check_weights("weights", weights);
  for (const Tensor& t : weights) c.inputs.push_back({"weights", t});
  Tensor flat = c.result("out", call.out, row_major(c.p.x.dtype, {elements_of(c.weights)}));
  MINIDNN_CHECK(ShapeError, is_row_major(flat.desc), me, ": out must be contiguous; its stride is ",
                flat.desc.stride[0]);
  const RnnWeights views = views_of(flat, c.weights);
  for (size_t i = 0; i < from.size(); ++i) transform(from[i], 1, 0, {}, {}, {"", views[i], call.handle});
  return flat;
}

RnnWeights rnn_unpack(const Tensor& flat, const RnnOptions& options) {
  const char* me = "rnn_unpack";
  Checked c{me, options};
  c.check_options();
  MINIDNN_CHECK(DTypeError, is_floating(flat.desc.dtype), me, ": tensor is ", name(flat.desc.dtype),
                "; supported are float32, float64, float16 and bfloat16");
  MINIDNN_CHECK(ShapeError, flat.desc.rank == 1 && is_row_major(flat.desc), me,
                ": tensor must have 1 dimension and be contiguous; got ", shape_text(flat.desc));
  c.p.x = row_major(flat.desc.dtype, {1});
  c.p.x.shape[0] = c.input_size_of({flat}, "tensor");
  return views_of(flat, weights_of(c.p));
}

double rnn_flop(const RnnProblem& p) {
  double columns = 0;
  for (int64_t i = 0; i < p.layers; ++i) columns += double(p.input_size(i) + p.hidden);
  return 2.0 * double(p.rows()) * double(p.directions * p.gates() * p.hidden) * columns;
}

double rnn_bytes(const RnnProblem& p) {
  double elements = double(p.rows()) * double(p.input_size(0) + p.directions * p.hidden);
  for (const Weight& w : weights_of(p)) elements += double(w.desc.numel());
  if (p.direction != RnnDirection::forward) elements += double(dgates_desc(p).numel());
  double bytes = elements * double(itemsize(p.x.dtype));
  if (p.training || p.direction != RnnDirection::forward) bytes += double(RnnReserve(p).bytes);
  return bytes;
}

}  // namespace minidnn
