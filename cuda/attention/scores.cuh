// SPDX-License-Identifier: Apache-2.0
// Scores of attention in the fragments of mma.sync, for the forward and the backward kernels: the columns that a row
// sees, and what is added to the products of q and k. attention_math.h defines the results.
//
// A fragment is 16 rows x 8 columns of float32. Lane l holds four elements: e = 0, 1 are columns 2 (l % 4) and
// 2 (l % 4) + 1 of row l / 4, and e = 2, 3 are the same columns of row l / 4 + 8. The accumulators of wgmma have this
// layout, too. Scores are in natural units: z = softcap(scale q k^T) + bias + alibi.
#pragma once
#include "cuda/attention/mma_params.h"
#include "cuda/device/fast_math.cuh"
#include "cuda/device/philox.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"

namespace minidnn {

// A sequence as attention::sequence() finds it, in 32 bits.
struct SequenceRows {
  int32_t b, q_first, kv_first, q_length, kv_length, shift;
};
// begin <= index < end
struct IndexRange {
  int32_t begin, end;
};

__device__ __forceinline__ int32_t clamped(int32_t v, int32_t least, int32_t most) { return max(least, min(v, most)); }

__device__ __forceinline__ IndexRange packed_rows_of(const void* cu, int32_t b, int32_t rows, int32_t most) {
  const int32_t* const at = static_cast<const int32_t*>(cu) + b;
  const int32_t begin = clamped(at[0], 0, rows), end = clamped(at[1], begin, rows);
  return {begin, begin + min(end - begin, most)};
}

// Row `row` of head h of a tensor.
template <class T>
__device__ __forceinline__ T* row_of_head(const void* data, const AttentionStrides& d, int32_t b, int32_t h,
                                          int64_t row) {
  return static_cast<T*>(const_cast<void*>(data)) + (b * d.batch + h * d.head + row * d.row);
}

// Reads the lengths of sequence b. A kernel calls griddep_wait() before.
__device__ __forceinline__ SequenceRows sequence_rows(const AttentionScoreParams& p, const AttentionArgs& a,
                                                      int32_t b) {
  SequenceRows s{b, 0, 0, p.q_size, p.kv_size, 0};
  if (p.packed) {
    const IndexRange rows = packed_rows_of(a.cu_q, b, p.q_rows, p.q_size);
    const IndexRange columns = packed_rows_of(a.cu_kv, b, p.kv_rows, p.kv_size);
    s = {b, rows.begin, columns.begin, rows.end - rows.begin, columns.end - columns.begin, 0};
  }
  if (p.has_q_lengths) s.q_length = clamped(static_cast<const int32_t*>(a.q_lengths)[b], 0, s.q_length);
  if (p.has_kv_lengths) s.kv_length = clamped(static_cast<const int32_t*>(a.kv_lengths)[b], 0, s.kv_length);
  if (p.bottom_right) s.shift = s.kv_length - s.q_length;
  return s;
}

// The number of row 0 of head h of a sequence, in lse.
__device__ __forceinline__ int64_t lse_row_of(const AttentionScoreParams& p, const SequenceRows& s, int32_t h) {
  return p.packed ? int64_t(h) * p.q_rows + s.q_first : (int64_t(s.b) * p.heads + h) * p.q_rows;
}

// The columns that row i sees, and the rows that see column j. The range is empty if end <= begin.
__device__ __forceinline__ IndexRange columns_seen(const AttentionScoreParams& p, const SequenceRows& s, int32_t i) {
  const int32_t at = i + s.shift;
  return {max(0, at - p.left), i < s.q_length ? min(s.kv_length, at + p.right + 1) : 0};
}
__device__ __forceinline__ IndexRange rows_seeing(const AttentionScoreParams& p, const SequenceRows& s, int32_t j) {
  const int32_t at = j - s.shift;
  return {max(0, at - p.right), j < s.kv_length ? min(s.q_length, at + p.left + 1) : 0};
}
// The columns that some row of `rows` sees, and those that all of them see; and the same for rows. `rows` is not empty
// and may end beyond the sequence.
__device__ __forceinline__ IndexRange columns_of_any(const AttentionScoreParams& p, const SequenceRows& s,
                                                     IndexRange rows) {
  const int32_t last = min(rows.end, s.q_length) - 1;
  return {max(0, rows.begin + s.shift - p.left),
          rows.begin < s.q_length ? min(s.kv_length, last + s.shift + p.right + 1) : 0};
}
__device__ __forceinline__ IndexRange columns_of_all(const AttentionScoreParams& p, const SequenceRows& s,
                                                     IndexRange rows) {
  const int32_t last = min(rows.end, s.q_length) - 1;
  return {max(0, last + s.shift - p.left), min(s.kv_length, rows.begin + s.shift + p.right + 1)};
}
__device__ __forceinline__ IndexRange rows_of_any(const AttentionScoreParams& p, const SequenceRows& s,
                                                  IndexRange columns) {
  const int32_t last = min(columns.end, s.kv_length) - 1;
  return {max(0, columns.begin - s.shift - p.right),
          columns.begin < s.kv_length ? min(s.q_length, last - s.shift + p.left + 1) : 0};
}
__device__ __forceinline__ IndexRange rows_of_all(const AttentionScoreParams& p, const SequenceRows& s,
                                                  IndexRange columns) {
  const int32_t last = min(columns.end, s.kv_length) - 1;
  return {max(0, last - s.shift - p.right), min(s.q_length, columns.begin - s.shift + p.left + 1)};
}

// What the scores of a row of q have in common: head h, row i of the sequence. Rows beyond the sequence take the values
// of its last row, so that no address is outside of a tensor; their scores are hidden.
struct ScoreRow {
  int64_t bias;    // the offset of the bias of column 0, in elements
  int64_t random;  // the group of random words of columns 0 to 3
  float position;  // the column on the diagonal
  float slope;     // of ALiBi
};
__device__ __forceinline__ ScoreRow score_row(const AttentionScoreParams& p, const AttentionArgs& a,
                                              const SequenceRows& s, int32_t h, int32_t i) {
  i = clamped(i, 0, s.q_length - 1);
  ScoreRow r;
  r.bias = s.b * p.bias[0] + h * p.bias[1] + i * p.bias[2];
  r.random = ((int64_t(s.b) * p.heads + h) * p.q_size + i) * p.random_row;
  r.position = float(i + s.shift);
  r.slope = p.alibi ? static_cast<const float*>(a.alibi)[(p.alibi == 2 ? s.b * p.heads : 0) + h] : 0.0f;
  return r;
}

// c tanh(x / c). Its derivative is 1 - (result / c)^2.
__device__ __forceinline__ float softcapped(float x, float cap, float inverse) { return cap * fast::tanh(x * inverse); }

// The bias at an offset in elements. T is the dtype of q. A boolean bias gives 0 or -inf; where it is -inf, it replaces
// the score, which may be NaN.
template <class T>
__device__ __forceinline__ float bias_at(const AttentionScoreParams& p, const AttentionArgs& a, int64_t offset) {
  if (p.bias_bytes == 2) return float(static_cast<const T*>(a.bias)[offset]);
  if (p.bias_bytes == 4) return static_cast<const float*>(a.bias)[offset];
  return static_cast<const uint8_t*>(a.bias)[offset] ? 0.0f : -INFINITY;
}

__device__ __forceinline__ float alibi_at(const ScoreRow& row, int32_t column) {
  return -row.slope * fabsf(row.position - float(column));
}

// Adds ALiBi to the scores of neighbouring fragments. `column` is the column of element 0 of the first fragment in this
// lane.
template <int kFragments>
__device__ __forceinline__ void add_alibi(const ScoreRow (&rows)[2], int32_t column, float (&z)[kFragments][4]) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f)
#pragma unroll
    for (int e = 0; e < 4; ++e) z[f][e] += alibi_at(rows[e / 2], column + 8 * f + e % 2);
}

