// Lines in the form of OpenAI's batch files: {"custom_id", "method", "url", "body"}. The body is a call of the HTTP
// interface; the code that serves that interface (serve/api) reads and answers it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "serve/api/openai_api.h"
#include "serve/fields/json_fields.h"

namespace nodewright::cli {

struct BatchCall {
  RequestJson custom_id;                // null: the line names none
  std::unique_ptr<ApiCall> call;        // none: the line was refused
  std::vector<Submission> submissions;  // of the call, until the engine has them
  int status = 0;                       // with `body`: what the interface answers at once; 0: nothing yet
  std::string body;
  bool is_answered = false;
};

class BatchReader {
 public:
  explicit BatchReader(std::unique_ptr<OpenAiApi> api) : api_(std::move(api)) {}

  // Throws std::invalid_argument for what is no batch line, with the reason: no name, one that came before, another
  // method or URL. A body that the interface refuses is an answer.
  void read(const RequestJson& line, BatchCall& batch);

 private:
  std::unique_ptr<OpenAiApi> api_;
  std::set<std::string> ids_;
};

// Whether it is a line of a batch file, or is to be one.
bool is_batch_line(const RequestJson& line);

// The lines of the results.
std::string batch_answer(const BatchCall& batch, int status, const std::string& body);
std::string batch_refusal(const BatchCall& batch, const std::string& code, const std::string& message);

}  // namespace nodewright::cli
