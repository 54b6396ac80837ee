// SPDX-License-Identifier: Apache-2.0
// The description of an H100 that engines receive from a test. With it, tests of tilings and estimates run without a
// GPU.
#pragma once
#include "cpp/core/device/device.h"

inline const minidnn::Device& h100() {
  static const minidnn::Device d = [] {
    minidnn::Device gpu;
    gpu.place = {true, 0};
    gpu.model = "H100";
    gpu.arch = 90;
    gpu.sm_count = 132;
    gpu.max_smem_bytes = 232448;
    gpu.l2_bytes = 50 << 20;
    gpu.copy_gb_s = 3000;
    gpu.fp32_gflop_s = 66900;
    return gpu;
  }();
  return d;
}
