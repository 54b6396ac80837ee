// SPDX-License-Identifier: Apache-2.0
// Building messages and problem texts out of values.
#pragma once
#include <cstdint>
#include <sstream>
#include <string>

namespace minidnn {

template <class... Parts> std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// "64, 3, 7, 7" or, with separator 'x', "64x3x7x7".
template <class Sequence> std::string join(const Sequence& values, const char* separator = ", ") {
  std::ostringstream out;
  const char* before = "";
  for (const auto& v : values) out << before << v, before = separator;
  return out.str();
}

// 822083584 -> "822.1 MB"
std::string bytes_text(double bytes);

}  // namespace minidnn
