// SPDX-License-Identifier: Apache-2.0
// Attention of one row of q, and its gradients. A team of threads (one thread on a CPU) computes one row of o, of dq, or
// of dk and dv. A row needs no memory besides its result: scores are computed again where they are needed.
//   z = softcap(scale q k^T) + bias + alibi;  p = exp(z - lse);  o = dropout(p) v
// Sums, scores and exponentials are float32, and float64 for float64.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"
#include "cpp/core/host_device/team.h"
#include "cpp/random/random_math.h"

namespace minidnn {

enum class AttentionDirection : int64_t { forward, backward, decode };

constexpr int64_t kAttentionMostHead = 576;  // the largest size of a head

// B sequences, H heads of q, Hk heads of k and v. All tensors but lse have rank 4. An absent tensor has rank 0.
struct AttentionProblem {
  AttentionDirection direction{};
  // q, o, d_o, dq [B, H, Sq, D or Dv]; k, v, dk, dv [B, Hk, Sk, D or Dv]. Packed sequences are rows of one tensor, whose
  // first dimension has size 1. Pages of a cache are [pages, Hk, page size, D].
  TensorDesc q, k, v, o, d_o, dq, dk, dv;
  TensorDesc lse;          // [B, H, Sq] or, packed, [H, rows]; row-major; float64 for float64, else float32
  TensorDesc bias, dbias;  // [B, H, Sq, Sk], with a size of 1 where the bias is broadcast
  // Row i of q sees column j of k if i + shift - left <= j <= i + shift + right. -1: no limit. The shift is 0, or the
  // length of k minus the length of q if bottom_right is 1.
  int64_t left = -1, right = -1, bottom_right = 0;
  int64_t alibi = 0;  // the rank of the slopes: 1 for [H], 2 for [B, H]; 0: no slopes
  int64_t has_softcap = 0, has_sink = 0, has_dropout = 0;  // 1 or 0
  int64_t has_q_lengths = 0, has_kv_lengths = 0;
  int64_t negative_scale = 0;     // 1 if the scale is not above 0
  int64_t packed = 0;             // the number of packed sequences; 0: not packed
  int64_t max_q = 0, max_kv = 0;  // bounds of the lengths of packed sequences
  int64_t pages_of_sequence = 0;  // the number of pages of a sequence; 0: k and v have no pages
  int64_t ieee = 0;               // 1 if float32 products stay float32
  int64_t alignment = 16;         // the bytes to which all tensors of q's dtype are aligned, at most 16

