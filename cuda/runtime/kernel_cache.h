// SPDX-License-Identifier: Apache-2.0
// From a KernelSpec to machine code: memory -> packaged cubins -> disk cache -> NVRTC -> an error saying what would do.
// "Ahead of time" is compile_to() over a manifest: the same sources, options and key, another folder.
//
// The key is the SHA-256 of everything NVRTC reads: the program, every file it includes, the kernel expression, the
// options with the architecture, and the format number below. The release of NVRTC is not in it. It names the disk
// cache's sub-folder instead, so a new compiler starts afresh there while packaged cubins serve without any compiler.
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
  std::string kernel_name;     // its symbol in `code`
  std::string origin;          // "packaged", "disk" or "nvrtc"
  double compile_seconds = 0;  // 0 unless origin is "nvrtc"
};

// Concurrent calls for one spec compile once, those for different specs at the same time.
std::shared_ptr<const Cubin> cubin(const KernelSpec&, const std::string& arch);
// Forgets what every cache holds for the spec and compiles it: for a cubin that the driver would not load.
std::shared_ptr<const Cubin> recompile(const KernelSpec&, const std::string& arch);

// The architecture to compile for: the first of the device's generation, since its cubins run on the later ones too
// (sm_80 for 8.0, 8.6 and 8.9; sm_120 for 12.0 and 12.1), unless the kernel asks for more. 9.0 gets sm_90a for wgmma.
std::string arch_for(const KernelSpec&, int device_arch);

// Writes folder/<arch>/<key>.cubin, which becomes a packaged cubin when `folder` is <package folder>/cubins.
void compile_to(const KernelSpec&, const std::string& arch, const std::string& folder);

// $PYMINIDNN_CACHE_DIR, else $XDG_CACHE_HOME/pyminidnn, else ~/.cache/pyminidnn; read once. "" when kernels are kept in
// memory only: there is no such folder, or it belongs to another user, or others may write to it. A cubin is code, so
// such a folder is neither read nor written; a line on stderr says so when PYMINIDNN_LOG is set.
std::string cache_folder();
constexpr int64_t kCacheBytes = int64_t(1) << 30;  // beyond it the entries longest unused go, when one is written

struct CacheStats {
  int64_t memory = 0, packaged = 0, disk = 0, nvrtc = 0;  // cubins by where they came from
  double compile_seconds = 0;
};
CacheStats cache_stats();

std::string identity(const KernelSpec&);  // the whole spec as one string, to be a map's key

// The parts, for tests and tools.
struct Sources {
  std::string program;                         // #include of the spec's file, then its generated code
  std::map<std::string, std::string> headers;  // name -> text: every quoted #include, followed to its end
};
Sources sources_of(const KernelSpec&);
std::string cache_key(const KernelSpec&, const std::string& arch);

}  // namespace minidnn::cuda
