// nodewright logits: the logits after a prompt and after each forced token, as a .npy file.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/output/npy.h"
#include "cli/session.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct LogitsOptions {
  SessionOptions session;
  std::string prompt, forced;
  std::filesystem::path out;
};

int logits(const LogitsOptions& options) {
  if (options.out.empty()) throw Error({.doing = "use --out", .detail = "it is empty", .fault = Fault::usage});
  const std::vector<int32_t> prompt = parse_ids("--prompt", options.prompt);
  const std::vector<int32_t> forced =
      options.forced.empty() ? std::vector<int32_t>{} : parse_ids("--continue", options.forced);
  Session session(options.session);
  const auto decoder =
      session.make_decoder(static_cast<int64_t>(prompt.size() + forced.size()), 1, {.keep_logits = true});
  const auto vocab = static_cast<size_t>(session.config().vocab);

  std::vector<float> rows((1 + forced.size()) * vocab);
  const int32_t sequence = decoder->open();
  decoder->append(sequence, std::span(prompt).first(prompt.size() - 1));
  for (size_t i = 0; i <= forced.size(); ++i) {
    decoder->step({StepRow{.sequence = sequence, .token = i == 0 ? prompt.back() : forced[i - 1], .sampling = {}}});
    decoder->read_logits(0, std::span(rows).subspan(i * vocab, vocab));
  }
  write_npy(options.out, rows, static_cast<int64_t>(1 + forced.size()), static_cast<int64_t>(vocab));
  return 0;
}

}  // namespace

void add_logits(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command = app.add_subcommand(
      "logits", "Write float32 logits [1 + forced tokens, vocab]: after the prompt, then after each forced token");
  add_session_options(*command, options->session);
  add_mode_option(*command, options->session);
  add_bucket_option(*command, options->session);
  command->add_option("--prompt", options->prompt, "token ids: 1,2,3")->required();
  command->add_option("--continue", options->forced, "token ids forced after the prompt");
  command->add_option("--out", options->out, ".npy file")->required();
  command->callback([options, &chosen] { chosen = [options] { return logits(*options); }; });
}

}  // namespace nodewright::cli
