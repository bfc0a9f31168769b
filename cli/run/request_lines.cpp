#include "cli/run/request_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/json_depth.h"
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
    if (nests_too_deep(text))
      throw std::invalid_argument(fmt::format("it nests deeper than {} levels", kDeepestRequestJson));
    const RequestJson json = parse_as_written(text);
    if (is_batch_line(json)) {
      read_as_batch(json, line);
      return line;
    }
    if (json.is_object())
      for (const char* name : {"custom_id", "id"})
        if (const auto id = json.find(name); id != json.end() && !id->is_null()) line.id = *id;
    static_cast<AskedRequest&>(line) = requests_->read(RequestFields(json), number);
  } catch (const RequestJson::parse_error& error) {
    line.refused = "it is no JSON: " + parser_words(error.what());
    // Among lines of a batch file it is answered as one of them.
    if (batches_ || text.find("\"custom_id\"") != std::string::npos) line.batch = std::make_shared<BatchCall>();
  } catch (const std::exception& error) {
    line.refused = error.what();
  }
  return line;
}

void LineReader::read_as_batch(const RequestJson& json, RequestLine& line) {
  line.batch = std::make_shared<BatchCall>();
  if (!batches_) batches_ = std::make_unique<BatchReader>(make_api_());
  batches_->read(json, *line.batch);
}

}  // namespace nodewright::cli
