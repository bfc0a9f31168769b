// The tokens of one output cut into pieces, each with its text: what one event of a stream tells.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api/asked/call_options.h"
#include "serve/loop/submission.h"
#include "text/text_stream.h"

namespace nodewright {

// Views what the update holds.
struct OutputPiece {
  std::span<const int32_t> tokens;
  std::span<const TokenLogprobs> logprobs;  // of these, where the call asks for them
  std::vector<int64_t> offsets;             // of each of these: characters of the text before it
  std::string text;
  std::string_view finish_reason;  // "stop" or "length"; empty: it goes on
  std::string stop_reason;         // JSON: the stop string, the stop id that the body names, or null
};

class OutputText {
 public:
  // `has_stops`: its text comes with the updates. `before`: characters of an echo. The references must outlive this.
  OutputText(const std::optional<Tokenizer>& tokenizer, const CallOptions& options, bool has_stops, int64_t before);

  // A piece for each token or, of an output with stop strings, for the update; none where it tells nothing. What failed
  // or was cancelled is not told here.
  std::vector<OutputPiece> pieces(const OutputUpdate& update);

 private:
  OutputPiece piece_of_token(const OutputUpdate& update, size_t place);
  OutputPiece piece_of_all(const OutputUpdate& update);
  void end(OutputPiece& piece, const OutputUpdate& update);
  void note_offset(OutputPiece& piece, std::string_view text);

  const std::optional<Tokenizer>& tokenizer_;
  const CallOptions& options_;
  std::optional<TextStream> stream_;
  bool has_stops_;
  int64_t characters_;
};

}  // namespace nodewright