  MINIDNN_HD int64_t batch() const { return packed ? packed : q.shape[0]; }
  MINIDNN_HD int64_t heads() const { return q.shape[1]; }
  MINIDNN_HD int64_t kv_heads() const { return k.shape[1]; }
  MINIDNN_HD int64_t kv_head_of(int64_t head) const { return head / (q.shape[1] / k.shape[1]); }
  MINIDNN_HD int64_t head_size() const { return q.shape[3]; }
  MINIDNN_HD int64_t value_size() const { return v.shape[3]; }
  // The most rows of q, and of k and v, of a sequence.
  MINIDNN_HD int64_t q_size() const { return packed ? max_q : q.shape[2]; }
  MINIDNN_HD int64_t kv_size() const {
    return packed ? max_kv : pages_of_sequence ? pages_of_sequence * k.shape[2] : k.shape[2];
  }
};

struct AttentionArgs {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *d_o = nullptr;
  void *o = nullptr, *lse = nullptr;  // forward writes them; backward reads them
  void *dq = nullptr, *dk = nullptr, *dv = nullptr, *dbias = nullptr, *dsink = nullptr;
  // alibi, sink and dsink have the dtype of lse.
  const void *bias = nullptr, *alibi = nullptr, *sink = nullptr;
  // int32 on the device. Kernels clamp them, so that no content leads out of a tensor.
  const void *q_lengths = nullptr, *kv_lengths = nullptr;  // [B]
  const void *cu_q = nullptr, *cu_kv = nullptr;            // [B + 1]: sequence b has the rows cu[b] to cu[b + 1] - 1
  const void* pages = nullptr;                             // [B, pages_of_sequence]: the numbers of pages
  double scale = 1, softcap = 0;
  uint64_t seed = 0, offset = 0, threshold = 0;  // of dropout: a probability is dropped if its word is below
  double keep = 1;                               // 1 / (1 - dropout)
};

// One sequence: the first rows of its tensors, its lengths, and its shift.
struct AttentionSequence {
  int64_t b, q_first, kv_first, q_length, kv_length, shift;
};
struct AttentionRange {
  int64_t begin, end;
};

namespace attention {

MINIDNN_HD int64_t clamp(int64_t v, int64_t least, int64_t most) { return v < least ? least : v > most ? most : v; }
MINIDNN_HD int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MINIDNN_HD int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }

MINIDNN_HD int64_t int_at(const void* ints, int64_t i) { return static_cast<const int32_t*>(ints)[i]; }

// The rows of packed sequence b, of which at most `most` are used.
MINIDNN_HD AttentionRange packed_rows(const void* cu, int64_t b, int64_t rows, int64_t most) {
  const int64_t begin = clamp(int_at(cu, b), 0, rows), end = clamp(int_at(cu, b + 1), begin, rows);
  return {begin, smaller(end, begin + most)};
}

MINIDNN_HD AttentionSequence sequence(const AttentionProblem& p, const AttentionArgs& a, int64_t b) {
  AttentionSequence s{b, 0, 0, p.q_size(), p.kv_size(), 0};
  if (p.packed) {
    const AttentionRange rows = packed_rows(a.cu_q, b, p.q.shape[2], p.max_q);
    const AttentionRange columns = packed_rows(a.cu_kv, b, p.k.shape[2], p.max_kv);
    s.q_first = rows.begin;
    s.kv_first = columns.begin;
    s.q_length = rows.end - rows.begin;
    s.kv_length = columns.end - columns.begin;
  }
  if (p.has_q_lengths) s.q_length = clamp(int_at(a.q_lengths, b), 0, s.q_length);
  if (p.has_kv_lengths) s.kv_length = clamp(int_at(a.kv_lengths, b), 0, s.kv_length);
  if (p.bottom_right) s.shift = s.kv_length - s.q_length;
  return s;
}

// A row of a tensor: its sequence, and its index in it. `b` is -1 if the row belongs to no sequence.
struct Located {
  AttentionSequence of;
  int64_t index;
};
// Returns the sequence of row t of a tensor: of batch entry b, or, if packed, of the last sequence that begins at t or
// before.
MINIDNN_HD Located locate(const AttentionProblem& p, const AttentionArgs& a, int64_t b, int64_t t, bool of_q) {
  if (!p.packed) return {sequence(p, a, b), t};
  const void* const cu = of_q ? a.cu_q : a.cu_kv;
  int64_t low = 0, high = p.packed;  // `high` is the first sequence that begins after row t
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (int_at(cu, middle) <= t) low = middle + 1;
    else high = middle;
  }
  Located found{{-1, 0, 0, 0, 0, 0}, 0};
  if (low == 0) return found;
  found.of = sequence(p, a, low - 1);
  found.index = t - (of_q ? found.of.q_first : found.of.kv_first);
  if (found.index < 0 || found.index >= (of_q ? found.of.q_length : found.of.kv_length)) found.of.b = -1;
  return found;
}

// The columns that row i sees, and the rows that see column j.
MINIDNN_HD AttentionRange columns_of(const AttentionProblem& p, const AttentionSequence& s, int64_t i) {
  const int64_t at = i + s.shift;
  AttentionRange r{p.left < 0 ? 0 : larger(0, at - p.left),
                   p.right < 0 ? s.kv_length : smaller(s.kv_length, at + p.right + 1)};
  if (i >= s.q_length || r.end < r.begin) r.end = r.begin;
  return r;
}
MINIDNN_HD AttentionRange rows_of(const AttentionProblem& p, const AttentionSequence& s, int64_t j) {
  const int64_t at = j - s.shift;
  AttentionRange r{p.right < 0 ? 0 : larger(0, at - p.right),
                   p.left < 0 ? s.q_length : smaller(s.q_length, at + p.left + 1)};
  if (j >= s.kv_length || r.end < r.begin) r.end = r.begin;
  return r;
}

