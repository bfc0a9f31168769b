// nodewright graph: the plan of a decode step, as text, DOT or JSON, checked for hazards.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/session.h"
#include "cli/standard_output.h"
#include "graph/graph_dump.h"
#include "graph/hazard_check.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct GraphOptions {
  SessionOptions session;
  std::string format = "text";
  std::filesystem::path out;
};

// Without --max-context a graph is dumped for at most this many tokens, so that it needs no more cache than a look
// takes.
constexpr int64_t kDumpContext = 4096;

std::string dump(const Plan& plan, const std::string& format) {
  if (format == "json") return to_json(plan);
  if (format == "dot") return to_dot(plan);
  return to_text(plan);
}

int graph(const GraphOptions& options) {
  Session session(options.session);
  const auto decoder = session.make_decoder(std::min(session.context_limit(), kDumpContext), 1);
  const Plan& plan = decoder->step_plan();
  for (const MissingOrder& missing : missing_orders(plan))
    throw Error({.doing = "order the nodes of", .object = plan.name, .detail = describe(missing)});
  const std::string text = dump(plan, options.format);
  if (options.out.empty())
    write_standard_output(text);
  else
    write_whole_file(options.out, text);
  return 0;
}

}  // namespace

void add_graph(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<GraphOptions>();
  CLI::App* command = app.add_subcommand("graph", "Show the nodes, edges and buffers of a decode step");
  add_session_options(*command, options->session);
  command->add_option("--format", options->format, "of the dump")
      ->check(CLI::IsMember({"text", "dot", "json"}))
      ->capture_default_str();
  command->add_option("--out", options->out, "file (default: standard output)");
  command->callback([options, &chosen] { chosen = [options] { return graph(*options); }; });
}

}  // namespace nodewright::cli
