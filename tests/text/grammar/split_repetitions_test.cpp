#include "text/grammar/patterns/split_repetitions.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace nodewright {
namespace {

TEST(SplitRepetitions, GivesShortOnesOfTheSameAtom) {
  for (const auto& [pattern, split] :
       std::vector<std::pair<std::string, std::string>>{{"a{3,128}b", "a{3,128}b"},
                                                        {"a{129}", "a{128}a{1}"},
                                                        {"[a-z]{300}", "[a-z]{128}[a-z]{128}[a-z]{44}"},
                                                        {"x[]{2]{1,200}y", "x[]{2]{1}[]{2]{0,128}[]{2]{0,71}y"},
                                                        {"(ab|c{2}){150}d", "(ab|c{2}){128}(ab|c{2}){22}d"},
                                                        {"((a){200}b){2}", "((a){128}(a){72}b){2}"},
                                                        {R"(\d{140,}z)", R"(\d{128}\d{12}\d*z)"},
                                                        {R"(\u00e9{130})", R"(\u00e9{128}\u00e9{2})"},
                                                        {R"(\){200})", R"(\){128}\){72})"},
                                                        {"a|b{0,129}", "a|b{0,128}b{0,1}"},
                                                        {"a{x}", "a{x}"},
                                                        {"a{", "a{"}})
    EXPECT_EQ(split_repetitions(pattern), split);
}

}  // namespace
}  // namespace nodewright
