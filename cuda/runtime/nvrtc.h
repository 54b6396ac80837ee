// SPDX-License-Identifier: Apache-2.0
// NVRTC, the CUDA compiler as a library: searched at first use and used to compile cubins. Search order:
// $PYMINIDNN_NVRTC (a path, or "none"), a copy that the process has loaded, PyPI packages, a CUDA toolkit, the system's
// loader, torch's copy. A release newer than the driver's major version is skipped.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace minidnn::cuda {

// Folders that may contain nvidia/*/lib and torch/lib: Python's sys.path. Call this before the first use of the
// functions below.
void set_search_path(std::vector<std::string> folders);

struct NvrtcInfo {
  std::string path;
  int major = 0, minor = 0;
};
const NvrtcInfo& nvrtc_info();  // DeviceError with why_no_nvrtc()
std::string why_no_nvrtc();     // "" if NVRTC is available, else what was tried and what to install

// Compiles `source` to machine code. `headers` maps the names in its #includes to their text: no file is read.
// `kernel_expression` names the instantiation to compile; `lowered_name` receives its symbol. Throws DeviceError with
// the first lines of the compiler's log. Thread-safe.
std::string compile_cubin(const std::string& program_name, const std::string& source,
                          const std::map<std::string, std::string>& headers, const std::vector<std::string>& options,
                          const std::string& kernel_expression, std::string& lowered_name);

}  // namespace minidnn::cuda
