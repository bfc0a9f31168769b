// nodewright generate: streams the continuation of a prompt, or with --chat the answer to it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "cli/command.h"
#include "cli/sampling_options.h"
#include "cli/session.h"
#include "cli/standard_output.h"
#include "cli/whole_number.h"
#include "engine/chat_template.h"
#include "engine/text_stream.h"
#include "engine/tokenizer.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct GenerateOptions {
  SessionOptions session;
  SamplingOptions sampling;
  std::string prompt, prompt_ids;
  std::optional<std::string> system;
  int64_t max_tokens = 128;
  bool chat = false, ignore_eos = false, stats = false;
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check(const GenerateOptions& options) {
  const auto refuse = [](const char* option, const std::string& detail) {
    throw Error({.doing = "use", .object = option, .detail = detail, .fault = Fault::usage});
  };
  if (options.prompt.empty() == options.prompt_ids.empty())
    refuse("--prompt", "give either --prompt TEXT or --prompt-ids 1,2,3, not empty and not both");
  if (options.max_tokens < 1) refuse("--max-tokens", fmt::format("{} is less than 1", options.max_tokens));
  if (options.chat && options.prompt.empty()) refuse("--chat", "it needs --prompt TEXT");
  if (options.system && !options.chat) refuse("--system", "it needs --chat");
  check(options.sampling);
  check_steps(options.session);
}

// Prints tokens as text where there is a tokenizer, else as ids separated by commas.
class Printer {
 public:
  explicit Printer(const std::optional<Tokenizer>& tokenizer) {
    if (tokenizer) text_.emplace(*tokenizer);
  }
  void token(int32_t id) {
    write_standard_output(text_ ? text_->push(id) : (first_ ? "" : ",") + std::to_string(id));
    first_ = false;
  }
  void end() { write_standard_output((text_ ? text_->flush() : "") + "\n"); }

 private:
  std::optional<TextStream> text_;
  bool first_ = true;
};

void print_stats(const Decoder& decoder, Decoder& mutable_decoder, const Session& session, size_t prompt,
                 double prompt_seconds, int64_t decoded, double decode_seconds) {
  const Decoder::Stats& stats = decoder.stats();
  fmt::print(stderr, "load      {:.0f} ms, {:.1f} MB of weights\n", session.model().upload_ms(),
             static_cast<double>(session.model().weights().bytes()) / 1e6);
  fmt::print(stderr, "kernels   {:.0f} ms\n", stats.kernels_ms);
  fmt::print(stderr, "graph     {} nodes, {} edges, built in {:.2f} ms, {:.2f} MB of device memory\n",
             decoder.step_plan().nodes.size(), decoder.step_plan().edges.size(), stats.build_ms,
             static_cast<double>(stats.graph_bytes) / 1e6);
  if (const ExplicitGraph* graph = mutable_decoder.step_graph())
    fmt::print(stderr,
               "          add {:.2f} ms, instantiate {:.2f} ms, upload {:.2f} ms; {} programmatic edges, {} full\n",
               graph->stats().add_ms, graph->stats().instantiate_ms, graph->stats().upload_ms,
               graph->stats().programmatic_edges, graph->stats().full_edges);
  fmt::print(stderr, "memory    {:.2f} MB state, {:.2f} MB key/value cache\n",
             static_cast<double>(stats.state_bytes) / 1e6, static_cast<double>(stats.cache_bytes) / 1e6);
  fmt::print(stderr, "prompt    {} tokens, {:.1f} tokens/s\n", prompt, static_cast<double>(prompt) / prompt_seconds);
  if (decoded > 0)
    fmt::print(stderr, "decode    {} tokens, {:.1f} tokens/s, {:.3f} ms/token\n", decoded,
               static_cast<double>(decoded) / decode_seconds, decode_seconds * 1e3 / static_cast<double>(decoded));
}

// The prompt as one message of a user, by the checkpoint's template, which writes BOS itself.
std::vector<TokenId> chat_prompt(const Tokenizer& tokenizer, const GenerateOptions& options) {
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", options.prompt});
  return encode_prompt(tokenizer, ChatTemplate::from_folder(options.session.model).render(messages));
}

