// SPDX-License-Identifier: Apache-2.0
// Window sums of local response and local contrast norm. Threads loop down the rows of an image, one row per step.
// - Load: cp.async copies each row once, kRowsAhead rows ahead of its step, to a line (row buffer) of shared memory.
// - Sum: a thread sums along the row the elements in the windows of its vector. It adds this term to the sums of all
//   windows that contain the row; these sums are in registers. Each window is summed separately; no sum slides.
// - Backward: threads exchange g (lrn_math.h) through other lines. Windows of g are summed in the same way;
//   where windows also extend along the row, one step later.
//
// Numerics with means: the sums over a row serve all outputs of a column, although their means m differ. The sums are
// taken about c, the row's x in that column. With d_j = x_j - c and e = c - m,
//   sum (x_j - m)^2 = sum d_j^2 + e (2 sum d_j + n e).
// No large numbers cancel: c is in the window, so the window's sum of squares bounds d_j and e. Gradients likewise:
//   sum g_j (x - m_j) = (x - m_c) sum g_j + sum g_j (m_c - m_j).
#pragma once
#include "cpp/lrn/lrn_math.h"
#include "cuda/device/elementwise.cuh"
#include "cuda/device/packed.cuh"
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/lrn/power.cuh"
#include "cuda/lrn/sliding_window_params.h"

