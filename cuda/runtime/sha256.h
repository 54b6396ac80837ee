// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) for the keys of the kernel cache: with a weaker hash, a collision would silently run a wrong
// kernel.
#pragma once
#include <string>
#include <string_view>

namespace minidnn::cuda {

std::string sha256_hex(std::string_view bytes);

}  // namespace minidnn::cuda
