// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: the arithmetic of one unit at one step, and of one gradient of a weight. h is the state, c the cell
// of an LSTM, U = w_hh, W = w_ih.
//   relu, tanh  h = f(W x + b_ih + U h + b_hh)
//   lstm        i, f, o = sigmoid(...), g = tanh(...);  c = f c + i g;  h = o tanh(c)
//   gru         r, z = sigmoid(...), n = tanh(W x + b_ih + r q), q = U h + b_hh;  h = (1 - z) n + z h
//               reset_before: n = tanh(W x + b_ih + U q + b_hh), q = r h
// Sums, gates and c are float32, and float64 for float64. h is rounded to the dtype of x at each step.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"
#include "cpp/core/host_device/team.h"
#include "cpp/random/random_math.h"

namespace minidnn {

enum class RnnDirection : int64_t { forward, backward_data, backward_weights };
enum class RnnMode : int64_t { relu, tanh, lstm, gru };

constexpr int64_t kRnnMostLayers = 32, kRnnMostDirections = 2;
// The weights of a layer and direction, in this order.
enum RnnWeight : int64_t { kInputWeight, kHiddenWeight, kInputBias, kHiddenBias, kRnnWeights };

// T steps of N sequences. The rows of x and y are those of one step after the other: row t N + n has step t of sequence
// n. Packed sequences (batch_sizes) leave out the rows beyond a sequence's end.
struct RnnProblem {
  RnnDirection direction{};
  RnnMode mode{};
  TensorDesc x;   // [T, N, I], packed [rows, I]; in backward_data that of dx
  TensorDesc y;   // [T, N, directions H], packed [rows, directions H]
  TensorDesc dy;  // as y; of backward_data
  int64_t steps = 0, batch = 0, hidden = 0;
  int64_t layers = 1, directions = 1;
  int64_t has_bias = 1;                                         // 1 or 0, as all that follow
  int64_t reset_before = 0;                                     // the reset gate multiplies h before the product
  int64_t packed = 0, has_lengths = 0, has_h0 = 0, has_c0 = 0;  // c0 is not read by backward_weights
  int64_t has_dhn = 0, has_dcn = 0;                             // of backward_data
  int64_t has_dropout = 0, has_clip = 0;
  int64_t training = 0;    // forward writes the reserve
  int64_t accumulate = 0;  // backward_weights adds to its results
  int64_t ieee = 0;        // 1 if float32 products stay float32
  int64_t alignment = 16;  // the bytes to which all tensors of x's dtype are aligned, at most 16

