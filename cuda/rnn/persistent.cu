// SPDX-License-Identifier: Apache-2.0
// A layer of a recurrent network in one launch, for 16-bit types and for float32 with products of TF32. Each block keeps
// its part of w_hh in registers for all steps (RnnPersistentShape).
// - rnn_persistent_forward: the states of all steps, from the input's part of the gates.
// - rnn_persistent_backward: the gradients of the gates of all steps, from dy.
//
// A step of a block: it receives what all slices of its group have published in the previous step (states or, in backward,
// gradients of gates), through the L2 or in a cluster (exchange.cuh). It multiplies that by its weights with mma.sync. Warps
// that share a tile of the product add different parts of k, so their sums go through shared memory. There each thread
// finds the sums of its units, computes the gates, and publishes the result.
// Bytes of a step: each block receives rows x k elements.
#include "cpp/rnn/rnn_math.h"
#include "cuda/device/fast_activation.cuh"
#include "cuda/device/fragment.cuh"
#include "cuda/rnn/exchange.cuh"

namespace minidnn {

// The block's part of the product of a step. a are rows of weights, b are published rows. A warp has kMTiles tiles of 16
// rows of a, and kPairs pairs of steps of 32 bytes along k. kTiles is the number of tiles of 8 rows of b.
template <class T, int kMTiles, int kPairs, int kParts, int kTiles> struct RecurrentProduct {
  // The sums of a tile that do not wait for each other.
  static constexpr int kChains = kMTiles * kTiles >= 4 ? 1 : 4 / (kMTiles * kTiles);
  static constexpr int32_t kSize = sizeof(T), kLine = 16 / kSize, kStep = 32 / kSize;  // elements of 16 and of 32 bytes
  uint32_t weights[kMTiles][2 * kPairs][4];
  int32_t part;       // of this warp
  int32_t first_sum;  // of this warp: where its sums begin

  // Loads the weights through shared memory, 16 bytes at a time. line(m, k) is the address of those of row m from k on or,
  // if kAlongM, line(k, m) of those of column k from m on. Null means zeros.
  template <bool kAlongM, class Line>
  __device__ __forceinline__ void load(const RnnPersistentShape& s, Line line) {
    constexpr int32_t kStaged = 2 * RnnPersistentShape::kStagedPairs;  // steps
    const int32_t lane = int32_t(threadIdx.x) % 32, warp = int32_t(threadIdx.x) / 32;
    const int32_t warps = (s.m + 16 * kMTiles - 1) / (16 * kMTiles), tiles = warps * kMTiles;
    const int32_t tile = warp % warps * kMTiles, lines_of_part = kAlongM ? kStep * kStaged : 16 * tiles;
    const int32_t pitch = kAlongM ? s.staged_pitch_along_m() : RnnPersistentShape::kStagedPitch;
    const int32_t chunks = kAlongM ? 16 / kLine * tiles : 2 * kStaged, all = kParts * lines_of_part * chunks;
    const uint32_t memory = cvta_to_shared(dynamic_shared());
    part = warp / warps;
    first_sum = ((part * tiles + tile) * 16 + lane / 4) * s.sum_pitch() + lane % 4 * 2;
    const uint32_t staged = memory + part * lines_of_part * pitch;
#pragma unroll
    for (int first = 0; first < 2 * kPairs; first += kStaged) {
#pragma unroll 4
      for (int32_t i = int32_t(threadIdx.x); i < all; i += kRnnThreads) {
        const int32_t l = i / chunks, column = i % chunks * kLine, of_part = l / lines_of_part;
        const int32_t k = (of_part * 2 * kPairs + first) * kStep + (kAlongM ? l % lines_of_part : column);
        const T* const source = line(kAlongM ? k : l % lines_of_part, kAlongM ? column : k);
        cp_async<16>(memory + l * pitch + column * kSize, source ? source : line(0, 0), source ? 1 : 0);
      }
      cp_async_commit_group();
      cp_async_wait_group<0>();
      __syncthreads();
      if (part < kParts)
#pragma unroll
        for (int m = 0; m < kMTiles; ++m)
#pragma unroll
          for (int i = 0; i < kStaged; ++i) load_step<kAlongM>(weights[m][first + i], staged, pitch, tile + m, i);
      __syncthreads();
    }
  }
  // Loads the operand a of a step.
  template <bool kAlongM>
  static __device__ __forceinline__ void load_step(uint32_t (&w)[4], uint32_t staged, int32_t pitch, int32_t tile,
                                                   int32_t step) {
    const int32_t lane = int32_t(threadIdx.x) % 32;
    if constexpr (!kAlongM) {
      ldmatrix_x4(w, staged + (tile * 16 + lane % 16) * pitch + step * 32 + lane / 16 * 16);
    } else if constexpr (kSize == 2) {
      const int32_t k = step * 16 + lane % 8 + lane / 16 * 8, m = tile * 16 + lane / 8 % 2 * 8;
      ldmatrix_x4_trans(w, staged + k * pitch + m * 2);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        w[i] =
            ld_shared_b32(staged + (step * 8 + lane % 4 + i / 2 * 4) * pitch + (tile * 16 + lane / 4 + i % 2 * 8) * 4);
    }
    if constexpr (kSize == 4)
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = cvt_rna_tf32(__uint_as_float(w[i]));
  }

  // Stores the sums of this warp for rows `row` to `row` + 8 kTiles - 1 of the group.
  __device__ __forceinline__ void run(const RnnPersistentShape& s, uint32_t operand, float* sums, int32_t row) const {
    if (part >= kParts) return;
    const int32_t lane = int32_t(threadIdx.x) % 32;
    float d[kChains][kMTiles][kTiles][4] = {};
    const uint32_t from = operand + lane % 8 * s.operand_pitch() + part * kPairs * 64 + lane / 8 * 16;
    const uint32_t tile_bytes = 8 * s.operand_pitch();
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        uint32_t b[4];
        ldmatrix_x4(b, from + n * tile_bytes + i * 64);
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          mma_sync<T>(d[2 * i % kChains][m][n], weights[m][2 * i], b[0], b[1]);
          mma_sync<T>(d[(2 * i + 1) % kChains][m][n], weights[m][2 * i + 1], b[2], b[3]);
        }
      }
    const int32_t pitch = s.sum_pitch();
    float* const to = sums + first_sum + row;
#pragma unroll
    for (int m = 0; m < kMTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float all = d[0][m][n][e];
#pragma unroll
          for (int chain = 1; chain < kChains; ++chain) all += d[chain][m][n][e];
          to[(m * 16 + e / 2 * 8) * pitch + n * 8 + e % 2] = all;
        }
  }
};

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
template <class T, int kMTiles, int kPairs, int kParts, int kTiles> struct RnnSums {
  float* sums;
  const float* mine;
  int32_t pitch, part_step;

  __device__ __forceinline__ RnnSums(const RnnPersistentShape& s, int32_t m, int32_t row)
      : sums(reinterpret_cast<float*>(dynamic_shared() + s.operand_bytes())),
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
                                          const RecurrentProduct<T, kMTiles, kPairs, kParts, kTiles>& product,
                                          Exchange& exchange, int32_t step) const {
    exchange.each(step, [&](uint32_t operand, int32_t row) { product.run(s, operand, sums, row); });
    __syncthreads();
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
// Publishes the gradients that h before the step sees: for a GRU dr, dz and r dn. All lanes of a warp call this function.
template <class T, class Thread, class Exchange>
__device__ __forceinline__ void publish_gates(const RnnPersistentParams& p, const Thread& me, const Exchange& exchange,
                                              int32_t step, int i, const float (&gates)[4]) {
  uint32_t words[4];
#pragma unroll
  for (int g = 0; g < 4; ++g)
    words[g] = RnnWords<T>::of(RnnMode(p.mode) == RnnMode::gru && g == 2 ? gates[3] : gates[g]);
  exchange.publish_parts(step, me.exists(i), me.row_of(i), me.u(), p.hidden, p.gates, words);
}

// What the forward kernel reads and writes in global memory, for the units of a thread.
template <class T, int kRows> struct RnnForwardMemory {
  const RnnPersistentParams& p;
  const RnnPersistentArgs& a;
  const RnnThread<kRows>& me;
  const float* input;
  T *y, *reserve;
  float* cells;

  __device__ __forceinline__ RnnForwardMemory(const RnnPersistentParams& params, const RnnPersistentArgs& args,
                                              const RnnThread<kRows>& thread)
      : p(params),
        a(args),
        me(thread),
        input(me.element(a.input, p, p.gates, me.direction)),
        y(me.element(static_cast<T*>(a.y), p, 1, me.direction)),
        reserve(me.element(static_cast<T*>(a.gates), p, p.reserved, int64_t(me.direction) * a.rows)),
        cells(me.element(a.cells, p, 1, int64_t(me.direction) * a.rows)) {}
  __device__ __forceinline__ const float* input_at(int i, int32_t s) const {
    return input + me.wide(me.input_row_at(a, i, me.time(i, s)), p.shape.directions * p.gates * p.hidden);
  }
  // Loads the input's part of the gates, and fetches that of a later step.
  __device__ __forceinline__ void load(int i, int32_t s, float (&x)[4]) const {
    if (s >= me.lengths[i]) return;
    const float* const from = input_at(i, s);
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < p.gates) x[g] = from[g * p.hidden];
    if (s + p.ahead >= me.lengths[i]) return;
    const float* const ahead = input_at(i, s + p.ahead);
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < p.gates) prefetch_l2(ahead + g * p.hidden);
  }
  __device__ __forceinline__ void store(int i, int32_t s, float h, float c, const float (&gates)[4]) const {
    if (!me.exists(i)) return;
    const int32_t t = me.time(i, s);
    T* const y_of_row = y + me.y_at(a, i, t, a.y_step, a.y_row);
    if (s >= me.lengths[i]) {
      if (!a.offsets) *y_of_row = T();
      return;
    }
    *y_of_row = T(h);
    const int32_t row = me.row_at(p, a, i, t);
    if (reserve) {
      T* const to = reserve + me.wide(row, p.reserved * p.hidden);
#pragma unroll
      for (int g = 0; g < 4; ++g)
        if (g < p.reserved) to[g * p.hidden] = T(gates[g]);
    }
    if (cells) cells[me.wide(row, p.hidden)] = c;
  }
};

