#include "cli/options/request/answer_parsers.h"

namespace nodewright::cli {

void add_answer_parsers(CLI::App& command, ParserNames& names) {
  command
      .add_option("--tool-call-parser", names.tool_calls,
                  "how the model writes tool calls; auto: as its chat template or its vocabulary shows")
      ->check(CLI::IsMember({"auto", "hermes", "llama3_json", "mistral", "none"}))
      ->capture_default_str();
  command
      .add_option("--reasoning-parser", names.reasoning,
                  "how the model marks its reasoning, which answers then carry as reasoning_content")
      ->check(CLI::IsMember({"none", "deepseek_r1", "qwen3"}))
      ->capture_default_str();
}

AnswerParsers answer_parsers_of(const ParserNames& names) {
  return {.tool_calls = tool_call_parser_of(names.tool_calls).value_or(ToolCallParser::automatic),
          .reasoning = reasoning_parser_of(names.reasoning).value_or(ReasoningParser::none)};
}

}  // namespace nodewright::cli
