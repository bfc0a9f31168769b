// What an Error says.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "runtime/error.h"

namespace nodewright {

// The message of the Error that `action` throws; empty when it throws none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline void expect_words(const std::string& message, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words)
    EXPECT_NE(message.find(word), std::string::npos) << word << "\nin: " << message;
}

// Runs `action`, which must throw an Error with all of `words` in its message.
inline void expect_error(const std::function<void()>& action, std::initializer_list<std::string_view> words) {
  const std::string message = error_of(action);
  EXPECT_NE(message, "") << "no Error was thrown; expected one with: " << *words.begin();
  if (!message.empty()) expect_words(message, words);
}

}  // namespace nodewright
