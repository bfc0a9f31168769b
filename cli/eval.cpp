// nodewright eval: how likely a model finds a text, and how far its distributions are from those of another model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options/refusals.h"
#include "cli/options/request/prompt_options.h"
#include "cli/output/progress_bar.h"
#include "cli/output/standard_output.h"
#include "cli/session.h"
#include "engine/sampling/token_distribution.h"
#include "models/tuning/step_tuning.h"
#include "runtime/error.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

// Perplexities of WikiText-2 are published with windows of this many tokens (GPTQ, arXiv 2210.17323, 4).
constexpr int64_t kUsualWindow = 2048;

struct EvalOptions {
  SessionOptions session{.bucket = 32};
  PromptOptions text;
  std::filesystem::path against;  // empty: no other model
  bool json = false;
};

struct TokenSums {
  double log_likelihood = 0;  // nats

  double nats_of(int64_t tokens) const { return -log_likelihood / static_cast<double>(tokens); }
};

struct Evaluation {
  int64_t tokens = 0, windows = 0, window = 0;
  TokenSums own, reference;
  double divergence = 0, most_divergence = 0;  // nats, from the reference
  int64_t same_likeliest = 0;

  bool is_finite() const {
    return std::isfinite(own.log_likelihood) && std::isfinite(reference.log_likelihood) && std::isfinite(divergence);
  }
  void add(const TokenDistribution& found, size_t token) {
    ++tokens;
    own.log_likelihood += found.log_probability(token);
  }
  void compare(const TokenDistribution& found, const TokenDistribution& expected, size_t token) {
    reference.log_likelihood += expected.log_probability(token);
    const double nats = expected.divergence_to(found);
    divergence += nats;
    most_divergence = std::max(most_divergence, nats);
    if (found.likeliest() == expected.likeliest()) ++same_likeliest;
  }
};

[[noreturn]] void refuse_against(const EvalOptions& options, std::string detail) {
  throw Error({.doing = "compare with",
               .object = options.against.string(),
               .detail = std::move(detail),
               .advice = "another checkpoint of the same model",
               .fault = Fault::usage});
}

// Distributions are compared token by token: both models must mean the same by an id.
void check_vocabularies(const EvalOptions& options, const ModelConfig& own, int64_t vocab) {
  if (vocab != own.vocab)
    refuse_against(options, fmt::format("its vocabulary has {} tokens, that of {} has {}", vocab,
                                        options.session.model.string(), own.vocab));
  if (!Tokenizer::file_in(options.against) || !Tokenizer::file_in(options.session.model)) return;
  const Tokenizer theirs = Tokenizer::from_folder(options.against),
                  ours = Tokenizer::from_folder(options.session.model);
  for (TokenId id = 0; id < vocab; ++id)
    if (ours.has(id) && theirs.has(id) && ours.id_to_bytes(id) != theirs.id_to_bytes(id))
      refuse_against(options, fmt::format("token {} has another text than in {}", id, options.session.model.string()));
}

std::vector<int32_t> tokens_of(const EvalOptions& options, int64_t vocab) {
  const std::vector<int32_t> tokens = options.text.ids
                                          ? parse_ids("--prompt-ids", *options.text.ids)
                                          : Tokenizer::from_folder(options.session.model)
                                                .encode(prompt_text(options.text), {.add_special_tokens = true});
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocab)
      throw Error({.doing = "score token",
                   .object = std::to_string(token),
                   .detail = fmt::format("the vocabulary of {} has {} tokens", options.session.model.string(), vocab),
                   .advice = "ids of this model",
                   .fault = Fault::usage});
  return tokens;
}

// Consecutive windows of at most `most` tokens. Where the text begins with `bos`, each of them does.
std::vector<std::vector<int32_t>> windows_of(std::span<const int32_t> tokens, size_t most, std::optional<int64_t> bos) {
  const size_t prefix = bos && !tokens.empty() && tokens.front() == *bos ? 1 : 0;
  std::vector<std::vector<int32_t>> windows;
  for (size_t at = prefix; at < tokens.size(); at += most - prefix) {
    const auto part = tokens.subspan(at, std::min(most - prefix, tokens.size() - at));
    std::vector<int32_t>& window = windows.emplace_back(tokens.begin(), tokens.begin() + static_cast<int64_t>(prefix));
    window.insert(window.end(), part.begin(), part.end());
  }
  if (!windows.empty() && windows.back().size() < 2) windows.pop_back();  // its one token follows none
  return windows;
}

// A model with the logits of a step's rows.
class Scorer {
 public:
  Scorer(const ModelPlace& place, const DirectStepsOptions& options)
      : steps_(place, options), logits_(static_cast<size_t>(place.model->config().vocab)) {}

  void restart() { steps_.restart(0); }
  void append(std::span<const int32_t> tokens) { steps_.append_with_logits(0, tokens); }
  // The distribution after tokens[row]; valid until the next call.
  TokenDistribution distribution(int64_t row) {
    steps_.read_logits(row, logits_);
    return TokenDistribution(logits_);
  }

 private:
  DirectSteps steps_;
  std::vector<float> logits_;  // [vocab]
};

