// A device for the host half of the engine: it does nothing before it must, reads its inputs only then, and chooses
// tokens that depend on every key that a row attends to. What the host overwrites, frees or orders wrongly changes
// them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/schedule/pipeline.h"

namespace nodewright {

inline constexpr int32_t kVocabulary = 16;
inline constexpr uint64_t kPoison = 0xbad;

inline uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t hash = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 29)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 32);
}

// One bit for each token.
using Mask = uint32_t;
inline constexpr Mask kEverything = (1u << kVocabulary) - 1;

// -1 where nothing is allowed. The random number is keyed by the seed and the index of the output alone.
inline int32_t chosen_token(uint64_t logits, uint64_t seed, int64_t output, Mask allowed) {
  const auto start = static_cast<int32_t>(mixed(mixed(logits, seed), static_cast<uint64_t>(output)) % kVocabulary);
  for (int32_t i = 0; i < kVocabulary; ++i)
    if (const int32_t token = (start + i) % kVocabulary; allowed >> token & 1) return token;
  return -1;
}

class SimulatedDevice {
 public:
  struct Row {
    int32_t sequence = 0;
    int64_t first = 0;
    std::vector<int32_t> tokens;  // empty: what this sequence's last sampling chose
    bool samples = true;
    uint64_t seed = 0;
    int64_t output = 0;
  };
  // Pinned memory of a slot. The device reads and writes it when it runs, not when a launch is submitted.
  struct Slot {
    std::vector<Row> rows;
    std::vector<Mask> masks;
    std::vector<int32_t> tokens;
    std::vector<uint64_t> logits;  // on the device
  };

  SimulatedDevice(int64_t pages, int64_t page_tokens, int32_t sequences)
      : page_tokens_(page_tokens),
        keys_(static_cast<size_t>(pages * page_tokens), kPoison),
        last_token_(static_cast<size_t>(sequences), -1),
        tables_(static_cast<size_t>(sequences)) {}

  Slot& slot(int index) { return slots_[static_cast<size_t>(index)]; }

  // `pool`: what the step says has changed in its tables is there now.
  void submit_forward(const InFlightStep& step, const KvPool& pool) {
    std::vector<std::pair<TableChange, std::vector<int32_t>>> tables;
    for (const TableChange& change : step.tables) {
      const auto pages = pool.table(change.sequence).subspan(static_cast<size_t>(change.first));
      tables.push_back({change, {pages.begin(), pages.end()}});
    }
    compute_.push_back({step.forward, [this, copies = step.copies, tables, slot = step.slot] {
                          for (const auto& [change, pages] : tables) {
                            std::vector<int32_t>& table = tables_.at(static_cast<size_t>(change.sequence));
                            table.resize(std::max(table.size(), static_cast<size_t>(change.first) + pages.size()));
                            std::ranges::copy(pages, table.begin() + change.first);
                          }
                          for (const PageCopy& copy : copies)
                            std::copy_n(cell(copy.from, 0), page_tokens_, cell(copy.to, 0));
                          forward(slots_[static_cast<size_t>(slot)]);
                        }});
  }
  void submit_sampling(const InFlightStep& step) {
    compute_.push_back({step.sampling, [this, slot = step.slot] { sample(slots_[static_cast<size_t>(slot)]); }});
  }
  // Runs what the step's tokens depend on, and nothing that was submitted after it.
  void wait_for(const InFlightStep& step) {
    while (!compute_.empty() && compute_.front().place <= step.sampling) run_one();
  }
  void run_one() {
    if (compute_.empty()) return;
    const std::function<void()> work = std::move(compute_.front().work);
    compute_.pop_front();
    work();
  }
  void poison_page(int32_t page) { std::fill_n(cell(page, 0), page_tokens_, kPoison); }
  bool is_idle() const { return compute_.empty(); }

 private:
  struct Work {
    uint64_t place;
    std::function<void()> work;
  };

  std::vector<uint64_t>::iterator cell(int32_t page, int64_t token) {
    return keys_.begin() + page * page_tokens_ + token;
  }
  uint64_t& key_at(const Row& row, int64_t position) {
    return *cell(tables_.at(static_cast<size_t>(row.sequence)).at(static_cast<size_t>(position / page_tokens_)),
                 position % page_tokens_);
  }

  void forward(Slot& slot) {
    slot.logits.assign(slot.rows.size(), 0);
    for (size_t i = 0; i < slot.rows.size(); ++i) {
      const Row& row = slot.rows[i];
      std::vector<int32_t> tokens = row.tokens;
      if (tokens.empty()) tokens.push_back(last_token_.at(static_cast<size_t>(row.sequence)));
      for (size_t t = 0; t < tokens.size(); ++t) {
        const int64_t position = row.first + static_cast<int64_t>(t);
        uint64_t attended = 0;
        for (int64_t p = 0; p < position; ++p) attended = mixed(attended, key_at(row, p));
        slot.logits[i] = key_at(row, position) = mixed(attended, static_cast<uint64_t>(tokens[t]));
      }
    }
  }

  void sample(Slot& slot) {
    slot.tokens.assign(slot.rows.size(), -1);
    for (size_t i = 0; i < slot.rows.size(); ++i) {
      const Row& row = slot.rows[i];
      if (!row.samples) continue;
      slot.tokens[i] = chosen_token(slot.logits.at(i), row.seed, row.output, slot.masks.at(i));
      last_token_.at(static_cast<size_t>(row.sequence)) = slot.tokens[i];
    }
  }

  int64_t page_tokens_;
  std::vector<uint64_t> keys_;                // [pages, page tokens]
  std::vector<int32_t> last_token_;           // [sequences]
  std::vector<std::vector<int32_t>> tables_;  // [sequences]
  std::array<Slot, kSlots> slots_;
  std::deque<Work> compute_;
};

}  // namespace nodewright
