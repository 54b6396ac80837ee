// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of one to three tensors, with broadcasting. pointwise_math.h lists the functions.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/pointwise/pointwise_math.h"
#include "cpp/simd/element_spans.h"

namespace minidnn {

template <> struct Family<PointwiseProblem> {
  using Args = PointwiseArgs;
  static constexpr const char* name = "pointwise";
  static std::string text(const PointwiseProblem&);
  static void ports(const PointwiseProblem&, Args&, Ports&);
  static const Engines<PointwiseProblem>& cpu_engines();
  static const Engines<PointwiseProblem>& cuda_engines();
};

struct PointwiseInfo {
  const char* name;
  PointwiseGroup group;
  int operands;  // a mask of the dtypes that operands may have, such as kRealOperands
};
const PointwiseInfo& info(Pointwise);
// Returns the function of the given name. Throws ShapeError if there is none.
Pointwise pointwise_from(const std::string& name, const char* call);
// Whether the function accepts operands of this dtype. The function `where` has a bool as its first operand; for it,
// the dtype is that of the second and third operands.
bool accepts(Pointwise, DType);
int arity(PointwiseGroup);
bool gives_bool(PointwiseGroup);
std::vector<std::string> pointwise_names();

// Returns op(a, b, c), broadcast as in NumPy. `b` and `c` are given only if the function has two or three operands. All
// operands have one dtype, except that the first operand of `where` is bool. call.out may be one of the operands, if
// the operand has the shape of the result and the size of its elements.
Tensor pointwise(Pointwise op, const Tensor& a, const std::optional<Tensor>& b, const std::optional<Tensor>& c,
                 const Call& call);

// Returns the dtype that determines how elements are computed. It is the dtype of the first operand, except for
// `where`, which uses that of the second operand.
DType pointwise_dtype(const PointwiseProblem&);
PointwiseIndexing indexing_of(const PointwiseProblem&);

// The joint indexing of tensors of one shape, in memory order of tensors[0]. access[i] is that of tensors[i]. In
// broadcast dimensions, tensors have stride 0.
struct JointIndexing {
  ElementIndexing elements;
  std::vector<PointwiseAccess> access;
};
JointIndexing joint_indexing(const std::vector<TensorDesc>& tensors);
double pointwise_bytes(const PointwiseProblem&);
double pointwise_flop(const PointwiseProblem&);

// For engines of the CPU that compute functions of elements in spans. A span has at most kPointwiseSpan contiguous
// elements, in the C++ type in which elements of their dtype are computed (PointwiseType). compute_dtype() returns the
// dtype of this type: float32, float64, int32 or int64.
DType compute_dtype(DType);
// Returns the loops for elements of a dtype, and the loop of a function. It is null if the function does not accept the
// dtype.
const ElementSpans& element_spans(DType);
PointwiseFunction pointwise_function(Pointwise, DType);
// Returns a loop over elements as they are in memory, for functions of 8-bit and 16-bit elements that have one. Tests
// write bools. It is null if the function has no such loop.
PointwiseFunction direct_pointwise_function(Pointwise, DType);
// Where the elements of a tensor are in its memory. The following functions copy at most kPointwiseSpan elements.
struct ElementLayout {
  const ElementIndexing& elements;
  const PointwiseAccess& access;
  DType dtype;
};
// load_span() reads the elements [i, i + n) of a tensor. store_span() writes them. They have the compute type of
// `type`, which is another dtype than that of the tensor only if the tensor has bools: then it stores whether each
// element is not 0. If `non_temporal` is set, stores of contiguous elements bypass the caches, as do those of
// copy_non_temporal(), and order_stores() must be called before another thread reads the tensor.
void load_span(const ElementLayout&, const void* data, int64_t i, int64_t n, void* to);
void store_span(const ElementLayout&, DType type, const void* from, int64_t i, int64_t n, void* data,
                bool non_temporal);
void copy_non_temporal(const void* from, void* to, int64_t bytes);
void order_stores();
// gather_span() copies the elements [i, i + n) of a tensor to contiguous memory, without a conversion. scatter_span()
// copies them back.
void gather_span(const ElementLayout&, const void* data, int64_t i, int64_t n, void* to);
void scatter_span(const ElementLayout&, const void* from, int64_t i, int64_t n, void* data);

}  // namespace minidnn
