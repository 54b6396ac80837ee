// SPDX-License-Identifier: Apache-2.0
// The Python extension module. It binds the core, the choice of engines, the runtime, and each family of functions.
#include "cpp/bindings/casters.h"

namespace minidnn {
void bind_activation(py::module_&);
void bind_pooling(py::module_&);
void bind_softmax(py::module_&);
void bind_loss(py::module_&);
void bind_ctc(py::module_&);
void bind_attention(py::module_&);
void bind_batch_norm(py::module_&);
void bind_layer_norm(py::module_&);
void bind_lrn(py::module_&);
void bind_matmul(py::module_&);
void bind_conv(py::module_&);
void bind_transform(py::module_&);
void bind_pad(py::module_&);
void bind_gather(py::module_&);
void bind_reduce(py::module_&);
void bind_pointwise(py::module_&);
void bind_random(py::module_&);
void bind_rnn(py::module_&);
void bind_graph(py::module_&);
}  // namespace minidnn

// The library is thread-safe, and bound functions share no state that changes after the import. So a free-threaded
// Python keeps its GIL off.
PYBIND11_MODULE(_C, m, py::mod_gil_not_used()) {
  using namespace minidnn;
  m.doc() = "The C++ side of pyminidnn. Use the package: its functions check, convert and document.";
  bind_core(m);
  bind_engine(m);
  bind_runtime(m);
  bind_activation(m);
  bind_pooling(m);
  bind_softmax(m);
  bind_loss(m);
  bind_ctc(m);
  bind_attention(m);
  bind_batch_norm(m);
  bind_layer_norm(m);
  bind_lrn(m);
  bind_matmul(m);
  bind_conv(m);
  bind_transform(m);
  bind_pad(m);
  bind_gather(m);
  bind_reduce(m);
  bind_pointwise(m);
  bind_random(m);
  bind_rnn(m);
  bind_graph(m);
  explain_refusals(m);
}
