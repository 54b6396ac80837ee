// SPDX-License-Identifier: Apache-2.0
// The C functions that concern the library as a whole: errors, the kernel sources, devices, and the choice of engines.
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>

#include "cpp/c_api/arguments.h"
#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/platform.h"
#include "cuda/runtime/kernel_cache.h"

namespace minidnn::c_api {
namespace {

namespace fs = std::filesystem;

std::string& last_error() {
  thread_local std::string text;
  return text;
}

minidnnStatus_t record(minidnnStatus_t status, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
  return status;
}

bool has_sources(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "cuda" / "device", ignored) &&
         fs::is_directory(folder / "cpp" / "core" / "host_device", ignored);
}

struct Sources {
  std::mutex mutex;
  std::string folder;
  std::string reported;  // the text that minidnnGetSourceFolder() has returned

  void set(const fs::path& path) {
    folder = path.string();
    cuda::set_package_folder(folder);
  }
};
Sources& sources() {
  static auto* const all = new Sources;
  return *all;
}

// Returns the first folder that contains kernel sources: $PYMINIDNN_SOURCES, the folder that belongs to the shared
// library, and the folder of the build or installation.
fs::path find_sources() {
  if (const char* wanted = std::getenv("PYMINIDNN_SOURCES")) return wanted;
  const std::string self = platform::library_of(reinterpret_cast<const void*>(&minidnnGetVersion));
  if (!self.empty()) {
    std::error_code failed;
    const fs::path library = fs::canonical(self, failed);
    const fs::path folder = (library.parent_path() / MINIDNN_RELATIVE_SOURCES).lexically_normal();
    if (!failed && has_sources(folder)) return folder;
  }
  return has_sources(MINIDNN_ABSOLUTE_SOURCES) ? MINIDNN_ABSOLUTE_SOURCES : "";
}

std::string text_of(const Report& report) {
  std::string text = cat(report.problem, " on ", report.device, ": ", report.chosen, '\n');
  for (const EngineReport& e : report.engines) {
    text += cat("  ", e.name, ": ");
    if (!e.why_not.empty()) text += e.why_not;
    else if (e.measured_us > 0) text += cat(e.measured_us, " us measured");
    else text += cat(e.estimate_us, " us expected");
    text += e.config.empty() || !e.why_not.empty() ? "\n" : cat(", ", e.config, '\n');
  }
  return text;
}

minidnnStatus_t report_on(const char* name, DryRun::Purpose purpose, minidnnCall_t call, void* context,
                          const char** report) {
  minidnnStatus_t of_call = MINIDNN_STATUS_SUCCESS;
  const minidnnStatus_t status = guarded(name, [&](const Arguments& a) {
    a.present("call", call);
    thread_local std::string text;
    DryRun session(purpose);
    of_call = call(context);
    if (of_call != MINIDNN_STATUS_SUCCESS) return;
    std::string all;
    for (const Report& r : session.reports()) all += text_of(r);
    text = std::move(all);
    if (report) *report = text.c_str();
  });
  return status == MINIDNN_STATUS_SUCCESS ? of_call : status;
}

}  // namespace

minidnnStatus_t status_of_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& e) {
    return record(MINIDNN_STATUS_INVALID_ARGUMENT, e.what());
  } catch (const ShapeError& e) {
    return record(MINIDNN_STATUS_SHAPE_ERROR, e.what());
  } catch (const DTypeError& e) {
    return record(MINIDNN_STATUS_DTYPE_ERROR, e.what());
  } catch (const NotSupported& e) {
    return record(MINIDNN_STATUS_NOT_SUPPORTED, e.what());
  } catch (const DeviceError& e) {
    return record(MINIDNN_STATUS_DEVICE_ERROR, e.what());
  } catch (const OutOfMemory& e) {
    return record(MINIDNN_STATUS_OUT_OF_MEMORY, e.what());
  } catch (const std::bad_alloc&) {
    return record(MINIDNN_STATUS_OUT_OF_MEMORY, "the process has no memory left");
  } catch (const std::exception& e) {
    return record(MINIDNN_STATUS_INTERNAL_ERROR, e.what());
  } catch (...) {
    return record(MINIDNN_STATUS_INTERNAL_ERROR, "an unknown exception");
  }
}

void prepare() {
  static const bool once [[maybe_unused]] = [] {
    Sources& s = sources();
    std::lock_guard lock(s.mutex);
    if (s.folder.empty()) s.set(find_sources());
    return true;
  }();
}

}  // namespace minidnn::c_api

using namespace minidnn;
using namespace minidnn::c_api;

const char* minidnnGetVersion(void) { return MINIDNN_VERSION; }

const char* minidnnGetStatusName(minidnnStatus_t status) {
  static constexpr const char* names[] = {"MINIDNN_STATUS_SUCCESS",       "MINIDNN_STATUS_INVALID_ARGUMENT",
                                          "MINIDNN_STATUS_SHAPE_ERROR",   "MINIDNN_STATUS_DTYPE_ERROR",
                                          "MINIDNN_STATUS_NOT_SUPPORTED", "MINIDNN_STATUS_DEVICE_ERROR",
                                          "MINIDNN_STATUS_OUT_OF_MEMORY", "MINIDNN_STATUS_INTERNAL_ERROR"};
  return status >= 0 && status < int32_t(std::size(names)) ? names[status] : "an unknown status";
}

const char* minidnnGetLastErrorMessage(void) { return last_error().c_str(); }

minidnnStatus_t minidnnSetSourceFolder(const char* folder) {
  return guarded(__func__, [&](const Arguments& a) {
    const fs::path path = a.present("folder", folder);
    MINIDNN_CHECK(InvalidArgument, has_sources(path), a.name(), ": folder must contain the kernel sources in cpp and ",
                  "cuda; got '", folder, "'");
    std::lock_guard lock(sources().mutex);
    sources().set(path);
  });
}

const char* minidnnGetSourceFolder(void) {
  const minidnnStatus_t status = guarded(__func__, [](const Arguments&) {
    std::lock_guard lock(sources().mutex);
    sources().reported = sources().folder;
  });
  return status == MINIDNN_STATUS_SUCCESS ? sources().reported.c_str() : "";
}

minidnnStatus_t minidnnGetDeviceCount(int32_t* count, const char** why_none) {
  return guarded(__func__, [&](const Arguments&) {
    thread_local std::string reason;
    reason = cuda::why_unavailable();
    if (count) *count = cuda::device_count();
    if (why_none) *why_none = reason.c_str();
  });
}

minidnnStatus_t minidnnEmptyCache(int32_t device) {
  return guarded(__func__, [&](const Arguments& a) { allocator_of(a.place(device)).release_cached(); });
}

minidnnStatus_t minidnnExplain(minidnnCall_t call, void* context, const char** report) {
  return report_on(__func__, DryRun::Purpose::explain, call, context, report);
}

minidnnStatus_t minidnnFind(minidnnCall_t call, void* context, const char** report) {
  return report_on(__func__, DryRun::Purpose::find, call, context, report);
}
