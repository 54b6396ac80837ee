// SPDX-License-Identifier: Apache-2.0
// A layer of a recurrent network in one launch, for 16-bit types. All blocks run at the same time. Each block keeps its
// part of w_hh in registers for all steps (RnnPersistentShape).
// - rnn_persistent_forward: the states of all steps, from the input's part of the gates.
// - rnn_persistent_backward: the gradients of the gates of all steps, from dy.
//
// A step of a block: it reads what all slices of its group have published in the previous step (states or, in backward,
// gradients of gates) into shared memory, and multiplies it by its weights with mma.sync. Warps that share a tile of the
// product add different parts of k, so their sums go through shared memory. There each thread finds the sums of its
// units, computes the gates, and publishes the result.
//
// A published word of 8 bytes has two values and the number of the step, so a reader needs no other flag: it loads the
// words again until all have the number that it waits for. Words alternate between two buffers. That is enough: a slice
// publishes step s + 1 after it has read step s of all slices, and they had read step s - 1 before they published s.
// Bytes of a step: each block reads rows x k values, with 4 bytes for each of them, from the L2.
#include "cpp/rnn/rnn_math.h"
#include "cuda/device/fast_activation.cuh"
#include "cuda/device/fragment.cuh"
#include "cuda/device/ptx/relaxed.cuh"
#include "cuda/rnn/persistent_params.h"

namespace minidnn {

constexpr int kRnnThreads = 256;

// The block's part of the product of a step. a are rows of weights, b are published rows. A warp has kPairs pairs of steps
// of 16 along k. kTiles is the number of tiles of 8 rows of b.
template <class T, int kPairs, int kParts, int kTiles> struct RecurrentProduct {
  static constexpr int kChains = kTiles == 1 ? 2 : 1;  // sums of a tile that do not wait for each other
  uint32_t weights[2 * kPairs][4];
  int32_t tile, part;  // of this warp

  // Loads the weights through shared memory, 8 elements at a time. line(m, k) is the address of those of row m from k on
  // or, if kAlongM, line(k, m) of those of column k from m on. Null means zeros.
  template <bool kAlongM, class Line>
  __device__ __forceinline__ void load(const RnnPersistentShape& s, Line line) {
    constexpr int32_t kStaged = RnnPersistentShape::kStagedPairs;
    const int32_t lane = int32_t(threadIdx.x) % 32, lines_of_part = kAlongM ? 32 * kStaged : 16 * s.tiles();
    const int32_t pitch = kAlongM ? s.staged_pitch_along_m() : RnnPersistentShape::kStagedPitch;
    const int32_t chunks = kAlongM ? 2 * s.tiles() : 4 * kStaged, all = kParts * lines_of_part * chunks;
    const uint32_t memory = cvta_to_shared(dynamic_shared());
    tile = int32_t(threadIdx.x) / 32 % s.tiles();
    part = int32_t(threadIdx.x) / 32 / s.tiles();
    const int32_t line_of_lane = kAlongM ? lane % 8 + lane / 16 * 8 : tile * 16 + lane % 16;
    const int32_t column_of_lane = kAlongM ? tile * 16 + lane / 8 % 2 * 8 : lane / 16 * 8;
    const uint32_t from = memory + ((part * lines_of_part + line_of_lane) * pitch + column_of_lane) * 2;
#pragma unroll
    for (int first = 0; first < kPairs; first += kStaged) {
#pragma unroll 4
      for (int32_t i = int32_t(threadIdx.x); i < all; i += kRnnThreads) {
        const int32_t l = i / chunks, column = i % chunks * 8, of_part = l / lines_of_part;
        const int32_t k = (of_part * kPairs + first) * 32 + (kAlongM ? l % lines_of_part : column);
        const T* const source = line(kAlongM ? k : l % lines_of_part, kAlongM ? column : k);
        cp_async<16>(memory + (l * pitch + column) * 2, source ? source : line(0, 0), source ? 1 : 0);
      }
      cp_async_commit_group();
      cp_async_wait_group<0>();
      __syncthreads();
      if (part < kParts)
#pragma unroll
        for (int i = 0; i < 2 * kStaged; ++i) {
          if constexpr (kAlongM) ldmatrix_x4_trans(weights[2 * first + i], from + i * 16 * pitch * 2);
          else ldmatrix_x4(weights[2 * first + i], from + i * 32);
        }
      __syncthreads();
    }
  }

  // Stores the sums of this warp for rows `row` to `row` + 8 kTiles - 1 of the group.
  __device__ __forceinline__ void run(const RnnPersistentShape& s, uint32_t operand, float* sums, int32_t row) const {
    if (part >= kParts) return;
    const int32_t lane = int32_t(threadIdx.x) % 32;
    float d[kChains][kTiles][4] = {};
    const uint32_t from = operand + (lane % 8 * s.operand_pitch() + part * kPairs * 32 + lane / 8 * 8) * 2;
    const uint32_t tile_bytes = 16 * s.operand_pitch();
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        uint32_t b[4];
        ldmatrix_x4(b, from + n * tile_bytes + i * 64);
        mma_sync<T>(d[2 * i % kChains][n], weights[2 * i], b[0], b[1]);
        mma_sync<T>(d[(2 * i + 1) % kChains][n], weights[2 * i + 1], b[2], b[3]);
      }
    float* const to = sums + ((part * s.tiles() + tile) * 16 + lane / 4) * s.sum_pitch() + row + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float all = d[0][n][e];
#pragma unroll
        for (int chain = 1; chain < kChains; ++chain) all += d[chain][n][e];
        to[e / 2 * 8 * s.sum_pitch() + n * 8 + e % 2] = all;
      }
  }
};

