// SPDX-License-Identifier: Apache-2.0
// Converts a KernelSpec to machine code (a cubin). The sources of a cubin are, in this order: memory, packaged cubins,
// the disk cache, and NVRTC. If all sources fail, the error says what the user can do. compile_to() compiles kernels
// ahead of time; it is called for each KernelSpec of a manifest. It uses the same program text, compiler options and
// key as a compilation at run time, but writes the cubin to another folder.
//
// The key of a cubin is the SHA-256 of everything that NVRTC reads: the program, every file that the program includes,
// the kernel expression, the compiler options with the architecture, and the format number of cache files. The version
// of NVRTC is not included in the key, so packaged cubins are found without a compiler. In the disk cache, the version
// of NVRTC is included in the name of a subfolder, so a new version of NVRTC begins with an empty folder.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cpp/engine/kernel_spec.h"

namespace minidnn::cuda {

// Sets the package folder, which contains cpp/ and cuda/. If kernels were compiled ahead of time, the package folder
// also contains the files cubins/<arch>/<key>.cubin. `packages` are further folders that contain <arch>/<key>.cubin.
void set_package_folder(std::string root, const std::vector<std::string>& packages = {});

struct Cubin {
  std::string code;
  std::string kernel_name;     // the symbol of the kernel in `code`
  std::string origin;          // where the cubin came from: "packaged", "disk" or "nvrtc"
  double compile_seconds = 0;  // the time in seconds that NVRTC took; 0 if the origin is not "nvrtc"
};

// Returns the cubin of a KernelSpec. If several threads need the cubin of the same KernelSpec, it is compiled once.
// Different KernelSpecs are compiled in parallel.
std::shared_ptr<const Cubin> cubin(const KernelSpec&, const std::string& arch);
// Compiles a KernelSpec without reading any cache. The new cubin replaces the cubin in memory and in the disk cache.
// This is called if the driver refuses to load a cubin.
std::shared_ptr<const Cubin> recompile(const KernelSpec&, const std::string& arch);

// The architecture for which a kernel is compiled. It is the first architecture of the device's generation, because
// later devices of the same generation run its cubins, too: sm_80 for compute capabilities 8.0, 8.6 and 8.9, and sm_120
// for 12.0 and 12.1. If the min_arch of the kernel is higher, it is min_arch. For compute capability 9.0, it is sm_90a,
// because wgmma needs sm_90a.
std::string arch_for(const KernelSpec&, int device_arch);

// Compiles a KernelSpec and writes the cubin to folder/<arch>/<key>.cubin. If `folder` is <package folder>/cubins, the
// result is a packaged cubin.
void compile_to(const KernelSpec&, const std::string& arch, const std::string& folder);

// The largest size of the disk cache, in bytes. If a write exceeds this size, the least recently used files are
// deleted.
constexpr int64_t kCacheBytes = int64_t(1) << 30;

struct CacheStats {
  // The number of cubins that came from each source: memory, package, disk cache and NVRTC.
  int64_t memory = 0, packaged = 0, disk = 0, nvrtc = 0;
  double compile_seconds = 0;
};
CacheStats cache_stats();

// Returns a text that identifies a KernelSpec, for use as the key of a map.
std::string identity(const KernelSpec&);

// The texts that NVRTC reads to compile a kernel. Tests and tools use this struct, too.
struct Sources {
  std::string program;  // an #include of the KernelSpec's file, followed by its generated code
  // Maps the name of each file to its text, for all files that quoted #includes name, directly or through other files.
  std::map<std::string, std::string> headers;
};
Sources sources_of(const KernelSpec&);
std::string cache_key(const KernelSpec&, const std::string& arch);

}  // namespace minidnn::cuda
