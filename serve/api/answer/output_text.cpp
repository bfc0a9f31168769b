#include "serve/api/answer/output_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/api/answer/event_text.h"

namespace nodewright {
namespace {

template <class T>
std::span<const T> one_of(const std::vector<T>& all, size_t place) {
  return place < all.size() ? std::span(all).subspan(place, 1) : std::span<const T>();
}

}  // namespace

OutputText::OutputText(const std::optional<Tokenizer>& tokenizer, const CallOptions& options, bool has_stops,
                       int64_t before)
    : tokenizer_(tokenizer), options_(options), has_stops_(has_stops), characters_(before) {
  if (tokenizer) stream_.emplace(*tokenizer, options.skip_special, TextStart::behind_prompt, options.shown);
}

std::vector<OutputPiece> OutputText::pieces(const OutputUpdate& update) {
  std::vector<OutputPiece> pieces;
  if (options_.drops_output()) {
    if (update.end) pieces.push_back({.finish_reason = "length", .stop_reason = "null"});
  } else if (has_stops_) {
    if (!update.tokens.empty() || !update.text.empty() || update.end) pieces.push_back(piece_of_all(update));
  } else {
    pieces.reserve(update.tokens.size());
    for (size_t i = 0; i < update.tokens.size(); ++i) pieces.push_back(piece_of_token(update, i));
    if (update.tokens.empty() && update.end) end(pieces.emplace_back(), update);
  }
  return pieces;
}

OutputPiece OutputText::piece_of_token(const OutputUpdate& update, size_t place) {
  OutputPiece piece{.tokens = one_of(update.tokens, place), .logprobs = one_of(update.logprobs, place)};
  const bool last = place + 1 == update.tokens.size() && update.end.has_value();
  const bool stops = last && update.end->reason == EndReason::stop_id && !options_.include_stop;
  if (stream_ && !stops) piece.text = stream_->push(update.tokens[place]);
  note_offset(piece, piece.text);
  if (last) end(piece, update);
  return piece;
}

// The text lags behind the tokens, whose own stream tells where they begin.
OutputPiece OutputText::piece_of_all(const OutputUpdate& update) {
  OutputPiece piece{.tokens = update.tokens, .logprobs = update.logprobs, .text = update.text};
  if (options_.logprobs >= 0 && stream_)
    for (const int32_t token : update.tokens) note_offset(piece, stream_->push(token));
  if (update.end) end(piece, update);
  return piece;
}

void OutputText::note_offset(OutputPiece& piece, std::string_view text) {
  if (options_.logprobs < 0) return;
  piece.offsets.push_back(characters_);
  characters_ += count_characters(text);
}

void OutputText::end(OutputPiece& piece, const OutputUpdate& update) {
  const Resolution& end = *update.end;
  if (stream_ && !has_stops_) piece.text += stream_->flush();
  piece.finish_reason = end.reason == EndReason::length ? "length" : "stop";
  piece.stop_reason = "null";
  if (end.reason == EndReason::stop_string) {
    if (options_.include_stop) piece.text += update.stop_string;
    piece.stop_reason.clear();
    append_json_string(piece.stop_reason, update.stop_string);
  } else if (end.reason == EndReason::stop_id && !end.outputs.empty()) {
    const int32_t id = end.outputs.back();
    if (std::ranges::count(options_.stop_ids, id) > 0) piece.stop_reason = fmt::format("{}", id);
    // With stop strings the text comes without the stop id's.
    if (has_stops_ && options_.include_stop && tokenizer_)
      piece.text += tokenizer_->decode(std::span(&id, 1), options_.skip_special, TextStart::behind_prompt);
  }
}

}  // namespace nodewright
