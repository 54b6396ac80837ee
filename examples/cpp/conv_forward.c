// SPDX-License-Identifier: Apache-2.0
// The forward pass of a small network through the C interface, on the CPU: a convolution with bias and relu, max
// pooling, and softmax over the channels. The result is compared with loops.
#include <minidnn/minidnn.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                             \
  do {                                                                                          \
    minidnnStatus_t status_ = (call);                                                           \
    if (status_ != MINIDNN_STATUS_SUCCESS) {                                                    \
      fprintf(stderr, "%s: %s\n", minidnnGetStatusName(status_), minidnnGetLastErrorMessage()); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

enum { N = 2, C = 3, H = 8, K = 4, R = 3, P = H / 2 };
static float x_data[N][C][H][H], w_data[K][C][R][R], bias_data[K], y_data[N][K][P][P];

static minidnnTensor_t tensor_of(const void* data, size_t bytes, int64_t rank, const int64_t* shape) {
  minidnnTensor_t t = NULL;
  CHECK(minidnnTensorCreate(NULL, MINIDNN_FLOAT32, rank, shape, NULL, &t));
  CHECK(minidnnTensorCopyFromHost(NULL, t, data, bytes));
  return t;
}

// One element of the convolution with padding 1.
static double conv(int n, int k, int i, int j) {
  double sum = bias_data[k];
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r)
      for (int s = 0; s < R; ++s) {
        const int row = i + r - 1, column = j + s - 1;
        if (row >= 0 && row < H && column >= 0 && column < H) sum += x_data[n][c][row][column] * w_data[k][c][r][s];
      }
  return sum > 0 ? sum : 0;
}

// The largest difference between pooled elements and loops.
static double difference_of_pooling(void) {
  double most = 0;
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < K; ++k)
      for (int i = 0; i < P; ++i)
        for (int j = 0; j < P; ++j) {
          double largest = 0;
          for (int r = 0; r < 4; ++r) {
            const double value = conv(n, k, 2 * i + r / 2, 2 * j + r % 2);
            if (value > largest) largest = value;
          }
          const double difference = largest - y_data[n][k][i][j];
          if (difference > most || -difference > most) most = difference < 0 ? -difference : difference;
        }
  return most;
}

int main(void) {
  srand(1);
  float* all[] = {&x_data[0][0][0][0], &w_data[0][0][0][0], bias_data};
  const int sizes[] = {N * C * H * H, K * C * R * R, K};
  for (int a = 0; a < 3; ++a)
    for (int i = 0; i < sizes[a]; ++i) all[a][i] = (float)rand() / (float)RAND_MAX - 0.5f;

  const int64_t x_shape[] = {N, C, H, H}, w_shape[] = {K, C, R, R}, bias_shape[] = {K};
  minidnnTensor_t x = tensor_of(x_data, sizeof x_data, 4, x_shape);
  minidnnTensor_t w = tensor_of(w_data, sizeof w_data, 4, w_shape);
  minidnnTensor_t bias = tensor_of(bias_data, sizeof bias_data, 1, bias_shape);

  minidnnConvOptions_t conv_options = MINIDNN_CONV_OPTIONS_INIT;
  conv_options.padding_before[0] = conv_options.padding_before[1] = 1;
  conv_options.padding_after[0] = conv_options.padding_after[1] = 1;
  conv_options.activation = "relu";
  minidnnPoolOptions_t pool_options = MINIDNN_POOL_OPTIONS_INIT;
  pool_options.window[0] = pool_options.window[1] = 2;

  // A result that points to NULL receives a new tensor.
  minidnnTensor_t y = NULL, pooled = NULL, probabilities = NULL;
  CHECK(minidnnConvForward(NULL, x, w, bias, NULL, &conv_options, &y));
  CHECK(minidnnPoolForward(NULL, y, &pool_options, &pooled));
  CHECK(minidnnSoftmaxForward(NULL, pooled, NULL, NULL, &probabilities));
  CHECK(minidnnTensorCopyToHost(NULL, pooled, y_data, sizeof y_data));
  const double difference = difference_of_pooling();

  float sum = 0;
  CHECK(minidnnTensorCopyToHost(NULL, probabilities, y_data, sizeof y_data));
  for (int k = 0; k < K; ++k) sum += y_data[1][k][2][3];

  // A wrong call returns a status, and a message that says what is wrong.
  minidnnTensor_t refused = NULL;
  const minidnnStatus_t status = minidnnConvForward(NULL, x, bias, NULL, NULL, NULL, &refused);
  printf("minidnn %s: largest difference %.2g, sum of probabilities %.6f\n%s: %s\n", minidnnGetVersion(), difference,
         (double)sum, minidnnGetStatusName(status), minidnnGetLastErrorMessage());

  minidnnTensor_t tensors[] = {x, w, bias, y, pooled, probabilities};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) CHECK(minidnnTensorDestroy(tensors[i]));
  return !(difference < 1e-5 && sum > 0.9999f && sum < 1.0001f && status == MINIDNN_STATUS_SHAPE_ERROR);
}
