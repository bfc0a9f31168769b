// The sizes that kernels are chosen for are those of the matrices that a checkpoint gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "models/config/part.h"
#include "models/config/shard.h"
#include "models/weights/weights.h"
#include "runtime/device_selection.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

MatrixSize loaded(const WeightMatrix& matrix) { return {matrix.cols, matrix.rows}; }
MatrixSize stacked(MatrixSize of_expert, int64_t experts) { return {of_expert.cols, experts * of_expert.outputs}; }

void expect_same(MatrixSize expected, MatrixSize size, Part part) {
  EXPECT_EQ(expected.cols, size.cols) << to_string(part);
  EXPECT_EQ(expected.outputs, size.outputs) << to_string(part);
}

void expect_sizes(const DecoderWeights& weights, const ModelConfig& config) {
  expect_same(matrix_size(config, Part::embedding), loaded(weights.embedding()), Part::embedding);
  expect_same(matrix_size(config, Part::head), loaded(weights.head()), Part::head);
  for (int64_t l = 0; l < config.layers; ++l) {
    const LayerWeights& layer = weights.layers()[static_cast<size_t>(l)];
    expect_same(matrix_size(config, Part::qkv), loaded(layer.qkv), Part::qkv);
    expect_same(matrix_size(config, Part::out), loaded(layer.out), Part::out);
    int64_t elements = layer.qkv.rows * layer.qkv.cols + layer.out.rows * layer.out.cols;
    for (const Part part : {Part::gate_up, Part::down}) {
      const WeightMatrix& matrix = part == Part::gate_up ? layer.gate_up : layer.down;
      const bool dense = config.feed_forward(l) == FeedForward::dense;
      expect_same(dense ? matrix_size(config, part) : stacked(expert_matrix_size(config, part), config.experts.count),
                  loaded(matrix), part);
      elements += matrix.rows * matrix.cols;
    }
    if (config.feed_forward(l) == FeedForward::experts)
      expect_same(matrix_size(config, Part::router), loaded(layer.router), Part::router);
    EXPECT_EQ(layer_elements(config, l, config.experts.count), elements) << "layer " << l;
  }
}

TEST(MatrixSizeOnCpuDriver, IsThatOfTheLoadedMatrix) {
  const OpenedDevice opened = open_device("cpu");
  int64_t models = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::source_dir() / "tests/golden")) {
    const std::filesystem::path folder = entry.path().parent_path();
    if (entry.path().filename() != "config.json" || !std::filesystem::exists(folder / "model.safetensors")) continue;
    SCOPED_TRACE(folder);
    const ModelConfig config = read_model_config(folder);
    const Checkpoint checkpoint = Checkpoint::open(folder);
    expect_sizes(DecoderWeights::place(*opened.device, checkpoint, config).weights, config);
    if (std::gcd(std::gcd(config.heads, config.kv_heads), std::gcd(config.intermediate, config.experts.intermediate)) %
            2 ==
        0) {
      const ModelConfig half = shard_of(config, {.rank = 1, .ranks = 2});
      expect_sizes(DecoderWeights::place(*opened.device, checkpoint, half).weights, half);
    }
    ++models;
  }
  EXPECT_GE(models, 20);
}

}  // namespace
}  // namespace nodewright
