// SPDX-License-Identifier: Apache-2.0
// What the blocks of a group exchange in each step of a recurrent layer (persistent.cu): rows of k elements, of which each
// block has some columns and needs all.
//
// Through the L2, what is published needs no flag. A word that is not there yet has a pattern that no published word has,
// so a reader loads the words again until all are there. Step s is in slot s % kSlots of the buffer. A block that publishes
// step s has read step s - 1 of all blocks, and these had read step s - 2 before. So it clears what it published in step
// s - 2. Every second step has a fence, so a cleared word is seen by all before anybody reads the slot for a later step:
//   step s - 2 is cleared when s is published; a fence follows before s + 2 is published; another block reads s + 2, and
//   has a fence before it reads s + 4; it reads step s + 6 from the slot.
#pragma once
#include "cuda/device/fragment.cuh"
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/ptx/mbarrier.cuh"
#include "cuda/device/ptx/relaxed.cuh"
#include "cuda/rnn/persistent_params.h"

namespace minidnn {

constexpr int kRnnThreads = 256;

// What threads publish: words of two elements of 16 bits, or of one of float32, rounded to TF32.
template <class T> struct RnnWords {
  static constexpr int kLanes = sizeof(T) == 2 ? 2 : 1;  // neighbouring lanes that have the same word
  static constexpr uint32_t kAbsent = 0xffffffff;  // a word that is not published yet: NaNs that of() does not return

  // The word of this lane's value. All lanes of a warp call this function.
  static __device__ __forceinline__ uint32_t of(float x) {
    if constexpr (sizeof(T) == 4) {
      const uint32_t word = cvt_rna_tf32(x);
      return word == kAbsent ? 0x7fffffff : word;
    } else {
      const float other = __shfl_xor_sync(0xffffffff, x, 1);
      return threadIdx.x % 2 ? cvt_rn_x2(T(), other, x) : cvt_rn_x2(T(), x, other);
    }
  }
};

// An exchange through the L2, for blocks that all run at the same time. Threads read pieces of 16 bytes, of rows of
// at most kRowBytes. kTiles tiles of 8 rows are in shared memory at a time.
template <class T, int kRowBytes, int kTiles> struct RnnL2Exchange {
  static constexpr int kAll = (kTiles * kRowBytes / 2 + kRnnThreads - 1) / kRnnThreads;  // the pieces of a thread
  static constexpr int kAtOnce = kAll < 8 ? kAll : 8;                                    // those that it loads at once
  static constexpr int kSlots = RnnPersistentShape::kSlots;
  static constexpr int kLanes = RnnWords<T>::kLanes;
  static constexpr uint32_t kAbsent = RnnWords<T>::kAbsent;
  char* buffer;  // of the first row of the group
  int64_t slot_bytes;
  int32_t row_bytes;  // of a published row
  int32_t rows;       // of the group that exist
  // From one piece to the next, a thread's piece in the row advances by piece_step, and its address in shared memory by
  // offset_step, or beyond the end of the row by offset_of_row more.
  int32_t pieces, first_piece, piece_step;
  uint32_t first_offset, offset_step, offset_of_row;
  uint4 v[kAtOnce];

  __device__ __forceinline__ RnnL2Exchange(const RnnPersistentParams& p, const RnnPersistentArgs& a, int32_t direction,
                                           int32_t first_row) {
    row_bytes = p.shape.k * sizeof(T);
    buffer = static_cast<char*>(a.exchanged) + (int64_t(direction) * p.batch + first_row) * row_bytes;
    slot_bytes = int64_t(p.shape.directions) * p.batch * row_bytes;
    rows = min(p.shape.rows, p.batch - first_row);
    const uint32_t pitch = p.shape.operand_pitch();
    pieces = row_bytes / 16;
    first_piece = int32_t(threadIdx.x) % pieces;
    piece_step = kRnnThreads % pieces;
    first_offset = int32_t(threadIdx.x) / pieces * pitch + first_piece * 16;
    offset_step = kRnnThreads / pieces * pitch + piece_step * 16;
    offset_of_row = pitch - pieces * 16;
  }
  __device__ __forceinline__ void start() {}
  __device__ __forceinline__ char* slot(int32_t s) const { return buffer + s % kSlots * slot_bytes; }
  // Publishes two words of a row: from element k on, a multiple of the elements of two words.
  __device__ __forceinline__ void store(int32_t s, int32_t row, int32_t k, uint32_t first, uint32_t second) const {
    const int32_t at = row * row_bytes + k * int32_t(sizeof(T));
    st_relaxed_gpu_v2(slot(s) + at, first, second);
    st_relaxed_gpu_v2(slot(s + kSlots - 2) + at, kAbsent, kAbsent);
  }
  // Publishes the words of all lanes, for element k of a row in step s. All lanes of a warp call this function.
  __device__ __forceinline__ void publish(int32_t s, bool exists, int32_t row, int32_t k, uint32_t word) const {
    const uint32_t second = __shfl_xor_sync(0xffffffff, word, kLanes);
    if (exists && threadIdx.x % (2 * kLanes) == 0) store(s, row, k, word, second);
  }
  // Publishes a word of each of `parts` parts of a row, which are `distance` elements apart. The lanes of two words share
  // the parts: lane l stores part l, and if there are two lanes, part l + 2.
  __device__ __forceinline__ void publish_parts(int32_t s, bool exists, int32_t row, int32_t k, int32_t distance,
                                                int32_t parts, const uint32_t (&words)[4]) const {
    const int32_t lane = int32_t(threadIdx.x) % (2 * kLanes);
    const bool second = lane >= kLanes;
#pragma unroll
    for (int i = 0; i < 4; i += 2 * kLanes) {
      // This lane stores part i + lane of the first word and of the second one.
      uint32_t mine = words[i], theirs = words[i + kLanes];
#pragma unroll
      for (int j = 1; j < 2 * kLanes; ++j) {
        if (lane == j) mine = words[i + j];
        if (lane == j) theirs = words[i + (j + kLanes) % (2 * kLanes)];
      }
      const uint32_t received = __shfl_xor_sync(0xffffffff, theirs, kLanes);
      if (exists && i + lane < parts)
        store(s, row, (i + lane) * distance + k - lane, second ? received : mine, second ? mine : received);
    }
  }
  __device__ __forceinline__ bool is_absent(const uint4& x) const {
    return x.x == kAbsent || x.y == kAbsent || x.z == kAbsent || x.w == kAbsent;
  }
  // Loads the pieces from `first_of_all` on that have not arrived.
  __device__ __forceinline__ void load(int32_t s, int32_t first, int first_of_all) {
    const char* const from = slot(s) + first * row_bytes + (int32_t(threadIdx.x) + first_of_all * kRnnThreads) * 16;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (is_absent(v[j])) v[j] = ld_relaxed_gpu_v4(from + j * kRnnThreads * 16);
  }
  __device__ __forceinline__ bool any_is_absent() const {
    bool any = false;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) any |= is_absent(v[j]);
    return any;
  }
  // Begins to read rows `first` to `first` + count - 1 of step s, from a piece of the thread on.
  __device__ __forceinline__ void begin(int32_t s, int32_t first, int32_t count, int first_of_all = 0) {
    const int32_t left = left_of(first, count) - first_of_all * kRnnThreads;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const uint32_t word = j * kRnnThreads < left ? kAbsent : 0;
      v[j] = make_uint4(word, word, word, word);
    }
    load(s, first, first_of_all);
  }
  // Copies these rows to shared memory, when they have been published.
  __device__ __forceinline__ void end(int32_t s, int32_t first, int32_t count) {
    const int32_t left = left_of(first, count);
    char* to = dynamic_shared() + first_offset;
    int32_t piece = first_piece;
#pragma unroll
    for (int begun = 0; begun < kAll; begun += kAtOnce) {
      if (begun > 0) begin(s, first, count, begun);
      while (any_is_absent()) load(s, first, begun);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if ((begun + j) * kRnnThreads < left) *reinterpret_cast<uint4*>(to) = v[j];
        to += offset_step;
        piece += piece_step;
        if (piece >= pieces) {
          piece -= pieces;
          to += offset_of_row;
        }
      }
    }
  }
  // The pieces of these rows that exist, from the first one of this thread on.
  __device__ __forceinline__ int32_t left_of(int32_t first, int32_t count) const {
    return min(count, rows - first) * pieces - int32_t(threadIdx.x);
  }
  // Calls multiply(operand, row) for all rows of step s.
  template <class Multiply> __device__ __forceinline__ void each(int32_t s, Multiply multiply) {
    constexpr int32_t kRows = 8 * kTiles;
    begin(s, 0, kRows);
#pragma unroll 1
    for (int32_t row = 0; row < rows; row += kRows) {
      end(s, row, kRows);
      __syncthreads();
      if (row + kRows < rows) begin(s, row + kRows, kRows);
      multiply(cvta_to_shared(dynamic_shared()), row);
      if (row + kRows < rows) __syncthreads();
    }
  }
  __device__ __forceinline__ void end_step(int32_t s) const {
    if (s % 2) fence_acq_rel_gpu();
  }
  __device__ __forceinline__ void finish() const {}
};

