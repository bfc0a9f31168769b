// Checkpoint folders: one file, shards, and indexes that lie.
#include "models/weights/checkpoint.h"

#include "tests/models/checkpoint_files.h"

namespace nodewright {
namespace {

using nlohmann::json;
using test::safetensors_of;

const test::TestTensor kA = {"a", "F32", {2}, std::string(8, 'a')};
const test::TestTensor kB = {"b", "BF16", {2, 3}, std::string(12, 'b')};
const test::TestTensor kC = {"c", "I64", {1}, std::string(8, 'c')};

void write_index(const ScratchFolder& folder, const json& weight_map) {
  folder.write("model.safetensors.index.json",
               json{{"metadata", {{"total_size", 28}}}, {"weight_map", weight_map}}.dump());
}

// The text between the offsets of a tensor.
std::string data_of(const TensorInfo& tensor) {
  std::string bytes(tensor.bytes, '\0');
  tensor.file->read(tensor.offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(Checkpoint, FindsTheTensorsOfASingleFile) {
  const ScratchFolder folder;
  folder.write("model.safetensors", safetensors_of({kB, kA}));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "a");
  EXPECT_EQ(data_of(*checkpoint.find("a")), kA.data);
  EXPECT_EQ(data_of(checkpoint.require("b", {2, 3})), kB.data);
  EXPECT_EQ(checkpoint.find("z"), nullptr);
}

TEST(Checkpoint, StaysUsableAfterAMove) {
  const ScratchFolder folder;
  folder.write("model.safetensors", safetensors_of({kA}));
  Checkpoint first = Checkpoint::open(folder.path());
  const Checkpoint second = std::move(first);
  EXPECT_EQ(data_of(*second.find("a")), kA.data);
}

TEST(Checkpoint, GathersShards) {
  const ScratchFolder folder;
  folder.write("model-00001-of-00002.safetensors", safetensors_of({kA, kC}));
  folder.write("model-00002-of-00002.safetensors", safetensors_of({kB}));
  write_index(folder, {{"a", "model-00001-of-00002.safetensors"},
                       {"b", "model-00002-of-00002.safetensors"},
                       {"c", "model-00001-of-00002.safetensors"}});
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  ASSERT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(data_of(*checkpoint.find("a")), kA.data);
  EXPECT_EQ(data_of(*checkpoint.find("b")), kB.data);
  EXPECT_EQ(data_of(*checkpoint.find("c")), kC.data);
}

TEST(Checkpoint, NamesExpectedAndFoundShapes) {
  const ScratchFolder folder;
  folder.write("model.safetensors", safetensors_of({kB, kC}));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  expect_error(
      [&] {
        checkpoint.require("b", {3, 2});
      },
      {"tensor 'b'", "model.safetensors", "expected shape [3, 2], found [2, 3]", "config.json"});
  expect_error([&] { checkpoint.require("b", {6}); }, {"expected shape [6], found [2, 3]"});
  expect_error([&] { checkpoint.require("z", {6}); }, {"tensor 'z'", "it is missing; expected shape [6]"});
  expect_error([&] { checkpoint.require("c", {1}); }, {"tensor 'c'", "its dtype is I64", "BF16, F16 and F32"});
}

TEST(Checkpoint, RefusesFoldersWithoutSafetensors) {
  const ScratchFolder folder;
  expect_error([&] { Checkpoint::open(folder.path()); },
               {"neither model.safetensors nor model.safetensors.index.json"});
  expect_error([&] { Checkpoint::open(folder.path() / "absent"); }, {"absent", "check the path"});
  folder.write("pytorch_model.bin", "");
  expect_error([&] { Checkpoint::open(folder.path()); }, {"safe_serialization=True"});
}

TEST(Checkpoint, RefusesShardNamesThatLeaveTheFolder) {
  for (const char* name :
       {"../a.safetensors", "/etc/passwd", "sub/a.safetensors", "sub\\a.safetensors", "", ".", ".."}) {
    const ScratchFolder folder;
    write_index(folder, {{"a", name}});
    expect_error([&] { Checkpoint::open(folder.path()); },
                 {"model.safetensors.index.json", "is not a plain file name", name});
  }
  const ScratchFolder folder;
  write_index(folder, {{"a", std::string("a\0b", 3)}});
  expect_error([&] { Checkpoint::open(folder.path()); }, {R"('a\x00b' is not a plain file name)"});
}

TEST(Checkpoint, FollowsLinksAndRefusesThoseThatLeadNowhere) {
  const ScratchFolder folder, blobs;
  const auto blob = blobs.write("0123abcd", safetensors_of({kA}));
  std::filesystem::create_symlink(blob, folder.path() / "1.safetensors");  // as the Hugging Face cache has them
  write_index(folder, {{"a", "1.safetensors"}});
  EXPECT_EQ(data_of(*Checkpoint::open(folder.path()).find("a")), kA.data);
  std::filesystem::remove(blob);
  expect_error([&] { Checkpoint::open(folder.path()); }, {"1.safetensors"});
  std::filesystem::remove(folder.path() / "1.safetensors");
  std::filesystem::create_symlink("1.safetensors", folder.path() / "1.safetensors");
  expect_error([&] { Checkpoint::open(folder.path()); }, {"1.safetensors"});
}

TEST(Checkpoint, RefusesIndexesThatDisagreeWithTheirShards) {
  const ScratchFolder folder;
  folder.write("1.safetensors", safetensors_of({kA}));
  folder.write("2.safetensors", safetensors_of({kA, kB}));
  write_index(folder, {{"a", "1.safetensors"}, {"c", "3.safetensors"}});
  expect_error([&] { Checkpoint::open(folder.path()); }, {"shard '3.safetensors' is missing"});
  write_index(folder, {{"a", "1.safetensors"}, {"b", "1.safetensors"}});
  expect_error([&] { Checkpoint::open(folder.path()); }, {"tensor 'b' is not in shard '1.safetensors'"});
  write_index(folder, {{"a", "1.safetensors"}, {"b", "2.safetensors"}});
  expect_error([&] { Checkpoint::open(folder.path()); },
               {"tensor 'a' is in two shards", "'1.safetensors'", "'2.safetensors'"});
}

TEST(Checkpoint, RefusesIndexesThatAreNotIndexes) {
  const ScratchFolder folder;
  for (const char* text : {"", "{", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})",
                           R"({"weight_map": {"a": "1", "a": "2"}})", "{\"weight_map\": {\"\xff\": \"1\"}}"}) {
    folder.write("model.safetensors.index.json", text);
    expect_error([&] { Checkpoint::open(folder.path()); }, {"open the checkpoint", "model.safetensors.index.json"});
  }
}

TEST(Checkpoint, PassesOnTheErrorsOfABrokenShard) {
  const ScratchFolder folder;
  folder.write("1.safetensors", safetensors_of({kA}).substr(0, 40));
  write_index(folder, {{"a", "1.safetensors"}});
  expect_error([&] { Checkpoint::open(folder.path()); }, {"1.safetensors", "the file has 40"});
}

}  // namespace
}  // namespace nodewright
