#include "cli/interruption.h"

#include <csignal>

#include "runtime/error.h"

namespace nodewright::cli {
namespace {

volatile std::sig_atomic_t caught_signal = 0;

}  // namespace

void catch_interruption() {
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    caught_signal = signal;
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
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

void end_if_interrupted() {
  if (interrupted()) throw Error({.doing = "go on", .detail = "it was interrupted"});
}

}  // namespace nodewright::cli
