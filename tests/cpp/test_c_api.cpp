// SPDX-License-Identifier: Apache-2.0
// Tests of the C interface through its public header. A wrong argument gives its status and a message, and changes
// nothing: results keep their values, and memory of the caller is released once. Some results are compared with
// definitions; tests/ in Python checks the arithmetic of all functions.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "include/minidnn/minidnn.h"
#include "include/minidnn/minidnn.hpp"
#include "third_party/dlpack/dlpack.h"

static int failures = 0;
#define CHECK(condition)                                                                                             \
  do {                                                                                                               \
    if (!(condition)) {                                                                                              \
      ++failures;                                                                                                    \
      std::cout << __FILE__ << ':' << __LINE__ << ": " #condition ": " << minidnnGetLastErrorMessage() << std::endl; \
    }                                                                                                                \
  } while (0)

// CHECK_FAILS(call, status, words): the call returns this status, and the message of the error contains the words.
static void check_fails(int line, minidnnStatus_t got, minidnnStatus_t wanted, const std::string& words) {
  const std::string message = minidnnGetLastErrorMessage();
  if (got == wanted && message.find(words) != message.npos) return;
  ++failures;
  std::cout << __FILE__ << ':' << line << ": got " << minidnnGetStatusName(got) << ": " << message << "\n  wanted "
            << minidnnGetStatusName(wanted) << ": ..." << words << "...\n";
}
#define CHECK_FAILS(call, status, words) check_fails(__LINE__, call, MINIDNN_STATUS_##status, words)

static minidnnTensor_t make(std::vector<int64_t> shape, minidnnDType_t dtype = MINIDNN_FLOAT32) {
  minidnnTensor_t t = nullptr;
  CHECK(minidnnTensorCreate(nullptr, dtype, int64_t(shape.size()), shape.data(), nullptr, &t) == 0);
  return t;
}

static void test_null_pointers() {
  minidnnTensor_t x = make({1, 2, 4, 4}), w = make({3, 2, 3, 3}), y = nullptr;
  CHECK_FAILS(minidnnConvForward(nullptr, nullptr, w, nullptr, nullptr, nullptr, &y), INVALID_ARGUMENT,
              "minidnnConvForward: x must not be NULL");
  CHECK_FAILS(minidnnConvForward(nullptr, x, nullptr, nullptr, nullptr, nullptr, &y), INVALID_ARGUMENT,
              "w must not be NULL");
  CHECK_FAILS(minidnnConvForward(nullptr, x, w, nullptr, nullptr, nullptr, nullptr), INVALID_ARGUMENT,
              "y must not be NULL");
  CHECK_FAILS(minidnnConvBackwardData(nullptr, x, w, 4, nullptr, nullptr, &y), INVALID_ARGUMENT,
              "x_shape must not be NULL");
  CHECK_FAILS(minidnnPointwise(nullptr, nullptr, x, nullptr, nullptr, nullptr, &y), INVALID_ARGUMENT, "op must not be");
  CHECK_FAILS(minidnnReduce(nullptr, nullptr, x, nullptr, &y), INVALID_ARGUMENT, "mode must not be NULL");
  CHECK_FAILS(minidnnActivationForward(nullptr, nullptr, x, nullptr, &y), INVALID_ARGUMENT, "mode must not be NULL");
  CHECK_FAILS(minidnnConcat(nullptr, nullptr, 2, 0, &y), INVALID_ARGUMENT, "tensors must not be NULL");
  CHECK_FAILS(minidnnPad(nullptr, x, nullptr, nullptr, nullptr, &y), INVALID_ARGUMENT, "before must not be NULL");
  CHECK_FAILS(minidnnTensorGetInfo(x, nullptr), INVALID_ARGUMENT, "info must not be NULL");
  CHECK_FAILS(minidnnTensorCopyToHost(nullptr, x, nullptr, 128), INVALID_ARGUMENT, "to must not be NULL");
  CHECK_FAILS(minidnnTensorToDLPack(x, nullptr), INVALID_ARGUMENT, "managed must not be NULL");
  CHECK_FAILS(minidnnTensorFromDLPack(nullptr, &y), INVALID_ARGUMENT, "managed must not be NULL");
  CHECK_FAILS(minidnnHandleSynchronize(nullptr), INVALID_ARGUMENT, "handle must not be NULL");
  CHECK_FAILS(minidnnHandleCreate(nullptr, nullptr), INVALID_ARGUMENT, "handle must not be NULL");
  CHECK_FAILS(minidnnExplain(nullptr, nullptr, nullptr), INVALID_ARGUMENT, "call must not be NULL");
  CHECK_FAILS(minidnnSetSourceFolder(nullptr), INVALID_ARGUMENT, "folder must not be NULL");
  CHECK_FAILS(minidnnBatchNormBackward(nullptr, x, x, x, x, x, nullptr, nullptr), INVALID_ARGUMENT, "gradients must");
  CHECK(y == nullptr);
  CHECK(minidnnTensorDestroy(nullptr) == 0 && minidnnHandleDestroy(nullptr) == 0);
  minidnnTensorDestroy(x);
  minidnnTensorDestroy(w);
}

