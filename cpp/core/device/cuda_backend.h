// SPDX-License-Identifier: Apache-2.0
// The CUDA functions that cpp/ uses; cuda/runtime defines them. This header includes no header of CUDA, so that any
// host code can include it.
#pragma once
#include <functional>
#include <string>

#include "cpp/core/device/device.h"
#include "cpp/core/device/memory.h"

namespace minidnn::cuda {

// The number of GPUs; 0 without a CUDA driver. Never throws.
int device_count();
// Whether this library has used the GPU in this process. Never throws for an index below device_count().
bool in_use(int index);
// Why no GPU can be used, as one sentence; "" if a GPU can be used.
std::string why_unavailable();
// device() and memory() throw DeviceError if there is no GPU with this index. If no GPU can be used at all, the text of
// the error is why_unavailable(). If there are other GPUs, the text lists the valid indices.
const Device& device(int index);
Memory& memory(int index);

// Measures how many microseconds the work takes that `enqueue` puts on the stream, from start to end. The function
// measures with CUDA events and waits for the work. Gaps between launches distort times below about 100 us, so
// `enqueue` should put many launches on the stream.
double time_us(int device, Stream, const std::function<void()>& enqueue);

// The folder for compiled kernels (cubins): $PYMINIDNN_CACHE_DIR, else $XDG_CACHE_HOME/pyminidnn, else
// ~/.cache/pyminidnn. The environment variables are read once. The result is empty if there is no such folder. It is
// also empty if the folder belongs to another user, or if other users may write to it, because cubins are code. Kernels
// are then kept in memory only. If PYMINIDNN_LOG is set, a line on stderr says why the folder is not used.
std::string cache_folder();

}  // namespace minidnn::cuda
