#include "cli/options/engine_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <vector>

#include "cli/options/adapter_options.h"
#include "cli/options/refusals.h"
#include "cli/options/run_mode_word.h"
#include "cli/options/whole_number.h"
#include "cli/output/progress_bar.h"
#include "cli/output/say.h"
#include "cli/report/bench_record.h"
#include "cli/report/step_log.h"
#include "engine/byte_size.h"
#include "engine/option_range.h"
#include "models/step/step_shape.h"

namespace nodewright::cli {
namespace {

// Where --step-tokens does not say: no more than all prompts have. One sequence alone keeps nobody waiting: all of its
// prompt that a step may have, or chunks that keep all stages busy.
int usual_step_tokens(int64_t prompt_tokens, int max_batch, Session& session) {
  const int64_t alone = session.config().stage.is_part() ? kStepTokensOfStages : kMostRows;
  const int64_t most = session.device().driver().is_cpu() ? kStepTokensOnCpu : max_batch == 1 ? alone : kStepTokens;
  return std::max(max_batch, static_cast<int>(std::min(prompt_tokens, most)));
}

// So many rows, and some padding: kernels of few rows are compiled for each of these sizes, those of many for all.
int64_t padded_rows(int64_t rows) {
  if (rows > 128) return (rows + 63) / 64 * 64;
  for (int64_t size = 8;; size *= 2)
    for (const int64_t next : {size, size + size / 2})
      if (rows <= next) return next;
}

// The steps of one prompt: whole chunks, what is left of it, then a token each time, with its drafts.
std::vector<int> buckets_of_one(int64_t prompt_tokens, int chunk, int speculate) {
  std::vector<int> sizes{1};
  if (prompt_tokens >= chunk) sizes.push_back(chunk);
  if (const int64_t left = prompt_tokens % chunk; left > 1)
    sizes.push_back(static_cast<int>(std::min<int64_t>(padded_rows(left), kMostRows)));
  if (speculate > 0) sizes.push_back(1 + speculate);
  return sizes;
}

// "0.9" of the device's memory, "8GB", or bytes.
uint64_t memory_limit(const std::string& text, const Device& device) {
  if (text.empty()) return 0;
  const uint64_t total = device.properties().total_bytes;
  double share = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, share);
  if (read.ec == std::errc() && read.ptr == end && share > 0 && share <= 1)
    return static_cast<uint64_t>(share * static_cast<double>(total));
  const std::optional<uint64_t> bytes = parse_byte_size(text);
  if (!bytes || *bytes == 0)
    refuse_option("--memory-limit",
                  fmt::format("'{}' is neither a share of the device's memory above 0 and up to 1, nor a size", text),
                  "0.9, or 8GB, or 8000000000");
  if (*bytes > total)
    refuse_pair("--memory-limit and --device",
                fmt::format("{} is more than the {} that {} has", text, byte_size_text(total), device.name()),
                "a share such as 0.9, or a smaller size");
  return *bytes;
}

StepLogHead head_of_log(const EngineOptions& options, const SessionOptions& words, Session& session,
                        const Engine& engine) {
  std::set<int> buckets;
  for (const BuiltBucket& graph : engine.slots().built().graphs)
    if (graph.bucket > 0) buckets.insert(graph.bucket);
  return {.device = session.device().name(),
          .model = folder_name(words.model),
          .date = today(),
          .max_batch = options.max_batch,
          .step_tokens = options.step_tokens,
          .buckets = {buckets.begin(), buckets.end()},
          .pages = engine.pipeline().pool().options().pages};
}

constexpr std::string_view kExact = "exact";

// Numbers, as the parser has checked, or "exact" alone.
void read_buckets(const std::vector<std::string>& words, EngineOptions& engine) {
  engine.exact_buckets = std::ranges::count(words, kExact) > 0;
  if (engine.exact_buckets && words.size() > 1)
    refuse_option("--buckets", "'exact' stands for every size up to --max-batch, and there are others beside it",
                  "--buckets exact, or sizes alone");
  engine.buckets.clear();
  for (const std::string& word : words)
    if (word != kExact) engine.buckets.push_back(std::stoi(word));
}

}  // namespace

