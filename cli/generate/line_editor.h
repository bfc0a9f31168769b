// Lines from standard input: from a person at a terminal with editing and a history (libedit), else as they come.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace nodewright::cli {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool is_terminal() const { return terminal_ != nullptr; }
  // Without its line break. Nothing at the end of the input, and after a signal. At a terminal `prompt` stands before
  // it.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // null: standard input is none
};

}  // namespace nodewright::cli
