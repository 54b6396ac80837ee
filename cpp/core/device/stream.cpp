// SPDX-License-Identifier: Apache-2.0
// Implements stream.h: the registry of the owners of CUDA streams.
#include "cpp/core/device/stream.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace minidnn {
namespace {

struct Owners {
  std::mutex mutex;
  std::unordered_map<Stream, std::weak_ptr<void>> of;
};
// The registry is never destroyed, because memory that is freed at exit still calls owner_of().
Owners& owners() {
  static auto& all = *new Owners;
  return all;
}

}  // namespace

void own_stream(Stream stream, std::shared_ptr<void> owner) {
  if (!stream) return;
  std::lock_guard lock(owners().mutex);
  owners().of[stream] = owner;
}

std::shared_ptr<void> owner_of(Stream stream) {
  if (!stream) return nullptr;
  std::lock_guard lock(owners().mutex);
  auto found = owners().of.find(stream);
  return found == owners().of.end() ? nullptr : found->second.lock();
}

uint64_t thread_of(Stream stream) {
  constexpr uintptr_t kPerThreadDefault = 2;
  if (reinterpret_cast<uintptr_t>(stream) != kPerThreadDefault) return 0;
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t number = ++threads;
  return number;
}

}  // namespace minidnn
