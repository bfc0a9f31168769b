// nodewright serve: the engine behind OpenAI's HTTP interface. docs/serving.md.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "base/visible_text.h"
#include "cli/command.h"
#include "cli/options/adapter_options.h"
#include "cli/options/engine_options.h"
#include "cli/options/folders/checkpoint_config.h"
#include "cli/options/option_pairs.h"
#include "cli/options/rank_options.h"
#include "cli/options/refusals.h"
#include "cli/options/request/answer_parsers.h"
#include "cli/options/request/sampling_options.h"
#include "cli/options/request/template_args.h"
#include "cli/options/whole_number.h"
#include "cli/output/say.h"
#include "cli/serve/engine_feeds.h"
#include "cli/serve/origin_words.h"
#include "cli/serve/rank_part.h"
#include "cli/serve/replica_crew.h"
#include "cli/serve/shown_model.h"
#include "cli/serve/shutdown.h"
#include "cli/session.h"
#include "engine/byte_size.h"
#include "engine/engine_report.h"
#include "runtime/compilers/host_compiler.h"
#include "runtime/error.h"
#include "runtime/memory/host_heap.h"
#include "serve/http/sockets/descriptors.h"
#include "serve/server.h"

namespace nodewright::cli {
namespace {

// Where the command line is silent. A cache for all rows at the model's whole context may be larger than the device: on
// a GPU the cache gets what is left of this share, as vLLM's default has it.
constexpr const char* kMemoryShare = "0.9";
constexpr int kRows = 64, kRowsOnCpu = 8;
// Bodies of the largest size that may be held at once. The budget counts bytes: many more small bodies fit.
constexpr size_t kBodiesAtOnce = 4;
// After the last output has ended, for answers that are still on their way.
constexpr std::chrono::seconds kLastBytes{5};
// For calls that are being read: they look every few milliseconds whether they are still wanted.
constexpr std::chrono::seconds kLastJobs{3};
// For folders of compilers that a signal found at work; removing them takes milliseconds.
constexpr std::chrono::seconds kLastFolders{2};

struct ServeOptions {
  SessionOptions session;
  SamplingOptions sampling;  // of requests that do not say
  EngineSettings engine;
  std::optional<int> max_batch;
  ServerOptions server;
  FeedOptions feeds;
  RankOptions ranks;
  std::vector<std::string> names;
  std::optional<std::string> api_key;  // as it was given, empty too
  std::string cors_origin, log_requests = "off";
  int64_t most_open = 4096, shutdown_timeout = 30;
  int64_t body_mib = 32;
  AdapterLoadLimits adapters;
  std::string adapter_memory;
  bool plan_times = false;
  int replicas = 1;
  std::filesystem::path chat_template;  // empty: the checkpoint's
  std::vector<std::string> template_args;
  ParserNames parsers;
};

constexpr size_t kShownMethodBytes = 32, kShownPathBytes = 512;  // of the access log, whose lines shall stay short

// On any thread, the I/O threads among them: it never waits.
void print_access(const AccessLine& line) {
  std::string call;
  if (line.is_call) {
    const Usage& usage = line.counts.usage;
    call = fmt::format(" prompt {} cached {} completion {}", usage.prompt_tokens, usage.cached_tokens.value_or(0),
                       usage.completion_tokens);
  }
  say("{:%FT%TZ} {} {} {} {} {:.1f} ms{} id {}\n", fmt::gmtime(std::time(nullptr)), line.peer,
      log_word(line.method, kShownMethodBytes), log_word(line.path, kShownPathBytes), line.status, line.seconds * 1e3,
      call, line.request_id);
}

// "http://127.0.0.1:8000", or the path of the socket.
std::string address_of(const HttpOptions& http, uint16_t port) {
  if (!http.unix_socket.empty()) return http.unix_socket.string();
  const bool is_v6 = http.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", is_v6 ? "[" : "", http.host, is_v6 ? "]" : "", port);
}

// The key that is demanded; none: anybody may call.
std::optional<std::string> api_key_of(const std::optional<std::string>& option) {
  const char* const variable = std::getenv("NODEWRIGHT_API_KEY");
  if (!option && variable == nullptr) return std::nullopt;
  const std::string key = option ? *option : std::string(variable);
  const auto refuse = [&](const char* detail) {
    throw Error({.doing = "demand the key of",
                 .object = option ? "--api-key" : "the variable NODEWRIGHT_API_KEY",
                 .detail = detail,
                 .advice = option ? "a key, or leave the option out to serve anybody"
                                  : "a key, or unset the variable to serve anybody",
                 .fault = Fault::usage});
  };
  if (key.empty()) refuse("it is empty");
  if (!std::ranges::all_of(key, [](unsigned char c) { return c > ' ' && c < 0x7f; }))
    refuse("it has a blank or a sign that no header can have");
  return key;
}

void fit_to_descriptors(HttpLimits& limits) {
  const size_t descriptors = raise_descriptor_limit();
  const size_t wanted = limits.connections;
  limits = fitted(limits, descriptors, open_descriptors_now());
  if (limits.connections < wanted)
    say("nodewright: {} descriptors leave room for {} connections; `ulimit -Hn` or LimitNOFILE= raises both\n",
        descriptors, limits.connections);
}

// Whether only programs of this machine reach it.
bool is_local(const HttpOptions& http) {
  return !http.unix_socket.empty() || http.host == "localhost" || http.host == "::1" || http.host.starts_with("127.");
}

void check(ServeOptions& options) {
  cli::check(options.sampling);
  template_args_of(options.template_args);
  cli::check(options.feeds, options.engine);
  check_model_folder(options.session.model);
  if (options.replicas > 1 && options.session.trace)
    refuse_pair("--replicas and --trace", "calls of several engines would be told in no order", "--replicas 1");
  if (const std::optional<std::string> key = api_key_of(options.api_key)) options.server.api_keys.push_back(*key);
  if (!options.cors_origin.empty()) options.server.http.cors_origin = options.cors_origin;
  HttpLimits& limits = options.server.http.limits;
  limits.body_bytes = static_cast<size_t>(options.body_mib) << 20;
  limits.bodies_bytes = limits.body_bytes * kBodiesAtOnce;
  fit_to_descriptors(limits);
  if (!options.adapter_memory.empty()) {
    const std::optional<uint64_t> bytes = parse_byte_size(options.adapter_memory);
    if (!bytes || *bytes == 0)
      throw Error({.doing = "use --adapter-memory",
                   .object = options.adapter_memory,
                   .detail = "it is no number of bytes above 0",
                   .advice = "8GB, 8GiB or bytes",
                   .fault = Fault::usage});
    options.adapters.bytes = *bytes;
  }
  if (options.log_requests == "on") options.server.log = print_access;
  options.server.lines_dropped = lines_dropped;
}

// What an engine of several devices does not do.
void check_shared(const ServeOptions& options) {
  const char* const sharing = options.session.stages > 1 ? "pp" : "tp";
  const auto refuse = [&](const char* option, const char* detail) {
    refuse_pair(fmt::format("--{} and {}", sharing, option), detail,
                fmt::format("leave out {}, or --{} 1", option, sharing));
  };
  if (options.session.stages > 1 && options.server.offers_sleep)
    refuse("--enable-sleep", "the stages of a model do not sleep");
  if (options.plan_times) refuse("--plan-times", "a plan of one device is timed by itself, and needs the others");
}

// What ranks in processes of their own do not do.
void check_ranks(const ServeOptions& options) {
  const auto refuse = [](const char* option, const char* detail) {
    refuse_pair(fmt::format("--rank and {}", option), detail,
                fmt::format("leave out {}, or --tp without --rank", option));
  };
  if (options.replicas > 1) refuse("--replicas", "a process with one rank has one engine");
  if (options.server.offers_sleep) refuse("--enable-sleep", "the other processes do not sleep");
  if (options.server.changes_adapters) refuse("--allow-adapter-updates", "other processes hear of no adapters");
  if (options.plan_times) refuse("--plan-times", "a plan of one device is timed by itself, and needs the others");
}

// "--replicas 2", "--tp 2", "--replicas 2 with --tp 2", or "--rank 1".
std::string words_for_devices(const ServeOptions& options, int shared) {
  if (options.session.rank) return fmt::format("--rank {}", *options.session.rank);
  if (shared == 1) return fmt::format("--replicas {}", options.replicas);
  const std::string sharing = sharing_words(options.session, shared);
  return options.replicas == 1 ? sharing : fmt::format("--replicas {} with {}", options.replicas, sharing);
}

// What stands on the command line, else what suits the device.
EngineSettings settings_for(const ServeOptions& options, bool on_cpu) {
  EngineSettings settings = options.engine;
  settings.engine.max_batch = options.max_batch.value_or(on_cpu ? kRowsOnCpu : kRows);
  settings.engine.reserve = Reserve::prompt;
  settings.loads_adapters = options.server.changes_adapters;
  if (!on_cpu && settings.memory_limit.empty() && settings.engine.pages == 0) settings.memory_limit = kMemoryShare;
  return settings;
}

EngineNeeds needs_of(const ServeOptions& options, const ModelConfig& config, bool on_cpu) {
  return {.prompt_tokens = INT32_MAX, .max_context = served_context(options.session, config, on_cpu), .choices = true};
}

ServedModel served_model(const ServeOptions& options, const ModelConfig& config,
                         const std::optional<Tokenizer>& tokenizer) {
  return named({.config = config,
                .tokenizer = tokenizer,
                .folder = options.session.model,
                .names = options.names,
                .defaults = {.model = options.session.model,
                             .sampling = options.sampling,
                             .template_args = template_args_of(options.template_args),
                             .parsers = answer_parsers_of(options.parsers),
                             .chat_template = options.chat_template},
                .created = static_cast<int64_t>(std::time(nullptr))});
}

// A request's "model" is one or the other.
void check_names(const EngineSettings& settings, const ServedModel& model) {
  for (const NamedFolder& adapter : named_folders("--adapter", settings.adapters))
    if (std::ranges::count(model.names, adapter.name) > 0)
      throw Error({.doing = "use --adapter",
                   .object = adapter.name,
                   .detail = "the model is called so",
                   .advice = "another name, or --served-model-name",
                   .fault = Fault::usage});
}

// Unless --adapter-memory says: what leaves half of the machine's memory to everything else.
AdapterLoadLimits adapter_limits_of(const ServeOptions& options, const Engine& engine) {
  AdapterLoadLimits limits = options.adapters;
  limits.bytes_each = engine.adapter_image_bytes();
  if (options.adapter_memory.empty())
    limits.bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
  return limits;
}

// "cpu", or "2 x NVIDIA H100 80GB HBM3".
std::string devices_of(const std::string& one, size_t replicas) {
  return replicas == 1 ? one : fmt::format("{} x {}", replicas, one);
}

// "; open http://127.0.0.1:8000/ in a browser", where one can: a server of all addresses is reached at its own
// machine's.
std::string words_for_browsers(HttpOptions http, uint16_t port) {
  if (!http.unix_socket.empty()) return {};
  if (http.host == "0.0.0.0") http.host = "127.0.0.1";
  if (http.host == "::") http.host = "::1";
  return fmt::format("; open {}/ in a browser", address_of(http, port));
}

void print_ready(const Engine& engine, const ServedModel& model, const std::string& devices, int rows, size_t replicas,
                 const std::string& page) {
  say("{}nodewright: ready: {} on {}, {} rows{}, {} tokens of context{}\n",
      start_report(engine.slots().built(), engine.slots().memory()), model.names.front(), devices, rows,
      replicas == 1 ? "" : " each", model.max_model_len, page);
}

// Takes no more connections, and waits until every answer has left or nobody takes the rest.
void wait_for_answers(Server& server) {
  server.stop_accepting();
  const auto limit = std::chrono::steady_clock::now() + kLastBytes;
  while (server.open_requests() > 0 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// Loads what listens already, and serves it to the end.
int serve_with(const ServeOptions& options, const ModelConfig& config, const DeviceChoice& devices,
               const std::optional<RankMeeting>& meeting, ServedModel model, Replicas& replicas, AllFeeds& feeds,
               Server& server) {
  const bool on_cpu = devices.driver.starts_with("cpu");
  const EngineSettings settings = settings_for(options, on_cpu);
  const int rows = settings.engine.max_batch;
  ReplicaCrew crew(replicas, feeds,
                   {.devices = devices,
                    .session = options.session,
                    .engine = settings,
                    .needs = needs_of(options, config, on_cpu),
                    .offers_sleep = options.server.offers_sleep,
                    .meeting = meeting});
  crew.await_engines();
  Engine& engine = crew.engine(0);
  model.max_model_len = engine.pipeline().options().max_context;
  OpenAiApi api(std::move(model));
  ShownModel shown = shown_model(options.session, crew.session(0), engine, api, rows, options.plan_times);
  shown.card.device = devices_of(shown.card.device, meeting ? meeting->ranks : devices.ordinals.size());
  const std::string shown_devices = shown.card.device;
  replicas.metrics(0).serves(std::move(shown.card));
  api.model().adapters->limit(adapter_limits_of(options, engine));
  for (const LoadedAdapter& one : engine.adapters()) api.model().adapters->add(one.name, one.folder);
  server.serve(api, std::move(shown.plans),
               [&crew](const std::filesystem::path& folder) { return crew.read_adapter(folder); });
  return_freed_memory();
  replicas.accept();
  print_ready(engine, api.model(), shown_devices, rows, replicas.count(),
              words_for_browsers(options.server.http, server.port()));
  const std::vector<std::string> failures = crew.serve();
  wait_for_answers(server);
  if (!failures.empty()) {
    for (const auto& one : feeds) one->close();
    if (replicas.count() == 1) say("nodewright: {}\n", failures.front());
    finish_saying();
    std::_Exit(1);  // a driver that has failed may not free what it has
  }
  if (!server.stop(kLastJobs)) {
    say("nodewright: a call is still being read; the server ends without it\n");
    std::fflush(nullptr);
    std::_Exit(0);  // it uses what would be freed
  }
  return 0;
}

std::function<void(uint16_t)> tell_waiting(const RankMeeting& meeting) {
  return [others = meeting.ranks - 1, host = meeting.host, open = meeting.secret.empty()](uint16_t port) {
    if (open && host != "127.0.0.1" && host != "::1" && host != "localhost")
      say("nodewright: any program that reaches {} can join the ranks; --rendezvous-secret keeps strangers out\n",
          rank_address_text(host, port));
    say("nodewright: waits for {} other rank{} at {}\n", others, others == 1 ? "" : "s", rank_address_text(host, port));
  };
}

int serve(ServeOptions options) {
  std::signal(SIGPIPE, SIG_IGN);
  say_from_a_thread();
  check(options);
  std::optional<Tokenizer> tokenizer;
  if (const auto file = Tokenizer::file_in(options.session.model)) tokenizer.emplace(Tokenizer::from_file(*file));
  const ModelConfig config = read_config(options.session.model, tokenizer);
  check_pairs(options.engine, options.session, config.longest_context());
  check_adapters(options.engine, options.session, config);
  check_chat_template(options.session.model, options.chat_template);
  tell_ignored(config.generation);

  std::optional<RankMeeting> meeting = meeting_of(options.ranks, options.session, options.engine);
  if (meeting) check_ranks(options);
  const int shared = devices_of_model(options.session, options.replicas);
  const DeviceChoice devices =
      choose_devices(options.session.device, options.replicas * shared, words_for_devices(options, shared));
  if (shared > 1) check_shared(options);
  if (meeting && meeting->rank > 0) {
    const bool on_cpu = devices.driver.starts_with("cpu");
    return follow_rank_zero(*meeting, devices, options.session, settings_for(options, on_cpu),
                            needs_of(options, config, on_cpu));
  }
  if (meeting) meeting->listens = tell_waiting(*meeting);
  if (meeting)
    meeting->dropped = [](const std::string& stranger) {
      say("nodewright: dropped at the ranks' port: {}\n", stranger);
    };

  ServedModel model = served_model(options, config, tokenizer);
  check_names(options.engine, model);
  AllFeeds feeds;
  Replicas replicas(model.names.front(),
                    {.count = static_cast<size_t>(options.replicas),
                     .most_open = static_cast<size_t>(options.most_open),
                     .ended = [&feeds](size_t replica, const EndedOutput& output) { feeds[replica]->ended(output); }});
  for (size_t i = 0; i < replicas.count(); ++i)
    feeds.push_back(std::make_unique<EngineFeeds>(options.feeds, replicas, i));
  std::atomic<Server*> listening = nullptr;
  const Shutdown shutdown(
      std::chrono::seconds(options.shutdown_timeout),
      [&] {
        if (replicas.admission() == Admission::loading) {  // nobody was served
          if (Server* server = listening) server->stop(kLastJobs);
          stop_compiling(kLastFolders);
          finish_saying();
          std::_Exit(0);
        }
        say("nodewright: draining {} open outputs\n", replicas.open());
        replicas.drain();  // it goes on listening: new calls get 503; probes see it alive and not ready
      },
      [&] { replicas.abort(); });
  Server server(options.server, replicas);
  listening = &server;
  say("nodewright: {} listens, and loads {}\n", address_of(options.server.http, server.port()),
      options.session.model.string());
  if (options.server.api_keys.empty() && !is_local(options.server.http))
    say("nodewright: anybody who reaches {} may use this server: --api-key or NODEWRIGHT_API_KEY demands a key\n",
        options.server.http.host);
  for (const auto& one : feeds) one->publish(server.port(), model.names.front());
  return serve_with(options, config, devices, meeting, std::move(model), replicas, feeds, server);
}

void add_server_options(CLI::App& command, ServeOptions& options) {
  HttpOptions& http = options.server.http;
  command.add_option("--host", http.host, "name or address to listen at")->capture_default_str();
  command.add_option("--port", http.port, "TCP port to listen at; 0: any that is free")
      ->check(whole_number<uint16_t>)
      ->capture_default_str();
  command.add_option("--uds", http.unix_socket, "path of a Unix socket to listen at instead of --host and --port")
      ->excludes("--host")
      ->excludes("--port");
  command.add_option("--served-model-name", options.names,
                     "names that clients may call the model by; responses carry the first (default: the "
                     "folder's)");
  command.add_option_function<std::string>(
      "--api-key", [&options](const std::string& key) { options.api_key = key; },
      "key that clients must send, as Authorization: Bearer KEY or X-Api-Key: KEY (default: "
      "NODEWRIGHT_API_KEY, or none)");
  command
      .add_option("--cors-origin", options.cors_origin, "the one origin whose pages may call the server, or * for all")
      ->check(why_no_origin);
  command
      .add_option("--allowed-host", options.server.allowed_hosts,
                  "names of this server that clients may use beside addresses, --host and names without a dot: NAME, "
                  ".DOMAIN for all below it, or * for all")
      ->check(why_no_host_name)
      ->allow_extra_args(false);
  command
      .add_option(
          "--replicas,--data-parallel-size", options.replicas,
          "engines behind this server, each on a device of its own: the first ones, or those of --device cuda:0,2")
      ->check(whole_number<int, 1>)
      ->capture_default_str();
  command.add_option("--io-threads", http.io_threads, "threads that read and write")
      ->check(whole_number<int, 1>)
      ->capture_default_str();
  command.add_option("--workers", options.server.workers, "threads that parse and tokenize")
      ->check(whole_number<int, 1>)
      ->capture_default_str();
  command.add_option("--max-requests", options.most_open, "outputs that may run or wait; calls beyond that get 429")
      ->check(whole_number<uint32_t, 1>)
      ->capture_default_str();
  command.add_option("--max-body", options.body_mib, "largest body of a request, in MiB")
      ->check(whole_number<uint16_t, 1>)
      ->capture_default_str();
  command
      .add_option("--shutdown-timeout", options.shutdown_timeout,
                  "seconds that open requests have to end after SIGTERM; then, or at a second one, they "
                  "are cancelled")
      ->check(whole_number<uint16_t>)
      ->capture_default_str();
  command.add_flag("--plan-times", options.plan_times,
                   "time the nodes of the largest decode graph before serving, for its page at /plan");
  command.add_flag("--allow-adapter-updates", options.server.changes_adapters,
                   "POST /v1/load_lora_adapter and /v1/unload_lora_adapter change the adapters while it serves");
  command
      .add_option("--max-loaded-adapters,--max-cpu-loras", options.adapters.adapters,
                  "adapters in host memory, in a slot of the device or not; more are refused")
      ->check(whole_number<uint32_t, 1>)
      ->capture_default_str();
  command.add_option("--adapter-memory", options.adapter_memory,
                     "host memory of all loaded adapters: 8GB, 8GiB or bytes; more are refused (default: half of the "
                     "machine's)");
  command.add_flag("--enable-sleep,--enable-sleep-mode", options.server.offers_sleep,
                   "POST /sleep frees the device's memory until POST /wake_up");
  command.add_option("--access-log", options.log_requests, "a line on stderr for each response")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Serve clients of OpenAI's and vLLM's HTTP interface");
  add_session_options(*command, options->session);
  add_parallel_options(*command, options->session);
  add_rank_options(*command, options->ranks, options->session);
  add_mode_option(*command, options->session);
  command->get_option("--max-context")
      ->description(
          fmt::format("tokens of the longest sequence (default: the model's, at most {}, on the CPU driver {})",
                      kServedContext, kServedContextOnCpu));
  add_server_options(*command, *options);
  add_chat_template(*command, options->chat_template);
  add_template_args(*command, options->template_args);
  add_answer_parsers(*command, options->parsers);
  add_feed_options(*command, options->feeds);
  add_sampling_options(*command, options->sampling);
  command
      ->add_option("--max-batch,--max-num-seqs", options->max_batch,
                   fmt::format("outputs computed at once (default: {}, on the CPU driver {})", kRows, kRowsOnCpu))
      ->check(whole_number<int, 1>);
  add_engine_options(*command, options->engine);
  add_adapter_options(*command, options->engine, options->session);
  command->get_option("--memory-limit")
      ->description(
          fmt::format("most memory of weights, state, graphs and pages: 8GB, 8GiB, bytes, or a share of the device's "
                      "memory; the cache gets what is left (default: {} on a GPU, where --pages is silent)",
                      kMemoryShare));
  command->callback([options, &chosen] { chosen = [options] { return serve(*options); }; });
}

}  // namespace nodewright::cli
