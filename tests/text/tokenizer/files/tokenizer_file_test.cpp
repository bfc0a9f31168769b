// A tokenizer.json that is damaged, contradicts itself or asks for what is not supported gives one Error with names.
#include "text/tokenizer/files/tokenizer_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "runtime/error.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {
namespace {

using Json = nlohmann::json;

// Files that must not load: what is wrong, how to make it so, and words that the error must hold.
struct BadFile {
  std::string name;
  std::function<std::string()> content;
  std::string words;
};

std::string edited(const std::function<void(Json&)>& edit) {
  Json file = byte_tokenizer();
  edit(file);
  return file.dump();
}

std::string nested_normalizer(int depth) {
  std::string open, close;
  for (int i = 0; i < depth; ++i) {
    open += R"({"type":"Sequence","normalizers":[)";
    close += "]}";
  }
  return R"({"normalizer":)" + open + close + "}";
}

Json component(const std::string& type) { return {{"type", type}}; }

std::string with_normalizer(const Json& normalizer) {
  return edited([&](Json& f) { f["normalizer"] = normalizer; });
}
std::string with_words(const Json& pre_tokenizer) {
  return edited([&](Json& f) { f["pre_tokenizer"] = pre_tokenizer; });
}
std::string with_decoder(const Json& decoder) {
  return edited([&](Json& f) { f["decoder"] = decoder; });
}
std::string with_model(const Json& model) {
  return edited([&](Json& f) { f["model"] = model; });
}

const std::vector<BadFile> kBadFiles = {
    {"Empty", [] { return ""; }, "not valid JSON"},
    {"NotJson", [] { return "vocab: 1"; }, "not valid JSON"},
    {"Truncated", [] { return byte_tokenizer().dump().substr(0, 2000); }, "not valid JSON"},
    {"InvalidUtf8", [] { return "{\"model\": \"\xFF\"}"; }, "not valid JSON"},
    {"NotAnObject", [] { return "[1, 2]"; }, "expected a JSON object, found array"},
    {"HugeNesting", [] { return std::string(1000000, '['); }, "nest deeper than 64"},
    {"HugeClosedNesting", [] { return std::string(300000, '[') + std::string(300000, ']'); }, "nest deeper than 64"},
    {"HugeSequence", [] { return nested_normalizer(20); }, "Sequence nested more than 8 deep"},
    {"ZeroByte", [] { return byte_tokenizer().dump() + std::string("\0{}", 3); }, "is zero"},
    {"KeyTwice", [] { return R"({"model": {"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []}})"; },
     "the key 'a' appears twice"},
    {"MergeIsNested",  // printing it would need a stack frame for each level
     [] {
       std::string file = edited([](Json& f) { f["model"]["merges"] = Json::array({"?"}); });
       const size_t at = file.find(R"(["?"])");
       return file.replace(at, 5, std::string(300000, '[') + std::string(300000, ']'));
     },
     "merge an array is not a pair"},
    {"NoModel", [] { return edited([](Json& f) { f.erase("model"); }); }, "model is null"},
    {"NoVocab", [] { return edited([](Json& f) { f["model"].erase("vocab"); }); }, "'vocab' of model is null"},
    {"NoMerges", [] { return edited([](Json& f) { f["model"].erase("merges"); }); }, "'merges' of model is null"},
    {"IdIsText", [] { return edited([](Json& f) { f["model"]["vocab"]["a"] = "1"; }); },
     "the id of token 'a' is string"},
    {"IdIsNegative", [] { return edited([](Json& f) { f["model"]["vocab"]["a"] = -1; }); }, "is -1, outside 0"},
    {"IdIsHuge", [] { return edited([](Json& f) { f["model"]["vocab"]["a"] = 1ull << 40; }); },
     "1099511627776, outside"},
    {"SharedId", [] { return edited([](Json& f) { f["model"]["vocab"]["zz"] = 65; }); }, "the id 65 of another token"},
    {"AddedSharesId",
     [] { return edited([](Json& f) { f["added_tokens"] = Json::array({added_token(65, "<x>", true)}); }); },
     "'<x>' has the id 65"},
    {"AddedContradicts",
     [] { return edited([](Json& f) { f["added_tokens"] = Json::array({added_token(300, "A", false)}); }); },
     "'A' has id 300, but 65"},
    {"AddedTwice",
     [] {
       return edited([](Json& f) {
         f["added_tokens"] = Json::array({added_token(300, "<x>", true), added_token(301, "<x>", true)});
       });
     },
     "'<x>' appears twice"},
    {"AddedWithoutFlag",
     [] {
       return edited([](Json& f) {
         f["added_tokens"] = Json::array({added_token(300, "<x>", true)});
         f["added_tokens"][0].erase("lstrip");
       });
     },
     "lstrip of added token '<x>'"},
    {"SpecialByte",
     [] { return edited([](Json& f) { f["added_tokens"] = Json::array({added_token(65, "A", true)}); }); },
     "special token 'A' is a single byte"},
    {"MergeOfUnknown", [] { return edited([](Json& f) { f["model"]["merges"] = Json::array({"a qq"}); }); },
     "needs token 'qq'"},
    {"MergeIntoUnknown", [] { return edited([](Json& f) { f["model"]["merges"] = Json::array({"a b"}); }); },
     "needs token 'ab'"},
    {"MergeOfThree", [] { return edited([](Json& f) { f["model"]["merges"] = Json::array({"a b c"}); }); },
     "\"a b c\" is not a pair"},
    {"MergeIsNumber", [] { return edited([](Json& f) { f["model"]["merges"] = Json::array({7}); }); },
     "merge 7 is not a pair"},
    {"BadExpression",
     [] {
       return edited([](Json& f) {
         f["pre_tokenizer"] = {
             {"type", "Sequence"},
             {"pretokenizers",
              {{{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}, {"invert", false}},
               f["pre_tokenizer"]}}};
       });
     },
     "'(a' does not compile"},
    {"DeepExpression",
     [] {
       return edited([](Json& f) {
         f["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", std::string(100000, '(') + "a" + std::string(100000, ')')}}},
                               {"behavior", "Isolated"}};
         f["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", Json::array({f["pre_tokenizer"], f["decoder"]})}};
       });
     },
     "does not compile"},
    {"Normalizer", [] { return edited([](Json& f) { f["normalizer"] = component("Novel"); }); },
     "normalizer 'Novel' is not supported"},
    {"PreTokenizer", [] { return edited([](Json& f) { f["pre_tokenizer"] = component("Novel"); }); },
     "pre_tokenizer 'Novel' is not supported"},
    {"ReplaceNothing",
     [] {
       return edited([](Json& f) {
         f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "x"}};
       });
     },
     "an empty 'pattern' of normalizer Replace"},
    {"DecoderOrder",
     [] {
       Json file = character_tokenizer();
       std::swap(file["decoder"]["decoders"][0], file["decoder"]["decoders"][1]);
       return file.dump();
     },
     "decoder 'Replace' after ByteLevel, ByteFallback or Fuse"},
    {"UnknownTokenMissing",
     [] {
       Json file = character_tokenizer();
       file["model"]["unk_token"] = "<none>";
       return file.dump();
     },
     "unk_token '<none>' is not in the vocabulary"},
    {"SplitBehavior",
     [] {
       return edited([](Json& f) {
         f["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Novel"}, {"invert", false}};
       });
     },
     "behavior 'Novel'"},
    {"Model", [] { return edited([](Json& f) { f["model"]["type"] = "Novel"; }); }, "model 'Novel' is not supported"},
    {"Dropout", [] { return edited([](Json& f) { f["model"]["dropout"] = 0.1; }); }, "'dropout' 0.1"},
    {"UnknownFlag", [] { return edited([](Json& f) { f["model"]["novel"] = 1; }); },
     "'novel' of model BPE is not supported"},
    {"Decoder", [] { return edited([](Json& f) { f["decoder"] = component("Novel"); }); }, "decoder 'Novel'"},
    {"PostProcessor", [] { return edited([](Json& f) { f["post_processor"] = component("BertProcessing"); }); },
     "'cls' of post_processor BertProcessing is null"},
    {"Template",
     [] {
       return edited([](Json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", Json::array()},
                                {"pair", Json::array()},
                                {"special_tokens", Json::object()}};
       });
     },
     "0 sequences in 'single'"},
    {"TemplateId",
     [] {
       return edited([](Json& f) {
         f["post_processor"] = {
             {"type", "TemplateProcessing"},
             {"single",
              {{{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
             {"pair", Json::array()},
             {"special_tokens", {{"x", {{"id", "x"}, {"ids", {999}}, {"tokens", {"x"}}}}}}};
       });
     },
     "adds token 999"},
    {"ReplaceExpression",
     [] {
       return with_normalizer({{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}});
     },
     "'(a' does not compile"},
    {"StripFlag", [] { return with_normalizer(component("Strip")); }, "strip_left of normalizer Strip is null"},
    {"NoBase64",
     [] {
       return with_normalizer({{"type", "Precompiled"}, {"precompiled_charsmap", "AAA*"}});
     },
     "is not base64"},
    {"CutMap",
     [] {
       return with_normalizer({{"type", "Precompiled"}, {"precompiled_charsmap", "/wAAAAAAAAA="}});
     },
     "the character map has 8 bytes, its trie 255"},
    {"TwoCharacters",
     [] {
       return with_words({{"type", "Metaspace"}, {"replacement", "__"}});
     },
     "'replacement' of pre_tokenizer Metaspace is '__', not one character"},
    {"Scheme",
     [] {
       return with_words({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "often"}});
     },
     "prepend_scheme 'often'"},
    {"DigitsFlag", [] { return with_words(component("Digits")); }, "individual_digits of pre_tokenizer Digits is null"},
    {"NoLength",
     [] {
       return with_words({{"type", "FixedLength"}, {"length", 0}});
     },
     "length 0"},
    {"LengthIsNegative",
     [] {
       return with_words({{"type", "FixedLength"}, {"length", -3}});
     },
     "is -3, not an integer"},
    {"NoSuffix",
     [] {
       return with_decoder({{"type", "BPEDecoder"}, {"suffix", ""}});
     },
     "an empty 'suffix'"},
    {"CtcAmongOthers",
     [] {
       return with_decoder(
           {{"type", "Sequence"}, {"decoders", Json::array({component("CTC"), component("ByteLevel")})}});
     },
     "a decoder Sequence of BPEDecoder or CTC and others"},
    {"SecondStrip",
     [] {
       const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
       return with_decoder({{"type", "Sequence"}, {"decoders", Json::array({component("Fuse"), strip, strip})}});
     },
     "a second decoder 'Strip' after Fuse"},
    {"UnigramVocab",
     [] {
       return with_model({{"type", "Unigram"}, {"vocab", {{"a", 1}}}, {"unk_id", 0}});
     },
     "'vocab' of model is object, not an array"},
    {"UnigramEntry",
     [] {
       return with_model({{"type", "Unigram"}, {"vocab", Json::array({{"a", "b"}})}, {"unk_id", 0}});
     },
     "entry 0 of 'vocab' is a list of other things, not a token and its score"},
    {"UnigramUnknown",
     [] {
       return with_model({{"type", "Unigram"}, {"vocab", Json::array({{"a", 0.5}})}, {"unk_id", 1}});
     },
     "unk_id is 1, the vocabulary has 1 tokens"},
    {"WordPieceUnknown",
     [] {
       return with_model({{"type", "WordPiece"}, {"vocab", {{"a", 0}}}, {"unk_token", "x"}});
     },
     "unk_token 'x' is not in the vocabulary"},
    {"WordLevelUnknown",
     [] {
       return with_model({{"type", "WordLevel"}, {"vocab", {{"a", 0}}}});
     },
     "'unk_token' of model WordLevel is null"},
};

class BadTokenizerFile : public testing::TestWithParam<BadFile> {};

INSTANTIATE_TEST_SUITE_P(Files, BadTokenizerFile, testing::ValuesIn(kBadFiles),
                         [](const auto& info) { return info.param.name; });

TEST_P(BadTokenizerFile, GivesOneErrorThatNamesTheFileAndTheThing) {
  const TemporaryFile file(GetParam().content());
  try {
    Tokenizer::from_file(file.path());
    ADD_FAILURE() << "the file was loaded";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(file.path().string()), std::string::npos) << what.substr(0, 400);
    EXPECT_NE(what.find(GetParam().words), std::string::npos) << what.substr(0, 400);
  }
}

TEST(TokenizerFile, NamesAFileThatIsMissingOrIsAFolder) {
  for (const std::string path : {"/no/such/tokenizer.json", "/"}) {
    try {
      Tokenizer::from_file(path);
      ADD_FAILURE() << path << " was loaded";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("'" + path + "'"), std::string::npos) << error.what();
    }
  }
}

// Cut or damaged anywhere, a file loads or gives an Error; nothing else.
TEST(TokenizerFile, SurvivesADamagedFile) {
  const std::string whole = read_json(golden_tokenizer("mixed")).dump();
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = "{}[]\",:0a\\"[random() % 10];
    const TemporaryFile file(damaged);
    try {
      Tokenizer::from_file(file.path()).encode("hello <left> world");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace nodewright
