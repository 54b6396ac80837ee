// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/im2col_product.h"

namespace minidnn {
namespace {

// Joins dimensions to one. Returns its stride, or nullopt if they cannot be joined.
std::optional<int64_t> collapsed(std::initializer_list<std::pair<int64_t, int64_t>> sizes_and_strides) {
  std::optional<int64_t> stride;
  int64_t next = 0;
  for (auto it = std::rbegin(sizes_and_strides); it != std::rend(sizes_and_strides); ++it) {
    auto [size, step] = *it;
    if (size == 1) continue;
    if (!stride) stride = step;
    else if (step != next) return std::nullopt;
    next = step * size;
  }
  return stride ? stride : 1;
}

// The strides of one matrix per group and image. Its rows are pixels, or the filters of w.
struct Matrix4 {
  int64_t group = 0, image = 0, row = 0, column = 0;
  Matrix4 transposed() const { return {group, image, column, row}; }
};

// Returns true if the matrices of all images can be treated as one matrix.
bool rows_join(const Matrix4& m, int64_t images, int64_t rows) {
  return images == 1 || rows == 1 || m.image == m.row * rows;
}

// Returns the strides of every step[j]-th pixel of x or y, or nullopt if these pixels have no common stride.
std::optional<Matrix4> pixels(const ConvGeometry& g, const ConvTensorView& s, const int64_t (&step)[kMaxSpatial]) {
  const int64_t* size = g.y.size;
  auto row =
      collapsed({{size[0], s.space[0] * step[0]}, {size[1], s.space[1] * step[1]}, {size[2], s.space[2] * step[2]}});
  if (!row) return std::nullopt;
  return Matrix4{s.channels * s.channel, s.image, *row, s.channel};
}
constexpr int64_t kUnitSteps[] = {1, 1, 1};

// Returns the strides of x or dx if it is its own im2col matrix (a pointwise convolution without padding), else
// nullopt.
std::optional<Matrix4> x_as_columns(const ConvGeometry& g) {
  for (int j = 0; j < kMaxSpatial; ++j) {
    bool inside = g.pad[j] == 0 && (g.y.size[j] - 1) * g.stride[j] < g.x.size[j];
    // backward_data must write every element of dx, so the windows must not skip any pixel of dx.
    bool all = !g.backward_data || (g.stride[j] == 1 && g.y.size[j] == g.x.size[j]);
    if (g.window[j] != 1 || !inside || !all) return std::nullopt;
  }
  return pixels(g, g.x, g.stride);
}

// The strides of w or dw as a matrix [filters, channels x window elements] per group. `taps_last` is true if window
// elements are faster than channels.
struct Filters {
  Matrix4 matrix;
  bool taps_last;
};
std::optional<Filters> filters(const ConvProblem& p, const ConvGeometry& g) {
  int64_t tap[kMaxSpatial]{};
  for (int i = 2, j = kMaxSpatial + 2 - int(p.w.rank); i < p.w.rank; ++i, ++j) tap[j] = p.w.stride[i];
  auto taps_last =
      collapsed({{g.x.channels, g.w_channel}, {g.window[0], tap[0]}, {g.window[1], tap[1]}, {g.window[2], tap[2]}});
  auto channels_last =
      collapsed({{g.window[0], tap[0]}, {g.window[1], tap[1]}, {g.window[2], tap[2]}, {g.x.channels, g.w_channel}});
  if (!taps_last && !channels_last) return std::nullopt;
  bool prefer_channels = channels_last && (!taps_last || g.x.channel == 1);
  return Filters{{g.y.channels * g.w_filter, 0, g.w_filter, prefer_channels ? *channels_last : *taps_last},
                 !prefer_channels};
}

int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

// The im2col matrix of x. Rows (or columns) begin at multiples of 8 elements, as wide loads of 16-bit elements require.
struct Columns {
  ConvColumns to;
  Matrix4 matrix;
};
Columns columns_of(const ConvGeometry& g, bool taps_last, bool flip) {
  ConvColumns m;
  m.g = g;
  m.channels_last = g.x.channel == 1;
  int64_t taps = volume(g.window), elements = g.groups * g.x.channels * taps, rows = g.images * volume(g.y.size);
  int64_t element_step = m.channels_last ? 1 : ceil_div<int64_t>(rows, 8) * 8;
  int64_t row_step = m.channels_last ? ceil_div<int64_t>(elements, 8) * 8 : 1;
  m.position[2] = row_step;
  m.position[1] = m.position[2] * g.y.size[2];
  m.position[0] = m.position[1] * g.y.size[1];
  m.image = m.position[0] * g.y.size[0];
  m.tap[2] = element_step * (taps_last ? 1 : g.x.channels);
  m.tap[1] = m.tap[2] * g.window[2];
  m.tap[0] = m.tap[1] * g.window[1];
  m.channel = element_step * (taps_last ? taps : 1);
  m.group = element_step * g.x.channels * taps;
  if (flip)
    for (int j = 0; j < kMaxSpatial; ++j) {
      m.origin += (g.window[j] - 1) * m.tap[j];
      m.tap[j] = -m.tap[j];
    }
  return {m, {m.group, m.image, row_step, element_step}};
}
TensorDesc matrices(DType dtype, const Matrix4& m, int64_t groups, int64_t images, int64_t rows, int64_t columns) {
  TensorDesc d{dtype};
  auto add = [&](int64_t size, int64_t stride) {
    d.shape[d.rank] = size;
    d.stride[d.rank++] = stride;
  };
  if (groups > 1) add(groups, m.group);
  if (images > 1) add(images, m.image);
  add(rows, m.row);
  add(columns, m.column);
  return d;
}

}  // namespace

double columns_elements(const ConvGeometry& g) {
  double elements = double(g.groups * g.x.channels) * double(volume(g.window));
  double rows = double(g.images) * double(volume(g.y.size));
  return g.x.channel == 1 ? rows * (elements + 7) : elements * (rows + 7);
}

bool has_filter_matrix(const ConvProblem& p) { return filters(p, conv_geometry(p)).has_value(); }

std::string im2col_why_not(const ConvProblem& p) {
  const ConvGeometry g = conv_geometry(p);
  if (p.direction == ConvDirection::forward && !pixels(g, g.y, kUnitSteps))
    return "needs y with a single stride over all spatial positions";
  if (g.has_residual && !pixels(g, g.residual, kUnitSteps))
    return "needs a residual with a single stride over all spatial positions";
  if (g.groups > 1 && p.has_bias && (g.has_residual || out_dtype(p) != operand_dtype(p)))
    return "a bias with groups > 1 is supported only without a residual and with y in the dtype of x";
  if (p.direction != ConvDirection::backward_filter && !filters(p, g))
    return "needs w with a single stride over its channels and window, in either order";
  return "";
}

Im2colChunk im2col_chunk(const ConvProblem& p, int64_t images, bool accumulates) {
  ConvGeometry g = conv_geometry(p);
  g.images = images;
  DType t = operand_dtype(p), to = out_dtype(p), sum = sum_dtype(t);
  int64_t positions = volume(g.y.size), channels = g.x.channels * volume(g.window), k = g.y.channels;
  std::optional<Filters> f = filters(p, g);
  std::optional<Matrix4> x = x_as_columns(g), y = pixels(g, g.y, kUnitSteps), residual;
  if (g.has_residual) residual = pixels(g, g.residual, kUnitSteps);
  bool filter = p.direction == ConvDirection::backward_filter;
  // For dw, the product sums over images and pixels, so both must join to one dimension.
  if (filter) {
    if (x && !rows_join(*x, images, positions)) x = {};
    if (y && !rows_join(*y, images, positions)) y = {};
  }

  Im2colChunk c;
  if (!x) {
    Columns columns = columns_of(g, !f || f->taps_last, p.flip);
    c.x = columns.to;
    x = columns.matrix;
    c.sums_dx = g.backward_data;
    c.gathers_x = !g.backward_data;
  }
  // dy is copied like an im2col matrix for a window of one element.
  if (!y) {
    ConvGeometry pack;
    pack.images = images;
    pack.groups = g.groups;
    pack.x = g.y;
    pack.y = g.y;
    Columns columns = columns_of(pack, true, false);
    c.dy = columns.to;
    y = columns.matrix;
    c.gathers_dy = true;
  }
  // Images and pixels are joined to one dimension, if possible. Otherwise images are a batch dimension.
  bool join = filter || (rows_join(*x, images, positions) && rows_join(*y, images, positions) &&
                         (!residual || rows_join(*residual, images, positions)));
  int64_t batch = join ? 1 : images, rows = join ? images * positions : positions;
  if (join && positions == 1) {
    x->row = x->image;
    y->row = y->image;
    if (residual) residual->row = residual->image;
  }

  MatmulProblem& m = c.product;
  m.ieee = p.ieee;
  // A chunk may begin at any image, so the image strides limit the alignment. With several groups, the bias of a group
  // may begin at any element.
  int64_t bits = p.alignment | g.x.image * int64_t(itemsize(t)) | g.y.image * int64_t(itemsize(p.y.dtype));
  bits |= c.sums_dx ? 0 : g.x.image * int64_t(itemsize(to));
  if (p.has_bias && g.groups > 1) bits |= int64_t(itemsize(t));
  m.alignment = bits & -bits;
  if (p.direction == ConvDirection::forward) {
    m.a = matrices(t, *x, g.groups, batch, rows, channels);
    m.b = matrices(t, f->matrix.transposed(), g.groups, batch, channels, k);
    m.y = matrices(to, *y, g.groups, batch, rows, k);
    if (residual) m.c = matrices(to, *residual, g.groups, batch, rows, k);
    m.activation = p.activation;
    // A batched product has only one bias, so the biases of several groups are passed as operand c, with a row stride
    // of 0.
    if (p.has_bias && g.groups > 1)
      m.c = matrices(t, {k * p.bias_stride, 0, 0, p.bias_stride}, g.groups, batch, rows, k);
    else if (p.has_bias) {
      m.has_bias = 1;
      m.bias_stride = p.bias_stride;
    }
  } else if (p.direction == ConvDirection::backward_data) {
    m.a = matrices(t, *y, g.groups, batch, rows, k);
    m.b = matrices(t, f->matrix, g.groups, batch, k, channels);
    m.y = matrices(c.sums_dx ? sum : to, *x, g.groups, batch, rows, channels);
  } else {
    m.a = matrices(t, y->transposed(), g.groups, 1, k, rows);
    m.b = matrices(t, *x, g.groups, 1, rows, channels);
    Matrix4 packed{k * channels, 0, channels, 1};
    m.y = matrices(accumulates ? sum : to, accumulates ? packed : f->matrix, g.groups, 1, k, channels);
    if (accumulates) m.c = m.y;
  }
  return c;
}

TensorDesc im2col_sums(const ConvProblem& p) {
  ConvGeometry g = conv_geometry(p);
  std::optional<Filters> f = filters(p, g);
  bool taps_last = !f || f->taps_last;
  TensorDesc d = p.w;
  d.dtype = sum_dtype(p.w.dtype);
  d.stride[0] = g.x.channels * volume(g.window);
  d.stride[1] = taps_last ? volume(g.window) : 1;
  int64_t step = taps_last ? 1 : g.x.channels;
  for (int64_t i = d.rank - 1; i > 1; step *= d.shape[i--]) d.stride[i] = step;
  return d;
}

}  // namespace minidnn
