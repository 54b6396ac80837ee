// SPDX-License-Identifier: Apache-2.0
// The epilogue of a warp: y = activation(alpha * sum + beta * c + bias). Accumulators are in the layout of mma.sync and
// wgmma: acc[4 j + i] is row lane / 4 + 8 (i / 2), column 8 j + 2 (lane % 4) + i % 2. y, c and bias have any strides.
// If rows of y are contiguous, or 16-bit columns are, whole lines of 128 bytes are written, through a small buffer in
// shared memory. The number of instructions matters here: the two warpgroups of sm90/kernel.cu spend as many on the end
// of a tile as on a dozen blocks of k. T is the dtype of the bias, Y of y and c.
#pragma once
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// Accumulate column sums of what a lane stores in store_lines(): chunks of 16 bytes of some rows, in the same columns
// for a given step.
struct NoColumnSums {
  __device__ __forceinline__ void add(int, const uint4&) {}
};
template <class Y, int kSteps> struct ColumnSums {
  static constexpr int kChunk = 16 / int(sizeof(Y));
  float of[2][kSteps][kChunk]{};  // [0]: sums of values, [1]: sums of squares

  __device__ __forceinline__ void add(int step, const uint4& words) {
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      float v;
      if constexpr (sizeof(Y) == 4) {
        v = __uint_as_float(word[i]);
      } else {
        Y y;
        y.bits = uint16_t(word[i / 2] >> i % 2 * 16);
        v = float(y);
      }
      of[0][step][i] += v;
      of[1][step][i] += v * v;
    }
  }
};

template <class V> __device__ __forceinline__ V& shared_at(uint32_t address) {
  return *static_cast<V*>(__cvta_shared_to_generic(address));
}

