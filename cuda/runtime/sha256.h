// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), because a cache entry found under the wrong key is the wrong kernel, silently.
#pragma once
#include <string>
#include <string_view>

namespace minidnn::cuda {

std::string sha256_hex(std::string_view bytes);

}  // namespace minidnn::cuda
