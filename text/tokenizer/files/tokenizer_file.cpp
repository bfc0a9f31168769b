// The parts of tokenizer.json that are not pipelines: model, added tokens, post-processor.
#include "text/tokenizer/files/tokenizer_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "text/tokenizer/files/components.h"
#include "text/tokenizer/files/section_reader.h"
#include "text/tokenizer/files/tokenizer_json.h"

namespace nodewright {
namespace {

using FileJson = nlohmann::json;

class FileReader {
 public:
  FileReader(const std::string& file, TokenizerJson parsed) : reader_(file), parsed_(std::move(parsed)) {}

  TokenizerFile read() {
    const FileJson& top = parsed_.rest;
    reader_.check_keys(top, "the file",
                       {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                        "post_processor", "decoder", "model"});
    out_.normalizer = read_normalizer(reader_, reader_.member(top, "normalizer"));
    out_.pre_tokenizer = read_pre_tokenizer(reader_, reader_.member(top, "pre_tokenizer"));
    read_model(reader_.object(reader_.member(top, "model"), "model"));
    read_added_tokens(reader_.member(top, "added_tokens"));
    read_post_processor(reader_.member(top, "post_processor"), 0);
    out_.decoder = read_decoder(reader_, reader_.member(top, "decoder"));
    return std::move(out_);
  }

 private:
  // The first files of GPT-2 do not name it.
  std::string type_of_model(const FileJson& model) const {
    const FileJson& type = reader_.member(model, "type");
    if (!type.is_null()) return reader_.string(type, "type of model");
    if (model.contains("merges")) return "BPE";
    return reader_.member(model, "vocab").is_array()    ? "Unigram"
           : model.contains("max_input_chars_per_word") ? "WordPiece"
                                                        : "WordLevel";
  }

  void read_model(const FileJson& model) {
    const std::string type = type_of_model(model);
    if (type == "BPE") {
      read_bpe(model);
    } else if (type == "Unigram") {
      read_unigram(model);
    } else if (type == "WordPiece" || type == "WordLevel") {
      read_whole_words(model, type);
    } else {
      reader_.refuse(fmt::format("model '{}'", type));
    }
    const FileJson& vocab = reader_.member(model, "vocab");
    if (type == "Unigram") {
      reader_.array(vocab, "'vocab' of model");
    } else {
      reader_.object(vocab, "'vocab' of model");
    }
    out_.model.vocab = std::move(parsed_.vocab);
    out_.model.scores = std::move(parsed_.scores);
    out_.model.merges = std::move(parsed_.merges);
  }

  void read_bpe(const FileJson& model) {
    const std::string where = "model BPE";
    reader_.check_keys(model, where,
                       {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                        "byte_fallback", "ignore_merges", "vocab", "merges"});
    const FileJson& dropout = reader_.member(model, "dropout");
    if (!dropout.is_null() && dropout != 0) reader_.refuse(fmt::format("'dropout' {} of model BPE", dropout.dump()));
    ModelForm& form = out_.model;
    form.prefix = reader_.string_or(model, "continuing_subword_prefix", where, "");
    form.suffix = reader_.string_or(model, "end_of_word_suffix", where, "");
    form.byte_fallback = reader_.boolean_or(model, "byte_fallback", where, false);
    form.fuse_unknown = reader_.boolean_or(model, "fuse_unk", where, false);
    form.ignore_merges = reader_.boolean_or(model, "ignore_merges", where, false);
    read_unknown(model, where);
    reader_.array(reader_.member(model, "merges"), "'merges' of model");
  }

  void read_unigram(const FileJson& model) {
    const std::string where = "model Unigram";
    reader_.check_keys(model, where, {"type", "unk_id", "vocab", "byte_fallback"});
    out_.model.kind = ModelForm::Kind::unigram;
    out_.model.byte_fallback = reader_.boolean_or(model, "byte_fallback", where, false);
    const FileJson& unknown = reader_.member(model, "unk_id");
    if (!unknown.is_null()) out_.model.unknown_id = reader_.id(unknown, "the unknown token of " + where);
  }

