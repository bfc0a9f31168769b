// nodewright report: what an iteration log says about buckets, padding and the time of steps.
#include <algorithm>
#include <filesystem>

#include "cli/command.h"
#include "cli/output/output_file.h"
#include "cli/output/standard_output.h"
#include "cli/report/step_plot.h"
#include "cli/report/step_report.h"

namespace nodewright::cli {
namespace {

struct ReportWords {
  std::filesystem::path log, plot;
  int count = 0;
};

int report_command(const ReportWords& words) {
  const StepLog log = read_step_log(words.log);
  const StepReport report = report_of(log, static_cast<size_t>(words.count));
  if (!words.plot.empty()) write_whole_file(words.plot, step_plot(log, report));
  write_standard_output(to_text(report, log.head));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
  auto words = std::make_shared<ReportWords>();
  CLI::App* command = app.add_subcommand("report", "Tell what an iteration log (--log) says about steps and buckets");
  command->add_option("LOG", words->log, "file that --log has written")->required();
  command->add_option("--count", words->count, "number of suggested buckets (default: as many as these steps used)")
      ->check(CLI::Range(1, 1000));
  command->add_option("--plot", words->plot, "SVG file: time, rows and queue of each step, and steps by rows");
  command->callback([words, &chosen] { chosen = [words] { return report_command(*words); }; });
}

}  // namespace nodewright::cli