// What a block exchanges with the other slices of its group. kAtOnce is the number of loads of a thread in flight.
template <int kAtOnce> struct RnnExchange {
  uint64_t* buffer;      // of the first row of the group
  int64_t buffer_words;  // of all groups
  int32_t words;         // of a row
  int32_t rows;          // of the group that exist
  // Threads read chunks of two words. From one to the next, a thread's chunk in the row advances by chunk_step, and its
  // address in shared memory by offset_step, or beyond the end of the row by offset_of_row more.
  int32_t chunks, first_chunk, chunk_step;
  uint32_t first_offset, offset_step, offset_of_row;  // in shared memory

  __device__ __forceinline__ RnnExchange(const RnnPersistentParams& p, const RnnPersistentArgs& a, int32_t direction,
                                         int32_t first_row) {
    words = p.shape.k / 2;
    buffer = static_cast<uint64_t*>(a.exchanged) + (int64_t(direction) * p.batch + first_row) * words;
    buffer_words = int64_t(p.shape.directions) * p.batch * words;
    rows = min(p.shape.rows, p.batch - first_row);
    chunks = words / 2;
    const uint32_t pitch = p.shape.operand_pitch() * 2;
    first_chunk = int32_t(threadIdx.x) % chunks;
    chunk_step = kRnnThreads % chunks;
    first_offset = int32_t(threadIdx.x) / chunks * pitch + first_chunk * 8;
    offset_step = kRnnThreads / chunks * pitch + chunk_step * 8;
    offset_of_row = pitch - chunks * 8;
  }
  // Publishes two pairs of values of step s: elements k to k + 3 of a row, where k is a multiple of 4.
  __device__ __forceinline__ void publish(int32_t s, int32_t row, int32_t k, uint32_t first, uint32_t second) const {
    const uint64_t number = uint64_t(s + 1) << 32;
    uint64_t* const to = (s % 2 ? buffer + buffer_words : buffer) + row * words + k / 2;
    st_relaxed_gpu_v2(to, first | number, second | number);
  }
  // Copies rows `first` to `first` + count - 1 of step s to shared memory, when they have been published.
  __device__ __forceinline__ void read(int32_t s, int32_t first, int32_t count) const {
    const uint64_t* from = (s % 2 ? buffer + buffer_words : buffer) + first * words + 2 * int32_t(threadIdx.x);
    int32_t left = min(count, rows - first) * chunks - int32_t(threadIdx.x), chunk = first_chunk;
    char* to = dynamic_shared() + first_offset;
#pragma unroll 1
    for (; left > 0; left -= kAtOnce * kRnnThreads, from += 2 * kAtOnce * kRnnThreads) {
      uint64_t v[kAtOnce][2];
      bool arrived;
      do {
        arrived = true;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          if (j * kRnnThreads < left) ld_relaxed_gpu_v2(from + 2 * j * kRnnThreads, v[j][0], v[j][1]);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          if (j * kRnnThreads < left) arrived &= int32_t(v[j][0] >> 32) == s + 1 && int32_t(v[j][1] >> 32) == s + 1;
      } while (!arrived);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (j * kRnnThreads < left) *reinterpret_cast<uint2*>(to) = {uint32_t(v[j][0]), uint32_t(v[j][1])};
        to += offset_step;
        chunk += chunk_step;
        if (chunk >= chunks) {
          chunk -= chunks;
          to += offset_of_row;
        }
      }
    }
    __syncthreads();
  }
};
// Two values as a word, from this lane and its neighbour. Both lanes get the same word.
template <class T> __device__ __forceinline__ uint32_t pair_of_lanes(float x) {
  const float other = __shfl_xor_sync(0xffffffff, x, 1);
  return threadIdx.x % 2 ? cvt_rn_x2(T(), other, x) : cvt_rn_x2(T(), x, other);
}

