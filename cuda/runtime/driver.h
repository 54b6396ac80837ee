// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at first use: its functions, errors and contexts. This library does not use cudart. It uses
// the driver's functions as of CUDA 12.0, even if it is compiled with a newer cuda.h. Driver 525 or later is therefore
// sufficient.
#pragma once
#include <cuda.h>
#include <cudaTypedefs.h>

#include "cpp/core/error.h"

namespace minidnn::cuda {

// Looks up functions of the driver by name. The result of a look-up converts to any type of function pointer.
class EntryPoints {
 public:
  static constexpr int kCudaVersion = 12000;
  explicit EntryPoints(PFN_cuGetProcAddress_v12000 look_up = nullptr) : look_up_(look_up) {}

  struct Entry {
    void* address;
    template <class F> operator F*() const { return reinterpret_cast<F*>(address); }
  };
  Entry operator()(const char* name) {
    Entry found = optional(name, kCudaVersion);
    if (!found.address) missing = name;
    return found;
  }
  Entry optional(const char* name, int cuda_version) {
    Entry found{};
    constexpr auto kLegacyStream = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    if (look_up_ && look_up_(name, &found.address, cuda_version, kLegacyStream, nullptr) != CUDA_SUCCESS)
      found.address = nullptr;
    return found;
  }
  const char* missing = nullptr;

