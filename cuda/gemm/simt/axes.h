// SPDX-License-Identifier: Apache-2.0
// Views as the host of simt/kernel.cu arranges them: an index is an axis of digits, which are sorted and joined for
// memory access. Host only.
#pragma once
#include <array>
#include <vector>

#include "cuda/gemm/simt/simt_params.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn::simt {

constexpr int64_t kItem = sizeof(float);
constexpr int64_t kMost = (int64_t(1) << 31) - 1;  // limit of numbers that the kernel keeps in 32 bits

// A digit of an index and everything that depends on it: its strides in elements in each tensor that uses the index,
// and what it adds to the coordinates (`position`) and the tap numbers (`tap`) of a window. The enums below number the
// tensors.
constexpr int kTensors = 5;
struct Digit {
  int64_t size = 1;
  std::array<int64_t, kTensors> stride{};
  std::array<int64_t, 3> position{}, tap{};

  bool moves_window() const { return position != std::array<int64_t, 3>{} || tap != std::array<int64_t, 3>{}; }
};
using Axis = std::vector<Digit>;                          // the last digit is fastest
enum { kOperand, kY, kC, kBias };                         // tensors of rows and columns
enum { kA, kB };                                          // tensors of k
enum { kBatchA, kBatchB, kBatchY, kBatchC, kBatchBias };  // tensors of the batch

int64_t size_of(const Axis&);
// A score of how well 8 threads read along an axis: the number of neighbours in memory (at most 8), divided by their
// distance.
double neighbourhood(Axis, int tensor);
// Whether four neighbours along the last digit of the axis, from a multiple of four on, are 16 aligned bytes of a
// tensor for all values of the other digits.
bool in_vectors(const Axis&, int tensor, bool through_window, int64_t alignment, int64_t offset,
                std::initializer_list<std::pair<const Axis*, int>> others);

struct Product {
  Axis m, n, k, batch;
  int64_t a_offset, b_offset, y_offset;
  SimtWindow window;
  bool windowed = false;  // a is read through a window and some elements are outside
  int tap_bits = 0;
  bool a_along_k = false, b_along_k = false;
};

Product product_of(const GemmView&);

// Which operand becomes a: the windowed one, if its window reaches outside in any phase. Otherwise the choice is free.
enum class OperandOrder { as_they_are, exchanged, free };
OperandOrder operand_order_of(const GemmTask&);
// How many tiles cover a view. If the choice of a is free, the better one counts.
int64_t tiles_over(const GemmView&, OperandOrder, int64_t tile_m, int64_t tile_n);

// The products of all phases for a tile of m x n. The order of additions in an element does not depend on which operand
// is a: a product and its transpose have the same bits.
struct Products {
  std::vector<Product> phases;
  bool exchanged = false;
};
Products products_of(const GemmTask&, int64_t tile_m, int64_t tile_n);

}  // namespace minidnn::simt