// The work of a thread: some rows of the batch for one unit. kRows rows are spaced row_step apart, and some of them may
// not exist.
template <int kRows> struct RnnThread {
  int32_t direction;
  int32_t units;                  // of the block
  int32_t first_unit, first_row;  // of the block
  int32_t unit, row, row_step;    // of the thread, in the block
  int32_t lengths[kRows];         // the number of steps of each row; -1: the row does not exist

  __device__ __forceinline__ RnnThread(const RnnPersistentParams& p, const RnnPersistentArgs& a) {
    const int32_t b = int32_t(blockIdx.x), group = b / p.shape.slices;
    direction = group / p.shape.groups;
    first_row = (group - direction * p.shape.groups) * p.shape.rows;
    first_unit = (b - group * p.shape.slices) * p.shape.units;
    units = min(p.shape.units, p.hidden - first_unit);
    unit = int32_t(threadIdx.x) % p.shape.units;
    row = int32_t(threadIdx.x) / p.shape.units;
    row_step = kRnnThreads / p.shape.units;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool exists = row_of(i) < p.shape.rows && n(i) < p.batch && unit < units;
      lengths[i] = exists ? int32_t(a.lengths[n(i)]) : -1;
    }
  }
  __device__ __forceinline__ bool exists(int i) const { return lengths[i] >= 0; }
  __device__ __forceinline__ int32_t row_of(int i) const { return row + i * row_step; }  // in the block
  __device__ __forceinline__ int32_t n(int i) const { return first_row + row_of(i); }    // in the batch
  __device__ __forceinline__ int32_t u() const { return first_unit + unit; }             // in the layer
  // The time of step s: the backward direction begins at the end of the sequence.
  __device__ __forceinline__ int32_t time(int i, int32_t s) const {
    return direction && s < lengths[i] ? lengths[i] - 1 - s : s;
  }
  // The row of time t.
  __device__ __forceinline__ int32_t row_at(const RnnPersistentParams& p, const RnnPersistentArgs& a, int i,
                                            int32_t t) const {
    return (a.offsets ? int32_t(a.offsets[t]) : t * p.batch) + n(i);
  }
  // The row of time t in the input's part of the gates.
  __device__ __forceinline__ int32_t input_row_at(const RnnPersistentArgs& a, int i, int32_t t) const {
    return a.offsets ? int32_t(a.offsets[t]) + n(i) : t * a.input_step + n(i) * a.input_row;
  }
  // The offset of row (t, n) of y or dy, which have strides `step` and `row`.
  __device__ __forceinline__ int64_t y_at(const RnnPersistentArgs& a, int i, int32_t t, int32_t step,
                                          int32_t row) const {
    return a.offsets ? wide(int32_t(a.offsets[t]) + n(i), row) : wide(t, step) + wide(n(i), row);
  }
  static __device__ __forceinline__ int64_t wide(int32_t a, int32_t b) { return int64_t(a) * b; }
  // Where the element of this thread is in a row of y, or of `parts` parts of gates of all units, after `rows` rows.
  template <class T>
  __device__ __forceinline__ T* element(T* data, const RnnPersistentParams& p, int32_t parts, int64_t rows) const {
    return data ? data + rows * parts * p.hidden + u() : nullptr;
  }
  __device__ __forceinline__ int64_t state(const RnnPersistentParams& p, int i) const {
    return (int64_t(direction) * p.batch + n(i)) * p.hidden + u();
  }
};

