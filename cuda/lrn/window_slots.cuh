// SPDX-License-Identifier: Apache-2.0
// The vectors that a thread of a window kernel (sliding_window.cuh) has, and their places in shared memory. A line is
// the buffer of one row, and has a slot (the memory of one vector) for each thread. The lines of x form a ring buffer,
// in which a new row replaces the oldest row, and so do the lines of the means.
#pragma once
#include "cpp/lrn/lrn_math.h"
#include "cuda/device/ptx/cvta.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/lrn/sliding_window_params.h"

namespace minidnn {

// The location of a vector: its offset in the tensor (`at`), its position in the row (`column`), the number of its
// elements that are inside the row (`count`), and its index in a line of shared memory (`slot`).
struct VecCoord {
  int64_t at = 0;
  int32_t column = 0, count = 0;
  uint32_t slot = 0;
};

// Byte offsets in shared memory from a vector to the vectors up to kReach positions before or after it. The asm barrier
// keeps them in registers, so that the compiler does not multiply at each use.
template <int kReach> struct Positions {
  int32_t bytes[2 * kReach];
  __device__ __forceinline__ void set(int32_t position) {
#pragma unroll
    for (int i = 0; i < 2 * kReach; ++i) {
      bytes[i] = (i < kReach ? i - kReach : i - kReach + 1) * position;
      asm volatile("" : "+r"(bytes[i]));
    }
  }
  template <class E> __device__ __forceinline__ const E* from(const E* at, int o) const {
    if (!o) return at;
    return reinterpret_cast<const E*>(reinterpret_cast<const char*>(at) + bytes[o < 0 ? o + kReach : o + kReach - 1]);
  }
};
template <> struct Positions<0> {
  __device__ __forceinline__ void set(int32_t) {}
  template <class E> __device__ __forceinline__ const E* from(const E* at, int) const { return at; }
};

template <class T, int kVec, Axis kAxis, bool kWhole, bool kCentered, int kSize, bool kBackward> struct WindowSlots {
  static constexpr int kMost = kSize ? kSize : 2 * kMaxReach + 1;  // the maximum number of rows in a window
  static constexpr int kSide = kAxis == Axis::none ? 0 : kSize ? kSize / 2 : kMaxReach;
  static constexpr int kStages = kRowsAhead + 1, kBytes = kVec * int(sizeof(T));
  // A count is how many elements of a row are in a window. All elements of a vector have the same count, unless windows
  // extend over adjacent elements.
  static constexpr int kCounts = kAxis == Axis::contiguous ? kVec : 1;
  // Whether the first lane of a warp has the same vector as the last lane of the preceding warp. An unaligned store
  // combines the vectors of two lanes of a warp.
  static constexpr bool kOverlaps = kAxis == Axis::none && !kWhole;
  using Vector = Vec<T, kVec>;
  using Far = Positions<kAxis == Axis::strided ? kSide : 0>;

  const SlidingWindowParams& r;
  const SmemLayout& smem;
  unsigned char* const shared;
  const uint32_t begin;  // the address of `shared` in the shared state space, for cp.async
  // `own` is this thread's vector in the row that is loaded next. in_gap is a second vector that this thread loads,
  // next to the group's tile of a row. in_gap.at is relative to own.at.
  VecCoord own, in_gap;
  uint32_t thread;  // the index of the thread in the block, or 0 for threads that have no vector
  uint32_t writes;
  // Whether this thread's vector follows the preceding lane's vector in memory (`linked`), and whether the next lane's
  // vector follows this one (`leads`). Only vectors that are written count.
  bool linked, leads;
  int32_t top, bottom;  // The block writes the rows top <= row < bottom.
  // Byte offsets in shared memory to the vectors at other positions: in buffers of x and the means, and in buffers of g
  // (lrn_math.h).
  Far x_far, g_far;
  // `here` is the byte offset of the thread's vector in the current row. `stage` counts the iterations.
  uint32_t here = 0, stage = 0;

  __device__ __forceinline__ int behind() const { return kSize ? (kSize - 1) / 2 : r.behind; }
  __device__ __forceinline__ int ahead() const { return kSize ? kSize / 2 : r.ahead; }
  __device__ __forceinline__ int rows() const { return kSize ? kSize : r.behind + r.ahead + 1; }

  __device__ __forceinline__ WindowSlots(const SlidingWindowParams& r, const SmemLayout& smem, unsigned char* shared)
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
      s.column = (first + index) * (kAxis == Axis::strided ? 1 : kVec);
      s.slot = slot;
      const int32_t within = kAxis == Axis::strided ? int32_t((uint32_t(slice) * r.slice + channel) * kVec) : s.column;
      const int64_t left = (kAxis == Axis::strided ? r.step : r.width) - within;
      const bool inside = active && in_slice && s.column >= 0 && s.column < r.width && left > 0;
      s.count = inside ? int32_t(min_of(left, int64_t(kVec))) : 0;
      s.at = int64_t(image) * r.height * r.row + (kAxis == Axis::strided ? s.column * r.step + within : within);
      return s;
    };
    const uint32_t index = r.by_slice.quotient(of_group);
    own = coord_of(int32_t(index), of_group - index * r.slice, smem.gap + group * (r.threads + smem.gap) + of_group);
    writes = own.count > 0 && index >= r.halo && index < r.halo + r.own && !(kOverlaps && threadIdx.x % 32 == 0);
    if (kAxis != Axis::none && r.tiled && threadIdx.x < 2 * smem.gap) {
      const bool before = threadIdx.x < smem.gap;
      const uint32_t i = threadIdx.x - (before ? 0 : smem.gap), far = r.by_slice.quotient(i);
      const int32_t reach = int32_t(r.by_slice.quotient(smem.gap)), past = int32_t(r.by_slice.quotient(r.threads));
      in_gap =
          coord_of(int32_t(far) + (before ? -reach : past), i - far * r.slice, before ? i : smem.gap + r.threads + i);
      in_gap.at -= own.at;
    }
    // Without these asm barriers, the compiler would compute these members, and their divisions, again at each use.
    asm volatile("" : "+l"(own.at), "+r"(own.slot), "+r"(own.column), "+r"(own.count), "+r"(writes), "+r"(thread));
    if (kAxis != Axis::none) asm volatile("" : "+l"(in_gap.at), "+r"(in_gap.slot), "+r"(in_gap.count));
    here = own.slot * kBytes;
    x_far.set(int32_t(r.slice) * kBytes);
    g_far.set(int32_t(r.slice) * 16);
    if constexpr (kOverlaps) {
      linked = own.column > 0;
      leads = own.column + kVec < r.width;
    } else if constexpr (!kWhole) {
      const int64_t lane_before = shuffle_up(writes && own.count == kVec ? own.at : -1, 1);
      linked = threadIdx.x % 32 && writes && lane_before >= 0 && lane_before + kVec == own.at;
      leads = shuffle_down(int(linked), 1) && threadIdx.x % 32 != 31;
    }
  }

  // Returns the byte offset `lines` rows after offset `at` in a ring buffer (before `at` if `lines` is negative).
  // Wrapped below 0, an unsigned offset is large, so min_of() selects the offset inside the ring buffer.
  static __device__ __forceinline__ uint32_t ring_offset(uint32_t at, int lines, uint32_t line, uint32_t ring) {
    at += uint32_t(lines) * line;
    return lines > 0 ? min_of(at, at - ring) : lines < 0 ? min_of(at, at + ring) : at;
  }
  // Returns the byte offset of the thread's vector in the row `back` rows before the current one. `first` is the offset
  // of the ring buffer.
  __device__ __forceinline__ uint32_t slot(uint32_t first, int back) const {
    return first + ring_offset(here, -back, smem.line, smem.ring);
  }
  __device__ __forceinline__ T* slot_of(uint32_t first, int back) const {
    return reinterpret_cast<T*>(shared + slot(first, back));
  }
  // Returns the byte offset of the thread's second vector (in_gap) in the ring buffer of x.
  __device__ __forceinline__ uint32_t gap_slot(int back) const {
    return slot(0, back) + (in_gap.slot - own.slot) * kBytes;
  }
  static __device__ __forceinline__ uint32_t shift_of(const T* p) {
    return uint32_t(reinterpret_cast<uint64_t>(p) / sizeof(T)) % kVec;
  }
  // Returns the byte offset of staging slot i of n, where a slot is the memory of one vector, for the iteration `later`
  // iterations after this one. If rows are unaligned, each vector takes two slots, n slots apart.
  __device__ __forceinline__ uint32_t staging_slot(uint32_t first, int later, uint32_t n, uint32_t i) const {
    return first + ((stage + uint32_t(later)) % kStages * n * (kWhole ? 1 : 2) + i) * kBytes;
  }
};

}  // namespace minidnn
