// SPDX-License-Identifier: Apache-2.0
// The type of the problem of a matrix product, and the arithmetic that CPU and CUDA engines share:
//   y = activation(alpha * a @ b + beta * c + bias)
#pragma once
#include "cpp/activation/activation_math.h"

namespace minidnn {

// The shapes, strides, dtypes and options of a matrix product. Strides express transposes and broadcasts. Every operand
// has the full batch shape. If an operand is broadcast in a dimension, its stride in this dimension is 0.
struct MatmulProblem {
  // The descriptor of the operand a. Its shape is [..., M, K].
  TensorDesc a;
  // The descriptor of the operand b. Its shape is [..., K, N], and its dtype is that of a.
  TensorDesc b;
  // The descriptor of c [..., M, N]. c has the dtype of y, and may be the same memory as y. The rank is 0 if there is
  // no c.
  TensorDesc c;
  // The descriptor of y [..., M, N]. y has the dtype of a, or is float32 if a is 16-bit.
  TensorDesc y;
  // The stride in elements of the bias [N]. The bias has the dtype of a.
  int64_t bias_stride = 0;
  int64_t has_bias = 0;
  int64_t ieee = 0;  // 1 if float32 products stay float32; 0 if engines may round operands to TF32
  // The alignment in bytes that all tensors have: at most 16, and less than 16 only on a GPU.
  int64_t alignment = 16;
  Activation activation{};
};

struct MatmulArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  // the data of c, which is not read if beta is 0
  const void* bias = nullptr;
  void* y = nullptr;
  double alpha = 1, beta = 0, activation_alpha = 0;
};

struct MatmulSizes {
  int64_t batch, m, n, k;
};

MINIDNN_HD MatmulSizes sizes_of(const MatmulProblem& p) {
  int r = int(p.y.rank);
  MatmulSizes s{1, p.y.shape[r - 2], p.y.shape[r - 1], p.a.shape[r - 1]};
  for (int i = 0; i < r - 2; ++i) s.batch *= p.y.shape[i];
  return s;
}

// A matrix of a batch: its data and strides. `data` is null if the matrix is an optional operand that the caller did
// not pass.
template <class T>
struct Matrix {
  T* data;
  int64_t row, column;  // strides in elements: from one row to the next, and from one column to the next
  MINIDNN_HD T* at(int64_t i, int64_t j) const { return data + i * row + j * column; }
};

// Returns matrix number `batch` of a tensor [..., rows, columns]. The matrices of a batch are numbered in row-major
// order of the batch dimensions. The type Void is void or const void.
template <class T, class Void>
MINIDNN_HD Matrix<T> matrix(Void* data, const TensorDesc& d, int64_t batch) {
  int64_t offset = 0;
  for (int i = int(d.rank) - 3; i >= 0; --i) {
    offset += batch % d.shape[i] * d.stride[i];
    batch /= d.shape[i];
  }
  return {static_cast<T*>(data) + offset, d.stride[d.rank - 2], d.stride[d.rank - 1]};
}

// The epilogue of a matrix product. It reads c and the bias, and writes y. T is the type of a, and Y is the type of y.
template <class T, class Y>
struct MatmulEpilogue {
  using Acc = Accumulator<T>;
  Matrix<Y> y;
  Matrix<const Y> c;
  const T* bias;
  int64_t bias_stride;
  Acc alpha, beta, activation_alpha;

  MINIDNN_HD MatmulEpilogue(const MatmulProblem& p, const MatmulArgs& a, int64_t batch)
      : y(matrix<Y>(a.y, p.y, batch)),
        c(p.c.rank && a.beta != 0 ? matrix<const Y>(a.c, p.c, batch) : Matrix<const Y>{nullptr, 0, 0}),
        bias(p.has_bias ? static_cast<const T*>(a.bias) : nullptr),
        bias_stride(p.bias_stride),
        alpha(Acc(a.alpha)),
        beta(Acc(a.beta)),
        activation_alpha(Acc(a.activation_alpha)) {}

  template <Activation mode>
  MINIDNN_HD void store(Acc sum, int64_t i, int64_t j) const {
    Acc v = linear(sum, i, j);
    *y.at(i, j) = Y(activate<mode>(v, activation_alpha));
  }
  MINIDNN_HD void store(Activation mode, Acc sum, int64_t i, int64_t j) const {
    Acc v = linear(sum, i, j);
    *y.at(i, j) = Y(activate(mode, v, activation_alpha));
  }

 private:
  MINIDNN_HD Acc linear(Acc sum, int64_t i, int64_t j) const {
    Acc v = alpha * sum;
    if (c.data) v += beta * Acc(*c.at(i, j));
    if (bias) v += Acc(bias[j * bias_stride]);
    return v;
  }
};

// Computes element i of a matrix product y. Elements are counted in row-major order.
template <class T, class Y>
MINIDNN_HD void matmul_element(const MatmulProblem& p, const MatmulArgs& args, int64_t i) {
  using Acc = Accumulator<T>;
  MatmulSizes s = sizes_of(p);
  int64_t column = i % s.n, row = i / s.n % s.m, batch = i / s.n / s.m;
  Matrix<const T> a = matrix<const T>(args.a, p.a, batch), b = matrix<const T>(args.b, p.b, batch);
  Acc sum = 0;
  for (int64_t k = 0; k < s.k; ++k) sum += Acc(*a.at(row, k)) * Acc(*b.at(k, column));
  MatmulEpilogue<T, Y>(p, args, batch).store(p.activation, sum, row, column);
}

}  // namespace minidnn
