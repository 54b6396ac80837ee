// SPDX-License-Identifier: Apache-2.0
// Regions that are functions of single elements: element i of each result depends on element i of each operand alone.
// Nodes are pointwise functions, activations, casts, scalings, and dropout. Their engines load each operand once, keep
// all other values in registers or in a small buffer, and store each result once.
#pragma once
#include "cpp/activation/activation.h"
#include "cpp/graph/element_params.h"
#include "cpp/graph/region.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/random/random.h"
#include "cpp/transform/transform.h"

namespace minidnn {

// A tensor that the region loads or stores. If a value is loaded with several strides, it has several operands.
struct ElementOperand {
  int value;        // the index in Region::values
  TensorDesc desc;  // has the shape of the region, and stride 0 in broadcast dimensions
  PointwiseAccess access{};
};

// What a node computes with: the result of an earlier step, a tensor, or a number that is known when the region runs.
struct ElementSource {
  enum class Kind { step, load, number };
  Kind kind;
  int index;  // the number of the step, or the index in ElementRegion::loads or in Region::values
  DType dtype;
};

// The step with the number i computes node i of the region.
struct ElementStep {
  std::vector<ElementSource> sources;  // in the order of the node's ports
  DType dtype;                         // the dtype of the result
  int store = -1;                      // the index of the result in ElementRegion::stores, or -1
};

struct ElementRegion {
  ElementIndexing indexing;  // elements are numbered in the memory order of the first result
  std::vector<ElementOperand> loads, stores;
  std::vector<ElementStep> steps;
  // Whether the number of an element is that of row-major order, by which random numbers are found.
  bool row_major = false;
};

// Fills `to`. Returns "", or why a region is no function of single elements, or has too many tensors.
std::string element_region(const Region&, ElementRegion& to);
// Returns "", or why a node is no function of single elements.
std::string why_not_element(const RegionNode&);
// The result of a function of single elements.
const RegionPort& element_result(const RegionNode&);
// Whether no floating-point tensor of a region has more than 16 bits.
bool only_16_bit(const Region&);
double element_flop(const RegionNode&);
double element_flop(const Region&);

}  // namespace minidnn