// The first element of row t of head h, for q, o, d_o and dq, and for k, v, dk and dv.
template <class T> MINIDNN_HD T* q_row(const TensorDesc& d, T* data, const AttentionProblem& p,
                                       const AttentionSequence& s, int64_t h, int64_t i) {
  return data + (p.packed ? 0 : s.b) * d.stride[0] + h * d.stride[1] + (s.q_first + i) * d.stride[2];
}
template <class T> MINIDNN_HD T* kv_row(const TensorDesc& d, T* data, const AttentionProblem& p, const AttentionArgs& a,
                                        const AttentionSequence& s, int64_t h, int64_t j) {
  int64_t first = p.packed ? 0 : s.b, row = s.kv_first + j;
  if (p.pages_of_sequence) {
    const int64_t size = d.shape[2];
    first = clamp(int_at(a.pages, s.b * p.pages_of_sequence + j / size), 0, d.shape[0] - 1);
    row = j % size;
  }
  return data + first * d.stride[0] + h * d.stride[1] + row * d.stride[2];
}

template <class Acc, class T> MINIDNN_HD Acc dot(const T* x, int64_t x_step, const T* y, int64_t y_step, int64_t n) {
  Acc sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += Acc(x[i * x_step]) * Acc(y[i * y_step]);
  return sum;
}

MINIDNN_HD int64_t bias_offset(const AttentionProblem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  const TensorDesc& d = p.bias;
  const int64_t at[] = {b, h, i, j};
  int64_t offset = 0;
  for (int k = 0; k < 4; ++k) offset += d.shape[k] == 1 ? 0 : at[k] * d.stride[k];
  return offset;
}

// A score, and the derivative of the softcap at it. A score that a boolean bias hides is -inf.
template <class Acc> struct Score {
  Acc value, slope;
};
template <class T> MINIDNN_HD Score<Accumulator<T>> score(const AttentionProblem& p, const AttentionArgs& a,
                                                          const AttentionSequence& s, int64_t h, int64_t i, int64_t j) {
  using Acc = Accumulator<T>;
  if (p.bias.rank && p.bias.dtype == DType::boolean && !static_cast<const bool*>(a.bias)[bias_offset(p, s.b, h, i, j)])
    return {-INFINITY, 0};
  const T* q = q_row(p.q, static_cast<const T*>(a.q), p, s, h, i);
  const T* k = kv_row(p.k, static_cast<const T*>(a.k), p, a, s, p.kv_head_of(h), j);
  Score<Acc> z{Acc(a.scale) * dot<Acc>(q, p.q.stride[3], k, p.k.stride[3], p.head_size()), 1};
  if (p.has_softcap) {
    const Acc t = maths::tanh(z.value / Acc(a.softcap));
    z = {Acc(a.softcap) * t, 1 - t * t};
  }
  if (p.bias.rank && p.bias.dtype != DType::boolean) {
    const int64_t offset = bias_offset(p, s.b, h, i, j);
    z.value += p.bias.dtype == DType::float32 ? Acc(static_cast<const float*>(a.bias)[offset])
                                              : Acc(static_cast<const T*>(a.bias)[offset]);
  }
  if (p.alibi) {
    const Acc slope = static_cast<const Acc*>(a.alibi)[p.alibi == 2 ? s.b * p.heads() + h : h];
    const int64_t far = i + s.shift - j;
    z.value -= slope * Acc(far < 0 ? -far : far);
  }
  return z;
}

