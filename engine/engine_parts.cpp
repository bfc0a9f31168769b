#include "engine/engine_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/option_range.h"
#include "models/step/lanes.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// The most that a request may own at once.
int64_t pages_of_request(const EngineOptions& options, const ModelConfig& config) {
  return KvPool(pool_options(options, config, 0)).most_pages(options.max_context);
}

int64_t pages_of(const EngineOptions& options, const ModelConfig& config) {
  if (options.pages > 0 || options.memory_limit > 0) return options.pages;
  return options.max_batch * pages_of_request(options, config);
}

// Drafts of a request in a step, at most. Longer repeats continue in the next step.
constexpr int kMostDrafts = 16;

// Rows beyond which a step is no longer bound by reading weights, so that drafts cost time.
constexpr int64_t kDraftRows = 64;

// Slots, each of which takes memory, and dimensions, beyond which an adapter is no longer small.
constexpr int kMostAdapters = 1024, kMostAdapterRank = 512;

// The most tokens that decode steps may have, and those for which there are graphs by default.
int64_t drafted_rows_of(const EngineOptions& options) { return int64_t{options.max_batch} * (1 + options.speculate); }
int decode_rows_of(const EngineOptions& options) {
  return static_cast<int>(std::max<int64_t>(options.max_batch, std::min(kDraftRows, drafted_rows_of(options))));
}

// The step size for `tokens` tokens where steps may be two lanes.
int even_lanes(int tokens) {
  constexpr int kMultiple = 2 * static_cast<int>(kRowsOfLane);
  return tokens < 2 * kHeldToRows ? tokens : std::min<int>((tokens + kMultiple - 1) / kMultiple * kMultiple, kMostRows);
}

// By default every size that a batch may have, padded or not, and past it some for prompts and drafts.
BucketSet buckets_of(const EngineOptions& options) {
  if (!options.buckets.empty()) return BucketSet(options.buckets);
  const BucketSet of_batches =
      options.exact_buckets ? BucketSet::every(options.max_batch) : BucketSet::up_to(options.max_batch);
  const int most_tokens = options.overlap > 1 ? even_lanes(options.step_tokens) : options.step_tokens;
  const auto [fewer, more] = std::minmax({most_tokens, decode_rows_of(options)});
  return of_batches.extended_to(fewer).extended_to(more);
}

// The buckets that steps of at most `most` tokens use: up to the first that holds `most`.
BucketSet up_to(const BucketSet& buckets, int most) {
  std::vector<int> sizes;
  for (const int size : buckets.sizes()) {
    sizes.push_back(size);
    if (size >= most) break;
  }
  return BucketSet(std::move(sizes));
}

// For a batch and, where there is one, for its drafts: no bucket that is larger than both.
BucketSet decode_buckets_of(const EngineOptions& options) {
  const BucketSet buckets = buckets_of(options);
  int most = options.max_batch;
  for (const int size : buckets.sizes())
    if (size <= decode_rows_of(options)) most = std::max(most, size);
  return up_to(buckets, most);
}

int64_t most_sampled_of(const EngineOptions& options) {
  const int64_t drafted = std::min<int64_t>(decode_buckets_of(options).largest(), drafted_rows_of(options));
  return std::max<int64_t>(options.max_batch, drafted);
}

void check_overlap(const EngineOptions& options, const ModelConfig& config) {
  const auto refuse = [&](const char* detail, const char* advice) {
    throw Error({.doing = "use option",
                 .object = "overlap",
                 .detail = fmt::format("it is {}, and {}", options.overlap, detail),
                 .advice = advice,
                 .fault = Fault::usage});
  };
  if (options.overlap == 1) return;
  if (!config.shard.is_part()) refuse("one device has no exchanges to hide", "several devices (--tp), or overlap 1");
  if (options.hidden == HiddenStates::full)
    refuse("hidden states of whole prompts are those of one lane", "overlap 1, or hidden states of the last tokens");
}

}  // namespace

