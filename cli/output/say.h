// What the program says on stderr. Nothing of it throws, and a stderr that is closed, full or stalled changes nothing
// else. Of the process, as stderr is: any thread may call.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace nodewright::cli {

// As it is, escape codes included: for what draws on a terminal.
void draw(std::string text) noexcept;

// Whole lines, with their line feeds; what would drive a terminal is shown instead (base/visible_text.h).
void say_text(std::string_view text) noexcept;

template <class... Values>
void say(fmt::format_string<Values...> format, Values&&... values) noexcept {
  try {
    say_text(fmt::format(format, std::forward<Values>(values)...));
  } catch (...) {  // no memory for it
  }
}

// From now on a thread writes, and nobody waits for it: for a process that serves. Lines that find no room are dropped
// and counted, and a line says how many.
void say_from_a_thread();
uint64_t lines_dropped() noexcept;
// Before the process ends: gives what is queued a moment to leave (QueuedWriter::kPatience).
void finish_saying() noexcept;

// For main(), first of all: a standard descriptor that is closed is taken by something that refuses what is written, so
// that no file or socket opened later gets its number, and with it our lines.
void hold_standard_descriptors() noexcept;

}  // namespace nodewright::cli