// Whether dropout keeps a probability: by the word that dropout_forward has for this element of a tensor
// [B, H, Sq, Sk], whose rows have a multiple of 4 elements.
MINIDNN_HD bool is_kept(const AttentionProblem& p, const AttentionArgs& a, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (!p.has_dropout) return true;
  const uint64_t columns = (uint64_t(p.kv_size()) + 3) / 4 * 4;
  const uint64_t element = (uint64_t(b * p.heads() + h) * uint64_t(p.q_size()) + uint64_t(i)) * columns + uint64_t(j);
  return dropout_word(a.seed, a.offset, element) >= a.threshold;
}

template <class T> MINIDNN_HD Accumulator<T>& lse_of(const AttentionProblem& p, const AttentionArgs& a,
                                                     const AttentionSequence& s, int64_t h, int64_t i) {
  const int64_t row = p.packed ? h * p.q.shape[2] + s.q_first + i : (s.b * p.heads() + h) * p.q.shape[2] + i;
  return static_cast<Accumulator<T>*>(a.lse)[row];
}

// delta = sum of d_o o over a row.
template <class T> MINIDNN_HD Accumulator<T> delta_of(const AttentionProblem& p, const AttentionArgs& a,
                                                      const AttentionSequence& s, int64_t h, int64_t i) {
  return dot<Accumulator<T>>(q_row(p.d_o, static_cast<const T*>(a.d_o), p, s, h, i), p.d_o.stride[3],
                             q_row(p.o, static_cast<const T*>(a.o), p, s, h, i), p.o.stride[3], p.value_size());
}

// What a pair of a row and a column adds to the gradients.
template <class Acc> struct PairGradient {
  Acc probability;  // after dropout, without its factor
  Acc z;            // the gradient of the score
  Acc product;      // the gradient of scale q k^T
};
template <class T> MINIDNN_HD PairGradient<Accumulator<T>> pair_gradient(const AttentionProblem& p,
                                                                         const AttentionArgs& a,
                                                                         const AttentionSequence& s, int64_t h,
                                                                         int64_t i, int64_t j, Accumulator<T> delta) {
  using Acc = Accumulator<T>;
  const Score<Acc> z = score<T>(p, a, s, h, i, j);
  if (z.value == Acc(-INFINITY)) return {0, 0, 0};  // hidden
  const Acc probability = maths::exp(z.value - lse_of<T>(p, a, s, h, i));
  const bool kept = is_kept(p, a, s.b, h, i, j);
  Acc of_p = 0;
  if (kept)
    of_p = Acc(a.keep) * dot<Acc>(q_row(p.d_o, static_cast<const T*>(a.d_o), p, s, h, i), p.d_o.stride[3],
                                  kv_row(p.v, static_cast<const T*>(a.v), p, a, s, p.kv_head_of(h), j), p.v.stride[3],
                                  p.value_size());
  const Acc of_z = probability * (of_p - delta);
  return {kept ? probability : 0, of_z, of_z * z.slope};
}

}  // namespace attention

// A team for the functions below adds to team.h:
//   scratch()            the address of 2 * kColumns accumulators, which all threads of the team share
//   sync()               waits for all threads of the team
//   kElements            kElements * size() is at least kAttentionMostHead
struct AttentionTeam {
  static constexpr int64_t kColumns = 128;
};