static void test_wrong_values() {
  minidnnTensor_t x = make({1, 2, 4, 4}), w = make({3, 5, 3, 3}), w64 = make({3, 2, 3, 3}, MINIDNN_FLOAT64);
  minidnnTensor_t y = nullptr, small = make({1, 1});
  CHECK_FAILS(minidnnConvForward(nullptr, x, w, nullptr, nullptr, nullptr, &y), SHAPE_ERROR,
              "w must be [K, 2, R, S]; got [3, 5, 3, 3]");
  CHECK_FAILS(minidnnConvForward(nullptr, x, w64, nullptr, nullptr, nullptr, &y), DTYPE_ERROR, "w is float64");
  CHECK_FAILS(minidnnPoolForward(nullptr, x, nullptr, &y), SHAPE_ERROR, "window");
  CHECK_FAILS(minidnnActivationForward(nullptr, "rleu", x, nullptr, &y), SHAPE_ERROR, "rleu");
  CHECK_FAILS(minidnnPointwise(nullptr, "ad", x, x, nullptr, nullptr, &y), SHAPE_ERROR, "'ad'");
  CHECK_FAILS(minidnnReduce(nullptr, "sums", x, nullptr, &y), SHAPE_ERROR, "sums");
  minidnnSoftmaxOptions_t softmax = MINIDNN_SOFTMAX_OPTIONS_INIT;
  softmax.axis = 4;
  CHECK_FAILS(minidnnSoftmaxForward(nullptr, x, nullptr, &softmax, &y), SHAPE_ERROR, "axis must be from -4 to 3");
  minidnnConvOptions_t conv = MINIDNN_CONV_OPTIONS_INIT;
  conv.algo = "no_such_engine";
  minidnnTensor_t fitting = make({3, 2, 3, 3});
  CHECK_FAILS(minidnnConvForward(nullptr, x, fitting, nullptr, nullptr, &conv, &y), NOT_SUPPORTED, "no engine can run");
  conv.size = 0;
  CHECK_FAILS(minidnnConvForward(nullptr, x, fitting, nullptr, nullptr, &conv, &y), INVALID_ARGUMENT, "_INIT");
  conv.size = sizeof conv + 8;
  CHECK_FAILS(minidnnConvForward(nullptr, x, fitting, nullptr, nullptr, &conv, &y), INVALID_ARGUMENT, "_INIT");
  minidnnNormOptions_t norm = MINIDNN_NORM_OPTIONS_INIT;
  norm.norm = 7;
  minidnnTensor_t mean = nullptr, inv_std = nullptr;
  CHECK_FAILS(minidnnNormForward(nullptr, x, nullptr, nullptr, &norm, &y, &mean, &inv_std), INVALID_ARGUMENT, "got 7");
  norm.norm = MINIDNN_GROUP_NORM;
  norm.groups = 0;
  CHECK_FAILS(minidnnNormForward(nullptr, x, nullptr, nullptr, &norm, &y, &mean, &inv_std), SHAPE_ERROR,
              "group_norm_forward: groups must be 1 or more; got 0");
  const int64_t shape[] = {2, -3};
  CHECK_FAILS(minidnnTensorCreate(nullptr, 99, 2, shape, nullptr, &y), INVALID_ARGUMENT, "from 0 to 8; got 99");
  CHECK_FAILS(minidnnTensorCreate(nullptr, 0, 2, shape, nullptr, &y), SHAPE_ERROR, "[2, -3]");
  CHECK_FAILS(minidnnTensorCreate(nullptr, 0, 9, shape, nullptr, &y), SHAPE_ERROR, "rank must be from 0 to 8; got 9");
  CHECK_FAILS(minidnnTensorReshape(nullptr, x, -1, shape, &y), SHAPE_ERROR, "rank must be");
  minidnnHandleOptions_t options = MINIDNN_HANDLE_OPTIONS_INIT;
  minidnnHandle_t handle = nullptr;
  options.device = -2;
  CHECK_FAILS(minidnnHandleCreate(&options, &handle), INVALID_ARGUMENT, "got -2");
  options.device = 4096;
  CHECK_FAILS(minidnnHandleCreate(&options, &handle), DEVICE_ERROR, "");
  CHECK_FAILS(minidnnSetSourceFolder("/nonexistent"), INVALID_ARGUMENT, "/nonexistent");
  CHECK(y == nullptr && mean == nullptr && inv_std == nullptr && handle == nullptr);
  // A call refuses an output of a wrong shape, and does not change the pointer to it.
  y = small;
  CHECK_FAILS(minidnnConvForward(nullptr, x, fitting, nullptr, nullptr, nullptr, &y), SHAPE_ERROR, "must be [1, 3");
  CHECK(y == small);
  CHECK_FAILS(minidnnTensorReshape(nullptr, x, 1, shape, &y), INVALID_ARGUMENT, "reshaped must point to NULL");
  CHECK_FAILS(minidnnTensorCopyFromHost(nullptr, x, shape, 16), SHAPE_ERROR, "bytes must be 128");
  for (minidnnTensor_t t : {x, w, w64, small, fitting}) minidnnTensorDestroy(t);
}

