#include "cli/report/step_log.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/file_to_read.h"
#include "cli/output/say.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

using StepJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kRuns = {"graph", "captured", "piecewise", "eager"};
constexpr size_t kStepLogBytes = 8 << 20;  // 40 000 steps that the disk has not taken yet

// By hand: the parser's own writer takes twenty times as long, and this happens between steps.
std::string line_of(const StepRecord& step) {
  std::string line = fmt::format(
      R"({{"step":{},"prompt_tokens":{},"decode_rows":{},"bucket":{},"padding":{},"run":"{}","us":{:.1f},"waiting":{},)"
      R"("admitted":{},"free_pages":{})",
      step.step, step.prompt_tokens, step.decode_rows, step.bucket, step.padding(), step.run, step.us, step.waiting,
      step.admitted, step.free_pages);
  if (!step.reason.empty()) line += fmt::format(R"(,"reason":"{}")", step.reason);  // holds no quotes
  if (step.drafts > 0) line += fmt::format(R"(,"drafts":{})", step.drafts);
  if (step.chosen_again > 0) line += fmt::format(R"(,"chosen_again":{})", step.chosen_again);
  return line + "}\n";
}

StepLogHead head_of(const StepJson& json) {
  return {.device = json.at("device").get<std::string>(),
          .model = json.at("model").get<std::string>(),
          .date = json.at("date").get<std::string>(),
          .max_batch = json.at("max_batch").get<int64_t>(),
          .step_tokens = json.at("step_tokens").get<int64_t>(),
          .buckets = json.at("buckets").get<std::vector<int>>(),
          .pages = json.at("pages").get<int64_t>()};
}

// Throws std::exception.
StepRecord step_of(const StepJson& json) {
  const auto run = json.at("run").get<std::string>();
  const auto known = std::ranges::find(kRuns, run);
  if (known == kRuns.end()) throw std::invalid_argument(fmt::format("'{}' is no way to run a step", run));
  StepRecord step{.step = json.at("step").get<uint64_t>(),
                  .prompt_tokens = json.at("prompt_tokens").get<int64_t>(),
                  .decode_rows = json.at("decode_rows").get<int64_t>(),
                  .drafts = json.value("drafts", int64_t{0}),
                  .chosen_again = json.value("chosen_again", int64_t{0}),
                  .bucket = json.at("bucket").get<int64_t>(),
                  .run = *known,
                  .reason = json.value("reason", std::string()),
                  .us = json.at("us").get<double>(),
                  .waiting = json.at("waiting").get<int64_t>(),
                  .admitted = json.at("admitted").get<int64_t>(),
                  .free_pages = json.at("free_pages").get<int64_t>()};
  if (step.rows() < 1 || step.prompt_tokens < 0 || step.decode_rows < 0 || step.padding() < 0 || !(step.us >= 0))
    throw std::invalid_argument("its numbers contradict each other");
  return step;
}

}  // namespace

StepLogWriter::StepLogWriter(std::filesystem::path path) : path_(std::move(path)), file_(path_, kStepLogBytes) {}

StepLogWriter::~StepLogWriter() {
  file_.close();
  if (file_.dropped() > 0)
    say("nodewright: {} line{} missing in the log '{}': {}\n", file_.dropped(), file_.dropped() == 1 ? " is" : "s are",
        path_.string(), reason());
}

void StepLogWriter::write(const StepLogHead& head) {
  append(StepJson{{"log", "nodewright steps"},
                  {"device", head.device},
                  {"model", head.model},
                  {"date", head.date},
                  {"max_batch", head.max_batch},
                  {"step_tokens", head.step_tokens},
                  {"buckets", head.buckets},
                  {"pages", head.pages}}
             .dump() +
         "\n");
  if (!file_.settle()) tell_problem();
}

void StepLogWriter::write(const StepRecord& step) { append(line_of(step)); }

void StepLogWriter::append(std::string line) {
  file_.add(std::move(line));  // counted where it is dropped
  if (file_.error() != 0) tell_problem();
}

std::string StepLogWriter::reason() const {
  return file_.error() != 0 ? std::strerror(file_.error()) : "it takes lines too slowly";
}

void StepLogWriter::tell_problem() {
  if (file_.dropped() == 0 || std::exchange(told_, true)) return;
  say("nodewright: cannot write the log '{}': {}; requests go on without it\n", path_.string(), reason());
}

static constexpr uint64_t kLongestLog = uint64_t{1} << 30;  // bytes; a step has 200

StepLog read_step_log(const std::filesystem::path& path) {
  const auto fail = [&](const std::string& detail) {
    throw Error(
        {.doing = "read", .object = path.string(), .detail = detail, .advice = "a file that --log has written"});
  };
  const std::string text = read_whole_file(path, kLongestLog, {.doing = "read", .takes_pipes = true});
  StepLog log;
  int number = 0;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    ++number;
    try {
      const StepJson json = StepJson::parse(line, nullptr, false);
      if (!json.is_object()) throw std::invalid_argument("it is no JSON object");
      if (number == 1)
        log.head = head_of(json);
      else
        log.steps.push_back(step_of(json));
    } catch (const std::exception& error) {
      const std::string_view words = error.what();  // after the parser's own "[json.exception.type_error.302] "
      const size_t begin_of_words = words.starts_with('[') ? words.find("] ") + 2 : 0;
      fail(fmt::format("line {}: {}", number, words.substr(begin_of_words)));
    }
  }
  if (number == 0) fail("it has no line");
  return log;
}

}  // namespace nodewright::cli
