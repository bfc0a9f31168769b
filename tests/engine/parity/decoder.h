// Sequences that a test opens, steps and closes as it likes, over what a device's steps are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/direct_steps.h"
#include "models/kv_cache.h"
#include "runtime/memory/memory.h"

namespace nodewright::test {

// Options of DirectSteps that tests change.
struct DecoderOptions {
  int64_t bucket = 1, prefill_rows = 8, max_context = 0, sequences = 1;
  Numerics numerics = Numerics::fast;
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  std::optional<int64_t> products_from;
  bool keep_logits = false;
  LaunchSteps steps = {};
  std::shared_ptr<const Tuning> tuning = {};
  AdapterLimits adapters = {};
};

class Decoder : public DirectSteps {
 public:
  Decoder(Device& device, KernelCache& kernels, const DecoderModel& model, const DecoderOptions& options)
      : DirectSteps({&device, &kernels, &model}, {.bucket = options.bucket,
                                                  .prefill_rows = options.prefill_rows,
                                                  .keep_logits = options.keep_logits,
                                                  .slots = {.max_context = options.max_context,
                                                            .sequences = options.sequences,
                                                            .numerics = options.numerics,
                                                            .tuning = options.tuning,
                                                            .mode = options.mode,
                                                            .policy = options.policy,
                                                            .steps = options.steps,
                                                            .products_from = options.products_from,
                                                            .adapters = options.adapters}}),
        is_open_(static_cast<size_t>(options.sequences), false) {}

  // An empty sequence, with the adapter in that slot or none.
  int32_t open(int32_t adapter = -1) {
    const auto found = std::ranges::find(is_open_, false);
    if (found == is_open_.end()) throw std::runtime_error("all sequences are open");
    *found = true;
    const auto sequence = static_cast<int32_t>(found - is_open_.begin());
    restart(sequence, adapter);
    return sequence;
  }
  void close(int32_t sequence) {
    is_open_.at(static_cast<size_t>(sequence)) = false;
    restart(sequence);
  }

  // A launch of one step: the token of each row, valid until the next one.
  std::span<const int32_t> step(std::span<const StepRow> rows) {
    tokens_.clear();
    for (const std::vector<int32_t>& chosen : launch(rows)) tokens_.push_back(chosen.front());
    return tokens_;
  }
  std::span<const int32_t> step(std::initializer_list<StepRow> rows) {
    return step(std::span(rows.begin(), rows.size()));
  }

  // The pages of a sequence that hold tokens of it, of each layer.
  std::vector<int32_t> pages_of(int32_t sequence) const {
    std::vector<int32_t> pages;
    for (int64_t page = 0; page < pages_for(length(sequence)); ++page)
      pages.push_back(static_cast<int32_t>(sequence * pages_for(options().slots.max_context) + page));
    return pages;
  }
  // Fills with NaN bytes what no live row may look at: activations, the input block, pages that hold nothing.
  void poison() {
    device().poison(0);
    std::vector<bool> holds(static_cast<size_t>(device().cache().pages()), false);
    for (int32_t sequence = 0; sequence < options().slots.sequences; ++sequence)
      for (const int32_t page : pages_of(sequence)) holds[static_cast<size_t>(page)] = true;
    const uint64_t bytes = KvCache::page_bytes(device().config());
    for (int64_t layer = 0; layer < device().config().layers; ++layer)
      for (size_t page = 0; page < holds.size(); ++page)
        if (!holds[page])
          fill_device(device().device(), device().cache().layer(layer).address() + page * bytes, std::byte{0xff}, bytes,
                      "kv");
  }

 private:
  std::vector<bool> is_open_;
  std::vector<int32_t> tokens_;
};

}  // namespace nodewright::test
