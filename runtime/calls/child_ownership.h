// Whether a child graph moves into its node. CUDA 13 has brought that: with the headers of CUDA 12 children are copied.
#pragma once

#include <cuda.h>

namespace nodewright {

#if CUDA_VERSION >= 13000
inline constexpr bool kChildrenMove = true;

inline void set_moved(CUDA_CHILD_GRAPH_NODE_PARAMS& child, bool moved) {
  child.ownership = moved ? CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE : CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
}
inline bool is_moved(const CUDA_CHILD_GRAPH_NODE_PARAMS& child) {
  return child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
}
inline bool is_copied(const CUDA_CHILD_GRAPH_NODE_PARAMS& child) {
  return child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
}
#else
inline constexpr bool kChildrenMove = false;

inline void set_moved(CUDA_CHILD_GRAPH_NODE_PARAMS&, bool) {}
inline bool is_moved(const CUDA_CHILD_GRAPH_NODE_PARAMS&) { return false; }
inline bool is_copied(const CUDA_CHILD_GRAPH_NODE_PARAMS&) { return true; }
#endif

}  // namespace nodewright
