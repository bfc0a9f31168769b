// Source of numbers and defaults: sentencepiece/src/sentencepiece_model.proto.
#include "text/tokenizer/files/piece_file.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "base/checked_file.h"
#include "base/file_to_read.h"
#include "base/json_file.h"
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

enum PieceType : std::uint64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

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
    ModelForm& form = out_.model;
    if (form.vocab.empty()) reader_.fail("it has no pieces, so it is not a SentencePiece model");
    if (!form.unknown_id) reader_.fail("it has no unknown piece");
    form.single_precision = true;
  }

  void check(const ProtoFields& fields, const char* what) const {
    if (!fields.ok()) reader_.fail(fmt::format("{} is cut short, or the file is not a SentencePiece model", what));
  }

  void read_piece(std::string_view message) {
    ProtoFields fields(message);
    std::string spelling;
    float score = 0;
    std::uint64_t type = kNormal;
    while (fields.next()) {
      if (fields.number() == 1) spelling = to_valid_utf8(fields.bytes());
      if (fields.number() == 2) score = fields.real();
      if (fields.number() == 3) type = fields.value();
    }
    check(fields, "a piece");
    ModelForm& form = out_.model;
    const auto id = static_cast<TokenId>(form.vocab.size());
    if (id > kLargestTokenId) reader_.fail(fmt::format("it has more than {} pieces", kLargestTokenId + 1));
    if (!std::isfinite(score))
      reader_.fail(fmt::format("the score of piece {} is {}, not a finite number", in_quotes(spelling), score));
    if (spellings_.insert(spelling, id) != id) reader_.fail(fmt::format("piece {} appears twice", in_quotes(spelling)));
    if (type == kUnknown) {
      if (form.unknown_id)
        reader_.fail(
            fmt::format("pieces {} and {} are both the unknown one, expected one such piece", *form.unknown_id, id));
      form.unknown_id = id;
    }
    if (type == kUnknown || type == kControl)
      out_.added_tokens.push_back({.id = id, .content = spelling, .special = true});
    form.pieces.push_back(type == kNormal        ? ModelForm::Piece::normal
                          : type == kUserDefined ? ModelForm::Piece::user_defined
                          : type == kUnused      ? ModelForm::Piece::unused
                                                 : ModelForm::Piece::other);
    form.scores.push_back(score);
    form.vocab.emplace_back(std::move(spelling), id);
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
    std::vector<std::pair<std::string_view, std::int32_t>> kept;
    const ModelForm& form = out_.model;
    for (const auto& [spelling, id] : form.vocab)
      if (form.pieces[static_cast<std::size_t>(id)] == ModelForm::Piece::user_defined) kept.emplace_back(spelling, id);
    text_.kept = PrefixTree(std::move(kept));
    if (text_.escape_spaces) out_.decoder.add(Replacement{"\u2581", " "});
    out_.decoder.set_bytes(form.byte_fallback ? TokenDecoder::Bytes::pieces : TokenDecoder::Bytes::none);
    if (text_.add_prefix && !text_.spaces_are_suffixes) out_.decoder.set_strip({.start = 1});
    out_.normalizer.add(std::move(text_));
    for (const auto& token : out_.added_tokens) {
      if (adds_bos_ && token.special && token.content == bos_) out_.prefix = {token.id};
      if (adds_eos_ && token.special && token.content == eos_) out_.suffix = {token.id};
    }
  }

  std::filesystem::path path_;
  SectionReader reader_;
  TokenizerFile out_;
  TokenMap spellings_;
  PieceText text_;
  std::string bos_ = "<s>", eos_ = "</s>";
  bool adds_bos_ = true, adds_eos_ = false;
};

}  // namespace

TokenizerFile read_piece_file(const std::filesystem::path& path) { return PieceFileReader(path).read(); }

}  // namespace nodewright