  MINIDNN_HD int64_t rows() const { return packed ? x.shape[0] : steps * batch; }
  MINIDNN_HD int64_t input_size(int64_t layer) const { return layer ? directions * hidden : x.shape[x.rank - 1]; }
  // Matrices [H, I] and [H, H] in the weights of a layer and direction.
  MINIDNN_HD int64_t gates() const { return mode == RnnMode::lstm ? 4 : mode == RnnMode::gru ? 3 : 1; }
  // Values of a unit and step in the reserve and in dgates: for a GRU also q, and r dn.
  MINIDNN_HD int64_t saved_gates() const { return mode == RnnMode::gru ? 4 : gates(); }
  MINIDNN_HD int64_t gate_gradients() const { return mode == RnnMode::gru && !reset_before ? 4 : gates(); }
};

struct RnnArgs {
  const void *x = nullptr, *dy = nullptr;
  void *y = nullptr, *dx = nullptr;  // forward writes y; backward reads it
  // [layers directions, N, H], of x's dtype.
  const void *h0 = nullptr, *c0 = nullptr, *dhn = nullptr, *dcn = nullptr;
  void *hn = nullptr, *cn = nullptr, *dh0 = nullptr, *dc0 = nullptr;
  void* reserve = nullptr;  // bytes; RnnReserve describes them
  void* dgates = nullptr;   // [layers, directions, rows, gate_gradients() H], of x's dtype
  // int32 on the device. Kernels clamp them, so that no content leads out of a tensor.
  const void *lengths = nullptr, *batch_sizes = nullptr;  // [N]; [T], packed
  // The weights, or the gradients of backward_weights: [layer][direction][RnnWeight].
  void* weights[kRnnMostLayers * kRnnMostDirections * kRnnWeights]{};
  double clip = 0;
  uint64_t seed = 0, offset = 0, threshold = 0;  // of dropout: an element is dropped if its word is below
  double keep = 1;                               // 1 / (1 - dropout)
};

// The tensors of one layer.
struct RnnLayer {
  int64_t index = 0;
  TensorDesc in, out, dy;  // as x, y and dy of RnnProblem
  const void* in_data{};   // x, or y of the layer before, after dropout
  void* out_data{};        // y
  const void* dy_data{};   // of the dtype of sums if `dy_is_sum`, else of x's
  int64_t dy_is_sum = 0;
  void* din_data{};  // the gradient of the input: dx with the layout `in` for layer 0, else sums [rows, I]
  // [directions, N, H]
  const void *h0{}, *c0{}, *dhn{}, *dcn{};
  void *hn{}, *cn{}, *dh0{}, *dc0{};
  void* gates{};   // [directions, rows, saved_gates() H]
  void* cells{};   // [directions, rows, H], of the dtype of sums
  void* dgates{};  // [directions, rows, gate_gradients() H]
  void* weights[kRnnMostDirections][kRnnWeights]{};
  double clip = 0, keep = 1;
  uint64_t seed = 0, offset = 0, threshold = 0;       // of the dropout of the input
  const void *given_lengths{}, *given_batch_sizes{};  // those of RnnArgs
  // Workspace.
  int64_t* lengths{};     // [N], each from 0 to T
  int64_t* first_rows{};  // [T + 1], packed: the first row of each step; element T is the number of rows in use
  // [directions, N, H], of the dtype of sums. `state` is what a step leaves for the next one: c or, backward, the
  // gradient of c (LSTM), or the part of the gradient of h that does not pass through U (GRU). q and z: of a GRU with
  // reset_before.
  void *state{}, *q{}, *z{};
  void* undropped{};  // y of the layer before, [rows, I], of which dropout makes in_data
};

// The functions below, each of which computes item `item` of a pass over a layer. The items of a pass are independent.
enum class RnnPass : int64_t {
  begin,
  drop,
  clear_unused,
  forward_unit,
  forward_candidate,
  last_state,
  backward_units,
  backward_reset,
  input_gradient,
  weight_gradient
};
constexpr int kRnnPasses = 10;

namespace rnn {

// A unit of a sequence in one direction. Steps are counted in the order of the direction.
struct Unit {
  int64_t direction, n, unit, length;
  MINIDNN_HD int64_t time(int64_t step) const { return direction ? length - 1 - step : step; }
};
// Item `item` of [directions, N, ceil(H / units)]: the first of `units` units.
MINIDNN_HD Unit unit_of(const RnnProblem& p, const RnnLayer& l, int64_t item, int64_t units) {
  const int64_t blocks = ceil_div(p.hidden, units), n = item / blocks % p.batch;
  return {item / blocks / p.batch, n, item % blocks * units, l.lengths[n]};
}

MINIDNN_HD int64_t row_of(const RnnProblem& p, const RnnLayer& l, int64_t t, int64_t n) {
  return p.packed ? l.first_rows[t] + n : t * p.batch + n;
}
// The offset of the row of step t of sequence n.
MINIDNN_HD int64_t offset_of(const RnnProblem& p, const RnnLayer& l, const TensorDesc& d, int64_t t, int64_t n) {
  return p.packed ? row_of(p, l, t, n) * d.stride[0] : t * d.stride[0] + n * d.stride[1];
}
// The index in [directions, N, H].
MINIDNN_HD int64_t state_index(const RnnProblem& p, const Unit& u) {
  return (u.direction * p.batch + u.n) * p.hidden + u.unit;
}
template <class T> MINIDNN_HD T* at(void* data, int64_t i) { return static_cast<T*>(data) + i; }
template <class T> MINIDNN_HD const T* at(const void* data, int64_t i) { return static_cast<const T*>(data) + i; }
template <class T> MINIDNN_HD Accumulator<T> value_or_zero(const void* data, int64_t i) {
  return data ? Accumulator<T>(*at<T>(data, i)) : Accumulator<T>(0);
}
template <class T> MINIDNN_HD const T* weight(const RnnLayer& l, int64_t direction, int64_t which) {
  return static_cast<const T*>(l.weights[direction][which]);
}
template <class T> MINIDNN_HD T* gate_row(const RnnProblem& p, const RnnLayer& l, int64_t direction, int64_t row) {
  return at<T>(l.gates, (direction * p.rows() + row) * p.saved_gates() * p.hidden);
}
template <class T> MINIDNN_HD T* dgate_row(const RnnProblem& p, const RnnLayer& l, int64_t direction, int64_t row) {
  return at<T>(l.dgates, (direction * p.rows() + row) * p.gate_gradients() * p.hidden);
}

// Elements with a constant distance. `data` is null for zeros.
template <class T> struct Elements {
  const T* data;
  int64_t stride;
  MINIDNN_HD Accumulator<T> operator[](int64_t i) const { return data ? Accumulator<T>(data[i * stride]) : 0; }
};

// h before step `step`: y of the step before, or h0.
template <class T> MINIDNN_HD Elements<T> h_before(const RnnProblem& p, const RnnLayer& l, const Unit& u,
                                                   int64_t step) {
  if (step == 0) return {l.h0 ? at<T>(l.h0, (u.direction * p.batch + u.n) * p.hidden) : nullptr, 1};
  const int64_t stride = l.out.stride[l.out.rank - 1], t = u.time(step - 1);
  const T* y = static_cast<const T*>(l.out_data) + offset_of(p, l, l.out, t, u.n);
  return {y + u.direction * p.hidden * stride, stride};
}
template <class T> MINIDNN_HD Elements<T> input(const RnnProblem& p, const RnnLayer& l, int64_t t, int64_t n) {
  return {static_cast<const T*>(l.in_data) + offset_of(p, l, l.in, t, n), l.in.stride[l.in.rank - 1]};
}
template <class T> MINIDNN_HD T& output(const RnnProblem& p, const RnnLayer& l, const Unit& u, int64_t t) {
  const int64_t unit = (u.direction * p.hidden + u.unit) * l.out.stride[l.out.rank - 1];
  return *at<T>(l.out_data, offset_of(p, l, l.out, t, u.n) + unit);
}

// The product of a row of weights and a vector, in four sums.
template <class T, class V> MINIDNN_HD Accumulator<T> dot(const T* w, const V* v, int64_t stride, int64_t n) {
  Accumulator<T> sum[4]{};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; ++j) sum[j] += Accumulator<T>(w[i + j]) * Accumulator<T>(v[(i + j) * stride]);
  for (; i < n; ++i) sum[0] += Accumulator<T>(w[i]) * Accumulator<T>(v[i * stride]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
// Row `row` of W x + b_ih, and of U h + b_hh.
template <class T> MINIDNN_HD Accumulator<T> input_sum(const RnnLayer& l, int64_t direction, int64_t row, Elements<T> x,
                                                       int64_t size) {
  return dot(weight<T>(l, direction, kInputWeight) + row * size, x.data, x.stride, size) +
         value_or_zero<T>(l.weights[direction][kInputBias], row);
}
template <class T> MINIDNN_HD Accumulator<T> hidden_sum(const RnnProblem& p, const RnnLayer& l, int64_t direction,
                                                        int64_t row, Elements<T> h) {
  const T* w = weight<T>(l, direction, kHiddenWeight) + row * p.hidden;
  return (h.data ? dot(w, h.data, h.stride, p.hidden) : Accumulator<T>(0)) +
         value_or_zero<T>(l.weights[direction][kHiddenBias], row);
}

// Adds the products of `rows` rows of w with `g` to `count` columns.
template <int kUnits, class T>
MINIDNN_HD void add_columns(const T* w, int64_t columns, const T* g, int64_t rows, int64_t count,
                            Accumulator<T> (&sums)[kUnits]) {
  for (int64_t r = 0; r < rows; ++r) {
    const Accumulator<T> factor(g[r]);
    for (int j = 0; j < kUnits; ++j)
      if (j < count) sums[j] += factor * Accumulator<T>(w[r * columns + j]);
  }
}

// The derivative of tanh where its value is v. 1 - v v would lose the digits of a value near 1.
template <class Acc> MINIDNN_HD Acc tanh_slope(Acc v) { return (1 - v) * (1 + v); }

template <class Acc> MINIDNN_HD Acc clipped(Acc c, Acc most) { return c > most ? most : c < -most ? -most : c; }

// Whether dropout keeps an element of the input of a layer: by the word that dropout_forward has for it.
MINIDNN_HD bool is_kept(const RnnLayer& l, int64_t element) {
  return dropout_word(l.seed, l.offset, uint64_t(element)) >= l.threshold;
}

// Copies the lengths, and clamps them. One thread lays out packed sequences.
MINIDNN_HD void begin(const RnnProblem& p, const RnnLayer& l, int64_t item) {
  if (!p.packed) {
    const int32_t* given = static_cast<const int32_t*>(l.given_lengths);
    l.lengths[item] = given ? max_of<int64_t>(0, min_of<int64_t>(given[item], p.steps)) : p.steps;
    return;
  }
  if (item) return;
  int64_t first = 0, sequences = p.batch;  // those that have not ended
  for (int64_t t = 0; t < p.steps; ++t) {
    const int64_t given = static_cast<const int32_t*>(l.given_batch_sizes)[t];
    const int64_t now = min_of(max_of<int64_t>(0, min_of(given, sequences)), p.rows() - first);
    for (int64_t n = now; n < sequences; ++n) l.lengths[n] = t;
    l.first_rows[t] = first;
    first += now;
    sequences = now;
  }
  for (int64_t n = 0; n < sequences; ++n) l.lengths[n] = p.steps;
  l.first_rows[p.steps] = first;
}

// An element of the input of a layer after dropout.
template <class T> MINIDNN_HD void drop(const RnnLayer& l, int64_t i) {
  const Accumulator<T> y(*at<T>(static_cast<const void*>(l.undropped), i));
  *at<T>(const_cast<void*>(l.in_data), i) = T(is_kept(l, i) ? y * Accumulator<T>(l.keep) : 0);
}

// Zeros in rows of packed sequences that belong to no sequence: of y, or of dgates and dx.
template <class T> MINIDNN_HD void clear_unused(const RnnProblem& p, const RnnLayer& l, int64_t item) {
  const int64_t hidden = p.directions * p.hidden;
  const bool forward = p.direction == RnnDirection::forward;
  const int64_t of_gates = forward ? 0 : p.gate_gradients() * hidden;
  const int64_t width = forward ? hidden : of_gates + p.input_size(l.index), row = item / width, i = item % width;
  if (row < l.first_rows[p.steps]) return;
  if (forward) {
    *at<T>(l.out_data, row * l.out.stride[0] + i * l.out.stride[1]) = T(0);
  } else if (i < of_gates) {
    const int64_t size = of_gates / p.directions;
    dgate_row<T>(p, l, i / size, row)[i % size] = T(0);
  } else if (l.index == 0) {
    *at<T>(l.din_data, row * l.in.stride[0] + (i - of_gates) * l.in.stride[1]) = T(0);
  }
}

// The sums of a step, computed from the weights.
template <class T> struct ComputedSums {
  const RnnProblem& p;
  const RnnLayer& l;

  // W x + b_ih and U h + b_hh of gate k of a unit at step t, with h before it.
  MINIDNN_HD Accumulator<T> of_x(const Unit& u, int64_t t, int64_t k) const {
    return input_sum(l, u.direction, k * p.hidden + u.unit, input<T>(p, l, t, u.n), p.input_size(l.index));
  }
  MINIDNN_HD Accumulator<T> of_h(const Unit& u, int64_t k, Elements<T> h) const {
    return hidden_sum(p, l, u.direction, k * p.hidden + u.unit, h);
  }
  // The gradients of h of some units, by the gates of the step after `step`.
  template <int kUnits>
  MINIDNN_HD void add_gradients(const Unit& first, int64_t step, int64_t count, Accumulator<T> (&sums)[kUnits]) const {
    const int64_t H = p.hidden;
    const bool gru = p.mode == RnnMode::gru;
    const T* next = dgate_row<T>(p, l, first.direction, row_of(p, l, first.time(step + 1), first.n));
    const T* w = weight<T>(l, first.direction, kHiddenWeight) + first.unit;
    add_columns(w, H, next, gru ? 2 * H : p.gates() * H, count, sums);
    if (gru && !p.reset_before) add_columns(w + 2 * H * H, H, next + 3 * H, H, count, sums);
  }
};

// A unit of h, and of c. A GRU with reset_before computes only q and z; forward_candidate() follows.
template <class T, class Sums>
MINIDNN_HD void forward_unit(const RnnProblem& p, const RnnLayer& l, int64_t step, const Unit& u, const Sums& sums) {
  using Acc = Accumulator<T>;
  if (step >= u.length) {
    if (!p.packed) output<T>(p, l, u, step) = T(0);
    return;
  }
  const int64_t H = p.hidden, t = u.time(step), row = row_of(p, l, t, u.n);
  const Elements<T> h = h_before<T>(p, l, u, step);
  Acc of_x[4], of_h[4];
  for (int64_t k = 0; k < p.gates(); ++k) {
    if (p.reset_before && k == 2) break;  // forward_candidate() computes n
    of_x[k] = sums.of_x(u, t, k);
    of_h[k] = sums.of_h(u, k, h);
  }
  T* const saved = p.training ? gate_row<T>(p, l, u.direction, row) + u.unit : nullptr;
  const auto save = [&](Acc a, Acc b, Acc c, Acc d) {
    if (!saved) return;
    saved[0] = T(a);
    if (p.saved_gates() == 1) return;
    saved[H] = T(b);
    saved[2 * H] = T(c);
    saved[3 * H] = T(d);
  };
  if (p.mode == RnnMode::lstm) {
    Acc& state = *at<Acc>(l.state, state_index(p, u));
    const Acc i = detail::sigmoid(of_x[0] + of_h[0]), f = detail::sigmoid(of_x[1] + of_h[1]);
    const Acc g = maths::tanh(of_x[2] + of_h[2]), o = detail::sigmoid(of_x[3] + of_h[3]);
    Acc c = f * (step ? state : value_or_zero<T>(l.c0, state_index(p, u))) + i * g;
    if (p.has_clip) c = clipped(c, Acc(l.clip));
    state = c;
    output<T>(p, l, u, t) = T(o * maths::tanh(c));
    save(i, f, g, o);
    if (p.training) *at<Acc>(l.cells, (u.direction * p.rows() + row) * H + u.unit) = c;
  } else if (p.mode == RnnMode::gru) {
    const Acc r = detail::sigmoid(of_x[0] + of_h[0]), z = detail::sigmoid(of_x[1] + of_h[1]);
    const Acc q = p.reset_before ? r * h[u.unit] : of_h[2];
    if (p.reset_before) {
      *at<Acc>(l.q, state_index(p, u)) = q;
      *at<Acc>(l.z, state_index(p, u)) = z;
      return save(r, z, 0, q);
    }
    const Acc n = maths::tanh(of_x[2] + r * q);
    output<T>(p, l, u, t) = T((1 - z) * n + z * h[u.unit]);
    save(r, z, n, q);
  } else {
    const Acc sum = of_x[0] + of_h[0];
    const Acc value = p.mode == RnnMode::tanh ? maths::tanh(sum) : sum < 0 ? Acc(0) : sum;  // relu keeps NaN
    output<T>(p, l, u, t) = T(value);
    save(value, 0, 0, 0);
  }
}

// The second half of a step of a GRU with reset_before.
template <class T>
MINIDNN_HD void forward_candidate(const RnnProblem& p, const RnnLayer& l, int64_t step, int64_t item) {
  using Acc = Accumulator<T>;
  const Unit u = unit_of(p, l, item, 1);
  if (step >= u.length) return;
  const int64_t H = p.hidden, t = u.time(step), gate = 2 * H + u.unit;
  const Acc* q = at<Acc>(static_cast<const void*>(l.q), (u.direction * p.batch + u.n) * H);
  const Acc z = *at<Acc>(l.z, state_index(p, u)), h = h_before<T>(p, l, u, step)[u.unit];
  const Acc n = maths::tanh(input_sum(l, u.direction, gate, input<T>(p, l, t, u.n), p.input_size(l.index)) +
                            dot(weight<T>(l, u.direction, kHiddenWeight) + gate * H, q, 1, H) +
                            value_or_zero<T>(l.weights[u.direction][kHiddenBias], gate));
  output<T>(p, l, u, t) = T((1 - z) * n + z * h);
  if (p.training) gate_row<T>(p, l, u.direction, row_of(p, l, t, u.n))[gate] = T(n);
}

// hn and cn: the states after the last step.
template <class T> MINIDNN_HD void last_state(const RnnProblem& p, const RnnLayer& l, int64_t item) {
  using Acc = Accumulator<T>;
  const Unit u = unit_of(p, l, item, 1);
  const int64_t i = state_index(p, u);
  const bool none = u.length == 0;
  *at<T>(l.hn, i) = none ? T(value_or_zero<T>(l.h0, i)) : output<T>(p, l, u, u.time(u.length - 1));
  if (p.mode == RnnMode::lstm) *at<T>(l.cn, i) = T(none ? value_or_zero<T>(l.c0, i) : *at<Acc>(l.state, i));
}

// The gradients of the gates of some units, for steps from the last to the first. Step -1 is the gradient of h0 and c0.
// A GRU with reset_before computes all but dr; backward_reset() follows.
template <int kUnits, class T, class Sums>
MINIDNN_HD void backward_units(const RnnProblem& p, const RnnLayer& l, int64_t step, Unit u, const Sums& computed) {
  using Acc = Accumulator<T>;
  const int64_t H = p.hidden, first = u.unit, count = min_of<int64_t>(kUnits, H - first), K = p.gate_gradients();
  const bool lstm = p.mode == RnnMode::lstm, gru = p.mode == RnnMode::gru, is_last = step == u.length - 1;
  if (step >= u.length) {
    T* g = p.packed ? nullptr : dgate_row<T>(p, l, u.direction, row_of(p, l, step, u.n)) + first;
    for (int64_t k = 0; g && k < K; ++k)
      for (int64_t j = 0; j < count; ++j) g[k * H + j] = T(0);
    return;
  }
  Acc sums[kUnits]{};
  if (!is_last) computed.add_gradients(u, step, count, sums);
  const int64_t t = u.time(step), row = step < 0 ? 0 : row_of(p, l, t, u.n);
  const Elements<T> before = h_before<T>(p, l, u, step < 0 ? 0 : step);
  for (int64_t j = 0; j < count; ++j, ++u.unit) {
    const int64_t i = state_index(p, u);
    Acc& state = *at<Acc>(l.state, i);
    Acc dh = is_last ? value_or_zero<T>(l.dhn, i) : sums[j] + (gru ? state : Acc(0));
    const Acc dc_after = !lstm ? Acc(0) : is_last ? value_or_zero<T>(l.dcn, i) : state;
    if (step < 0) {
      *at<T>(l.dh0, i) = T(dh);
      if (lstm) *at<T>(l.dc0, i) = T(dc_after);
      continue;
    }
    const int64_t dy = offset_of(p, l, l.dy, t, u.n) + (u.direction * H + u.unit) * l.dy.stride[l.dy.rank - 1];
    dh += l.dy_is_sum ? *at<Acc>(l.dy_data, dy) : Acc(*at<T>(l.dy_data, dy));
    const T* const saved = gate_row<T>(p, l, u.direction, row) + u.unit;
    T* const g = dgate_row<T>(p, l, u.direction, row) + u.unit;
    const Acc first_gate(saved[0]);
    if (lstm) {
      const Acc in = first_gate, f(saved[H]), cell(saved[2 * H]), o(saved[3 * H]);
      const int64_t rows = u.direction * p.rows();
      const Acc c = *at<Acc>(l.cells, (rows + row) * H + u.unit), squashed = maths::tanh(c);
      const Acc c_before = step ? *at<Acc>(l.cells, (rows + row_of(p, l, u.time(step - 1), u.n)) * H + u.unit)
                                : value_or_zero<T>(l.c0, i);
      Acc dc = dc_after + dh * o * tanh_slope(squashed);
      if (p.has_clip && maths::abs(c) >= Acc(l.clip)) dc = 0;
      g[0] = T(dc * cell * in * (1 - in));
      g[H] = T(dc * c_before * f * (1 - f));
      g[2 * H] = T(dc * in * tanh_slope(cell));
      g[3 * H] = T(dh * squashed * o * (1 - o));
      state = dc * f;
    } else if (gru) {
      const Acc r = first_gate, z(saved[H]), n(saved[2 * H]);
      const Acc dn = dh * (1 - z) * tanh_slope(n);
      g[H] = T(dh * (before[u.unit] - n) * z * (1 - z));
      g[2 * H] = T(dn);
      state = dh * z;
      if (p.reset_before) continue;
      g[0] = T(dn * Acc(saved[3 * H]) * r * (1 - r));
      g[3 * H] = T(dn * r);
    } else {
      g[0] = T(p.mode == RnnMode::tanh ? dh * tanh_slope(first_gate) : first_gate <= 0 ? Acc(0) : dh);
    }
  }
}

// The second half of a step backward of a GRU with reset_before: dr, from the gradient of r h.
template <int kUnits, class T>
MINIDNN_HD void backward_reset(const RnnProblem& p, const RnnLayer& l, int64_t step, int64_t item) {
  using Acc = Accumulator<T>;
  Unit u = unit_of(p, l, item, kUnits);
  if (step >= u.length) return;
  const int64_t H = p.hidden, count = min_of<int64_t>(kUnits, H - u.unit), row = row_of(p, l, u.time(step), u.n);
  T* const g = dgate_row<T>(p, l, u.direction, row);
  Acc dq[kUnits]{};
  add_columns(weight<T>(l, u.direction, kHiddenWeight) + 2 * H * H + u.unit, H, g + 2 * H, H, count, dq);
  const Elements<T> before = h_before<T>(p, l, u, step);
  for (int64_t j = 0; j < count; ++j, ++u.unit) {
    const Acc r(gate_row<T>(p, l, u.direction, row)[u.unit]);
    g[u.unit] = T(dq[j] * before[u.unit] * r * (1 - r));
    *at<Acc>(l.state, state_index(p, u)) += dq[j] * r;
  }
}

// The gradient of some elements of the input. Items are [T, N, ceil(I / units)].
template <int kUnits, class T> MINIDNN_HD void input_gradient(const RnnProblem& p, const RnnLayer& l, int64_t item) {
  using Acc = Accumulator<T>;
  const int64_t inputs = p.input_size(l.index), blocks = ceil_div(inputs, int64_t(kUnits));
  const int64_t first = item % blocks * kUnits, count = min_of<int64_t>(kUnits, inputs - first);
  const int64_t n = item / blocks % p.batch, t = item / blocks / p.batch;
  const bool is_valid = t < l.lengths[n];
  if (!is_valid && p.packed) return;
  const int64_t row = row_of(p, l, t, n);
  Acc sums[kUnits]{};
  for (int64_t d = 0; is_valid && d < p.directions; ++d)
    add_columns(weight<T>(l, d, kInputWeight) + first, inputs, dgate_row<T>(p, l, d, row), p.gates() * p.hidden, count,
                sums);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t i = first + j;
    if (l.index == 0) {
      *at<T>(l.din_data, offset_of(p, l, l.in, t, n) + i * l.in.stride[l.in.rank - 1]) = T(sums[j]);
      continue;
    }
    const int64_t element = row * inputs + i;
    const Acc factor = !p.has_dropout ? Acc(1) : is_kept(l, element) ? Acc(l.keep) : Acc(0);
    *at<Acc>(l.din_data, element) = sums[j] * factor;
  }
}

// The gradients of the weights of a layer: items are [directions, gates H, blocks of columns of w_ih, those of w_hh,
// b_ih and b_hh]. The sums have a fixed order.
MINIDNN_HD int64_t weight_blocks(const RnnProblem& p, int64_t layer, int64_t units) {
  return ceil_div(p.input_size(layer), units) + ceil_div(p.hidden, units) + 2 * p.has_bias;
}
template <int kUnits, class T> MINIDNN_HD void weight_gradient(const RnnProblem& p, const RnnLayer& l, int64_t item) {
  using Acc = Accumulator<T>;
  constexpr int64_t units = kUnits, kRowsOfPart = 64;
  const int64_t H = p.hidden, inputs = p.input_size(l.index), blocks = weight_blocks(p, l.index, kUnits);
  const int64_t matrix_row = item / blocks % (p.gates() * H), direction = item / blocks / (p.gates() * H);
  const int64_t of_input = ceil_div(inputs, units), of_hidden = ceil_div(H, units);
  int64_t block = item % blocks, which = kInputWeight;
  if (block >= of_input + of_hidden) which = block - of_input - of_hidden ? kHiddenBias : kInputBias;
  else if (block >= of_input) which = kHiddenWeight;
  block -= which == kHiddenWeight ? of_input : 0;
  const bool is_bias = which >= kInputBias, of_h = which == kHiddenWeight || which == kHiddenBias;
  const int64_t columns = is_bias ? 1 : of_h ? H : inputs, first = is_bias ? 0 : block * units;
  const int64_t count = min_of(units, columns - first);
  // n of a GRU: U sees r dn, or with reset_before multiplies q.
  const bool of_n = p.mode == RnnMode::gru && of_h && matrix_row >= 2 * H, by_q = of_n && p.reset_before;
  const int64_t gradient = matrix_row + (of_n && !p.reset_before ? H : 0);

  CompensatedSum<Acc> sums[kUnits];
  Acc parts[kUnits]{};
  int64_t rows = 0;
  for (int64_t n = 0; n < p.batch; ++n) {
    const Unit u{direction, n, 0, l.lengths[n]};
    for (int64_t step = 0; step < u.length; ++step) {
      const int64_t t = u.time(step), row = row_of(p, l, t, n);
      const Acc g(dgate_row<T>(p, l, direction, row)[gradient]);
      if (is_bias) {
        parts[0] += g;
      } else {
        const Elements<T> with = by_q   ? Elements<T>{gate_row<T>(p, l, direction, row) + 3 * H, 1}
                                 : of_h ? h_before<T>(p, l, u, step)
                                        : input<T>(p, l, t, n);
        for (int j = 0; j < kUnits; ++j)
          if (j < count) parts[j] += g * with[first + j];
      }
      if (++rows % kRowsOfPart) continue;
      for (int j = 0; j < kUnits; ++j) {
        sums[j].add(parts[j]);
        parts[j] = 0;
      }
    }
  }
  T* const to = static_cast<T*>(l.weights[direction][which]) + matrix_row * columns + first;
  for (int j = 0; j < kUnits; ++j) {
    if (j >= count) break;
    sums[j].add(parts[j]);
    to[j] = T(sums[j].value() + (p.accumulate ? Acc(to[j]) : Acc(0)));
  }
}

}  // namespace rnn

// Computes an item of a pass. `step` is that of passes over one step.
template <int kUnits, class T>
MINIDNN_HD void rnn_item(RnnPass pass, const RnnProblem& p, const RnnLayer& l, int64_t step, int64_t item) {
  switch (pass) {
    case RnnPass::begin:
      return rnn::begin(p, l, item);
    case RnnPass::drop:
      return rnn::drop<T>(l, item);
    case RnnPass::clear_unused:
      return rnn::clear_unused<T>(p, l, item);
    case RnnPass::forward_unit:
      return rnn::forward_unit<T>(p, l, step, rnn::unit_of(p, l, item, 1), rnn::ComputedSums<T>{p, l});
    case RnnPass::forward_candidate:
      return rnn::forward_candidate<T>(p, l, step, item);
    case RnnPass::last_state:
      return rnn::last_state<T>(p, l, item);
    case RnnPass::backward_units:
      return rnn::backward_units<kUnits, T>(p, l, step, rnn::unit_of(p, l, item, kUnits), rnn::ComputedSums<T>{p, l});
    case RnnPass::backward_reset:
      return rnn::backward_reset<kUnits, T>(p, l, step, item);
    case RnnPass::input_gradient:
      return rnn::input_gradient<kUnits, T>(p, l, item);
    case RnnPass::weight_gradient:
      return rnn::weight_gradient<kUnits, T>(p, l, item);
  }
}

}  // namespace minidnn
