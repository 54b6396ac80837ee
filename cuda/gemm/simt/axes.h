// SPDX-License-Identifier: Apache-2.0
// GemmViews as the host side of simt/kernel.cu uses them. Each index becomes an Axis: a list of its dimensions
// (digits), sorted and joined for memory access. Only host code includes this file.
#pragma once
#include <array>
#include <vector>

#include "cuda/gemm/simt/simt_params.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn::simt {

constexpr int64_t kItem = sizeof(float);
// The limit of sizes and coordinates, which the kernel stores in 32 bits.
constexpr int64_t kMost = (int64_t(1) << 31) - 1;

// A dimension of an index, with its stride (in elements) in each tensor; the enums below number the tensors. One step
// along the dimension moves the window by `position`, and changes the tap by `tap`.
constexpr int kTensors = 5;
struct Digit {
  int64_t size = 1;
  std::array<int64_t, kTensors> stride{};
  std::array<int64_t, 3> position{}, tap{};

  bool moves_window() const { return position != std::array<int64_t, 3>{} || tap != std::array<int64_t, 3>{}; }
};
using Axis = std::vector<Digit>;  // the last dimension changes fastest
// The tensors in Digit::stride: for dimensions of m and n, for those of k, and for those of the batch.
enum { kOperand, kY, kC, kBias };
enum { kA, kB };
enum { kBatchA, kBatchB, kBatchY, kBatchC, kBatchBias };

int64_t size_of(const Axis&);
// A score of memory access along an axis: the length of its innermost run (at most 8 elements), divided by the stride.
double neighbourhood(Axis, int tensor);
// Whether a tensor can be accessed by aligned 16-byte vectors along the last dimension of an index. `others` are its
// other indices.
bool in_vectors(const Axis&, int tensor, bool through_window, int64_t alignment, int64_t offset,
                std::initializer_list<std::pair<const Axis*, int>> others);

struct Product {
  Axis m, n, k, batch;
  int64_t a_offset, b_offset, y_offset;
  SimtWindow window;
  bool windowed = false;  // whether a's window leaves the tensor
  int tap_bits = 0;
  bool a_along_k = false, b_along_k = false;
};

Product product_of(const GemmView&);

// Whether operands a and b are exchanged. An operand whose window leaves the tensor must be a. Without such an operand,
// the order is free.
enum class OperandOrder { as_they_are, exchanged, free };
OperandOrder operand_order_of(const GemmTask&);
// The number of tiles that cover y, in the better of the allowed orders.
int64_t tiles_over(const GemmView&, OperandOrder, int64_t tile_m, int64_t tile_n);

// A Product for each GemmView of a task. The order of additions does not depend on which operand is a, so a product and
// its transpose have the same bits.
struct Products {
  std::vector<Product> phases;
  bool exchanged = false;
};
Products products_of(const GemmTask&, int64_t tile_m, int64_t tile_n);

}  // namespace minidnn::simt
