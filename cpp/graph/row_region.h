// SPDX-License-Identifier: Apache-2.0
// Regions whose results depend on single rows. A row is a contiguous part of a tensor, such as the trailing dimensions
// of a row-major tensor. The nodes are functions of single elements (element_region.h) and statistics of rows:
//   layer and RMS norm, instance norm      the moments of the row, then a function of its elements
//   softmax, log-softmax, their gradients  exponentials or a sum, then a function of its elements
//   reduce                                 one number for each row
// Engines load each operand once, keep the row on chip while they compute its statistics, and store each result once.
#pragma once
#include "cpp/graph/element_region.h"
#include "cpp/layer_norm/layer_norm.h"
#include "cpp/reduce/reduce.h"
#include "cpp/softmax/softmax.h"

namespace minidnn {

// What a step computes with.
struct RowSource {
  enum class Kind {
    step,        // the elements that step `index` computes
    load,        // the elements of tensor `index` of RowRegion::loads
    number,      // a number of the region's value `index`, known when the region runs
    row_number,  // a number of the row
    row_load,    // the element of tensor `index` of RowRegion::row_loads that belongs to the row
  };
  Kind kind;
  int index;
  DType dtype;
};

// A result that has one number for each row.
struct RowResult {
  int value;       // the index in Region::values
  int row_number;  // which number of the row it is
  int store = -1;  // the index in RowRegion::row_stores, or -1
};

// The step with the number i computes node i of the region.
struct RowStep {
  std::vector<RowSource> sources;  // in the order of the node's ports
  DType dtype;                     // the dtype of the first result
  bool wide = true;                // whether it has a result for each element
  int statistic = -1;              // the index in RowRegion::statistics, or -1
  int phase = 0;                   // the result is known after this number of statistics
  int store = -1;                  // the index of the result for each element in RowRegion::stores, or -1
  int first_number = 0;            // the first number of the row that the step computes
  std::vector<RowResult> results;  // the results with one number for each row
};

struct RowRegion {
  int64_t rows = 0, cols = 0;
  ElementIndexing indexing;  // element c of row r has the number r * cols + c
  std::vector<ElementOperand> loads, stores;
  // Tensors with one element for each row. Their strides are 0 in the dimensions of a row.
  std::vector<ElementOperand> row_loads, row_stores;
  std::vector<RowStep> steps;
  std::vector<int> statistics;  // the nodes that compute statistics
  int row_numbers = 0;
  // Whether the number of an element is that of row-major order, by which random numbers are found.
  bool row_major = false;
};

// Fills `to`. Returns "", or why a region is no function of single rows, or has too many tensors.
std::string row_region(const Region&, RowRegion& to);
double row_region_flop(const Region&);

}  // namespace minidnn