static void test_wrapped_memory() {
  int released = 0;
  auto release = [](void* count) { ++*static_cast<int*>(count); };
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  minidnnTensorInfo_t info = MINIDNN_TENSOR_INFO_INIT;
  info.data = data.data();
  info.rank = 2;
  info.shape[0] = info.strides[1] = 2;
  info.shape[1] = 3;
  info.strides[0] = 1;  // the transpose of a row-major array
  info.read_only = 1;
  minidnnTensor_t t = nullptr, reshaped = nullptr;
  info.data = reinterpret_cast<char*>(data.data()) + 1;
  CHECK_FAILS(minidnnTensorWrap(&info, release, &released, &t), SHAPE_ERROR, "not aligned");
  info.data = nullptr;
  CHECK_FAILS(minidnnTensorWrap(&info, release, &released, &t), SHAPE_ERROR, "null");
  CHECK(released == 0 && t == nullptr);
  info.data = data.data();
  CHECK(minidnnTensorWrap(&info, release, &released, &t) == 0);
  float copy[6];
  CHECK(minidnnTensorCopyToHost(nullptr, t, copy, sizeof copy) == 0);
  const float wanted[] = {1, 3, 5, 2, 4, 6};
  CHECK(std::memcmp(copy, wanted, sizeof copy) == 0);
  CHECK_FAILS(minidnnTensorCopyFromHost(nullptr, t, copy, sizeof copy), SHAPE_ERROR, "read-only");
  minidnnTensor_t view = nullptr;
  const int64_t shape[] = {3}, strides[] = {2};
  CHECK(minidnnTensorView(t, 1, shape, strides, 1, &view) == 0);
  CHECK_FAILS(minidnnTensorView(t, 1, shape, strides, 2, &reshaped), SHAPE_ERROR, "as_strided");
  CHECK(minidnnTensorDestroy(t) == 0);
  CHECK(released == 0);  // the view still uses the memory
  CHECK(minidnnTensorCopyToHost(nullptr, view, copy, 12) == 0 && copy[0] == 2 && copy[2] == 6);
  CHECK(minidnnTensorDestroy(view) == 0);
  CHECK(released == 1);
}

