// Reads tokenizer.json. Every object is checked against the list of keys that are understood: a key or a component
// outside it is refused by name, because ignoring it would silently give other tokens than the oracle's.
#include "text/tokenizer/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using Json = nlohmann::json;

// 16 times the largest released vocabulary (262,144): tables by id are dense.
constexpr std::int64_t kLargestId = (1 << 22) - 1;
constexpr std::uint64_t kLargestFile = std::uint64_t{256} << 20;  // bytes; Gemma-3's, the largest released, has 33 MB
constexpr int kDeepestSequence = 8;                               // Sequence within Sequence; released files nest one

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : file_(path.string()) {}

  TokenizerFile read() {
    const Json top = read_json_object(file_, "load tokenizer", kLargestFile);
    check_keys(top, "the file",
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                "decoder", "model"});
    refuse_unless_null(top, "truncation");
    refuse_unless_null(top, "padding");
    read_normalizer(member(top, "normalizer"), 0);
    read_pre_tokenizer(member(top, "pre_tokenizer"));
    read_model(object(member(top, "model"), "model"));
    read_added_tokens(member(top, "added_tokens"));
    read_post_processor(member(top, "post_processor"), 0);
    read_decoder(member(top, "decoder"));
    check_alphabets();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string detail, std::string advice = "check that the file is complete") const {
    throw Error({.doing = "load tokenizer", .object = file_, .detail = std::move(detail), .advice = std::move(advice)});
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(what + " is not supported", "use a BPE tokenizer such as those of Llama-3, Qwen3, Gemma-3 or GPT-2");
  }

  // Typed access; `where` completes "... of".

  const Json& object(const Json& value, const std::string& where) const {
    if (!value.is_object()) fail(fmt::format("{} is {}, not an object", where, value.type_name()));
    return value;
  }

  const Json& array(const Json& value, const std::string& where) const {
    if (!value.is_array()) fail(fmt::format("{} is {}, not an array", where, value.type_name()));
    return value;
  }

  const Json& member(const Json& parent, const std::string& key) const {
    static const Json null;
    const auto found = parent.find(key);
    return found == parent.end() ? null : *found;
  }

  const std::string& string(const Json& value, const std::string& where) const {
    if (!value.is_string()) fail(fmt::format("{} is {}, not a string", where, value.type_name()));
    return value.get_ref<const std::string&>();
  }

  bool boolean(const Json& parent, const std::string& key, const std::string& where) const {
    const Json& value = member(parent, key);
    if (!value.is_boolean()) fail(fmt::format("{} of {} is {}, not a boolean", key, where, value.type_name()));
    return value.get<bool>();
  }

  bool boolean_or(const Json& parent, const std::string& key, const std::string& where, bool otherwise) const {
    return member(parent, key).is_null() ? otherwise : boolean(parent, key, where);
  }

  TokenId id(const Json& value, const std::string& where) const {
    if (!value.is_number_integer()) fail(fmt::format("the id of {} is {}, not an integer", where, value.type_name()));
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t{kLargestId}
                                                 : value.get<std::int64_t>() >= 0;
    if (!fits) fail(fmt::format("the id of {} is {}, outside 0 to {}", where, value.dump(), kLargestId));
    return value.get<TokenId>();
  }

  std::string type_of(const Json& component, const std::string& where) const {
    return string(member(object(component, where), "type"), "type of " + where);
  }

  void check_keys(const Json& parent, const std::string& where, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : parent.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) refuse(fmt::format("'{}' of {}", key, where));
    }
  }

  void refuse_unless_null(const Json& parent, const std::string& key) const {
    if (member(parent, key).is_null()) return;
    fail(fmt::format("'{}' is not supported", key), fmt::format("set \"{}\" to null in the file", key));
  }

  void refuse_unless_empty(const Json& model, const std::string& key) const {
    const Json& value = member(model, key);
    if (!value.is_null() && value != Json("")) refuse(fmt::format("'{}' of model BPE", key));
  }

  const Json& sequence_members(const Json& sequence, const std::string& key, const std::string& where,
                               int depth) const {
    if (depth >= kDeepestSequence) fail(fmt::format("{}: Sequence nested more than {} deep", where, kDeepestSequence));
    check_keys(sequence, where + " Sequence", {"type", key});
    return array(member(sequence, key), fmt::format("'{}' of {} Sequence", key, where));
  }

  // The components, in the order of the file.

  void read_normalizer(const Json& normalizer, int depth) {
    if (normalizer.is_null()) return;
    const std::string type = type_of(normalizer, "normalizer");
    if (type == "NFC") {
      check_keys(normalizer, "normalizer NFC", {"type"});
      out_.normalizer.add_nfc();
    } else if (type == "Replace") {
      out_.normalizer.add_replacement(replacement(normalizer, "normalizer Replace"));
    } else if (type == "Sequence") {
      for (const auto& one : sequence_members(normalizer, "normalizers", "normalizer", depth)) {
        read_normalizer(object(one, "an entry of 'normalizers'"), depth + 1);
      }
    } else {
      refuse(fmt::format("normalizer '{}'", type));
    }
  }

  void read_pre_tokenizer(const Json& pre_tokenizer) {
    if (!pre_tokenizer.is_null()) read_pre_tokenizer(pre_tokenizer, 0);
  }

  void read_pre_tokenizer(const Json& pre_tokenizer, int depth) {
    const std::string type = type_of(pre_tokenizer, "pre_tokenizer");
    if (type == "Sequence") {
      for (const auto& one : sequence_members(pre_tokenizer, "pretokenizers", "pre_tokenizer", depth)) {
        read_pre_tokenizer(one, depth + 1);
      }
      return;
    }
    if (out_.pre_tokenizer.byte_level) refuse(fmt::format("pre_tokenizer '{}' after ByteLevel", type));
    if (type == "ByteLevel") {
      const std::string where = "pre_tokenizer ByteLevel";
      check_keys(pre_tokenizer, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      out_.pre_tokenizer.add_prefix_space = boolean(pre_tokenizer, "add_prefix_space", where);
      out_.pre_tokenizer.use_regex = boolean_or(pre_tokenizer, "use_regex", where, true);
      out_.pre_tokenizer.byte_level = true;
    } else if (type == "Split") {
      read_split(pre_tokenizer);
    } else {
      refuse(fmt::format("pre_tokenizer '{}'", type));
    }
  }

  void read_split(const Json& split) {
    const std::string where = "pre_tokenizer Split";
    check_keys(split, where, {"type", "pattern", "behavior", "invert"});
    const Json& pattern = object(member(split, "pattern"), "'pattern' of " + where);
    check_keys(pattern, "'pattern' of " + where, {"Regex", "String"});
    PreTokenizerForm::Split form;
    if (pattern.contains("String")) {
      form.pattern = escaped_for_regex(string(member(pattern, "String"), "'String' of " + where));
    } else {
      form.pattern = string(member(pattern, "Regex"), "'Regex' of " + where);
    }
    const std::string& behavior = string(member(split, "behavior"), "'behavior' of " + where);
    if (behavior == "MergedWithPrevious") {
      form.behavior = SplitBehavior::merged_with_previous;
    } else if (behavior != "Isolated") {
      refuse(fmt::format("behavior '{}' of {}", behavior, where));
    }
    if (boolean_or(split, "invert", where, false)) refuse("'invert' of " + where);
    out_.pre_tokenizer.splits.push_back(std::move(form));
  }

  Replacement replacement(const Json& component, const std::string& where) const {
    check_keys(component, where, {"type", "pattern", "content"});
    const Json& pattern = object(member(component, "pattern"), "'pattern' of " + where);
    check_keys(pattern, "'pattern' of " + where, {"String"});
    Replacement found{string(member(pattern, "String"), "'String' of " + where),
                      string(member(component, "content"), "'content' of " + where)};
    if (found.from.empty()) refuse("an empty 'pattern' of " + where);
    return found;
  }

  void read_model(const Json& model) {
    const Json& type = member(model, "type");  // the first files of GPT-2 have none
    if (!type.is_null() && type != "BPE") refuse(fmt::format("model '{}'", string(type, "type of model")));
    check_keys(model, "model BPE",
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
    const Json& dropout = member(model, "dropout");
    if (!dropout.is_null() && dropout != 0) refuse(fmt::format("'dropout' {} of model BPE", dropout.dump()));
    refuse_unless_empty(model, "continuing_subword_prefix");
    refuse_unless_empty(model, "end_of_word_suffix");
    out_.byte_fallback = boolean_or(model, "byte_fallback", "model BPE", false);
    out_.fuse_unknown = boolean_or(model, "fuse_unk", "model BPE", false);
    const Json& unknown = member(model, "unk_token");
    if (!unknown.is_null()) out_.unknown_token = string(unknown, "'unk_token' of model BPE");
    out_.ignore_merges = boolean_or(model, "ignore_merges", "model BPE", false);

    const Json& vocab = object(member(model, "vocab"), "'vocab' of model");
    out_.vocab.reserve(vocab.size());
    for (const auto& [token, value] : vocab.items()) {
      out_.vocab.emplace_back(token, id(value, fmt::format("token '{}'", token)));
    }
    const Json& merges = array(member(model, "merges"), "'merges' of model");
    out_.merges.reserve(merges.size());
    for (const auto& merge : merges) read_merge(merge);
  }

  // "a b" as in older files and those converted from tiktoken, ["a", "b"] in newer ones.
  void read_merge(const Json& merge) {
    const auto malformed = [&] { fail(fmt::format("merge {} is no pair of tokens", merge.dump())); };
    if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) return;  // a heading of merges.txt that some converters left in
      const std::size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) malformed();
      out_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else {
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) malformed();
      out_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    }
  }

  void read_added_tokens(const Json& tokens) {
    if (tokens.is_null()) return;
    for (const auto& entry : array(tokens, "'added_tokens'")) {
      const std::string& content =
          string(member(object(entry, "an added token"), "content"), "an added token's content");
      const std::string where = fmt::format("added token '{}'", content);
      check_keys(entry, where, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      out_.added_tokens.push_back({.id = id(member(entry, "id"), where),
                                   .content = content,
                                   .single_word = boolean(entry, "single_word", where),
                                   .lstrip = boolean(entry, "lstrip", where),
                                   .rstrip = boolean(entry, "rstrip", where),
                                   .normalized = boolean(entry, "normalized", where),
                                   .special = boolean(entry, "special", where)});
    }
  }

  void read_post_processor(const Json& processor, int depth) {
    if (processor.is_null()) return;
    const std::string type = type_of(processor, "post_processor");
    if (type == "ByteLevel") {  // moves offsets only
      check_keys(processor, "post_processor ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else if (type == "TemplateProcessing") {
      read_template(processor);
    } else if (type == "Sequence") {
      for (const auto& one : sequence_members(processor, "processors", "post_processor", depth)) {
        read_post_processor(object(one, "an entry of 'processors'"), depth + 1);
      }
    } else {
      refuse(fmt::format("post_processor '{}'", type));
    }
  }

  // Only "single" counts: the engine encodes one text at a time.
  void read_template(const Json& processor) {
    const std::string where = "post_processor TemplateProcessing";
    if (has_template_) refuse("a second " + where);
    has_template_ = true;
    check_keys(processor, where, {"type", "single", "pair", "special_tokens"});
    const Json& named = object(member(processor, "special_tokens"), "'special_tokens' of " + where);
    int texts = 0;
    for (const auto& piece : array(member(processor, "single"), "'single' of " + where)) {
      check_keys(object(piece, "a piece of " + where), "a piece of " + where, {"Sequence", "SpecialToken"});
      if (const auto sequence = piece.find("Sequence"); sequence != piece.end()) {
        if (member(object(*sequence, "a piece of " + where), "id") != "A")
          refuse("a sequence other than A in " + where);
        ++texts;
        continue;
      }
      const std::string& name = string(member(object(member(piece, "SpecialToken"), "a piece of " + where), "id"),
                                       "a special token of " + where);
      const Json& token = object(member(named, name), fmt::format("special token '{}' of {}", name, where));
      for (const auto& value :
           array(member(token, "ids"), fmt::format("'ids' of special token '{}' of {}", name, where))) {
        (texts == 0 ? out_.prefix : out_.suffix)
            .push_back(id(value, fmt::format("special token '{}' of {}", name, where)));
      }
    }
    if (texts != 1) refuse(fmt::format("{} sequences in 'single' of {}", texts, where));
  }

  void read_decoder(const Json& decoder) {
    if (decoder.is_null()) refuse("a tokenizer without decoder");
    read_decoder(decoder, 0);
  }

  void read_decoder(const Json& decoder, int depth) {
    const std::string type = type_of(decoder, "decoder");
    const std::string where = fmt::format("decoder '{}'", type);
    if (type == "Sequence") {
      for (const auto& one : sequence_members(decoder, "decoders", "decoder", depth)) read_decoder(one, depth + 1);
    } else if (type == "ByteLevel") {
      check_keys(decoder, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (depth > 0) refuse(where + " in a Sequence");
      out_.decoder.byte_level = true;
    } else if (type == "Replace") {
      if (out_.decoder.byte_fallback || decoder_fuses_) refuse(where + " after ByteFallback or Fuse");
      out_.decoder.replacements.push_back(replacement(decoder, where));
    } else if (type == "ByteFallback") {
      check_keys(decoder, where, {"type"});
      if (out_.decoder.byte_fallback || decoder_fuses_) refuse(where + " after ByteFallback or Fuse");
      out_.decoder.byte_fallback = true;
    } else if (type == "Fuse") {  // joins what is joined in any case
      check_keys(decoder, where, {"type"});
      decoder_fuses_ = true;
    } else {
      refuse(where);
    }
  }

  // Words and tokens must be spelled in one alphabet: bytes or characters.
  void check_alphabets() const {
    if (out_.pre_tokenizer.byte_level == out_.decoder.byte_level) {
      if (out_.pre_tokenizer.byte_level && out_.byte_fallback) refuse("'byte_fallback' of model BPE behind ByteLevel");
      return;
    }
    refuse(out_.decoder.byte_level ? "a pre_tokenizer without ByteLevel before decoder 'ByteLevel'"
                                   : "a pre_tokenizer ByteLevel without decoder 'ByteLevel'");
  }

  std::string file_;
  TokenizerFile out_;
  bool has_template_ = false;
  bool decoder_fuses_ = false;
};

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& path) { return Reader(path).read(); }

}  // namespace nodewright
