#include "cli/generate/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cwchar>
#include <iostream>

namespace nodewright::cli {
namespace {

constexpr int kRemembered = 1000;  // lines

// One character of the input. libedit's own begins anew after a signal, and nobody would hear of it.
int read_character(EditLine* edit, wchar_t* character) {
  std::FILE* input = nullptr;
  el_get(edit, EL_GETFP, 0, &input);
  std::mbstate_t state{};
  for (char byte = 0; read(fileno(input), &byte, 1) == 1;) {
    const size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // more bytes of it follow
    if (used == static_cast<size_t>(-1)) *character = L'?';
    return 1;
  }
  return -1;
}

}  // namespace

struct LineEditor::Terminal {
  EditLine* edit = nullptr;
  History* history = nullptr;
  HistEvent event{};
  std::string prompt;

  Terminal() {
    std::setlocale(LC_CTYPE, "");  // what a byte of the terminal means
    edit = el_init("nodewright", stdin, stdout, stderr);
    history = history_init();
    ::history(history, &event, H_SETSIZE, kRemembered);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(edit, EL_CLIENTDATA, this);
    el_set(
        edit, EL_PROMPT, +[](EditLine* of) {
          void* self = nullptr;
          el_get(of, EL_CLIENTDATA, &self);
          return static_cast<Terminal*>(self)->prompt.data();
        });
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_HIST, ::history, history);
    el_set(edit, EL_GETCFN, read_character);
  }
  ~Terminal() {
    history_end(history);
    el_end(edit);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
};

LineEditor::LineEditor() {
  if (isatty(STDIN_FILENO) != 0) terminal_ = std::make_unique<Terminal>();
}

LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  std::string line;
  if (terminal_) {
    terminal_->prompt = prompt;
    int count = 0;
    const char* read = el_gets(terminal_->edit, &count);
    if (read == nullptr || count <= 0) return std::nullopt;
    line.assign(read, static_cast<size_t>(count));
    if (line.find_first_not_of(" \t\n") != std::string::npos)
      ::history(terminal_->history, &terminal_->event, H_ENTER, line.c_str());
    if (line.ends_with('\n')) line.pop_back();
  } else if (!std::getline(std::cin, line)) {
    return std::nullopt;
  }
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace nodewright::cli
