// Two lanes: a large step of a team is two halves of its rows, each a chain of nodes of its own, so that one half's
// products run while the other half's sums are exchanged. The early lane has the first tokens of each sequence, the
// late one those after them and all rows that choose.
//
// Rows 0 to n / 2 - 1 of a step of n are the late lane's, the others the early one's. Live rows come first, as in a
// step of one lane: a step with at most n / 2 leaves the early lane without any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "models/step/decode_state.h"

namespace nodewright {

inline constexpr size_t kLanes = 2;
// Rows of a lane, or a multiple: halves of views begin at 256 bytes or a multiple, as a library's products like it,
// since a row is 16 bytes or a multiple.
inline constexpr int64_t kRowsOfLane = 16;
inline constexpr size_t kEarly = 0, kLate = 1;  // of DecodeState::lanes, in the order of their exchanges
inline constexpr std::array<std::string_view, kLanes> kLaneNames = {"early", "late"};

// The shape of each half, where a step of `rows` rows within the limits is two lanes: halves whose products are a
// library's and whose sums are exchanged in bulk, past those that hold their rows, of 16 rows or a multiple, one of
// which takes all rows that choose; of networks that norm no heads of all ranks at once. `network`: the form of the
// config's.
std::optional<StepShape> lane_shape(const ModelConfig& config, const NetworkForm& network, const DecodeLimits& limits,
                                    int64_t rows);

// Rows of the smallest step that is two lanes within the limits, if any is.
int64_t least_rows_in_lanes(const DecodeLimits& limits);

// The halves of `whole`, in views of it; what is no matrix of rows is all of it in both.
std::vector<DecodeState> halves_of(const DecodeState& whole);

// Which row of a step of two lanes takes the next token, for tokens in the order of their sequences. The step has
// `live` rows, of which `sampled` choose. Of a step of one lane, `lane_rows` is 0.
class RowOrder {
 public:
  RowOrder(int64_t live, int64_t sampled, int64_t lane_rows)
      : next_chosen_(0),
        next_late_(sampled),
        next_early_(lane_rows),
        end_of_early_(lane_rows > 0 && live > lane_rows ? live : lane_rows) {}
  int64_t of_chosen() { return next_chosen_++; }
  int64_t of_other() { return next_early_ < end_of_early_ ? next_early_++ : next_late_++; }

 private:
  int64_t next_chosen_, next_late_, next_early_, end_of_early_;
};

// Says in `in`, the pinned block of such a step, which lanes have how many rows; elsewhere nothing.
void write_lanes(const StepInputs& in, int64_t live, int64_t sampled, int64_t lane_rows);

}  // namespace nodewright
