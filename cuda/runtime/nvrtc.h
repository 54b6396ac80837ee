// SPDX-License-Identifier: Apache-2.0
// NVRTC, the CUDA compiler as a library: found at first use, among the places below, and asked for cubins.
// Order: $PYMINIDNN_NVRTC (a path, or "none") -> one that the process has loaded -> PyPI packages -> a CUDA toolkit ->
// the system's loader -> torch's copy. A release newer than the driver's major version is passed over.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace minidnn::cuda {

// Folders that may hold nvidia/*/lib and torch/lib: Python's sys.path. Call before the first use of what follows.
void set_search_path(std::vector<std::string> folders);

struct NvrtcInfo {
  std::string path;
  int major = 0, minor = 0;
};
const NvrtcInfo& nvrtc_info();  // DeviceError with why_no_nvrtc()
std::string why_no_nvrtc();     // "" when there is one, else what was tried and what to install

// Compiles `source` to machine code. `headers` maps the names in its #includes to their text: no file is read.
// `kernel_expression` names the instantiation to keep, and `lowered_name` becomes its symbol. DeviceError carries the
// head of the compiler's log. Any thread may call it at any time.
std::string compile_cubin(const std::string& program_name, const std::string& source,
                          const std::map<std::string, std::string>& headers, const std::vector<std::string>& options,
                          const std::string& kernel_expression, std::string& lowered_name);

}  // namespace minidnn::cuda