void add_engine_options(CLI::App& command, EngineSettings& settings) {
  EngineOptions& engine = settings.engine;
  command
      .add_option("--step-tokens,--chunk", settings.step_tokens,
                  fmt::format("tokens of a step that has tokens of a prompt: every row that decodes, then chunks of "
                              "prompts, at least one token (default: at most {}; for one sequence alone {}, or {} with "
                              "--pp; on the CPU driver {})",
                              kStepTokens, kMostRows, kStepTokensOfStages, kStepTokensOnCpu))
      ->check(whole_number<int, 1>);
  command
      .add_option("--schedule", settings.schedule,
                  "mixed: a step may have prompts beside rows that decode, two steps in flight; drained: a "
                  "step of prompts waits until nothing is in flight, and runs alone")
      ->check(CLI::IsMember({"mixed", "drained"}))
      ->capture_default_str();
  command
      .add_option("--prefill", settings.prefill,
                  "how steps with prompt tokens are launched: graph, piecewise (attention apart) or eager")
      ->capture_default_str();
  command
      .add_option("--speculate", engine.speculate,
                  "drafts that a step checks for each request beyond the token that it chooses, guessed "
                  "from repetitions in its own tokens: up to 16; 0: none")
      ->check(whole_number<int, 0>)
      ->capture_default_str();
  command
      .add_option("--overlap", engine.overlap,
                  "2: with --tp, large steps of prompts are two halves, of which one computes while the other's sums "
                  "are exchanged; steps that only decode stay whole; 1: never")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  command
      .add_option(
          "--products-from", settings.products_from,
          fmt::format("rows from which on steps use the matmuls for many rows: up to {} rows kernels that hold "
                      "them in registers, where they fit, else cuBLASLt; 0: never (default: {}; 4 where "
                      "all matrices have biases, as in GPT-2, and 9 where norms stand before and behind blocks, as "
                      "in Gemma)",
                      kHeldToRows, kProductsFromRows))
      ->check(whole_number<uint32_t>);
  command
      .add_option_function<std::vector<std::string>>(
          "--buckets", [&engine](const std::vector<std::string>& words) { read_buckets(words, engine); },
          "rows of the graphs, or exact: every size up to --max-batch, so that no step of decoding rows is padded "
          "(default: 1, 2, 4, 8, 16, ... of batches, fewer of prompts)")
      ->delimiter(',')
      ->check([](const std::string& word) { return word == kExact ? std::string() : whole_number<int, 1>(word); });
  command.add_flag("--allow-eager", engine.allow_eager,
                   "steps of more rows than the largest bucket run node by node, without a graph");
  command
      .add_option("--pages", engine.pages,
                  fmt::format("pages of the cache, {} tokens each (default: enough for every request at its longest)",
                              kPageTokens))
      ->check(whole_number<uint32_t, 1>);
  command.add_option(
      "--memory-limit", settings.memory_limit,
      "most memory of weights, state, graphs and pages: 8GB, 8GiB, bytes, or a share of the device's memory such as "
      "0.9; the cache gets what is left (default: none)");
  command
      .add_option("--step-timeout", engine.step_timeout_ms,
                  "milliseconds after which a step counts as hung, and all requests fail (default: none)")
      ->check(whole_number<uint32_t, 1>);
  command.add_flag("--no-prefix-cache", settings.no_prefix_cache, "prompts that begin alike share no pages");
  command.add_flag("--no-pipelining", settings.no_pipelining, "one step in flight instead of two");
  command.add_option("--log", settings.log,
                     "file for a line of JSON about each step: rows, bucket, padding, graph or why not, time, queue, "
                     "pages; see nodewright report");
}

int64_t rows_of_one_prompt(Session& session, int64_t prompt_tokens) {
  return usual_step_tokens(padded_rows(prompt_tokens), 1, session);
}

EngineOptions engine_options(const EngineSettings& settings, const SessionOptions& options, Session& session,
                             const EngineNeeds& needs) {
  EngineOptions engine = settings.engine;
  const int64_t prompt_rows = needs.one_prompt ? padded_rows(needs.prompt_tokens) : needs.prompt_tokens;
  engine.step_tokens = settings.step_tokens.value_or(usual_step_tokens(prompt_rows, engine.max_batch, session));
  engine.schedule = settings.schedule == "drained" ? Schedule::drained : Schedule::mixed;
  if (needs.one_prompt && engine.buckets.empty())
    engine.buckets = buckets_of_one(needs.prompt_tokens, engine.step_tokens, engine.speculate);
  engine.max_context = std::min(needs.max_context, session.context_limit());
  engine.choices = needs.choices;
  engine.hidden = needs.hidden;
  engine.products_from = settings.products_from;
  engine.prefill = prefill_form(settings.prefill);
  engine.memory_limit = memory_limit(settings.memory_limit, session.device());
  engine.prefix_cache = !settings.no_prefix_cache;
  engine.depth = settings.no_pipelining ? 1 : kSlots;
  engine.tuning = session.tuning();
  engine.max_adapters = adapter_slots(settings);
  engine.mode = run_mode(options.mode);
  engine.policy = edge_policy(options.edges);
  engine.numerics = numerics_of(options.numerics);
  return engine;
}

std::unique_ptr<Engine> make_engine(const EngineSettings& settings, const SessionOptions& options, Session& session,
                                    const EngineNeeds& needs) {
  EngineOptions engine = engine_options(settings, options, session, needs);
  const auto progress = std::make_shared<ProgressBar>("building graphs");
  engine.built = [progress, quiet = options.quiet](const BuiltBucket& one) {
    if (!quiet) progress->show(static_cast<uint64_t>(one.built), static_cast<uint64_t>(one.total));
  };
  engine.fell_back = [](const std::string& reason) { say("nodewright: a step runs without a graph: {}\n", reason); };
  const std::shared_ptr<StepLogWriter> log =
      settings.log.empty() ? nullptr : std::make_shared<StepLogWriter>(settings.log);
  if (log)
    engine.stepped = [log, logs = settings.logs, told = engine.stepped](const StepRecord& step) {
      if (!logs || logs()) log->write(step);
      if (told) told(step);
    };
  auto made = std::make_unique<Engine>(session.places(), engine);
  progress->wipe();
  for (const std::string& why : made->slots().untaken()) say("nodewright: the tuning is not followed: {}\n", why);
  for (const NamedFolder& one : named_folders("--adapter", settings.adapters))
    made->load_adapter(one.name, made->read_adapter(one.folder));
  if (log) log->write(head_of_log(engine, options, session, *made));
  return made;
}

}  // namespace nodewright::cli
