// SPDX-License-Identifier: Apache-2.0
// Rows of lse and of dx for cuda.ctc.wavefront. A team computes a row: a warp; for lse also 8 lanes,
// or a block of 256 threads.
// - Grid: a team for each row. Block: 256 threads, x those of a row and y the rows.
// - Bytes: each row of x once, and each row of dx once, by vectors of 16 bytes if the rows are contiguous; alpha and
//   beta once.
// - Numerics: float32. lse is the sum of exponentials relative to the largest number of each thread, then of the row.
// - dx: g softmax, then the columns of the labels and of the blank again: g (softmax - posterior). Equal labels are
//   added by a segmented scan over the sorted labels, so the order of the additions is fixed.
#include "cuda/ctc/wavefront_params.h"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/rows/exponentials_math.h"

namespace minidnn {
namespace {

constexpr int kVectors = 4, kVectorsOfDx = 2;  // that a thread loads at a time

// The threads of a row: those with the same threadIdx.y.
class Team {
 public:
  __device__ int32_t rank() const { return int32_t(threadIdx.x); }
  __device__ int32_t size() const { return int32_t(blockDim.x); }
  __device__ float sum(float v) { return size() <= 32 ? warp_reduce<SumOp>(v, size()) : block_.sum(v); }
  __device__ float max(float v) { return size() <= 32 ? warp_reduce<MaxOp>(v, size()) : block_.max(v); }
  __device__ void sync() {
    if (size() <= 32) __syncwarp();
    else __syncthreads();
  }

 private:
  BlockReduce block_;
};

// Elements of a row: `head` elements, `vectors` vectors at multiples of 16 bytes, and the rest.
struct Split {
  int64_t n, head, vectors;

  template <class T> __device__ Split(const T* at, int64_t count, bool is_contiguous) : n(count), head(n), vectors(0) {
    if (!is_contiguous) return;
    const int64_t before = int64_t(-reinterpret_cast<uint64_t>(at) % 16 / sizeof(T));
    head = min_of(before, n);
    vectors = (n - head) / kVecWidth<T>;
  }
  // Calls body(c) for each element that is in no vector.
  template <class T, class Body> __device__ void others(const Team& team, Body body) const {
    const int64_t width = vectors * kVecWidth<T>;
    for (int64_t i = team.rank(); i < n - width; i += team.size()) body(i < head ? i : i + width);
  }
};

// Calls body(t, b, team, exists) for all rows. If teams are a part of a warp, all lanes must arrive at a reduction, so
// the body is also called for rows that do not exist.
template <class Body> __device__ __forceinline__ void each_row(const CtcProblem& p, Body body) {
  Team team;
  const int64_t rows = p.steps() * p.batch(), step = int64_t(gridDim.x) * blockDim.y;
  for (int64_t first = int64_t(blockIdx.x) * blockDim.y; first < rows; first += step) {
    const int64_t row = first + threadIdx.y;
    body(row / p.batch(), row % p.batch(), team, row < rows);
  }
}

// Adds the exponentials of kN numbers.
template <int kN> __device__ __forceinline__ void add(rows::Exponentials& e, const float (&x)[kN]) {
  float largest = e.largest, sum = 0;
#pragma unroll
  for (int i = 0; i < kN; ++i) largest = fmaxf(largest, x[i]);
  const float from = largest == -INFINITY ? 0 : largest;  // -inf - -inf would be NaN
#pragma unroll
  for (int i = 0; i < kN; ++i) sum += maths::exp(x[i] - from);
  e = {largest, e.moved<float>(largest, 1) + sum};
}

struct Sums {
  float blanks, labels;
};

// The posteriors of the states of a row, times some number that is equal for all of them.
struct Posteriors {
  const float *alpha, *exponents, *beta, *beta_exponents;
  float exponent;
  int32_t labels;

