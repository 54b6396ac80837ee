// SPDX-License-Identifier: Apache-2.0
// How a window kernel (sliding_window.cuh) loads the rows of a tensor into shared memory, reads the neighbours of a
// vector from it, and stores rows of results.
#pragma once
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/lrn/window_slots.cuh"

namespace minidnn {

template <class T, int kVec, Axis kAxis, bool kWhole, bool kCentered, int kSize, bool kBackward> struct WindowRows
    : WindowSlots<T, kVec, kAxis, kWhole, kCentered, kSize, kBackward> {
  using Slots = WindowSlots<T, kVec, kAxis, kWhole, kCentered, kSize, kBackward>;
  using Slots::ahead, Slots::begin, Slots::behind, Slots::gap_slot, Slots::in_gap, Slots::kBytes, Slots::kSide,
      Slots::kStages, Slots::leads, Slots::linked, Slots::own, Slots::r, Slots::shared, Slots::shift_of, Slots::slot,
      Slots::smem, Slots::staging_slot, Slots::thread, Slots::writes;
  using typename Slots::Far;
  using typename Slots::Vector;

  __device__ __forceinline__ WindowRows(const SlidingWindowParams& r, const SmemLayout& smem, unsigned char* shared)
      : Slots(r, smem, shared) {}

  // Returns a base address in `tensor`, `rows` rows below row 0. The caller adds own.at, the offset of its vector in
  // the row that is loaded next. The asm barrier keeps the address in a register.
  __device__ __forceinline__ T* rows_on(const void* tensor, int rows) const {
    T* at = static_cast<T*>(const_cast<void*>(tensor)) + rows * r.row;
    asm volatile("" : "+l"(at));
    return at;
  }
  // Loads the one or two aligned vectors that contain an unaligned vector of `count` elements. The lower one goes to
  // byte offset `to` of shared memory, and the upper one n vectors after it.
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
      } else {  // Bytes beyond the end of the tensor are not read, but set to 0.
        cp_async_zfill<kBytes>(smem, at - shift, uint32_t(min_of(left, int64_t(kVec))) * sizeof(T));
        if (two) cp_async_zfill<kBytes>(smem + n * kBytes, at - shift + kVec, uint32_t(left - kVec) * sizeof(T));
      }
    }
  }
  // Extracts an unaligned vector from two aligned vectors. Elements from index `count` on are set to 0.
  __device__ __forceinline__ Vector read_unaligned(uint32_t pair, uint32_t n, const T* at, int32_t count) const {
    Vector low = *reinterpret_cast<const Vector*>(shared + pair),
           high = *reinterpret_cast<const Vector*>(shared + pair + n * kBytes);
    // Without this asm barrier, the compiler would load the needed words one by one.
#pragma unroll
    for (int i = 0; i < int(sizeof(low.word) / sizeof(low.word[0])); ++i)
      asm volatile("" : "+r"(low.word[i]), "+r"(high.word[i]));
    Vector v = extract(low, high, shift_of(at));
    if (count < kVec) {
      const Vector all = v;
#pragma unroll
      for (int e = 0; e < kVec; ++e) v.put(e, e < count ? all.get(e) : T());
    }
    return v;
  }
  __device__ __forceinline__ void store(T* rows_on, const float (&v)[kVec]) const {
    T* to = rows_on + own.at;
    if constexpr (kWhole) {
      if (writes) Vector::pack(v).store(to);
    } else {
      Vector mine, before;
#pragma unroll
      for (int e = 0; e < kVec; ++e) mine.put(e, T(v[e]));
#pragma unroll
      for (int i = 0; i < int(sizeof(mine.word) / sizeof(mine.word[0])); ++i)
        before.word[i] = shuffle_up(mine.word[i], 1);
      if (!writes) return;
      const uint32_t shift = shift_of(to);
      // The vector at the aligned address to - shift: the last `shift` elements of the preceding lane, and the first
      // `head` elements of this lane.
      const int head = kVec - int(shift);
      const Vector joined = shift ? extract(before, mine, uint32_t(head)) : mine;
      T* const from = to - shift;
      if (own.count >= head && (linked || !shift)) {
        joined.store(from);
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

  // The elements around a thread's vector in a row of x or of the means, read from shared memory. After a call of
  // to(o), taps(o, e) is the element at a distance of o positions from element e.
  struct Taps {
    const T* at;
    Far far;
    float q[kVec + (kAxis == Axis::contiguous ? 2 * kSide : 0)];
    __device__ __forceinline__ Taps(const WindowRows& w, const T* at) : at(at), far(w.x_far) {
      if constexpr (kAxis == Axis::contiguous) {
        const auto before = *reinterpret_cast<const Vec<T, kSide>*>(at - kSide);
        const auto after = *reinterpret_cast<const Vec<T, kSide>*>(at + kVec);
        const Vector mine = *reinterpret_cast<const Vector*>(at);
#pragma unroll
        for (int i = 0; i < kVec + 2 * kSide; ++i)
          q[i] = float(i < kSide          ? before.get(i)
                       : i < kSide + kVec ? mine.get(i - kSide)
                                          : after.get(i - kSide - kVec));
      }
    }
    __device__ __forceinline__ void to(int o) {
      if constexpr (kAxis != Axis::contiguous) {
        const Vector v = *reinterpret_cast<const Vector*>(far.from(at, o));
#pragma unroll
        for (int e = 0; e < kVec; ++e) q[e] = float(v.get(e));
      }
    }
    __device__ __forceinline__ float operator()(int o, int e) const {
      return q[kAxis == Axis::contiguous ? kSide + e + o : e];
    }
  };
  // The factors g (lrn_math.h) around a thread's vector in a row, read from shared memory. The layout is elements 0 to
  // 3 of all vectors, then elements 4 to 7 of all vectors.
  struct Weights {
    const float4* at;
    int slots;
    Far far;
    float q[kVec + (kAxis == Axis::contiguous ? 2 * kSide : 0)];
    __device__ __forceinline__ Weights(const WindowRows& w, const float4* at)
        : at(at), slots(int(w.smem.slots)), far(w.g_far) {
      if constexpr (kAxis == Axis::contiguous) {
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
      if constexpr (kAxis != Axis::contiguous) four(q, far.from(at, o));
    }
    __device__ __forceinline__ float operator()(int o, int e) const {
      return q[kAxis == Axis::contiguous ? kSide + e + o : e];
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
  // The rows first <= row < last of a tensor that a block loads. If has_begun is true, has() does not compare with
  // `first`.
  struct Ends {
    int first, last;
    __device__ __forceinline__ bool has(int row, bool has_begun = false) const {
      return (has_begun || row >= first) && row < last;
    }
  };
  struct Bases {  // the base address of a row in each tensor
    T *x, *means, *dy, *out, *dmeans;
  };
  // Loads the rows that iteration t of the loop over rows needs: row t of x, row t + behind() of the means, and row t -
  // ahead() of dy. A window has behind() rows above its centre, and ahead() rows below.
  __device__ __forceinline__ void load_rows(const LrnArgs& a, const Bases& from, int t, int later, Ends x, Ends g,
                                            bool has_begun) {
    const uint32_t all = smem.block + 2 * smem.gap;
    const Ends means{x.first, g.last};
    if constexpr (kWhole) {
      // A row outside the image is replaced by zeros in a buffer that no thread reads, so no branch is needed.
      const bool x_comes = x.has(t, has_begun);
      const uint32_t to = begin + slot(0, -later);
      cp_async<kBytes>(to, from.x + own.at, x_comes && own.count > 0);
      if constexpr (kAxis != Axis::none) {
        if (r.tiled && x_comes)
          cp_async<kBytes>(begin + gap_slot(-later), from.x + (own.at + in_gap.at), 1, in_gap.count > 0);
      }
      if constexpr (kCentered)
        cp_async<kBytes>(to + smem.means, from.means + own.at, means.has(t + behind(), has_begun) && own.count > 0);
      if constexpr (kBackward)
        cp_async<kBytes>(begin + staging_slot(smem.dy, later, smem.block, thread), from.dy + own.at,
                         g.has(t - ahead(), has_begun) && own.count > 0);
    } else {
      if (x.has(t, has_begun)) {
        load_unaligned(staging_slot(smem.staging, later, all, thread), all, a.x, from.x, own.at, own.count);
        if (kAxis != Axis::none && r.tiled)
          load_unaligned(staging_slot(smem.staging, later, all, smem.block + threadIdx.x), all, a.x, from.x,
                         own.at + in_gap.at, in_gap.count);
      }
      if (kCentered && a.means && means.has(t + behind(), has_begun))
        load_unaligned(staging_slot(means_staging(), later, smem.block, thread), smem.block, a.means, from.means,
                       own.at, own.count);
      if (kBackward && g.has(t - ahead(), has_begun))
        load_unaligned(staging_slot(smem.dy, later, smem.block, thread), smem.block, a.dy, from.dy, own.at, own.count);
    }
    cp_async_commit_group();
    own.at += r.row;
  }
  __device__ __forceinline__ uint32_t means_staging() const {
    return smem.staging + kStages * 2 * kBytes * (smem.block + 2 * smem.gap);
  }
  // If rows are unaligned, extracts the vectors of x and of the means from the staged pairs of aligned vectors, and
  // stores them in the ring buffers.
  __device__ __forceinline__ void extract_rows(const LrnArgs& a, const Bases& from, int t, Ends x, Ends g) const {
    const uint32_t all = smem.block + 2 * smem.gap;
    const int64_t at = own.at - kRowsAhead * r.row;
    if (x.has(t)) {
      auto put = [&](uint32_t to, int64_t at, int32_t count, uint32_t i) {
        if (count > 0)
          *reinterpret_cast<Vector*>(shared + to) =
              read_unaligned(staging_slot(smem.staging, 0, all, i), all, from.x + at, count);
      };
      put(slot(0, 0), at, own.count, thread);
      if (kAxis != Axis::none && r.tiled) put(gap_slot(0), at + in_gap.at, in_gap.count, smem.block + threadIdx.x);
    }
    if (kCentered && a.means && own.count > 0 && Ends{x.first, g.last}.has(t + behind()))
      *reinterpret_cast<Vector*>(shared + slot(smem.means, 0)) =
          read_unaligned(staging_slot(means_staging(), 0, smem.block, thread), smem.block, from.means + at, own.count);
  }

  __device__ __forceinline__ void clear_smem() const {
    for (uint32_t i = threadIdx.x; i < smem.bytes / 16; i += blockDim.x) reinterpret_cast<uint4*>(shared)[i] = {};
  }
};

}  // namespace minidnn
