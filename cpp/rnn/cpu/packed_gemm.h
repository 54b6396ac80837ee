// SPDX-License-Identifier: Apache-2.0
// What the passes of cpu.rnn.packed_gemm share: the workspace, the order of sequences, packed weights, the product of a
// step, and the threads that compute steps.
#pragma once
#include <algorithm>
#include <span>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/thread_team.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/rnn/cpu/packed_gemm_kernel.h"
#include "cpp/rnn/cpu/reference.h"
#include "cpp/rnn/products.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn::cpu::rnn {

using minidnn::rnn::matrix;
using minidnn::rnn::MatrixRows;
using minidnn::rnn::Product;
using minidnn::rnn::Unit;
using minidnn::rnn::WorkspaceParts;

// Units are divided into blocks of as many units as a tile of the micro-kernel has columns. A thread owns some blocks:
// all gates of their units.
struct UnitBlocks {
  int64_t columns, count;

  explicit UnitBlocks(const RnnProblem& p) : columns(gemm_kernels().f32.columns), count(ceil_div(p.hidden, columns)) {}
  int64_t units() const { return columns * count; }
};

// How products of h by w_hh read it. It is not packed if few products use it: then each gate is a dot product of h and a
// row of w_hh, where it is.
enum class HiddenWeights { packed, in_place, unused };
HiddenWeights hidden_weights_of(const RnnProblem&);

// Floats between rows of sums. Without them, the rows of a tile might be multiples of a large power of two apart, which few
// sets of the cache hold.
constexpr int64_t kPadding = 16;

// Copies n elements of `size` bytes, which are `stride` apart.
void copy_elements(const void* from, int64_t stride, int64_t n, int64_t size, char* to);

// The products W x of a layer. Their rows are those of a chunk of steps: for each step, the sequences that have it, the
// longest first.
class ChunkProducts {
 public:
  ChunkProducts() = default;
  ChunkProducts(const RnnProblem&, const Device&);

  int64_t steps() const { return steps_; }  // of a chunk
  int64_t rows() const { return steps_ * p_.batch; }
  int64_t pitch() const { return p_.gates() * p_.hidden + kPadding; }  // of the rows of products
  size_t scratch_bytes() const;
  size_t operand_bytes() const;  // `operand` of run()
  double estimate_us() const;    // of all layers
  // Whether products read the rows of the layer's input, which are in the order of time.
  bool in_place(const RnnLayer& l) const { return (l.index ? others_ : first_).in_place; }
  // Computes `rows` rows for a direction, from `operand` or, if they are in place, from the rows of the layer's input
  // from row `first` on. Other rows of the chunk may be overwritten.
  void run(const RnnLayer&, int64_t direction, int64_t rows, const void* operand, int64_t first, float* sums,
           void* scratch) const;

 private:
  struct OfLayer {
    bool in_place = false;
    int64_t pitch = 0;              // of rows of the operand
    std::vector<Product> products;  // for different numbers of rows, the most first
  };
  OfLayer of_layer(int64_t layer, const Device&) const;
  RnnProblem p_{};
  int64_t steps_ = 0;
  OfLayer first_, others_;
};

// The parts of the workspace.
struct PackedLayout : WorkspaceParts {
  // Rows of temporary numbers of a thread, each as long as the units of the thread.
  static constexpr int64_t kTemporaries = 8;

  size_t order_at = 0, active_at = 0, before_at = 0, pointers_at = 0, scratch_at = 0, weights_at = 0, bias_at = 0,
         states_at = 0, sums_at = 0, temporaries_at = 0, cells_at = 0, operand_at = 0, inputs_at = 0;

  PackedLayout(const RnnProblem&, const ChunkProducts&, size_t of_other_products);
};

// A call and its workspace.
struct PackedCall {
  const RnnProblem& p;
  const RnnLayer& l;
  const PackedLayout& at;
  char* workspace;
  const UnitBlocks blocks{p};
  const RnnKernels& loops = rnn_kernels();
  const GemmKernels& gemm = gemm_kernels();
  const ElementSpans& spans = element_spans(p.x.dtype);
  const int64_t size = int64_t(itemsize(p.x.dtype));
  const bool is_float = p.x.dtype == DType::float32;
  // The sequences, the longest first. Sequence order[i] is the i-th.
  int64_t* const order = part<int64_t>(at.order_at);
  int64_t* const active = part<int64_t>(at.active_at);  // [T + 1]: how many sequences have each step; 0 for T
  int64_t* const before = part<int64_t>(at.before_at);  // [T + 1]: the sum of `active` over the steps before each step

  template <class T> T* part(size_t offset) const { return reinterpret_cast<T*>(workspace + offset); }
  void make_order() const;  // from the lengths

