// SPDX-License-Identifier: Apache-2.0
// The list of the engines of one family on one device. For a family F, the file F/engines.cpp names the classes of its
// engines, one per line:
//   namespace cuda::softmax {
//   using List = EngineList<SoftmaxProblem,
//                           struct PersistentRows,  // defined in persistent_rows.cpp
//                           struct StridedAxis>;
//   }
// The file that defines an engine ends with an instantiation of the function that returns the engine:
//   template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cuda::softmax::PersistentRows>();
// Without this instantiation, the program does not link. Files that define engines include engine_object.h, which
// defines the template engine_object.
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
