// The JSON files of a checkpoint with one fault each, hundreds of them drawn with a seed: what is refused is refused by
// one clear line, which names the file and the key at fault. Nothing else comes out of a reader.
#include <algorithm>
#include <functional>
#include <random>

#include "models/config/model_config.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/test_places.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {
namespace {

using nlohmann::json;
using test::source_dir;
using Random = std::mt19937_64;

struct Mutant {
  std::string text;
  std::vector<std::string> keys;  // any of which a refusal has to name; empty: the fault is in the text, not in a key
  std::string what;               // was done, for the failure of a test
};

template <class T>
const T& any_of(const std::vector<T>& list, Random& random) {
  return list[random() % list.size()];
}

// A member of an object somewhere in `whole`, or an element of one: nearer to the root more often.
json::json_pointer any_place(const json& whole, Random& random) {
  json::json_pointer place;
  for (const json* at = &whole; at->is_structured() && !at->empty();) {
    auto child = at->begin();
    const size_t step = random() % at->size();
    std::advance(child, static_cast<std::ptrdiff_t>(step));
    if (at->is_object())
      place /= child.key();
    else
      place /= step;
    at = &*child;
    if (random() % 3 == 0) break;
  }
  return place;
}

// The keys of the place itself, or of its list, and those above it.
std::vector<std::string> keys_to(json::json_pointer place) {
  std::vector<std::string> keys;
  for (; !place.empty(); place.pop_back())
    if (!std::ranges::all_of(place.back(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      keys.push_back(place.back());
  return keys;
}

const std::vector<std::string>& other_values() {
  static const std::vector<std::string> values = {"null",
                                                  "true",
                                                  "false",
                                                  "-1",
                                                  "0",
                                                  "1",
                                                  "0.5",
                                                  "-1e18",
                                                  "1e300",
                                                  "9223372036854775807",
                                                  "-9223372036854775808",
                                                  "18446744073709551615",
                                                  "3e9",
                                                  "\"\"",
                                                  "\"x\"",
                                                  "\"\\u0000\\n\\u001b[2J\"",
                                                  "[]",
                                                  "[[]]",
                                                  "[1, \"a\", null]",
                                                  "{}",
                                                  "{\"type\": {\"type\": []}}"};
  return values;
}

Mutant with_another_value(const json& whole, Random& random) {
  const json::json_pointer place = any_place(whole, random);
  json changed = whole;
  json value = json::parse(any_of(other_values(), random));
  if (random() % 4 == 0)
    value = random() % 2 == 0 ? json::array({whole[place]}) : json::object({{"value", whole[place]}});
  changed[place] = value;
  return {changed.dump(), keys_to(place), place.to_string() + " = " + value.dump()};
}

Mutant without_a_key(const json& whole, Random& random) {
  json::json_pointer place = any_place(whole, random);
  json changed = whole;
  std::vector<std::string> keys = keys_to(place);
  const std::string last = place.back(), what = "without " + place.to_string();
  place.pop_back();
  if (changed[place].is_object())
    changed[place].erase(last);
  else
    changed[place].erase(std::stoul(last));
  return {changed.dump(), keys, what};
}

// No JSON any more, or JSON that a strict reader refuses.
Mutant with_a_broken_text(const json& whole, Random& random) {
  std::string text = whole.dump(1);
  const size_t at = 1 + random() % (text.size() - 1);
  switch (random() % 6) {
    case 0:
      return {text.substr(0, at), {}, "cut at " + std::to_string(at)};
    case 1: {
      static const std::vector<std::string> literals = {"NaN", "Infinity", "-Infinity", "1e999", "0x10", "'a'", "+1"};
      const std::string& literal = any_of(literals, random);
      text.insert(text.find(": ") + 2, literal + ", \"behind\": ");
      return {text, {}, literal};
    }
    case 2:
      text[at] = static_cast<char>(any_of<int>({0, 1, 0x1f, 0x80, 0xff}, random));
      return {text, {}, "another byte at " + std::to_string(at)};
    case 3: {
      const std::string key = json(any_of(keys_to(any_place(whole, random)), random)).dump();
      return {"{" + key + ": 1, " + key + ": 1, " + text.substr(1), {}, "a key thrice"};
    }
    case 4:
      text.insert(text.find(": ") + 2, std::string(100000, random() % 2 == 0 ? '[' : '{'));
      return {text, {}, "nested deep"};
    default:
      return {any_of<std::string>({"", "null", "[]", "\"{}\"", "{} {}", "{,}", "\xef\xbb\xbf"}, random),
              {},
              "another text"};
  }
}

Mutant mutant_of(const json& whole, Random& random) {
  switch (random() % 8) {
    case 0:
    case 1:
      return without_a_key(whole, random);
    case 2:
      return with_a_broken_text(whole, random);
    default:
      return with_another_value(whole, random);
  }
}

// Counts what is refused; each refusal is checked.
class Refusals {
 public:
  explicit Refusals(std::string file) : file_(std::move(file)) {}

  void count(const Mutant& mutant, const std::function<void()>& read) {
    SCOPED_TRACE(file_ + ", " + mutant.what);
    ++all;
    try {
      read();
    } catch (const Error& error) {
      ++refused;
      check(error.what(), mutant);
    } catch (const std::exception& other) {
      ADD_FAILURE() << "no Error, but: " << other.what();
    }
  }

  int all = 0, refused = 0;

 private:
  void check(const std::string& line, const Mutant& mutant) {
    EXPECT_NE(line.find(file_), std::string::npos) << "the file is not named: " << line;
    EXPECT_EQ(line.find("json.exception"), std::string::npos) << line;
    EXPECT_LT(line.size(), 1500u) << line;
    EXPECT_TRUE(std::ranges::none_of(line, [](unsigned char c) { return c < 0x20 || c == 0x7f; })) << line;
    EXPECT_TRUE(
        mutant.keys.empty() ||
        std::ranges::any_of(mutant.keys, [&](const std::string& key) { return line.find(key) != std::string::npos; }))
        << "no key of " << mutant.what << " is named: " << line;
  }

  std::string file_;
};

std::vector<std::filesystem::path> files_in(const std::string& folder, const std::string& name) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_dir() / folder))
    if (entry.path().filename().string().ends_with(name)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

// `mutants` of each file, read as `name` in a folder of its own.
Refusals read_mutants(const std::vector<json>& wholes, int mutants, const std::string& name,
                      const std::function<void(const std::filesystem::path&)>& read, const ScratchFolder& folder) {
  Refusals refusals(name);
  Random random(7);
  for (const json& whole : wholes)
    for (int i = 0; i < mutants; ++i) {
      const Mutant mutant = mutant_of(whole, random);
      folder.write(name, mutant.text);
      refusals.count(mutant, [&] { read(folder.path()); });
    }
  return refusals;
}

// Those that `read` takes as they are.
std::vector<json> contents_of(const std::vector<std::filesystem::path>& files, const std::string& name,
                              const std::function<void(const std::filesystem::path&)>& read) {
  const ScratchFolder folder;
  std::vector<json> wholes;
  for (const auto& file : files) {
    folder.write(name, nodewright::read_text(file));
    if (error_of([&] { read(folder.path()); }).empty()) wholes.push_back(json::parse(nodewright::read_text(file)));
  }
  return wholes;
}

// Mutations that all are read, or none, would test nothing: more than one in `of` is refused.
void expect_some_refused(const Refusals& r, int of) {
  EXPECT_GT(r.refused, r.all / of);
  EXPECT_LT(r.refused, r.all);
}

TEST(MutatedFiles, OfReleasedConfigsGiveOneClearLine) {
  const auto wholes = contents_of(files_in("tests/golden/configs", ".json"), "config.json", read_model_config);
  ASSERT_GT(wholes.size(), 30u);
  const ScratchFolder folder;
  const Refusals r = read_mutants(wholes, 20, "config.json", read_model_config, folder);
  expect_some_refused(r, 4);
}

TEST(MutatedFiles, OfGenerationDefaultsGiveOneClearLine) {
  const ScratchFolder folder;
  folder.write("config.json", nodewright::read_text(source_dir() / "tests/golden/configs/llama-3.2-1b.json"));
  const json all = json::parse(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.05,
    "repetition_penalty": 1.05, "min_new_tokens": 2, "suppress_tokens": [3, 4], "bad_words_ids": [[5], [6, 7]],
    "eos_token_id": [128001, 128008], "pad_token_id": 0, "num_beams": 1, "max_length": 4096,
    "transformers_version": "5.17.0"})");
  const Refusals r = read_mutants({all}, 200, "generation_config.json", read_model_config, folder);
  expect_some_refused(r, 4);
}

TEST(MutatedFiles, OfTokenizersGiveOneClearLine) {
  const auto read = [](const std::filesystem::path& in) { Tokenizer::from_file(in / "tokenizer.json").encode("Aé 1"); };
  const auto wholes = contents_of(files_in("tests/golden/pipelines", "tokenizer.json"), "tokenizer.json", read);
  ASSERT_GT(wholes.size(), 15u);
  const ScratchFolder folder;
  const Refusals r = read_mutants(wholes, 15, "tokenizer.json", read, folder);
  expect_some_refused(r, 4);
}

TEST(MutatedFiles, OfTokenizersConfigurationsGiveOneClearLine) {
  json config = json::parse(nodewright::read_text(source_dir() / "models/demo/tokenizer_config.json"));
  config["bos_token"] = {{"content", "<s>"}, {"lstrip", false}};
  config["chat_template"] = {{{"name", "default"}, {"template", "{{ messages[0].content }}"}}};
  const ScratchFolder folder;
  const Refusals r = read_mutants(
      {config}, 200, "tokenizer_config.json", [](const auto& in) { ChatTemplate::from_folder(in); }, folder);
  expect_some_refused(r, 8);
}

}  // namespace
}  // namespace nodewright
