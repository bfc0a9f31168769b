// nodewright graph: the plan of a decode step, as text, DOT, JSON or a page, checked for hazards; what the driver holds
// once it is built, compared with the plan; two plans compared with each other; or the dump of a plan.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/file_to_read.h"
#include "cli/command.h"
#include "cli/options/refusals.h"
#include "cli/output/output_file.h"
#include "cli/output/say.h"
#include "cli/output/standard_output.h"
#include "cli/session.h"
#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_diff.h"
#include "graph/graph_exec.h"
#include "graph/hazard_check.h"
#include "graph/read/read_graph.h"
#include "graph/run/captured_run.h"
#include "models/lowering/decoder_kernels.h"
#include "models/network/network.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct GraphOptions {
  SessionOptions session;
  std::string format = "text";
  std::filesystem::path out, timings;
  std::vector<std::filesystem::path> diff;  // none, or two dumps
  std::filesystem::path read;               // a dump, or none
  std::string commit;
  bool full = false, verify = false, why = false;
};

// Without --max-context a graph is dumped for at most this many tokens, so that it needs no more cache than a look
// takes.
constexpr int64_t kDumpContext = 4096;

std::string read_file(const char* doing, const std::filesystem::path& path) {
  constexpr uint64_t kLongestDump = uint64_t{1} << 30;  // bytes
  return read_whole_file(path, kLongestDump, {.doing = doing, .takes_pipes = true, .fault = Fault::usage});
}

// What `bench nodes` says of the times in its file beside them.
struct TimedBy {
  int64_t context = 0;  // tokens that the timed plan was made for; 0 where the file does not say
  std::string commit, gpu, date;
};

TimedBy timed_by(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  TimedBy by;
  if (!json.is_object()) return by;
  if (json.contains("max_context") && json["max_context"].is_number_unsigned())
    by.context = static_cast<int64_t>(std::min(json["max_context"].get<uint64_t>(), uint64_t{1} << 30));
  const auto text_of = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
  };
  by.commit = text_of("commit");
  by.gpu = text_of("gpu");
  by.date = text_of("date");
  return by;
}

// The head of a page, and of a comparison.
PlanFacts facts_of(const GraphOptions& options, const Session& session, int64_t context, const TimedBy& timed) {
  const std::filesystem::path folder = std::filesystem::absolute(options.session.model).lexically_normal();
  PlanFacts facts = {{"model", (folder.has_filename() ? folder : folder.parent_path()).filename().string()},
                     {"context", std::to_string(context)},
                     {"edges", options.session.mode == "captured" ? "as captured" : options.session.edges},
                     {"numerics", options.session.numerics},
                     {"tuning", session.tuning_words()}};
  if (options.session.steps.most > 1) facts.push_back({"steps a launch", std::to_string(options.session.steps.most)});
  if (!options.commit.empty()) facts.push_back({"commit", options.commit});
  const std::string timed_on = timed.gpu + (timed.date.empty() ? "" : ", " + timed.date);
  if (!timed_on.empty()) facts.push_back({"timed on", timed_on});
  if (!timed.commit.empty() && timed.commit != "unknown") facts.push_back({"timed at commit", timed.commit});
  return facts;
}

