// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk (sm_90), the copy instructions of TMA. One thread starts a copy. A copy into shared memory counts its
// bytes at an mbarrier (complete_tx). Elements of a box outside the tensor are written as zeros, and are counted, too.
// If `blocks` is not 0, the copy is a multicast to the blocks of the cluster whose bits are set in `blocks`.
#pragma once
#include "cuda/device/cache.cuh"
#include "cuda/device/ptx/mbarrier.cuh"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Copies `bytes` contiguous bytes from global to shared memory. `to`, `from` and `bytes` are multiples of 16.
__device__ __forceinline__ void cp_async_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Copies a box of a tensor. `at` are the coordinates of the box, with the innermost dimension first.
__device__ __forceinline__ void tma_load(uint32_t to, const TensorMap* map, uint32_t barrier, uint16_t blocks,
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

// Copies pixels in im2col mode, for two spatial dimensions. The first pixel has the coordinates (channel, at[1], at[0],
// image) from the innermost dimension on. `tap` shifts all pixels by the position of an element in the filter.
__device__ __forceinline__ void tma_load_im2col(uint32_t to, const TensorMap* map, uint32_t barrier, uint16_t blocks,
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
// Copies pixels in im2col mode, for three spatial dimensions. The first pixel has the coordinates (channel, at[2],
// at[1], at[0], image) from the innermost dimension on. `tap` shifts all pixels by the position of an element in the
// filter.
__device__ __forceinline__ void tma_load_im2col(uint32_t to, const TensorMap* map, uint32_t barrier, uint16_t blocks,
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

// Copies a box from shared memory to a tensor of three dimensions. `at` are the coordinates of the box, with the
// innermost dimension first. Elements outside the tensor are not written. The copies that a thread starts before
// cp_async_bulk_commit_group() are a group. Threads that have written the box call fence_proxy_async() before the copy.
__device__ __forceinline__ void tma_store(const TensorMap* map, uint32_t from, const int (&at)[3]) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(from),
               "r"(at[0]), "r"(at[1]), "r"(at[2])
               : "memory");
}

// Adds `bytes` of float32 in shared memory to those in global memory. `to`, `from` and `bytes` are multiples of 16. The
// order of the additions of different copies is not defined.
__device__ __forceinline__ void cp_reduce_async_bulk_add_f32(float* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the last kGroups groups of this thread have read their shared memory.
template <int kGroups> __device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
// Waits until all but the last kGroups groups of this thread are complete, and their writes are visible to it.
template <int kGroups> __device__ __forceinline__ void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace minidnn