// The bias of neighbouring fragments. Where the memory of the bias permits, elements of 4 bytes are read in pairs, and
// smaller ones in vectors of eight. The constructor reads vectors: if it comes before the products of q and k, these hide
// the latency. A lane reads the vectors of every fourth fragment, and then exchanges them with the lanes of its rows.
template <class T, int kFragments> class FragmentBias {
 public:
  // `column` is the column of element 0 of the first fragment in this lane, and `length` the length of the sequence's
  // k, above 0.
  __device__ __forceinline__ FragmentBias(const AttentionScoreParams& p, const AttentionArgs& a,
                                          const ScoreRow (&rows)[2], int32_t column, int32_t length)
      : column_(column), length_(length) {
    const int32_t lane = int32_t(threadIdx.x) % 4, first = column - 2 * lane;
    const bool inside = first + 8 * kFragments <= p.kv_size;
    pairs_ = p.bias_bytes == 4 && p.bias_pairs && uint64_t(a.bias) % 8 == 0 && inside;
    vectors_ = p.bias_bytes <= 2 && p.bias_vectors && uint64_t(a.bias) % uint32_t(8 * p.bias_bytes) == 0 && inside &&
               kFragments % 4 == 0;
    if (!vectors_) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const char* const from = static_cast<const char*>(a.bias) + (rows[h].bias + first + 8 * lane) * p.bias_bytes;
#pragma unroll
      for (int f = 0; f + 4 <= kFragments; f += 4) {
        if (p.bias_bytes == 2) {
          const uint4 v = *reinterpret_cast<const uint4*>(from + 16 * f);
          words_[h][f] = v.x;
          words_[h][f + 1] = v.y;
          words_[h][f + 2] = v.z;
          words_[h][f + 3] = v.w;
        } else {
          const uint2 v = *reinterpret_cast<const uint2*>(from + 8 * f);
          words_[h][f] = v.x;
          words_[h][f + 1] = v.y;
        }
      }
    }
  }
  // All lanes of the warp must call it.
  __device__ __forceinline__ void add(const AttentionScoreParams& p, const AttentionArgs& a, const ScoreRow (&rows)[2],
                                      float (&z)[kFragments][4]) const {
    if (vectors_ && p.bias_bytes == 1) add_vectors<true>(z);
    else if (vectors_) add_vectors<false>(z);
    else if (pairs_) add_floats(a, rows, z);
    else add_elements(p, a, rows, z);
  }

 private:
  template <bool kBool> __device__ __forceinline__ void add_vectors(float (&z)[kFragments][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int f = 0; f + 4 <= kFragments; f += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = kBool ? words_[h][f + i / 2] >> i % 2 * 16 : words_[h][f + i];
        exchange_four(words);
      // A word now has the two elements of this lane.
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float(&pair)[2] = reinterpret_cast<float(&)[2]>(z[f + i][2 * h]);
          if constexpr (kBool) {
            if (!(words[i] & 0xff)) pair[0] = -INFINITY;
            if (!(words[i] & 0xff00)) pair[1] = -INFINITY;
          } else if constexpr (sizeof(T) == 2) {
            T both[2];
            both[0].bits = uint16_t(words[i]);
            both[1].bits = uint16_t(words[i] >> 16);
            pair[0] += float(both[0]);
            pair[1] += float(both[1]);
          }
        }
      }
  }
  __device__ __forceinline__ void add_floats(const AttentionArgs& a, const ScoreRow (&rows)[2],
                                             float (&z)[kFragments][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2* const from =
          reinterpret_cast<const float2*>(static_cast<const float*>(a.bias) + rows[h].bias + column_);
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        const float2 pair = from[4 * f];
        z[f][2 * h] += pair.x;
        z[f][2 * h + 1] += pair.y;
      }
    }
  }
  __device__ __forceinline__ void add_elements(const AttentionScoreParams& p, const AttentionArgs& a,
                                               const ScoreRow (&rows)[2], float (&z)[kFragments][4]) const {
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t column = min(column_ + 8 * f + e % 2, length_ - 1);
        const float bias = bias_at<T>(p, a, rows[e / 2].bias + column * p.bias[3]);
        z[f][e] = p.bias_bytes == 1 && bias != 0 ? bias : z[f][e] + bias;
      }
  }

  int32_t column_, length_;
  bool pairs_, vectors_;
  uint32_t words_[2][kFragments];
};

