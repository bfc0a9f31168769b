// What a tekken.json may not say: each fault is named with the file, the thing and its value.
#include "text/tokenizer/files/tekken_file.h"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/error.h"
#include "tests/text/tokenizer_goldens.h"

namespace nodewright {
namespace {

using TekkenFields = nlohmann::json;

TEST(TekkenFile, NamesWhatIsWrong) {
  const std::pair<std::function<void(TekkenFields&)>, std::string> kWrong[] = {
      {[](TekkenFields& f) { f.erase("config"); }, "config is null, not an object"},
      {[](TekkenFields& f) { f["config"]["default_vocab_size"] = 40; },
       "default_vocab_size is 40, with 30 special tokens; expected 286 to 4194303"},
      {[](TekkenFields& f) { f["config"]["default_vocab_size"] = 100000; }, "entries, expected 99970"},
      {[](TekkenFields& f) { f["config"]["pattern"] = "(a"; }, "'(a' does not compile"},
      {[](TekkenFields& f) { f["vocab"][7]["rank"] = 9; }, "the rank of entry 7 of 'vocab' is 9"},
      {[](TekkenFields& f) { f["vocab"][7]["token_bytes"] = "*"; },
       "token_bytes of entry 7 of 'vocab' is '*', not base64 of byte 7"},
      {[](TekkenFields& f) { f["vocab"][300]["token_bytes"] = ""; },
       "token_bytes of entry 300 of 'vocab' is '', not base64 of one or more bytes"},
      {[](TekkenFields& f) {
         f["special_tokens"] = {{{"rank", 1}, {"token_str", "<unk>"}}};
       },
       "the rank of entry 0 of 'special_tokens' is 1"},
      {[](TekkenFields& f) { f["config"]["default_num_special_tokens"] = 19; },
       "it has 20 special tokens, and 'default_num_special_tokens' is 19"},
  };
  const TekkenFields whole = read_json(test::source_dir() / "tests/golden/pipelines/tekken/tekken.json");
  for (const auto& [change, words] : kWrong) {
    TekkenFields changed = whole;
    change(changed);
    const TemporaryFile file(changed.dump());
    try {
      read_tekken_file(file.path());
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(file.path().string()), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace nodewright