// kRows is the number of rows of a thread, and kTiles of the tiles of 8 rows that are in shared memory at a time.
template <class T, bool kCluster, int kMTiles, int kPairs, int kParts, int kRows, int kTiles>
__global__ void __launch_bounds__(kRnnThreads, 1)
    rnn_persistent_forward(const __grid_constant__ RnnPersistentParams p, const __grid_constant__ RnnPersistentArgs a) {
  const RnnThread<kRows> me(p, a);
  const int32_t d = me.direction, hidden = p.hidden, units = p.shape.units;
  const T* const w = static_cast<const T*>(a.weights[d]);
  RecurrentProduct<T, kMTiles, kPairs, kParts, kTiles> product;
  product.template load<false>(p.shape, [&](int32_t m, int32_t k) {
    const int32_t gate = m / units, unit = m % units;
    const bool exists = gate < p.gates && unit < me.units && k < hidden;
    return exists ? w + (int64_t(gate) * hidden + me.first_unit + unit) * hidden + k : nullptr;
  });
  typename RnnExchangeOf<T, kCluster, 64 * kPairs * kParts, kTiles>::type exchange(p, a, d, me.first_row);
  const RnnSums<T, kMTiles, kPairs, kParts, kTiles> sums(p.shape, me.unit, me.row);
  exchange.start();
  const auto mode = RnnMode(p.mode);

  const RnnForwardMemory<T, kRows> memory(p, a, me);
  float c[kRows], h[kRows];
  const RnnBias<T> bias(p, a, me);
  // Publishes the states. All lanes of a warp call this function.
  const auto publish = [&](int32_t s) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) exchange.publish(s, me.exists(i), me.row_of(i), me.u(), RnnWords<T>::of(h[i]));
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
    for (int i = 0; i < kRows; ++i) memory.load(i, s, x[i]);
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
    if (s + 1 < p.steps) publish(s + 1);
