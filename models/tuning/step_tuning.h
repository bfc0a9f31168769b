// What a measured device does better than the shapes of kernels say, for steps of one model: found by `nodewright
// tune`, kept in a JSON file. Zero and nothing mean: as the shapes say (product/rows/matvec_shape.h,
// product/tiles/tile_shape.h and attention/flash_decode.h of kernels_src).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "kernels_src/product/rows/matvec_shape.h"
#include "kernels_src/product/tiles/tile_shape.h"
#include "models/config/model_config.h"
#include "runtime/libraries/matmul_config.h"

namespace nodewright {

// matvec: every weight is read once for a few rows, by kernels that are memory-bound and fuse what stands around.
// tiles: the same step, by kernels that fuse the same and multiply on tensor cores.
// products: norms, library products on tensor cores and activations apart, and attention of a prompt in tiles.
enum class Arithmetic : uint8_t { matvec, tiles, products };

struct AttendTuning {
  int64_t splits = 0;  // blocks that share a row's context, 1 to 64
  int64_t warps = 0;   // of a block: 1, 2, 4, 8 or 16
  int64_t ring = 0;    // chunks of 16 keys that a warp has requested: 2 to 12
  bool operator==(const AttendTuning&) const = default;
};

// An SM divides its L1 anew only when it is idle: kernels that are to overlap want divisions that suit each other
// (docs/attention.md).
struct SharedTuning {
  int64_t carveout = 0;  // percent that the kernels of a step prefer as shared memory, attention apart
  bool operator==(const SharedTuning&) const = default;
};

struct ProductTuning {
  MatmulConfig config;  // the library's algorithm; the first that it proposes where it proposes no such one
  int64_t as_rows = 0;  // without one: the library proposes for a product of this many rows instead of the step's
  bool names_algorithm() const { return config != MatmulConfig{}; }
  bool operator==(const ProductTuning&) const = default;
};

struct ProjectionTuning {
  MatvecTuning matvec;
  TileTuning tile;
  ProductTuning product;
  bool operator==(const ProjectionTuning&) const = default;
};

// The tuning of steps of one number of rows.
struct StepTuning {
  std::optional<Arithmetic> arithmetic;
  AttendTuning attend;
  SharedTuning shared;
  ProjectionTuning qkv, out, gate_up, down, head;
  bool operator==(const StepTuning&) const = default;
};

struct TuningKey {
  std::string device;  // as the driver calls it
  std::string model;   // the sizes that decide what a step costs: model_sizes(), and what of head and cache is FP8
  bool operator==(const TuningKey&) const = default;
};

TuningKey tuning_key(std::string device, const ModelConfig& config);
// The key of the same steps with a cache, or else a head, in bf16, whose tuning counts until theirs is measured; `key`
// where both are.
TuningKey nearer_bf16(TuningKey key);

// "hidden 2048, layers 16, heads 32 of 64 for 8, intermediate 8192, vocab 128256, rms": equal for checkpoints whose
// steps take the same kernels.
std::string model_sizes(const ModelConfig& config);

// ProductTuning::as_rows of steps by their least number of rows, up to the next, 0 for what the library proposes for
// these: for all sizes a few algorithms, each of which is a kernel that the library takes 2 ms to load.
struct ProductSizes {
  std::map<int64_t, int64_t> qkv, out, gate_up, down, head;
  bool operator==(const ProductSizes&) const = default;
};

struct Tuning {
  TuningKey key;
  std::map<int64_t, StepTuning> steps;  // by rows
  ProductSizes products;                // of steps that say nothing of a product

  // The tuning of steps of `rows` rows; the shapes' defaults where none was measured.
  StepTuning of(int64_t rows) const;
};

// Rows that a file may speak of, at most.
inline constexpr int64_t kMostTunedRows = 8192;

// Where `nodewright tune` leaves what it found, in the user's cache folder; empty where there is none.
std::filesystem::path tuning_file(const TuningKey& key);

// Throws Error with the path, and with the key or the number that is wrong.
Tuning read_tuning(const std::filesystem::path& path);

// The same numbers for steps of `key`, which nearer_bf16() leads to the tuning's own from: without those of a head in
// another format.
Tuning tuning_for(Tuning tuning, const TuningKey& key);

// What the library ships for this device and model, or else for nearer_bf16() (models/tuning); without steps where it
// ships nothing.
Tuning shipped_tuning(const TuningKey& key);
std::string tuning_json(const Tuning& tuning);

}  // namespace nodewright