// Which elements dropout keeps.
struct DropoutRandom {
  PhiloxKeys keys;
  uint64_t offset;
  uint32_t threshold;

  __device__ __forceinline__ explicit DropoutRandom(const AttentionArgs& a)
      : keys(a.seed), offset(a.offset), threshold(uint32_t(a.threshold)) {}
  // Four bits: whether the elements of a group of four columns are kept.
  __device__ __forceinline__ uint32_t kept(int64_t group) const {
    const Four words = random_words_of(keys, offset, uint64_t(group));
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) bits |= uint32_t(words.word[i] >= threshold) << i;
    return bits;
  }
  // Bit 4 f + e of the result: whether element e of fragment f is kept. The rows of the fragments are rows of q. `column`
  // is the column of element 0 of the first one in this lane. Each lane computes a group of each fragment for itself and
  // for its neighbour: even lanes for the first row, odd lanes for the second. All lanes of the warp must call it.
  template <int kFragments>
  __device__ __forceinline__ uint32_t kept_in_fragments(const ScoreRow (&rows)[2], int32_t column) const {
    static_assert(kFragments <= 8);
    constexpr uint32_t kPairs = 0x33333333;
    const bool odd = threadIdx.x & 1;
    const int64_t first = (odd ? rows[1].random : rows[0].random) + column / 4;
    uint32_t mine = 0;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) mine |= kept(first + 2 * f) << 4 * f;
    // Bits 0 and 1 of a group are those of the even lane.
    const uint32_t given = odd ? mine & kPairs : mine >> 2 & kPairs;
    const uint32_t other = __shfl_xor_sync(0xffffffff, given, 1);
    return odd ? (mine & ~kPairs) | other : (mine & kPairs) | other << 2;
  }
  __device__ __forceinline__ uint32_t kept_in_fragment(const ScoreRow (&rows)[2], int32_t column) const {
    return kept_in_fragments<1>(rows, column);
  }
};

