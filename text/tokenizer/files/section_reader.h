// Typed access to the parts of a tokenizer.json, and the errors that name them. A key or a component outside what is
// understood is refused by name: ignoring it would silently give other tokens than the oracle's.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

class SectionReader {
 public:
  using Json = nlohmann::json;

  explicit SectionReader(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }

  // Throw Error; "... is not supported" for the second.
  [[noreturn]] void fail(std::string detail) const;
  [[noreturn]] void refuse(const std::string& what) const;

  // The value as what it has to be; `where` names it in the error, "... of `where`" where there is a key.
  const Json& object(const Json& value, const std::string& where) const;
  const Json& array(const Json& value, const std::string& where) const;
  const std::string& string(const Json& value, const std::string& where) const;
  std::string string_or(const Json& parent, const std::string& key, const std::string& where,
                        std::string otherwise) const;
  bool boolean(const Json& parent, const std::string& key, const std::string& where) const;
  bool boolean_or(const Json& parent, const std::string& key, const std::string& where, bool otherwise) const;
  std::size_t count(const Json& parent, const std::string& key, const std::string& where) const;  // 0 to 2^31 - 1
  char32_t character(const Json& value, const std::string& where) const;                          // a string of one
  TokenId id(const Json& value, const std::string& where) const;  // 0 to kLargestTokenId

  // The value at `key`, or null.
  const Json& member(const Json& parent, const std::string& key) const;

  std::string type_of(const Json& component, const std::string& where) const;
  void check_keys(const Json& parent, const std::string& where, std::initializer_list<std::string_view> known) const;

  // The members of a Sequence inside `depth` others, at most 8.
  const Json& sequence_members(const Json& sequence, const std::string& key, const std::string& where, int depth) const;

 private:
  std::string file_;
};

}  // namespace nodewright
