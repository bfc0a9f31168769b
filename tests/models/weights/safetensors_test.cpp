// Safetensors headers, well-formed and hostile.
#include "models/weights/safetensors.h"

#include "tests/models/checkpoint_files.h"
#include "tests/support/processor_time.h"

namespace nodewright {
namespace {

using test::safetensors_bytes;

std::vector<TensorInfo> read_bytes(const std::string& bytes) {
  const ScratchFolder folder;
  const CheckedFile file(folder.write("model.safetensors", bytes));
  return read_safetensors_header(file);
}

// Reads a file with this header and `data_bytes` of data.
std::vector<TensorInfo> read_header(const std::string& header, size_t data_bytes) {
  return read_bytes(safetensors_bytes(header, std::string(data_bytes, '\1')));
}

void expect_header_refused(const std::string& header, size_t data_bytes,
                           std::initializer_list<std::string_view> words) {
  expect_error([&] { read_header(header, data_bytes); }, words);
  expect_error([&] { read_header(header, data_bytes); },
               {"cannot read the safetensors header of", "model.safetensors"});
}

TEST(Safetensors, TellsEveryTensorAndWhereItsBytesAre) {
  const std::string header =
      R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},"__metadata__":{"format":"pt"},)"
      R"("a":{"data_offsets":[0,12],"shape":[2,3],"dtype":"BF16"}}   )";
  const std::vector<TensorInfo> tensors = read_header(header, 20);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, Dtype::kBF16);
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensors[0].offset, 8 + header.size());
  EXPECT_EQ(tensors[0].bytes, 12u);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].offset, 8 + header.size() + 12);
}

TEST(Safetensors, AllowsScalarsEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(read_header("{}", 0).empty());
  EXPECT_TRUE(read_header(R"({"__metadata__":{}})", 0).empty());
  const auto tensors = read_header(R"({"full":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
                                   R"("none":{"dtype":"F32","shape":[5,0],"data_offsets":[4,4]},)"
                                   R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                                   7);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "scalar");
  EXPECT_TRUE(tensors[0].shape.empty());
  EXPECT_EQ(tensors[1].name, "none");
  EXPECT_EQ(tensors[1].bytes, 0u);
  EXPECT_EQ(tensors[2].name, "full");
}

TEST(Safetensors, KnowsEveryDtypeOfTheFormat) {
  for (const char* name : {"BOOL", "U8",  "I8",  "I16", "U16",     "I32",     "U32",     "I64",     "U64",     "BF16",
                           "F16",  "F32", "F64", "C64", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"}) {
    const auto tensors =
        read_header(std::string(R"({"t":{"dtype":")") + name + R"(","shape":[0],"data_offsets":[0,0]}})", 0);
    EXPECT_EQ(dtype_name(tensors.at(0).dtype), name);
  }
  EXPECT_EQ(read_header(R"({"t":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3).size(), 1u);
  expect_header_refused(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, {"12 bits, not a whole number"});
}

TEST(Safetensors, RefusesFilesTooShortForTheirHeader) {
  expect_error([] { read_bytes(""); }, {"the file has 0 bytes"});
  expect_error([] { read_bytes("1234567"); }, {"the file has 7 bytes"});
  expect_error([] { read_bytes(std::string("\x09\0\0\0\0\0\0\0{}", 10)); }, {"claims 9 bytes", "the file has 10"});
  const std::string whole = safetensors_bytes(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_THROW(read_bytes(whole.substr(0, bytes)), Error) << "cut to " << bytes << " bytes";
  EXPECT_EQ(read_bytes(whole).size(), 1u);
}

TEST(Safetensors, RefusesHeadersBeyondTheLimitWithoutAllocatingThem) {
  expect_error([] { read_bytes(std::string(8, '\xff')); }, {"18446744073709551615 bytes", "allows 100000000"});
  expect_error([] { read_bytes(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)); }, {"claims 100000001 bytes"});
}

TEST(Safetensors, RefusesTextThatIsNotAJsonObject) {
  expect_header_refused("", 0, {"does not start with '{'"});
  expect_header_refused(" {}", 0, {"does not start with '{'"});
  expect_header_refused("[]", 0, {"does not start with '{'"});
  expect_header_refused("{", 0, {"not valid JSON"});
  expect_header_refused("{} {}", 0, {"not valid JSON"});
  expect_header_refused("{\"t\xff\":{}}", 0, {"not valid JSON"});
  expect_header_refused(std::string("{}\0", 3), 0, {"not valid JSON"});
}

TEST(Safetensors, RefusesOverlapsHolesAndTrailingBytes) {
  const auto two = [](int begin, int end) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[)" +
           std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) +
           "]}}";
  };
  EXPECT_EQ(read_header(two(4, 8), 8).size(), 2u);
  expect_header_refused(two(3, 8), 8, {"'b' begins at 3, inside the previous one, which ends at 4"});
  expect_header_refused(two(0, 4), 4, {"begins at 0, inside"});
  expect_header_refused(two(5, 8), 8, {"'b' begins at 5, leaving a hole", "ends at 4"});
  expect_header_refused(two(4, 8), 9, {"the tensors end at 8", "holds 9 bytes"});
  expect_header_refused(two(4, 8), 7, {"the tensors end at 8", "holds 7 bytes"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5, {"begins at 1"});
  expect_header_refused("{}", 1, {"the tensors end at 0", "holds 1 bytes"});
}

TEST(Safetensors, RefusesShapesThatDisagreeWithTheirBytes) {
  expect_header_refused(R"({"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,8]}})", 8,
                        {"'t' F32 [2, 2] needs 16 bytes, its data_offsets hold 8"});
  expect_header_refused(R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,0]}})", 0, {"needs 4 bytes"});
  expect_header_refused(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, {"[1, 0], which end before"});
}

