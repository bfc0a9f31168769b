#include "cli/interruption.h"

#include <csignal>

#include "runtime/error.h"

namespace nodewright::cli {
namespace {

volatile std::sig_atomic_t caught_signal = 0;

void (*volatile restore_at_end)() = nullptr;

void restore_and_end(int signal) {
  if (restore_at_end != nullptr) restore_at_end();
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // it is blocked until this returns
}

void end_at_once_on_signals() {
  const auto end = restore_at_end == nullptr ? SIG_DFL : restore_and_end;
  std::signal(SIGINT, end);
  std::signal(SIGTERM, end);
}

bool is_caught() {
  struct sigaction now {};
  sigaction(SIGINT, nullptr, &now);
  return now.sa_handler != SIG_DFL && now.sa_handler != restore_and_end;
}

}  // namespace

void catch_interruption() {
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    caught_signal = signal;
    end_at_once_on_signals();
  };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return caught_signal != 0; }

int interruption_exit_code() { return 128 + caught_signal; }

void forget_interruption() {
  caught_signal = 0;
  catch_interruption();
}

void before_ending_at_once(void (*restore)()) { restore_at_end = restore; }

CaughtMeanwhile::CaughtMeanwhile() : was_caught_(is_caught() || interrupted()) {
  if (!was_caught_) catch_interruption();
}

CaughtMeanwhile::~CaughtMeanwhile() {
  if (!was_caught_) end_at_once_on_signals();
}

void end_if_interrupted() {
  if (interrupted()) throw Error({.doing = "go on", .detail = "it was interrupted"});
}

}  // namespace nodewright::cli
