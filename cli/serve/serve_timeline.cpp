#include "cli/serve/serve_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cli/output/say.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

constexpr size_t kHeldBytes = 64 << 10;
constexpr size_t kTimelineQueueBytes = 16 << 20;  // that the disk has not taken yet
constexpr std::chrono::seconds kHeldFor{1};
// Some hours of a busy server; Perfetto's page opens no larger file.
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr int kSteps = 1, kOutputs = 2;  // processes of the timeline

std::string slice(int process, size_t track, std::string_view name, double begin, double end, std::string_view about) {
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":"{}","ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", process,
                     track, name, begin, std::max(end - begin, 0.0), about);
}

}  // namespace

ServeTimeline::ServeTimeline(std::filesystem::path path) : path_(std::move(path)), file_(path_, kTimelineQueueBytes) {
  held_ = "[";
  name("process_name", kSteps, 0, "engine");
  name("thread_name", kSteps, 0, "steps");
  name("process_name", kOutputs, 0, "outputs");
  flush();
  if (!file_.settle() && file_.error() != 0) give_up(std::strerror(file_.error()));
}

void ServeTimeline::add(const StepRecord& step) {
  const double end = us(std::chrono::steady_clock::now());
  const double begin = std::max(last_step_, end - step.us);
  last_step_ = end;
  append(slice(kSteps, 0, fmt::format("{} {}", step.run, step.bucket), begin, end,
               fmt::format(R"("step":{},"bucket":{},"rows":{},"prompt_tokens":{},"decode_rows":{},"drafts":{},)"
                           R"("padding":{},"waiting":{},"admitted":{},"free_pages":{})",
                           step.step, step.bucket, step.rows(), step.prompt_tokens, step.decode_rows, step.drafts,
                           step.padding(), step.waiting, step.admitted, step.free_pages)));
  append(fmt::format(R"({{"ph":"C","pid":{},"name":"outputs","ts":{:.3f},"args":{{"running":{},"waiting":{}}}}})",
                     kSteps, end, step.admitted, step.waiting));
}

void ServeTimeline::add(const EndedOutput& output) {
  const double end = us(output.ended), arrived = us(output.arrived);
  const double admitted = output.admitted ? us(*output.admitted) : end;
  const double first = output.first_token ? us(*output.first_token) : end;
  const size_t lane = lane_for(arrived, end);
  const std::string request = fmt::format(R"("request":{})", output.request);
  append(slice(kOutputs, lane, "queued", arrived, admitted, request));
  if (output.admitted)
    append(slice(kOutputs, lane, "prefill", admitted, first,
                 fmt::format(R"({},"prompt_tokens":{},"cached_tokens":{})", request, output.prompt_tokens,
                             output.found_tokens)));
  if (output.first_token)
    append(slice(kOutputs, lane, "decode", first, end,
                 fmt::format(R"({},"tokens":{},"end":"{}")", request, output.tokens, name_of(output.reason))));
}

// A track whose slices end before `begin`: the lowest, or a new one.
size_t ServeTimeline::lane_for(double begin, double end) {
  const auto free = std::ranges::find_if(lanes_, [begin](double last) { return last <= begin; });
  const auto lane = static_cast<size_t>(free - lanes_.begin());
  if (free == lanes_.end()) {
    lanes_.emplace_back();
    name("thread_name", kOutputs, lane, fmt::format("output {}", lane + 1));
  }
  lanes_[lane] = end;
  return lane;
}

void ServeTimeline::name(std::string_view what, int process, size_t track, std::string_view text) {
  append(
      fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":"{}"}}}})", process, track, what, text));
}

void ServeTimeline::append(std::string event) {
  if (ended_) return;
  held_ += bytes_ + held_.size() > 1 ? ",\n" : "\n";
  held_ += event;
  if (held_.size() >= kHeldBytes || std::chrono::steady_clock::now() - flushed_ >= kHeldFor) flush();
  if (bytes_ >= kMostBytes) give_up("it has 1 GiB");
}

// Whole events leave together, and where the disk stands still they are dropped together: the array stays one.
void ServeTimeline::flush() {
  if (ended_ || held_.empty()) return;
  bytes_ += held_.size();
  file_.add(std::exchange(held_, {}));
  flushed_ = std::chrono::steady_clock::now();
  if (file_.error() != 0) give_up(std::strerror(file_.error()));
}

void ServeTimeline::give_up(const std::string& reason) {
  if (std::exchange(ended_, true)) return;
  say("nodewright: the timeline '{}' ends here: {}; requests go on without it\n", path_.string(), reason);
  file_.add("\n]\n");
}

void ServeTimeline::close() {
  if (!ended_) {
    held_ += "\n]\n";
    flush();
  }
  file_.close();
  if (std::exchange(ended_, true)) return;
  if (file_.error() != 0)
    say("nodewright: the timeline '{}' ends early: {}\n", path_.string(), std::strerror(file_.error()));
  else if (file_.dropped() > 0)
    say("nodewright: the timeline '{}' has gaps: the disk took {} pieces too late\n", path_.string(), file_.dropped());
}

}  // namespace nodewright::cli