  __device__ Posteriors(const CtcArgs& a, const CtcWorkspace& w, const CtcSequenceGradient& s, int64_t first_state)
      : alpha(static_cast<const float*>(a.alpha) + first_state),
        exponents(static_cast<const float*>(a.exponents) + first_state),
        beta(w.beta + first_state),
        beta_exponents(w.beta_exponents + first_state),
        exponent(s.exponent),
        labels(s.labels) {}
  __device__ float operator()(int32_t state) const {
    return alpha[state] * beta[state] * ctc::power(exponents[state] + beta_exponents[state] - exponent);
  }
  // A warp adds up the posteriors of all blanks, and of all labels.
  __device__ Sums sums(int32_t lane) const {
    Sums some{};
#pragma unroll 4
    for (int32_t i = lane; i <= labels; i += 32) {
      some.blanks += (*this)(i);
      if (i < labels) some.labels += (*this)(labels + 1 + i);
    }
    return {warp_reduce<SumOp>(some.blanks), warp_reduce<SumOp>(some.labels)};
  }

  // What a lane reads for one of 32 sorted labels.
  template <class T> struct Label {
    int32_t class_;
    bool is_first, is_last;  // of its class
    float posterior;
    T x;
  };
  // `row` is the row of x.
  template <class T> __device__ Label<T> load(const CtcSortedLabel* sorted, int32_t i, const T* row,
                                              int64_t step) const {
    if (i >= labels) return {-1, true, false, 0, T{}};
    const CtcSortedLabel own = sorted[i];
    const bool is_first = i == 0 || sorted[i - 1].class_ != own.class_;
    const bool is_last = i + 1 == labels || sorted[i + 1].class_ != own.class_;
    return {own.class_, is_first, is_last, (*this)(labels + 1 + own.index), row[own.class_ * step]};
  }
  // A warp calls store(class, posterior, x) for each class of the sorted labels.
  template <class T, class Store> __device__ void each_class(const CtcSortedLabel* sorted, int32_t lane, const T* row,
                                                             int64_t step, Store store) const {
    float before = 0;  // the sum of the last class, if it goes on
    Label<T> next = load(sorted, lane, row, step);
    for (int32_t begin = 0; begin < labels; begin += 32) {
      const Label<T> own = next;
      next = load(sorted, begin + 32 + lane, row, step);
      float sum = own.posterior;
      if (lane == 0 && !own.is_first) sum += before;
      const uint32_t firsts = (__ballot_sync(0xffffffff, own.is_first) | 1) & (0xffffffff >> (31 - lane));
      const int32_t first = 31 - __clz(int(firsts));
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const float other = shuffle_up(sum, offset);
        if (lane - offset >= first) sum += other;
      }
      before = shuffle(sum, 31);
      if (own.is_last) store(own.class_, sum, own.x);
    }
  }
};

}  // namespace

template <class T> __global__ void __launch_bounds__(256)
    ctc_lse_rows(const __grid_constant__ CtcProblem p, CtcArgs a, void*) {
  griddep_wait();
  each_row(p, [&](int64_t t, int64_t b, Team& team, bool exists) {
    exists = exists && t < ctc::steps_of(p, a, b);
    const T* const x = static_cast<const T*>(a.x) + t * p.x.stride[0] + b * p.x.stride[1];
    const Split split(x, exists ? p.classes() : 0, p.x.stride[2] == 1);
    const Vec<T>* const vectors = reinterpret_cast<const Vec<T>*>(x + split.head);
    rows::Exponentials e{-INFINITY, 0};
    split.others<T>(team, [&](int64_t c) { add(e, {float(x[c * p.x.stride[2]])}); });
    for (int64_t v = team.rank(); v < split.vectors; v += kVectors * team.size()) {
      Vec<T> raw[kVectors];
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        raw[k] = Vec<T>::filled(kMinusInfinity<T>);
        if (v + k * team.size() < split.vectors) raw[k] = Vec<T>::load(vectors + v + k * team.size());
      }
      float f[kVectors * kVecWidth<T>];
#pragma unroll
      for (int k = 0; k < kVectors; ++k) raw[k].unpack(f + k * kVecWidth<T>);
      add(e, f);
    }
    const float largest = team.max(e.largest), sum = team.sum(e.moved<float>(largest, 1));
    if (exists && team.rank() == 0) static_cast<float*>(a.lse)[t * p.batch() + b] = largest + maths::log(sum);
  });
}

