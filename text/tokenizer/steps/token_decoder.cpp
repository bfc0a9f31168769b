// Source: decoders/ of the `tokenizers` library.
#include "text/tokenizer/steps/token_decoder.h"

#include <algorithm>

#include "text/tokenizer/tokens/byte_fallback.h"
#include "text/tokenizer/tokens/byte_level.h"
#include "text/tokenizer/tokens/normal_text.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

// Source: decoders/wordpiece.rs, after transformers' clean_up_tokenization.
std::string tidied(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kTidier[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kTidier) text = replace_all(text, from, to);
  return text;
}

// Bytes of `text` that are up to `most` times `content`, at its start or its end.
std::size_t run_at_start(std::string_view text, std::string_view content, std::size_t most) {
  std::size_t size = 0;
  for (; most > 0 && text.substr(size).starts_with(content); --most) size += content.size();
  return size;
}
std::size_t run_at_end(std::string_view text, std::string_view content, std::size_t most) {
  std::size_t size = 0;
  for (; most > 0 && text.substr(0, text.size() - size).ends_with(content); --most) size += content.size();
  return size;
}

std::string token_of(const Replacement& replacement, std::string_view token, bool) { return replacement.apply(token); }
std::string token_of(const MetaspaceDecoder& metaspace, std::string_view token, bool first) {
  return replace_all(token, metaspace.replacement, first && metaspace.drops_first ? "" : " ");
}
std::string token_of(const WordPieceDecoder& piece, std::string_view token, bool first) {
  std::string text(token);
  if (!first) {
    if (text.starts_with(piece.prefix)) {
      text.erase(0, piece.prefix.size());
    } else {
      text.insert(0, 1, ' ');
    }
  }
  return piece.cleanup ? tidied(std::move(text)) : text;
}
std::string token_of(const StripDecoder& strip, std::string_view token, bool) {
  const std::string content = in_utf8(strip.content);
  token.remove_prefix(run_at_start(token, content, strip.start));
  token.remove_suffix(run_at_end(token, content, strip.stop));
  return std::string(token);
}
std::string token_of(const BpeDecoder& bpe, std::string_view token, bool) {
  return replace_all(token, bpe.suffix, " ");
}
std::string token_of(const CtcDecoder& ctc, std::string_view token, bool) {
  std::string text = ctc.pad.empty() ? std::string(token) : replace_all(token, ctc.pad, "");
  if (!ctc.cleanup) return text;
  text = tidied(std::move(text));
  return ctc.delimiter.empty() ? text : replace_all(text, ctc.delimiter, " ");
}
std::string token_of(const SpaceBetween&, std::string_view token, bool first) {
  return (first ? "" : " ") + std::string(token);
}

template <typename Step>
const Step* step_among(const std::vector<DecoderStep>& steps) {
  for (const auto& step : steps)
    if (const auto* found = std::get_if<Step>(&step)) return found;
  return nullptr;
}

}  // namespace

bool TokenDecoder::looks_around() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const DecoderStep& step) {
    return !std::holds_alternative<Replacement>(step) && !std::holds_alternative<StripDecoder>(step);
  });
}

std::string TokenDecoder::step_of(const DecoderStep& step, std::string_view token, bool first) const {
  return std::visit([&](const auto& one) { return token_of(one, token, first); }, step);
}

TokenDecoder::Decoded TokenDecoder::decoded(std::string_view spelling, bool first) const {
  std::string token(spelling);
  for (const auto& step : steps_) token = step_of(step, token, first);
  if (bytes_ == Bytes::letters) return {decoded_bytes(token)};
  if (bytes_ == Bytes::fallback || bytes_ == Bytes::pieces) {
    if (const auto byte = byte_of_fallback_token(token)) return {std::string(1, *byte), true};
  }
  return {std::move(token)};
}

TokenDecoder::Place TokenDecoder::middle() const {
  Place place;
  place.begun = true;
  return place;
}

void TokenDecoder::append(const Decoded& token, std::string_view spelling, Place& place, std::string& text) const {
  const bool first = !place.begun;
  if (first) place.cut = strip_.start;
  place.begun = true;
  if (step_among<CtcDecoder>(steps_) != nullptr) {
    if (!first && place.last == spelling) return;
    place.last = spelling;
  }
  if (const auto* bpe = step_among<BpeDecoder>(steps_); bpe != nullptr) {  // the only step
    append_stripped(replace_all(place.held, bpe->suffix, " "), place, text);
    const std::size_t suffix = std::min(spelling.find(bpe->suffix), spelling.size());
    place.held = spelling.substr(suffix);
    append_stripped(spelling.substr(0, suffix), place, text);
  } else if (first && looks_around()) {
    append_decoded(decoded(spelling, true), place, text);
  } else {
    append_decoded(token, place, text);
  }
}

void TokenDecoder::append_decoded(const Decoded& token, Place& place, std::string& text) const {
  std::string part;
  const bool strips = strip_.start > 0 || strip_.stop > 0;
  std::string& to = strips ? part : text;
  if (token.fallback_byte && bytes_ == Bytes::pieces) {
    place.assembly.append_byte_of_piece(token.bytes[0], to);
  } else if (token.fallback_byte) {
    place.assembly.append_byte_of_run(token.bytes[0], to);
  } else if (bytes_ == Bytes::letters) {
    place.assembly.append_bytes(token.bytes, to);
  } else {
    place.assembly.append_text(token.bytes, to);
  }
  if (strips) append_stripped(part, place, text);
}

void TokenDecoder::append_stripped(std::string_view part, Place& place, std::string& text) const {
  if (part.empty()) return;
  const bool strips = strip_.start > 0 || strip_.stop > 0;
  if (!strips) {
    text += part;
    return;
  }
  const std::string content = in_utf8(strip_.content);
  const std::size_t gone = run_at_start(part, content, place.cut);
  place.cut -= gone / content.size();
  part.remove_prefix(gone);
  if (part.empty()) return;
  place.cut = 0;
  if (strip_.stop == 0) {
    text += part;
    return;
  }
  place.held += part;
  const std::size_t kept = place.held.size() - run_at_end(place.held, content, strip_.stop);
  text += place.held.substr(0, kept);
  place.held.erase(0, kept);
}

void TokenDecoder::finish(Place& place, std::string& text) const {
  std::string rest;
  place.assembly.finish(rest);
  append_stripped(rest, place, text);
  if (const auto* bpe = step_among<BpeDecoder>(steps_)) text += replace_all(place.held, bpe->suffix, "");
  place = {};
}

}  // namespace nodewright
