// An algorithm of cuBLASLt in numbers: unlike its bytes and its place among proposals, good for every version that has
// it.
#pragma once

#include <cstdint>
#include <string>

namespace nodewright {

// The attributes of cublasLtMatmulAlgoConfigAttributes_t by which algorithms differ. All 0: none.
struct MatmulConfig {
  int64_t algorithm = 0;
  int64_t tile = 0;    // cublasLtMatmulTile_t
  int64_t stages = 0;  // cublasLtMatmulStages_t
  int64_t split_k = 0;
  int64_t reduction = 0;  // cublasLtReductionScheme_t
  int64_t swizzle = 0;
  int64_t custom = 0;
  int64_t inner = 0;    // cublasLtMatmulInnerShape_t
  int64_t cluster = 0;  // cublasLtClusterShape_t
  bool operator==(const MatmulConfig&) const = default;
};

// "algorithm 66, tile 10, stages 35, split-K 3", and what else is not 0: ", cluster 3".
std::string to_string(const MatmulConfig& config);

}  // namespace nodewright