// args.bias is read only with kBias, args.c only with kC. With kC, args.c may still be null.
template <class T, class Y, Activation kActivation, bool kBias, bool kC, GemmStore kStore> class GemmEpilogue {
 public:
  // `part` replaces o.part. `lines`: the address of kLinesBytes of shared memory for this warp, a multiple of 128. The
  // buffers of the warps of a warpgroup are contiguous, in order.
  __device__ GemmEpilogue(const GemmOutput& o, const GemmPart& part, const GemmArgs& args, uint32_t batch,
                          uint32_t lines)
      : o_(o),
        part_(part),
        sums_(args.sums),
        alpha_(args.alpha),
        beta_(args.beta),
        activation_alpha_(args.activation_alpha),
        lines_(lines) {
    const GemmCoordinates32 at = coordinates_of(o.batch_divisor, batch);
    y_ = static_cast<Y*>(args.y) + part.y_offset + offset_of(o.y_batch, at);
    c_ = kC && args.c ? static_cast<const Y*>(args.c) + offset_of(o.c_batch, at) : nullptr;
    bias_ = kBias ? static_cast<const T*>(args.bias) + offset_of(o.bias_batch, at) : nullptr;
  }

  // Stores two rows of this lane (`first` and `second`; the four lanes of a group have the same rows) and 2 * kCount
  // columns from n on, a multiple of 8. 2 * kCount is a multiple of 16. All lanes of a warp call this. For
  // GemmStore::transposed, all warps of a warpgroup call it for 64 consecutive rows, of which `rows` exist. Destroys
  // `acc`.
  template <int kCount>
  __device__ __forceinline__ void store(float (&acc)[kCount], uint32_t first, uint32_t second, uint32_t n,
                                        uint32_t rows = 64) const {
    if constexpr (kStore == GemmStore::transposed) {
      store_transposed(acc, first - (threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4), rows, n);
    } else if constexpr (kStore == GemmStore::lines) {
      NoColumnSums none;
      store_lines(acc, first, second, n, none);
    } else {
      const Row rows[2] = {row(first), row(second)};
      if (o_.n.first == kDigits - 1) store_even(acc, rows, n);
      else store_elements(acc, rows, n);
    }
  }

  // GemmStore::columns: a lane has 2 * kBlocks neighbouring rows from m on (kBlocks blocks of accumulators), which are
  // one vector in each column of y. Stores the first kSums sums of each block. Lanes eight apart fill sectors of 32
  // bytes or a line of 128. Processes four columns at a time; c is loaded one step ahead.
  template <int kSums, int kBlocks, int kCount>
  __device__ __forceinline__ void store_columns(float (&acc)[kBlocks][kCount], uint32_t m, uint32_t n) const {
    const Row side = row(m);
    const uint32_t column = n + threadIdx.x % 4 * 2;
    const int left = side.exists ? int(o_.n_limit) - int(column) : 0;
    // A lane has columns 0 and 1 of each eight: the next one is 1 or 7 columns away.
    const int64_t step[2] = {o_.y_n.of[3], 7 * o_.y_n.of[3]}, c_step[2] = {o_.c_n.of[3], 7 * o_.c_n.of[3]};
    Y* y = y_ + (side.y + column * step[0]);
    const Y* c = kC && c_ ? c_ + (side.c + column * c_step[0]) : nullptr;
    if (alpha_ != 1)
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) scale(acc[b]);
    struct alignas(8 * kBlocks) Vector {
      float row[2 * kBlocks];
    };
    Vector bias{}, of_c[4]{}, of_c_next[4]{};
    if (kBias && side.exists)
#pragma unroll
      for (int r = 0; r < 2 * kBlocks; ++r) bias.row[r] = float(bias_[side.bias + r * o_.bias.of[3]]);
    auto load = [&](Vector(&to)[4], int first) {
#pragma unroll
      for (int i = 0; i < 4; c += c_step[i++ % 2])
        if (first + i / 2 * 8 + i % 2 < left) to[i] = *reinterpret_cast<const Vector*>(c);
    };
    if (kC && c) load(of_c, 0);
#pragma unroll
    for (int g = 0; g < kSums / 8; ++g) {
      if (kC && c && g + 1 < kSums / 8) load(of_c_next, 16 * (g + 1));
#pragma unroll
      for (int i = 0; i < 4; y += step[i++ % 2]) {
        Vector v;
#pragma unroll
        for (int r = 0; r < 2 * kBlocks; ++r) {
          float sum = acc[r / 2][8 * g + i / 2 * 4 + r % 2 * 2 + i % 2];
          if (kC) sum += beta_ * of_c[i].row[r];
          if (kBias) sum += bias.row[r];
          v.row[r] = activate<kActivation>(sum, activation_alpha_);
        }
        if (16 * g + i / 2 * 8 + i % 2 < left) *reinterpret_cast<Vector*>(y) = v;
      }
      if (kC)
#pragma unroll
        for (int i = 0; i < 4; ++i) of_c[i] = of_c_next[i];
    }
  }

  // GemmStore::phases: like store_columns() for columns without a common stride. Each lane computes the offsets of some
  // columns and shares them by shuffles.
  template <int kBlocks, int kCount>
  __device__ __forceinline__ void store_phases(const float (&acc)[kBlocks][kCount], uint32_t m, uint32_t n) const {
    static_assert(!kBias && !kC, "backward_data has neither");
    const uint32_t lane = threadIdx.x % 32;
    int place[kCount / 16];
#pragma unroll
    for (int i = 0; i < kCount / 16; ++i) {
      const GemmCoordinates32 at = coordinates_of(o_.n_divisor, n + 32 * i + lane);
      bool exists = true;
#pragma unroll
      for (int d = 0; d < kDigits; ++d) exists = exists && at.at[d] < part_.limit[d];
      place[i] = exists ? int(offset_of(o_.y_n, at)) : -1;
    }
    struct alignas(8 * kBlocks) Vector {
      float row[2 * kBlocks];
    };
    const bool exists = m < o_.m.size;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const int to = __shfl_sync(0xffffffff, place[j / 8], j / 2 % 4 * 8 + lane % 4 * 2 + j % 2);
      Vector v;
#pragma unroll
      for (int r = 0; r < 2 * kBlocks; ++r)
        v.row[r] = activate<kActivation>(alpha_ * acc[r / 2][j / 2 * 4 + r % 2 * 2 + j % 2], activation_alpha_);
      if (exists && to >= 0) *reinterpret_cast<Vector*>(y_ + m + to) = v;
    }
  }

  // GemmStore::summed: stores lines and adds up the columns of what is stored. `m` is the lane's first row in kBlocks
  // blocks of 64 rows. Row `slot` of args.sums receives the sums over a warpgroup's rows of the values as they are
  // rounded in y: over the rows of a lane, then over the four lanes with the same columns, then over the four warps.
  template <int kSums, int kBlocks, int kCount>
  __device__ __forceinline__ void store_summed(float (&acc)[kBlocks][kCount], uint32_t m, uint32_t n,
                                               uint32_t slot) const {
    constexpr int kLine = 128 / int(sizeof(Y)), kColumns = 2 * kSums, kSteps = (kColumns + kLine - 1) / kLine;
    static_assert(2 * kColumns * 4 <= kLinesBytes);
    ColumnSums<Y, kSteps> sums;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
      store_lines(reinterpret_cast<float(&)[kSums]>(acc[b]), m + 64 * b, m + 64 * b + 8, n, sums);

    constexpr int kChunk = sums.kChunk;
    const uint32_t lane = threadIdx.x % 32, thread = threadIdx.x % 128, second = lane / 16, odd = lane / 8 % 2;
    __syncwarp();  // all lanes have read their lines
#pragma unroll
    for (int which = 0; which < 2; ++which)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        // Reduce-scatter: lanes 16 apart each keep half of a chunk's columns, then lanes 8 apart half of that.
        float(&v)[kChunk] = sums.of[which][step];
        share<16, kChunk / 2>(v, second);
        share<8, kChunk / 4>(v, odd);
        const uint32_t column = step * kLine + lane % 8 * kChunk + second * (kChunk / 2) + odd * (kChunk / 4);
#pragma unroll
        for (int i = 0; i < kChunk / 4; ++i)
          if (column < kColumns) shared_at<float>(lines_ + (which * kColumns + column + i) * 4) = v[i];
      }
    wait_for_warpgroup();
    const uint32_t all = lines_ - thread / 32 * kLinesBytes, which = 4 * thread / kColumns,
                   column = 4 * thread - which * kColumns;
    if (which < 2 && n + column < uint32_t(o_.n_limit)) {
      float4 sum = shared_at<float4>(all + thread * 16);
#pragma unroll
      for (int warp = 1; warp < 4; ++warp) {
        const float4 v = shared_at<float4>(all + warp * kLinesBytes + thread * 16);
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
      }
      *reinterpret_cast<float4*>(sums_ + (slot * int64_t(2) + which) * o_.n_limit + n + column) = sum;
    }
    wait_for_warpgroup();  // before the next lines are written there
  }

 private:
  // Two lanes, kLanes apart, each have 2 * kHalf values. Adds them up; each lane receives half of the sums.
  template <int kLanes, int kHalf>
  __device__ __forceinline__ static void share(float* v, uint32_t second) {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float others = second ? v[i] : v[kHalf + i];
      v[i] = (second ? v[kHalf + i] : v[i]) + __shfl_xor_sync(~0u, others, kLanes);
    }
  }
  __device__ __forceinline__ static void wait_for_warpgroup() { named_barrier_sync(2 + int(threadIdx.x) / 128, 128); }

  struct Row {
    bool exists;
    int64_t y, c, bias;  // offsets; bias is 0 if the bias belongs to columns
  };
  __device__ __forceinline__ Row row(uint32_t m) const {
    if (int(o_.m.first) == kDigits - 1)
      return {m < uint32_t(part_.limit[3]), int64_t(m) * o_.y_m.of[3], kC ? int64_t(m) * o_.c_m.of[3] : 0,
              kBias && o_.bias_by_row ? int64_t(m) * o_.bias.of[3] : 0};
    const GemmCoordinates32 at = coordinates_of(o_.m_divisor, m);
    bool exists = true;
#pragma unroll
    for (int j = 0; j < kDigits; ++j) exists &= at.at[j] < uint32_t(part_.limit[j]);
    return {exists, offset_of(o_.y_m, at), kC ? offset_of(o_.c_m, at) : 0,
            kBias && o_.bias_by_row ? offset_of(o_.bias, at) : 0};
  }
  // Rows of y are contiguous in memory; 128 bytes of a row are written together. Sixteen rows at a time pass through
  // shared memory; each lane then has a chunk of 16 bytes of every fourth row. c is read the same way, one step ahead.
  template <int kCount, class Sums>
  __device__ __forceinline__ void store_lines(float (&acc)[kCount], uint32_t first, uint32_t second, uint32_t n,
                                              Sums& sums) const {
    constexpr int kLine = 128 / int(sizeof(Y)), kChunk = 16 / int(sizeof(Y));  // counted in columns
    constexpr int kBlocks = kLine / 8, kSteps = (2 * kCount + kLine - 1) / kLine;
    static_assert(kCount % 8 == 0);
    const uint32_t lane = threadIdx.x % 32, of_four = lane / 8;
    // Slot i of the sixteen rows belongs to lane i % 8 * 4; it is that lane's first row for i < 8, else its second. A
    // lane computes one slot and shares it by shuffles.
    const uint32_t firsts = __shfl_sync(~0u, first, lane % 8 * 4), seconds = __shfl_sync(~0u, second, lane % 8 * 4);
    const Row mine = row(lane & 8 ? seconds : firsts);
    const uint32_t exist = __ballot_sync(~0u, mine.exists);
    const int column = int(n + lane % 8 * kChunk),
              left = min_of(int(o_.n_limit) - column, 2 * kCount - int(lane % 8 * kChunk));
    const T* const bias = kBias ? bias_ + (n + lane % 4 * 2) : nullptr;
    const int bias_left = int(o_.n_limit) - int(n + lane % 4 * 2);
    Y* y[4];
    const Y* c[4];
    bool there[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[i] = y_ + (__shfl_sync(~0u, mine.y, 4 * i + of_four) + column);
      if (kC) c[i] = c_ + (__shfl_sync(~0u, mine.c, 4 * i + of_four) + column);
      there[i] = exist >> (4 * i + of_four) & 1;
    }
    // The chunks of a row are permuted: chunk ^ (row % 4 * 2 | row / 4 % 2). Access to one chunk of eight rows
    // (stmatrix), two chunks of four rows (float2) or eight chunks of one row then has no bank conflicts.
    auto place = [&](uint32_t slot, uint32_t chunk) {
      return lines_ + slot * 128 + (chunk ^ (slot % 4 * 2 | slot / 4 % 2)) * 16;
    };
    const uint32_t put = sizeof(Y) == 2 ? place(lane % 16, lane / 16) : place(lane / 4, lane % 4 / 2) + lane % 2 * 8;
    const uint32_t get = place(of_four, lane % 8);
    auto line = [&](int i) -> uint4& { return shared_at<uint4>((get ^ i % 2 * 16) + i * 512); };
    auto pair = [&](int block, int r) -> float2& { return shared_at<float2>((put ^ block * 32) + r * 1024); };

    if (alpha_ != 1) scale(acc);
    uint4 c_line[4] = {};
    auto load_c = [&](int step) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (c_ && there[i] && kLine * step < left) c_line[i] = *reinterpret_cast<const uint4*>(c[i] + kLine * step);
    };
    if (kC) load_c(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (kC) {
#pragma unroll
        for (int i = 0; i < 4; ++i) line(i) = c_line[i];  // in the slots from which this lane has read y
        __syncwarp();
        if (step + 1 < kSteps) load_c(step + 1);
#pragma unroll
        for (int j = 0; j < kBlocks && kBlocks * step + j < kCount / 4; j += 2) {
          auto& v = sixteen(acc, kBlocks * step + j);
          if constexpr (sizeof(Y) == 4) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float2 two = pair(j + i / 2, i % 2);
              v[2 * i] += beta_ * two.x;
              v[2 * i + 1] += beta_ * two.y;
            }
          } else {
            uint32_t words[4];
            ldmatrix_x4(words, put ^ j * 16);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
              Y of_c;
              of_c.bits = uint16_t(words[i / 2] >> i % 2 * 16);
              v[i] += beta_ * float(of_c);
            }
          }
        }
      }
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kBlocks && kBlocks * step + j < kCount / 4; j += 2) {
        auto& v = sixteen(acc, kBlocks * step + j);
        if (kBias) add_bias(v, bias + kLine * step + 8 * j, bias_left - kLine * step - 8 * j);
#pragma unroll
        for (float& x : v) x = activate<kActivation>(x, activation_alpha_);
        if constexpr (sizeof(Y) == 4) {
#pragma unroll
          for (int i = 0; i < 4; ++i) pair(j + i / 2, i % 2) = make_float2(v[2 * i], v[2 * i + 1]);
        } else {
          stmatrix_x4(put ^ j * 16, cvt_rn_x2(Y(), v[0], v[1]), cvt_rn_x2(Y(), v[2], v[3]), cvt_rn_x2(Y(), v[4], v[5]),
                      cvt_rn_x2(Y(), v[6], v[7]));
        }
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint4 words = line(i);
        if (there[i] && kLine * step < left) {
          *reinterpret_cast<uint4*>(y[i] + kLine * step) = words;
          sums.add(step, words);
        }
      }
    }
  }

  template <int kCount> __device__ __forceinline__ void scale(float (&acc)[kCount]) const {
    asm volatile("");  // keeps this a branch; otherwise it becomes a select for each sum
#pragma unroll
    for (int i = 0; i < kCount; ++i) acc[i] *= alpha_;
  }

  // Sixteen columns, from block `block` of eight on.
  template <int kCount> __device__ __forceinline__ static float (&sixteen(float (&acc)[kCount], int block))[8] {
    return reinterpret_cast<float(&)[8]>(acc[4 * block]);
  }

  // `left`: columns that exist, from this lane's first one on. For lines, columns exist in eights.
  template <int kCount>
  __device__ __forceinline__ static void add_bias(float (&v)[kCount], const T* bias, int left) {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int at = i / 2 * 8 + i % 2;
      if ((kStore == GemmStore::lines || kStore == GemmStore::summed ? at - i % 2 : at) >= left) continue;
      const float of_column = float(bias[at]);
      v[i / 2 * 4 + i % 2] += of_column;
      v[i / 2 * 4 + 2 + i % 2] += of_column;
    }
  }

  // Rows of 16 bits are neighbours in memory, at least four by four, and columns have one stride, as in NCHW: 64 rows
  // of a column are 128 bytes. The sums of a warpgroup pass through the shared memory of its warps. Each warp then
  // stores a quarter of the columns, two at a time, and each lane four rows. `rows` of the 64 exist.
  template <int kCount>
  __device__ __forceinline__ void store_transposed(float (&acc)[kCount], uint32_t m, uint32_t rows, uint32_t n) const {
    constexpr int kColumns = kCount % 32 == 0 ? 64 : kCount % 16 == 0 ? 32 : 16, kBlocks = kColumns / 8;
    constexpr int kSteps = 2 * kCount / kColumns;
    static_assert(kCount % 8 == 0);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, column = warp * (kColumns / 4) + lane / 16;
    const Row four = row(m + lane % 16 * 4);
    const int left = four.exists && lane % 16 * 4 < rows ? int(o_.n_limit) - int(n + column) : 0;
    const int64_t step_of_y = o_.y_n.of[3];
    Y* y = y_ + (four.y + (n + column) * step_of_y);
    const T* const bias = kBias ? bias_ + (n + lane % 4 * 2) : nullptr;
    const int bias_left = int(o_.n_limit) - int(n + lane % 4 * 2);
    // Chunks of eight rows are permuted: chunk ^ column % 8.
    const uint32_t lines = lines_ - warp * kLinesBytes;
    const uint32_t put = lines + (lane / 16 * 8 + lane % 8) * 128 + ((warp * 2 + lane / 8 % 2) ^ lane % 8) * 16;
    const uint32_t get = lines + column * 128 + (lane % 16 / 2 ^ column % 8) * 16 + lane % 2 * 8;

    if (alpha_ != 1) scale(acc);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      wait_for_warpgroup();
#pragma unroll
      for (int j = 0; j < kBlocks; j += 2) {
        auto& v = sixteen(acc, kBlocks * step + j);
        if (kBias) add_bias(v, bias + kColumns * step + 8 * j, bias_left - kColumns * step - 8 * j);
#pragma unroll
        for (float& x : v) x = activate<kActivation>(x, activation_alpha_);
        stmatrix_x4_trans(put + j * 1024, cvt_rn_x2(Y(), v[0], v[1]), cvt_rn_x2(Y(), v[2], v[3]),
                          cvt_rn_x2(Y(), v[4], v[5]), cvt_rn_x2(Y(), v[6], v[7]));
      }
      wait_for_warpgroup();
#pragma unroll
      for (int i = 0; i < kColumns / 4; i += 2, y += 2 * step_of_y) {
        const uint2 words = shared_at<uint2>((get ^ i % 8 * 16) + i * 128);
        if (kColumns * step + i < left) *reinterpret_cast<uint2*>(y) = words;
      }
      y += kColumns * 3 / 4 * step_of_y;
    }
  }

  // Columns have one stride, as in NCHW, where eight rows are neighbours.
  template <int kCount>
  __device__ __forceinline__ void store_even(float (&acc)[kCount], const Row (&rows)[2], uint32_t n) const {
    const uint32_t first = n + threadIdx.x % 4 * 2;
    const int left = int(o_.n_limit) - int(first);
    const int64_t step = o_.y_n.of[3], c_step = kC ? o_.c_n.of[3] : 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!rows[r].exists) continue;
      Y* y = y_ + rows[r].y + first * step;
      const Y* c = kC && c_ ? c_ + rows[r].c + first * c_step : nullptr;