  // Memory of a thread, for its units from u0 on.
  float* sums(int64_t direction, int64_t u0) const {
    const int64_t of_unit = p.direction == RnnDirection::forward ? p.gates() : 1, block = u0 / blocks.columns;
    const int64_t before_block = direction * blocks.count + block;
    return part<float>(at.sums_at) + before_block * p.batch * (blocks.columns * of_unit + kPadding);
  }
  float* temporaries(int64_t direction, int64_t u0) const {
    return part<float>(at.temporaries_at) + (direction * blocks.units() + u0) * PackedLayout::kTemporaries;
  }
  const float** pointers(int64_t direction, int64_t block) const {
    return part<const float*>(at.pointers_at) + (direction * blocks.count + block) * p.batch;
  }
  // [unit blocks][gates][H][columns] or, backward, [unit blocks][gates H][columns].
  float* weights(int64_t direction) const {
    return part<float>(at.weights_at) + direction * p.gates() * p.hidden * blocks.units();
  }
  float* state(int64_t direction, int64_t n, int64_t unit) const {
    return static_cast<float*>(l.state) + (direction * p.batch + n) * p.hidden + unit;
  }

  const void* element(const void* data, int64_t i) const { return static_cast<const char*>(data) + i * size; }
  void* element(void* data, int64_t i) const { return static_cast<char*>(data) + i * size; }
  // Returns n elements as floats: those of a tensor of floats, or a copy in `buffer`.
  const float* read(const void* data, int64_t offset, int64_t stride, int64_t n, float* buffer) const {
    if (is_float && stride == 1) return static_cast<const float*>(data) + offset;
    spans.read(element(data, offset), stride, n, buffer);
    return buffer;
  }
  void write(const float* from, int64_t n, void* data, int64_t offset, int64_t stride) const {
    if (stride == 1) spans.write(from, n, element(data, offset), false);
    else spans.write_strided(from, n, element(data, offset), stride);
  }
  // Writes floats, and rounds them to what was written.
  void write_rounded(float* values, int64_t n, void* data, int64_t offset, int64_t stride) const {
    write(values, n, data, offset, stride);
    if (!is_float) spans.read(element(data, offset), stride, n, values);
  }

  // Packs `count` columns of w_hh (weights from element `offset` on) and `length` steps of k into a panel: columns are rows
  // of w_hh or, if `transposed`, its columns.
  void pack(const void* w, int64_t offset, bool transposed, int64_t count, int64_t length, float* to) const;
  // Adds up the products of `rows` rows with a panel of weights over the H elements from `from` on. Row i begins at
  // row[i], and its sums at to + i pitch.
  void multiply(std::span<const float* const> row, int64_t from, const float* panel, float* to, int64_t pitch,
                bool add) const;

  // Calls step(direction, i, first block, last block) for the steps i from 0 to count - 1, one after the other, on
  // threads that divide blocks of units. All blocks are done before the next step begins.
  template <class Step> void run_steps(int64_t count, int64_t threads, const Step& step) const;

 private:
  using StepCall = void (*)(const void* step, int64_t direction, int64_t i, int64_t first, int64_t last);
  void run_all_steps(int64_t count, int64_t threads, StepCall, const void* step) const;
};

template <class Step> void PackedCall::run_steps(int64_t count, int64_t threads, const Step& step) const {
  const auto call = [](const void* s, int64_t direction, int64_t i, int64_t first, int64_t last) {
    (*static_cast<const Step*>(s))(direction, i, first, last);
  };
  run_all_steps(count, threads, call, &step);
}

void forward_layer(const PackedCall&, const ChunkProducts&, int64_t threads);
void backward_steps(const PackedCall&, int64_t threads);

// The gradients of the inputs of layers.
class InputGradients {
 public:
  InputGradients() = default;
  InputGradients(const RnnProblem&, const Device&);
  size_t scratch_bytes() const { return std::max(first_.choice.workspace_bytes, others_.choice.workspace_bytes); }
  size_t sums_bytes() const { return has_sums_ ? size_t(p_.rows() * p_.input_size(0)) * sizeof(float) : 0; }
  double estimate_us() const;
  void run(const PackedCall&, void* sums, void* scratch) const;

 private:
  RnnProblem p_{};
  Product first_, others_;  // of layer 0, and of the others
  // Whether the gradient of x is computed as float32 sums first.
  bool has_sums_ = false;
};

// The gradients of weights.
class WeightGradients {
 public:
  WeightGradients() = default;
  WeightGradients(const RnnProblem&, const Device&);
  size_t scratch_bytes() const;
  size_t operand_bytes() const;
  double estimate_us() const;
  void run(const RnnLayer&, void* operand, void* scratch) const;

 private:
  struct OfLayer {
    bool copies_input = false;
    Product input, state, state_n;  // state_n: the gate n of a GRU, which sees other gradients, or another operand
  };
  OfLayer of_layer(int64_t layer, const Device&) const;
  void add_up_biases(const RnnLayer&, int64_t direction) const;
  RnnProblem p_{};
  OfLayer first_, others_;
};

}  // namespace minidnn::cpu::rnn
