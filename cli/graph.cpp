// nodewright graph: the plan of a decode step, as text, DOT, JSON or a page, checked for hazards; or what the driver
// holds once it is built, compared with the plan.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/session.h"
#include "cli/standard_output.h"
#include "graph/graph_dump.h"
#include "graph/graph_exec.h"
#include "graph/hazard_check.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct GraphOptions {
  SessionOptions session;
  std::string format = "text";
  std::filesystem::path out, timings;
  bool full = false, verify = false;
};

// Without --max-context a graph is dumped for at most this many tokens, so that it needs no more cache than a look
// takes.
constexpr int64_t kDumpContext = 4096;

std::string read_timings_file(const std::filesystem::path& path) {
  const auto refuse = [&](const char* detail) {
    throw Error({.doing = "read timings", .object = path.string(), .detail = detail});
  };
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) refuse("it is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

// Tokens that the timed plan was made for; 0 where the file does not say.
int64_t context_of_timings(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("max_context") || !json["max_context"].is_number_unsigned()) return 0;
  return static_cast<int64_t>(std::min(json["max_context"].get<uint64_t>(), uint64_t{1} << 30));
}

std::string dump(const Plan& plan, const GraphOptions& options, const std::string& timings_text) {
  if (options.format == "json") return to_json(plan);
  if (options.format == "dot") return to_dot(plan);
  if (options.format == "text") return to_text(plan, options.full ? Fold::none : Fold::layers);
  std::optional<PlanTimings> timings;
  if (!options.timings.empty()) timings = parse_timings(timings_text, options.timings.string(), plan);
  return to_html(plan, timings ? &*timings : nullptr);
}

void show(const std::string& text, const std::filesystem::path& out) {
  if (out.empty())
    write_standard_output(text);
  else
    write_whole_file(out, text);
}

// Builds the graph and reads it back. The exit code: 1 when the driver holds something else than the plan says.
int verify(const Plan& plan) {
  const ExplicitGraph exec(plan);
  const std::vector<std::string> differences = read_back(exec);
  std::string text;
  for (const std::string& difference : differences) text += difference + "\n";
  if (differences.empty()) text = fmt::format("verified: {} nodes, {} edges\n", plan.nodes.size(), plan.edges.size());
  write_standard_output(text);
  return differences.empty() ? 0 : 1;
}

int graph(const GraphOptions& options) {
  if (!options.timings.empty() && options.format != "html")
    throw Error({.doing = "show timings in",
                 .object = "--format " + options.format,
                 .detail = "only the page shows them",
                 .advice = "--format html",
                 .fault = Fault::usage});
  check_steps(options.session);
  const std::string timings = options.timings.empty() ? "" : read_timings_file(options.timings);
  const int64_t timed_context = context_of_timings(timings);
  Session session(options.session);
  // A timed step has a sequence in every row.
  const int64_t context = options.session.max_context == 0 && timed_context > 0 ? timed_context : kDumpContext;
  const int64_t sequences = options.timings.empty() ? 1 : options.session.bucket;
  const auto decoder = session.make_decoder(std::min(session.context_limit(), context), sequences);
  const Plan& plan = decoder->step_plan();
  if (session.tuning() != nullptr && options.session.tuning == "auto")  // which nobody named
    fmt::print(stderr, "nodewright: tuned: {}\n", session.tuning_words());
  for (const MissingOrder& missing : missing_orders(plan))
    throw Error({.doing = "order the nodes of", .object = plan.name, .detail = describe(missing)});
  if (!options.verify || !options.out.empty()) show(dump(plan, options, timings), options.out);
  return options.verify ? verify(plan) : 0;
}

}  // namespace

void add_graph(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<GraphOptions>();
  CLI::App* command = app.add_subcommand("graph", "Show the nodes, edges and buffers of a decode step");
  add_session_options(*command, options->session);
  add_mode_option(*command, options->session);
  add_bucket_option(*command, options->session);
  add_steps_options(*command, options->session);
  command->add_option("--format", options->format, "of the dump")
      ->check(CLI::IsMember({"text", "dot", "json", "html"}))
      ->capture_default_str();
  command->add_option("--out", options->out, "file (default: standard output)");
  command->add_flag("--full", options->full, "text of every node; without it, layers that are the same are shown once");
  command->add_option("--timings", options->timings, "file of measured node times, for --format html");
  command->add_flag("--verify", options->verify,
                    "build the graph and compare what the driver holds with the plan; dumps only with --out");
  command->callback([options, &chosen] { chosen = [options] { return graph(*options); }; });
}

}  // namespace nodewright::cli