#pragma unroll
    for (int i = 0; i < kRows; ++i) memory.store(i, s, h[i], c[i], gates[i]);
    exchange.end_step(s);
  }
  exchange.finish();
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (!me.exists(i)) continue;
    const int64_t state = me.state(p, i);
    static_cast<T*>(a.hn)[state] = T(h[i]);
    if (a.cn) static_cast<T*>(a.cn)[state] = T(c[i]);
  }
}

// What the backward kernel reads for a step. Values of T are converted when they are used, so nothing waits for the loads.
template <class T> struct RnnSaved {
  T dy, gates[4], h_before;
  float float_dy, cell, before;  // before: the cell before the step
};

// What the backward kernel reads and writes in global memory, for the units of a thread.
template <class T, int kRows> struct RnnBackwardMemory {
  const RnnPersistentParams& p;
  const RnnPersistentArgs& a;
  const RnnThread<kRows>& me;
  const T *dy, *y, *reserve;
  const float *float_dy, *cells;
  T* dgates;

  __device__ __forceinline__ RnnBackwardMemory(const RnnPersistentParams& params, const RnnPersistentArgs& args,
                                               const RnnThread<kRows>& thread)
      : p(params),
        a(args),
        me(thread),
        dy(me.element(static_cast<const T*>(a.dy), p, 1, me.direction)),
        y(me.element(static_cast<const T*>(a.y), p, 1, me.direction)),
        reserve(me.element(static_cast<const T*>(a.gates), p, p.reserved, int64_t(me.direction) * a.rows)),
        float_dy(me.element(static_cast<const float*>(a.dy), p, 1, me.direction)),
        cells(me.element(static_cast<const float*>(a.cells), p, 1, int64_t(me.direction) * a.rows)),
        dgates(me.element(static_cast<T*>(a.dgates), p, p.dgates, int64_t(me.direction) * a.rows)) {}
  __device__ __forceinline__ const T* gates_at(int32_t row) const {
    return reserve + me.wide(row, p.reserved * p.hidden);
  }
  __device__ __forceinline__ const float* cell_at(int i, int32_t t) const {
    return cells + me.wide(me.row_at(p, a, i, t), p.hidden);
  }
  __device__ __forceinline__ void load(int i, int32_t s, RnnSaved<T>& to) const {
    if (s < 0 || s >= me.lengths[i]) return;
    const auto mode = RnnMode(p.mode);
    const int32_t t = me.time(i, s), t_before = s > 0 ? me.time(i, s - 1) : 0;
    const int64_t dy_at = me.y_at(a, i, t, a.dy_step, a.dy_row);
    if (a.dy_is_float) to.float_dy = float_dy[dy_at];
    else to.dy = dy[dy_at];
    const T* const from = gates_at(me.row_at(p, a, i, t));
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < p.reserved) to.gates[g] = from[g * p.hidden];
    to.before = 0;
    to.h_before = T();
    if (mode == RnnMode::lstm) {
      to.cell = *cell_at(i, t);
      if (s > 0) to.before = *cell_at(i, t_before);
      else if (a.c0) to.before = float(static_cast<const T*>(a.c0)[me.state(p, i)]);
    } else if (mode == RnnMode::gru) {
      if (s > 0) to.h_before = y[me.y_at(a, i, t_before, a.y_step, a.y_row)];
      else if (a.h0) to.h_before = static_cast<const T*>(a.h0)[me.state(p, i)];
    }
  }
  // Fetches what load() reads for an earlier step. It reads the cell of the step itself once before.
  __device__ __forceinline__ void fetch(int i, int32_t s) const {
    if (s < 1 || s >= me.lengths[i]) return;
    const auto mode = RnnMode(p.mode);
    const int32_t t = me.time(i, s), t_before = me.time(i, s - 1);
    const int64_t dy_at = me.y_at(a, i, t, a.dy_step, a.dy_row);
    if (a.dy_is_float) prefetch_l2(float_dy + dy_at);
    else prefetch_l2(dy + dy_at);
    const T* const from = gates_at(me.row_at(p, a, i, t));
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < p.reserved) prefetch_l2(from + g * p.hidden);
    if (mode == RnnMode::lstm) prefetch_l2(cell_at(i, t_before));
    else if (mode == RnnMode::gru) prefetch_l2(y + me.y_at(a, i, t_before, a.y_step, a.y_row));
  }
  __device__ __forceinline__ void store(int i, int32_t s, const float (&gates)[4]) const {
    if (!me.exists(i) || (a.offsets && s >= me.lengths[i])) return;
    T* const to = dgates + me.wide(me.row_at(p, a, i, me.time(i, s)), p.dgates * p.hidden);
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < p.dgates) to[g * p.hidden] = T(gates[g]);
  }
};

