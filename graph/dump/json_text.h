// JSON as text, written from front to back in the layout of nlohmann's dump(2): what many nodes are never needed for as
// values. Names may hold bytes that are no UTF-8: those become U+FFFD.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nodewright {

class JsonText {
 public:
  // In an object each value follows its key.
  JsonText& key(std::string_view name);
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(std::same_as<bool> auto is) { raw(is ? "true" : "false"); }
  void value(std::integral auto number) requires(!std::same_as<decltype(number), bool>) { raw(std::to_string(number)); }
  // A value that is there as such.
  void whole(const nlohmann::ordered_json& json);

  template <class Members>
  void object(const Members& members) {
    open('{');
    members();
    close('}');
  }
  // `value_of(entry)` writes one value.
  template <class Entries, class ValueOf>
  void array(const Entries& entries, const ValueOf& value_of) {
    open('[');
    for (const auto& entry : entries) value_of(entry);
    close(']');
  }
  template <class Entries>
  void array(const Entries& entries) {
    array(entries, [&](const auto& entry) { value(entry); });
  }
  template <class T>
  void member(std::string_view name, const T& is) {
    key(name).value(is);
  }

  std::string text() && { return std::move(text_); }

 private:
  void open(char bracket);
  void close(char bracket);
  void begin_value();  // the comma and the line before an array's entry
  void raw(std::string_view token);
  void append_line() { (text_ += '\n').append(2 * is_empty_.size(), ' '); }
  void append_quoted(std::string_view text);

  std::string text_;
  std::vector<bool> is_empty_;  // of the brackets that are open, the innermost last
  bool after_key_ = false;
};

}  // namespace nodewright
