#include "cli/run/batch_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/written_number.h"
#include "serve/api/api_error.h"
#include "serve/api/call_id.h"

namespace nodewright::cli {
namespace {

constexpr const char *kChatUrl = "/v1/chat/completions", *kCompletionsUrl = "/v1/completions";

const RequestJson& member_of(const RequestJson& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || found->is_null()) throw std::invalid_argument(fmt::format("the line has no {}", name));
  return *found;
}

std::string text_in(const RequestJson& line, const char* name) {
  const RequestJson& value = member_of(line, name);
  if (!value.is_string() || value.get_ref<const std::string&>().empty())
    throw std::invalid_argument(fmt::format("{} is {}, expected a text", name, shown(value)));
  return value.get<std::string>();
}

std::string batch_line(const BatchCall& batch, const std::string& response, const RequestJson& error) {
  return fmt::format(R"({{"id":"{}","custom_id":{},"response":{},"error":{}}})", random_id("batch_req_"),
                     json_text(batch.custom_id), response, json_text(error));
}

}  // namespace

bool is_batch_line(const RequestJson& line) {
  return line.is_object() && (line.contains("url") || line.contains("body") || line.contains("method"));
}

void BatchReader::read(const RequestJson& line, BatchCall& batch) {
  const std::string id = text_in(line, "custom_id");
  batch.custom_id = id;
  if (!ids_.insert(id).second)
    throw std::invalid_argument(fmt::format("custom_id {} has come before", shown(batch.custom_id)));
  if (const std::string method = text_in(line, "method"); method != "POST")
    throw std::invalid_argument(fmt::format("method is {}, expected POST", shown(RequestJson(method))));
  const std::string url = text_in(line, "url");
  if (url != kChatUrl && url != kCompletionsUrl)
    throw std::invalid_argument(
        fmt::format("url is {}, expected {} or {}", shown(RequestJson(url)), kChatUrl, kCompletionsUrl));
  const RequestJson& body = member_of(line, "body");
  if (!body.is_object()) throw std::invalid_argument(fmt::format("body is {}, expected an object", shown(body)));
  try {
    const std::string text = json_text(body);
    batch.call = url == kChatUrl ? api_->chat(text) : api_->completions(text);
    if (batch.call->streams()) throw bad_request("stream is true, and a line of a batch has one answer", "stream");
    batch.submissions = batch.call->submissions();
    if (batch.call->is_done()) batch.body = batch.call->finish(), batch.status = batch.call->status();
  } catch (const ApiError& error) {
    batch.call.reset();
    batch.status = error.status();
    batch.body = error_body(error);
  }
}

std::string batch_answer(const BatchCall& batch, int status, const std::string& body) {
  return batch_line(batch,
                    fmt::format(R"({{"status_code":{},"request_id":"{}","body":{}}})", status, random_id("req_"), body),
                    nullptr);
}

std::string batch_refusal(const BatchCall& batch, const std::string& code, const std::string& message) {
  return batch_line(batch, "null", {{"code", code}, {"message", message}});
}

}  // namespace nodewright::cli