// An exchange in a cluster: each block stores what it publishes in the shared memory of all. An mbarrier counts the bytes.
// Steps alternate between two buffers. A block that publishes step s + 1 has received step s of all blocks, and these had read step s - 1.
template <class T> struct RnnClusterExchange {
  static constexpr int kLanes = 4 * RnnWords<T>::kLanes;  // the lanes whose words are stored together
  uint32_t operand, operand_bytes, barrier;
  uint32_t pitch;       // of rows, in bytes
  uint32_t step_bytes;  // of all rows that exist
  int32_t slices;
  uint32_t peers[16 / kLanes];  // the distance to the memory of every kLanes'th block, from that of this lane on

  __device__ __forceinline__ RnnClusterExchange(const RnnPersistentParams& p, const RnnPersistentArgs&, int32_t,
                                                int32_t first_row) {
    __shared__ alignas(8) uint64_t barriers[2];
    operand = cvta_to_shared(dynamic_shared());
    operand_bytes = p.shape.chunk * p.shape.operand_pitch();
    barrier = cvta_to_shared(barriers);
    pitch = p.shape.operand_pitch();
    step_bytes = min(p.shape.rows, p.batch - first_row) * p.shape.k * sizeof(T);
    slices = p.shape.slices;
#pragma unroll
    for (int i = 0; i < 16 / kLanes; ++i) {
      const int32_t block = int32_t(threadIdx.x) % kLanes + kLanes * i;
      peers[i] = mapa(operand, block < slices ? block : 0) - operand;
    }
  }
  // Shared memory may be written by other blocks after this.
  __device__ __forceinline__ void start() const {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) mbarrier_init(barrier + 8 * i, 1);
      fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0)