static void test_dlpack() {
  minidnnTensor_t x = make({2, 3}), y = nullptr, z = nullptr;
  CHECK(minidnnTensorFill(nullptr, x, 2.5) == 0);
  DLManagedTensorVersioned* managed = nullptr;
  CHECK(minidnnTensorToDLPack(x, &managed) == 0);
  CHECK(minidnnTensorDestroy(x) == 0);
  CHECK(managed->dl_tensor.ndim == 2 && managed->dl_tensor.shape[1] == 3 &&
        managed->dl_tensor.device.device_type == kDLCPU);
  managed->dl_tensor.dtype.lanes = 4;
  CHECK_FAILS(minidnnTensorFromDLPack(managed, &y), DTYPE_ERROR, "4 lanes");
  managed->dl_tensor.dtype.lanes = 1;  // after the error, the caller still owns `managed`
  CHECK(minidnnTensorFromDLPack(managed, &y) == 0);
  CHECK(minidnnReduce(nullptr, "sum", y, nullptr, &z) == 0);
  float sum = 0;
  CHECK(minidnnTensorCopyToHost(nullptr, z, &sum, sizeof sum) == 0 && sum == 15);
  minidnnTensorDestroy(y);
  minidnnTensorDestroy(z);
}

static void test_messages_of_threads() {
  minidnnTensor_t y = nullptr;
  CHECK_FAILS(minidnnPoolForward(nullptr, nullptr, nullptr, &y), INVALID_ARGUMENT, "minidnnPoolForward: x");
  std::string other = "?";
  std::thread([&] { other = minidnnGetLastErrorMessage(); }).join();
  CHECK(other.empty());
  CHECK(std::string(minidnnGetLastErrorMessage()).find("minidnnPoolForward: x") == 0);
  CHECK(std::string(minidnnGetStatusName(99)) == "an unknown status");
  CHECK(std::string(minidnnGetVersion()) == MINIDNN_VERSION);
}

static void test_options_of_an_earlier_version() {  // a shorter struct keeps the defaults of what it lacks
  minidnnTensor_t x = make({1, 1, 1, 1}), y = nullptr;
  minidnnTensorFill(nullptr, x, 3);
  minidnnTransformOptions_t o = MINIDNN_TRANSFORM_OPTIONS_INIT;
  o.size = offsetof(minidnnTransformOptions_t, beta);
  o.alpha = 2;
  o.beta = 100;
  o.dtype = 77;
  CHECK(minidnnTransform(nullptr, x, &o, &y) == 0);
  float value = 0;
  CHECK(minidnnTensorCopyToHost(nullptr, y, &value, sizeof value) == 0 && value == 6);
  minidnnTensorDestroy(x);
  minidnnTensorDestroy(y);
}

// The functions in C++: every family once, with a result that is known.
static bool near(const minidnn::Tensor& t, std::vector<float> wanted) {
  const std::vector<float> got = t.to_vector<float>();
  bool equal = got.size() == wanted.size();
  for (size_t i = 0; equal && i < got.size(); ++i) equal = std::abs(got[i] - wanted[i]) < 1e-5f;
  if (!equal)
    for (float g : got) std::cout << g << ' ';
  return equal;
}

