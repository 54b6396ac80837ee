// SPDX-License-Identifier: Apache-2.0
// What a file of a graph needs of C++. pyminidnn/graph_files.py writes and reads the files: a graph is read by making
// its calls again, so all checks of the calls are made again.
#pragma once
#include "cpp/graph/graph.h"

namespace minidnn::graph {

// The words of a node's Args that are numbers: neither addresses nor flags that follow from the problem.
struct NumberWord {
  size_t word;
  bool is_seed;  // whether a dynamic number may replace it
};
std::vector<NumberWord> number_words(const Node&);
// Returns the Args of a node without what belongs to one recording: addresses and dynamic numbers are 0.
std::vector<uint64_t> plain_args(const Node&);

// Returns all of a tensor's storage as a tensor of bytes.
Tensor storage_of(const Tensor&);
// Returns the elements that `desc` describes in a dense tensor of bytes, element (0, ..., 0) at byte `offset`. Throws
// ShapeError if one of them is outside of `memory` or misaligned.
Tensor elements_at(const Tensor& memory, int64_t offset, const TensorDesc& desc);

}  // namespace minidnn::graph
