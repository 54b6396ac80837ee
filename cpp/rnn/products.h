// SPDX-License-Identifier: Apache-2.0
// Matrix products as parts of engines of recurrent layers.
#pragma once
#include "cpp/matmul/matmul.h"
#include "cpp/rnn/rnn.h"

namespace minidnn::rnn {

// The parts of the workspace of a call, one after the other.
struct WorkspaceParts {
  size_t bytes = 0;

  // Adds a part. Returns its offset.
  size_t add(size_t size) {
    const size_t at = bytes;
    bytes += size_t(round_up(int64_t(size), 256));
    return at;
  }
};

inline TensorDesc matrix(DType type, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride = 1) {
  TensorDesc d{type, 2};
  d.shape[0] = rows;
  d.shape[1] = columns;
  d.stride[0] = row_stride;
  d.stride[1] = column_stride;
  return d;
}

// The rows of a tensor [T, N, features], or [rows, features] of packed rows, as those of a matrix: in the order of steps
// or, if `by_sequence`, of sequences.
struct MatrixRows {
  bool exist = false, by_sequence = false;
  int64_t pitch = 0;

  MatrixRows(const RnnProblem& p, const TensorDesc& d) {
    if (d.stride[d.rank - 1] != 1 && d.shape[d.rank - 1] != 1) return;
    const int64_t step = d.stride[0], row = d.rank == 3 ? d.stride[1] : 0;
    const bool by_step = p.steps == 1 || step == p.batch * row;
    by_sequence = !p.packed && p.batch > 1 && !by_step && row == p.steps * step;
    exist = p.packed || p.batch == 1 || by_step || by_sequence;
    pitch = p.packed || p.batch == 1 || by_sequence ? step : row;
  }
};

// y = a b, or y += a b.
struct Product {
  MatmulProblem problem;
  SelectedPlan<MatmulProblem> choice;

  Product() = default;
  Product(const RnnProblem& p, const Device& d, const TensorDesc& a, const TensorDesc& b, const TensorDesc& y) {
    problem.a = a;
    problem.b = b;
    problem.c = problem.y = y;
    problem.ieee = p.ieee;
    // The parts of tensors that belong to a direction or a gate begin at multiples of H elements.
    const int64_t size = int64_t(itemsize(p.x.dtype));
    problem.alignment = p.hidden * size % p.alignment == 0 ? p.alignment : size;
    choice = choose_on(d, problem);
  }
  void build(const Device& d) {
    if (choice.engine) choice.plan = choice.engine->build(problem, d, choice.config);
  }
  void run(const void* a, const void* b, void* y, bool adds, void* workspace, Stream stream) const {
    choice.plan->run({a, b, y, nullptr, y, 1, adds ? 1.0 : 0.0, 0}, workspace, stream);
  }
};

}  // namespace minidnn::rnn
