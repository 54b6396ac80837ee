// SPDX-License-Identifier: Apache-2.0
// Window sums of local response norm and local contrast norm. Threads loop down the rows of an image (a plane or a
// sample), one row per iteration.
// - Load: cp.async copies each row once, kRowsAhead iterations before its use, to a ring buffer in shared memory.
// - Sum: a thread has one vector of each row. It sums the row over the window of each element, and adds the result to
//   the sums of all windows that contain the row, which are in registers. There are no sliding sums.
// - Backward: threads exchange the factors g (lrn_math.h) through shared memory, and sum windows of g in the same way.
//
// Numerics of local contrast norm: the sum over a window is sum (x_j - m)^2, where m is the mean at the window's
// centre. Several windows with different means contain a row, but its sums are computed only once, relative to the
// value c of x in the row and in the column of the thread. With d_j = x_j - c, e = c - m and n elements of the row in a
// window: sum (x_j - m)^2 = sum d_j^2 + e (2 sum d_j + n e). No digits cancel, because c is in the window. The
// gradients use a similar formula: sum g_j (x - m_j) = (x - m_c) sum g_j + sum g_j (m_c - m_j), where m_c is the mean
// in the row of g and in the column of the thread.
#pragma once
#include "cuda/lrn/power.cuh"
#include "cuda/lrn/window_rows.cuh"

