// The component "decoder" of tokenizer.json, read from its JSON.
#include <fmt/format.h>

#include "text/tokenizer/files/components.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using DecoderJson = nlohmann::json;

// Reads one decoder after the other, and refuses an order that a stream of tokens could not follow.
class DecoderReader {
 public:
  explicit DecoderReader(const SectionReader& reader) : reader_(reader) {}

  void read(const DecoderJson& component, int depth) {
    const std::string type = reader_.type_of(component, "decoder");
    const std::string where = fmt::format("decoder '{}'", type);
    if (type == "Sequence") {
      for (const auto& one : reader_.sequence_members(component, "decoders", "decoder", depth)) read(one, depth + 1);
      return;
    }
    if (type == "Fuse") {
      reader_.check_keys(component, where, {"type"});
      fused_ = true;
    } else if (type == "ByteLevel" || type == "ByteFallback") {
      read_bytes(component, type, where);
    } else if (type == "Strip") {
      read_strip(component, where);
    } else {
      if (fused_ || out_.bytes() != TokenDecoder::Bytes::none) refuse_order(where);
      read_step(component, type, where);
    }
  }

  TokenDecoder done() {
    bool alone = false;  // a step of which the others would have to know what it left out
    for (const auto& step : out_.steps())
      alone |= std::holds_alternative<BpeDecoder>(step) || std::holds_alternative<CtcDecoder>(step);
    if (alone && (out_.steps().size() > 1 || out_.bytes() != TokenDecoder::Bytes::none || strips_))
      reader_.refuse("a decoder Sequence of BPEDecoder or CTC and others");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse_order(const std::string& where) const {
    reader_.refuse(where + " after ByteLevel, ByteFallback or Fuse");
  }

  void read_bytes(const DecoderJson& component, const std::string& type, const std::string& where) {
    if (fused_ || out_.bytes() != TokenDecoder::Bytes::none) refuse_order(where);
    if (type == "ByteFallback") {
      reader_.check_keys(component, where, {"type"});
      out_.set_bytes(TokenDecoder::Bytes::fallback);
      return;
    }
    reader_.check_keys(component, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    out_.set_bytes(TokenDecoder::Bytes::letters);
    fused_ = true;
  }

  void read_strip(const DecoderJson& component, const std::string& where) {
    reader_.check_keys(component, where, {"type", "content", "start", "stop"});
    const StripDecoder strip{reader_.character(reader_.member(component, "content"), "'content' of " + where),
                             reader_.count(component, "start", where), reader_.count(component, "stop", where)};
    if (fused_) {
      if (strips_) reader_.refuse("a second decoder 'Strip' after Fuse");
      strips_ = true;
      out_.set_strip(strip);
    } else {
      if (out_.bytes() != TokenDecoder::Bytes::none) refuse_order(where);
      out_.add(strip);
    }
  }

  void read_step(const DecoderJson& component, const std::string& type, const std::string& where) {
    if (type == "Replace") {
      out_.add(read_replacement(reader_, component, where));
    } else if (type == "Metaspace") {
      reader_.check_keys(component, where,
                         {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
      MetaspaceDecoder metaspace;
      metaspace.replacement =
          in_utf8(reader_.character(reader_.member(component, "replacement"), "'replacement' of " + where));
      metaspace.drops_first = reader_.boolean_or(component, "add_prefix_space", where, true) &&
                              reader_.string_or(component, "prepend_scheme", where, "always") != "never";
      out_.add(metaspace);
    } else if (type == "WordPiece") {
      reader_.check_keys(component, where, {"type", "prefix", "cleanup"});
      out_.add(WordPieceDecoder{reader_.string_or(component, "prefix", where, "##"),
                                reader_.boolean_or(component, "cleanup", where, true)});
    } else if (type == "BPEDecoder") {
      reader_.check_keys(component, where, {"type", "suffix"});
      const BpeDecoder bpe{reader_.string_or(component, "suffix", where, "</w>")};
      if (bpe.suffix.empty()) reader_.refuse("an empty 'suffix' of " + where);
      out_.add(bpe);
    } else if (type == "CTC") {
      reader_.check_keys(component, where, {"type", "pad_token", "word_delimiter_token", "cleanup"});
      out_.add(CtcDecoder{reader_.string_or(component, "pad_token", where, "<pad>"),
                          reader_.string_or(component, "word_delimiter_token", where, "|"),
                          reader_.boolean_or(component, "cleanup", where, true)});
    } else {
      reader_.refuse(where);
    }
  }

  const SectionReader& reader_;
  TokenDecoder out_;
  bool fused_ = false, strips_ = false;
};

}  // namespace

TokenDecoder read_decoder(const SectionReader& reader, const nlohmann::json& decoder) {
  if (decoder.is_null()) {
    TokenDecoder spaces;
    spaces.add(SpaceBetween());
    return spaces;
  }
  DecoderReader components(reader);
  components.read(decoder, 0);
  return components.done();
}

}  // namespace nodewright
