// SPDX-License-Identifier: Apache-2.0
// What the forward and the backward pass of cpu.attention.flash share. Both walk over tiles of scores: a block of rows
// times a block of columns. The rows of a block are those of all heads of q that use one head of k: row r is row
// r / group of head r % group of the group, so that a tile of k serves a whole group.
#pragma once
#include <algorithm>
#include <cstring>

#include "cpp/attention/attention.h"
#include "cpp/attention/cpu/flash_kernel.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/simd/bf16_products.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn::cpu::attention {

constexpr int64_t kBlockRows = 72;      // the most rows of a tile: a multiple of GemmKernel::rows
constexpr int64_t kBf16BlockRows = 64;  // of a tile whose products are those of bf16_products.h
constexpr int64_t kFewRows = 12;        // up to this number of rows, products do not need packed operands
// The most columns of a tile of backward, and their unit: a multiple of GemmKernel::rows and GemmKernel::columns.
constexpr int64_t kBackwardColumns = 192, kColumnUnit = 96;
// Distance between the rows of a tile. It is no multiple of a large power of two, which would map a column of a tile to
// few sets of the cache.
constexpr int64_t kPitch = kFlashColumns + 16;

// A call, and the sizes that its passes need.
struct FlashCall {
  const AttentionProblem& p;
  const AttentionArgs& a;
  const FlashKernels& loops = flash_kernels();
  const GemmKernel<float>& gemm = gemm_kernels().f32;
  const int64_t group = p.heads() / p.kv_heads();
  // The sizes of heads, rounded up to the columns of a product.
  const int64_t head = round_up(p.head_size(), gemm.columns), value = round_up(p.value_size(), gemm.columns);
  const FlashScores scores = make_scores();
  // The products of bfloat16, or null if all products are those of floats.
  const Bf16Kernels* const bf16 = p.q.dtype == DType::bfloat16 && group * p.q_size() > kFewRows ? bf16_products()
                                                                                                : nullptr;
  const int64_t block = bf16 ? kBf16BlockRows : kBlockRows;  // rows of a tile

  FlashScores make_scores() const {
    FlashScores f;
    f.scale = float(a.scale);
    if (p.has_softcap) f.softcap = float(a.softcap);
    f.bias_type = p.bias.dtype;
    f.bias_step = p.bias.rank && p.bias.shape[3] != 1 ? p.bias.stride[3] : 0;
    f.keep = float(a.keep);
    return f;
  }
};

// The address of the element with this offset.
inline const void* at(const TensorDesc& d, const void* data, int64_t offset) {
  return static_cast<const char*>(data) + offset * int64_t(itemsize(d.dtype));
}

// The rows of q of one sequence that use one head of k, or of one head of q (group 1).
struct Rows {
  const FlashCall& f;
  AttentionSequence s;
  int64_t first_head, group;

  int64_t count() const { return group * (f.p.packed ? s.q_length : f.p.q_size()); }
  int64_t head_of(int64_t r) const { return first_head + r % group; }
  int64_t index_of(int64_t r) const { return r / group; }
  AttentionRange seen(int64_t r) const { return minidnn::attention::columns_of(f.p, s, index_of(r)); }
  const void* q_row(const TensorDesc& d, const void* data, int64_t r) const {
    return at(
        d, data,
        (f.p.packed ? 0 : s.b) * d.stride[0] + head_of(r) * d.stride[1] + (s.q_first + index_of(r)) * d.stride[2]);
  }
  float& lse(int64_t r) const { return minidnn::attention::lse_of<float>(f.p, f.a, s, head_of(r), index_of(r)); }
  bool has_sink(int64_t r) const { return f.p.has_sink && index_of(r) < s.q_length; }
  float sink(int64_t r) const { return static_cast<const float*>(f.a.sink)[head_of(r)]; }

