// SPDX-License-Identifier: Apache-2.0
// Tests the arguments of the kernel mma/kernel.cu for random problems. The kernel looks up an offset and a mask by the
// row of an element, and another offset and mask by its index along k. These must agree with the GemmView, which
// describes the product by strides. The copied vectors must satisfy the rules of cp.async.
#include "cuda/gemm/mma/gather_index.h"
#include "tests/cpp/random_problems.h"

using namespace minidnn;

// Operand a or b of a matrix product, as the GemmView describes it and as the kernel reads it.
struct OperandPair {
  const GemmOperand& view;
  const GemmIndex& rows;
  const GatherOperand& gather;
  const GatherIndex& gather_rows;
};

static void check_operand(const std::string& text, const GemmView& v, const MmaParams& p, const OperandPair& operand,
                          int64_t element, int64_t alignment) {
  const auto& [o, rows, g, gather_rows] = operand;
  const uint32_t size = uint32_t(element);
  auto address = [&](int64_t row, int64_t k) {
    return o.offset + offset_of(o.row, coordinates_of(rows, row)) + offset_of(o.k, coordinates_of(v.k, k));
  };
  const int64_t count = g.width / element;
  for (int64_t row = 0; row < rows.size; ++row) {
    const GatherEntry at_row = row_entry(gather_rows, g, size, uint32_t(row));
    for (int64_t k = 0; k < v.k.size; ++k) {
      const GatherEntry at_k = k_entry(p.k, g, size, uint32_t(k));
      const bool there = inside(o.window, coordinates_of(rows, row), coordinates_of(v.k, k));
      if (((at_row.mask & at_k.mask) == 0) != there)
        fail(cat(text, ": row ", row, ", k ", k, " is ", there ? "inside" : "outside"));
      if (at_row.offset + at_k.offset + g.offset * element != address(row, k) * element)
        fail(cat(text, ": row ", row, ", k ", k, " is elsewhere"));
      // The kernel loads vectors of several elements, and checks the bounds of the first element only. Therefore, the
      // elements of a vector must be all inside the tensor, or all outside.
      const int64_t along = g.along_k ? k : row, first = along / count * count;
      const int64_t first_row = g.along_k ? row : first, first_k = g.along_k ? first : k;
      if (inside(o.window, coordinates_of(rows, first_row), coordinates_of(v.k, first_k)) != there ||
          address(row, k) != address(first_row, first_k) + along - first ||
          address(first_row, first_k) * element % g.width || alignment % g.width ||
          (g.along_k ? v.k.size : rows.size) % count)
        fail(cat(text, ": a vector of ", g.width, " bytes at row ", row, ", k ", k));
    }
    if ((at_row.mask & k_entry(p.k, g, size, uint32_t(v.k.size)).mask) == 0) fail(cat(text, ": k has no end"));
  }
  if (v.k.size && (row_entry(gather_rows, g, size, uint32_t(rows.size)).mask & k_entry(p.k, g, size, 0).mask) == 0)
    fail(cat(text, ": rows have no end"));
}

// Checks an operand that the kernel mma/kernel.cu reads with a constant step along k, without tables. Within 64 bytes
// along k, the step must be constant, and either all or none of the elements must be inside the tensor.
static void check_slices(const std::string& text, const GemmView& v, const MmaParams& p, const GatherOperand& g,
                         int64_t element) {
  if (g.table) return;
  const int64_t k_of_slice = kSliceBytes / element;
  GemmCoordinates32 at = p.k.coordinates(0);
  uint32_t inner_left = p.inner_slices;
  int64_t offset = 0;
  for (int64_t first = 0; first < v.k.size; first += k_of_slice) {
    const uint32_t mask = kKExists | (g.window.on ? tap_bits(g.window, at) : 0);
    for (int64_t k = first; k < std::min(first + k_of_slice, v.k.size); ++k) {
      const GatherEntry entry = k_entry(p.k, g, uint32_t(element), uint32_t(k));
      if (entry.offset != offset + (k - first) * g.k_step || entry.mask != mask)
        fail(cat(text, ": k ", k, " of the slice from ", first));
    }
    int j = 3;
    if (--inner_left == 0) {
      inner_left = p.inner_slices;
      j = 2;
      if (++at.at[2] >= p.k.by[1].divisor) {
        at.at[2] = 0;
        j = 1;
        if (++at.at[1] >= p.k.by[0].divisor) {
          at.at[1] = 0;
          j = 0;
          ++at.at[0];
        }
      }
    }
    offset += g.advance[j];
  }
}

static void check(const std::string& text, const GemmTask& t) {
  const MmaViews all(t);
  if (!all.why.empty()) return;
  for (size_t i = 0; i < all.views.size(); ++i) {
    const GemmView& v = all.views[i];
    const MmaParams& p = all.phases[i];
    check_operand(text + " a", v, p, {v.a, v.m, p.a, p.m}, all.element, t.alignment);
    check_operand(text + " b", v, p, {v.b, v.n, p.b, p.n}, all.element, t.alignment);
    check_slices(text + " a", v, p, p.a, all.element);
    check_slices(text + " b", v, p, p.b, all.element);
  }
}

static void check_conv() {
  const int64_t groups = pick(1, 2), channels = groups * (pick(0, 3) ? pick(1, 16) : 16 * pick(1, 4)),
                filters = groups * (pick(0, 3) ? pick(1, 16) : 16 * pick(1, 4));
  const DType t = pick(0, 1) ? DType::float16 : DType::float32;
  ConvProblem p = random_conv(t, {groups, channels, filters, pick(1, 2), 8});
  p.alignment = int64_t(itemsize(t)) << pick(0, 2);
  if (p.x.numel() * p.y.numel() < 1000000) check(Family<ConvProblem>::text(p), gemm_task(p));
}

static MatmulProblem matmul(DType t, int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed) {
  MatmulProblem p{described(t, {m, k}, false), described(t, {k, n}, false)};
  if (a_transposed) {
    p.a.stride[0] = 1;
    p.a.stride[1] = m;
  }
  if (b_transposed) {
    p.b.stride[0] = 1;
    p.b.stride[1] = k;
  }
  p.y = described(t, {m, n}, false);
  return p;
}

int main() {
  for (int i = 0; i < 400; ++i) check_conv();
  for (int i = 0; i < 100; ++i) {
    const MatmulProblem p = matmul(pick(0, 1) ? DType::float16 : DType::float32, pick(1, 40), pick(1, 40), pick(0, 40),
                                   pick(0, 1), pick(0, 1));
    check(Family<MatmulProblem>::text(p), gemm_task(p));
  }
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