template <class T, bool kCluster, int kMTiles, int kPairs, int kParts, int kRows, int kTiles>
__global__ void __launch_bounds__(kRnnThreads, 1) rnn_persistent_backward(const __grid_constant__ RnnPersistentParams p,
                                                                          const __grid_constant__ RnnPersistentArgs a) {
  const RnnThread<kRows> me(p, a);
  const int32_t d = me.direction, hidden = p.hidden;
  const T* const w = static_cast<const T*>(a.weights[d]) + me.first_unit;
  RecurrentProduct<T, kMTiles, kPairs, kParts, kTiles> product;
  product.template load<true>(p.shape, [&](int32_t k, int32_t m) {
    return k < p.shape.k && m < me.units ? w + int64_t(k) * hidden + m : nullptr;
  });
  typename RnnExchangeOf<T, kCluster, 64 * kPairs * kParts, kTiles>::type exchange(p, a, d, me.first_row);
  const RnnSums<T, kMTiles, kPairs, kParts, kTiles> sums(p.shape, me.unit, me.row);
  exchange.start();
  const auto mode = RnnMode(p.mode);

  const RnnBackwardMemory<T, kRows> memory(p, a, me);
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
    RnnSaved<T> saved[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      memory.load(i, s, saved[i]);
      memory.fetch(i, s - p.ahead);
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
        const RnnSaved<T>& in = saved[i];
        const float gates[4] = {float(in.gates[0]), float(in.gates[1]), float(in.gates[2]), float(in.gates[3])};
        const float of_h = dh[i] + (a.dy_is_float ? in.float_dy : float(in.dy));
        const float before = mode == RnnMode::lstm ? in.before : float(in.h_before);
        rnn_fast::backward(mode, p, gates, of_h, in.cell, before, out, dh[i], dc[i]);
      }
      publish_gates<T>(p, me, exchange, done, i, out);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) memory.store(i, s, of_gates[i]);
    exchange.end_step(done);
  }
  exchange.finish();
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (!me.exists(i)) continue;
    const int64_t state = me.state(p, i);
    static_cast<T*>(a.dh0)[state] = T(dh[i]);
    if (a.dc0) static_cast<T*>(a.dc0)[state] = T(dc[i]);
  }
}

}  // namespace minidnn