namespace minidnn {

template <class T, int kVec, Axis kAxis, bool kWhole, bool kCentered, int kSize, bool kBackward> struct SlidingWindow
    : WindowRows<T, kVec, kAxis, kWhole, kCentered, kSize, kBackward> {
  using Rows = WindowRows<T, kVec, kAxis, kWhole, kCentered, kSize, kBackward>;
  using Rows::ahead, Rows::behind, Rows::bottom, Rows::get_numbers, Rows::get_vector, Rows::here, Rows::kCounts,
      Rows::kMost, Rows::kSide, Rows::own, Rows::put_numbers, Rows::r, Rows::read_unaligned, Rows::ring_offset,
      Rows::rows, Rows::rows_on, Rows::shared, Rows::slot_of, Rows::smem, Rows::stage, Rows::staging_slot, Rows::store,
      Rows::thread, Rows::top;
  using typename Rows::Bases, typename Rows::Ends, typename Rows::Taps, typename Rows::Vector, typename Rows::Weights;

  // Whether the sum over a row is a sum of pairs of elements, which adjacent windows share.
  static constexpr bool kPairs = kAxis == Axis::contiguous && kSize != 0;
  using Sums = float[kMost - 1][kVec];
  // The values that a thread keeps from one row to the next.
  struct State {
    // `deviations` is for backward with means: the window sums of 2 (x_j - m), where m is the mean at the window's
    // centre.
    Sums squares{}, deviations{}, gradients{};
    // for backward with windows of any size: dy s^-beta (lrn_math.h) of the preceding row
    float own_before[kVec]{};
    float counts[kCounts];
    int parity = 0;  // the buffer (0 or 1) that receives the factors g (lrn_math.h) of this iteration
    // where the current iteration stores dy s^-beta: a byte offset in the array `own` of shared memory
    uint32_t own_offset;
  };
  // The results of the row whose windows are complete after iteration t. `total` is the sum of squares, and later of
  // gradients. `total_away` is 2 sum (x_j - m), where m is the mean at the window's centre. `of_g` is the factor g
  // (lrn_math.h), times LrnFactors::slope if means are subtracted. `result` is y in forward, and dy s^-beta in
  // backward.
  struct Results {
    float total[kVec], total_away[kVec];
    float mine[kVec]{}, of_g[kVec]{}, result[kVec]{};
  };

  __device__ __forceinline__ SlidingWindow(const SlidingWindowParams& r, const SmemLayout& smem, unsigned char* shared)
      : Rows(r, smem, shared) {}

  // Computes sum[e], the sum of f over the elements of a row that are in the window of element e. If kPairs is true,
  // the windows of elements e and e + 1 share the sums of pairs.
  template <class Line, class F>
  static __device__ __forceinline__ void sum_line(float (&sum)[kVec], Line& line, const F& f) {
    if constexpr (kPairs) {
      float pair[kVec / 2 + kSide - 1];
#pragma unroll
      for (int i = 0; i < kVec / 2 + kSide - 1; ++i) pair[i] = f(line.q[2 * i + 1]) + f(line.q[2 * i + 2]);
#pragma unroll
      for (int e = 0; e < kVec; e += 2) {
        float both = pair[e / 2];
#pragma unroll
        for (int i = 1; i < kSide; ++i) both += pair[e / 2 + i];
        sum[e] = both + f(line.q[e]);
        sum[e + 1] = both + f(line.q[e + 2 * kSide + 1]);
      }
    } else {
#pragma unroll
      for (int o = -kSide; o <= kSide; ++o) {
        line.to(o);
#pragma unroll
        for (int e = 0; e < kVec; ++e) sum[e] = o == -kSide ? f(line(o, e)) : sum[e] + f(line(o, e));
      }
    }
  }
  // Returns whether the element at a distance of o positions from element e is inside the row.
  __device__ __forceinline__ bool has(int o, int e) const {
    if constexpr (kAxis == Axis::contiguous && kWhole)
      return e + o < 0 ? own.column > 0 : e + o < kVec || own.column + kVec < int(r.width);
    const int at = own.column + o + (kAxis == Axis::contiguous ? e : 0);
    if constexpr (kAxis == Axis::strided) return uint32_t(at) < uint32_t(r.width);
    return at >= 0 && at < int(r.width);
  }

  // Returns `term` plus sums[k][e], the sum of a window over the preceding rows. The last window has no preceding rows.
  static __device__ __forceinline__ float with(const Sums& sums, int k, int e, float term) {
    return k < kMost - 1 ? sums[k][e] + term : term;
  }
  // Adds the term of a row to the sums of all windows that contain the row. `total` receives the topmost sum, which is
  // now complete.
  __device__ __forceinline__ void add(Sums& sums, const float (&term)[kVec], float (&total)[kVec]) const {
#pragma unroll
    for (int e = 0; e < kVec; ++e) total[e] = sums[0][e] + term[e];
#pragma unroll
    for (int k = 1; k < kMost; ++k)
      if (k < rows()) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) sums[k - 1][e] = with(sums, k, e, term[e]);
      }
  }
  __device__ __forceinline__ void skip(Sums& sums, float (&total)[kVec]) const {
    const float nothing[kVec]{};
    add(sums, nothing, total);
  }

  // For each element of the vector, computes how many elements of a row are in its window.
  __device__ __forceinline__ void count_members(float (&counts)[kCounts]) const {
#pragma unroll
    for (int e = 0; e < kCounts; ++e) {
      const int at = own.column + e;
      counts[e] = float(min_of(at + ahead(), int(r.width) - 1) - max_of(at - behind(), 0) + 1);
    }
  }
  // For norms that subtract means: computes the differences d between an element and the other elements of its window
  // in the row. `once` receives 2 sum d, and `twice` receives sum d^2.
  __device__ __forceinline__ void sum_differences(Taps& taps, const float (&mine)[kVec], float (&once)[kVec],
                                                  float (&twice)[kVec]) const {
#pragma unroll
    for (int o = -kSide; o <= kSide; ++o)
      if (o && o >= -behind() && o <= ahead()) {
        taps.to(o);
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          // A later element minus an earlier one, so that the compiler computes each difference once for the windows of
          // both elements.
          const float difference = !has(o, e) ? 0.f : o > 0 ? taps(o, e) - mine[e] : mine[e] - taps(o, e);
          once[e] = o == -kSide ? -difference : o < 0 ? once[e] - difference : once[e] + difference;
          twice[e] += difference * difference;
        }
      }
    // If a window contains an infinite element, its sum of squares must become infinite, and not NaN.