static void test_images() {
  using namespace minidnn;
  Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3});
  Tensor w = Tensor::from<float>({1, 0, 0, 1}, {1, 1, 2, 2}), bias = Tensor::from<float>({-9}, {1});
  CHECK(near(conv_forward(x, w), {6, 8, 12, 14}));
  CHECK(near(conv_forward(x, w, {.bias = bias, .activation = "relu"}), {0, 0, 3, 5}));
  CHECK(near(conv_forward(x, w, {.stride = {2, 1}, .padding = {1, 0}, .padding_after = {0, 0}}), {2, 3, 12, 14}));
  CHECK(near(conv_forward(x, w, {.residual = conv_forward(x, w)}), {12, 16, 24, 28}));
  Tensor out({1, 1, 2, 2});
  CHECK(conv_forward(x, w, {}, {.out = out}).get() == out.get() && near(out, {6, 8, 12, 14}));
  ConvStatistics s = conv_forward_statistics(x, w);
  CHECK(near(s.sum, {40}) && near(s.sum_of_squares, {36 + 64 + 144 + 196}));
  Tensor dy = Tensor::from<float>({1, 0, 0, 2}, {1, 1, 2, 2});
  CHECK(near(conv_backward_data(dy, w, x.shape()), {1, 0, 0, 0, 3, 0, 0, 0, 2}));
  CHECK(near(conv_backward_filter(dy, x, w.shape()), {11, 14, 20, 23}));
  CHECK(near(conv_backward_bias(dy), {3}));
  Tensor y = pool_forward(x, {.window = 2, .stride = 1});
  CHECK(near(y, {5, 6, 8, 9}));
  CHECK(near(pool_forward(x, {.mode = "avg", .adaptive_size = 1}), {5}));
  auto [z, indices] = pool_forward_with_indices(x, {.window = 2, .stride = 1}, DType::int32);
  CHECK((near(z, {5, 6, 8, 9}) && indices.to_vector<int32_t>() == std::vector<int32_t>{4, 5, 7, 8}));
  CHECK(near(pool_backward(dy, x, y, {.window = 2, .stride = 1}, indices), {0, 0, 0, 0, 1, 0, 0, 0, 2}));
  Tensor ones({1, 1, 1, 1});
  ones.fill(1);
  Tensor lrn = lrn_forward(ones, {.window = 1, .alpha = 3, .beta = 0.5});
  CHECK(near(lrn, {0.5f}));
  CHECK(near(lrn_backward(ones, ones, {.window = 1, .alpha = 3, .beta = 0.5}), {0.125f}));
  CHECK(near(lcn_forward(ones, {}, {.window = 1, .alpha = 3, .beta = 0.5}), {0.5f}));
  auto [dx, dmeans] = lcn_backward(ones, ones, {}, {.window = 1, .alpha = 3, .beta = 0.5});
  CHECK(near(dx, {0.125f}) && !dmeans);
}

static void test_rows() {
  using namespace minidnn;
  Tensor x = Tensor::from<float>({0, std::log(3.f)}, {1, 2}), dy = Tensor::from<float>({1, 0}, {1, 2});
  Tensor y = softmax_forward(x);
  CHECK(near(y, {0.25f, 0.75f}));
  CHECK(near(softmax_backward(dy, y), {0.1875f, -0.1875f}));
  Tensor target = Tensor::from<int64_t>({1}, {1});
  auto [loss, lse] = cross_entropy_forward(x, target);
  CHECK(near(loss, {-std::log(0.75f)}));
  Tensor one({});
  one.fill(1);
  CHECK(near(cross_entropy_backward(one, x, target, lse), {0.25f, -0.25f}));
  Tensor rows = Tensor::from<float>({1, 3, 5, 5}, {2, 2}), scale = Tensor::from<float>({1, 1}, {2});
  Tensor zero = Tensor::from<float>({0, 0}, {2});
  BatchNormTraining t = batch_norm_forward_training(rows, scale, zero, {.eps = 0});
  CHECK(near(t.y, {-1, -1, 1, 1}) && near(t.saved_mean, {3, 4}));
  CHECK(near(batch_norm_forward_inference(rows, scale, zero, zero, scale, {.eps = 0, .relu = true}), {1, 3, 5, 5}));
  NormGradients g = batch_norm_backward(rows, rows, scale, t.saved_mean, t.saved_inv_std);
  CHECK(near(g.dbias, {6, 8}) && near(g.dx, {0, 0, 0, 0}) && !g.dresidual);
  NormForward n = norm_forward(rows, {}, {});
  CHECK(near(n.mean, {2, 5}));
  CHECK(near(norm_backward(rows, rows, {}, n.mean, n.inv_std).dbias, {6, 8}));
  NormForward rms = norm_forward(rows, {}, {}, {.norm = Norm::rms, .eps = 0});
  CHECK(!rms.mean && near(rms.inv_std, {1 / std::sqrt(5.f), 0.2f}));
  CHECK(near(norm_forward(rows, {}, {}, {.norm = Norm::group, .groups = 2}).mean, {1, 3, 5, 5}));
}

