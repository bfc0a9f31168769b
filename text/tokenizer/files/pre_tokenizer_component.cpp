// The component "pre_tokenizer" of tokenizer.json, read from its JSON.
#include <fmt/format.h>

#include "text/tokenizer/files/components.h"
#include "text/unicode/character_kinds.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using PreTokenizerJson = nlohmann::json;

SplitBehavior read_behavior(const SectionReader& reader, const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  reader.refuse(fmt::format("behavior '{}' of {}", name, where));
}

SplitStep read_split(const SectionReader& reader, const PreTokenizerJson& split) {
  const std::string where = "pre_tokenizer Split";
  reader.check_keys(split, where, {"type", "pattern", "behavior", "invert"});
  const auto& pattern = reader.object(reader.member(split, "pattern"), "'pattern' of " + where);
  reader.check_keys(pattern, "'pattern' of " + where, {"Regex", "String"});
  const bool literal = pattern.contains("String");
  const std::string& text = reader.string(reader.member(pattern, literal ? "String" : "Regex"),
                                          fmt::format("'{}' of {}", literal ? "String" : "Regex", where));
  SplitStep step{Regex(literal ? escaped_for_regex(text) : text, reader.file())};
  step.behavior =
      read_behavior(reader, reader.string(reader.member(split, "behavior"), "'behavior' of " + where), where);
  step.invert = reader.boolean_or(split, "invert", where, false);
  return step;
}

MetaspaceStep read_metaspace(const SectionReader& reader, const PreTokenizerJson& metaspace) {
  const std::string where = "pre_tokenizer Metaspace";
  reader.check_keys(metaspace, where,
                    {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  MetaspaceStep step;
  step.replacement = in_utf8(reader.character(reader.member(metaspace, "replacement"), "'replacement' of " + where));
  const std::string scheme = reader.string_or(metaspace, "prepend_scheme", where, "");
  if (scheme == "first") {
    step.prefix = MetaspaceStep::Prefix::first;
  } else if (scheme == "never" || !reader.boolean_or(metaspace, "add_prefix_space", where, true)) {
    step.prefix = MetaspaceStep::Prefix::never;
  } else if (!scheme.empty() && scheme != "always") {
    reader.refuse(fmt::format("prepend_scheme '{}' of {}", scheme, where));
  }
  step.split = reader.boolean_or(metaspace, "split", where, true);
  return step;
}

void add_spaces(PreTokenizer& read) { read.add(SplitStep{is_white_space, SplitBehavior::removed}); }

void add_cuts(const SectionReader& reader, const PreTokenizerJson& component, int depth, PreTokenizer& read) {
  const std::string type = reader.type_of(component, "pre_tokenizer");
  const std::string where = "pre_tokenizer " + type;
  if (type == "Sequence") {
    for (const auto& one : reader.sequence_members(component, "pretokenizers", "pre_tokenizer", depth))
      add_cuts(reader, one, depth + 1, read);
  } else if (type == "ByteLevel") {
    reader.check_keys(component, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    read.add(ByteLevelStep{reader.boolean(component, "add_prefix_space", where),
                           reader.boolean_or(component, "use_regex", where, true)});
  } else if (type == "Split") {
    read.add(read_split(reader, component));
  } else if (type == "Metaspace") {
    read.add(read_metaspace(reader, component));
  } else if (type == "Digits") {
    reader.check_keys(component, where, {"type", "individual_digits"});
    const bool single = reader.boolean(component, "individual_digits", where);
    read.add(SplitStep{is_number, single ? SplitBehavior::isolated : SplitBehavior::contiguous});
  } else if (type == "Punctuation") {
    reader.check_keys(component, where, {"type", "behavior"});
    const std::string behavior = reader.string_or(component, "behavior", where, "Isolated");
    read.add(SplitStep{is_punctuation, read_behavior(reader, behavior, where)});
  } else if (type == "CharDelimiterSplit") {
    reader.check_keys(component, where, {"type", "delimiter"});
    const char32_t delimiter = reader.character(reader.member(component, "delimiter"), "'delimiter' of " + where);
    read.add(SplitStep{delimiter, SplitBehavior::removed});
  } else if (type == "FixedLength") {
    reader.check_keys(component, where, {"type", "length"});
    const std::size_t length = reader.count(component, "length", where);
    if (length == 0) reader.refuse("length 0 of " + where);
    read.add(FixedLengthStep{length});
  } else if (type == "WhitespaceSplit" || type == "Whitespace" || type == "BertPreTokenizer") {
    reader.check_keys(component, where, {"type"});
    add_spaces(read);
    if (type == "Whitespace") read.add(SplitStep{is_word, SplitBehavior::contiguous});
    if (type == "BertPreTokenizer") read.add(SplitStep{is_punctuation});
  } else {
    reader.refuse(fmt::format("pre_tokenizer '{}'", type));
  }
}

}  // namespace

PreTokenizer read_pre_tokenizer(const SectionReader& reader, const nlohmann::json& pre_tokenizer) {
  PreTokenizer read;
  if (!pre_tokenizer.is_null()) add_cuts(reader, pre_tokenizer, 0, read);
  return read;
}

}  // namespace nodewright
