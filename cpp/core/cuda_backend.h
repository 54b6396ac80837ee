// SPDX-License-Identifier: Apache-2.0
// What cpp/ uses of CUDA: functions that cuda/runtime defines. Host C++ without any CUDA header: safe to include
// anywhere.
#pragma once
#include <functional>
#include <string>

#include "cpp/core/device.h"
#include "cpp/core/memory.h"

namespace minidnn::cuda {

int device_count();             // 0 without a driver or a GPU; never throws
std::string why_unavailable();  // "" if a GPU can be used, else one sentence
// Throws DeviceError with why_unavailable(), or with the valid indices. So does memory().
const Device& device(int index);
Memory& memory(int index);

// The time in microseconds from the start to the end of the work that `enqueue` puts on the stream, measured with
// events. Waits for this work. Below about 100 us the host's gaps between launches distort the time: enqueue many.
double time_us(int device, Stream, const std::function<void()>& enqueue);

// $PYMINIDNN_CACHE_DIR, else $XDG_CACHE_HOME/pyminidnn, else ~/.cache/pyminidnn; read once. "" if kernels are kept in
// memory only, because there is no such folder, it belongs to another user, or others may write to it. A cubin is code,
// so such a folder is neither read nor written. If PYMINIDNN_LOG is set, a line on stderr says so.
std::string cache_folder();

}  // namespace minidnn::cuda