template <class T> __global__ void __launch_bounds__(256, 4)
    ctc_dx_rows(const __grid_constant__ CtcProblem p, CtcArgs a, void* workspace) {
  griddep_wait();
  const CtcWorkspace w = CtcWorkspace::of(p, workspace);
  each_row(p, [&](int64_t t, int64_t b, Team& team, bool exists) {
    if (!exists) return;
    const T* const x = static_cast<const T*>(a.x) + t * p.x.stride[0] + b * p.x.stride[1];
    T* const dx = static_cast<T*>(a.dx) + t * p.dx.stride[0] + b * p.dx.stride[1];
    const CtcSequenceGradient s = w.sequences[b];
    const bool in_sequence = t < ctc::steps_of(p, a, b);
    const float g = in_sequence ? s.gradient : 0.0f;
    const float lse = in_sequence && p.logits ? static_cast<const float*>(a.lse)[t * p.batch() + b] : 0.0f;
    const bool has_posteriors = g != 0 && g == g;
    const Posteriors posteriors(a, w, s, p.steps() * (2 * s.first + b) + t * (2 * s.labels + 1));
    Sums sums{};
    if (has_posteriors) sums = posteriors.sums(team.rank());

    const auto softmax = [&](float v) { return g == 0 ? 0.0f : g * maths::exp(v - lse); };
    const bool same_alignment = (reinterpret_cast<uint64_t>(x) - reinterpret_cast<uint64_t>(dx)) % 16 == 0;
    const Split split(x, p.classes(), p.x.stride[2] == 1 && p.dx.stride[2] == 1 && same_alignment);
    const Vec<T>* const from = reinterpret_cast<const Vec<T>*>(x + split.head);
    Vec<T>* const to = reinterpret_cast<Vec<T>*>(dx + split.head);
    split.others<T>(team, [&](int64_t c) { dx[c * p.dx.stride[2]] = T(softmax(float(x[c * p.x.stride[2]]))); });
    for (int64_t v = team.rank(); v < split.vectors; v += kVectorsOfDx * team.size()) {
      Vec<T> raw[kVectorsOfDx];
#pragma unroll
      for (int k = 0; k < kVectorsOfDx; ++k)
        if (v + k * team.size() < split.vectors) raw[k] = Vec<T>::load(from + v + k * team.size());
#pragma unroll
      for (int k = 0; k < kVectorsOfDx; ++k) {
        if (v + k * team.size() >= split.vectors) break;
        float f[kVecWidth<T>];
        raw[k].unpack(f);
#pragma unroll
        for (int e = 0; e < kVecWidth<T>; ++e) f[e] = softmax(f[e]);
        Vec<T>::pack(f).store(to + v + k * team.size());
      }
    }

    team.sync();  // the row is written
    if (!has_posteriors) return;
    // The posteriors of a step have the sum 1. To divide by their sum removes what their rounding errors have in common.
    const auto store = [&](int64_t c, float posterior, T v) {
      const float own = maths::exp(float(v) - lse);
      dx[c * p.dx.stride[2]] = T(g * (own - posterior / (sums.blanks + sums.labels)));
    };
    posteriors.each_class(w.sorted + s.first, team.rank(), x, p.x.stride[2], store);
    if (team.rank() == 0) store(p.blank, sums.blanks, x[p.blank * p.x.stride[2]]);
  });
}

}  // namespace minidnn
