#include "graph/dump/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

// In the text as it is, between quotes.
bool is_plain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

}  // namespace

void JsonText::begin_value() {
  if (std::exchange(after_key_, false) || is_empty_.empty()) return;
  if (!is_empty_.back()) text_ += ',';
  is_empty_.back() = false;
  append_line();
}

JsonText& JsonText::key(std::string_view name) {
  begin_value();
  append_quoted(name);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

void JsonText::append_quoted(std::string_view text) {
  if (std::ranges::all_of(text, is_plain)) {
    ((text_ += '"') += text) += '"';
  } else {
    text_ += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

void JsonText::raw(std::string_view token) {
  begin_value();
  text_ += token;
}

void JsonText::value(std::string_view text) {
  begin_value();
  append_quoted(text);
}

void JsonText::whole(const Json& json) {
  begin_value();
  nlohmann::detail::serializer<Json> serializer(nlohmann::detail::output_adapter<char>(text_), ' ',
                                                Json::error_handler_t::replace);
  serializer.dump(json, true, false, 2, static_cast<unsigned>(2 * is_empty_.size()));
}

void JsonText::open(char bracket) {
  begin_value();
  text_ += bracket;
  is_empty_.push_back(true);
}

void JsonText::close(char bracket) {
  const bool was_empty = is_empty_.back();
  is_empty_.pop_back();
  if (!was_empty) append_line();
  text_ += bracket;
}

}  // namespace nodewright
