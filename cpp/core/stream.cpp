// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/stream.h"

#include <mutex>
#include <unordered_map>

namespace minidnn {
namespace {

struct Owners {
  std::mutex mutex;
  std::unordered_map<Stream, std::weak_ptr<void>> of;
};
Owners& owners() {  // never destroyed: memory freed at exit still asks
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

}  // namespace minidnn
