// The iteration log of --log: a line of JSON for the engine, then one for each committed step. Written while requests
// are served, read by `nodewright report`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/queued_file.h"
#include "engine/step_record.h"

namespace nodewright::cli {

// What the steps ran on.
struct StepLogHead {
  std::string device, model, date;
  int64_t max_batch = 0, step_tokens = 0;  // requests at once, prompt tokens of a step
  std::vector<int> buckets;                // ascending
  int64_t pages = 0;                       // of the cache
};

class StepLogWriter {
 public:
  // Throws Error where the file cannot be opened.
  explicit StepLogWriter(std::filesystem::path path);
  ~StepLogWriter();
  StepLogWriter(const StepLogWriter&) = delete;
  StepLogWriter& operator=(const StepLogWriter&) = delete;

  // The first waits a moment for the disk, steps do not. A failed write is reported on stderr, serving goes on, and the
  // end counts the lines that are missing.
  void write(const StepLogHead& head);
  void write(const StepRecord& step);

 private:
  void append(std::string line);
  void tell_problem();
  std::string reason() const;

  std::filesystem::path path_;
  QueuedFile file_;
  bool told_ = false;
};

struct StepLog {
  StepLogHead head;
  std::vector<StepRecord> steps;
};

// Throws Error naming the line that cannot be read. A last line without its end, of a process that runs or was killed,
// is left out.
StepLog read_step_log(const std::filesystem::path& path);

}  // namespace nodewright::cli
