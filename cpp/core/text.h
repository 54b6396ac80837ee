// SPDX-License-Identifier: Apache-2.0
// Makes messages and problem texts from values. No iostreams are used, so that the locale does not affect how numbers
// print.
#pragma once
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace minidnn {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, char part) { text += part; }
template <class T>
  requires std::integral<T> || std::floating_point<T>
void append(std::string& text, T value) {
  if constexpr (std::same_as<T, bool>) {
    text += value ? '1' : '0';
  } else {
    char digits[32];
    std::to_chars_result end;
    if constexpr (std::integral<T>) end = std::to_chars(digits, digits + sizeof digits, value);
    else end = std::to_chars(digits, digits + sizeof digits, double(value), std::chars_format::general, 6);
    text.append(digits, end.ptr);
  }
}
// Appends a pointer to void as an address. This overload is a template so that string literals, which convert to a
// pointer to void, do not match it.
template <class T>
  requires std::is_void_v<T>
void append(std::string& text, T* pointer) {
  char digits[20];
  text += "0x";
  text.append(digits, std::to_chars(digits, digits + sizeof digits, reinterpret_cast<uintptr_t>(pointer), 16).ptr);
}

template <class... Parts> std::string cat(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

// Joins values with a separator. For example, the result is "64, 3, 7, 7", or "64x3x7x7" if the separator is "x".
template <class Sequence> std::string join(const Sequence& values, const char* separator = ", ") {
  std::string text;
  const char* before = "";
  for (const auto& v : values) {
    append(text, before);
    append(text, v);
    before = separator;
  }
  return text;
}

// Returns a number of bytes as text, such as "822.1 MB" for 822083584.
std::string bytes_text(double bytes);

}  // namespace minidnn
