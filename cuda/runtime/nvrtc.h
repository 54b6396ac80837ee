// SPDX-License-Identifier: Apache-2.0
// NVRTC, the CUDA compiler as a library. This library searches for NVRTC at first use, and compiles cubins with it. If
// $PYMINIDNN_NVRTC is set, it is the only path that is tried; the value "none" means no NVRTC. If it is not set, the
// search order is: a library that the process has loaded already, the result of the finder, PyPI packages, a CUDA
// toolkit, the system's loader, and torch's copy. The search skips versions of NVRTC that are newer than the driver's
// major version.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace minidnn::cuda {

// Sets the folders that may contain nvidia/*/lib and torch/lib; they are Python's sys.path. This function must be
// called before all other functions of this file.
void set_search_path(std::vector<std::string> folders);
// Sets a function that returns the path of an NVRTC library, or "" if it knows none. It is called once, at the first
// use of NVRTC. It may take Python's lock (GIL), so threads that use NVRTC must not hold this lock.
void set_nvrtc_finder(std::function<std::string()>);

struct NvrtcInfo {
  std::string path;
  int major = 0, minor = 0;
};
const NvrtcInfo& nvrtc_info();  // throws DeviceError with the text of why_no_nvrtc() if NVRTC is not available
// Returns "" if NVRTC is available. If NVRTC is not available, the text says what was tried and what to install.
std::string why_no_nvrtc();

// Compiles `source` to a cubin. `headers` maps each file name in an #include to the text of that file; no file is read.
// `kernel_expression` names the template instance to compile. `lowered_name` receives the symbol of that instance. If
// the compilation fails, throws DeviceError with the first lines of the compiler's log. The function is thread-safe.
std::string compile_cubin(const std::string& program_name, const std::string& source,
                          const std::map<std::string, std::string>& headers, const std::vector<std::string>& options,
                          const std::string& kernel_expression, std::string& lowered_name);

}  // namespace minidnn::cuda