static void test_ctc() {
  using namespace minidnn;
  // Two steps, in which each class has the probability 0.5. Three of four paths have the label 1.
  Tensor x = Tensor::from<float>({0, 0, 0, 0}, {2, 1, 2}), one({});
  one.fill(1);
  const CtcTargets targets{Tensor::from<int64_t>({1}, {1, 1}), Tensor::from<int32_t>({2}, {1}),
                           Tensor::from<int64_t>({1}, {1})};
  const CtcOptions options{.logits = true};
  CtcLoss r = ctc_loss_forward(x, targets, options);
  CHECK(near(r.loss, {-std::log(0.75f)}) && r.lse);
  const float sixth = 1 / 6.f;
  CHECK(near(ctc_loss_backward(one, x, targets, r, options), {sixth, -sixth, sixth, -sixth}));
  CHECK(!ctc_loss_forward(x, targets, {.blank = 0, .reduction = "none"}).lse);
}

static void test_attention() {
  using namespace minidnn;
  Tensor q = Tensor::from<float>({1, 0, 0, 1}, {1, 1, 2, 2}), v = Tensor::from<float>({1, 2, 3, 4}, {1, 1, 2, 2});
  auto forward = attention_forward(q, q, v, {.scale = std::log(3.f), .causal = true});
  CHECK(near(forward.first, {1, 2, 2.5f, 3.5f}) && near(forward.second, {std::log(3.f), std::log(4.f)}));
  Tensor ones({1, 1, 2, 2});
  ones.fill(1);
  AttentionGradients g = attention_backward(ones, q, q, v, forward, {.scale = std::log(3.f), .causal = true});
  CHECK(near(g.dv, {1.25f, 1.25f, 0.75f, 0.75f}) && !g.dbias && !g.dsink);
  // Row 1 of the same problem by a cache, whose heads are dimension 2.
  Tensor one = Tensor::from<float>({0, 1}, {1, 1, 1, 2}), cache = Tensor::from<float>({1, 0, 0, 1}, {1, 2, 1, 2});
  Tensor values = Tensor::from<float>({1, 2, 3, 4}, {1, 2, 1, 2}), lengths = Tensor::from<int32_t>({2}, {1});
  CHECK(
      near(attention_decode(one, cache, values, lengths, {.scale = std::log(3.f), .bshd = true}).first, {2.5f, 3.5f}));
}

static void test_rnn() {
  using namespace minidnn;
  // h = relu(x + 2 h): 1, 4, 11.
  Tensor x = Tensor::from<float>({1, 2, 3}, {3, 1, 1}), dy = Tensor::from<float>({0, 0, 1}, {3, 1, 1});
  const std::vector<Tensor> weights{Tensor::from<float>({1}, {1, 1}), Tensor::from<float>({2}, {1, 1})};
  const RnnOptions options{.mode = "relu", .hidden_size = 1, .bias = false, .training = true};
  RnnResults forward = rnn_forward(x, weights, options);
  CHECK(near(forward.y, {1, 4, 11}) && near(forward.hn, {11}) && !forward.cn && forward.reserve);
  RnnDataGradients g = rnn_backward_data(dy, {}, {}, forward, weights, options);
  CHECK(near(g.dx, {4, 2, 1}) && near(g.dh0, {8}) && !g.dc0 && near(g.dgates, {4, 2, 1}));
  std::vector<Tensor> each = rnn_backward_weights(x, forward, g.dgates, options);
  CHECK(each.size() == 2 && near(each[0], {11}) && near(each[1], {6}));
  std::vector<Tensor> all = rnn_backward_weights(x, forward, g.dgates, options, true);
  rnn_backward_weights(x, forward, g.dgates, all, true, options);
  CHECK(all.size() == 1 && near(all[0], {22, 12}));
  Tensor packed = rnn_pack(weights, options);
  CHECK(near(packed, {1, 2}) && near(rnn_unpack(packed, options)[1], {2}));
  CHECK(near(rnn_forward(x, {&packed, 1}, options).y, {1, 4, 11}));
  bool refused = false;
  try {
    rnn_forward(x, weights, {.mode = "relu", .hidden_size = 2, .bias = false});
  } catch (const ShapeError& e) {
    refused = std::string(e.what()).find("weights[0] (layer 0, forward, w_ih) must be [2, 1]") != std::string::npos;
  }
  CHECK(refused);
}