  void read_whole_words(const FileJson& model, const std::string& type) {
    const std::string where = "model " + type;
    ModelForm& form = out_.model;
    if (type == "WordLevel") {
      reader_.check_keys(model, where, {"type", "unk_token", "vocab"});
      form.kind = ModelForm::Kind::word_level;
    } else {
      reader_.check_keys(model, where,
                         {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
      form.kind = ModelForm::Kind::word_piece;
      form.prefix = reader_.string_or(model, "continuing_subword_prefix", where, "##");
      if (!reader_.member(model, "max_input_chars_per_word").is_null())
        form.most_characters = reader_.count(model, "max_input_chars_per_word", where);
    }
    read_unknown(model, where);
    if (!form.unknown_token) reader_.fail("'unk_token' of " + where + " is null, not a string");
  }

  void read_unknown(const FileJson& model, const std::string& where) {
    const FileJson& unknown = reader_.member(model, "unk_token");
    if (!unknown.is_null()) out_.model.unknown_token = reader_.string(unknown, "'unk_token' of " + where);
  }

  void read_added_tokens(const FileJson& tokens) {
    if (tokens.is_null()) return;
    for (const auto& entry : reader_.array(tokens, "'added_tokens'")) {
      const std::string place = fmt::format("'added_tokens'[{}]", &entry - &tokens.front());
      const std::string& content =
          reader_.string(reader_.member(reader_.object(entry, place), "content"), "'content' of " + place);
      const std::string where = fmt::format("added token '{}'", content);
      reader_.check_keys(entry, where, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      out_.added_tokens.push_back({.id = reader_.id(reader_.member(entry, "id"), where),
                                   .content = content,
                                   .single_word = reader_.boolean(entry, "single_word", where),
                                   .lstrip = reader_.boolean(entry, "lstrip", where),
                                   .rstrip = reader_.boolean(entry, "rstrip", where),
                                   .normalized = reader_.boolean(entry, "normalized", where),
                                   .special = reader_.boolean(entry, "special", where)});
    }
  }

  void read_post_processor(const FileJson& processor, int depth) {
    if (processor.is_null()) return;
    const std::string type = reader_.type_of(processor, "post_processor");
    const std::string where = "post_processor " + type;
    if (type == "ByteLevel") {  // moves offsets only
      reader_.check_keys(processor, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else if (type == "TemplateProcessing") {
      read_template(processor);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      reader_.check_keys(processor, where, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      const TokenId cls = named_id(processor, "cls", where);
      put_around({cls}, {named_id(processor, "sep", where)});
    } else if (type == "Sequence") {
      for (const auto& one : reader_.sequence_members(processor, "processors", "post_processor", depth))
        read_post_processor(reader_.object(one, "an entry of 'processors'"), depth + 1);
    } else {
      reader_.refuse(fmt::format("post_processor '{}'", type));
    }
  }

  // Later processors put theirs around what earlier ones have made.
  void put_around(const std::vector<TokenId>& prefix, const std::vector<TokenId>& suffix) {
    out_.prefix.insert(out_.prefix.begin(), prefix.begin(), prefix.end());
    out_.suffix.insert(out_.suffix.end(), suffix.begin(), suffix.end());
  }

  // ["[SEP]", 102]
  TokenId named_id(const FileJson& processor, const std::string& key, const std::string& where) const {
    const FileJson& pair = reader_.array(reader_.member(processor, key), fmt::format("'{}' of {}", key, where));
    if (pair.size() != 2) reader_.fail(fmt::format("'{}' of {} is not a pair of a token and its id", key, where));
    return reader_.id(pair[1], fmt::format("'{}' of {}", key, where));
  }

  // Only "single" counts: the engine encodes one text at a time.
  void read_template(const FileJson& processor) {
    const std::string where = "post_processor TemplateProcessing";
    reader_.check_keys(processor, where, {"type", "single", "pair", "special_tokens"});
    const FileJson& named = reader_.object(reader_.member(processor, "special_tokens"), "'special_tokens' of " + where);
    std::vector<TokenId> prefix, suffix;
    int texts = 0;
    for (const auto& piece : reader_.array(reader_.member(processor, "single"), "'single' of " + where)) {
      reader_.check_keys(reader_.object(piece, "a piece of " + where), "a piece of " + where,
                         {"Sequence", "SpecialToken"});
      if (const auto sequence = piece.find("Sequence"); sequence != piece.end()) {
        if (reader_.member(reader_.object(*sequence, "a piece of " + where), "id") != "A")
          reader_.refuse("a sequence other than A in " + where);
        ++texts;
        continue;
      }
      const std::string& name = reader_.string(
          reader_.member(reader_.object(reader_.member(piece, "SpecialToken"), "a piece of " + where), "id"),
          "a special token of " + where);
      const std::string token = fmt::format("special token '{}' of {}", name, where);
      const FileJson& ids = reader_.member(reader_.object(reader_.member(named, name), token), "ids");
      for (const auto& value : reader_.array(ids, "'ids' of " + token))
        (texts == 0 ? prefix : suffix).push_back(reader_.id(value, token));
    }
    if (texts != 1) reader_.refuse(fmt::format("{} sequences in 'single' of {}", texts, where));
    put_around(prefix, suffix);
  }

  SectionReader reader_;
  TokenizerJson parsed_;
  TokenizerFile out_;
};

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& path) {
  return FileReader(path.string(), parse_tokenizer_json(path)).read();
}

}  // namespace nodewright
