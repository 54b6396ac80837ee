// SPDX-License-Identifier: Apache-2.0
// Opens a profiler's library by the interface of NVTX 3. The library receives get_export_table(), through which it sets
// the functions that it implements. The values and layouts below are those of NVTX's headers, which a build does not
// need.
#include "cpp/engine/nvtx.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>

#include "cpp/core/platform.h"

namespace minidnn::nvtx {
namespace {

using Function = void (*)();

// The modules of NVTX. Only push and pop of the module "core" are called.
struct Module {
  unsigned size;
  Function functions[16]{};
  Function* addresses[17]{};  // ends with a null pointer
};
Module modules[] = {{0}, {16}, {9}, {15}, {7}, {16}, {7}};  // modules none, core, CUDA, OpenCL, CUDART, core2, sync
Module& core = modules[1];
constexpr unsigned kRangePush = 9, kRangePop = 11;

int get_module_functions(uint32_t id, Function*** table, unsigned* size) {
  if (id == 0 || id >= std::size(modules)) return 0;
  Module& m = modules[id];
  for (unsigned i = 0; i < m.size; ++i) m.addresses[i] = &m.functions[i];
  if (table) *table = m.addresses;
  if (size) *size = m.size;
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
  std::string ignored;
  void* library = path && *path ? platform::load_library(path, ignored) : nullptr;
  if (!library) return false;
  using Initialize = int (*)(const void* (*)(uint32_t));
  const auto initialize = reinterpret_cast<Initialize>(platform::find_symbol(library, "InitializeInjectionNvtx2"));
  return initialize && initialize(get_export_table) && core.functions[kRangePush] && core.functions[kRangePop];
}

bool attached() {
  static const bool result = attach();
  return result;
}

}  // namespace

Range::Range(const std::string& name) : open_(!name.empty() && attached()) {
  if (open_) reinterpret_cast<int (*)(const char*)>(core.functions[kRangePush])(name.c_str());
}

Range::~Range() {
  if (open_) reinterpret_cast<int (*)()>(core.functions[kRangePop])();
}

}  // namespace minidnn::nvtx