const EngineOptions& checked_options(const EngineOptions& options, const ModelConfig& config) {
  check_option("max batch", options.max_batch, 1, kMostRows);
  check_option("step tokens", options.step_tokens, 0, kMostRows);
  check_option("max context", options.max_context, 1, config.longest_context());
  check_option("pages", options.pages, 0, INT32_MAX);
  check_option("speculate", options.speculate, 0, kMostDrafts);
  check_option("max adapters", options.max_adapters, 0, kMostAdapters);
  check_option("max adapter rank", options.max_adapter_rank, 1, kMostAdapterRank);
  check_option("overlap", options.overlap, 1, static_cast<int64_t>(kLanes));
  check_option("step timeout", options.step_timeout_ms, 0, INT32_MAX);
  for (const int bucket : options.buckets) check_option("buckets", bucket, 1, kMostRows);
  if (!options.buckets.empty() && std::ranges::max(options.buckets) < options.max_batch && !options.allow_eager)
    throw Error({.doing = "use option",
                 .object = "buckets",
                 .detail = fmt::format("the largest is {}, and max batch is {}", std::ranges::max(options.buckets),
                                       options.max_batch),
                 .advice = fmt::format("a bucket of {}, a max batch of {}, or allow eager for steps without a graph",
                                       options.max_batch, std::ranges::max(options.buckets)),
                 .fault = Fault::usage});
  check_overlap(options, config);
  return options;
}

EngineOptions completed_options(EngineOptions options, const ModelConfig& config, const Device& device) {
  checked_options(options, config);
  if (options.step_tokens == 0) {
    const int64_t usual = device.driver().is_cpu() ? kStepTokensOnCpu : kStepTokens;
    options.step_tokens = static_cast<int>(std::min(usual, options.max_batch * options.max_context));
    if (!options.buckets.empty())
      options.step_tokens = std::min(options.step_tokens, std::ranges::max(options.buckets));
  }
  return options;
}

KvPoolOptions pool_options(const EngineOptions& options, const ModelConfig& config, int64_t pages) {
  return {.pages = pages,
          .page_tokens = kPageTokens,
          .sequences = options.max_batch,
          .prefix_cache = options.prefix_cache,
          .window = config.window_of_all(),
          .chunk = options.step_tokens,
          .chunks_follow = options.schedule == Schedule::mixed && options.depth > 1,
          .side_window = config.page_groups() > 1 ? config.window : 0,
          .longest = options.max_context,
          .page_events = options.pages_changed != nullptr};
}

SchedulerOptions scheduling_options(const EngineOptions& options) {
  return {.decode_buckets = decode_buckets_of(options),
          .prefill_buckets = up_to(buckets_of(options), std::max(options.step_tokens, options.max_batch)),
          .schedule = options.schedule,
          .allow_eager = options.allow_eager,
          .most_sampled = most_sampled_of(options),
          .step_tokens = options.step_tokens};
}

StepSlotsOptions slot_options(const EngineOptions& options, const ModelConfig& config) {
  return {.buckets = buckets_of(options),
          .eager_rows = eager_rows_of(options),
          .max_context = options.max_context,
          .sequences = options.max_batch,
          .most_sampled = most_sampled_of(options),
          .pages = pages_of(options, config),
          .window_pages = KvPool(pool_options(options, config, 0)).window_pages().total(),
          .request_pages = pages_of_request(options, config),
          .memory_limit = options.memory_limit,
          .numerics = options.numerics,
          .choices = options.choices,
          .hidden = options.hidden,
          .tuning = options.tuning,
          .mode = options.mode,
          .policy = options.policy,
          .built = options.built,
          .products_from = options.products_from,
          .prefill = options.prefill,
          .adapters = adapter_limits(options.max_adapters, options.max_adapter_rank),
          .lanes = options.overlap,
          .followers = options.followers,
          .least_pages = options.least_pages};
}

int eager_rows_of(const EngineOptions& options) {
  return options.max_batch > buckets_of(options).largest() ? options.max_batch : 0;
}

}  // namespace nodewright