// What options make of the scores of neighbouring fragments: softcap(scale q k^T) + bias + alibi, and dropout.
template <class T, int kFragments, int kOptions = kAllOptions> struct ScoreOptions {
  using Bias = FragmentBias<T, kFragments>;
  ScoreRow rows[2];
  float scale, cap, inverse_cap;

  // `heads` and `indices` are the heads and the indices of the two rows.
  __device__ __forceinline__ ScoreOptions(const AttentionScoreParams& p, const AttentionArgs& a, const SequenceRows& s,
                                          const int32_t (&heads)[2], const int32_t (&indices)[2])
      : rows{score_row(p, a, s, heads[0], indices[0]), score_row(p, a, s, heads[1], indices[1])},
        scale(float(a.scale)),
        cap(float(a.softcap)),
        inverse_cap(p.has_softcap ? 1 / float(a.softcap) : 0.0f) {}

  // z is q k^T. `column` is the column of element 0 of the first fragment in this lane. `bias` is a Bias, or, without
  // kBias, anything.
  template <class AnyBias>
  __device__ __forceinline__ void finish_scores(const AttentionScoreParams& p, const AttentionArgs& a,
                                                const AnyBias& bias, int32_t column, float (&z)[kFragments][4]) const {
#pragma unroll
    for (int j = 0; j < kFragments; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) z[j][e] *= scale;
    if ((kOptions & kSoftcap) && p.has_softcap)
#pragma unroll
      for (int j = 0; j < kFragments; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) z[j][e] = softcapped(z[j][e], cap, inverse_cap);
    if constexpr (kOptions & kBias)
      if (p.bias_bytes) bias.add(p, a, rows, z);
    if ((kOptions & kAlibi) && p.alibi) add_alibi(rows, column, z);
  }
  // Replaces exponentials that dropout drops by 0.
  __device__ __forceinline__ void drop(const AttentionScoreParams& p, const AttentionArgs& a, int32_t column,
                                       float (&z)[kFragments][4]) const {
    if (!(kOptions & kDropout) || !p.has_dropout) return;
    const DropoutRandom random(a);
    constexpr int kAtOnce = kFragments % 8 == 0 ? 8 : 2;
    static_assert(kFragments % kAtOnce == 0);
#pragma unroll
    for (int j = 0; j < kFragments; j += kAtOnce) {
      const uint32_t kept = random.template kept_in_fragments<kAtOnce>(rows, column + 8 * j);
#pragma unroll
      for (int i = 0; i < 4 * kAtOnce; ++i)
        if (!(kept >> i & 1)) z[j + i / 4][i % 4] = 0;
    }
  }
};

}  // namespace minidnn
