#include "cli/generate/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <iostream>
#include <string_view>
#include <utility>

#include "cli/generate/pasted_texts.h"
#include "cli/generate/typed_history.h"
#include "cli/interruption.h"
#include "cli/output/terminal_kind.h"

namespace nodewright::cli {
namespace {

constexpr int kWaitMs = 100;  // a signal that another thread of the process took is seen after this
// Bracketed paste: the terminal puts marks around what is pasted.
constexpr std::string_view kMarkPastes = "\033[?2004h", kMarkNoPastes = "\033[?2004l";
constexpr std::wstring_view kPasteEnds = L"\033[201~";

constexpr char kUnseen = '\1';  // around what takes no column of the prompt

// Bold and green: where a person speaks, and not the model.
std::string in_color(const std::string& prompt) {
  return kUnseen + std::string("\033[1;32m") + kUnseen + prompt.substr(0, prompt.size() - 1) + kUnseen + "\033[0m" +
         kUnseen + prompt.back();
}

volatile std::sig_atomic_t resized = 0, continued = 0;

// What the terminal was like, for the handler of a signal that ends the program.
termios as_it_was{};
// What it is like while keys are quiet, for the handler of SIGCONT: a shell has set it up for itself meanwhile.
termios as_quiet{};
volatile std::sig_atomic_t is_quiet = 0;
int screen = -1;  // where the terminal is written to; -1: no terminal was changed

void restore_terminal() {
  if (screen < 0) return;
  tcsetattr(STDIN_FILENO, TCSANOW, &as_it_was);
  const ssize_t unused = write(screen, kMarkNoPastes.data(), kMarkNoPastes.size());
  (void)unused;
}

// A model writes UTF-8, so a terminal that shows it sends UTF-8, whatever a bare environment says.
void speak_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "en_US.UTF-8");
}

std::string narrow(std::wstring_view text) {
  std::string bytes;
  char part[MB_LEN_MAX];
  std::mbstate_t state{};
  for (const wchar_t c : text)
    if (const size_t size = std::wcrtomb(part, c, &state); size != static_cast<size_t>(-1)) bytes.append(part, size);
  return bytes;
}

std::wstring widen(const std::string& text) {
  std::wstring wide;
  std::mbstate_t state{};
  for (size_t at = 0; at < text.size();) {
    wchar_t c = 0;
    const size_t used = std::mbrtowc(&c, text.data() + at, text.size() - at, &state);
    if (used == 0 || used > text.size()) {
      state = {};
      c = L'\uFFFD';
    }
    wide += c;
    at += used == 0 || used > text.size() ? 1 : used;
  }
  return wide;
}

}  // namespace

struct LineEditor::Terminal {
  EditLine* edit = nullptr;
  History* history = nullptr;
  HistEvent event{};
  std::string prompt;
  LineEditorOptions options;
  TypedHistory typed;
  PastedTexts pasted;
  std::string waiting;  // bytes that were read from the terminal and not given to libedit
  size_t taken = 0;     // of them
  bool interrupted = false, had_text = false, colored = false;
  bool plain = true;

