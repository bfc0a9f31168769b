#include "cli/run/request_lines.h"

#include <nlohmann/json.hpp>

#include "base/written_number.h"

namespace nodewright::cli {
namespace {

// What the parser of JSON says, without its name and number.
std::string parser_words(const std::string& words) {
  const size_t end = words.find("] ");
  return words.starts_with("[json.") && end != std::string::npos ? words.substr(end + 2) : words;
}

}  // namespace

RequestLine LineReader::read(const std::string& text, int64_t number) {
  RequestLine line;
  line.number = number;
  line.id = number;
  try {
    const RequestJson json = parse_as_written(text);
    if (json.is_object())
      for (const char* name : {"custom_id", "id"})
        if (const auto id = json.find(name); id != json.end() && !id->is_null()) line.id = *id;
    static_cast<AskedRequest&>(line) = requests_->read(RequestFields(json), number);
  } catch (const RequestJson::parse_error& error) {
    line.refused = "it is no JSON: " + parser_words(error.what());
  } catch (const std::exception& error) {
    line.refused = error.what();
  }
  return line;
}

}  // namespace nodewright::cli
