// SPDX-License-Identifier: Apache-2.0
// The table of element types.
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
    // in the order of the enum
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

std::string dtype_names() {
  std::string names;
  for (const Row& r : kRows) names += cat(names.empty() ? "" : ", ", r.name);
  return names;
}

}  // namespace minidnn
