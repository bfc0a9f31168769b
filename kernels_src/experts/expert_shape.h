// How the experts of a mixture are laid over the GPU. Host only; the kernels of this folder are compiled for its
// constants.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels_src/experts/expert_down_rows.h"
#include "kernels_src/experts/expert_rows.h"
#include "kernels_src/experts/group_by_expert.h"
#include "kernels_src/experts/norm_expert_gate_up.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

inline constexpr int64_t kMostExperts = 1024, kMostChosenExperts = 32;

// One matrix of all experts, [experts * outputs, stride], and the rows of a step.
struct ExpertShape {
  int64_t rows = 0;                 // of the step
  int64_t experts = 0, chosen = 0;  // that there are, that a row has
  int64_t cols = 0, stride = 0;     // of W: stride is cols rounded up to 8
  int64_t outputs = 0;              // rows of W of an expert
  WeightLayout weights = {};        // cols = stride, but in bf16
  constexpr int64_t pairs() const { return rows * chosen; }

  constexpr ShapeConstants<5> constants() const {
    return {{{"kExperts", experts}, {"kChosen", chosen}, {"kCols", cols}, {"kStride", stride}, {"kOutputs", outputs}}};
  }
};

// Row by row, with ordinary arithmetic: norm_expert_gate_up and expert_down_add.
struct ExpertRowsShape : ExpertShape {
  constexpr LaunchShape gate_up_launch(int64_t sm_count) const {
    const int64_t blocks = std::min(chosen * outputs / 2, 2 * sm_count);
    return {{static_cast<unsigned>(blocks), static_cast<unsigned>(rows), 1},
            {kExpertRowsThreads, 1, 1},
            static_cast<unsigned>(4 * (stride + 32) + expert_halves_bytes(weights, stride, 1))};
  }

  // For expert_down_add: warps that share the columns of an expert, enough for eight warps a block, and a block's
  // outputs.
  constexpr int64_t parts() const { return chosen >= 8 ? 1 : 8 / chosen; }
  constexpr int64_t down_threads() const { return 32 * chosen * parts(); }
  constexpr int64_t rows_of_block(int64_t sm_count) const {
    const int64_t wanted = (outputs + 2 * sm_count - 1) / (2 * sm_count);
    return std::min<int64_t>(64, (wanted + kRowsOfGroup - 1) / kRowsOfGroup * kRowsOfGroup);
  }
  constexpr ShapeConstants<3> down_constants(int64_t sm_count) const {
    return {{{"kParts", parts()}, {"kThreads", down_threads()}, {"kRowsOfBlock", rows_of_block(sm_count)}}};
  }
  constexpr LaunchShape down_launch(int64_t sm_count) const {
    const int64_t of_block = rows_of_block(sm_count);
    return {{static_cast<unsigned>((outputs + of_block - 1) / of_block), static_cast<unsigned>(rows), 1},
            {static_cast<unsigned>(down_threads()), 1, 1},
            static_cast<unsigned>(chosen * parts() * (4 * of_block + expert_halves_bytes(weights, stride, parts())))};
  }
};

// Grouped by expert, on tensor cores: group_by_expert, tile_expert_gate_up and tile_expert_down. Of few rows an expert
// jobs are small, so that none is mostly empty, and a warp has 8 rows of W, so that bytes are balanced over warps; of
// many they are larger, and read W less often.
struct ExpertTileShape : ExpertShape {
  constexpr int64_t job_rows() const {
    const int64_t of_expert = pairs() / experts;
    return of_expert <= 12 ? 16 : of_expert <= 32 ? 32 : 64;
  }
  constexpr int64_t most_jobs() const { return std::min(experts, pairs()) + pairs() / job_rows(); }
  constexpr int64_t tile_rows() const { return job_rows() == 16 ? 8 : 16; }
  // Columns of x that a block holds at once: all that fit 64 KiB, or half as many in each of two buffers, so that an SM
  // holds two blocks.
  constexpr int64_t piece_columns() const {
    const int64_t all = (stride + 63) / 64 * 64, fits = 32768 / job_rows();
    return all <= fits ? all : fits / 2;
  }
  // Bytes between rows of x, beside a multiple of 128 (product/format).
  constexpr int64_t x_padding() const { return weights.element_bits() == 8 ? 16 : 64; }
  constexpr int64_t buffers() const { return piece_columns() < stride ? 2 : 1; }
  constexpr ShapeConstants<3> tile_constants() const {
    return {{{"kJobRows", job_rows()}, {"kTileRows", tile_rows()}, {"kPieceColumns", piece_columns()}}};
  }
  constexpr LaunchShape launch_shape(int64_t sm_count) const {
    const int64_t units = most_jobs() * ((outputs + tile_rows() - 1) / tile_rows());
    return launch_shape_1d(static_cast<unsigned>(std::min(units, 2 * sm_count)), kExpertTilesThreads,
                           static_cast<unsigned>(buffers() * job_rows() * (2 * piece_columns() + x_padding())));
  }

  constexpr unsigned group_threads() const { return pairs() <= 1024 ? 256 : 1024; }
  constexpr LaunchShape group_launch() const {
    const unsigned threads = group_threads(), counts = static_cast<unsigned>(experts) * (threads / 32 + 1);
    return launch_shape_1d(1, threads, 4 * (counts + threads));
  }
};

}  // namespace nodewright
