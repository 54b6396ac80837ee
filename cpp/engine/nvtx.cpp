// SPDX-License-Identifier: Apache-2.0
// Opens the library of a profiler by the interface that NVTX 3 defines for it. The library receives get_export_table().
// From there it gets the addresses of function pointers, and it sets those that it implements. The values
// and layouts below are those of NVTX's headers, which a build does not need.
#include "cpp/engine/nvtx.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace minidnn::nvtx {
namespace {

using Function = void (*)();

// The function pointers of the module "core" that the library may set. Only push and pop are called here.
constexpr unsigned kRangePush = 9, kRangePop = 11, kFunctions = 16;
Function functions[kFunctions];
Function* addresses[kFunctions + 1];  // ends with null

constexpr uint32_t kModuleCore = 1;
int get_module_functions(uint32_t module, Function*** table, unsigned* size) {
  if (module != kModuleCore) return 0;
  for (unsigned i = 0; i < kFunctions; ++i) addresses[i] = &functions[i];
  if (table) *table = addresses;
  if (size) *size = kFunctions;
  return 1;
}

constexpr uint32_t kTableCallbacks = 1, kTableVersion = 3;
struct Callbacks {
  size_t struct_size;
  int (*get_module_functions)(uint32_t, Function***, unsigned*);
};
struct Version {
  size_t struct_size;
  uint32_t version, reserved;
  void (*set_injection_version)(uint32_t);
};

const void* get_export_table(uint32_t id) {
  static const Callbacks callbacks{sizeof(Callbacks), get_module_functions};
  static const Version version{sizeof(Version), 3, 0, [](uint32_t) {}};
  if (id == kTableCallbacks) return &callbacks;
  if (id == kTableVersion) return &version;
  return nullptr;
}

// Returns whether a profiler is attached that shows ranges.
bool attach() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  void* library = path && *path ? dlopen(path, RTLD_LAZY) : nullptr;
  if (!library) return false;
  using Initialize = int (*)(const void* (*)(uint32_t));
  const auto initialize = reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx2"));
  return initialize && initialize(get_export_table) && functions[kRangePush] && functions[kRangePop];
}

bool attached() {
  static const bool result = attach();
  return result;
}

}  // namespace

Range::Range(const std::string& name) : open_(!name.empty() && attached()) {
  if (open_) reinterpret_cast<int (*)(const char*)>(functions[kRangePush])(name.c_str());
}

Range::~Range() {
  if (open_) reinterpret_cast<int (*)()>(functions[kRangePop])();
}

}  // namespace minidnn::nvtx
