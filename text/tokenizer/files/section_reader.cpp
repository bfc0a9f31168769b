#include "text/tokenizer/files/section_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_file.h"
#include "text/tokenizer/files/tokenizer_json.h"
#include "text/tokenizer/load_error.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr int kDeepestSequence = 8;  // Sequence within Sequence; released files nest one

}  // namespace

using Json = SectionReader::Json;

void SectionReader::fail(std::string detail) const { fail_load(file_, std::move(detail)); }

void SectionReader::refuse(const std::string& what) const {
  fail_load(file_, what + " is not supported", "docs/tokenizers.md says what is read");
}

const Json& SectionReader::object(const Json& value, const std::string& where) const {
  if (!value.is_object()) fail(fmt::format("{} is {}, not an object", where, value.type_name()));
  return value;
}

const Json& SectionReader::array(const Json& value, const std::string& where) const {
  if (!value.is_array()) fail(fmt::format("{} is {}, not an array", where, value.type_name()));
  return value;
}

const std::string& SectionReader::string(const Json& value, const std::string& where) const {
  if (!value.is_string()) fail(fmt::format("{} is {}, not a string", where, value.type_name()));
  return value.get_ref<const std::string&>();
}

std::string SectionReader::string_or(const Json& parent, const std::string& key, const std::string& where,
                                     std::string otherwise) const {
  const Json& value = member(parent, key);
  return value.is_null() ? std::move(otherwise) : string(value, fmt::format("{} of {}", key, where));
}

bool SectionReader::boolean(const Json& parent, const std::string& key, const std::string& where) const {
  const Json& value = member(parent, key);
  if (!value.is_boolean()) fail(fmt::format("{} of {} is {}, not a boolean", key, where, value.type_name()));
  return value.get<bool>();
}

bool SectionReader::boolean_or(const Json& parent, const std::string& key, const std::string& where,
                               bool otherwise) const {
  return member(parent, key).is_null() ? otherwise : boolean(parent, key, where);
}

std::size_t SectionReader::count(const Json& parent, const std::string& key, const std::string& where) const {
  constexpr std::uint64_t kMost = 0x7FFFFFFF;
  const Json& value = member(parent, key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost)
    fail(fmt::format("{} of {} is {}, not an integer from 0 to {}", key, where,
                     value.is_number() ? value.dump() : value.type_name(), kMost));
  return value.get<std::size_t>();
}

char32_t SectionReader::character(const Json& value, const std::string& where) const {
  const std::string& text = string(value, where);
  if (text.empty() || read_utf8(text).size != text.size())
    fail(fmt::format("{} is {}, not one character", where, in_quotes(text)));
  return read_utf8(text).code_point;
}

TokenId SectionReader::id(const Json& value, const std::string& where) const {
  if (!value.is_number_integer()) fail(fmt::format("the id of {} is {}, not an integer", where, value.type_name()));
  const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t{kLargestTokenId}
                                               : value.get<std::int64_t>() >= 0;
  if (!fits) fail(fmt::format("the id of {} is {}, outside 0 to {}", where, value.dump(), kLargestTokenId));
  return value.get<TokenId>();
}

const Json& SectionReader::member(const Json& parent, const std::string& key) const {
  static const Json null;
  const auto found = parent.find(key);
  return found == parent.end() ? null : *found;
}

std::string SectionReader::type_of(const Json& component, const std::string& where) const {
  return string(member(object(component, where), "type"), "type of " + where);
}

void SectionReader::check_keys(const Json& parent, const std::string& where,
                               std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : parent.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      refuse(fmt::format("{} of {}", in_quotes(key), where));
  }
}

const Json& SectionReader::sequence_members(const Json& sequence, const std::string& key, const std::string& where,
                                            int depth) const {
  if (depth >= kDeepestSequence) fail(fmt::format("{}: Sequence nested more than {} deep", where, kDeepestSequence));
  check_keys(sequence, where + " Sequence", {"type", key});
  return array(member(sequence, key), fmt::format("'{}' of {} Sequence", key, where));
}

}  // namespace nodewright