// Computes row i of o of head h, and its lse.
template <class T, class Team>
MINIDNN_HD void attention_forward_row(const AttentionProblem& p, const AttentionArgs& a, const AttentionSequence& s,
                                      int64_t h, int64_t i, Team& team) {
  using Acc = Accumulator<T>;
  const AttentionRange seen = attention::columns_of(p, s, i);
  Acc largest = -INFINITY;
  for (int64_t j = seen.begin + team.rank(); j < seen.end; j += team.size())
    largest = max_or_nan(largest, attention::score<T>(p, a, s, h, i, j).value);
  largest = team.max(largest);
  const bool has_sink = p.has_sink && i < s.q_length;
  const Acc sink = has_sink ? static_cast<const Acc*>(a.sink)[h] : Acc(0);
  if (has_sink) largest = max_or_nan(largest, sink);
  if (largest == Acc(-INFINITY)) largest = 0;

  Acc own[Team::kElements] = {}, partial = 0;
  Acc* const weights = team.scratch();
  for (int64_t first = seen.begin; first < seen.end; first += AttentionTeam::kColumns) {
    const int64_t n = attention::smaller(AttentionTeam::kColumns, seen.end - first);
    team.sync();
    for (int64_t t = team.rank(); t < n; t += team.size()) {
      const Acc z = attention::score<T>(p, a, s, h, i, first + t).value;
      const Acc e = z == Acc(-INFINITY) ? Acc(0) : maths::exp(z - largest);
      partial += e;
      weights[t] = attention::is_kept(p, a, s.b, h, i, first + t) ? e : Acc(0);
    }
    team.sync();
    for (int64_t t = 0; t < n; ++t) {
      if (weights[t] == 0) continue;  // a hidden column of v may hold NaN
      const T* v = attention::kv_row(p.v, static_cast<const T*>(a.v), p, a, s, p.kv_head_of(h), first + t);
      int e = 0;
      for (int64_t d = team.rank(); d < p.value_size(); d += team.size())
        own[e++] += weights[t] * Acc(v[d * p.v.stride[3]]);
    }
  }
  Acc sum = team.sum(partial);
  if (has_sink) sum += maths::exp(sink - largest);
  T* const o = attention::q_row(p.o, static_cast<T*>(a.o), p, s, h, i);
  int e = 0;
  for (int64_t d = team.rank(); d < p.value_size(); d += team.size())
    o[d * p.o.stride[3]] = T(sum == 0 ? Acc(0) : own[e++] * (Acc(a.keep) / sum));
  if (team.rank() == 0) attention::lse_of<T>(p, a, s, h, i) = sum == 0 ? Acc(-INFINITY) : largest + maths::log(sum);
}

// Computes row i of dq of head h.
template <class T, class Team>
MINIDNN_HD void attention_dq_row(const AttentionProblem& p, const AttentionArgs& a, const AttentionSequence& s,
                                 int64_t h, int64_t i, Team& team) {
  using Acc = Accumulator<T>;
  const AttentionRange seen = attention::columns_of(p, s, i);
  const Acc delta = seen.begin < seen.end ? attention::delta_of<T>(p, a, s, h, i) : Acc(0);
  Acc own[Team::kElements] = {};
  Acc* const gradients = team.scratch();
  for (int64_t first = seen.begin; first < seen.end; first += AttentionTeam::kColumns) {
    const int64_t n = attention::smaller(AttentionTeam::kColumns, seen.end - first);
    team.sync();
    for (int64_t t = team.rank(); t < n; t += team.size())
      gradients[t] = attention::pair_gradient<T>(p, a, s, h, i, first + t, delta).product;
    team.sync();
    for (int64_t t = 0; t < n; ++t) {
      if (gradients[t] == 0) continue;  // a hidden column of k may hold NaN
      const T* k = attention::kv_row(p.k, static_cast<const T*>(a.k), p, a, s, p.kv_head_of(h), first + t);
      int e = 0;
      for (int64_t d = team.rank(); d < p.head_size(); d += team.size())
        own[e++] += gradients[t] * Acc(k[d * p.k.stride[3]]);
    }
  }
  T* const dq = attention::q_row(p.dq, static_cast<T*>(a.dq), p, s, h, i);
  int e = 0;
  for (int64_t d = team.rank(); d < p.head_size(); d += team.size())
    dq[d * p.dq.stride[3]] = T(own[e++] * Acc(a.scale));
}