// The formulas of rnn_math.h in a few instructions, for results that are rounded to 16 bits.
namespace rnn_fast {

__device__ __forceinline__ float sigmoid(float x) {
  return fast::sigmoid_of_log2<Formula::fast_ftz>(-fast::kLog2E * x);
}
// A unit at a step: `gates` become those of the reserve, and c and h the next states. x and of_h are the parts of the sums
// by the input and by h.
__device__ __forceinline__ void forward(RnnMode mode, const RnnPersistentParams& p, const float (&x)[4],
                                        const float (&of_h)[4], float bias_n, float (&gates)[4], float& c, float& h) {
  if (mode == RnnMode::lstm) {
    gates[0] = sigmoid(x[0] + of_h[0]);
    gates[1] = sigmoid(x[1] + of_h[1]);
    gates[2] = fast::tanh(x[2] + of_h[2]);
    gates[3] = sigmoid(x[3] + of_h[3]);
    c = gates[1] * c + gates[0] * gates[2];
    if (p.has_clip) c = rnn::clipped(c, p.clip);
    h = gates[3] * fast::tanh(c);
  } else if (mode == RnnMode::gru) {
    gates[0] = sigmoid(x[0] + of_h[0]);
    gates[1] = sigmoid(x[1] + of_h[1]);
    gates[3] = of_h[2] + bias_n;
    gates[2] = fast::tanh(x[2] + gates[0] * gates[3]);
    h = (1 - gates[1]) * gates[2] + gates[1] * h;
  } else {
    const float z = x[0] + of_h[0];
    gates[0] = h = mode == RnnMode::tanh ? fast::tanh(z) : z < 0 ? 0 : z;
  }
}
// The gradients of the gates from those of h and c. dh and dc become the gradients of the states before the step, dh
// without the part by U. `cell` is c after the step, and `before` is c or, of a GRU, h before it.
__device__ __forceinline__ void backward(RnnMode mode, const RnnPersistentParams& p, const float (&gates)[4],
                                         float of_h, float cell, float before, float (&out)[4], float& dh, float& dc) {
  const auto one_minus_square = [](float x) { return (1 - x) * (1 + x); };
  if (mode == RnnMode::lstm) {
    const float tanh_c = fast::tanh(cell), i = gates[0], f = gates[1], g = gates[2], o = gates[3];
    float of_c = dc + of_h * o * one_minus_square(tanh_c);
    if (p.has_clip && ::fabsf(cell) >= p.clip) of_c = 0;
    out[0] = of_c * g * i * (1 - i);
    out[1] = of_c * before * f * (1 - f);
    out[2] = of_c * i * one_minus_square(g);
    out[3] = of_h * tanh_c * o * (1 - o);
    dc = of_c * f;
    dh = 0;
  } else if (mode == RnnMode::gru) {
    const float r = gates[0], z = gates[1], n = gates[2], q = gates[3];
    out[2] = of_h * (1 - z) * one_minus_square(n);
    out[0] = out[2] * q * r * (1 - r);
    out[1] = of_h * (before - n) * z * (1 - z);
    out[3] = out[2] * r;
    dh = of_h * z;
  } else {
    out[0] = mode == RnnMode::tanh ? of_h * one_minus_square(gates[0]) : gates[0] <= 0 ? 0.0f : of_h;
    dh = 0;
  }
}

}  // namespace rnn_fast

