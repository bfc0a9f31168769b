// The steps whose kernels budgets.json records, and further ones whose kernels ship.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/shipped_kernels.h"

namespace nodewright::test {

struct RecordedStep {
  Card card;
  NamedModel model;
  int64_t rows;
  Numerics numerics = Numerics::fast;
  std::string name() const {
    return std::string(card.name) + " " + model.name + ", " + std::to_string(rows) + (rows == 1 ? " row" : " rows") +
           (numerics == Numerics::invariant ? ", invariant" : "");
  }
  StepShape shape() const { return shipped_step(card, model.config, rows, numerics); }
};

// A chunk of a prompt, by a library's products.
StepShape prompt_step(const ModelConfig& config);

// Cards of one target each.
std::vector<RecordedStep> steps_on_hopper();
std::vector<RecordedStep> steps_on_ampere();
// Every model with every number of rows that is recorded for any card.
std::vector<RecordedStep> steps_on(const Card& card);

// The models of tests/golden/configs, by the names of their files.
std::vector<NamedModel> released_models();

// The kernels of the steps, of a prompt's chunk, and those that no step has. A chunk: attention in tiles, norms and
// gates around library products; heads of 64, 128 and 256.
ShippedKernels kernels_of(const std::vector<RecordedStep>& steps);
// Steps whose rows may have adapters, in tiles, row by row and around library products.
ShippedKernels kernels_with_adapters(const Card& card);
void add_with_adapters(ShippedKernels& kernels, const Card& card, const ModelConfig& config, StepShape step);
// Steps of a rank of two, which exchange sums by packets, in bulk and by calls of a library.
ShippedKernels kernels_of_ranks(const Card& card);

}  // namespace nodewright::test