namespace minidnn {

// The location of a vector. at: offset of its first element in the tensor; column: position of that element in the row;
// count: elements inside the row, 0 if the vector is outside; slot: index in a line.
struct VecCoord {
  int64_t at = 0;
  int32_t column = 0, count = 0;
  uint32_t slot = 0;
};

// Byte offsets from a slot of a line to the positions up to `side` away. The asm barrier keeps them in registers:
// otherwise each use multiplies.
template <int side> struct Positions {
  int32_t bytes[2 * side];
  __device__ __forceinline__ void set(int32_t position) {
#pragma unroll
    for (int i = 0; i < 2 * side; ++i) {
      bytes[i] = (i < side ? i - side : i - side + 1) * position;
      asm volatile("" : "+r"(bytes[i]));
    }
  }
  template <class E> __device__ __forceinline__ const E* from(const E* at, int o) const {
    if (!o) return at;
    return reinterpret_cast<const E*>(reinterpret_cast<const char*>(at) + bytes[o < 0 ? o + side : o + side - 1]);
  }
};
template <> struct Positions<0> {
  __device__ __forceinline__ void set(int32_t) {}
  template <class E> __device__ __forceinline__ const E* from(const E* at, int) const { return at; }
};

template <class T, int kVec, Axis axis, bool whole, bool centered, int size, bool backward> struct SlidingWindow {
  static constexpr int kMost = size ? size : 2 * kMaxReach + 1;  // rows of a window, at most
  static constexpr int kSide = axis == Axis::none ? 0 : size ? size / 2 : kMaxReach;
  static constexpr int kStages = kRowsAhead + 1, kBytes = kVec * int(sizeof(T));
  // Different counts, per vector, of the elements of a row that are in a window.
  static constexpr int kCounts = axis == Axis::contiguous ? kVec : 1;
  // Unaligned stores combine the vectors of two neighbouring lanes. Warps therefore overlap by one lane: a warp's first
  // lane has the last vector of the preceding warp and only passes it to the next lane.
  static constexpr bool kOverlaps = axis == Axis::none && !whole;
  static constexpr bool kPairs = axis == Axis::contiguous && size != 0;  // see sum_line()
  using Vector = Items<T, kVec>;
  using Far = Positions<axis == Axis::strided ? kSide : 0>;
  using Sums = float[kMost - 1][kVec];

  const SlidingWindowParams& r;
  const SmemLayout& smem;
  unsigned char* const shared;
  const uint32_t begin;  // address of `shared` in the shared state space
  // own: this thread's vector in the row to be loaded next. beside: the vector of a gap that this thread loads as well;
  // its `at` is relative to own.at.
  VecCoord own, beside;
  uint32_t thread;  // index in the block; 0 for surplus threads
  uint32_t writes;
  // linked: in memory this thread's vector follows that of the preceding lane, and both are written. leads: the next
  // lane is linked to this one.
  bool linked, leads;
  int32_t top, bottom;           // rows that the block writes: top <= row < bottom
  Far x_far, g_far;              // x_far: in lines of x and of the means; g_far: in lines of g
  uint32_t here = 0, stage = 0;  // here: byte offset of the thread's slot in the current step's line; stage: the step

  __device__ __forceinline__ int behind() const { return size ? (size - 1) / 2 : r.behind; }
  __device__ __forceinline__ int ahead() const { return size ? size / 2 : r.ahead; }
  __device__ __forceinline__ int rows() const { return size ? size : r.behind + r.ahead + 1; }

  __device__ __forceinline__ SlidingWindow(const SlidingWindowParams& r, const SmemLayout& smem, unsigned char* shared)
      : r(r), smem(smem), shared(shared), begin(cvta_to_shared(shared)) {
    uint32_t block = blockIdx.x;
    top = int32_t(uint32_t(r.by_chunks.divmod(block)) * r.tall);
    bottom = int32_t(min_of(top + int64_t(r.tall), r.height));
    thread = threadIdx.x < smem.block ? threadIdx.x : 0;
    const uint32_t group = r.by_threads.quotient(thread), of_group = thread - group * r.threads;
    uint32_t image = block * r.in_block + group - (kOverlaps ? threadIdx.x / 32 + 1 : 0);
    const bool active = threadIdx.x < smem.block && image < r.groups;
    uint32_t tile = uint32_t(r.by_tiles.divmod(image));
    const int32_t slice = r.by_slices.divmod(tile), first = int32_t(tile * r.own) - int32_t(r.halo);
    auto coord_of = [&](int32_t index, uint32_t channel, uint32_t slot) {
      VecCoord s;
      const bool in_slice = channel < r.slice;
      s.column = (first + index) * (axis == Axis::strided ? 1 : kVec);
      s.slot = slot;
      const int32_t within = axis == Axis::strided ? int32_t((uint32_t(slice) * r.slice + channel) * kVec) : s.column;
      const int64_t left = (axis == Axis::strided ? r.step : r.width) - within;
      const bool inside = active && in_slice && s.column >= 0 && s.column < r.width && left > 0;
      s.count = inside ? int32_t(min_of(left, int64_t(kVec))) : 0;
      s.at = int64_t(image) * r.height * r.row + (axis == Axis::strided ? s.column * r.step + within : within);
      return s;
    };
    const uint32_t index = r.by_slice.quotient(of_group);
    own = coord_of(int32_t(index), of_group - index * r.slice, smem.gap + group * (r.threads + smem.gap) + of_group);
    writes = own.count > 0 && index >= r.halo && index < r.halo + r.own && !(kOverlaps && threadIdx.x % 32 == 0);
    if (axis != Axis::none && r.tiled && threadIdx.x < 2 * smem.gap) {
      const bool before = threadIdx.x < smem.gap;
      const uint32_t i = threadIdx.x - (before ? 0 : smem.gap), far = r.by_slice.quotient(i);
      const int32_t reach = int32_t(r.by_slice.quotient(smem.gap)), past = int32_t(r.by_slice.quotient(r.threads));
      beside =
          coord_of(int32_t(far) + (before ? -reach : past), i - far * r.slice, before ? i : smem.gap + r.threads + i);
      beside.at -= own.at;
    }
    // Without these barriers the compiler computes the values, including the divisions, again at each use.
    asm volatile("" : "+l"(own.at), "+r"(own.slot), "+r"(own.column), "+r"(own.count), "+r"(writes), "+r"(thread));
    if (axis != Axis::none) asm volatile("" : "+l"(beside.at), "+r"(beside.slot), "+r"(beside.count));
    here = own.slot * kBytes;
    x_far.set(int32_t(r.slice) * kBytes);
    g_far.set(int32_t(r.slice) * 16);
    if constexpr (kOverlaps) {
      linked = own.column > 0;
      leads = own.column + kVec < r.width;
    } else if constexpr (!whole) {
      const int64_t lane_before = __shfl_up_sync(0xffffffff, writes && own.count == kVec ? own.at : -1, 1);
      linked = threadIdx.x % 32 && writes && lane_before >= 0 && lane_before + kVec == own.at;
      leads = __shfl_down_sync(0xffffffff, int(linked), 1) && threadIdx.x % 32 != 31;
    }
  }

  // The byte offset `lines` lines after `at` in a ring buffer; before it if negative. min_of() wraps it around: of the
  // two candidates, the one outside the ring is the larger, as an unsigned number below 0 is large.
  static __device__ __forceinline__ uint32_t ring_offset(uint32_t at, int lines, uint32_t line, uint32_t ring) {
    at += uint32_t(lines) * line;
    return lines > 0 ? min_of(at, at - ring) : lines < 0 ? min_of(at, at + ring) : at;
  }
  // Byte offset of the thread's slot in the line of the row that is `back` rows before the current step's; after it if
  // negative. first: where the ring of lines begins.
  __device__ __forceinline__ uint32_t slot(uint32_t first, int back) const {
    return first + ring_offset(here, -back, smem.line, smem.ring);
  }
  __device__ __forceinline__ T* slot_of(uint32_t first, int back) const {
    return reinterpret_cast<T*>(shared + slot(first, back));
  }
  __device__ __forceinline__ uint32_t slot_beside(int back) const {  // in a line of x
    return slot(0, back) + (beside.slot - own.slot) * kBytes;
  }
  static __device__ __forceinline__ uint32_t shift_of(const T* p) {
    return uint32_t(reinterpret_cast<uint64_t>(p) / sizeof(T)) % kVec;
  }
  // Byte offset of the staging slot for data that is needed `later` steps from now: vector i of n. If rows are
  // unaligned, the first vector of pair i of n; the second one is n vectors later.
  __device__ __forceinline__ uint32_t staging_slot(uint32_t first, int later, uint32_t n, uint32_t i) const {
    return first + ((stage + uint32_t(later)) % kStages * n * (whole ? 1 : 2) + i) * kBytes;
  }
  // Base address in `tensor` of the row that is `rows` rows after the one to be loaded next; the caller adds own.at.
  // Without the barrier the compiler multiplies again for each use in each step.
  __device__ __forceinline__ T* rows_on(const void* tensor, int rows) const {
    T* at = static_cast<T*>(const_cast<void*>(tensor)) + rows * r.row;
    asm volatile("" : "+l"(at));
    return at;
  }
  // Loads a vector of unaligned rows: the aligned vectors that contain its `count` elements, one to offset `to`, and
  // the second one, if there is one, n vectors behind it.
  __device__ __forceinline__ void load_unaligned(uint32_t to, uint32_t n, const void* tensor, const T* rows_on,
                                                 int64_t index, int32_t count) const {
    const T* at = rows_on + index;
    if (count > 0) {
      const uint32_t shift = shift_of(at), smem = begin + to;
      const int64_t left = r.elements - (at - static_cast<const T*>(tensor)) + shift;
      const bool two = shift + count > kVec;
      if (left >= 2 * kVec) {
        cp_async<kBytes>(smem, at - shift, 1);
        cp_async<kBytes>(smem + n * kBytes, at - shift + kVec, 1, two);
      } else {  // the tensor's end
        cp_async_zfill<kBytes>(smem, at - shift, uint32_t(min_of(left, int64_t(kVec))) * sizeof(T));
        if (two) cp_async_zfill<kBytes>(smem + n * kBytes, at - shift + kVec, uint32_t(left - kVec) * sizeof(T));
      }
    }
  }
  // Extracts an unaligned vector from the pair of aligned vectors that contains it. Elements from `count` on are 0.
  __device__ __forceinline__ Vector extract(uint32_t pair, uint32_t n, const T* at, int32_t count) const {
    Vector low = *reinterpret_cast<const Vector*>(shared + pair),
           high = *reinterpret_cast<const Vector*>(shared + pair + n * kBytes);
    // Without this barrier the compiler loads only the words that cut() needs, one by one.
#pragma unroll
    for (int i = 0; i < int(sizeof(low.word) / sizeof(low.word[0])); ++i)
      asm volatile("" : "+r"(low.word[i]), "+r"(high.word[i]));
    Vector v = cut<T, kVec>(low, high, shift_of(at));
    if (count < kVec) {
      const Vector all = v;
#pragma unroll
      for (int e = 0; e < kVec; ++e) v.put(e, e < count ? all.get(e) : T());
    }
    return v;
  }
  __device__ __forceinline__ void store(T* rows_on, const float (&v)[kVec]) const {
    T* to = rows_on + own.at;
    if constexpr (whole) {
      if (writes) store_vector(to, v);
    } else {
      Vector mine, before;
#pragma unroll
      for (int e = 0; e < kVec; ++e) mine.put(e, T(v[e]));
#pragma unroll
      for (int i = 0; i < int(sizeof(mine.word) / sizeof(mine.word[0])); ++i)
        before.word[i] = __shfl_up_sync(0xffffffff, mine.word[i], 1);
      if (!writes) return;
      const uint32_t shift = shift_of(to);
      // The aligned vector at to - shift: the last `shift` elements of the preceding lane's vector, then the first
      // `head` elements of this lane's.
      const int head = kVec - int(shift);
      const Vector joined = shift ? cut<T, kVec>(before, mine, uint32_t(head)) : mine;
      T* const from = to - shift;
      if (own.count >= head && (linked || !shift)) {
        const auto& word = joined.word;
        if constexpr (kBytes == 16) st_global_v4(from, {word[0], word[1], word[2], word[3]});
        else st_global_v2(from, {word[0], word[1]});
      } else {
        const int begin = linked ? 0 : int(shift), end = int(shift) + min_of(own.count, head);
#pragma unroll
        for (int i = 0; i < kVec; ++i)
          if (i >= begin && i < end) from[i] = joined.get(i);
      }
      if (!leads && shift) {
#pragma unroll
        for (int e = 0; e < kVec; ++e)
          if (e >= head && e < own.count) to[e] = mine.get(e);
      }
    }
  }
  template <int n> static __device__ __forceinline__ void store_vector(float* to, const float (&v)[n]) {
    write_quad(to, v);
  }
  template <int n, class E> static __device__ __forceinline__ void store_vector(E* to, const float (&v)[n]) {
    if constexpr (n == 4) write_quad(to, v);
    else Packed<E, n>::store(to, v);
  }

  // The neighbourhood of a thread's vector in a line of x or of the means. After to(o), taps(o, e) is the neighbour of
  // element e at o positions away.
  struct Taps {
    const T* at;
    Far far;
    float q[kVec + (axis == Axis::contiguous ? 2 * kSide : 0)];
    __device__ __forceinline__ Taps(const SlidingWindow& w, const T* at) : at(at), far(w.x_far) {
      if constexpr (axis == Axis::contiguous) {
        const auto before = *reinterpret_cast<const Items<T, kSide>*>(at - kSide);
        const auto after = *reinterpret_cast<const Items<T, kSide>*>(at + kVec);
        const Vector mine = *reinterpret_cast<const Vector*>(at);
#pragma unroll
        for (int i = 0; i < kVec + 2 * kSide; ++i)
          q[i] = float(i < kSide          ? before.get(i)
                       : i < kSide + kVec ? mine.get(i - kSide)
                                          : after.get(i - kSide - kVec));
      }
    }
    __device__ __forceinline__ void to(int o) {
      if constexpr (axis != Axis::contiguous) {
        const Vector v = *reinterpret_cast<const Vector*>(far.from(at, o));
#pragma unroll
        for (int e = 0; e < kVec; ++e) q[e] = float(v.get(e));
      }
    }
    __device__ __forceinline__ float operator()(int o, int e) const {
      return q[axis == Axis::contiguous ? kSide + e + o : e];
    }
  };
  // The same for g. A line of g has elements 0-3 of all vectors, then elements 4-7.
  struct Weights {
    const float4* at;
    int slots;
    Far far;
    float q[kVec + (axis == Axis::contiguous ? 2 * kSide : 0)];
    __device__ __forceinline__ Weights(const SlidingWindow& w, const float4* at)
        : at(at), slots(int(w.smem.slots)), far(w.g_far) {
      if constexpr (axis == Axis::contiguous) {
        const float4 before = at[(kVec / 4 - 1) * slots - 1], after = at[1];
        const float low[4]{before.x, before.y, before.z, before.w}, high[4]{after.x, after.y, after.z, after.w};
#pragma unroll
        for (int i = 0; i < kSide; ++i) {
          q[i] = low[4 - kSide + i];
          q[kSide + kVec + i] = high[i];
        }
        four(q + kSide, at);
      }
    }
    __device__ __forceinline__ void four(float* to, const float4* from) const {
#pragma unroll
      for (int h = 0; h < kVec / 4; ++h) {
        const float4 v = from[h * slots];
        to[4 * h] = v.x;
        to[4 * h + 1] = v.y;
        to[4 * h + 2] = v.z;
        to[4 * h + 3] = v.w;
      }
    }
    __device__ __forceinline__ void to(int o) {
      if constexpr (axis != Axis::contiguous) four(q, far.from(at, o));
    }
    __device__ __forceinline__ float operator()(int o, int e) const {
      return q[axis == Axis::contiguous ? kSide + e + o : e];
    }
  };
  static __device__ __forceinline__ void put_numbers(float4* to, int slots, const float (&v)[kVec]) {
#pragma unroll
    for (int h = 0; h < kVec / 4; ++h) to[h * slots] = {v[4 * h], v[4 * h + 1], v[4 * h + 2], v[4 * h + 3]};
  }
  static __device__ __forceinline__ void get_numbers(float (&v)[kVec], const float4* from, int slots) {
#pragma unroll
    for (int h = 0; h < kVec / 4; ++h) {
      const float4 four = from[h * slots];
      v[4 * h] = four.x;
      v[4 * h + 1] = four.y;
      v[4 * h + 2] = four.z;
      v[4 * h + 3] = four.w;
    }
  }
  static __device__ __forceinline__ void get_vector(float (&v)[kVec], const T* from) {
    const Vector all = *reinterpret_cast<const Vector*>(from);
#pragma unroll
    for (int e = 0; e < kVec; ++e) v[e] = float(all.get(e));
  }
  // sum[e]: sum of f over the elements of a line that are in the window of element e. kPairs: the windows of elements
  // e and e + 1 share all but one element each; the shared elements are summed once, in pairs.
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
  // Whether the position o away from element e is inside the row.
  __device__ __forceinline__ bool has(int o, int e) const {
    if constexpr (axis == Axis::contiguous && whole)
      return e + o < 0 ? own.column > 0 : e + o < kVec || own.column + kVec < int(r.width);
    const int at = own.column + o + (axis == Axis::contiguous ? e : 0);
    if constexpr (axis == Axis::strided) return uint32_t(at) < uint32_t(r.width);
    return at >= 0 && at < int(r.width);
  }

  // A row's term plus window k's sum of the preceding rows. The last window begins with this row and has no sum:
  // without the condition, 0 would be added to the term.
  static __device__ __forceinline__ float with(const Sums& sums, int k, int e, float term) {
    return k < kMost - 1 ? sums[k][e] + term : term;
  }
  // Adds a row's term to the sums of all windows that contain the row. The first window is then complete: its sum goes
  // to `total`, and the other sums move up by one.
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

  // The rows of a tensor that are loaded: first <= row < last. has_begun: the caller knows that row >= first.
  struct Ends {
    int first, last;
    __device__ __forceinline__ bool has(int row, bool has_begun = false) const {
      return (has_begun || row >= first) && row < last;
    }
  };
  struct Bases {  // see rows_on()
    T *x, *means, *dy, *out, *dmeans;
  };
  // Loads what step t needs: row t of x, row t + behind of the means (of the outputs whose windows begin with row t),
  // and row t - ahead of dy (of the outputs whose windows end with row t).
  __device__ __forceinline__ void load_rows(const LrnArgs& a, const Bases& from, int t, int later, Ends x, Ends g,
                                            bool has_begun) {
    const uint32_t all = smem.block + 2 * smem.gap;
    const Ends means{x.first, g.last};
    if constexpr (whole) {
      // For a row outside the range, cp.async writes zeros to a line that no thread reads: its operand `exists` needs
      // no branch.
      const bool x_comes = x.has(t, has_begun);
      const uint32_t to = begin + slot(0, -later);
      cp_async<kBytes>(to, from.x + own.at, x_comes && own.count > 0);
      if constexpr (axis != Axis::none) {
        if (r.tiled && x_comes)
          cp_async<kBytes>(begin + slot_beside(-later), from.x + (own.at + beside.at), 1, beside.count > 0);
      }
      if constexpr (centered)
        cp_async<kBytes>(to + smem.means, from.means + own.at, means.has(t + behind(), has_begun) && own.count > 0);
      if constexpr (backward)
        cp_async<kBytes>(begin + staging_slot(smem.dy, later, smem.block, thread), from.dy + own.at,
                         g.has(t - ahead(), has_begun) && own.count > 0);
    } else {
      if (x.has(t, has_begun)) {
        load_unaligned(staging_slot(smem.staging, later, all, thread), all, a.x, from.x, own.at, own.count);
        if (axis != Axis::none && r.tiled)
          load_unaligned(staging_slot(smem.staging, later, all, smem.block + threadIdx.x), all, a.x, from.x,
                         own.at + beside.at, beside.count);
      }
      if (centered && a.means && means.has(t + behind(), has_begun))
        load_unaligned(staging_slot(means_staging(), later, smem.block, thread), smem.block, a.means, from.means,
                       own.at, own.count);
      if (backward && g.has(t - ahead(), has_begun))
        load_unaligned(staging_slot(smem.dy, later, smem.block, thread), smem.block, a.dy, from.dy, own.at, own.count);
    }
    cp_async_commit_group();
    own.at += r.row;
  }
  __device__ __forceinline__ uint32_t means_staging() const {
    return smem.staging + kStages * 2 * kBytes * (smem.block + 2 * smem.gap);
  }
  // Unaligned rows: moves the step's vectors of x and of the means from their staging slots to the lines.
  __device__ __forceinline__ void extract_rows(const LrnArgs& a, const Bases& from, int t, Ends x, Ends g) const {
    const uint32_t all = smem.block + 2 * smem.gap;
    const int64_t at = own.at - kRowsAhead * r.row;
    if (x.has(t)) {
      auto put = [&](uint32_t to, int64_t at, int32_t count, uint32_t i) {
        if (count > 0)
          *reinterpret_cast<Vector*>(shared + to) =
              extract(staging_slot(smem.staging, 0, all, i), all, from.x + at, count);
      };
      put(slot(0, 0), at, own.count, thread);
      if (axis != Axis::none && r.tiled) put(slot_beside(0), at + beside.at, beside.count, smem.block + threadIdx.x);
    }
    if (centered && a.means && own.count > 0 && Ends{x.first, g.last}.has(t + behind()))
      *reinterpret_cast<Vector*>(shared + slot(smem.means, 0)) =
          extract(staging_slot(means_staging(), 0, smem.block, thread), smem.block, from.means + at, own.count);
  }

  // Computes the numbers of elements of a row that are in the windows of this thread's elements.
  __device__ __forceinline__ void count_members(float (&counts)[kCounts]) const {
#pragma unroll
    for (int e = 0; e < kCounts; ++e) {
      const int at = own.column + e;
      counts[e] = float(min_of(at + ahead(), int(r.width) - 1) - max_of(at - behind(), 0) + 1);
    }
  }
  __device__ __forceinline__ void clear_smem() const {
    for (uint32_t i = threadIdx.x; i < smem.bytes / 16; i += blockDim.x) reinterpret_cast<uint4*>(shared)[i] = {};
  }
  // With means: adds up the differences d of the neighbours of each element in its row (once: 2 sum d, twice: sum d^2).
  __device__ __forceinline__ void sum_differences(Taps& taps, const float (&mine)[kVec], float (&once)[kVec],
                                                  float (&twice)[kVec]) const {
#pragma unroll
    for (int o = -kSide; o <= kSide; ++o)
      if (o && o >= -behind() && o <= ahead()) {
        taps.to(o);
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          // The later position's element minus the earlier one's: the compiler uses this difference for the
          // windows of both.
          const float difference = !has(o, e) ? 0.f : o > 0 ? taps(o, e) - mine[e] : mine[e] - taps(o, e);
          once[e] = o == -kSide ? -difference : o < 0 ? once[e] - difference : once[e] + difference;
          twice[e] += difference * difference;
        }
      }
    // A window with an infinite element must have an infinite sum: `once` is set to 0 there, as it could make the
    // sum NaN.
#pragma unroll
    for (int e = 0; e < kVec; ++e) once[e] = twice[e] < INFINITY ? 2 * once[e] : 0.f;
  }
  // With means: adds a row of x to the sums of all windows that contain it. once: 2 sum d_j; twice: sum d_j^2.
  __device__ __forceinline__ void add_centered(const float (&mine)[kVec], const float (&once)[kVec],
                                               const float (&twice)[kVec], const float (&counts)[kCounts],
                                               Sums& squares, Sums& away, float (&total)[kVec],
                                               float (&total_away)[kVec]) const {
#pragma unroll
    for (int k = 0; k < kMost; ++k)
      if (k < rows()) {
        float mean[kVec];
        get_vector(mean, slot_of(smem.means, rows() - 1 - k));
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const float n = counts[e % kCounts], from = mine[e] - mean[e], both = n * from + once[e];
          const float sum = from * both + with(squares, k, e, twice[e]);
          if (k == 0) total[e] = sum;
          else squares[k ? k - 1 : 0][e] = sum;
          if constexpr (backward) {
            const float moved = with(away, k, e, n * from + both);
            if (k == 0) total_away[e] = moved;
            else away[k ? k - 1 : 0][e] = moved;
          }
        }
      }
  }
  // Computes y of a vector whose sums are complete; backward dy s^-beta and g.
  __device__ __forceinline__ void finish_vector(const LrnFactors& f, const float (&total)[kVec],
                                                const float (&dy)[kVec], const float (&mine)[kVec], float (&of_g)[kVec],
                                                float (&result)[kVec], Sums& gradients) const {
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      const float s = f.k + f.scale * total[e], p = power_of<T>(s, f.beta);
      result[e] = (backward ? dy[e] : mine[e]) * p;
      // Neighbours must read 0 beyond the end of the row.
      const bool inside = whole || axis == Axis::none || e < own.count;
      if (backward) of_g[e] = inside ? result[e] * (mine[e] * rcp_approx_ftz(s)) : 0.f;
      if (backward && centered) of_g[e] *= f.slope;
      // The sums for row o are at this index until row o - 1 of g is summed, in the next step.
      if constexpr (backward && centered && size != 0) gradients[behind() + 1][e] += result[e];
    }
  }
  // With means: sums a row of g, and g times the differences of the means, over the windows of each element.
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
  // With means: adds a row of g to the sums of dx.
  __device__ __forceinline__ void add_gradients(bool inner, const float (&mine)[kVec], const float (&center)[kVec],
                                                const float (&sum)[kVec], const float (&rest)[kVec],
                                                const float (&own_before)[kVec], Sums& gradients,
                                                float (&total)[kVec]) const {
#pragma unroll
    for (int k = 0; k < kMost; ++k)
      if (k < rows()) {
        float x[kVec];
        if (size && inner && k == rows() - ahead()) {
#pragma unroll
          for (int e = 0; e < kVec; ++e) x[e] = mine[e];
        } else get_vector(x, slot_of(0, rows() - k));
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          float term = with(gradients, k, e, -rest[e]);
          if (!size && k == behind()) term += own_before[e];
          term -= (x[e] - center[e]) * sum[e];
          if (k == 0) total[e] = term;
          else gradients[k ? k - 1 : 0][e] = term;
        }
      }
  }
  // Without means: computes dx from its complete sums and its first term.
  static __device__ __forceinline__ void finish_gradients(const LrnFactors& f, const float (&first)[kVec],
                                                          const float (&x)[kVec], float (&total)[kVec]) {
#pragma unroll
    for (int e = 0; e < kVec; ++e) total[e] = first[e] - f.slope * x[e] * total[e];
  }

  static constexpr int kLater = axis == Axis::none ? 0 : 1;  // steps from the computation of g to that of its sums

  // Calls step() until t is `end`. size: the steps from first_inner to last_inner need no checks for the image's ends.
  template <class Step>
  static __device__ __forceinline__ void run_steps(const Step& step, int& t, int end, int first_inner, int last_inner) {
#pragma unroll 1
    while (t < end) {
      if (size && t >= first_inner) {
#pragma unroll 1
        while (t < last_inner) step(true);
        if (t >= end) break;
      }
      step(false);
    }
  }
  __device__ __forceinline__ Ends ends_of_g(int height) const {
    return {backward ? max_of(top - ahead(), 0) : top, backward ? min_of(bottom + behind(), height) : bottom};
  }
  __device__ __forceinline__ Ends ends_of_x(int height) const {
    return {max_of(top - (backward ? rows() - 1 : behind()), 0),
            min_of(bottom + (backward ? rows() - 1 : ahead()), height)};
  }
  // A step stores results after it has requested row t + kRowsAhead and advanced own.at: hence - kRowsAhead - 1.
  __device__ __forceinline__ Bases bases_of(const LrnArgs& a) const {
    return {rows_on(a.x, 0), rows_on(a.means, behind()), rows_on(a.dy, -ahead()),
            rows_on(a.out, (backward ? 1 - rows() - kLater : -ahead()) - kRowsAhead - 1),
            rows_on(a.dmeans, -ahead() - kRowsAhead - 1)};
  }

  __device__ __forceinline__ void run(const LrnArgs& a, const LrnFactors& f) {
    const int height = int(r.height);
    const Ends g = ends_of_g(height), x = ends_of_x(height);
    const int end = bottom + (backward ? rows() - 1 + kLater : ahead());
    int t = x.first - (centered ? behind() : 0);
    own.at += t * r.row;
    if constexpr (axis != Axis::none || centered) {
      clear_smem();
      __syncthreads();
      if (whole && threadIdx.x >= smem.block) return;  // a surplus thread: it has no slot
    }
    const Bases at = bases_of(a);
#pragma unroll 1
    for (int later = 0; later < kRowsAhead; ++later) load_rows(a, at, t + later, later, x, g, false);

    float counts[kCounts];
    if constexpr (centered) count_members(counts);
    Sums squares{}, away{}, gradients{};  // away: 2 sum (x_j - m)
    float own_before[kVec]{};             // `result` of the preceding step; read only where size is 0
    int parity = 0;
    const uint32_t own_line = kVec * 4 * smem.block, own_ring = uint32_t(behind() + 1 + kLater) * own_line;
    uint32_t own_here = thread * 16;
    auto own_numbers = [&](int later) {
      return reinterpret_cast<float4*>(shared + smem.own + ring_offset(own_here, later, own_line, own_ring));
    };
    auto g_line = [&](int which) {
      return reinterpret_cast<float4*>(shared + smem.g) + (which * (kVec / 4) * int(smem.slots) + int(own.slot));
    };

    // inner: every tensor has the row that this step needs, so the checks for the image's ends are left out.
    auto step = [&](bool inner) {
      cp_async_wait_group<kRowsAhead - 1>();
      if constexpr (!whole) extract_rows(a, at, t, x, g);
      if constexpr (axis != Axis::none) __syncthreads();
      load_rows(a, at, t + kRowsAhead, kRowsAhead, x, g, inner);

      float total[kVec], total_away[kVec];
      if (inner || x.has(t)) {
        Taps taps(*this, slot_of(0, 0));
        if constexpr (centered) {
          float mine[kVec], once[kVec]{}, twice[kVec]{};
          get_vector(mine, slot_of(0, 0));
          sum_differences(taps, mine, once, twice);
          add_centered(mine, once, twice, counts, squares, away, total, total_away);
        } else {
          float row[kVec];
          sum_line(row, taps, [](float x) { return x * x; });
          add(squares, row, total);
        }
      } else {
        skip(squares, total);
        if constexpr (centered && backward) skip(away, total_away);
      }

      const int o = t - ahead();
      // Of row o: x; g, with means times the slope; y, or backward dy s^-beta.
      float mine[kVec]{}, of_g[kVec]{}, result[kVec]{};
      if (inner || g.has(o)) {
        float dy[kVec];
        get_vector(mine, slot_of(0, ahead()));
        if constexpr (backward) {
          const uint32_t from = staging_slot(smem.dy, 0, smem.block, thread);
          const Vector all = whole ? *reinterpret_cast<const Vector*>(shared + from)
                                   : extract(from, smem.block, at.dy + (own.at - (kRowsAhead + 1) * r.row), own.count);
#pragma unroll
          for (int e = 0; e < kVec; ++e) dy[e] = float(all.get(e));
        }
        finish_vector(f, total, dy, mine, of_g, result, gradients);
        if constexpr (!backward) store(at.out, result);
        else if (own.count > 0) {
          if constexpr (axis != Axis::none) put_numbers(g_line(parity), int(smem.slots), of_g);
          if constexpr (!centered) put_numbers(own_numbers(0), int(smem.block), result);
        }
        if constexpr (backward && centered) {
          if (a.dmeans && (inner || (o >= top && o < bottom))) {
#pragma unroll
            for (int e = 0; e < kVec; ++e) dy[e] = .5f * of_g[e] * total_away[e];
            store(at.dmeans, dy);
          }
        }
      }

      if constexpr (backward) {
        const int row = o - kLater, i = row - behind();  // row: its g is summed now; i: its windows are complete then
        if (inner || g.has(row)) {
          float sum[kVec]{};
          if constexpr (centered) {
            float center[kVec], rest[kVec]{};
            get_vector(center, slot_of(smem.means, rows()));
            Weights weights(*this, g_line(1 - parity));
            Taps means(*this, slot_of(smem.means, rows()));
            sum_gradients(weights, means, center, sum, rest);
            add_gradients(inner, mine, center, sum, rest, own_before, gradients, total);
          } else if constexpr (axis == Axis::none) {
            add(gradients, of_g, total);
          } else {
            Weights weights(*this, g_line(1 - parity));
            sum_line(sum, weights, [](float g) { return g; });
            add(gradients, sum, total);
          }
        } else skip(gradients, total);
        if (inner || i >= top) {
          if constexpr (!centered) {
            float x[kVec], first[kVec];
            get_vector(x, slot_of(0, rows() - 1 + kLater));
            get_numbers(first, own_numbers(1), int(smem.block));
            finish_gradients(f, first, x, total);
          }
          store(at.out, total);
        }
#pragma unroll
        for (int e = 0; e < kVec; ++e) own_before[e] = result[e];
        own_here = ring_offset(own_here, 1, own_line, own_ring);
        parity = 1 - parity;
      }
      here = ring_offset(here, 1, smem.line, smem.ring);
      ++stage;
      ++t;
    };
    const int first_inner = top + ahead() + (backward ? behind() + kLater : 0),
              last_inner = min_of(bottom + ahead(), height);
    run_steps(step, t, end, first_inner, last_inner);
  }
};

}  // namespace minidnn
