// SPDX-License-Identifier: Apache-2.0
// Copies of few bytes. A call of memcpy takes longer than such a copy.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace minidnn::cpu {

// Copies `bytes` bytes between addresses that do not overlap. Up to 64 bytes are copied as two blocks, which may overlap.
inline void copy_bytes(const void* from, void* to, int64_t bytes) {
  const auto x = static_cast<const char*>(from);
  const auto y = static_cast<char*>(to);
  const auto ends = [&](auto size) {
    constexpr int64_t kSize = decltype(size)::value;
    char first[kSize], last[kSize];
    std::memcpy(first, x, kSize);
    std::memcpy(last, x + bytes - kSize, kSize);
    std::memcpy(y, first, kSize);
    std::memcpy(y + bytes - kSize, last, kSize);
  };
  if (bytes > 64) std::memcpy(to, from, size_t(bytes));
  else if (bytes >= 32) ends(std::integral_constant<int, 32>());
  else if (bytes >= 16) ends(std::integral_constant<int, 16>());
  else if (bytes >= 8) ends(std::integral_constant<int, 8>());
  else if (bytes >= 4) ends(std::integral_constant<int, 4>());
  else
    for (int64_t i = 0; i < bytes; ++i) y[i] = x[i];
}

}  // namespace minidnn::cpu
