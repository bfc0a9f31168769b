// Finds the layers of a plan that are the same block, so that a dump may show one of them for all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// Nodes that follow one another in Plan::nodes and belong to one layer, or to none.
struct LayerBlock {
  std::string layer;
  uint32_t first = 0, count = 0;  // node ids [first, first + count)
};

// One block, or several in a row that are the same.
struct BlockRun {
  std::vector<LayerBlock> blocks;  // never empty; all of the same count
};

// All nodes of `plan` in order. Two blocks are the same when their nodes agree one by one up to the layer's own name, a
// part between dots: in name, kind, kernel, shape, attributes, traffic, copy, fill, arguments that are scalars, uses,
// and the very plan, product, function or event of a node that has one; and in their in-edges: type, reasons and where
// they come from, which is the same place in the block, the same place in the block before it, or the same node ahead
// of the run. Edges that enter a run's first block from outside do not count. Buffers agree in name up to the layer's
// own name, or that of the layer before it or after it, in bytes, kind and whether they are live. Addresses never
// count; nor does, in a graph that was built elsewhere, which allocation they lie in.
std::vector<BlockRun> fold_layers(const Plan& plan);

// `name` with every part between dots that equals `layer` replaced by `by`: ("kv.l3", "l3", "l4") is "kv.l4".
std::string replace_layer(std::string_view name, std::string_view layer, std::string_view by);

}  // namespace nodewright
