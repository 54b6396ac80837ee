// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/text.h"

#include <cstdio>

namespace minidnn {

std::string bytes_text(double bytes) {
  const char* units[] = {"bytes", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  char out[32];
  std::snprintf(out, sizeof out, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return out;
}

}  // namespace minidnn