// The sums of the product of a step, in shared memory. Those of a thread begin at row m and at a row of the batch.
template <class T, int kPairs, int kParts, int kTiles> struct RnnSums {
  uint32_t operand;
  float* sums;
  const float* mine;
  int32_t pitch, part_step;

  __device__ __forceinline__ RnnSums(const RnnPersistentShape& s, int32_t m, int32_t row)
      : operand(cvta_to_shared(dynamic_shared())),
        sums(reinterpret_cast<float*>(dynamic_shared() + s.operand_bytes())),
        mine(sums + m * s.sum_pitch() + row),
        pitch(s.sum_pitch()),
        part_step(s.tiles() * 16 * pitch) {
    // Rows and columns that nobody publishes remain 0.
    for (int32_t i = int32_t(threadIdx.x); i < s.operand_bytes() / 4; i += kRnnThreads)
      reinterpret_cast<uint32_t*>(dynamic_shared())[i] = 0;
    __syncthreads();
  }
  // Multiplies what was published in step `step` by the weights.
  template <class Exchange>
  __device__ __forceinline__ void compute(const RnnPersistentShape& s,
                                          const RecurrentProduct<T, kPairs, kParts, kTiles>& product,
                                          const Exchange& exchange, int32_t step) const {
#pragma unroll 1
    for (int32_t row = 0; row < exchange.rows; row += 8 * kTiles) {
      exchange.read(step, row, 8 * kTiles);
      product.run(s, operand, sums, row);
      __syncthreads();
    }
  }
  // The sum of row m of the product and of a row of the batch, both counted from those of this thread.
  __device__ __forceinline__ float at(int32_t m, int32_t row) const {
    const float* const from = mine + m * pitch + row;
    float all = from[0];
#pragma unroll
    for (int part = 1; part < kParts; ++part) all += from[part * part_step];
    return all;
  }
};

// The biases of the gates of a thread's unit.
template <class T> struct RnnBias {
  float of[4], of_n = 0;  // of_n: the part of b_hh that r of a GRU multiplies

  template <class Thread>
  __device__ __forceinline__ RnnBias(const RnnPersistentParams& p, const RnnPersistentArgs& a, const Thread& me) {
    const void* const(&biases)[2] = a.biases[me.direction];
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      const bool exists = g < p.gates && me.unit < me.units && biases[0];
      const T of_x = exists ? static_cast<const T*>(biases[0])[g * p.hidden + me.u()] : T();
      const T of_h = exists ? static_cast<const T*>(biases[1])[g * p.hidden + me.u()] : T();
      const bool is_n = RnnMode(p.mode) == RnnMode::gru && g == 2;
      if (is_n) of_n = float(of_h);
      of[g] = float(of_x) + (is_n ? 0.0f : float(of_h));
    }
  }
};
// Publishes the gradients that h before the step sees: for a GRU dr, dz and r dn. Lane l of four publishes gate l of their
// units. All lanes of a warp call this function.
template <class T, class Thread, class Exchange>
__device__ __forceinline__ void publish_gates(const RnnPersistentParams& p, const Thread& me, const Exchange& exchange,
                                              int32_t step, int i, const float (&gates)[4]) {
  uint32_t words[4];
#pragma unroll
  for (int g = 0; g < 4; ++g)
    words[g] = pair_of_lanes<T>(RnnMode(p.mode) == RnnMode::gru && g == 2 ? gates[3] : gates[g]);
  const int lane = int(threadIdx.x) % 4;
  const uint32_t mine = lane == 0 ? words[0] : lane == 1 ? words[1] : lane == 2 ? words[2] : words[3];
  const uint32_t theirs = lane == 0 ? words[2] : lane == 1 ? words[3] : lane == 2 ? words[0] : words[1];
  const uint32_t received = __shfl_xor_sync(0xffffffff, theirs, 2);
  if (me.exists(i) && lane < p.gates)
    exchange.publish(step, me.row_of(i), lane * p.hidden + me.u() - lane, lane < 2 ? mine : received,
                     lane < 2 ? received : mine);
}

