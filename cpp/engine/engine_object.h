// SPDX-License-Identifier: Apache-2.0
// Included by the files that define engines; see engine_list.h. It is separate, because the lists must not see this
// definition: their engines are incomplete types.
#pragma once
#include "cpp/engine/engine_list.h"

namespace minidnn {

template <class P, class E> const Engine<P>& engine_object() {
  static const E object;
  return object;
}

}  // namespace minidnn
