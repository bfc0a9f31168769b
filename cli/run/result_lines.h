// The lines that `nodewright run` prints: text as it comes, where a request streams, and one result for each output.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/request_lines.h"
#include "engine/sampling/choice_options.h"
#include "engine/schedule/pipeline.h"
#include "runtime/error.h"
#include "serve/fields/choice_fields.h"
#include "serve/tools/answer_parts.h"
#include "text/text_stream.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {

// One output of a request line, and what has come of it.
struct LineOutput {
  int64_t line = 0;          // its number
  RequestJson id;            // as the line calls itself
  std::optional<int> index;  // among the n that the line asks for, where it says n
  bool stream = false;
  std::shared_ptr<BatchCall> batch;  // whose output this is
  int batch_index = 0;               // among the outputs of that call
  RequestChoice choice;
  int64_t prompt_tokens = 0;
  std::vector<int32_t> unsent;       // tokens of a stream whose text is not complete yet
  std::optional<TextStream> text;    // of a stream without stop strings
  size_t streamed = 0;               // bytes of the text of one with stop strings
  std::optional<AnswerParts> parts;  // of a conversation whose answer is taken apart
  std::vector<int32_t> shown;        // special tokens that are text for it
  std::vector<std::string> denying;  // fields that say which tokens may come
  AnswerPart said;                   // what was found of these parts
  bool names_one = false;            // the request names the function that is called
  std::vector<TokenLogprobs> logprobs, prompt_logprobs;
  std::vector<float> hidden;  // [hidden_tokens, hidden]
  int64_t hidden_tokens = 0;
  std::chrono::steady_clock::time_point due, last_token;
};

// Output k of the line, before the engine has it.
LineOutput output_of(const RequestLine& line, size_t k);

class ResultLines {
 public:
  // `hidden_dir`: for hidden states; empty where no request may ask for them. `tokenizer` must outlive this.
  ResultLines(const std::optional<Tokenizer>& tokenizer, std::filesystem::path hidden_dir)
      : tokenizer_(tokenizer), hidden_dir_(std::move(hidden_dir)) {}

  bool takes_hidden() const { return !hidden_dir_.empty(); }
  // Prints what these tokens add to a stream: no stop id among them, which is no part of the text.
  void stream(LineOutput& output, const std::vector<int32_t>& tokens);
  void end(LineOutput& output, const Resolution& end);
  // The answer of a batch line: of the interface, or of its call, which is done.
  void answer(BatchCall& batch, int64_t line, int status, const std::string& body);
  // For an output that the engine did not accept.
  void refuse(const LineOutput& output, const std::string& message);
  // For all outputs of a line that never reached the engine.
  void cancel(const RequestLine& line);

  // Results by their finish_reason, and all of them.
  const std::map<std::string, int64_t>& counts() const { return counts_; }
  int64_t count() const { return count_; }
  // Nobody takes the results any more.
  bool is_closed() const { return unwritten_.has_value(); }
  // Throws Error for what could not be written or, where all could, for requests that have no full result.
  void demand_all_served() const;

 private:
  RequestJson head_of(const LineOutput& output) const;
  void print_delta(LineOutput& output, std::string text, bool last = false);
  static AnswerPart new_part(LineOutput& output, const std::string& text, bool last);
  // The parts of an answer that is taken apart; the finish reason.
  static std::string_view add_parts(LineOutput& output, const std::string& text, std::string_view reason,
                                    RequestJson& result);
  std::string text_of(const LineOutput& output, const std::vector<int32_t>& ids) const;
  // Counts a result, which has a finish reason.
  void count(int64_t line, std::string_view reason, const std::string& message);
  void write_line(const std::string& text);
  // `fields`: more of the line, as JSON: `,"name":value` each.
  void print(const RequestJson& line, const std::string& fields = {});
  void print_result(const LineOutput& output, std::string_view reason, RequestJson result, const std::string& message,
                    const std::string& fields = {});
  RequestJson written_hidden(const LineOutput& output, std::string& message);

  const std::optional<Tokenizer>& tokenizer_;
  std::filesystem::path hidden_dir_;
  std::map<std::string, int64_t> counts_;
  int64_t count_ = 0, written_ = 0;
  std::string first_unserved_;
  std::optional<Error> unwritten_, hidden_unwritten_;
};

}  // namespace nodewright::cli
