// The component "normalizer" of tokenizer.json, read from its JSON; and the Replace that decoders have, too.
#include <fmt/format.h>

#include "text/tokenizer/files/base64.h"
#include "text/tokenizer/files/components.h"

namespace nodewright {
namespace {

using NormalizerJson = nlohmann::json;

CharacterMap read_character_map(const SectionReader& reader, const NormalizerJson& component) {
  const std::string where = "normalizer Precompiled";
  reader.check_keys(component, where, {"type", "precompiled_charsmap"});
  const auto bytes = from_base64(reader.string_or(component, "precompiled_charsmap", where, ""));
  if (!bytes) reader.fail("'precompiled_charsmap' of " + where + " is not base64");
  return CharacterMap(*bytes, reader.file());
}

BertText read_bert(const SectionReader& reader, const NormalizerJson& component) {
  const std::string where = "normalizer BertNormalizer";
  reader.check_keys(component, where, {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertText bert;
  bert.clean = reader.boolean_or(component, "clean_text", where, true);
  bert.separate_chinese = reader.boolean_or(component, "handle_chinese_chars", where, true);
  bert.lowercase = reader.boolean_or(component, "lowercase", where, true);
  bert.strip_accents = reader.boolean_or(component, "strip_accents", where, bert.lowercase);
  return bert;
}

// Components without fields.
bool add_plain(const std::string& type, Normalizer& normalizer) {
  if (type == "NFC")
    normalizer.add(NormalForm::nfc);
  else if (type == "NFD")
    normalizer.add(NormalForm::nfd);
  else if (type == "NFKC")
    normalizer.add(NormalForm::nfkc);
  else if (type == "NFKD")
    normalizer.add(NormalForm::nfkd);
  else if (type == "Lowercase")
    normalizer.add(Lowercase());
  else if (type == "StripAccents")
    normalizer.add(StripAccents());
  else if (type == "Nmt")
    normalizer.add(Nmt());
  else if (type == "ByteLevel")
    normalizer.add(ByteLetters());
  else
    return false;
  return true;
}

void add_steps(const SectionReader& reader, const NormalizerJson& component, int depth, Normalizer& normalizer) {
  const std::string type = reader.type_of(component, "normalizer");
  const std::string where = "normalizer " + type;
  if (type == "Sequence") {
    for (const auto& one : reader.sequence_members(component, "normalizers", "normalizer", depth))
      add_steps(reader, reader.object(one, "an entry of 'normalizers'"), depth + 1, normalizer);
  } else if (type == "Replace") {
    normalizer.add(read_replacement(reader, component, where));
  } else if (type == "Prepend") {
    reader.check_keys(component, where, {"type", "prepend"});
    normalizer.add(Prepend{reader.string(reader.member(component, "prepend"), "'prepend' of " + where)});
  } else if (type == "Strip") {
    reader.check_keys(component, where, {"type", "strip_left", "strip_right"});
    normalizer.add(
        StripSpaces{reader.boolean(component, "strip_left", where), reader.boolean(component, "strip_right", where)});
  } else if (type == "BertNormalizer") {
    normalizer.add(read_bert(reader, component));
  } else if (type == "Precompiled") {
    normalizer.add(read_character_map(reader, component));
  } else if (add_plain(type, normalizer)) {
    reader.check_keys(component, where, {"type"});
  } else {
    reader.refuse(fmt::format("normalizer '{}'", type));
  }
}

}  // namespace

Normalizer read_normalizer(const SectionReader& reader, const nlohmann::json& normalizer) {
  Normalizer read;
  if (!normalizer.is_null()) add_steps(reader, normalizer, 0, read);
  return read;
}

Replacement read_replacement(const SectionReader& reader, const nlohmann::json& component, const std::string& where) {
  reader.check_keys(component, where, {"type", "pattern", "content"});
  const auto& pattern = reader.object(reader.member(component, "pattern"), "'pattern' of " + where);
  reader.check_keys(pattern, "'pattern' of " + where, {"String", "Regex"});
  Replacement read;
  read.to = reader.string(reader.member(component, "content"), "content of " + where);
  if (pattern.contains("Regex")) {
    read.pattern.emplace(reader.string(reader.member(pattern, "Regex"), "'Regex' of " + where), reader.file());
    return read;
  }
  read.from = reader.string(reader.member(pattern, "String"), "'String' of " + where);
  if (read.from.empty()) reader.refuse("an empty 'pattern' of " + where);
  return read;
}

}  // namespace nodewright
