#include "serve/metrics/serve_metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace nodewright {
namespace {

// vLLM's buckets, with smaller ones where a step takes less than a millisecond.
constexpr std::array kFirstTokenSeconds{0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,   0.25,  0.5,   0.75,
                                        1.0,   2.5,    5.0,   7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
constexpr std::array kTokenSeconds{0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01,
                                   0.025,  0.05,  0.075,  0.1,   0.15,  0.2,   0.3,   0.4,    0.5,
                                   0.75,   1.0,   2.5,    5.0,   7.5,   10.0,  20.0,  40.0,   80.0};
constexpr std::array kDeliverySeconds{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.1, 1.0};
constexpr std::array kRequestSeconds{0.01, 0.03, 0.1,  0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,   5.0,    10.0,
                                     15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
constexpr std::array kTokens{1.0,   2.0,    5.0,    10.0,   20.0,    50.0,    100.0,   200.0,
                             500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0};
constexpr std::array kRowsOfStep{1.0,   2.0,   4.0,    8.0,    16.0,   32.0,   64.0,   128.0,
                                 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0};

double number(auto value) { return static_cast<double>(value); }

}  // namespace

ServeMetrics::ServeMetrics(std::string model_name, int engine)
    : model_name_(std::move(model_name)),
      engine_(engine),
      first_token_(kFirstTokenSeconds),
      between_tokens_(kTokenSeconds),
      per_token_(kTokenSeconds),
      whole_(kRequestSeconds),
      queued_(kRequestSeconds),
      prefill_(kRequestSeconds),
      decode_(kRequestSeconds),
      inference_(kRequestSeconds),
      prompt_tokens_(kTokens),
      generation_tokens_(kTokens),
      step_tokens_(kRowsOfStep),
      step_seconds_(kTokenSeconds),
      delivery_(kDeliverySeconds) {
  for (const char* word : {"stop", "length", "abort", "error"}) ends_[word] = 0;
}

void ServeMetrics::first_token(double seconds_since_arrival) {
  const std::lock_guard lock(mutex_);
  first_token_.observe(seconds_since_arrival);
  recent_first_.add(seconds_since_arrival);
}

void ServeMetrics::more_tokens(double seconds_since_the_last, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  between_tokens_.observe(seconds_since_the_last / number(tokens), tokens);
  recent_between_.add(seconds_since_the_last / number(tokens), tokens);
}

void ServeMetrics::ended(EndReason reason, const OutputTimes& times) {
  const std::lock_guard lock(mutex_);
  ++ends_.find(finish_word(reason, "abort", "error"))->second;
  whole_.observe(times.whole);
  if (times.queued >= 0) queued_.observe(times.queued);
  if (times.prefill >= 0) prefill_.observe(times.prefill);
  if (times.decode >= 0) {
    decode_.observe(times.decode);
    inference_.observe(times.decode + std::max(times.prefill, 0.0));
    if (times.tokens > 1) per_token_.observe(times.decode / number(times.tokens - 1));
  }
  prompt_tokens_.observe(number(times.prompt_tokens));
  generation_tokens_.observe(number(times.tokens));
}

void ServeMetrics::refused() {
  const std::lock_guard lock(mutex_);
  ++refused_;
}

void ServeMetrics::stepped(const StepRecord& step) {
  const std::lock_guard lock(mutex_);
  step_tokens_.observe(number(step.rows()));
  step_seconds_.observe(step.us / 1e6);
}

void ServeMetrics::published(bool taken) {
  const std::lock_guard lock(mutex_);
  ++(taken ? kv_batches_ : dropped_kv_batches_);
}

void ServeMetrics::see(const Engine& engine) {
  Seen seen;
  const PipelineState& pipeline = engine.pipeline();
  const KvPool& pool = pipeline.pool();
  seen.stats = engine.stats();
  seen.pool = pool.stats();
  seen.running = std::ssize(pipeline.admitted());
  seen.waiting = std::ssize(pipeline.waiting());
  seen.preemptions = pipeline.preemptions();
  seen.owned_pages = pool.owned_pages();
  seen.cached_pages = pool.cached_pages();
  seen.pages = pool.free_pages() + seen.owned_pages + seen.cached_pages;
  seen.page_tokens = pool.page_tokens();
  seen.cache_is_fp8 = engine.slots().config_of(0).cache == CacheFormat::fp8;
  const BuiltGraphs& built = engine.slots().built();
  seen.graph_build_ms = built.ms + built.choice_ms;
  seen.graphs = std::ssize(built.graphs);
  seen.memory = engine.slots().memory();
  seen.at = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  seen.max_adapters = engine.most_adapters();
  if (seen.max_adapters > 0) {
    const auto names_of = [&](const auto& ids) {
      std::set<std::string> names;
      for (const RequestId id : ids)
        if (const std::string& name = pipeline.find(id)->spec().adapter; !name.empty()) names.insert(name);
      return names;
    };
    seen.running_adapters = names_of(pipeline.admitted());
    seen.waiting_adapters = names_of(pipeline.waiting());
  }
  const std::lock_guard lock(mutex_);
  seen_ = std::move(seen);
}

void ServeMetrics::slept(SleepLevel level) {
  const std::lock_guard lock(mutex_);
  sleep_level_ = level;
}

void ServeMetrics::delivered(double seconds) {
  const std::lock_guard lock(mutex_);
  delivery_.observe(seconds);
}

void ServeMetrics::answered(int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[status];
}

void ServeMetrics::serves(ModelCard card) {
  const std::lock_guard lock(mutex_);
  card_ = std::move(card);
}

void ServeMetrics::queued(int64_t outputs) {
  const std::lock_guard lock(mutex_);
  before_all_ = outputs;
}

std::string ServeMetrics::text() const {
  MetricText out({{"model_name", model_name_}, {"engine", std::to_string(engine_)}});
  const std::lock_guard lock(mutex_);
  add_engine(out);
  add_requests(out);
  add_graphs(out);
  return out.text();
}

void ServeMetrics::add_engine(MetricText& out) const {
  out.gauge("vllm:num_requests_running", "Outputs that the engine is computing", number(seen_.running));
  out.gauge("vllm:num_requests_waiting", "Outputs that wait for a place",
            number(seen_.waiting + before_all_.value_or(0)));
  if (before_all_)
    out.gauge("nodewright_requests_queued", "Of those, outputs that wait before all engines", number(*before_all_));
  const double usage = seen_.pages == 0 ? 0 : number(seen_.owned_pages) / number(seen_.pages);
  out.gauge("vllm:kv_cache_usage_perc", "Share of the pages that requests own; 1 is all", usage);
  out.gauge("vllm:cache_config_info", "Tokens of a page, pages, and what keys and values are kept in", 1,
            {{"block_size", std::to_string(seen_.page_tokens)},
             {"num_gpu_blocks", std::to_string(seen_.pages)},
             {"cache_dtype", seen_.cache_is_fp8 ? "fp8" : "auto"}});  // vLLM's words
  const std::pair<const char*, SleepLevel> states[] = {{"awake", SleepLevel::awake},
                                                       {"weights_offloaded", SleepLevel::weights_on_host},
                                                       {"discard_all", SleepLevel::weights_dropped}};
  for (const auto& [state, level] : states)
    out.gauge("vllm:engine_sleep_state", "1 for the state that the engine is in", sleep_level_ == level ? 1 : 0,
              {{"sleep_state", state}});
  if (seen_.max_adapters > 0)
    out.gauge("vllm:lora_requests_info", "When the adapters of running and waiting requests were seen, Unix seconds",
              seen_.at,
              {{"max_lora", std::to_string(seen_.max_adapters)},
               {"running_lora_adapters", fmt::format("{}", fmt::join(seen_.running_adapters, ","))},
               {"waiting_lora_adapters", fmt::format("{}", fmt::join(seen_.waiting_adapters, ","))}});
  out.counter("vllm:prompt_tokens_total", "Prompt tokens that went through the layers",
              number(seen_.stats.prompt_tokens));
  out.counter("vllm:generation_tokens_total", "Tokens that were generated", number(seen_.stats.output_tokens));
  out.counter("vllm:prefix_cache_queries_total", "Prompt tokens that were looked for in the prefix cache",
              number(seen_.pool.prompt_tokens));
  out.counter("vllm:prefix_cache_hits_total", "Prompt tokens that were found there", number(seen_.pool.found_tokens));
  out.counter("vllm:num_preemptions_total", "Requests that lost their pages and were computed anew",
              number(seen_.preemptions));
  out.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens that were guessed", number(seen_.stats.drafted));
  out.counter("vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right",
              number(seen_.stats.accepted_drafts));
}

void ServeMetrics::add_requests(MetricText& out) const {
  for (const auto& [word, count] : ends_)
    out.counter("vllm:request_success_total", "Outputs that ended, by reason", number(count),
                {{"finished_reason", word}});
  out.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token", first_token_);
  out.histogram("vllm:inter_token_latency_seconds", "Between two tokens of an output", between_tokens_);
  out.histogram("vllm:request_time_per_output_token_seconds", "Mean time between the tokens of an output", per_token_);
  out.histogram("vllm:e2e_request_latency_seconds", "From arrival to the end", whole_);
  out.histogram("vllm:request_queue_time_seconds", "From arrival to admission", queued_);
  out.histogram("vllm:request_prefill_time_seconds", "From admission to the first token", prefill_);
  out.histogram("vllm:request_decode_time_seconds", "From the first token to the last", decode_);
  out.histogram("vllm:request_inference_time_seconds", "From admission to the last token", inference_);
  out.histogram("vllm:request_prompt_tokens", "Tokens of a prompt", prompt_tokens_);
  out.histogram("vllm:request_generation_tokens", "Tokens of an output", generation_tokens_);
  out.histogram("vllm:iteration_tokens_total", "Tokens of a step", step_tokens_);
  out.counter("nodewright_requests_refused_total", "Outputs that the engine did not take", number(refused_));
  for (const auto& [status, count] : answers_)
    out.counter("nodewright_http_answers_total", "Answers by HTTP status", number(count),
                {{"status", std::to_string(status)}});
}

void ServeMetrics::add_graphs(MetricText& out) const {
  const auto labels = [](const std::pair<int, RunMode>& bucket) -> MetricLabels {
    return {{"bucket", std::to_string(bucket.first)}, {"form", std::string(to_string(bucket.second))}};
  };
  for (const auto& [bucket, use] : seen_.stats.buckets)
    out.counter("nodewright_graph_launches_total", "Steps, by rows of the graph and how it was run", number(use.steps),
                labels(bucket));
  for (const auto& [bucket, use] : seen_.stats.buckets)
    out.counter("nodewright_graph_rows_total", "Rows of those steps that counted", number(use.rows), labels(bucket));
  out.counter("nodewright_graph_padded_rows_total", "Rows that were computed for nobody",
              number(seen_.stats.padded_rows));
  for (const auto& [reason, steps] : seen_.stats.fallbacks)
    out.counter("nodewright_graph_fallbacks_total", "Steps without a graph, by reason", number(steps),
                {{"reason", reason}});
  out.gauge("nodewright_graph_count", "Graphs that were built", number(seen_.graphs));
  out.gauge("nodewright_graph_build_seconds", "Time that building them took", seen_.graph_build_ms / 1e3);
  out.gauge("nodewright_graph_memory_bytes", "Device memory of the graphs, estimated", number(seen_.memory.graphs));
  out.gauge("nodewright_memory_bytes", "Device memory, by use", number(seen_.memory.weights), {{"use", "weights"}});
  out.gauge("nodewright_memory_bytes", "", number(seen_.memory.pages), {{"use", "kv_pages"}});
  out.gauge("nodewright_memory_bytes", "", number(seen_.memory.state), {{"use", "state"}});
  if (seen_.memory.adapters > 0)
    out.gauge("nodewright_memory_bytes", "", number(seen_.memory.adapters), {{"use", "adapters"}});
  out.histogram("nodewright_step_seconds", "From a step's launch, or the end of the one before, to its tokens",
                step_seconds_);
  out.histogram("nodewright_delivery_seconds", "From a step's tokens until their events wait for their sockets",
                delivery_);
  out.gauge("nodewright_cached_pages", "Pages that nobody owns and a prompt may find", number(seen_.cached_pages));
  out.counter("nodewright_kv_event_batches_total", "Batches of KV events that were handed to their publisher",
              number(kv_batches_));
  out.counter("nodewright_kv_event_batches_dropped_total", "Batches of KV events that it had no room for",
              number(dropped_kv_batches_));
  out.counter("nodewright_idle_gaps_total", "Times that the device waited for the host with requests to serve",
              number(seen_.stats.idle_gaps));
  out.counter("nodewright_idle_seconds_total", "Time of those waits", seen_.stats.idle_ms / 1e3);
}

}  // namespace nodewright