  // Describes row r of a tile. The tile has `columns` columns, the first of which is column `first` of the sequence.
  // `kept` is memory for FlashRow::kept.
  FlashRow row(int64_t r, AttentionRange visible, int64_t first, int64_t columns, float* kept) const;
  // Converts row r of q, o or d_o.
  void widen(const TensorDesc& d, const void* data, int64_t r, float* to, int64_t padded) const {
    f.loops.widen[int64_t(d.dtype)](q_row(d, data, r), d.stride[3], d.shape[3], to, padded);
  }
};

// Whether the rows of a tensor are floats without padding, and contiguous.
inline bool is_floats(const TensorDesc& d, int64_t padded) {
  return d.dtype == DType::float32 && d.stride[3] == 1 && d.shape[3] == padded && d.stride[2] == padded;
}
// Columns of one head of k: rows of k or v.
struct Columns {
  const AttentionSequence& s;
  int64_t kv_head, first, count;
  int64_t filled;  // count, rounded up
};
// Returns columns as floats [filled, padded], filled with zeros. They go to `buffer`, unless the tensor itself is such
// floats.
const float* floats_of(const FlashCall&, const Columns&, const TensorDesc&, const void* data, float* buffer,
                       int64_t padded);
// Rows of bfloat16, `pitch` elements apart.
struct Bf16Rows {
  const bfloat16* first;
  int64_t pitch;
};
// Returns columns as rows of bfloat16, filled with zeros. They are copied to `buffer` [filled, padded] if they need to be.
Bf16Rows bf16_rows_of(const FlashCall&, const Columns&, const TensorDesc&, const void* data, bfloat16* buffer,
                      int64_t padded);
// The memory of floats as bfloat16, which take half of it.
inline bfloat16* as_bf16(float* memory) { return reinterpret_cast<bfloat16*>(memory); }
// Copies n elements that are `step` apart, and writes zeros behind them.
void copy_bf16(const void* from, int64_t step, int64_t n, bfloat16* to, int64_t padded);
// Packs floats [count, length] for a product over their columns: panels of GemmKernel::columns rows.
void pack_transposed(const FlashCall&, const float* from, int64_t count, int64_t length, float* to);
// Packs floats [count, length] for a product over their rows: panels of GemmKernel::columns columns.
void pack_plain(const FlashCall&, const float* from, int64_t count, int64_t length, float* to);

// A product of tiles: c[i, j] (+)= sum over k < steps of a(i, k) b(k, j). `a_row` and `a_step` are the strides of i and k
// in a, `b_step` is the stride of k in b, `panel` the stride of the panels of b.
struct TileProduct {
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_step, panel;
  float* c;
  int64_t pitch;
};
// Computes rows and columns rounded up to whole tiles of the micro-kernel.
void multiply(const FlashCall&, const TileProduct&, int64_t rows, int64_t columns, int64_t steps, bool add);

// Memory of a thread, handed out in pieces of whole cache lines.
class Arena {
 public:
  explicit Arena(void* at) : at_(static_cast<char*>(at)) {}
  float* take(int64_t floats) {
    char* const piece = at_;
    at_ += bytes(floats);
    return reinterpret_cast<float*>(piece);
  }
  static int64_t bytes(int64_t floats) { return round_up(floats * 4, 64); }

 private:
  char* at_;
};

// The sizes of the parts of a call's workspace, in bytes.
struct FlashMemory {
  int64_t of_thread, of_slot, threads, slots;
  size_t bytes() const { return size_t(of_thread * threads + of_slot * slots); }
  void* thread(void* workspace, int64_t i) const { return static_cast<char*>(workspace) + i * of_thread; }
  void* slot(void* workspace, int64_t i) const {
    return static_cast<char*>(workspace) + threads * of_thread + i * of_slot;
  }
};

FlashMemory forward_memory(const AttentionProblem&, int64_t threads);
void flash_forward(const AttentionProblem&, const AttentionArgs&, const FlashMemory&, void* workspace);
FlashMemory backward_memory(const AttentionProblem&, int64_t threads);
void flash_backward(const AttentionProblem&, const AttentionArgs&, const FlashMemory&, void* workspace);

}  // namespace minidnn::cpu::attention
