// SPDX-License-Identifier: Apache-2.0
// Trains a small network with the C++ interface: convolution, batch norm with relu, global pooling, a matrix product,
// and cross-entropy. The gradient of the filter is compared with differences of the loss, and the loss must fall.
//
//   train_step [DEVICE]    -1 is the CPU (the default), 0 the first GPU
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <minidnn/minidnn.hpp>
#include <vector>

namespace dnn = minidnn;

struct Network {
  dnn::Handle handle;
  dnn::Tensor filter, scale, shift, weight;

  struct Gradients {
    double loss;
    dnn::Tensor filter, scale, shift, weight;
  };

  Gradients gradients(const dnn::Tensor& x, const dnn::Tensor& target) const {
    const dnn::Call call{.handle = handle};
    const dnn::ConvOptions conv{.padding = 1};
    const dnn::PoolOptions global{.mode = "avg", .adaptive_size = 1};
    const dnn::Tensor y = dnn::conv_forward(x, filter, conv, call);
    const auto norm = dnn::batch_norm_forward_training(y, scale, shift, {.relu = true}, call);
    const dnn::Tensor pooled = dnn::pool_forward(norm.y, global, call);
    const dnn::Tensor features = pooled.reshape({x.shape()[0], -1}, handle);
    const dnn::Tensor logits = dnn::matmul(features, weight, {}, call);
    const auto [loss, lse] = dnn::cross_entropy_forward(logits, target, {}, call);

    dnn::Tensor one({}, {.handle = handle});
    one.fill(1, handle);
    const dnn::Tensor dlogits = dnn::cross_entropy_backward(one, logits, target, lse, {}, call);
    const dnn::Tensor dweight = dnn::matmul(features, dlogits, {.transpose_a = true}, call);
    const dnn::Tensor dfeatures = dnn::matmul(dlogits, weight, {.transpose_b = true}, call);
    const dnn::Tensor dpooled = dfeatures.reshape(pooled.shape(), handle);
    const dnn::Tensor dnorm = dnn::pool_backward(dpooled, norm.y, pooled, global, {}, call);
    const auto d = dnn::batch_norm_backward(dnorm, y, scale, norm.saved_mean, norm.saved_inv_std,
                                            {.relu = true, .y = norm.y}, call);
    const dnn::Tensor dfilter = dnn::conv_backward_filter(d.dx, x, filter.shape(), conv, call);
    return {double(loss.to_vector<float>(handle)[0]), dfilter, d.dscale, d.dbias, dweight};
  }

  void step(const Gradients& g, double rate) const {  // parameter -= rate * gradient, in place
    const auto descend = [&](const dnn::Tensor& parameter, const dnn::Tensor& gradient) {
      dnn::transform(gradient, {.alpha = -rate, .beta = 1}, {.out = parameter, .handle = handle});
    };
    descend(filter, g.filter);
    descend(scale, g.scale);
    descend(shift, g.shift);
    descend(weight, g.weight);
  }
};

// The derivative of the loss by one element of the filter, from two losses.
static double difference_quotient(const Network& net, const dnn::Tensor& x, const dnn::Tensor& target, size_t i) {
  std::vector<float> values = net.filter.to_vector<float>(net.handle);
  const float value = values[i], h = 1e-3f;
  double loss[2];
  for (int side : {0, 1}) {
    values[i] = side ? value + h : value - h;
    net.filter.copy_from(std::span<const float>(values), net.handle);
    loss[side] = net.gradients(x, target).loss;
  }
  values[i] = value;
  net.filter.copy_from(std::span<const float>(values), net.handle);
  return (loss[1] - loss[0]) / (2 * h);
}

int main(int count, char** arguments) try {
  const dnn::Device device{count > 1 ? std::atoi(arguments[1]) : MINIDNN_CPU};
  const dnn::Handle handle({.device = device, .deterministic = true, .ieee = true});
  const dnn::TensorOptions here{.handle = handle};
  const Network net{handle, dnn::Tensor({8, 3, 3, 3}, here), dnn::Tensor({8}, here), dnn::Tensor({8}, here),
                    dnn::Tensor({8, 4}, here)};
  const dnn::Call call{.handle = handle};
  dnn::fill_normal(net.filter, 1, 0, 0, 0.3, call);
  dnn::fill_normal(net.weight, 2, 0, 0, 0.5, call);
  net.scale.fill(1, handle);
  net.shift.fill(0, handle);
  const dnn::Tensor x({16, 3, 8, 8}, here);
  dnn::fill_normal(x, 3, 0, 0, 1, call);
  std::vector<int64_t> labels(16);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = int64_t(i % 4);
  const dnn::Tensor target = dnn::Tensor::from(labels, {16}, handle);

  const Network::Gradients first = net.gradients(x, target);
  const std::vector<float> dfilter = first.filter.to_vector<float>(handle);
  double largest = 0, worst = 0;
  for (float d : dfilter) largest = std::max(largest, std::abs(double(d)));
  for (size_t i : {0u, 50u, 100u, 215u})
    worst = std::max(worst, std::abs(difference_quotient(net, x, target, i) - double(dfilter[i])));

  double loss = first.loss;
  for (int step = 0; step < 100; ++step) {
    const Network::Gradients g = net.gradients(x, target);
    loss = g.loss;
    net.step(g, 0.5);
  }
  std::cout << "largest error of the gradient " << worst << " of " << largest << ", loss " << first.loss << " -> "
            << loss << '\n'
            << dnn::explain([&] { dnn::conv_forward(x, net.filter, {.padding = 1}, call); });
  return worst < 0.01 * largest && loss < 0.7 * first.loss ? 0 : 1;
} catch (const dnn::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