static void test_elements() {
  using namespace minidnn;
  Tensor a = Tensor::from<float>({1, 2, 3, 4}, {2, 2}), b = Tensor::from<float>({-1, 1}, {2});
  CHECK(near(activation_forward(b, "leaky_relu", 0.5), {-0.5f, 1}));
  CHECK(near(activation_backward(b, b, b, "relu"), {0, 1}));
  CHECK(near(matmul(a, a, {.transpose_b = true, .alpha = 2, .bias = b}), {9, 23, 21, 51}));
  CHECK(near(pointwise("add", a, b), {0, 3, 2, 5}));
  CHECK(near(reduce("sum", a, {.axes = Shape{0}}), {4, 6}) && near(reduce("max", a), {4}));
  CHECK((reduce("sum", a, {.axes = Shape{-1}, .keepdims = true}).shape() == Shape{2, 1}));
  CHECK(near(reduce("sum", a, {.axes = Shape{}}), {1, 2, 3, 4}));
  CHECK(transform(a, {.dtype = DType::int32}).to_vector<int32_t>()[3] == 4);
  const Tensor both[] = {a, a};
  CHECK((concat(both, 1).shape() == Shape{2, 4}));
  CHECK(near(pad(b, {1}, {2}, "constant", 7), {7, -1, 1, 7, 7}));
  Tensor index = Tensor::from<int32_t>({1, 1}, {2});
  CHECK(near(gather(a, index), {3, 4, 3, 4}) && near(gather_backward(a, index, {2, 2}), {0, 0, 4, 6}));
  Tensor random({1000}), again({1000});
  fill_uniform(random, 5);
  fill_uniform(again, 5);
  CHECK(random.to_vector<float>() == again.to_vector<float>());
  fill_normal(again, 5);
  CHECK(std::abs(reduce("mean", again).to_vector<float>()[0]) < 0.2f);
  Tensor dropped = dropout_forward(random, 0.5, 3);
  CHECK(near(dropout_backward(random, 0.5, 3), dropped.to_vector<float>()));
  CHECK(near(a.view({2}, {2}, 1), {2, 4}) && near(a.reshape({-1}), {1, 2, 3, 4}));
  CHECK((Tensor({1, 2, 3, 3}, {.layout = "NHWC"}).strides() == Shape{18, 1, 6, 2}));
  try {
    matmul(a, Tensor({3, 2}));
    CHECK(!"matmul must throw");
  } catch (const ShapeError& e) {
    CHECK(std::string(e.what()).find("matmul") == 0);
  }
}

static void test_choice() {
  using namespace minidnn;
  Tensor x({1, 4, 8, 8}), w({4, 4, 3, 3}), y({1, 4, 6, 6});
  x.fill(1);
  w.fill(1);
  y.fill(-5);
  const std::string report = explain([&] { conv_forward(x, w, {}, {.out = y}); });
  CHECK(report.find("conv forward f32") == 0 && report.find("cpu.conv.") != report.npos);
  CHECK(y.to_vector<float>()[0] == -5);
  const std::string measured = find([&] { conv_forward(x, w, {}, {.out = y}); });
  CHECK(measured.find("us measured") != measured.npos);
  bool refused = false;
  try {
    explain([&] { conv_forward(x, Tensor({4, 3, 3, 3})); });
  } catch (const ShapeError&) {
    refused = true;
  }
  CHECK(refused);
  Handle handle({.deterministic = true, .threads = 1});
  CHECK(conv_forward(x, w, {}, {.algo = "cpu.conv.direct", .handle = handle}).to_vector<float>()[0] == 36);
  handle.synchronize();
}

int main() {
  char folder[] = "/tmp/minidnn-test-XXXXXX";  // the folder in which find() stores its results
  if (!mkdtemp(folder)) return 1;
  setenv("PYMINIDNN_CACHE_DIR", folder, 1);
  CHECK(std::string(minidnnGetLastErrorMessage()).empty());
  test_null_pointers();
  test_wrong_values();
  test_wrapped_memory();
  test_dlpack();
  test_messages_of_threads();
  test_options_of_an_earlier_version();
  test_images();
  test_rows();
  test_ctc();
  test_attention();
  test_rnn();
  test_elements();
  test_choice();
  std::filesystem::remove_all(folder);
  std::cout << (failures ? "FAILED\n" : "all tests passed\n");
  return failures != 0;
}