// kRows is the number of tiles of 8 rows of a group, and kTiles of those that are in shared memory at a time.
template <class T, int kPairs, int kParts, int kRows, int kTiles>
__global__ void __launch_bounds__(kRnnThreads, 1)
    rnn_persistent_forward(const __grid_constant__ RnnPersistentParams p, const __grid_constant__ RnnPersistentArgs a) {
  const RnnThread<kRows> me(p, a);
  const int32_t d = me.direction, hidden = p.hidden, units = p.shape.units;
  const T* const w = static_cast<const T*>(a.weights[d]);
  RecurrentProduct<T, kPairs, kParts, kTiles> product;
  product.template load<false>(p.shape, [&](int32_t m, int32_t k) {
    const int32_t gate = m / units, unit = m % units;
    const bool exists = gate < p.gates && unit < me.units && k < hidden;
    return exists ? w + (int64_t(gate) * hidden + me.first_unit + unit) * hidden + k : nullptr;
  });
  const RnnExchange<kRows == 1 ? 8 : 4> exchange(p, a, d, me.first_row);
  const RnnSums<T, kPairs, kParts, kTiles> sums(p.shape, me.unit, me.row);
  const auto mode = RnnMode(p.mode);

  const int32_t input_row = p.shape.directions * p.gates * hidden;
  const float* const input = me.element(a.input, p, p.gates, d);
  T* const y = me.element(static_cast<T*>(a.y), p, 1, d);
  T* const reserve = me.element(static_cast<T*>(a.gates), p, p.reserved, int64_t(d) * a.rows);
  float* const cells = me.element(a.cells, p, 1, int64_t(d) * a.rows);
  float c[kRows], h[kRows];
  const RnnBias<T> bias(p, a, me);
  // Publishes the states. All lanes of a warp call this function.
  const auto publish = [&](int32_t s) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t first = pair_of_lanes<T>(h[i]), second = __shfl_xor_sync(0xffffffff, first, 2);
      if (me.exists(i) && me.unit % 4 == 0) exchange.publish(s, me.row_of(i), me.u(), first, second);
    }
  };
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    c[i] = h[i] = 0;
    if (!me.exists(i)) continue;
    const int64_t state = me.state(p, i);
    if (a.h0) h[i] = float(static_cast<const T*>(a.h0)[state]);
    if (a.c0) c[i] = float(static_cast<const T*>(a.c0)[state]);
  }
  publish(0);

#pragma unroll 1
  for (int32_t s = 0; s < p.steps; ++s) {
    float x[kRows][4];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (s >= me.lengths[i]) continue;
      const float* const from = input + me.wide(me.input_row_at(a, i, me.time(i, s)), input_row);
#pragma unroll
      for (int g = 0; g < 4; ++g)
        if (g < p.gates) x[i][g] = from[g * hidden];
    }
    sums.compute(p.shape, product, exchange, s);
    float gates[kRows][4];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (s >= me.lengths[i]) continue;
      float of_h[4];
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        of_h[g] = g < p.gates ? sums.at(g * units, i * me.row_step) : 0.0f;
        x[i][g] += bias.of[g];
      }
      rnn_fast::forward(mode, p, x[i], of_h, bias.of_n, gates[i], c[i], h[i]);
      h[i] = float(T(h[i]));
    }
    publish(s + 1);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (!me.exists(i)) continue;
      const int32_t t = me.time(i, s);
      T* const y_of_row = y + me.y_at(a, i, t, a.y_step, a.y_row);
      if (s >= me.lengths[i]) {
        if (!a.offsets) *y_of_row = T();
        continue;
      }
      *y_of_row = T(h[i]);
      const int32_t row = me.row_at(p, a, i, t);
      if (reserve) {
        T* const to = reserve + me.wide(row, p.reserved * hidden);
#pragma unroll
        for (int g = 0; g < 4; ++g)
          if (g < p.reserved) to[g * hidden] = T(gates[i][g]);
      }
      if (cells) cells[me.wide(row, hidden)] = c[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (!me.exists(i)) continue;
    const int64_t state = me.state(p, i);
    static_cast<T*>(a.hn)[state] = T(h[i]);
    if (a.cn) static_cast<T*>(a.cn)[state] = T(c[i]);
  }
}

