// SPDX-License-Identifier: Apache-2.0
// Converts a KernelSpec to machine code. Sources, in order: memory, packaged cubins, the disk cache, NVRTC. If all
// fail, the error says what would help. Compiling ahead of time means compile_to() for every spec of a manifest: with
// the same sources, options and key, but into another folder.
//
// The key is the SHA-256 of everything that NVRTC reads: the program, every file it includes, the kernel expression,
// the options with the architecture, and the format number of the file. NVRTC's release is not in the key. It is in the
// name of the disk cache's sub-folder, so a new compiler starts with an empty folder, while packaged cubins work
// without any compiler.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cpp/engine/kernel_spec.h"

namespace minidnn::cuda {

// The folder that holds cpp/, cuda/ and, where kernels were compiled ahead of time, cubins/<arch>/<key>.cubin.
void set_package_folder(std::string root);

struct Cubin {
  std::string code;
  std::string kernel_name;     // the kernel's symbol in `code`
  std::string origin;          // "packaged", "disk" or "nvrtc"
  double compile_seconds = 0;  // 0 unless origin is "nvrtc"
};

// Concurrent calls for the same spec compile it once; calls for different specs compile in parallel.
std::shared_ptr<const Cubin> cubin(const KernelSpec&, const std::string& arch);
// Deletes what every cache holds for the spec and compiles it again: for a cubin that the driver refuses to load.
std::shared_ptr<const Cubin> recompile(const KernelSpec&, const std::string& arch);

// The architecture to compile for: the first of the device's generation, because later devices of the generation run
// its cubins too (sm_80 for 8.0, 8.6 and 8.9; sm_120 for 12.0 and 12.1), or the kernel's min_arch if that is higher.
// 9.0 gets sm_90a, which wgmma needs.
std::string arch_for(const KernelSpec&, int device_arch);

// Writes folder/<arch>/<key>.cubin. It is a packaged cubin if `folder` is <package folder>/cubins.
void compile_to(const KernelSpec&, const std::string& arch, const std::string& folder);

// If the cache exceeds this size after a write, the least recently used entries are deleted.
constexpr int64_t kCacheBytes = int64_t(1) << 30;

struct CacheStats {
  int64_t memory = 0, packaged = 0, disk = 0, nvrtc = 0;  // cubins by origin
  double compile_seconds = 0;
};
CacheStats cache_stats();

std::string identity(const KernelSpec&);  // the whole spec as one string, for use as a map key

// What NVRTC reads for a kernel. Tests and tools use it.
struct Sources {
  std::string program;                         // #include of the spec's file, followed by its generated code
  std::map<std::string, std::string> headers;  // name -> text: every quoted #include, followed recursively
};
Sources sources_of(const KernelSpec&);
std::string cache_key(const KernelSpec&, const std::string& arch);

}  // namespace minidnn::cuda
