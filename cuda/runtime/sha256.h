// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for the keys of the kernel cache. With a weaker hash, a collision could make a call run a wrong
// kernel without an error.
#pragma once
#include <string>
#include <string_view>

namespace minidnn::cuda {

std::string sha256_hex(std::string_view bytes);

}  // namespace minidnn::cuda
