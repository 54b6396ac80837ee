// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/epilogue/output.h"

#include <algorithm>

#include "cpp/activation/activation.h"

namespace minidnn {

std::string EpilogueTraits::text() const {
  constexpr const char* stores[] = {"lines", "transposed", "any", "columns", "phases", "summed", "boxes"};
  return cat("minidnn::Activation::", name(activation), bias ? ", true" : ", false", c ? ", true" : ", false",
             ", minidnn::GemmStore::", stores[int(store)]);
}

void divide(GemmOutput& o) {
  for (int j = 0; j < kDigits; ++j) {
    o.m_divisor[j] = FastDivmod(max_of(o.m.digit[j], int64_t(1)));
    o.n_divisor[j] = FastDivmod(max_of(o.n.digit[j], int64_t(1)));
    o.batch_divisor[j] = FastDivmod(max_of(o.batch.digit[j], int64_t(1)));
  }
}

GemmOutput output_of(const GemmView& v, DType y, int64_t alignment, bool has_c, bool has_bias, int64_t n_limit) {
  GemmOutput o;
  o.m = v.m;
  o.n = v.n;
  o.batch = v.batch;
  o.bounds.y_offset = v.y_offset;
  o.y_m = v.y_m;
  o.y_n = v.y_n;
  o.y_batch = v.y_batch;
  if (has_c) {
    o.c_m = v.c_m;
    o.c_n = v.c_n;
    o.c_batch = v.c_batch;
  }
  if (has_bias) {
    o.bias_by_row = std::ranges::any_of(v.bias_m.of, [](int64_t s) { return s != 0; });
    o.bias = o.bias_by_row ? v.bias_m : v.bias_n;
    o.bias_batch = v.bias_batch;
  }
  GemmStrides none;
  join(o.m, {&o.y_m, &o.c_m, o.bias_by_row ? &o.bias : &none});
  join(o.n, {&o.y_n, &o.c_n, o.bias_by_row ? &none : &o.bias});
  join(o.batch, {&o.y_batch, &o.c_batch, &o.bias_batch});
  std::ranges::copy(o.m.digit, o.bounds.limit);
  divide(o);
  o.n_limit = n_limit && n_limit < v.n.digit[kDigits - 1] ? n_limit : o.n.digit[kDigits - 1];
  // Whether vectors of `count` elements along an index (m or n) are contiguous, aligned and inside of the tensor.
  // `across` and `b` are the strides of the other index and of the batch.
  auto neighbours = [&](int64_t count, const GemmIndex& index, int64_t limit, const GemmStrides& along,
                        const GemmStrides& across, const GemmStrides& b, int64_t offset) {
    const int64_t last = kDigits - 1;
    bool all = along.of[last] == 1 && index.digit[last] % count == 0 && limit % count == 0 && offset % count == 0;
    for (int j = 0; j < kDigits; ++j)
      all = all && across.of[j] % count == 0 && b.of[j] % count == 0 && (j == last || along.of[j] % count == 0);
    return all;
  };
  const int64_t item = int64_t(itemsize(y)), offset = o.bounds.y_offset;
  const bool aligned = alignment >= min_of(8 * item, int64_t(16));
  o.y_vectors = aligned && neighbours(8, o.n, o.n_limit, o.y_n, o.y_m, o.y_batch, offset);
  o.c_vectors = has_c && aligned && neighbours(8, o.n, o.n_limit, o.c_n, o.c_m, o.c_batch, 0);
  o.bias_along_n = !has_bias || (!o.bias_by_row && o.bias.of[kDigits - 1] == 1);
  o.y_transposed = item == 2 && alignment >= 8 && !has_c && o.bias_along_n && o.n.first == kDigits - 1 &&
                   neighbours(4, o.m, o.bounds.limit[kDigits - 1], o.y_m, o.y_n, o.y_batch, offset);
  o.y_columns = y == DType::float32 && alignment >= 16 && (!has_bias || o.bias_by_row) &&
                neighbours(4, o.m, o.bounds.limit[kDigits - 1], o.y_m, o.y_n, o.y_batch, offset) &&
                (!has_c || neighbours(4, o.m, o.bounds.limit[kDigits - 1], o.c_m, o.c_n, o.c_batch, 0));
  return o;
}

GemmStore store_of(const GemmOutput& o, bool has_c) {
  if (o.y_transposed) return GemmStore::transposed;
  const bool lines = o.n.first == kDigits - 1 && o.y_vectors && (!has_c || o.c_vectors) && o.bias_along_n;
  return lines ? GemmStore::lines : GemmStore::any;
}

double scattered_c_us(const GemmTask& t, GemmStore with_c, GemmStore without_c, const Device& d) {
  if (with_c != GemmStore::any || without_c == GemmStore::any) return 0;
  // Clocks of an SM for each element, fitted to 8192 x 1024 on an H100, where strides of c made little difference.
  const double clocks = itemsize(t.y) == 4 ? 2 : 1, clocks_per_us = 1700;
  double elements = 0;
  for (const GemmView& v : t.views) elements += double(v.m.size) * double(v.n.size) * double(v.batch.size);
  return elements * clocks / (d.sm_count * clocks_per_us);
}

}  // namespace minidnn