#pragma unroll
      for (int i = 0; i < 2; ++i) mbarrier_arrive_expect_tx(barrier + 8 * i, step_bytes);
    cluster_sync();
  }
  // As RnnL2Exchange::publish().
  __device__ __forceinline__ void publish(int32_t s, bool exists, int32_t row, int32_t k, uint32_t word) const {
    constexpr int kSame = RnnWords<T>::kLanes;
    const int32_t lane = int32_t(threadIdx.x) % kLanes, first = int32_t(threadIdx.x) % 32 - lane;
    uint4 words;
    words.x = __shfl_sync(0xffffffff, word, first);
    words.y = __shfl_sync(0xffffffff, word, first + kSame);
    words.z = __shfl_sync(0xffffffff, word, first + 2 * kSame);
    words.w = __shfl_sync(0xffffffff, word, first + 3 * kSame);
    if (!exists) return;
    const uint32_t to = operand + s % 2 * operand_bytes + row * pitch + (k - lane) * sizeof(T),
                   at = barrier + s % 2 * 8;
#pragma unroll
    for (int i = 0; i < 16 / kLanes; ++i)
      if (lane + kLanes * i < slices) st_async_cluster(to + peers[i], at + peers[i], words);
  }
  __device__ __forceinline__ void publish_parts(int32_t s, bool exists, int32_t row, int32_t k, int32_t distance,
                                                int32_t parts, const uint32_t (&words)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < parts) publish(s, exists, row, i * distance + k, words[i]);
  }
  template <class Multiply> __device__ __forceinline__ void each(int32_t s, Multiply multiply) const {
    mbarrier_wait_parity(barrier + s % 2 * 8, s / 2 % 2);
    __syncthreads();  // all threads have read the sums of the step before
    if (threadIdx.x == 0) mbarrier_arrive_expect_tx(barrier + s % 2 * 8, step_bytes);
    multiply(operand + s % 2 * operand_bytes, 0);
  }
  __device__ __forceinline__ void end_step(int32_t) const {}
  // No block may end while others could still store into it.
  __device__ __forceinline__ void finish() const { cluster_sync(); }
};
template <class T, bool kCluster, int kRowBytes, int kTiles> struct RnnExchangeOf {
  using type = RnnL2Exchange<T, kRowBytes, kTiles>;
};
template <class T, int kRowBytes, int kTiles> struct RnnExchangeOf<T, true, kRowBytes, kTiles> {
  using type = RnnClusterExchange<T>;
};

}  // namespace minidnn