Evaluation evaluate(const EvalOptions& options) {
  check_model_folder(options.session.model);
  const ModelConfig config = read_model_config(options.session.model);
  int64_t most = std::min(config.max_position, kUsualWindow);
  if (!options.against.empty()) {
    check_model_folder(options.against, "--against");
    const ModelConfig reference = read_model_config(options.against);
    check_vocabularies(options, config, reference.vocab);
    most = std::min(most, reference.max_position);
  }
  const int64_t limit = options.session.max_context;
  Evaluation sums{.window = limit > 0 ? limit : most};
  if (sums.window < 2) refuse_option("--max-context", "a window of one token scores none", "2 at least");
  const std::vector<int32_t> tokens = tokens_of(options, config.vocab);
  const auto windows = windows_of(tokens, static_cast<size_t>(sums.window), config.bos);
  if (windows.empty()) refuse_option("--prompt", "its text has fewer than two tokens", "a longer text");
  const auto longest = static_cast<int64_t>(windows.front().size());
  SessionOptions windowed = options.session;
  windowed.max_context = sums.window;  // it chooses the rotary factors, too
  Session session(windowed);
  DirectStepsOptions steps = session.direct_steps(longest);
  steps.keep_logits = true;
  steps.slots.most_sampled = options.session.bucket;
  Scorer own(session.places().front(), steps);
  std::optional<DecoderModel> other;
  std::optional<Scorer> reference;
  if (!options.against.empty()) {
    other = session.load_another(options.against);
    if (model_sizes(other->config()) != model_sizes(session.config())) steps.slots.tuning.reset();
    reference.emplace(ModelPlace{&session.device(), &session.kernels(), &*other}, steps);
  }
  ProgressBar bar("evaluating");
  for (const std::vector<int32_t>& window : windows) {
    own.restart();
    if (reference) reference->restart();
    const size_t scored = window.size() - 1, rows = static_cast<size_t>(options.session.bucket);
    for (size_t at = 0; at < scored; at += rows) {
      const auto step = std::span(window).subspan(at, std::min(rows, scored - at));
      own.append(step);
      if (reference) reference->append(step);
      for (size_t row = 0; row < step.size(); ++row) {
        const auto next = static_cast<size_t>(window[at + row + 1]);
        const TokenDistribution found = own.distribution(static_cast<int64_t>(row));
        sums.add(found, next);
        if (reference) sums.compare(found, reference->distribution(static_cast<int64_t>(row)), next);
        if (!sums.is_finite())
          throw Error({.doing = "score token",
                       .object = std::to_string(next),
                       .detail = fmt::format("its likelihood is not finite, at position {} of window {}", at + row + 1,
                                             sums.windows + 1),
                       .advice = "look for infinite weights in the checkpoints"});
      }
      bar.show(static_cast<uint64_t>(sums.tokens), tokens.size());
    }
    ++sums.windows;
  }
  return sums;
}

using Report = nlohmann::ordered_json;

void add_likelihood(Report& report, const TokenSums& sums, int64_t tokens) {
  report["log_likelihood"] = sums.log_likelihood;
  report["nats_per_token"] = sums.nats_of(tokens);
  report["perplexity"] = std::exp(sums.nats_of(tokens));
}

std::string json_of(const EvalOptions& options, const Evaluation& found) {
  Report report{{"model", options.session.model.string()},
                {"tokens", found.tokens},
                {"windows", found.windows},
                {"window", found.window}};
  add_likelihood(report, found.own, found.tokens);
  if (!options.against.empty()) {
    Report& against = report["against"] = {{"model", options.against.string()}};
    add_likelihood(against, found.reference, found.tokens);
    against["kl_divergence"] = found.divergence / static_cast<double>(found.tokens);
    against["largest_kl_divergence"] = found.most_divergence;
    against["same_likeliest"] = static_cast<double>(found.same_likeliest) / static_cast<double>(found.tokens);
  }
  return report.dump(2, ' ', false, Report::error_handler_t::replace) + "\n";
}

std::string likelihood_text(const std::string& name, const TokenSums& sums, int64_t tokens) {
  return fmt::format("{}: perplexity {:.4f}, {:.5f} nats a token, log-likelihood {:.3f}\n", name,
                     std::exp(sums.nats_of(tokens)), sums.nats_of(tokens), sums.log_likelihood);
}

std::string text_of(const EvalOptions& options, const Evaluation& found) {
  std::string text = fmt::format("{} tokens scored, in {} window{} of at most {}\n", found.tokens, found.windows,
                                 found.windows == 1 ? "" : "s", found.window);
  text += likelihood_text(options.session.model.string(), found.own, found.tokens);
  if (options.against.empty()) return text;
  text += likelihood_text(options.against.string(), found.reference, found.tokens);
  const auto tokens = static_cast<double>(found.tokens);
  return text + fmt::format(
                    "KL(against || model): {:.6f} nats a token, {:.6f} at most\n"
                    "the same likeliest token: {:.2f} %\n",
                    found.divergence / tokens, found.most_divergence,
                    100 * static_cast<double>(found.same_likeliest) / tokens);
}

int eval(const EvalOptions& options) {
  cli::check(options.text);
  const Evaluation found = evaluate(options);
  write_standard_output(options.json ? json_of(options, found) : text_of(options, found));
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command =
      app.add_subcommand("eval", "Measure how likely a model finds a text, and how far it is from another model");
  add_session_options(*command, options->session);
  add_mode_option(*command, options->session);
  add_bucket_option(*command, options->session);
  add_prompt_options(*command, options->text);
  command
      ->add_option("--against", options->against,
                   "checkpoint of the same model, the reference: KL(against || model), and how often the likeliest "
                   "token is the same")
      ->transform([](const std::string& words) { return model_folder(words).string(); });
  command->add_flag("--json", options->json, "print the figures as JSON, in full precision");
  command->callback([options, &chosen] { chosen = [options] { return eval(*options); }; });
}

}  // namespace nodewright::cli
