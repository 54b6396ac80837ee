// SPDX-License-Identifier: Apache-2.0
// Reads floating numbers from text. The locale does not affect it.
#pragma once
#include <string_view>

namespace minidnn {

// Reads a decimal number that is the whole text. Returns false, and leaves `value` unspecified, if the text is anything
// else.
bool read_number(std::string_view text, float& value);
bool read_number(std::string_view text, double& value);

}  // namespace minidnn
