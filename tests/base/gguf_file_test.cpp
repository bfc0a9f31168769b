// GGUF headers: values of every kind, and models in several files.
#include "base/gguf_file.h"

#include "tests/base/gguf_writer.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

TEST(GgufModel, HoldsMetadataAndTensors) {
  test::GgufWriter writer;
  writer.add("a.text", "some");
  writer.add("a.flag", true);
  writer.add("a.number", uint32_t{7});
  writer.add("a.narrow", uint16_t{9});
  writer.add("a.real", 0.5f);
  writer.add("a.texts", std::vector<std::string>{"x", "", "yz"});
  writer.add("a.reals", std::vector<float>{1, 2.5f});
  writer.add("a.numbers", std::vector<int32_t>{-1, 3});
  writer.add_tensor("t", {1, 2, 3});
  writer.add_tensor("u", {4});
  const ScratchFolder folder;
  const GgufModel model = GgufModel::open(folder.write("m.gguf", writer.bytes()));
  EXPECT_EQ(model.text("a.text"), "some");
  EXPECT_EQ(model.boolean("a.flag"), true);
  EXPECT_EQ(model.integer("a.number"), 7);
  EXPECT_EQ(model.integer("a.narrow"), 9);
  EXPECT_EQ(model.number("a.real"), 0.5);
  EXPECT_EQ(model.number("a.number"), 7.0);
  EXPECT_EQ(*model.texts("a.texts"), (std::vector<std::string>{"x", "", "yz"}));
  EXPECT_EQ(*model.numbers("a.reals"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(*model.numbers("a.numbers"), (std::vector<double>{-1, 3}));
  EXPECT_EQ(model.text("b"), std::nullopt);
  expect_error([&] { (void)model.integer("a.text"); }, {"m.gguf", "'a.text' is not an integer"});
  ASSERT_EQ(model.tensors().size(), 2u);
  const GgufTensor* tensor = model.find("u");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, std::vector<int64_t>{1});
  float value = 0;
  tensor->file->read(tensor->offset, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 4);
}

TEST(GgufModel, LeavesOutArraysThatArePassedOver) {
  test::GgufWriter writer;
  writer.add("a.texts", std::vector<std::string>{"x", "", "yz"});
  writer.add("a.numbers", std::vector<int32_t>{-1, 3});
  writer.add("a.text", "some");
  writer.add("b.numbers", std::vector<int32_t>{5});
  writer.add_tensor("t", {1, 2, 3});
  const ScratchFolder folder;
  const auto path = folder.write("m.gguf", writer.bytes());
  const GgufModel model = GgufModel::open(path, "a.");
  EXPECT_EQ(model.texts("a.texts"), nullptr);
  EXPECT_EQ(model.numbers("a.numbers"), nullptr);
  EXPECT_EQ(model.text("a.text"), "some");
  EXPECT_EQ(*model.numbers("b.numbers"), std::vector<double>{5});
  EXPECT_EQ(model.find("t")->offset, GgufModel::open(path).find("t")->offset);
  const std::string whole = writer.bytes();
  for (size_t bytes = 0; bytes < whole.find("b.numbers"); ++bytes)
    expect_error([&] { GgufModel::open(folder.write("m.gguf", whole.substr(0, bytes)), "a."); }, {"m.gguf"});
}

TEST(GgufModel, IsMadeOfAllItsParts) {
  const auto part = [](uint16_t number, uint16_t count, uint16_t tensors = 3) {
    test::GgufWriter writer;
    writer.add("split.no", number);
    writer.add("split.count", count);
    writer.add("split.tensors.count", tensors);
    writer.add_tensor("t" + std::to_string(number), {static_cast<float>(number)});
    return writer.bytes();
  };
  const ScratchFolder folder;
  const auto first = folder.write("m-00001-of-00003.gguf", part(0, 3));
  folder.write("m-00002-of-00003.gguf", part(1, 3));
  expect_error([&] { GgufModel::open(first); }, {"'m-00003-of-00003.gguf' is missing"});
  folder.write("m-00003-of-00003.gguf", part(2, 3));
  const GgufModel model = GgufModel::open(first);
  for (const char* name : {"t0", "t1", "t2"}) EXPECT_NE(model.find(name), nullptr) << name;
  for (const std::string& other : {part(1, 3), part(2, 4)}) {
    folder.write("m-00003-of-00003.gguf", other);
    expect_error([&] { GgufModel::open(first); }, {"m-00003-of-00003.gguf", "split."});
  }
  folder.write("m-00003-of-00003.gguf", part(2, 3));
  folder.write("m-00001-of-00003.gguf", part(0, 3, 4));
  expect_error([&] { GgufModel::open(first); }, {"3 tensors", "says 4"});
  expect_error([&] { GgufModel::open(folder.path() / "m-00002-of-00003.gguf"); }, {"part 2 of 3", "-00001-of-00003"});
  expect_error([&] { GgufModel::open(folder.write("one.gguf", part(0, 3))); }, {"part 1 of 3"});
}

TEST(GgufModel, HasPartsOfNoAbsurdNumberAndNoArrayOfMillions) {
  test::GgufWriter part, long_one;
  part.add("split.count", uint32_t{2});
  part.add("split.no", uint64_t{INT64_MAX});
  long_one.add("a", std::vector<float>((1 << 22) + 1));
  const ScratchFolder folder;
  expect_error([&] { GgufModel::open(folder.write("p.gguf", part.bytes())); }, {"part 9223372036854775808 of 2"});
  expect_error([&] { GgufModel::open(folder.write("l.gguf", long_one.bytes())); }, {"4194305 elements"});
}

TEST(GgufModel, OfAFolderAreThoseThatCanBeOpened) {
  const ScratchFolder folder;
  for (const char* name : {"b.gguf", "mmproj-b.gguf", "a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "c.bin"})
    folder.write(name, "");
  EXPECT_EQ(gguf_files_in(folder.path()),
            (std::vector{folder.path() / "a-00001-of-00002.gguf", folder.path() / "b.gguf"}));
  EXPECT_TRUE(gguf_files_in(folder.path() / "none").empty());
}

TEST(GgufModel, RefusesAKeyOrTensorThatAppearsTwice) {
  const ScratchFolder folder;
  test::GgufWriter keys, tensors;
  keys.add("a", true);
  keys.add("a", false);
  tensors.add_tensor("t", {1});
  tensors.add_tensor("t", {1});
  expect_error([&] { GgufModel::open(folder.write("k.gguf", keys.bytes())); }, {"key 'a' appears twice"});
  expect_error([&] { GgufModel::open(folder.write("t.gguf", tensors.bytes())); }, {"tensor 't' appears twice"});
}

TEST(GgufFile, OfATypeThatIsNotReadIsRefusedByTheNameOfTheType) {
  const std::pair<uint32_t, const char*> types[] = {
      {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},
      {26, "I32"},     {29, "IQ1_M"},  {34, "TQ1_0"},   {35, "TQ2_0"}, {40, "NVFP4"}, {9, "Q8_1"},   {15, "Q8_K"}};
  test::GgufWriter writer;
  writer.add_tensor("blk.0.w", std::vector<float>(256));
  for (const auto& [code, name] : types) {
    std::string bytes = writer.bytes();
    // Behind the name: the number of dimensions, one dimension, the type.
    std::memcpy(bytes.data() + bytes.find("blk.0.w") + 7 + 4 + 8, &code, sizeof code);
    const ScratchFolder folder;
    const std::filesystem::path file = folder.write("model.gguf", bytes);
    expect_error([&] { GgufModel::open(file); },
                 {"tensor 'blk.0.w' is stored as " + std::string(name) + ", which is not supported"});
  }
}

}  // namespace
}  // namespace nodewright
