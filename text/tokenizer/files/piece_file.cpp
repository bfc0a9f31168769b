// Source of numbers and defaults: sentencepiece/src/sentencepiece_model.proto.
#include "text/tokenizer/files/piece_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "base/checked_file.h"
#include "base/file_to_read.h"
#include "base/json_file.h"
#include "text/tokenizer/files/piece_vocabulary.h"
#include "text/tokenizer/files/proto_fields.h"
#include "text/tokenizer/files/section_reader.h"
#include "text/tokenizer/files/token_settings.h"
#include "text/tokenizer/files/tokenizer_json.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using SettingsJson = nlohmann::json;

constexpr std::uint64_t kLargestPieceFile = std::uint64_t{256} << 20;  // bytes; Gemma's, the largest released, has 4 MB
constexpr std::uint64_t kLargestSettings = std::uint64_t{64} << 20;    // bytes

class PieceFileReader {
 public:
  explicit PieceFileReader(const std::filesystem::path& path) : path_(path), reader_(path.string()) {}

  TokenizerFile read() {
    const CheckedFile file(path_);
    if (file.bytes() > kLargestPieceFile)
      reader_.fail(fmt::format("the file has {} bytes, at most {} are read", file.bytes(), kLargestPieceFile));
    std::string model(file.bytes(), '\0');
    file.read(0, std::as_writable_bytes(std::span(model)));
    read_model(model);
    read_settings();
    finish();
    return std::move(out_);
  }

 private:
  void read_model(std::string_view model) {
    ProtoFields fields(model);
    while (fields.next()) {
      if (fields.number() == 1) read_piece(fields.bytes());
      if (fields.number() == 2) read_trainer(fields.bytes());
      if (fields.number() == 3) read_normalizer(fields.bytes());
    }
    check(fields, "the model");
    if (out_.model.vocab.empty()) reader_.fail("it has no pieces, so it is not a SentencePiece model");
  }

  void check(const ProtoFields& fields, const char* what) const {
    if (!fields.ok()) reader_.fail(fmt::format("{} is cut short, or the file is not a SentencePiece model", what));
  }

  void read_piece(std::string_view message) {
    ProtoFields fields(message);
    std::string spelling;
    float score = 0;
    auto type = PieceType::normal;
    while (fields.next()) {
      if (fields.number() == 1) spelling = to_valid_utf8(fields.bytes());
      if (fields.number() == 2) score = fields.real();
      if (fields.number() == 3) type = static_cast<PieceType>(fields.value());
    }
    check(fields, "a piece");
    const auto id = static_cast<TokenId>(out_.model.vocab.size());
    if (id > kLargestTokenId) reader_.fail(fmt::format("it has more than {} pieces", kLargestTokenId + 1));
    pieces_.add(std::move(spelling), score, type);
    if (type == PieceType::unknown && out_.model.unknown_id != id)
      reader_.fail(fmt::format("pieces {} and {} are both the unknown one, expected one such piece",
                               *out_.model.unknown_id, id));
  }

  void read_trainer(std::string_view message) {
    ProtoFields fields(message);
    std::uint64_t type = 1;
    while (fields.next()) {
      if (fields.number() == 3) type = fields.value();
      if (fields.number() == 24) text_.spaces_are_suffixes = fields.value() != 0;
      if (fields.number() == 35) out_.model.byte_fallback = fields.value() != 0;
      if (fields.number() == 46) bos_ = to_valid_utf8(fields.bytes());
      if (fields.number() == 47) eos_ = to_valid_utf8(fields.bytes());
    }
    check(fields, "the trainer's part");
    if (type != 1 && type != 2) reader_.refuse(fmt::format("model_type {}, neither Unigram (1) nor BPE (2),", type));
    out_.model.kind = type == 1 ? ModelForm::Kind::unigram : ModelForm::Kind::piece_merges;
  }

  void read_normalizer(std::string_view message) {
    ProtoFields fields(message);
    while (fields.next()) {
      if (fields.number() == 2) text_.map = CharacterMap(fields.bytes(), reader_.file());
      if (fields.number() == 3) text_.add_prefix = fields.value() != 0;
      if (fields.number() == 4) text_.remove_extra_spaces = fields.value() != 0;
      if (fields.number() == 5) text_.escape_spaces = fields.value() != 0;
    }
    check(fields, "the normalizer's part");
  }

  // What transformers writes beside the model. "normalized" does not count: the model's normalizer adds a space.
  void read_settings() {
    const auto folder = path_.parent_path();
    const auto config = folder / "tokenizer_config.json";
    if (is_present(config)) {
      const SettingsJson file = read_json_object(config, "load tokenizer", kLargestSettings);
      const SectionReader reader(config.string());
      text_.prefix_at_start_only = !reader.boolean_or(file, "legacy", "the file", true);
      adds_bos_ = reader.boolean_or(file, "add_bos_token", "the file", true);
      adds_eos_ = reader.boolean_or(file, "add_eos_token", "the file", false);
    }
    const TokenSettings settings = read_token_settings(folder);
    if (const auto bos = settings.named.find("bos_token"); bos != settings.named.end()) bos_ = bos->second;
    if (const auto eos = settings.named.find("eos_token"); eos != settings.named.end()) eos_ = eos->second;
    add_settings(settings, path_, out_);
    for (auto& token : out_.added_tokens) token.normalized = false;
  }

  void finish() {
    pieces_.finish(std::move(text_));
    for (const auto& token : out_.added_tokens) {
      if (adds_bos_ && token.special && token.content == bos_) out_.prefix = {token.id};
      if (adds_eos_ && token.special && token.content == eos_) out_.suffix = {token.id};
    }
  }

  std::filesystem::path path_;
  SectionReader reader_;
  TokenizerFile out_;
  PieceVocabulary pieces_{reader_, out_};
  PieceText text_;
  std::string bos_ = "<s>", eos_ = "</s>";
  bool adds_bos_ = true, adds_eos_ = false;
};

}  // namespace

TokenizerFile read_piece_file(const std::filesystem::path& path) { return PieceFileReader(path).read(); }

}  // namespace nodewright
