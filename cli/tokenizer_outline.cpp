#include "cli/tokenizer_outline.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "base/json_file.h"
#include "runtime/error.h"
#include "text/tokenizer/files/gguf_tokenizer.h"
#include "text/tokenizer/files/piece_file.h"
#include "text/tokenizer/files/tekken_file.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestFile = 256 << 20;  // bytes; Gemma-3's tokenizer.json, the largest released, has 33 MB

// A type that is no plain word is shown in quotes: the file may be hostile, and this goes to a terminal.
std::string as_printed(const std::string& type) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !type.empty() && type.size() <= 40 && std::all_of(type.begin(), type.end(), plain) ? type : in_quotes(type);
}

// The types of a component: its own, or those of the parts of a sequence.
std::string types_of(const json& component) {
  if (!component.is_object()) return {};
  std::string types;
  for (const char* parts : {"normalizers", "pretokenizers"}) {
    const auto found = component.find(parts);
    if (found == component.end() || !found->is_array()) continue;
    for (const json& part : *found) {
      const std::string type = types_of(part);
      if (!type.empty()) types += (types.empty() ? "" : " + ") + type;
    }
    return types;
  }
  const auto type = component.find("type");
  return type != component.end() && type->is_string() ? as_printed(type->get<std::string>()) : types;
}

std::string types_of(const json& file, const char* component) {
  const auto found = file.find(component);
  return found == file.end() ? std::string() : types_of(*found);
}

size_t entries(const json& parent, const char* key) {
  const auto found = parent.find(key);
  return found == parent.end() || !found->is_structured() ? 0 : found->size();
}

// Outlines a tokenizer.model or a tekken.json.
TokenizerOutline outline_of(const TokenizerFile& file, const char* format) {
  TokenizerOutline outline;
  outline.model = std::string(file.model.kind == ModelForm::Kind::unigram ? "Unigram of " : "BPE of ") + format;
  outline.tokens = file.model.vocab.size();
  outline.added_tokens = file.added_tokens.size();
  return outline;
}

}  // namespace

std::optional<TokenizerOutline> outline_tokenizer(const std::filesystem::path& folder) {
  const std::optional<std::filesystem::path> found = Tokenizer::file_in(folder);
  if (!found) return std::nullopt;
  const std::filesystem::path& path = *found;
  if (is_gguf(path)) return outline_of(read_gguf_tokenizer(path), "GGUF");
  if (path.filename() == "tokenizer.model") return outline_of(read_piece_file(path), "SentencePiece");
  if (path.filename() == "tekken.json") return outline_of(read_tekken_file(path), "tekken");
  const json file = read_json_object(path, "read the tokenizer", kLargestFile);
  const auto model = file.find("model");
  if (model == file.end() || !model->is_object())
    throw Error({.doing = "read the tokenizer", .object = path.string(), .detail = "it has no object model"});
  TokenizerOutline outline;
  outline.model = types_of(*model);
  if (outline.model.empty() && model->contains("merges"))
    outline.model = "BPE";  // the first files of GPT-2 say nothing
  outline.normalizer = types_of(file, "normalizer");
  outline.pre_tokenizer = types_of(file, "pre_tokenizer");
  outline.tokens = entries(*model, "vocab");
  outline.added_tokens = entries(file, "added_tokens");
  return outline;
}

std::string chat_template_file(const std::filesystem::path& folder) {
  if (is_gguf(folder)) return read_gguf_templates(folder).empty() ? "" : "tokenizer.chat_template";
  if (is_present(folder / "chat_template.jinja")) return "chat_template.jinja";
  const std::filesystem::path path = folder / "tokenizer_config.json";
  if (!is_present(path)) return {};
  return read_json_object(path, "read the tokenizer's settings", kLargestFile).contains("chat_template")
             ? "tokenizer_config.json"
             : "";
}

}  // namespace nodewright::cli
