// SPDX-License-Identifier: Apache-2.0
// Chooses the CPU instruction set at run time.
#include "cpp/core/cpu/isa.h"

#include <cstdlib>

#include "cpp/core/error.h"
#include "cpp/core/text.h"

namespace minidnn::cpu {

const char* name(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return "x86-64-v2";
    case Isa::v3:
      return "x86-64-v3";
    case Isa::v4:
      return "x86-64-v4";
    default:
      return "native";
  }
}

bool has(Isa isa) {
#ifdef __x86_64__
  switch (isa) {
    case Isa::v2:
      return true;
    case Isa::v3:
      return __builtin_cpu_supports("x86-64-v3");
    case Isa::v4:
      return __builtin_cpu_supports("x86-64-v4");
    default:
      return false;
  }
#else
  return isa == Isa::native;
#endif
}

Isa isa() {
  static const Isa best = [] {
    constexpr Isa all[] = {Isa::v4, Isa::v3, Isa::v2, Isa::native};
    const char* wanted = std::getenv("PYMINIDNN_CPU_ISA");
    if (!wanted || !*wanted) {
      for (Isa i : all)
        if (has(i)) return i;
    } else {
      for (Isa i : all)
        if (std::string(wanted) == name(i) && has(i)) return i;
      std::string here;
      for (Isa i : all)
        if (has(i)) here += cat(here.empty() ? "" : ", ", name(i));
      throw DeviceError(cat("PYMINIDNN_CPU_ISA is '", wanted, "'; this machine supports ", here));
    }
    return Isa::native;
  }();
  return best;
}

}  // namespace minidnn::cpu