int generate(const GenerateOptions& options) {
  check(options);
  std::optional<Tokenizer> tokenizer;
  std::vector<int32_t> prompt;
  check_model_folder(options.session.model);
  if (!options.prompt.empty()) {
    tokenizer = Tokenizer::from_file(options.session.model / "tokenizer.json");
    prompt = options.chat ? chat_prompt(*tokenizer, options)
                          : tokenizer->encode(options.prompt, {.add_special_tokens = true});
  } else {
    prompt = parse_ids("--prompt-ids", options.prompt_ids);
  }
  if (prompt.empty())
    throw Error({.doing = "generate from", .object = "--prompt", .detail = "it has no tokens", .fault = Fault::usage});

  Session session(options.session, Loading::begun);
  const ModelConfig& config = session.config();
  // A text may end at the last position there is; a prompt must leave room for one token.
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const int64_t room = std::max<int64_t>(session.context_limit() - prompt_tokens, 0);
  const int64_t wanted = std::min(options.max_tokens, std::max<int64_t>(room, 1));
  const auto decoder = session.make_decoder(prompt_tokens + wanted, 1);
  const Sampling sampling = sampling_of(options.sampling, config.generation);

  Printer printer(tokenizer);
  const auto start = Clock::now();
  const int32_t sequence = decoder->open();
  decoder->append(sequence, std::span(prompt).first(prompt.size() - 1));
  std::vector<int32_t> stop_ids;
  if (!options.ignore_eos) stop_ids.assign(config.eos.begin(), config.eos.end());
  // What the device has no room for is found here, at the end of a launch.
  LaunchRow row{.first = {.sequence = sequence, .token = prompt.back(), .sampling = sampling},
                .stop_ids = std::span(stop_ids).first(std::min<size_t>(stop_ids.size(), kMostStopIds))};
  int64_t generated = 0, of_first_launch = 0;
  double prompt_seconds = 0;
  Clock::time_point decode_start;
  for (bool ended = false; !ended && generated < wanted;) {
    row.most = std::min(options.session.steps.most, wanted - generated);
    const std::vector<int32_t>& tokens = decoder->launch({&row, 1})[0];
    if (generated == 0) {
      prompt_seconds = seconds_since(start);
      of_first_launch = std::ssize(tokens);
      if (!options.chat) write_standard_output(options.prompt);  // not before: a model that fails leaves nothing behind
      decode_start = Clock::now();
    }
    generated += std::ssize(tokens);
    row.first.token.reset();  // from now on the device feeds itself
    const auto stop = std::ranges::find_first_of(tokens, stop_ids);
    ended = stop != tokens.end();
    for (auto token = tokens.begin(); token != stop; ++token) printer.token(*token);
  }
  const double decode_seconds = seconds_since(decode_start);
  printer.end();
  if (options.stats)
    print_stats(*decoder, *decoder, session, prompt.size(), prompt_seconds, generated - of_first_launch,
                decode_seconds);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text");
  add_session_options(*command, options->session);
  add_mode_option(*command, options->session);
  add_bucket_option(*command, options->session);
  add_steps_options(*command, options->session);
  command->add_option("--prompt", options->prompt, "text to continue");
  command->add_option("--prompt-ids", options->prompt_ids, "the same as token ids (no tokenizer needed): 1,2,3");
  command->add_option("--max-tokens", options->max_tokens, "most tokens to generate")
      ->check(whole_number<uint32_t>)
      ->capture_default_str();
  add_sampling_options(*command, options->sampling);
  command->add_flag("--chat", options->chat,
                    "the prompt is a message; print the answer (the checkpoint's chat template)");
  command->add_option("--system", options->system, "with --chat: a message of the system before it");
  command->add_flag("--ignore-eos", options->ignore_eos, "go on after an end-of-text token");
  command->add_flag("--stats", options->stats, "print times and sizes to stderr");
  command->callback([options, &chosen] { chosen = [options] { return generate(*options); }; });
}

}  // namespace nodewright::cli
