// Source: PreTrainedTokenizerBase._from_pretrained and TokenizersBackend.__init__ of transformers 5.24.
#include "text/tokenizer/files/token_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "base/json_file.h"
#include "text/tokenizer/files/gguf_tokenizer.h"
#include "text/tokenizer/files/section_reader.h"
#include "text/tokenizer/load_error.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using SettingJson = nlohmann::json;

constexpr std::uint64_t kLargestTokenFile = std::uint64_t{64} << 20;  // bytes
// Whose value has to be a token; that of another name that ends so may be anything ("add_prefix_token").
constexpr std::array<std::string_view, 7> kUsualNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                         "pad_token", "cls_token", "mask_token"};

class SettingsReader {
 public:
  explicit SettingsReader(const std::filesystem::path& folder) : folder_(folder) {}

  TokenSettings read() {
    const SettingJson config = file("tokenizer_config.json");
    const SectionReader reader((folder_ / "tokenizer_config.json").string());
    const bool has_decoder = config.contains("added_tokens_decoder") && !config["added_tokens_decoder"].is_null();
    if (has_decoder)
      for (const auto& [id, token] : reader.object(config["added_tokens_decoder"], "'added_tokens_decoder'").items())
        add_to_decoder(reader, id, token);
    std::sort(out_.decoder.begin(), out_.decoder.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });

    const SettingJson map = file("special_tokens_map.json");
    const SectionReader map_reader((folder_ / "special_tokens_map.json").string());
    if (has_decoder) {
      read_names(reader, config);
      read_names(map_reader, map);
    } else {
      read_names(map_reader, map);
      read_names(reader, config);
    }
    read_added();
    return std::move(out_);
  }

 private:
  SettingJson file(const char* name) const {
    const auto path = folder_ / name;
    return is_present(path) ? read_json_object(path, "load tokenizer", kLargestTokenFile) : SettingJson::object();
  }

  static AddedToken flags_of(const SectionReader& reader, const SettingJson& token, const std::string& where) {
    AddedToken read;
    read.content = reader.string(reader.member(reader.object(token, where), "content"), "content of " + where);
    read.single_word = reader.boolean_or(token, "single_word", where, false);
    read.lstrip = reader.boolean_or(token, "lstrip", where, false);
    read.rstrip = reader.boolean_or(token, "rstrip", where, false);
    read.special = reader.boolean_or(token, "special", where, false);
    read.normalized = reader.boolean_or(token, "normalized", where, !read.special);
    return read;
  }

  void add_to_decoder(const SectionReader& reader, const std::string& id, const SettingJson& token) {
    const std::string where = "added token " + in_quotes(id);
    const bool number = !id.empty() && id.size() <= 7 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!number) reader.fail(fmt::format("an id of 'added_tokens_decoder' is {}, not a number", in_quotes(id)));
    AddedToken read = flags_of(reader, token, where);
    read.id = reader.id(std::stoul(id), where);
    out_.decoder.push_back(std::move(read));
  }

  void add_special(const SectionReader& reader, const SettingJson& token, const std::string& where) {
    AddedToken read{.content = token.is_string() ? token.get<std::string>() : ""};
    if (!token.is_string()) {
      if (!token.is_object())
        reader.fail(fmt::format("{} is {}, not a string or an object with 'content'", where, token.type_name()));
      read = flags_of(reader, token, where);
    }
    read.special = true;
    if (token.is_string() || reader.member(token, "normalized").is_null()) read.normalized = false;
    out_.special.push_back(std::move(read));
  }

  void name(const SectionReader& reader, const std::string& key, const SettingJson& token) {
    if (out_.named.contains(key)) return;
    add_special(reader, token, key);
    out_.named.emplace(key, out_.special.back().content);
  }

  void read_names(const SectionReader& reader, const SettingJson& file) {
    for (const auto& [key, token] : file.items()) {
      if (token.is_null()) continue;
      const bool usual = std::find(kUsualNames.begin(), kUsualNames.end(), key) != kUsualNames.end();
      const bool is_token = token.is_string() || (token.is_object() && token.contains("content"));
      if (usual || (key.ends_with("_token") && is_token)) name(reader, key, token);
    }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const SettingJson& more = reader.member(file, key);
      if (more.is_object()) {  // by names of their own
        for (const auto& [own, token] : more.items()) name(reader, own, token);
      } else if (!more.is_null()) {
        for (const auto& token : reader.array(more, fmt::format("'{}'", key))) {
          add_special(reader, token, fmt::format("an entry of '{}'", key));
          const std::string& content = out_.special.back().content;
          if (std::find(out_.more.begin(), out_.more.end(), content) == out_.more.end()) out_.more.push_back(content);
        }
      }
    }
  }

  void read_added() {
    const SettingJson added = file("added_tokens.json");
    const SectionReader reader((folder_ / "added_tokens.json").string());
    for (const auto& [content, id] : added.items()) {
      const bool special = std::any_of(out_.special.begin(), out_.special.end(),
                                       [&content = content](const AddedToken& one) { return one.content == content; });
      out_.added.push_back(
          {.id = reader.id(id, in_quotes(content)), .content = content, .normalized = !special, .special = special});
    }
    std::sort(out_.added.begin(), out_.added.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  }

  std::filesystem::path folder_;
  TokenSettings out_;
};

