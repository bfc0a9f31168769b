#include "runtime/compilers/image_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <thread>

#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

const Digest kKey = hash_of(std::as_bytes(std::span("key")));
using Found = ImageStore::Found;

TEST(ImageStore, GivesBackWhatWasWritten) {
  const ScratchFolder folder;
  const ImageStore store(folder.path() / "made" / "on demand");
  EXPECT_EQ(store.read("k", kKey).found, Found::no);
  EXPECT_EQ(store.write("k", kKey, bytes_of("image")), "");
  const ImageStore::Read read = store.read("k", kKey);
  EXPECT_EQ(read.found, Found::yes);
  EXPECT_EQ(read.image, bytes_of("image"));
}

TEST(ImageStore, RefusesAFileCutAtAnyByte) {
  const ScratchFolder folder;
  const ImageStore store(folder.path());
  ASSERT_EQ(store.write("k", kKey, bytes_of("image")), "");
  const std::string whole = read_text(store.file_of("k", kKey));
  for (size_t length = 0; length < whole.size(); ++length) {
    write_text(store.file_of("k", kKey), whole.substr(0, length));
    ASSERT_EQ(store.read("k", kKey).found, Found::damaged) << length;
  }
  write_text(store.file_of("k", kKey), whole + "x");
  EXPECT_EQ(store.read("k", kKey).found, Found::damaged);
}

TEST(ImageStore, RefusesAFileWithAnyByteAltered) {
  const ScratchFolder folder;
  const ImageStore store(folder.path());
  ASSERT_EQ(store.write("k", kKey, bytes_of("image")), "");
  const std::string whole = read_text(store.file_of("k", kKey));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string altered = whole;
    altered[i] = static_cast<char>(altered[i] ^ 0x41);
    write_text(store.file_of("k", kKey), altered);
    ASSERT_EQ(store.read("k", kKey).found, Found::damaged) << i;
  }
}

TEST(ImageStore, RefusesTheFileOfAnotherKey) {
  const ScratchFolder folder;
  const ImageStore store(folder.path());
  const Digest other = hash_of(std::as_bytes(std::span("other")));
  ASSERT_EQ(store.write("k", other, bytes_of("image")), "");
  std::filesystem::rename(store.file_of("k", other), store.file_of("k", kKey));
  EXPECT_EQ(store.read("k", kKey).found, Found::damaged);
}

TEST(ImageStore, WithoutAUsableFolderSaysWhyAndStaysShut) {
  const ScratchFolder folder;
  write_text(folder.path() / "file", "a regular file");
  for (const std::filesystem::path& path :
       {folder.path() / "file" / "below", std::filesystem::path("/proc/nodewright"), std::filesystem::path()}) {
    const ImageStore store(path);
    EXPECT_TRUE(store.folder().empty());
    EXPECT_NE(store.problem(), "") << path;
    EXPECT_EQ(store.read("k", kKey).found, Found::no);
    EXPECT_NE(store.write("k", kKey, bytes_of("image")), "");
  }
}

// A limit on a file's size fails the write as a full disk does, with some of the bytes written.
TEST(ImageStore, OnAFullDiskReportsTheWriteAndLeavesNoPartOfTheFile) {
  const ScratchFolder folder;
  const ImageStore store(folder.path());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string problem = store.write("k", kKey, bytes_of(std::string(10'000, 'x')));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_NE(problem.find("cannot write " + folder.path().string()), std::string::npos) << problem;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(store.read("k", kKey).found, Found::no);
}

TEST(ImageStore, OfAFolderThatGoesAwayReportsTheWrite) {
  const ScratchFolder folder;
  const ImageStore store(folder.path() / "gone");
  std::filesystem::remove(folder.path() / "gone");
  EXPECT_NE(store.write("k", kKey, bytes_of("image")).find("No such file"), std::string::npos);
  EXPECT_EQ(store.read("k", kKey).found, Found::no);
}

TEST(ImageStore, ReadersSeeWholeImagesWhileTwoWritersWrite) {
  const ScratchFolder folder;
  const ImageStore store(folder.path());
  const std::vector<std::byte> image(100000, std::byte{7});
  ASSERT_EQ(store.write("k", kKey, image), "");
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w)
    writers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(store.write("k", kKey, image), "");
    });
  for (int i = 0; i < 50; ++i) {
    const ImageStore::Read read = store.read("k", kKey);
    EXPECT_EQ(read.found, Found::yes);
    EXPECT_EQ(read.image, image);
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(folder.files().size(), 1u) << "a temporary file was left";
}

TEST(ImageStore, TakesItsFolderFromTheEnvironment) {
  {
    const EnvironmentValue named("NODEWRIGHT_CACHE", "/a/b");
    EXPECT_EQ(ImageStore::default_folder(), "/a/b");
  }
  const EnvironmentValue unnamed("NODEWRIGHT_CACHE", ""), xdg("XDG_CACHE_HOME", ""), home("HOME", "/h");
  EXPECT_EQ(ImageStore::default_folder(), "/h/.cache/nodewright");
}

}  // namespace
}  // namespace nodewright