std::string dump(const Plan& plan, const GraphOptions& options, const std::string& timings_text,
                 const PlanFacts& facts) {
  if (options.format == "dot") return to_dot(plan);
  if (options.format == "text") return to_text(plan, options.full ? Fold::none : Fold::layers);
  std::optional<PlanTimings> timings;
  if (!options.timings.empty()) timings = parse_timings(timings_text, options.timings.string(), plan);
  const PlanTimings* given = timings ? &*timings : nullptr;
  return options.format == "json" ? to_json(plan, given, facts) : to_html(plan, given, facts);
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

// The exit code of --diff: 1 when the plans differ.
int diff(const GraphOptions& options) {
  const auto name = [](const std::filesystem::path& path) { return path.string(); };
  if (options.format == "dot")
    throw Error({.doing = "compare plans in",
                 .object = "--format dot",
                 .detail = "a drawing has no form for it",
                 .advice = "--format text, json or html",
                 .fault = Fault::usage});
  const std::string before_text = read_file("compare the plan in", options.diff[0]),
                    after_text = read_file("compare the plan in", options.diff[1]);
  const DumpText before{before_text, name(options.diff[0])}, after{after_text, name(options.diff[1])};
  const PlanDiff found = diff_plans(before, after);
  show(options.format == "html"   ? to_html(before, after)
       : options.format == "json" ? to_json(found)
                                  : to_text(found, options.full),
       options.out);
  return found.equal() ? 0 : 1;
}

// Shows a dump again; its text ends with the orders that are missing.
int read(const GraphOptions& options) {
  const std::string text = read_file("read the plan in", options.read);
  const DumpText dump{text, options.read.string()};
  if (options.format == "html") {
    show(to_html(dump), options.out);
    return 0;
  }
  const Plan plan = plan_of(dump);
  show(options.format == "json"  ? text
       : options.format == "dot" ? to_dot(plan)
                                 : to_text(plan, options.full ? Fold::none : Fold::layers) + order_report(plan),
       options.out);
  return 0;
}

int graph(const GraphOptions& options) {
  if (!options.diff.empty()) return diff(options);
  const bool shows_timings = options.format == "html" || options.format == "json";
  if (!options.timings.empty() && !shows_timings)
    throw Error({.doing = "show timings in",
                 .object = "--format " + options.format,
                 .detail = "only the page and JSON have them",
                 .advice = "--format html, or --format json",
                 .fault = Fault::usage});
  const auto refuse = [&](const char* option, const char* who_has_it) {
    refuse_pair(fmt::format("{} and --format {}", option, options.format), fmt::format("{} has it", who_has_it),
                fmt::format("leave out {}", option));
  };
  if (!options.commit.empty() && !shows_timings) refuse("--commit", "only a page or JSON");
  if (options.full && options.format != "text")
    refuse("--full", "only text, which shows layers that are the same once,");
  if (!options.read.empty()) return read(options);
  check_steps(options.session);
  const std::string timings = options.timings.empty() ? "" : read_file("read timings", options.timings);
  const TimedBy timed = timed_by(timings);
  Session session(options.session);
  // A timed step has a sequence in every row.
  const int64_t wanted = options.session.max_context == 0 && timed.context > 0 ? timed.context : kDumpContext;
  DirectStepsOptions direct = session.direct_steps(std::min(session.context_limit(), wanted));
  direct.slots.sequences = options.timings.empty() ? 1 : options.session.bucket;
  const DirectSteps steps(session.places().front(), direct);
  if (options.why) {
    const ModelConfig& config = session.config();
    show(to_text(network_of(config)) + "\n" + lowering_text(session.kernels(), config, steps.shape()), options.out);
    return 0;
  }
  const Plan& plan = steps.plan();
  if (session.tuning() != nullptr && options.session.tuning == "auto")  // which nobody named
    say("nodewright: tuned: {}\n", session.tuning_words());
  for (const MissingOrder& missing : missing_orders(plan))
    throw Error({.doing = "order the nodes of", .object = plan.name, .detail = describe(missing)});
  const PlanFacts facts = facts_of(options, session, direct.slots.max_context, timed);
  if (!options.verify || !options.out.empty()) {
    const bool captured = options.session.mode == "captured";
    show(dump(captured ? plan_as_captured(plan, session.stream()) : plan, options, timings, facts), options.out);
  }
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
  command->add_option("--format", options->format, "format of the dump")
      ->check(CLI::IsMember({"text", "dot", "json", "html"}))
      ->capture_default_str();
  command->add_option("--out", options->out, "file (default: standard output)");
  command->add_flag("--full", options->full, "text of every node; without it, layers that are the same are shown once");
  command
      ->add_flag("--why", options->why,
                 "instead of the plan: the network's operations, the kernel that each gets in a step of --bucket "
                 "rows, and why others do not fit")
      ->excludes("--format")
      ->excludes("--full");
  command->add_option("--timings", options->timings, "file of measured node times, for --format html and json")
      ->excludes("--why");
  command->add_option("--commit", options->commit, "what a dump of --format html or json calls the program's commit")
      ->excludes("--why");
  command
      ->add_flag("--verify", options->verify,
                 "build the graph and compare what the driver holds with the plan; dumps only with --out")
      ->excludes("--why");
  CLI::Option* model = command->get_option("--model")->required(false);
  command->add_option("--diff", options->diff, "compare two files of --format json instead; exit code 1: they differ")
      ->type_name("FILE FILE")
      ->expected(2)
      ->excludes(model)
      ->excludes("--verify")
      ->excludes("--why")
      ->excludes("--commit")
      ->excludes("--timings");
  command->add_option("--read", options->read, "show a file of --format json again, such as one of read_graph")
      ->type_name("FILE")
      ->excludes(model)
      ->excludes("--diff")
      ->excludes("--verify")
      ->excludes("--why")
      ->excludes("--commit")
      ->excludes("--timings");
  command->callback([options, model, &chosen] {
    if (options->diff.empty() && options->read.empty() && model->empty()) throw CLI::RequiredError("--model");
    chosen = [options] { return graph(*options); };
  });
}

}  // namespace nodewright::cli