// Computes row j of dk and dv of head h of k: the sums over all rows of all heads of q that use it.
template <class T, class Team>
MINIDNN_HD void attention_dkv_row(const AttentionProblem& p, const AttentionArgs& a, const AttentionSequence& s,
                                  int64_t h, int64_t j, Team& team) {
  using Acc = Accumulator<T>;
  const AttentionRange rows = attention::rows_of(p, s, j);
  const int64_t group = p.heads() / p.kv_heads();
  Acc of_k[Team::kElements] = {}, of_v[Team::kElements] = {};
  Acc *const products = team.scratch(), *const weights = products + AttentionTeam::kColumns;
  for (int64_t head = h * group; head < (h + 1) * group; ++head)
    for (int64_t first = rows.begin; first < rows.end; first += AttentionTeam::kColumns) {
      const int64_t n = attention::smaller(AttentionTeam::kColumns, rows.end - first);
      team.sync();
      for (int64_t t = team.rank(); t < n; t += team.size()) {
        const Acc delta = attention::delta_of<T>(p, a, s, head, first + t);
        const auto pair = attention::pair_gradient<T>(p, a, s, head, first + t, j, delta);
        products[t] = pair.product;
        weights[t] = pair.probability;
      }
      team.sync();
      for (int64_t t = 0; t < n; ++t) {
        const T* q = attention::q_row(p.q, static_cast<const T*>(a.q), p, s, head, first + t);
        const T* d_o = attention::q_row(p.d_o, static_cast<const T*>(a.d_o), p, s, head, first + t);
        int e = 0;  // a row that does not see the column may hold NaN
        for (int64_t d = team.rank(); d < p.head_size() && products[t] != 0; d += team.size())
          of_k[e++] += products[t] * Acc(q[d * p.q.stride[3]]);
        e = 0;
        for (int64_t d = team.rank(); d < p.value_size() && weights[t] != 0; d += team.size())
          of_v[e++] += weights[t] * Acc(d_o[d * p.d_o.stride[3]]);
      }
    }
  T* const dk = attention::kv_row(p.dk, static_cast<T*>(a.dk), p, a, s, h, j);
  T* const dv = attention::kv_row(p.dv, static_cast<T*>(a.dv), p, a, s, h, j);
  int e = 0;
  for (int64_t d = team.rank(); d < p.head_size(); d += team.size())
    dk[d * p.dk.stride[3]] = T(of_k[e++] * Acc(a.scale));
  e = 0;
  for (int64_t d = team.rank(); d < p.value_size(); d += team.size())
    dv[d * p.dv.stride[3]] = T(of_v[e++] * Acc(a.keep));
}

// Computes element number `index` of dbias: the sum of the gradients of all scores to which it was added.
template <class T, class Team>
MINIDNN_HD void attention_dbias_element(const AttentionProblem& p, const AttentionArgs& a, int64_t index, Team& team) {
  using Acc = Accumulator<T>;
  const TensorDesc& d = p.dbias;
  const int64_t full[] = {p.batch(), p.heads(), p.q_size(), p.kv_size()};
  int64_t first[4], count[4], total = 1, rest = index;
  for (int k = 3; k >= 0; --k) {
    const bool one = d.shape[k] == 1;
    first[k] = one ? 0 : rest % d.shape[k];
    count[k] = one ? full[k] : 1;
    rest /= d.shape[k];
    total *= count[k];
  }
  CompensatedSum<Acc> sum;
  for (int64_t n = team.rank(); n < total; n += team.size()) {
    int64_t at[4], left = n;
    for (int k = 3; k >= 0; --k) {
      at[k] = first[k] + left % count[k];
      left /= count[k];
    }
    const AttentionSequence s = attention::sequence(p, a, at[0]);
    const AttentionRange seen = attention::columns_of(p, s, at[2]);
    if (at[3] < seen.begin || at[3] >= seen.end) continue;
    sum.add(attention::pair_gradient<T>(p, a, s, at[1], at[2], at[3], attention::delta_of<T>(p, a, s, at[1], at[2])).z);
  }
  const Acc all = team.sum(sum.value());
  if (team.rank() != 0) return;
  const int64_t offset = d.offset_of(index);
  if (d.dtype == DType::float32) static_cast<float*>(a.dbias)[offset] = float(all);
  else static_cast<T*>(a.dbias)[offset] = T(all);
}

