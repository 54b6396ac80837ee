// SPDX-License-Identifier: Apache-2.0
// The definition of engine_object(), which engine_list.h declares. Only files that define engines include this header.
// Files that list engines must not see the definition, because the engines are incomplete types there.
#pragma once
#include "cpp/engine/engine_list.h"

namespace minidnn {

template <class P, class E> const Engine<P>& engine_object() {
  static const E object;
  return object;
}

}  // namespace minidnn
