// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/read_number.h"

#include <charconv>
#include <locale>
#include <sstream>
#include <string>

namespace minidnn {
namespace {

// The C++ library of macOS has std::from_chars for integers only.
template <class T> bool read(std::string_view text, T& value) {
#ifdef __cpp_lib_to_chars
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
#else
  std::istringstream in{std::string(text)};
  in.imbue(std::locale::classic());
  return in >> std::noskipws >> value && in.peek() == std::istringstream::traits_type::eof();
#endif
}

}  // namespace

bool read_number(std::string_view text, float& value) { return read(text, value); }
bool read_number(std::string_view text, double& value) { return read(text, value); }

}  // namespace minidnn