template <class T, int kPairs, int kParts, int kRows, int kTiles>
__global__ void __launch_bounds__(kRnnThreads, 1) rnn_persistent_backward(const __grid_constant__ RnnPersistentParams p,
                                                                          const __grid_constant__ RnnPersistentArgs a) {
  const RnnThread<kRows> me(p, a);
  const int32_t d = me.direction, hidden = p.hidden;
  const T* const w = static_cast<const T*>(a.weights[d]) + me.first_unit;
  RecurrentProduct<T, kPairs, kParts, kTiles> product;
  product.template load<true>(p.shape, [&](int32_t k, int32_t m) {
    return k < p.shape.k && m < me.units ? w + int64_t(k) * hidden + m : nullptr;
  });
  const RnnExchange<kRows == 1 ? 8 : 4> exchange(p, a, d, me.first_row);
  const RnnSums<T, kPairs, kParts, kTiles> sums(p.shape, me.unit, me.row);
  const auto mode = RnnMode(p.mode);

  const T* const dy = me.element(static_cast<const T*>(a.dy), p, 1, d);
  const float* const float_dy = me.element(static_cast<const float*>(a.dy), p, 1, d);
  const T* const y = me.element(static_cast<const T*>(a.y), p, 1, d);
  const T* const reserve = me.element(static_cast<const T*>(a.gates), p, p.reserved, int64_t(d) * a.rows);
  const float* const cells = me.element(a.cells, p, 1, int64_t(d) * a.rows);
  T* const dgates = me.element(static_cast<T*>(a.dgates), p, p.dgates, int64_t(d) * a.rows);
  // The gradients of the states, without the part of dh that comes from the product.
  float dh[kRows], dc[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    dh[i] = dc[i] = 0;
    if (!me.exists(i)) continue;
    const int64_t state = me.state(p, i);
    if (a.dhn) dh[i] = float(static_cast<const T*>(a.dhn)[state]);
    if (a.dcn) dc[i] = float(static_cast<const T*>(a.dcn)[state]);
  }

  // The last iteration computes dh0 alone.
#pragma unroll 1
  for (int32_t done = 0; done <= p.steps; ++done) {
    const int32_t s = p.steps - 1 - done;
    // Values of T are converted later, so that nothing waits for the loads here.
    T of_y[kRows], gates[kRows][4], h_before[kRows];
    float float_of_y[kRows], cell[kRows], before[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (s < 0 || s >= me.lengths[i]) continue;
      const int32_t t = me.time(i, s), t_before = s > 0 ? me.time(i, s - 1) : 0;
      const int32_t row = me.row_at(p, a, i, t);
      const int64_t y_at = me.y_at(a, i, t, a.dy_step, a.dy_row);
      if (a.dy_is_float) float_of_y[i] = float_dy[y_at];
      else of_y[i] = dy[y_at];
      const T* const from = reserve + me.wide(row, p.reserved * hidden);
#pragma unroll
      for (int g = 0; g < 4; ++g)
        if (g < p.reserved) gates[i][g] = from[g * hidden];
      before[i] = 0;
      h_before[i] = T();
      if (mode == RnnMode::lstm) {
        cell[i] = cells[me.wide(row, hidden)];
        if (s > 0) before[i] = cells[me.wide(me.row_at(p, a, i, t_before), hidden)];
        else if (a.c0) before[i] = float(static_cast<const T*>(a.c0)[me.state(p, i)]);
      } else if (mode == RnnMode::gru) {
        if (s > 0) h_before[i] = y[me.y_at(a, i, t_before, a.y_step, a.y_row)];
        else if (a.h0) h_before[i] = static_cast<const T*>(a.h0)[me.state(p, i)];
      }
    }
    if (done > 0) {
      sums.compute(p.shape, product, exchange, done - 1);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (me.exists(i)) dh[i] += sums.at(0, i * me.row_step);
    }
    if (s < 0) break;
    float of_gates[kRows][4];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float(&out)[4] = of_gates[i];
#pragma unroll
      for (int g = 0; g < 4; ++g) out[g] = 0;
      if (s < me.lengths[i]) {
        const float in[4] = {float(gates[i][0]), float(gates[i][1]), float(gates[i][2]), float(gates[i][3])};
        const float of_h = dh[i] + (a.dy_is_float ? float_of_y[i] : float(of_y[i]));
        const float state = mode == RnnMode::lstm ? before[i] : float(h_before[i]);
        rnn_fast::backward(mode, p, in, of_h, cell[i], state, out, dh[i], dc[i]);
      }
      publish_gates<T>(p, me, exchange, done, i, out);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (!me.exists(i) || (a.offsets && s >= me.lengths[i])) continue;
      T* const to = dgates + me.wide(me.row_at(p, a, i, me.time(i, s)), p.dgates * hidden);
#pragma unroll
      for (int g = 0; g < 4; ++g)
        if (g < p.dgates) to[g * hidden] = T(of_gates[i][g]);
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (!me.exists(i)) continue;
    const int64_t state = me.state(p, i);
    static_cast<T*>(a.dh0)[state] = T(dh[i]);
    if (a.dc0) static_cast<T*>(a.dc0)[state] = T(dc[i]);
  }
}

}  // namespace minidnn