  explicit Terminal(LineEditorOptions given) : options(std::move(given)), typed(options.history) {
    speak_utf8();
    tcgetattr(STDIN_FILENO, &as_it_was);
    std::FILE* shown = isatty(STDOUT_FILENO) != 0 ? stdout : stderr;
    screen = fileno(shown);
    plain = !obeys_escape_codes(screen);
    edit = el_init("nodewright", stdin, shown, stderr);
    history = history_init();
    ::history(history, &event, H_SETSIZE, static_cast<int>(kTypedHistoryEntries));
    ::history(history, &event, H_SETUNIQUE, 1);
    for (const std::string& one : typed.entries()) remember(one);
    el_set(edit, EL_CLIENTDATA, this);
    colored = shows_colors(screen);
    if (colored) {
      el_set(
          edit, EL_PROMPT_ESC, +[](EditLine* of) { return self_of(of).prompt.data(); }, kUnseen);
    } else {
      el_set(
          edit, EL_PROMPT, +[](EditLine* of) { return self_of(of).prompt.data(); });
    }
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_HIST, ::history, history);
    el_set(
        edit, EL_GETCFN, +[](EditLine* of, wchar_t* to) { return self_of(of).read_character(to); });
    bind();
    std::signal(SIGWINCH, [](int) { resized = 1; });
    std::signal(SIGCONT, [](int) {
      continued = 1;
      if (is_quiet != 0 && tcgetpgrp(STDIN_FILENO) == getpgrp()) tcsetattr(STDIN_FILENO, TCSANOW, &as_quiet);
    });
    before_ending_at_once(restore_terminal);
    if (!plain) write_screen(kMarkPastes);
  }
  ~Terminal() {
    if (!plain) write_screen(kMarkNoPastes);
    before_ending_at_once(nullptr);
    screen = -1;
    std::signal(SIGWINCH, SIG_DFL);
    std::signal(SIGCONT, SIG_DFL);
    history_end(history);
    el_end(edit);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static Terminal& self_of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Terminal*>(self);
  }

  void bind() {
    el_set(
        edit, EL_ADDFN, "pasted", "a pasted text", +[](EditLine* of, int) { return self_of(of).paste(); });
    el_set(
        edit, EL_ADDFN, "line-break", "a line break in the text",
        +[](EditLine* of, int) { return self_of(of).insert(L"\n"); });
    el_set(
        edit, EL_ADDFN, "complete-word", "what the word may become",
        +[](EditLine* of, int) { return self_of(of).complete(); });
    el_set(edit, EL_BIND, "\033[200~", "pasted", nullptr);
    el_set(edit, EL_BIND, "\033\r", "line-break", nullptr);
    el_set(edit, EL_BIND, "\033\n", "line-break", nullptr);
    el_set(edit, EL_BIND, "\t", "complete-word", nullptr);
    for (const char* left : {"\033[1;5D", "\033b"}) el_set(edit, EL_BIND, left, "ed-prev-word", nullptr);
    for (const char* right : {"\033[1;5C", "\033f"}) el_set(edit, EL_BIND, right, "em-next-word", nullptr);
    el_set(edit, EL_BIND, "\033[3~", "ed-delete-next-char", nullptr);
    el_set(edit, EL_BIND, "\033[H", "ed-move-to-beg", nullptr);
    el_set(edit, EL_BIND, "\033[1~", "ed-move-to-beg", nullptr);
    el_set(edit, EL_BIND, "\033[F", "ed-move-to-end", nullptr);
    el_set(edit, EL_BIND, "\033[4~", "ed-move-to-end", nullptr);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }

  static void write_screen(std::string_view text) {
    const ssize_t unused = write(screen, text.data(), text.size());
    (void)unused;
  }

  void remember(const std::string& line) { ::history(history, &event, H_ENTER, pasted.shown(line).c_str()); }

  // One character of the input. libedit's own begins anew after a signal, and nobody would hear of it.
  int read_character(wchar_t* character) {
    std::mbstate_t state{};
    for (char byte = 0; next_byte(byte);) {
      const size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;  // more bytes of it follow
      if (used == static_cast<size_t>(-1)) *character = L'?';
      return 1;
    }
    return -1;
  }

  bool next_byte(char& byte) {
    while (taken == waiting.size()) {
      if (cli::interrupted()) return stop();
      pollfd input{STDIN_FILENO, POLLIN, 0};
      const int ready = poll(&input, 1, kWaitMs);
      if (std::exchange(continued, 0) != 0) {  // behind Ctrl-Z: the shell has set the terminal up for itself
        el_set(edit, EL_PREP_TERM, 0);         // or it believes that nothing has changed
        el_set(edit, EL_PREP_TERM, 1);
        if (!plain) write_screen(kMarkPastes);
        el_set(edit, EL_REFRESH);
      }
      if (std::exchange(resized, 0) != 0) {
        el_resize(edit);
        if (!plain) write_screen("\r\033[J");
        el_set(edit, EL_REFRESH);
      }
      if (ready <= 0) {
        if (ready < 0 && errno != EINTR) return false;
        continue;
      }
      char part[4096];
      const ssize_t got = ::read(STDIN_FILENO, part, sizeof part);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      waiting.assign(part, static_cast<size_t>(got));
      taken = 0;
    }
    byte = waiting[taken++];
    return true;
  }

  bool stop() {
    const LineInfoW* line = el_wline(edit);
    interrupted = true;
    had_text = line->lastchar > line->buffer;
    return false;
  }

  unsigned char insert(const std::wstring& text) {
    return el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  unsigned char paste() {
    std::wstring sent;
    for (wchar_t c = 0; !sent.ends_with(kPasteEnds); sent += c)
      if (el_wgetc(edit, &c) != 1) return CC_EOF;
    sent.resize(sent.size() - kPasteEnds.size());
    return insert(widen(pasted.shown(pasted_text(narrow(sent)))));
  }

  unsigned char complete() {
    if (!options.completions) return CC_ERROR;
    const LineInfoW* line = el_wline(edit);
    const std::string before = narrow({line->buffer, static_cast<size_t>(line->cursor - line->buffer)});
    const std::string word = before.substr(before.find_last_of(" \n") + 1);
    const std::vector<std::string> all = options.completions(before);
    if (all.empty()) return CC_ERROR;
    std::string common = all.front();
    for (const std::string& one : all)
      common.resize(static_cast<size_t>(std::ranges::mismatch(common, one).in1 - common.begin()));
    if (all.size() == 1 && !common.ends_with('/')) common += ' ';
    if (common.size() > word.size()) return insert(widen(common.substr(word.size())));
    if (all.size() == 1) return CC_NORM;
    std::string list = "\r\n";
    for (const std::string& one : all) list += one + "  ";
    write_screen(list + "\r\n");
    return CC_REDISPLAY;
  }

  ReadLine read(const std::string& before) {
    prompt = colored ? in_color(before) : before;
    interrupted = false;
    int count = 0;
    const char* read = el_gets(edit, &count);
    if (interrupted) {
      write_screen(plain ? "\r\n" : "\r\n\033[J");
      if (interruption_exit_code() != 128 + SIGINT) return {};
      forget_interruption();
      return {had_text ? ReadLine::End::cleared : ReadLine::End::interrupted, ""};
    }
    if (read == nullptr || count <= 0) return {};
    std::string line(read, static_cast<size_t>(count));
    if (line.ends_with('\n')) line.pop_back();
    line = pasted.whole(std::move(line));
    if (line.find_first_not_of(" \t\n") != std::string::npos) {
      remember(line);
      typed.add(line);
    }
    return {ReadLine::End::entered, std::move(line)};
  }
};

LineEditor::LineEditor(LineEditorOptions options) {
  if (isatty(STDIN_FILENO) != 0 && (isatty(STDOUT_FILENO) != 0 || isatty(STDERR_FILENO) != 0))
    terminal_ = std::make_unique<Terminal>(std::move(options));
}

LineEditor::~LineEditor() = default;

ReadLine LineEditor::read(const std::string& prompt) {
  if (terminal_) return terminal_->read(prompt);
  std::string line;
  if (!std::getline(std::cin, line)) return {};
  if (line.ends_with('\r')) line.pop_back();
  return {ReadLine::End::entered, std::move(line)};
}

LineEditor::QuietKeys::QuietKeys(const LineEditor& editor) : quiet_(editor.is_terminal()) {
  if (!quiet_) return;
  as_quiet = as_it_was;
  as_quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);  // a line of the terminal's own holds 4095 bytes at most
  tcsetattr(STDIN_FILENO, TCSANOW, &as_quiet);
  is_quiet = 1;
}

LineEditor::QuietKeys::~QuietKeys() {
  if (!quiet_) return;
  is_quiet = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &as_it_was);
}

}  // namespace nodewright::cli
