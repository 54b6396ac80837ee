// SPDX-License-Identifier: Apache-2.0
// Copies between global and shared memory by the threads of a block, in words of 16 bytes.
#pragma once
#include "cuda/pooling/vector_lanes.cuh"

#ifdef __CUDA_ARCH__
#include "cuda/device/ptx/cp_async.cuh"
#endif

namespace minidnn::cuda::pooling {

// The index of a thread in its block, and the number of threads. A test on the CPU runs the threads one after another.
struct Thread {
  int index, count;
};
MINIDNN_HD void clear_words(Thread t, void* smem, int words) {
  for (int i = t.index; i < words; i += t.count) static_cast<Words*>(smem)[i] = {};
}
MINIDNN_HD void sync_threads() {
#ifdef __CUDA_ARCH__
  __syncthreads();
#endif
}
MINIDNN_HD void sync_lanes() {
#ifdef __CUDA_ARCH__
  __syncwarp();
#endif
}

// Returns the address in `smem` (shared memory) for a copy of the elements at `global`. Both addresses are equal modulo
// 16 bytes, so that nearly all elements are copied in 16-byte words.
template <class T> MINIDNN_HD T* at_same_alignment(const void* global, unsigned char* smem) {
  return reinterpret_cast<T*>(smem + (reinterpret_cast<uint64_t>(global) & 15));
}
template <class T> MINIDNN_HD int elements_before_words(const void* global, int n) {
  const int beyond = int(reinterpret_cast<uint64_t>(global) & 15);
  return min_of(n, (16 - beyond) % 16 / int(sizeof(T)));
}
// Writes n elements to global memory. The callback words_at(i) returns the 16 bytes that begin with element i. The
// callback element_at(i) returns element i.
template <class T, class WordsAt, class ElementAt>
MINIDNN_HD void write_out(Thread t, T* to, int n, WordsAt&& words_at, ElementAt&& element_at) {
  const int head = elements_before_words<T>(to, n), words = (n - head) / kLanes<T>, tail = head + words * kLanes<T>;
  for (int i = t.index; i < words; i += t.count) store_words(to + head + i * kLanes<T>, words_at(head + i * kLanes<T>));
  if (t.index < head) to[t.index] = element_at(t.index);
  if (t.index < n - tail) to[tail + t.index] = element_at(tail + t.index);
}

// Copies n elements from shared to global memory. `from` is the address that at_same_alignment() returned.
template <class T> MINIDNN_HD void copy_out(Thread t, const T* from, int n, T* to) {
  write_out(t, to, n, [&](int i) { return load_words(from + i); }, [&](int i) { return from[i]; });
}

#ifndef __CUDA_ARCH__
inline void cp_async_commit_group() {}
template <int kPending> void cp_async_wait_group() {}
#endif

// Copies 16 bytes from global to shared memory. They are visible after cp_async_wait_group and a barrier.
MINIDNN_HD void copy_vector(void* to, const void* from) {
#ifdef __CUDA_ARCH__
  cp_async<16>(cvta_to_shared(to), from, 1);
#else
  *static_cast<Words*>(to) = load_words(from);
#endif
}
// Copies n elements from global to shared memory. They are visible after cp_async_wait_group and a barrier.
template <class T> MINIDNN_HD void copy_in(Thread t, const T* from, int n, T* to) {
  const int head = elements_before_words<T>(from, n), words = (n - head) / kLanes<T>, tail = head + words * kLanes<T>;
#ifdef __CUDA_ARCH__
  const uint32_t at = cvta_to_shared(to + head);
  for (int i = t.index; i < words; i += t.count) cp_async<16>(at + 16 * uint32_t(i), from + head + i * kLanes<T>, 1);
  cp_async_commit_group();
#else
  for (int i = t.index; i < words; i += t.count)
    store_words(to + head + i * kLanes<T>, load_words(from + head + i * kLanes<T>));
#endif
  if (t.index < head) to[t.index] = from[t.index];
  if (t.index < n - tail) to[tail + t.index] = from[tail + t.index];
}

}  // namespace minidnn::cuda::pooling
