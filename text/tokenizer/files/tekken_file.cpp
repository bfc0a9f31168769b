#include "text/tokenizer/files/tekken_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "text/tokenizer/files/base64.h"
#include "text/tokenizer/files/section_reader.h"
#include "text/tokenizer/files/tokenizer_json.h"
#include "text/tokenizer/tokens/byte_level.h"

namespace nodewright {
namespace {

using TekkenJson = nlohmann::json;

constexpr std::uint64_t kLargestTekken = std::uint64_t{256} << 20;  // bytes; Mistral's have 15 MB

// The special tokens of files that list none. Source: Tekkenizer.DEPRECATED_SPECIAL_TOKENS.
constexpr const char* kFirstSpecials[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

class TekkenReader {
 public:
  explicit TekkenReader(const std::string& file)
      : reader_(file), top_(read_json_object(file, "load tokenizer", kLargestTekken)) {}

  TokenizerFile read() {
    const TekkenJson& config = reader_.object(reader_.member(top_, "config"), "config");
    specials_ = reader_.count(config, "default_num_special_tokens", "config");
    size_ = reader_.count(config, "default_vocab_size", "config");
    if (size_ < specials_ + 256 || size_ > static_cast<std::size_t>(kLargestTokenId))
      reader_.fail(fmt::format("default_vocab_size is {}, with {} special tokens; expected {} to {}", size_, specials_,
                               specials_ + 256, kLargestTokenId));
    read_specials();
    read_vocab();
    const std::string& pattern = reader_.string(reader_.member(config, "pattern"), "pattern of config");
    out_.pre_tokenizer.add(SplitStep{Regex(pattern, reader_.file())});
    out_.pre_tokenizer.add(ByteLevelStep{.use_regex = false});
    out_.decoder.set_bytes(TokenDecoder::Bytes::letters);
    return std::move(out_);
  }

 private:
  void read_specials() {
    std::vector<std::string> names(std::begin(kFirstSpecials), std::end(kFirstSpecials));
    const TekkenJson& listed = reader_.member(top_, "special_tokens");
    if (!listed.is_null()) {
      names.clear();
      for (const auto& entry : reader_.array(listed, "'special_tokens'")) {
        const std::string where = fmt::format("entry {} of 'special_tokens'", names.size());
        if (reader_.count(reader_.object(entry, where), "rank", where) != names.size())
          reader_.fail(fmt::format("the rank of {} is {}", where, entry["rank"].dump()));
        names.push_back(reader_.string(reader_.member(entry, "token_str"), "token_str of " + where));
      }
    }
    if (names.size() > specials_)
      reader_.fail(
          fmt::format("it has {} special tokens, and 'default_num_special_tokens' is {}", names.size(), specials_));
    for (std::size_t id = names.size(); id < specials_; ++id) names.push_back(fmt::format("<SPECIAL_{}>", id));
    for (std::size_t id = 0; id < names.size(); ++id) {
      if (names[id] == "<s>") out_.prefix = {static_cast<TokenId>(id)};
      out_.added_tokens.push_back({.id = static_cast<TokenId>(id), .content = std::move(names[id]), .special = true});
    }
  }

  // Entries beyond the vocabulary's size are spare.
  void read_vocab() {
    ModelForm& form = out_.model;
    form.kind = ModelForm::Kind::piece_merges;
    form.from_bytes = true;
    for (const auto& entry : reader_.array(reader_.member(top_, "vocab"), "'vocab'")) {
      const std::size_t rank = form.vocab.size();
      if (rank == size_ - specials_) break;
      const std::string where = fmt::format("entry {} of 'vocab'", rank);
      if (reader_.count(reader_.object(entry, where), "rank", where) != rank)
        reader_.fail(fmt::format("the rank of {} is {}", where, entry["rank"].dump()));
      const std::string& written = reader_.string(reader_.member(entry, "token_bytes"), "token_bytes of " + where);
      const auto bytes = from_base64(written);
      if (!bytes || bytes->empty() || (rank < 256 && *bytes != std::string(1, static_cast<char>(rank))))
        reader_.fail(fmt::format("token_bytes of {} is {}, not base64 of {}", where, in_quotes(written),
                                 rank < 256 ? fmt::format("byte {}", rank) : "one or more bytes"));
      form.vocab.emplace_back(token_of_bytes(*bytes), static_cast<TokenId>(specials_ + rank));
      form.scores.push_back(-static_cast<double>(rank));
    }
    if (form.vocab.size() < size_ - specials_)
      reader_.fail(fmt::format("'vocab' has {} entries, expected {}", form.vocab.size(), size_ - specials_));
  }

  SectionReader reader_;
  TekkenJson top_;
  TokenizerFile out_;
  std::size_t specials_ = 0, size_ = 0;
};

}  // namespace

TokenizerFile read_tekken_file(const std::filesystem::path& path) { return TekkenReader(path.string()).read(); }

}  // namespace nodewright
