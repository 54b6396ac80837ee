// SPDX-License-Identifier: Apache-2.0
// Checks the rules that cuda.h (13.x) documents for cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col. Only maps
// without interleaving are supported.
#include "cuda/runtime/tensor_map.h"

#include <algorithm>

#include "cpp/core/dtype.h"

namespace minidnn::cuda {
namespace {

CUtensorMapDataType type_of(const MapTensor& t) {
  switch (t.dtype) {
    case DType::float64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::float16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bfloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::int32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::int64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case DType::float32:
      return t.tf32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

CUtensorMapSwizzle swizzle_of(const MapTensor& t) {
  switch (t.swizzle_bytes) {
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

CUtensorMapL2promotion promotion_of(const MapTensor& t) {
  switch (t.l2_promotion_bytes) {
    case 64:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
    case 128:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    case 256:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    default:
      return CU_TENSOR_MAP_L2_PROMOTION_NONE;
  }
}

CUtensorMapFloatOOBfill fill_of(const MapTensor& t) {
  return t.nan_fill ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
}

// Checks the rules that tiled maps and im2col maps share. `inner` is the number of elements of a row in shared memory,
// and `inner_name` is the field that holds it.
std::string why_not_common(const MapTensor& t, int min_rank, uint64_t inner, const char* inner_name) {
  auto address = reinterpret_cast<uintptr_t>(t.address);
  if (t.rank < min_rank || t.rank > 5) return cat("rank must be ", min_rank, " to 5; got ", t.rank);
  if (address == 0 || address % 16) return cat("the address must be a multiple of 16 and not null; got ", t.address);
  if (t.tf32 && t.dtype != DType::float32) return cat("tf32 rounds float32 only; the dtype is ", name(t.dtype));
  if (t.nan_fill && !is_floating(t.dtype)) return cat("nan_fill needs a floating dtype; got ", name(t.dtype));
  for (int i = 0; i < t.rank; ++i) {
    if (t.dims[i] == 0 || t.dims[i] > uint64_t(1) << 31) return cat("dims[", i, "] must be 1 to 2^31; got ", t.dims[i]);
    if (t.element_strides[i] < 1 || t.element_strides[i] > 8)
      return cat("element_strides[", i, "] must be 1 to 8; got ", t.element_strides[i]);
  }
  for (int i = 0; i + 1 < t.rank; ++i)
    if (t.strides[i] % 16 || t.strides[i] >= uint64_t(1) << 40)
      return cat("strides[", i, "] must be a multiple of 16 bytes below 2^40; got ", t.strides[i]);
  const int swizzles[] = {0, 32, 64, 128}, promotions[] = {0, 64, 128, 256};
  if (!std::count(std::begin(swizzles), std::end(swizzles), t.swizzle_bytes))
    return cat("swizzle_bytes must be 0, 32, 64 or 128; got ", t.swizzle_bytes);
  if (!std::count(std::begin(promotions), std::end(promotions), t.l2_promotion_bytes))
    return cat("l2_promotion_bytes must be 0, 64, 128 or 256; got ", t.l2_promotion_bytes);
  uint64_t bytes = inner * itemsize(t.dtype);
  if (bytes % 16)
    return cat(inner_name, " must span a multiple of 16 bytes; ", inner, " ", name(t.dtype), " are ", bytes);
  if (t.swizzle_bytes && bytes > uint64_t(t.swizzle_bytes))
    return cat(inner_name, " must fit the swizzle of ", t.swizzle_bytes, " bytes; ", inner, " ", name(t.dtype), " are ",
               bytes);
  return "";
}

}  // namespace

std::string why_not(const TiledMap& t) {
  if (std::string why = why_not_common(t, 1, t.box[0], "box[0]"); !why.empty()) return why;
  for (int i = 0; i < t.rank; ++i)
    if (t.box[i] < 1 || t.box[i] > 256) return cat("box[", i, "] must be 1 to 256; got ", t.box[i]);
  return "";
}

std::string why_not(const Im2colMap& t) {
  if (std::string why = why_not_common(t, 3, t.channels, "channels"); !why.empty()) return why;
  // The bits of each element of `lower` and `upper`: 16, 8 and 5 for one, two and three spatial dimensions.
  const int lowest[] = {-32768, -128, -16};
  int limit = lowest[t.rank - 3];
  for (int i = 0; i < t.rank - 2; ++i) {
    for (auto [corner, which] : {std::pair(t.lower[i], "lower"), std::pair(t.upper[i], "upper")})
      if (corner < limit || corner > -limit - 1)
        return cat(which, '[', i, "] must be ", limit, " to ", -limit - 1, " at rank ", t.rank, "; got ", corner);
    int64_t positions = int64_t(t.dims[i + 1]) + t.upper[i] - t.lower[i];
    if (positions < 1)
      return cat("dims[", i + 1, "] = ", t.dims[i + 1], " with lower[", i, "] = ", t.lower[i], " and upper[", i,
                 "] = ", t.upper[i], " has no position");
  }
  if (t.channels < 1 || t.channels > 256) return cat("channels must be 1 to 256; got ", t.channels);
  if (t.pixels < 1 || t.pixels > 1024) return cat("pixels must be 1 to 1024; got ", t.pixels);
  return "";
}

CUtensorMap encode(const TiledMap& t, int device) {
  std::string why = why_not(t);
  MINIDNN_CHECK(NotSupported, why.empty(), "tiled tensor map: ", why);
  Current current(device);
  CUtensorMap map;
  check(driver().cuTensorMapEncodeTiled(&map, type_of(t), cuuint32_t(t.rank), const_cast<void*>(t.address),
                                        reinterpret_cast<const cuuint64_t*>(t.dims),
                                        reinterpret_cast<const cuuint64_t*>(t.strides), t.box, t.element_strides,
                                        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(t), promotion_of(t), fill_of(t)),
        "cuTensorMapEncodeTiled on cuda:", device);
  return map;
}

CUtensorMap encode(const Im2colMap& t, int device) {
  std::string why = why_not(t);
  MINIDNN_CHECK(NotSupported, why.empty(), "im2col tensor map: ", why);
  Current current(device);
  CUtensorMap map;
  check(driver().cuTensorMapEncodeIm2col(&map, type_of(t), cuuint32_t(t.rank), const_cast<void*>(t.address),
                                         reinterpret_cast<const cuuint64_t*>(t.dims),
                                         reinterpret_cast<const cuuint64_t*>(t.strides), t.lower, t.upper, t.channels,
                                         t.pixels, t.element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(t),
                                         promotion_of(t), fill_of(t)),
        "cuTensorMapEncodeIm2col on cuda:", device);
  return map;
}

}  // namespace minidnn::cuda
