// SPDX-License-Identifier: Apache-2.0
// Converts a KernelSpec to machine code. Sources, in this order: memory, packaged cubins, the disk cache, NVRTC. If all
// sources fail, the error says what the user can do. To compile ahead of time, compile_to() is called for each spec of
// a manifest. It uses the same sources, options and key, but writes to another folder.
//
// The key is the SHA-256 of everything that NVRTC reads: the program, every file that it includes, the kernel
// expression, the options with the architecture, and the format number of the file. The version of NVRTC is not part of
// the key, so packaged cubins are found without a compiler. It is part of the name of the disk cache's subfolder, so a
// new version of NVRTC starts with an empty folder.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cpp/engine/kernel_spec.h"

namespace minidnn::cuda {

// The folder that contains cpp/ and cuda/. If kernels were compiled ahead of time, it also contains
// cubins/<arch>/<key>.cubin.
void set_package_folder(std::string root);

struct Cubin {
  std::string code;
  std::string kernel_name;     // the kernel's symbol in `code`
  std::string origin;          // where the cubin came from: "packaged", "disk" or "nvrtc"
  double compile_seconds = 0;  // the time that NVRTC took, or 0 if the origin is not "nvrtc"
};

// Returns the cubin of a spec. Concurrent calls for the same spec compile it once. Calls for different specs compile in
// parallel.
std::shared_ptr<const Cubin> cubin(const KernelSpec&, const std::string& arch);
// Deletes the cubin of the spec from all caches, and compiles it again. Called if the driver refuses to load a cubin.
std::shared_ptr<const Cubin> recompile(const KernelSpec&, const std::string& arch);

// The architecture to compile for. It is the first of the device's generation, because later devices of the same
// generation also run its cubins: sm_80 for 8.0, 8.6 and 8.9; sm_120 for 12.0 and 12.1. If the kernel's min_arch is
// higher, it is min_arch. For 9.0 it is sm_90a, because wgmma needs it.
std::string arch_for(const KernelSpec&, int device_arch);

// Compiles the spec and writes folder/<arch>/<key>.cubin. If `folder` is <package folder>/cubins, the result is a
// packaged cubin.
void compile_to(const KernelSpec&, const std::string& arch, const std::string& folder);

// The limit of the size of the disk cache. If a write exceeds it, the least recently used entries are deleted.
constexpr int64_t kCacheBytes = int64_t(1) << 30;

struct CacheStats {
  int64_t memory = 0, packaged = 0, disk = 0, nvrtc = 0;  // how many cubins came from each source
  double compile_seconds = 0;
};
CacheStats cache_stats();

// The whole spec as one string, for use as the key of a map.
std::string identity(const KernelSpec&);

// What NVRTC reads to compile a kernel. Tests and tools use this, too.
struct Sources {
  std::string program;  // an #include of the spec's file, then its generated code
  // The text of each file by its name, for all quoted #includes, followed recursively.
  std::map<std::string, std::string> headers;
};
Sources sources_of(const KernelSpec&);
std::string cache_key(const KernelSpec&, const std::string& arch);

}  // namespace minidnn::cuda
