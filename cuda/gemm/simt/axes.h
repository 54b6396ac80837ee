// SPDX-License-Identifier: Apache-2.0
// GemmViews in the form that the host side of simt/kernel.cu uses. Each index becomes an Axis. An Axis is a list of
// digits (dimensions of the index), sorted and joined for memory access. Only host code includes this file.
#pragma once
#include <array>
#include <vector>

#include "cuda/gemm/simt/simt_params.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn::simt {

constexpr int64_t kItem = sizeof(float);
// The limit of sizes and coordinates, which the kernel stores in 32 bits.
constexpr int64_t kMost = (int64_t(1) << 31) - 1;

// A digit (dimension) of an index. `stride` are the digit's strides, in elements, in each tensor that uses the index.
// The enums below number these tensors. If the index counts positions of a window, and the digit increases by one,
// position[j] is added to the coordinate in dimension j. If the index counts taps (elements of the window), tap[j] is
// added to the index of the tap in dimension j.
constexpr int kTensors = 5;
struct Digit {
  int64_t size = 1;
  std::array<int64_t, kTensors> stride{};
  std::array<int64_t, 3> position{}, tap{};

  bool moves_window() const { return position != std::array<int64_t, 3>{} || tap != std::array<int64_t, 3>{}; }
};
using Axis = std::vector<Digit>;  // the digits (dimensions) of an index; the last digit changes fastest
// The order of the tensors in Digit::stride: the first enum is for the digits of rows (m) and columns (n), the second
// enum for the digits of k, and the third enum for the digits of the batch.
enum { kOperand, kY, kC, kBias };
enum { kA, kB };
enum { kBatchA, kBatchB, kBatchY, kBatchC, kBatchBias };

int64_t size_of(const Axis&);
// Tells how well neighbouring threads read a tensor along an axis. The score is the number of consecutive elements (at
// most 8) at the smallest stride of the axis, divided by this stride in elements.
double neighbourhood(Axis, int tensor);
// Whether a tensor can be accessed by vectors of four elements (16 aligned bytes) along the last digit (dimension) of
// an index. `others` are all other indices of the tensor.
bool in_vectors(const Axis&, int tensor, bool through_window, int64_t alignment, int64_t offset,
                std::initializer_list<std::pair<const Axis*, int>> others);

struct Product {
  Axis m, n, k, batch;
  int64_t a_offset, b_offset, y_offset;
  SimtWindow window;
  bool windowed = false;  // true if a is read through a window and some elements of the window are outside the tensor
  int tap_bits = 0;
  bool a_along_k = false, b_along_k = false;
};

Product product_of(const GemmView&);

// Whether operands a and b are exchanged. If an operand is read through a window, and an element of the window is
// outside the tensor in any GemmView of the task, this operand must be a. If there is no such operand, the order of the
// operands is free.
enum class OperandOrder { as_they_are, exchanged, free };
OperandOrder operand_order_of(const GemmTask&);
// Returns the number of tiles that cover y. For OperandOrder::free, it is the number for the order that needs fewer
// tiles.
int64_t tiles_over(const GemmView&, OperandOrder, int64_t tile_m, int64_t tile_n);

// A Product for each GemmView of a task (strided backward_data has several), for tiles of tile_m x tile_n elements. The
// order of additions in an element of y does not depend on which operand is a. A product and the transposed product
// therefore have the same bits.
struct Products {
  std::vector<Product> phases;
  bool exchanged = false;
};
Products products_of(const GemmTask&, int64_t tile_m, int64_t tile_n);

}  // namespace minidnn::simt
