#include "runtime/host/path_trust.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/compilers/image_store.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kSomebody = 65534;

std::string why_of_file(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string why = why_untrusted(descriptor, path);
  close(descriptor);
  return why;
}

// Only root gives files away.
bool gives_away(const fs::path& path) { return chown(path.c_str(), kSomebody, kSomebody) == 0; }

TEST(PathTrust, TakesAFileThatNobodyElseMayWrite) {
  const ScratchFolder folder;
  const fs::path file = folder.write("k", "code");
  for (const mode_t mode : {0600, 0644, 0755, 0444}) {
    chmod(file.c_str(), mode);
    EXPECT_EQ(why_of_file(file), "") << mode;
  }
}

TEST(PathTrust, NamesTheModeOfAFileThatOthersMayWrite) {
  const ScratchFolder folder;
  const fs::path file = folder.write("k", "code");
  for (const mode_t mode : {0620, 0602, 0666}) {
    chmod(file.c_str(), mode);
    EXPECT_NE(why_of_file(file).find("others may write " + file.string()), std::string::npos) << why_of_file(file);
  }
}

TEST(PathTrust, NamesTheOwnerOfAFileOfSomebodyElse) {
  const ScratchFolder folder;
  const fs::path file = folder.write("k", "code");
  chmod(file.c_str(), 0644);
  if (gives_away(file))
    EXPECT_NE(why_of_file(file).find("belongs to user 65534"), std::string::npos) << why_of_file(file);
  else
    EXPECT_EQ(why_of_file("/etc/passwd"), "") << "root's";
}

TEST(PathTrust, OfAFolderLooksAtThoseAboveIt) {
  const ScratchFolder folder;
  const fs::path above = folder.path() / "above", own = above / "own";
  fs::create_directories(own);
  chmod(own.c_str(), 0700);
  chmod(above.c_str(), 0755);
  EXPECT_EQ(why_untrusted_folder(own), "");
  chmod(above.c_str(), 0777);
  EXPECT_NE(why_untrusted_folder(own).find("others may write " + above.string()), std::string::npos);
  chmod(above.c_str(), 01777);
  EXPECT_EQ(why_untrusted_folder(own), "") << "as below /tmp";
  chmod(own.c_str(), 0777);
  EXPECT_NE(why_untrusted_folder(own).find("its mode is 0777"), std::string::npos) << why_untrusted_folder(own);
  fs::create_directory_symlink(own, folder.path() / "link");
  EXPECT_NE(why_untrusted_folder(folder.path() / "link"), "") << "the folder that it leads to";
}

TEST(PathTrust, OfAFolderOfSomebodyElseNamesHim) {
  const ScratchFolder folder;
  if (!gives_away(folder.path())) return;
  EXPECT_NE(why_untrusted_folder(folder.path()).find("belongs to user 65534"), std::string::npos);
}

const Digest kOfTrust = hash_of(std::as_bytes(std::span("trust")));

TEST(ImageStore, ReadsNothingThatSomebodyElseMayHaveWritten) {
  const ScratchFolder folder;
  const ImageStore store(folder.path() / "cache");
  const std::vector<std::byte> image(3, std::byte{1});
  ASSERT_EQ(store.write("k", kOfTrust, image), "");
  const fs::path file = store.file_of("k", kOfTrust);
  chmod(file.c_str(), 0666);
  const ImageStore::Read read = store.read("k", kOfTrust);
  EXPECT_EQ(read.found, ImageStore::Found::untrusted);
  EXPECT_TRUE(read.image.empty());
  EXPECT_NE(read.problem.find(file.string()), std::string::npos) << read.problem;
  EXPECT_EQ(store.write("k", kOfTrust, image), "") << "it is replaced";
  EXPECT_EQ(store.read("k", kOfTrust).found, ImageStore::Found::yes);
}

TEST(ImageStore, NeitherReadsNorWritesInAFolderThatOthersMayWrite) {
  const ScratchFolder folder;
  const std::vector<std::byte> image(3, std::byte{1});
  ASSERT_EQ(ImageStore(folder.path()).write("k", kOfTrust, image), "");
  chmod(folder.path().c_str(), 0777);
  const ImageStore store(folder.path());
  EXPECT_NE(store.problem().find("mode is 0777"), std::string::npos) << store.problem();
  EXPECT_EQ(store.read("k", kOfTrust).found, ImageStore::Found::untrusted);
  EXPECT_EQ(store.write("other", kOfTrust, image), store.problem());
  EXPECT_EQ(folder.files().size(), 1u);
}

TEST(ImageStore, MakesItsFoldersForThisUserAlone) {
  const ScratchFolder folder;
  const mode_t before = umask(0);
  const ImageStore store(folder.path() / "a" / "b");
  umask(before);
  struct stat found {};
  for (const fs::path& made : {folder.path() / "a", folder.path() / "a" / "b"}) {
    ASSERT_EQ(stat(made.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0700u) << made;
  }
}

TEST(ImageStore, DoesNotWaitForAPipeInPlaceOfAnImage) {
  const ScratchFolder folder;
  const ImageStore store(folder.path());
  ASSERT_EQ(mkfifo(store.file_of("k", kOfTrust).c_str(), 0600), 0);
  EXPECT_EQ(store.read("k", kOfTrust).found, ImageStore::Found::untrusted);
}

}  // namespace
}  // namespace nodewright