 private:
  PFN_cuGetProcAddress_v12000 look_up_;
};

struct Driver {
  EntryPoints get{};
  PFN_cuInit_v2000 cuInit = get("cuInit");
  PFN_cuDriverGetVersion_v2020 cuDriverGetVersion = get("cuDriverGetVersion");
  PFN_cuGetErrorName_v6000 cuGetErrorName = get("cuGetErrorName");
  PFN_cuGetErrorString_v6000 cuGetErrorString = get("cuGetErrorString");
  PFN_cuDeviceGet_v2000 cuDeviceGet = get("cuDeviceGet");
  PFN_cuDeviceGetCount_v2000 cuDeviceGetCount = get("cuDeviceGetCount");
  PFN_cuDeviceGetName_v2000 cuDeviceGetName = get("cuDeviceGetName");
  PFN_cuDeviceGetAttribute_v2000 cuDeviceGetAttribute = get("cuDeviceGetAttribute");
  PFN_cuDeviceTotalMem_v3020 cuDeviceTotalMem = get("cuDeviceTotalMem");
  PFN_cuDevicePrimaryCtxRetain_v7000 cuDevicePrimaryCtxRetain = get("cuDevicePrimaryCtxRetain");
  PFN_cuCtxGetCurrent_v4000 cuCtxGetCurrent = get("cuCtxGetCurrent");
  PFN_cuCtxSetCurrent_v4000 cuCtxSetCurrent = get("cuCtxSetCurrent");
  PFN_cuCtxSynchronize_v2000 cuCtxSynchronize = get("cuCtxSynchronize");
  PFN_cuMemGetInfo_v3020 cuMemGetInfo = get("cuMemGetInfo");
  PFN_cuMemAlloc_v3020 cuMemAlloc = get("cuMemAlloc");
  PFN_cuMemFree_v3020 cuMemFree = get("cuMemFree");
  PFN_cuMemPoolCreate_v11020 cuMemPoolCreate = get("cuMemPoolCreate");
  PFN_cuMemPoolSetAttribute_v11020 cuMemPoolSetAttribute = get("cuMemPoolSetAttribute");
  PFN_cuMemPoolGetAttribute_v11020 cuMemPoolGetAttribute = get("cuMemPoolGetAttribute");
  PFN_cuMemPoolTrimTo_v11020 cuMemPoolTrimTo = get("cuMemPoolTrimTo");
  PFN_cuMemAllocFromPoolAsync_v11020 cuMemAllocFromPoolAsync = get("cuMemAllocFromPoolAsync");
  PFN_cuMemFreeAsync_v11020 cuMemFreeAsync = get("cuMemFreeAsync");
  PFN_cuMemcpyAsync_v4000 cuMemcpyAsync = get("cuMemcpyAsync");
  PFN_cuMemcpyPeerAsync_v4000 cuMemcpyPeerAsync = get("cuMemcpyPeerAsync");
  PFN_cuMemsetD8Async_v3020 cuMemsetD8Async = get("cuMemsetD8Async");
  PFN_cuPointerGetAttributes_v7000 cuPointerGetAttributes = get("cuPointerGetAttributes");
  PFN_cuStreamCreate_v2000 cuStreamCreate = get("cuStreamCreate");
  PFN_cuStreamSynchronize_v2000 cuStreamSynchronize = get("cuStreamSynchronize");
  PFN_cuStreamWaitEvent_v3020 cuStreamWaitEvent = get("cuStreamWaitEvent");
  PFN_cuStreamGetCaptureInfo_v11030 cuStreamGetCaptureInfo = get("cuStreamGetCaptureInfo");
  PFN_cuThreadExchangeStreamCaptureMode_v10010 cuThreadExchangeStreamCaptureMode =
      get("cuThreadExchangeStreamCaptureMode");
  PFN_cuUserObjectCreate_v11030 cuUserObjectCreate = get("cuUserObjectCreate");
  PFN_cuUserObjectRelease_v11030 cuUserObjectRelease = get("cuUserObjectRelease");
  PFN_cuGraphRetainUserObject_v11030 cuGraphRetainUserObject = get("cuGraphRetainUserObject");
  PFN_cuEventCreate_v2000 cuEventCreate = get("cuEventCreate");
  PFN_cuEventDestroy_v4000 cuEventDestroy = get("cuEventDestroy");
  PFN_cuEventRecord_v2000 cuEventRecord = get("cuEventRecord");
  PFN_cuEventSynchronize_v2000 cuEventSynchronize = get("cuEventSynchronize");
  PFN_cuEventElapsedTime_v2000 cuEventElapsedTime = get("cuEventElapsedTime");
  PFN_cuModuleLoadData_v2000 cuModuleLoadData = get("cuModuleLoadData");
  PFN_cuModuleGetFunction_v2000 cuModuleGetFunction = get("cuModuleGetFunction");
  PFN_cuFuncSetAttribute_v9000 cuFuncSetAttribute = get("cuFuncSetAttribute");
  PFN_cuFuncGetAttribute_v2020 cuFuncGetAttribute = get("cuFuncGetAttribute");
  // cuFuncGetParamInfo is null if the driver is older than release 550.
  PFN_cuFuncGetParamInfo_v12040 cuFuncGetParamInfo = get.optional("cuFuncGetParamInfo", 12040);
  PFN_cuLaunchKernel_v4000 cuLaunchKernel = get("cuLaunchKernel");
  PFN_cuLaunchKernelEx_v11060 cuLaunchKernelEx = get("cuLaunchKernelEx");
  PFN_cuOccupancyMaxActiveBlocksPerMultiprocessor_v6050 cuOccupancyMaxActiveBlocksPerMultiprocessor =
      get("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  PFN_cuOccupancyMaxActiveClusters_v11070 cuOccupancyMaxActiveClusters = get("cuOccupancyMaxActiveClusters");
  PFN_cuTensorMapEncodeTiled_v12000 cuTensorMapEncodeTiled = get("cuTensorMapEncodeTiled");
  PFN_cuTensorMapEncodeIm2col_v12000 cuTensorMapEncodeIm2col = get("cuTensorMapEncodeIm2col");
};

// Returns the functions of the driver. Throws DeviceError with the text of why_unavailable() (device.h) if there is no
// usable driver or GPU, or if CUDA was initialised before this process was forked.
const Driver& driver();
// The CUDA version of the driver, such as 13000 for CUDA 13.0, or 0 if there is no usable driver or GPU. Never throws.
int driver_cuda_version();

// Throws an exception unless the result is CUDA_SUCCESS: OutOfMemory for CUDA_ERROR_OUT_OF_MEMORY, and DeviceError for
// all other errors. The arguments `what` (such as "cuLaunchKernel of ", name) describe the call. They are converted to
// text only on an error.
[[noreturn]] void fail(CUresult, const std::string& what);
template <class... Parts> void check(CUresult result, const Parts&... what) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail(result, cat(what...));
}

// use() makes the primary context of a device current for the calling thread. torch and CuPy use the same context.
// use() returns the previous context, or null if there was none or if it was the primary context. It always asks the
// driver for the current context, because other code may have changed it; this takes 20 ns. The primary context is
// retained until the process ends.
CUcontext use(int device);
CUcontext context(int device);

// Calls use() for a scope, and restores the previous context at the end of the scope. Without this, the library would
// change the current device of torch.
class Current {
 public:
  explicit Current(int device) : before_(use(device)) {}
  ~Current() {
    if (before_) restore(before_);
  }
  Current(const Current&) = delete;

 private:
  static void restore(CUcontext) noexcept;
  CUcontext before_;
};

}  // namespace minidnn::cuda
