// SPDX-License-Identifier: Apache-2.0
#include "cuda/rnn/products.h"

#include <algorithm>

#include "cuda/runtime/plan.h"

namespace minidnn::cuda::rnn {
namespace {

KernelSpec finish_spec(DType type) {
  return {"cuda/rnn/products.cu", cat("minidnn::rnn_finish_input_gradient<", cuda_name(type), ">")};
}

}  // namespace

InputProducts::InputProducts(const RnnProblem& p, const Device& d) : p_(p), device_(d) {
  const bool forward = p.direction == RnnDirection::forward;
  const int64_t rows = p.rows(), gates = p.gates() * p.hidden;
  const MatrixRows x(p, p.x);
  const DType type = p.x.dtype, sums = sum_dtype(type);
  has_sums_ = !forward && (p.directions == 2 || x.by_sequence);
  const auto product = [&](int64_t layer) {
    const int64_t inputs = p.input_size(layer), pitch = layer ? inputs : x.pitch;
    if (forward)
      return Product(p, d, matrix(type, rows, inputs, pitch), matrix(type, inputs, gates, 1, inputs),
                     matrix(sums, rows, gates, p.directions * gates));
    const bool as_sums = layer || has_sums_;
    return Product(p, d, matrix(type, rows, gates, p.gate_gradients() * p.hidden), matrix(type, gates, inputs, inputs),
                   matrix(as_sums ? sums : type, rows, inputs, as_sums ? inputs : pitch));
  };
  first_ = product(0);
  if (p.layers > 1) others_ = product(1);
}

void InputProducts::build() {
  first_.build(device_);
  others_.build(device_);
  if (p_.direction == RnnDirection::backward_data && (has_sums_ || p_.has_dropout))
    finish_ = load_kernel(finish_spec(p_.x.dtype), device_.place.index);
}

std::vector<KernelSpec> InputProducts::kernels(std::span<const DType> types) {
  std::vector<KernelSpec> all;
  for (DType t : types) all.push_back(finish_spec(t));
  return all;
}

size_t InputProducts::workspace_bytes() const {
  return std::max(first_.choice.workspace_bytes, others_.choice.workspace_bytes);
}

size_t InputProducts::sums_bytes() const {
  const bool forward = p_.direction == RnnDirection::forward;
  const int64_t width = forward ? p_.directions * p_.gates() * p_.hidden : has_sums_ ? p_.input_size(0) : 0;
  return size_t(p_.rows() * width) * itemsize(sum_dtype(p_.x.dtype));
}

double InputProducts::estimate_us() const {
  return double(p_.directions) * (first_.choice.estimate_us + double(p_.layers - 1) * others_.choice.estimate_us);
}

InputProducts::Rows InputProducts::rows_of(const RnnLayer& l) const {
  if (MatrixRows(p_, l.in).by_sequence) return {1, p_.steps};
  return {p_.batch, 1};
}

void InputProducts::run_forward(const RnnLayer& l, void* sums, void* scratch, Stream stream) const {
  const size_t of_direction = size_t(p_.gates() * p_.hidden) * itemsize(sum_dtype(p_.x.dtype));
  for (int64_t d = 0; d < p_.directions; ++d)
    (l.index ? others_ : first_)
        .run(l.in_data, l.weights[d][kInputWeight], static_cast<char*>(sums) + size_t(d) * of_direction, false, scratch,
             stream);
}

void InputProducts::run_backward(const RnnLayer& l, void* sums, void* scratch, Stream stream) const {
  const bool in_sums = l.index == 0 && has_sums_;
  void* const to = in_sums ? sums : l.din_data;
  const size_t of_direction = size_t(p_.rows() * p_.gate_gradients() * p_.hidden) * itemsize(p_.x.dtype);
  for (int64_t d = 0; d < p_.directions; ++d)
    (l.index ? others_ : first_)
        .run(static_cast<const char*>(l.dgates) + size_t(d) * of_direction, l.weights[d][kInputWeight], to, d > 0,
             scratch, stream);
  if (!in_sums && !(l.index && p_.has_dropout)) return;
  void* const dx = in_sums ? l.din_data : nullptr;
  const int64_t elements = p_.rows() * p_.input_size(l.index);
  launch(*finish_, elementwise_launch(elements, device_), stream, to, dx, l.in, elements, l);
}

}  // namespace minidnn::cuda::rnn
