// nodewright logits: the logits after a prompt and after each forced token, as a .npy file.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "cli/command.h"
#include "cli/options/adapter_options.h"
#include "cli/options/request/prompt_options.h"
#include "cli/output/npy.h"
#include "cli/session.h"
#include "models/adapters/adapter_image.h"
#include "models/adapters/lora_adapter.h"
#include "runtime/error.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

struct LogitsOptions {
  SessionOptions session;
  std::vector<std::string> adapters;  // NAME=DIR
  PromptOptions prompt;
  std::string forced;
  std::filesystem::path out;
};

// That of --adapter, opened before the model is loaded; those of --merge-adapter are looked at here, too.
std::optional<LoraAdapter> adapter_of(const LogitsOptions& options) {
  const std::vector<NamedFolder> named = named_folders("--adapter", options.adapters);
  const std::vector<NamedFolder> merged = named_folders("--merge-adapter", options.session.merged);
  if (named.size() > 1)
    throw Error({.doing = "use --adapter",
                 .object = named[1].name,
                 .detail = fmt::format("{} is there before it, and these logits are of one sequence", named[0].name),
                 .advice = "a call for each of them",
                 .fault = Fault::usage});
  if (named.empty() && merged.empty()) return std::nullopt;
  check_model_folder(options.session.model);
  const ModelConfig config = read_model_config(options.session.model);
  for (const NamedFolder& one : merged)
    (void)LoraAdapter::open(one.folder, config, std::numeric_limits<int64_t>::max());
  if (named.empty()) return std::nullopt;
  return LoraAdapter::open(named[0].folder, config, std::numeric_limits<int64_t>::max());
}

std::vector<int32_t> prompt_of(const LogitsOptions& options) {
  if (options.prompt.ids) return parse_ids("--prompt-ids", *options.prompt.ids);
  const std::string text = prompt_text(options.prompt);
  check_model_folder(options.session.model);
  const Tokenizer tokenizer = Tokenizer::from_folder(options.session.model);
  std::vector<int32_t> ids = tokenizer.encode(text, {.add_special_tokens = true});
  if (ids.empty())
    throw Error(
        {.doing = "compute logits after", .object = "--prompt", .detail = "it has no tokens", .fault = Fault::usage});
  return ids;
}

int logits(const LogitsOptions& options) {
  if (options.out.empty()) throw Error({.doing = "use --out", .detail = "it is empty", .fault = Fault::usage});
  cli::check(options.prompt);
  const std::vector<int32_t> prompt = prompt_of(options);
  const std::vector<int32_t> forced =
      options.forced.empty() ? std::vector<int32_t>{} : parse_ids("--continue", options.forced);
  const std::optional<LoraAdapter> adapter = adapter_of(options);
  Session session(options.session);
  DirectStepsOptions one = session.direct_steps(static_cast<int64_t>(prompt.size() + forced.size()));
  one.keep_logits = true;
  if (adapter) one.slots.adapters = adapter_limits(1, std::max<int64_t>(adapter->rank(), 1));
  DirectSteps steps(session.places().front(), one);
  if (adapter) {
    AdapterSlots& slots = *steps.device().adapters();
    const AdapterImage image(session.device(), *adapter, session.config(), slots.layout());
    slots.upload(session.stream(), 0, image);
    session.stream().synchronize();
  }
  const auto vocab = static_cast<size_t>(session.config().vocab);

  std::vector<float> rows((1 + forced.size()) * vocab);
  if (adapter) steps.restart(0, 0);
  steps.append(0, std::span(prompt).first(prompt.size() - 1));
  for (size_t i = 0; i <= forced.size(); ++i) {
    const StepRow row{.token = i == 0 ? prompt.back() : forced[i - 1]};
    steps.launch({&row, 1});
    steps.read_logits(0, std::span(rows).subspan(i * vocab, vocab));
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
  command
      ->add_option("--adapter", options->adapters, "NAME=DIR of a LoRA adapter as PEFT writes it, which the rows use")
      ->allow_extra_args(false);
  add_merge_option(*command, options->session);
  add_prompt_options(*command, options->prompt);
  command->add_option("--continue", options->forced, "token ids forced after the prompt");
  command->add_option("--out", options->out, ".npy file")->required();
  command->callback([options, &chosen] { chosen = [options] { return logits(*options); }; });
}

}  // namespace nodewright::cli