// Computes the gradient of the sink of head h.
template <class T, class Team>
MINIDNN_HD void attention_dsink(const AttentionProblem& p, const AttentionArgs& a, int64_t h, Team& team) {
  using Acc = Accumulator<T>;
  const Acc sink = static_cast<const Acc*>(a.sink)[h];
  CompensatedSum<Acc> sum;
  for (int64_t n = team.rank(); n < p.batch() * p.q_size(); n += team.size()) {
    const AttentionSequence s = attention::sequence(p, a, n / p.q_size());
    const int64_t i = n % p.q_size();
    if (i >= s.q_length) continue;
    sum.add(-maths::exp(sink - attention::lse_of<T>(p, a, s, h, i)) * attention::delta_of<T>(p, a, s, h, i));
  }
  const Acc all = team.sum(sum.value());
  if (team.rank() == 0) static_cast<Acc*>(a.dsink)[h] = all;
}

// Writes zeros to row t of o (and -inf to its lse) or of dq, which belongs to no sequence.
template <class T, class Team>
MINIDNN_HD void attention_empty_q_row(const AttentionProblem& p, const AttentionArgs& a, int64_t h, int64_t t,
                                      Team& team) {
  const bool backward = p.direction == AttentionDirection::backward;
  const TensorDesc& d = backward ? p.dq : p.o;
  T* const row = static_cast<T*>(backward ? a.dq : a.o) + h * d.stride[1] + t * d.stride[2];
  for (int64_t i = team.rank(); i < d.shape[3]; i += team.size()) row[i * d.stride[3]] = T(0.0f);
  if (!backward && team.rank() == 0) static_cast<Accumulator<T>*>(a.lse)[h * p.q.shape[2] + t] = -INFINITY;
}
// Writes zeros to row t of dk and dv.
template <class T, class Team>
MINIDNN_HD void attention_empty_kv_row(const AttentionProblem& p, const AttentionArgs& a, int64_t h, int64_t t,
                                       Team& team) {
  T* const dk = static_cast<T*>(a.dk) + h * p.dk.stride[1] + t * p.dk.stride[2];
  T* const dv = static_cast<T*>(a.dv) + h * p.dv.stride[1] + t * p.dv.stride[2];
  for (int64_t i = team.rank(); i < p.head_size(); i += team.size()) dk[i * p.dk.stride[3]] = T(0.0f);
  for (int64_t i = team.rank(); i < p.value_size(); i += team.size()) dv[i * p.dv.stride[3]] = T(0.0f);
}

// Row number `index` of o and lse, in row-major order of [B, H, Sq]; and the same of dq, and of dk and dv [B, Hk, Sk].
template <class T, class Team>
MINIDNN_HD void attention_q_row(const AttentionProblem& p, const AttentionArgs& a, int64_t index, Team& team) {
  const int64_t rows = p.q.shape[2], t = index % rows, h = index / rows % p.heads();
  const attention::Located at = attention::locate(p, a, index / rows / p.heads(), t, true);
  if (at.of.b < 0) attention_empty_q_row<T>(p, a, h, t, team);
  else if (p.direction == AttentionDirection::backward) attention_dq_row<T>(p, a, at.of, h, at.index, team);
  else attention_forward_row<T>(p, a, at.of, h, at.index, team);
}
template <class T, class Team>
MINIDNN_HD void attention_kv_row(const AttentionProblem& p, const AttentionArgs& a, int64_t index, Team& team) {
  const int64_t rows = p.k.shape[2], t = index % rows, h = index / rows % p.kv_heads();
  const attention::Located at = attention::locate(p, a, index / rows / p.kv_heads(), t, false);
  if (at.of.b < 0) attention_empty_kv_row<T>(p, a, h, t, team);
  else attention_dkv_row<T>(p, a, at.of, h, at.index, team);
}

}  // namespace minidnn