#pragma unroll
    for (int e = 0; e < kVec; ++e) once[e] = twice[e] < INFINITY ? 2 * once[e] : 0.f;
  }
  // For norms that subtract means: adds a row of x to the sums of all windows that contain it. `once` is 2 sum d_j and
  // `twice` is sum d_j^2, where d_j is x_j minus the value of x in this row and in the thread's column.
  __device__ __forceinline__ void add_centered(const float (&mine)[kVec], const float (&once)[kVec],
                                               const float (&twice)[kVec], State& s, Results& v) const {
#pragma unroll
    for (int k = 0; k < kMost; ++k)
      if (k < rows()) {
        float mean[kVec];
        get_vector(mean, slot_of(smem.means, rows() - 1 - k));
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const float n = s.counts[e % kCounts], from = mine[e] - mean[e], both = n * from + once[e];
          const float sum = from * both + with(s.squares, k, e, twice[e]);
          if (k == 0) v.total[e] = sum;
          else s.squares[k ? k - 1 : 0][e] = sum;
          if constexpr (kBackward) {
            const float moved = with(s.deviations, k, e, n * from + both);
            if (k == 0) v.total_away[e] = moved;
            else s.deviations[k ? k - 1 : 0][e] = moved;
          }
        }
      }
  }
  // Finishes a vector whose window sums are complete. In forward, it computes y. In backward, it computes dy s^-beta
  // and the factor g (see lrn_math.h for s and g).
  __device__ __forceinline__ void finish_vector(const LrnFactors& f, const float (&dy)[kVec], Results& v,
                                                Sums& gradients) const {
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      const float s = f.k + f.scale * v.total[e], p = power_of<T>(s, f.beta);
      v.result[e] = (kBackward ? dy[e] : v.mine[e]) * p;
      // Beyond the end of a row, the factor g (lrn_math.h) must be 0, because other threads read it.
      const bool inside = kWhole || kAxis == Axis::none || e < own.count;
      if (kBackward) v.of_g[e] = inside ? v.result[e] * (v.mine[e] * fast::reciprocal_ftz(s)) : 0.f;
      if (kBackward && kCentered) v.of_g[e] *= f.slope;
      // Adds dy s^-beta, the first term of dx, to the sum of the other terms.
      if constexpr (kBackward && kCentered && kSize != 0) gradients[behind() + 1][e] += v.result[e];
    }
  }
  // For norms that subtract means: sums a row of the factors g (lrn_math.h) over the window of each element (`sum`),
  // and also g_j (m_c - m_j) (`rest`). m_j is the mean at element j, and m_c (`center`) is the mean at the thread's
  // element.
  __device__ __forceinline__ void sum_gradients(Weights& weights, Taps& means, const float (&center)[kVec],
                                                float (&sum)[kVec], float (&rest)[kVec]) const {
    if constexpr (kPairs) sum_line(sum, weights, [](float g) { return g; });
#pragma unroll
    for (int o = -kSide; o <= kSide; ++o)
      if (o >= -ahead() && o <= behind()) {
        weights.to(o);
        if (o) means.to(o);
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          if (!kPairs) sum[e] = o == -kSide ? weights(o, e) : sum[e] + weights(o, e);
          if (o < 0) rest[e] += weights(o, e) * (center[e] - means(o, e));
          if (o > 0) rest[e] -= weights(o, e) * (means(o, e) - center[e]);
        }
      }
  }
  // For norms that subtract means: adds the terms of a row of the factors g (lrn_math.h) to the sums of dx.
  __device__ __forceinline__ void add_gradients(bool inner, const float (&center)[kVec], const float (&sum)[kVec],
                                                const float (&rest)[kVec], State& s, Results& v) const {
#pragma unroll
    for (int k = 0; k < kMost; ++k)
      if (k < rows()) {
        float x[kVec];
        if (kSize && inner && k == rows() - ahead()) {
#pragma unroll
          for (int e = 0; e < kVec; ++e) x[e] = v.mine[e];
        } else get_vector(x, slot_of(0, rows() - k));
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          float term = with(s.gradients, k, e, -rest[e]);
          if (!kSize && k == behind()) term += s.own_before[e];
          term -= (x[e] - center[e]) * sum[e];
          if (k == 0) v.total[e] = term;
          else s.gradients[k ? k - 1 : 0][e] = term;
        }
      }
  }
  // For norms that do not subtract means: computes dx from dy s^-beta (`first`) and the window sum of g (`total`).
  static __device__ __forceinline__ void finish_gradients(const LrnFactors& f, const float (&first)[kVec],
                                                          const float (&x)[kVec], float (&total)[kVec]) {
#pragma unroll
    for (int e = 0; e < kVec; ++e) total[e] = first[e] - f.slope * x[e] * total[e];
  }

  // The number of iterations after which the factors g (lrn_math.h) of a row are summed.
  static constexpr int kLater = kAxis == Axis::none ? 0 : 1;

  // Calls step(), which increments t, until t is `end`. Iterations first_inner to last_inner - 1 need no checks for the
  // ends of the image.
  template <class Step>
  static __device__ __forceinline__ void run_steps(const Step& step, int& t, int end, int first_inner, int last_inner) {
#pragma unroll 1
    while (t < end) {
      if (kSize && t >= first_inner) {
#pragma unroll 1
        while (t < last_inner) step(true);
        if (t >= end) break;
      }
      step(false);
    }
  }
  __device__ __forceinline__ Ends ends_of_g(int height) const {
    return {kBackward ? max_of(top - ahead(), 0) : top, kBackward ? min_of(bottom + behind(), height) : bottom};
  }
  __device__ __forceinline__ Ends ends_of_x(int height) const {
    return {max_of(top - (kBackward ? rows() - 1 : behind()), 0),
            min_of(bottom + (kBackward ? rows() - 1 : ahead()), height)};
  }
  // Base addresses of the tensors. own.at is the offset in row t + kRowsAhead + 1, the next row to load, so the
  // addresses for results are that many rows lower.
  __device__ __forceinline__ Bases bases_of(const LrnArgs& a) const {
    return {rows_on(a.x, 0), rows_on(a.means, behind()), rows_on(a.dy, -ahead()),
            rows_on(a.out, (kBackward ? 1 - rows() - kLater : -ahead()) - kRowsAhead - 1),
            rows_on(a.dmeans, -ahead() - kRowsAhead - 1)};
  }

  __device__ __forceinline__ uint32_t own_line() const { return kVec * 4 * smem.block; }
  __device__ __forceinline__ uint32_t own_ring() const { return uint32_t(behind() + 1 + kLater) * own_line(); }
  __device__ __forceinline__ float4* own_numbers(const State& s, int later) const {
    return reinterpret_cast<float4*>(shared + smem.own + ring_offset(s.own_offset, later, own_line(), own_ring()));
  }
  __device__ __forceinline__ float4* g_line(int which) const {
    return reinterpret_cast<float4*>(shared + smem.g) + (which * (kVec / 4) * int(smem.slots) + int(own.slot));
  }

  // Adds the current row of x to the sums of all windows that contain the row.
  __device__ __forceinline__ void add_row(State& s, Results& v) const {
    Taps taps(*this, slot_of(0, 0));
    if constexpr (kCentered) {
      float mine[kVec], once[kVec]{}, twice[kVec]{};
      get_vector(mine, slot_of(0, 0));
      sum_differences(taps, mine, once, twice);
      add_centered(mine, once, twice, s, v);
    } else {
      float row[kVec];
      sum_line(row, taps, [](float x) { return x * x; });
      add(s.squares, row, v.total);
    }
  }
  // Computes the results of row o, whose window sums are complete. Forward stores y. Backward puts g and dy s^-beta
  // (lrn_math.h) into shared memory, and stores dmeans for rows of this block.
  __device__ __forceinline__ void finish_row(const LrnArgs& a, const LrnFactors& f, const Bases& at, int o, bool inner,
                                             State& s, Results& v) const {
    float dy[kVec];
    get_vector(v.mine, slot_of(0, ahead()));
    if constexpr (kBackward) {
      const uint32_t from = staging_slot(smem.dy, 0, smem.block, thread);
      const Vector all = kWhole
                             ? *reinterpret_cast<const Vector*>(shared + from)
                             : read_unaligned(from, smem.block, at.dy + (own.at - (kRowsAhead + 1) * r.row), own.count);
#pragma unroll
      for (int e = 0; e < kVec; ++e) dy[e] = float(all.get(e));
    }
    finish_vector(f, dy, v, s.gradients);
    if constexpr (!kBackward) store(at.out, v.result);
    else if (own.count > 0) {
      if constexpr (kAxis != Axis::none) put_numbers(g_line(s.parity), int(smem.slots), v.of_g);
      if constexpr (!kCentered) put_numbers(own_numbers(s, 0), int(smem.block), v.result);
    }
    if constexpr (kBackward && kCentered) {
      if (a.dmeans && (inner || (o >= top && o < bottom))) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) dy[e] = .5f * v.of_g[e] * v.total_away[e];
        store(at.dmeans, dy);
      }
    }
  }
  // Adds a row of the factors g (lrn_math.h) to the sums of all windows that contain the row.
  __device__ __forceinline__ void add_row_of_g(bool inner, State& s, Results& v) const {
    float sum[kVec]{};
    if constexpr (kCentered) {
      float center[kVec], rest[kVec]{};
      get_vector(center, slot_of(smem.means, rows()));
      Weights weights(*this, g_line(1 - s.parity));
      Taps means(*this, slot_of(smem.means, rows()));
      sum_gradients(weights, means, center, sum, rest);
      add_gradients(inner, center, sum, rest, s, v);
    } else if constexpr (kAxis == Axis::none) {
      add(s.gradients, v.of_g, v.total);
    } else {
      Weights weights(*this, g_line(1 - s.parity));
      sum_line(sum, weights, [](float g) { return g; });
      add(s.gradients, sum, v.total);
    }
  }
  // Stores a row of dx, whose window sums are now complete.
  __device__ __forceinline__ void store_dx(const LrnFactors& f, const Bases& at, const State& s, Results& v) const {
    if constexpr (!kCentered) {
      float x[kVec], first[kVec];
      get_vector(x, slot_of(0, rows() - 1 + kLater));
      get_numbers(first, own_numbers(s, 1), int(smem.block));
      finish_gradients(f, first, x, v.total);
    }
    store(at.out, v.total);
  }

  __device__ __forceinline__ void run(const LrnArgs& a, const LrnFactors& f) {
    const int height = int(r.height);
    const Ends g = ends_of_g(height), x = ends_of_x(height);
    const int end = bottom + (kBackward ? rows() - 1 + kLater : ahead());
    int t = x.first - (kCentered ? behind() : 0);
    own.at += t * r.row;
    if constexpr (kAxis != Axis::none || kCentered) {
      this->clear_smem();
      __syncthreads();
      // Only the first smem.block threads have a vector, and memory for it.
      if (kWhole && threadIdx.x >= smem.block) return;
    }
    const Bases at = bases_of(a);
#pragma unroll 1
    for (int later = 0; later < kRowsAhead; ++later) this->load_rows(a, at, t + later, later, x, g, false);
    State s;
    if constexpr (kCentered) count_members(s.counts);
    s.own_offset = thread * 16;

    // If `inner` is true, all rows of this iteration are inside the image, and are not checked.
    auto step = [&](bool inner) {
      cp_async_wait_group<kRowsAhead - 1>();
      if constexpr (!kWhole) this->extract_rows(a, at, t, x, g);
      if constexpr (kAxis != Axis::none) __syncthreads();
      this->load_rows(a, at, t + kRowsAhead, kRowsAhead, x, g, inner);

      Results v;
      if (inner || x.has(t)) add_row(s, v);
      else {
        skip(s.squares, v.total);
        if constexpr (kCentered && kBackward) skip(s.deviations, v.total_away);
      }
      const int o = t - ahead();
      if (inner || g.has(o)) finish_row(a, f, at, o, inner, s, v);
      if constexpr (kBackward) {
        // `row` is the row of g (lrn_math.h) that this iteration sums, which completes the sums of row i of dx.
        const int row = o - kLater, i = row - behind();
        if (inner || g.has(row)) add_row_of_g(inner, s, v);
        else skip(s.gradients, v.total);
        if (inner || i >= top) store_dx(f, at, s, v);
#pragma unroll
        for (int e = 0; e < kVec; ++e) s.own_before[e] = v.result[e];
        s.own_offset = ring_offset(s.own_offset, 1, own_line(), own_ring());
        s.parity = 1 - s.parity;
      }
      here = ring_offset(here, 1, smem.line, smem.ring);
      ++stage;
      ++t;
    };
    const int first_inner = top + ahead() + (kBackward ? behind() + kLater : 0),
              last_inner = min_of(bottom + ahead(), height);
    run_steps(step, t, end, first_inner, last_inner);
  }
};

}  // namespace minidnn
