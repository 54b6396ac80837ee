// SPDX-License-Identifier: Apache-2.0
// The list of the engines of one family on one device. The file F/engines.cpp of the family F names their classes, one
// per line:
//   namespace cuda::softmax {
//   using List = EngineList<SoftmaxProblem,
//       struct PersistentRows,  // defined in persistent_rows.cpp
//       struct StridedAxis>;
//   }
// The file that defines an engine ends with an instantiation of the engine's object:
//   template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cuda::softmax::PersistentRows>();
// Without this line, the program does not link. Files that define engines include engine_object.h, which defines the
// template engine_object.
#pragma once
#include "cpp/engine/engine.h"

namespace minidnn {

// Returns the only object of the engine class E.
template <class P, class E> const Engine<P>& engine_object();

template <class P, class... E> struct EngineList {
  static const Engines<P>& get() {
    static const Engines<P> all{&engine_object<P, E>()...};
    return all;
  }
};

}  // namespace minidnn