#pragma unroll
      for (int j = 0; j < kCount / 4; ++j, y += 8 * step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * j + i >= left) continue;
          float v = alpha_ * acc[4 * j + 2 * r + i];
          if (kC && c) v += beta_ * float(c[i * c_step]);
          if (kBias) v += float(bias_[rows[r].bias + (o_.bias_by_row ? 0 : (first + 8 * j + i) * o_.bias.of[3])]);
          y[i * step] = Y(activate<kActivation>(v, activation_alpha_));
        }
        if (kC && c) c += 8 * c_step;
      }
    }
  }

  // Any strides, one element at a time. The loop is not unrolled, to keep the code small: each iteration stores the
  // first eight columns of `acc` and shifts the others down.
  template <int kCount>
  __device__ __forceinline__ void store_elements(float (&acc)[kCount], const Row (&rows)[2], uint32_t n) const {
#pragma unroll 1
    for (int j = 0; j < kCount / 4; ++j, n += 8) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t column = n + threadIdx.x % 4 * 2 + i;
        const GemmCoordinates32 at = coordinates_of(o_.n_divisor, column);
        if (column >= o_.n.size || at.at[kDigits - 1] >= o_.n_limit) continue;
        const int64_t y = offset_of(o_.y_n, at), c = kC ? offset_of(o_.c_n, at) : 0;
        const int64_t bias = kBias && !o_.bias_by_row ? offset_of(o_.bias, at) : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          if (!rows[r].exists) continue;
          float v = alpha_ * acc[2 * r + i];
          if (kC && c_) v += beta_ * float(c_[rows[r].c + c]);
          if (kBias) v += float(bias_[rows[r].bias + bias]);
          y_[rows[r].y + y] = Y(activate<kActivation>(v, activation_alpha_));
        }
      }
#pragma unroll
      for (int i = 0; i + 4 < kCount; ++i) acc[i] = acc[i + 4];
    }
  }

  const GemmOutput& o_;
  const GemmPart& part_;
  float* const sums_;
  const float alpha_, beta_, activation_alpha_;
  const uint32_t lines_;
  Y* y_;
  const Y* c_;
  const T* bias_;
};

}  // namespace minidnn
