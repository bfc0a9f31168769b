// What the fuzzers of patterns and schemas do with an expression that is accepted: they follow a text through its
// automaton over a small vocabulary. Every call stays within the work and the bytes that text/grammar promises, every
// mask says what the automaton does, and an automaton that is interrupted anywhere comes to the same.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "tests/fuzz/meter.h"
#include "tests/fuzz/script.h"
#include "text/grammar/grammar.h"

namespace nodewright::fuzz {

// Any expression is read and compiled within these units: 400 000 nodes, and 4 000 000 steps that write repetitions
// out.
inline constexpr uint64_t kMostUnitsToCompile = 5'000'000;

// Ends the process unless the message says what was refused, and why.
void check_refusal(const Error& error);

class GrammarWalk {
 public:
  // Throws Error as Grammar does.
  GrammarWalk(const std::string& pattern, Script& script);

  // One token on, of those that may come, by preference one of these bytes. False where none may come. Throws Error
  // where the automaton reaches a limit.
  bool step(std::string_view preferred = {});

  const std::string& text() const { return text_; }
  bool is_complete() const { return whole_.is_complete(state_); }

 private:
  std::vector<uint32_t> checked_mask();
  void check_tokens(const std::vector<uint32_t>& mask);
  void push(int32_t token);
  template <class Call>
  auto metered(const char* what, const Call& call);
  template <class Call>
  auto interrupted(const Call& call);
  void check_bytes() const;

  Meter all_;  // of the automata's lives
  Script& script_;
  Grammar whole_, broken_;  // the second is interrupted
  int32_t state_ = 0, broken_state_ = 0;
  uint64_t units_ = 0;  // of the last call
  std::string text_;
};

}  // namespace nodewright::fuzz
