// SPDX-License-Identifier: Apache-2.0
// The table of the element types (dtypes), and functions that look up its rows.
#include "cpp/core/dtype.h"

#include "cpp/core/text.h"

namespace minidnn {
namespace {

struct Row {
  const char* name;
  const char* short_name;
  const char* cuda_name;
  size_t itemsize;
  double epsilon;
};
constexpr Row kRows[] = {
    // The rows of the table have the order of the enum DType.
    {"float32", "f32", "float", 4, 0x1p-23},
    {"float64", "f64", "double", 8, 0x1p-52},
    {"float16", "f16", "minidnn::float16", 2, 0x1p-10},
    {"bfloat16", "bf16", "minidnn::bfloat16", 2, 0x1p-7},
    {"int8", "i8", "int8_t", 1, 0},
    {"uint8", "u8", "uint8_t", 1, 0},
    {"int32", "i32", "int32_t", 4, 0},
    {"int64", "i64", "int64_t", 8, 0},
    {"bool", "bool", "bool", 1, 0},
};
const Row& row(DType t) { return kRows[int64_t(t)]; }

}  // namespace

std::string name(DType t) { return row(t).name; }
std::string short_name(DType t) { return row(t).short_name; }
std::string cuda_name(DType t) { return row(t).cuda_name; }
size_t itemsize(DType t) { return row(t).itemsize; }
double epsilon(DType t) { return row(t).epsilon; }

std::optional<DType> find_dtype(const std::string& text) {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (text == kRows[i].name || text == kRows[i].short_name) return DType(i);
  return std::nullopt;
}

bool holds(DType t, int64_t value) {
  switch (t) {
    case DType::boolean:
      return value == 0 || value == 1;
    case DType::int8:
      return std::in_range<int8_t>(value);
    case DType::uint8:
      return std::in_range<uint8_t>(value);
    case DType::int32:
      return std::in_range<int32_t>(value);
    default:
      return true;
  }
}

DType promoted(DType a, DType b) {
  if (a == b || b == DType::boolean) return a;
  if (a == DType::boolean) return b;
  if (is_floating(a) != is_floating(b)) {
    const DType integer = is_floating(a) ? b : a;
    return itemsize(integer) == 1 ? (is_floating(a) ? a : b) : DType::float64;
  }
  if (itemsize(a) != itemsize(b)) return itemsize(a) > itemsize(b) ? a : b;
  // Only pairs of different dtypes of equal size remain. The result is float32 for float16 with bfloat16, and int32 for
  // int8 with uint8.
  return is_floating(a) ? DType::float32 : DType::int32;
}

std::string dtype_names() {
  std::string names;
  for (const Row& r : kRows) names += cat(names.empty() ? "" : ", ", r.name);
  return names;
}

}  // namespace minidnn
