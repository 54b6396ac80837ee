// SPDX-License-Identifier: Apache-2.0
// The copy engine of sm_90 (TMA): boxes of a tensor map into shared memory, completing on a barrier by their bytes,
// which count in full also where a box leaves the tensor (zeros arrive there). One thread issues. A block mask other
// than 0 multicasts: data and completion go to the same addresses in each of these blocks of the cluster.
#pragma once
#include "cuda/device/cache.cuh"
#include "cuda/device/mbarrier.cuh"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Coordinates from the innermost dimension outwards.
__device__ __forceinline__ void load_box(uint32_t to, const TensorMap* map, uint32_t barrier, uint16_t blocks,
                                         const int (&at)[5], CachePolicy policy = CachePolicy::normal) {
  if (blocks)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8, %9;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "h"(blocks),
        "l"(uint64_t(policy))
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "l"(uint64_t(policy))
        : "memory");
}

// Pixels from (channel, w, h, n) on, all of them shifted by a tap; two spatial dimensions.
__device__ __forceinline__ void load_pixels(uint32_t to, const TensorMap* map, uint32_t barrier, uint16_t blocks,
                                            int channel, const int (&at)[2], int image, const int (&tap)[2],
                                            CachePolicy policy = CachePolicy::normal) {
  if (blocks)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9, %10;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(at[1]), "r"(at[0]), "r"(image), "h"(uint16_t(tap[1])),
        "h"(uint16_t(tap[0])), "h"(blocks), "l"(uint64_t(policy))
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(at[1]), "r"(at[0]), "r"(image), "h"(uint16_t(tap[1])),
        "h"(uint16_t(tap[0])), "l"(uint64_t(policy))
        : "memory");
}
// The same with three spatial dimensions.
__device__ __forceinline__ void load_pixels(uint32_t to, const TensorMap* map, uint32_t barrier, uint16_t blocks,
                                            int channel, const int (&at)[3], int image, const int (&tap)[3],
                                            CachePolicy policy = CachePolicy::normal) {
  if (blocks)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10}, %11, %12;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(at[2]), "r"(at[1]), "r"(at[0]), "r"(image), "h"(uint16_t(tap[2])),
        "h"(uint16_t(tap[1])), "h"(uint16_t(tap[0])), "h"(blocks), "l"(uint64_t(policy))
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10}, %11;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(at[2]), "r"(at[1]), "r"(at[0]), "r"(image), "h"(uint16_t(tap[2])),
        "h"(uint16_t(tap[1])), "h"(uint16_t(tap[0])), "l"(uint64_t(policy))
        : "memory");
}

}  // namespace minidnn
