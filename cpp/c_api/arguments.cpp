// SPDX-License-Identifier: Apache-2.0
#include "cpp/c_api/arguments.h"

namespace minidnn::c_api {

static_assert(int(DType::float32) == MINIDNN_FLOAT32 && int(DType::float64) == MINIDNN_FLOAT64 &&
              int(DType::float16) == MINIDNN_FLOAT16 && int(DType::bfloat16) == MINIDNN_BFLOAT16 &&
              int(DType::int8) == MINIDNN_INT8 && int(DType::uint8) == MINIDNN_UINT8 &&
              int(DType::int32) == MINIDNN_INT32 && int(DType::int64) == MINIDNN_INT64 &&
              int(DType::boolean) == MINIDNN_BOOL && kMaxRank == MINIDNN_MAX_RANK);

Result::Result(const char* call, const char* name, minidnnTensor_t* slot) : slot_(slot) {
  MINIDNN_CHECK(InvalidArgument, slot, call, ": ", name, " must not be NULL; pass the address of a tensor");
  if (!*slot) fresh_ = std::make_unique<minidnnTensor_s>();
}

Result Arguments::new_result(const char* name, minidnnTensor_t* slot) const {
  Result result(call_, name, slot);
  MINIDNN_CHECK(InvalidArgument, !*slot, call_, ": ", name,
                " must point to NULL, because it receives a new tensor; destroy the old one, and set it to NULL");
  return result;
}

DType Arguments::dtype(const char* name, int64_t value) const {
  MINIDNN_CHECK(InvalidArgument, value >= 0 && value < int64_t(std::size(kDTypes)), call_, ": ", name,
                " must be a constant of minidnnDType_t, from 0 to ", std::size(kDTypes) - 1, "; got ", value);
  return DType(value);
}

Place Arguments::place(int32_t device) const {
  MINIDNN_CHECK(InvalidArgument, device >= MINIDNN_CPU, call_,
                ": device must be MINIDNN_CPU (-1) or the index of a GPU; got ", device);
  const Place place = device == MINIDNN_CPU ? Place{} : Place{true, device};
  device_at(place);  // throws DeviceError if the machine does not have the device
  return place;
}

std::span<const int64_t> Arguments::sizes(const char* name, int64_t rank, const int64_t* values) const {
  MINIDNN_CHECK(ShapeError, rank >= 0 && rank <= kMaxRank, call_, ": rank must be from 0 to ", kMaxRank, "; got ",
                rank);
  if (rank) present(name, values);
  return {values, size_t(rank)};
}

void Arguments::check_size(size_t given, size_t known) const {
  MINIDNN_CHECK(InvalidArgument, given >= sizeof(size_t) && given <= known, call_,
                ": the member `size` of a struct must be its size, at most ", known, "; got ", given,
                "; initialise the struct by its macro _INIT");
}

std::vector<Sides> sides(const int64_t* before, const int64_t* after, int64_t count) {
  std::vector<Sides> all;
  for (int64_t i = 0; i < count; ++i) all.push_back({before[i], after[i]});
  return all;
}

}  // namespace minidnn::c_api
