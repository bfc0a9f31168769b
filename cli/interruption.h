// Ctrl-C and SIGTERM as a flag, for commands that keep what they have and end in order.
#pragma once

namespace nodewright::cli {

// From now on the first SIGINT or SIGTERM makes interrupted() true, and what blocks in a system call returns EINTR. A
// second one ends the program at once.
void catch_interruption();
bool interrupted();
// As a shell tells it of a program that the signal ended: 130 or 143.
int interruption_exit_code();

// It was obeyed, and the program goes on: the next is the first again.
void forget_interruption();

// What the second signal calls before it ends the program, in its handler: a terminal that was set up gets its ways
// back. Null: nothing.
void before_ending_at_once(void (*restore)());

// Catches as long as it lives, where nobody else does: for work that would leave things behind if it were cut short.
class CaughtMeanwhile {
 public:
  CaughtMeanwhile();
  ~CaughtMeanwhile();
  CaughtMeanwhile(const CaughtMeanwhile&) = delete;
  CaughtMeanwhile& operator=(const CaughtMeanwhile&) = delete;

 private:
  bool was_caught_;
};

// Throws Error where interrupted() is true. For progress callbacks of what takes long and keeps nothing.
void end_if_interrupted();

}  // namespace nodewright::cli
