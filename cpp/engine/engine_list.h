// SPDX-License-Identifier: Apache-2.0
// The list of a family's engines on one device. F/engines.cpp names the classes, one line per engine:
//   namespace cuda::softmax {
//   using List = EngineList<SoftmaxProblem,
//       struct PersistentRows,  // defined in persistent_rows.cpp
//       struct StridedAxis>;
//   }
// The file of an engine ends with an instantiation of its object:
//   template const Engine<SoftmaxProblem>& engine_object<SoftmaxProblem, cuda::softmax::PersistentRows>();
// Without this line, the program does not link. Files of engines include engine_object.h, which defines the template.
#pragma once
#include "cpp/engine/engine.h"

namespace minidnn {

// The only object of the class E.
template <class P, class E> const Engine<P>& engine_object();

template <class P, class... E> struct EngineList {
  static const Engines<P>& get() {
    static const Engines<P> all{&engine_object<P, E>()...};
    return all;
  }
};

}  // namespace minidnn