// The tokens that a tokenizer's file has, and which ids they take: of its vocabulary, those that the settings name.
class KnownTokens {
 public:
  KnownTokens(const TokenSettings& settings, const std::filesystem::path& path, TokenizerFile& file)
      : path_(path), file_(file) {
    std::unordered_set<std::string_view> named;
    std::unordered_set<TokenId> ids;
    for (const auto* tokens : {&settings.decoder, &settings.added, &settings.special}) {
      for (const AddedToken& token : *tokens) {
        named.insert(token.content);
        ids.insert(token.id);
      }
    }
    for (const auto& [spelling, id] : file.model.vocab) {
      if (named.contains(spelling)) vocab_.emplace(spelling, id);
      if (ids.contains(id)) taken_.insert(id);
    }
    for (std::size_t i = 0; i < file.added_tokens.size(); ++i) {
      added_.emplace(file.added_tokens[i].content, i);
      taken_.insert(file.added_tokens[i].id);
    }
  }

  enum class Conflict { refused, passed_over };

  // A token with an id, and its flags if they count for one that is there already.
  void add(AddedToken token, bool flags_count, Conflict conflict) {
    if (const auto known = added_.find(token.content); known != added_.end()) {
      AddedToken& there = file_.added_tokens[known->second];
      token.id = there.id;
      if (flags_count) there = std::move(token);
      return;
    }
    if (const auto word = vocab_.find(token.content); word != vocab_.end()) {
      token.id = word->second;
    } else if (taken_.contains(token.id)) {
      if (conflict == Conflict::passed_over) return;
      fail_load(path_.string(), fmt::format("added token {} of tokenizer_config.json has the id {} of another token",
                                            in_quotes(token.content), token.id));
    }
    append(std::move(token));
  }

  // A token that is special by its name. One that nobody gives an id is none of the model's; one of a single character
  // stays a character ("!", which CLIP pads with).
  void add_special(AddedToken token) {
    if (const auto known = added_.find(token.content); known != added_.end()) {
      file_.added_tokens[known->second].special = true;
      return;
    }
    const auto word = vocab_.find(token.content);
    if (word == vocab_.end() || read_utf8(token.content).size == token.content.size()) return;
    token.id = word->second;
    append(std::move(token));
  }

 private:
  void append(AddedToken token) {
    added_.emplace(token.content, file_.added_tokens.size());
    taken_.insert(token.id);
    file_.added_tokens.push_back(std::move(token));
  }

  const std::filesystem::path& path_;
  TokenizerFile& file_;
  std::unordered_map<std::string_view, TokenId> vocab_;
  std::unordered_map<std::string, std::size_t> added_;  // index into file_.added_tokens
  std::unordered_set<TokenId> taken_;
};

}  // namespace

TokenSettings read_token_settings(const std::filesystem::path& folder) {
  return is_gguf(folder) ? read_gguf_token_settings(folder) : SettingsReader(folder).read();
}

void add_settings(const TokenSettings& settings, const std::filesystem::path& path, TokenizerFile& file) {
  if (settings.decoder.empty() && settings.added.empty() && settings.special.empty()) return;
  KnownTokens known(settings, path, file);
  for (const AddedToken& token : settings.decoder) known.add(token, true, KnownTokens::Conflict::refused);
  for (const AddedToken& token : settings.added) known.add(token, false, KnownTokens::Conflict::passed_over);
  for (const AddedToken& token : settings.special)
    if (!token.content.empty()) known.add_special(token);
}

}  // namespace nodewright
