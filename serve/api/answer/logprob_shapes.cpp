#include "serve/api/answer/logprob_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "serve/api/answer/event_text.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

bool is_whole(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Step step = read_utf8(bytes);
    if (step.kind != Utf8Kind::complete) return false;
    bytes.remove_prefix(step.size);
  }
  return true;
}

// The chosen token first, then the likeliest, as a JSON object that has each spelling once.
void append_likeliest(std::string& out, const TokenSpelling& spelling, const TokenLogprobs& token) {
  std::vector<std::string> seen{spelling.of(token.token)};
  out += '{';
  append_json_string(out, seen.front());
  out += ':';
  append_json_logprob(out, token.logprob);
  for (const auto& [id, logprob] : token.top) {
    std::string spelled = spelling.of(id);
    if (std::ranges::count(seen, spelled) > 0) continue;
    out += ',';
    append_json_string(out, spelled);
    out += ':';
    append_json_logprob(out, logprob);
    seen.push_back(std::move(spelled));
  }
  out += '}';
}

void append_chat_token(std::string& out, const TokenSpelling& spelling, int32_t token, float logprob) {
  out += R"({"token":)";
  append_json_string(out, spelling.of(token));
  out += R"(,"logprob":)";
  append_json_logprob(out, logprob);
  const std::string_view bytes = spelling.bytes(token);
  out += R"(,"bytes":)";
  if (bytes.empty()) {
    out += "null";
    return;
  }
  out += '[';
  for (const char byte : bytes)
    fmt::format_to(std::back_inserter(out), "{}{}", out.back() == '[' ? "" : ",", static_cast<unsigned char>(byte));
  out += ']';
}

// `rank`: 0 where it is not known.
void append_ranked(std::string& out, const TokenSpelling& spelling, int32_t token, float logprob, size_t rank) {
  fmt::format_to(std::back_inserter(out), R"("{}":{{"logprob":)", token);
  append_json_logprob(out, logprob);
  out += rank > 0 ? fmt::format(R"(,"rank":{},"decoded_token":)", rank) : R"(,"rank":null,"decoded_token":)";
  append_json_string(out, spelling.of(token));
  out += '}';
}

}  // namespace

std::string_view TokenSpelling::bytes(int32_t token) const {
  return tokenizer_ != nullptr && tokenizer_->has(token) ? tokenizer_->id_to_bytes(token) : std::string_view();
}

std::string TokenSpelling::of(int32_t token) const {
  if (tokenizer_ == nullptr || !tokenizer_->has(token)) return fmt::format("token_id:{}", token);
  const std::string_view spelled = tokenizer_->id_to_bytes(token);
  if (is_whole(spelled)) return std::string(spelled);
  std::string text = "bytes:";
  for (const char byte : spelled)
    fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

void CompletionLogprobs::begin_entry(const std::string& token, int64_t offset) {
  if (!tokens_.empty())
    for (std::string* list : {&offsets_, &logprobs_, &tokens_, &top_}) *list += ',';
  fmt::format_to(std::back_inserter(offsets_), "{}", offset);
  append_json_string(tokens_, token);
}

void CompletionLogprobs::add(const TokenSpelling& spelling, const TokenLogprobs& token, int64_t offset) {
  begin_entry(spelling.of(token.token), offset);
  append_json_logprob(logprobs_, token.logprob);
  append_likeliest(top_, spelling, token);
}

void CompletionLogprobs::add_unscored(const TokenSpelling& spelling, int32_t token, int64_t offset) {
  begin_entry(spelling.of(token), offset);
  logprobs_ += "null";
  top_ += "null";
}

void CompletionLogprobs::append(const CompletionLogprobs& later) {
  const char* comma = tokens_.empty() || later.tokens_.empty() ? "" : ",";
  offsets_ += comma + later.offsets_;
  logprobs_ += comma + later.logprobs_;
  tokens_ += comma + later.tokens_;
  top_ += comma + later.top_;
}

void CompletionLogprobs::append_to(std::string& out) const {
  fmt::format_to(std::back_inserter(out),
                 R"({{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}})", offsets_,
                 logprobs_, tokens_, top_);
}

void append_chat_logprobs(std::string& out, const TokenSpelling& spelling, std::span<const TokenLogprobs> tokens) {
  for (const TokenLogprobs& one : tokens) {
    if (!out.empty() && out.back() == '}') out += ',';
    append_chat_token(out, spelling, one.token, one.logprob);
    out += R"(,"top_logprobs":[)";
    for (const auto& [id, logprob] : one.top) {
      if (out.back() != '[') out += ',';
      append_chat_token(out, spelling, id, logprob);
      out += '}';
    }
    out += "]}";
  }
}

void append_prompt_logprobs(std::string& out, const TokenSpelling& spelling, std::span<const TokenLogprobs> scored) {
  out += "[null";
  for (const TokenLogprobs& one : scored) {
    const auto place = std::ranges::find(one.top, one.token, &std::pair<int32_t, float>::first);
    out += ",{";
    append_ranked(out, spelling, one.token, one.logprob,
                  place == one.top.end() ? 0 : static_cast<size_t>(place - one.top.begin()) + 1);
    for (size_t i = 0; i < one.top.size(); ++i) {
      if (one.top[i].first == one.token) continue;
      out += ',';
      append_ranked(out, spelling, one.top[i].first, one.top[i].second, i + 1);
    }
    out += '}';
  }
  out += ']';
}

}  // namespace nodewright
