// A handler of parser events: two states for vocabulary and merges, and a small builder of values for the rest.
#include "text/tokenizer/files/tokenizer_json.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_set>

#include "base/json_file.h"
#include "text/tokenizer/load_error.h"

namespace nodewright {
namespace {

using VocabJson = nlohmann::json;

constexpr std::uint64_t kLargestTokenizerFile = std::uint64_t{256} << 20;  // bytes; Gemma-3's, the largest, has 33 MB
constexpr std::size_t kDeepestValue = 64;

class TokenizerEvents : public nlohmann::json_sax<VocabJson> {
 public:
  TokenizerEvents(const std::string& file, TokenizerJson& out) : file_(file), out_(out) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool found) override { return value(found); }
  bool number_integer(number_integer_t found) override { return value(found); }
  bool number_unsigned(number_unsigned_t found) override { return value(found); }
  bool number_float(number_float_t found, const string_t&) override { return value(found); }
  bool string(string_t& found) override { return value(std::move(found)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    open();
    if (in_ == In::rest && at_model() && key_ == "vocab") {
      in_ = In::vocab_object;
      place(VocabJson::object());
      return true;
    }
    if (in_ == In::rest) {
      parents_.push_back(&place(VocabJson::object()));
      keys_.emplace_back();
    } else {
      fail_entry("an object");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    open();
    if (in_ == In::rest && at_model() && (key_ == "vocab" || key_ == "merges")) {
      in_ = key_ == "vocab" ? In::vocab_list : In::merges;
      place(VocabJson::array());
      return true;
    }
    if (in_ == In::rest) {
      parents_.push_back(&place(VocabJson::array()));
      keys_.emplace_back();
    } else if (in_ == In::vocab_object || pair_) {
      fail_entry("an array");
    } else {
      pair_.emplace();
    }
    return true;
  }

  bool key(string_t& found) override {
    if (in_ == In::vocab_object) {
      key_ = std::move(found);
      const auto next = static_cast<TokenId>(out_.vocab.size());
      if (const TokenId first = spellings_.insert(key_, next); first != next) repeated_ = first;
      return true;
    }
    key_ = std::move(found);
    if (!keys_.back().insert(key_).second) fail_twice();
    return true;
  }

  bool end_object() override { return close(); }
  bool end_array() override {
    if (!pair_) return close();
    --depth_;
    if (pair_->size() != 2) fail_entry(fmt::format("a list of {}", pair_->size()));
    in_ == In::merges ? add_merge(std::move((*pair_)[0]), std::move((*pair_)[1])) : add_piece();
    pair_.reset();
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail(fmt::format("not valid JSON: {}", json_fault(error)));
  }

 private:
  enum class In { rest, vocab_object, vocab_list, merges };

  [[noreturn]] void fail(std::string detail) const { fail_load(file_, std::move(detail)); }
  [[noreturn]] void fail_twice() const { fail(fmt::format("the key {} appears twice in one object", in_quotes(key_))); }
  [[noreturn]] void fail_entry(const std::string& found) const {
    if (in_ == In::merges) fail(fmt::format("merge {} is not a pair of tokens", found));
    if (in_ == In::vocab_object) fail(fmt::format("the id of token {} is {}, not an integer", in_quotes(key_), found));
    fail(fmt::format("entry {} of 'vocab' is {}, not a token and its score", out_.vocab.size(), found));
  }

  void open() {
    if (depth_ == kDeepestValue) fail(fmt::format("values nest deeper than {} levels", kDeepestValue));
    ++depth_;
  }

  bool close() {
    --depth_;
    if (in_ != In::rest) {
      in_ = In::rest;
      return true;
    }
    parents_.pop_back();
    keys_.pop_back();
    return true;
  }

  // Whether the object that is being read is "model".
  bool at_model() const { return parents_.size() == 2 && parents_[0]->is_object() && parents_[1] == model_; }

  VocabJson& place(VocabJson found) {
    if (parents_.empty()) return out_.rest = std::move(found);
    VocabJson& parent = *parents_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(found));
      return parent.back();
    }
    VocabJson& child = parent[key_] = std::move(found);
    if (parents_.size() == 1 && key_ == "model") model_ = &child;
    return child;
  }

  bool value(VocabJson found) {
    switch (in_) {
      case In::rest:
        place(std::move(found));
        break;
      case In::vocab_object:
        add_token(found);
        break;
      case In::vocab_list:
        if (!pair_) fail_entry(found.type_name());
        pair_->push_back(std::move(found));
        break;
      case In::merges:
        pair_ ? pair_->push_back(std::move(found)) : split_merge(found);
        break;
    }
    return true;
  }

  void add_token(const VocabJson& found) {
    if (!found.is_number_integer()) fail_entry(found.type_name());
    const bool fits = found.is_number_unsigned() ? found.get<std::uint64_t>() <= std::uint64_t{kLargestTokenId}
                                                 : found.get<std::int64_t>() >= 0;
    if (!fits)
      fail(fmt::format("the id of token {} is {}, outside 0 to {}", in_quotes(key_), found.dump(), kLargestTokenId));
    if (repeated_) {  // a token may stand there twice, if its id is the same
      if (out_.vocab[static_cast<std::size_t>(*repeated_)].second != found.get<TokenId>()) fail_twice();
      repeated_.reset();
      return;
    }
    out_.vocab.emplace_back(std::move(key_), found.get<TokenId>());
  }

  void add_piece() {
    const VocabJson &spelling = (*pair_)[0], &score = (*pair_)[1];
    if (!spelling.is_string() || !score.is_number()) fail_entry("a list of other things");
    if (out_.vocab.size() > static_cast<std::size_t>(kLargestTokenId))
      fail(fmt::format("'vocab' has more than {} entries", kLargestTokenId + 1));
    out_.scores.push_back(score.get<double>());
    out_.vocab.emplace_back(spelling.get<std::string>(), static_cast<TokenId>(out_.vocab.size()));
  }

  void split_merge(const VocabJson& merge) {
    if (!merge.is_string()) fail_entry(merge.dump());
    const std::string& text = merge.get_ref<const std::string&>();
    if (text.starts_with("#version")) return;  // a heading of merges.txt that some converters left in
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) fail_entry(merge.dump());
    out_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }

  void add_merge(VocabJson left, VocabJson right) {
    if (!left.is_string() || !right.is_string()) fail_entry(VocabJson::array({left, right}).dump());
    out_.merges.emplace_back(std::move(left.get_ref<std::string&>()), std::move(right.get_ref<std::string&>()));
  }

  const std::string& file_;
  TokenizerJson& out_;
  In in_ = In::rest;
  std::size_t depth_ = 0;
  std::string key_;                                    // the last one
  std::vector<VocabJson*> parents_;                    // objects and arrays that are open, outermost first
  std::vector<std::unordered_set<std::string>> keys_;  // of each of them
  const VocabJson* model_ = nullptr;
  std::optional<std::vector<VocabJson>> pair_;  // of the list that is open in the vocabulary or the merges
  TokenMap spellings_;                          // of the vocabulary
  std::optional<TokenId> repeated_;             // place of the entry whose key has come again
};

}  // namespace

TokenizerJson parse_tokenizer_json(const std::filesystem::path& path) {
  const std::string file = path.string();
  const std::string text = read_json_text(path, "load tokenizer", kLargestTokenizerFile);
  TokenizerJson parsed;
  TokenizerEvents events(file, parsed);
  VocabJson::sax_parse(text, &events);
  if (parsed.rest.is_object()) return parsed;
  fail_load(file, fmt::format("expected a JSON object, found {}", parsed.rest.type_name()));
}

}  // namespace nodewright