TEST(Safetensors, RefusesOverflowingShapesAndOffsets) {
  // 2^62 * 4 bytes wraps to 0 in 64 bits; so does 2^32 * 2^32.
  expect_header_refused(R"({"t":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
                        {"2^64 - 1 bits"});
  expect_header_refused(R"({"t":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                        {"2^64 - 1 bits"});
  expect_header_refused(R"({"t":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0]}})", 0,
                        {"9223372036854775808, beyond 2^63 - 1"});
  expect_header_refused(R"({"t":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0]}})", 0,
                        {"no unsigned 64-bit integer"});
  expect_header_refused(
      R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615]}})", 0,
      {"begins at 18446744073709551615"});
}

TEST(Safetensors, RefusesDuplicateNamesAndFields) {
  const std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expect_header_refused(R"({"a":)" + tensor + R"(,"a":)" + tensor + "}", 0, {"the name 'a' appears twice"});
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, {"'__metadata__' appears twice"});
  expect_header_refused(R"({"__metadata__":{"k":"1","k":"2"}})", 0, {"'k' appears twice in __metadata__"});
  expect_header_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
                        {"two fields 'dtype'"});
}

TEST(Safetensors, RefusesFieldsThatAreMissingUnknownOrOfTheWrongType) {
  expect_header_refused(R"({"a":{"shape":[0],"data_offsets":[0,0]}})", 0, {"'a' has no dtype"});
  expect_header_refused(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0, {"'a' has no shape"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0]}})", 0, {"'a' has no data_offsets"});
  expect_header_refused(R"({"a":{"dtype":"U9","shape":[0],"data_offsets":[0,0]}})", 0, {"unknown dtype 'U9'"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", 0, {"unknown field 'x'"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})", 0, {"1 data_offsets, expected 2"});
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})", 0,
                        {"more than two data_offsets"});
  for (const char* value : {"null", "true", "1", "-1", "1.5", "\"U8\"", "{}", "[]", "[[]]"}) {
    const std::string text = value;
    expect_header_refused(R"({"a":)" + (text == "{}" ? "[{}]" : text) + "}", 0, {"'a' has "});
    expect_header_refused(R"({"a":{"dtype":"U8","shape":[)" + text + R"(,-1],"data_offsets":[0,0]}})", 0, {"'a' has "});
    expect_header_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[)" + text + R"(,-1]}})", 0, {"'a' has "});
    if (text != "\"U8\"")
      expect_header_refused(R"({"a":{"dtype":)" + text + R"(,"shape":[0],"data_offsets":[0,0]}})", 0, {"'a' has "});
    if (text != "\"U8\"") expect_header_refused(R"({"__metadata__":{"k":)" + text + "}}", 0, {"in __metadata__"});
  }
  expect_header_refused(R"({"__metadata__":"pt"})", 0, {"in __metadata__"});
}

TEST(Safetensors, RefusesDeepNestingWhereItOpens) {
  constexpr size_t kDepth = 10'000'000;
  const std::string deep = R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":)" + std::string(kDepth, '[');
  const double seconds = test::seconds_of(
      [&] { expect_error([&] { read_header(deep, 0); }, {"an array in a place where the format has none"}); });
  EXPECT_LT(seconds, test::allowed_seconds(1));
}

TEST(Safetensors, ReadsAHundredThousandTensorsInUnderTwoSeconds) {
  constexpr int kTensors = 100'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    const std::string at = std::to_string(i), end = std::to_string(i + 1);
    header += (i ? ",\"model.layers.tensor" : "\"model.layers.tensor") + at +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + at + "," + end + "]}";
  }
  header += "}";
  EXPECT_LT(test::seconds_of([&] { EXPECT_EQ(read_header(header, kTensors).size(), static_cast<size_t>(kTensors)); }),
            test::allowed_seconds(2));
}

TEST(Safetensors, ShortensHostileNamesInErrors) {
  try {
    read_header(R"({")" + std::string(1'000'000, 'n') + R"(":{}})", 0);
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 1000u);
  }
}

TEST(CheckedFile, TellsWhenTheFileShrankWhileOpen) {
  const ScratchFolder folder;
  const CheckedFile file(folder.write("model.safetensors", std::string(100, 'x')));
  std::filesystem::resize_file(file.path(), 60);
  std::vector<std::byte> bytes(50);
  file.read(10, bytes);
  expect_error([&] { file.read(20, bytes); },
               {"cannot read", "model.safetensors", "50 bytes from offset 20", "ends after 60", "had 100"});
}

TEST(CheckedFile, KeepsTheFileItOpenedWhenAnotherTakesItsName) {
  const ScratchFolder folder;
  const CheckedFile file(folder.write("model.safetensors", "old bytes"));
  std::filesystem::rename(folder.write("other", "new"), file.path());
  std::vector<std::byte> bytes(9);
  file.read(0, bytes);
  EXPECT_EQ(std::memcmp(bytes.data(), "old bytes", 9), 0);
}

TEST(CheckedFile, RefusesWhatIsNotARegularFile) {
  const ScratchFolder folder;
  expect_error([&] { CheckedFile file(folder.path() / "absent"); }, {"cannot open", "absent", "No such file"});
  expect_error([&] { CheckedFile file(folder.path()); }, {"cannot open", "it is a folder, not a file"});
}

}  // namespace
}  // namespace nodewright
