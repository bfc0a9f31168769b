// What a server did when, as a timeline for Perfetto: a slice for each step, and for each output how long it was
// queued, in its prompt, and decoding. The file of `serve --timeline`.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/queued_file.h"
#include "engine/step_record.h"
#include "serve/loop/engine_loop.h"

namespace nodewright::cli {

// JSON in the array form of the Trace Event Format, which needs no end: the file is written event by event, with whole
// ones at any time, and may be opened while the server runs. What is not written yet is at most a second old, and
// kHeldBytes long. Not thread-safe.
class ServeTimeline {
 public:
  // Throws Error with the system's reason.
  explicit ServeTimeline(std::filesystem::path path);
  ~ServeTimeline() { close(); }
  ServeTimeline(const ServeTimeline&) = delete;
  ServeTimeline& operator=(const ServeTimeline&) = delete;

  // A step that has just been committed.
  void add(const StepRecord& step);
  void add(const EndedOutput& output);
  // Ends the list, and the file. What is added afterwards is left out.
  void close();

 private:
  using Time = std::chrono::steady_clock::time_point;

  double us(Time time) const { return std::chrono::duration<double, std::micro>(time - began_).count(); }
  size_t lane_for(double begin, double end);
  void name(std::string_view what, int process, size_t track, std::string_view text);
  void append(std::string event);
  void flush();
  void give_up(const std::string& reason);

  std::filesystem::path path_;
  QueuedFile file_;
  bool ended_ = false;
  const Time began_ = std::chrono::steady_clock::now();
  std::string held_;
  uint64_t bytes_ = 0;
  Time flushed_;
  double last_step_ = 0;       // where its slice ends
  std::vector<double> lanes_;  // of outputs: where the last slice ends
};

}  // namespace nodewright::cli
