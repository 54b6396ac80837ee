// SPDX-License-Identifier: Apache-2.0
// Chooses the CPU instruction set at run time.
#include "cpp/core/cpu/isa.h"

#include <cstdlib>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "cpp/core/error.h"
#include "cpp/core/platform.h"
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
    case Isa::v4_bf16:
      return "x86-64-v4-bf16";
    case Isa::v4_amx:
      return "x86-64-v4-amx";
    default:
      return "native";
  }
}

namespace {

#ifdef __x86_64__
bool has_avx512_bf16() {
  constexpr unsigned kAvx512Bf16 = 1u << 5;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & kAvx512Bf16;
}

// Whether the processor has AMX for bfloat16, and the kernel lets this process use it.
bool may_use_amx() {
  static const bool may = [] {
    constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kAmxBf16) || !(d & kAmxTile)) return false;
    return platform::permit_amx();
  }();
  return may;
}
#endif

}  // namespace

bool has(Isa isa) {
#ifdef __x86_64__
  switch (isa) {
    case Isa::v2:
      return true;
    case Isa::v3:
      return __builtin_cpu_supports("x86-64-v3");
    case Isa::v4:
      return __builtin_cpu_supports("x86-64-v4");
    case Isa::v4_bf16:
      return has(Isa::v4) && has_avx512_bf16();
    case Isa::v4_amx:
      return has(Isa::v4_bf16) && may_use_amx();
    default:
      return false;
  }
#else
  return isa == Isa::native;
#endif
}

Isa isa() {
  static const Isa best = [] {
    const char* wanted = std::getenv("PYMINIDNN_CPU_ISA");
    if (!wanted || !*wanted) {
      for (Isa i : kAllIsas)
        if (has(i)) return i;
    } else {
      for (Isa i : kAllIsas)
        if (std::string(wanted) == name(i) && has(i)) return i;
      std::string here;
      for (Isa i : kAllIsas)
        if (has(i)) here += cat(here.empty() ? "" : ", ", name(i));
      throw DeviceError(cat("PYMINIDNN_CPU_ISA is '", wanted, "'; this machine supports ", here));
    }
    return Isa::native;
  }();
  return best;
}

}  // namespace minidnn::cpu
