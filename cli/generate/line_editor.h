// Lines from standard input: from a person at a terminal with editing, a history and pasted texts kept whole (libedit),
// else as they come.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nodewright::cli {

struct LineEditorOptions {
  // Keeps what is typed for later sessions; empty: nowhere.
  std::filesystem::path history;
  // What the last word of the text before the cursor may become. Without it Tab does nothing.
  std::function<std::vector<std::string>(const std::string& before)> completions;
};

struct ReadLine {
  // cleared: Ctrl-C took back what was typed. interrupted: Ctrl-C, and nothing was typed. ended: the input ended, or
  // another signal came.
  enum class End { entered, cleared, interrupted, ended };
  End end = End::ended;
  std::string text;        // without its line break; a pasted text may hold others
  bool is_quoted = false;  // it stood between two lines of """

  bool entered() const { return end == End::entered; }
  bool is_whole() const { return text.find('\n') != std::string::npos; }  // several lines, pasted or recalled
};

class LineEditor {
 public:
  explicit LineEditor(LineEditorOptions options);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool is_terminal() const { return terminal_ != nullptr; }
  // At a terminal `prompt` stands before the line.
  ReadLine read(const std::string& prompt);

  // While it lives, keys do not show on the terminal: they wait for the next read().
  class QuietKeys {
   public:
    explicit QuietKeys(const LineEditor& editor);
    ~QuietKeys();
    QuietKeys(const QuietKeys&) = delete;
    QuietKeys& operator=(const QuietKeys&) = delete;

   private:
    bool quiet_;
  };

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // null: standard input is none
};

}  // namespace nodewright::cli
