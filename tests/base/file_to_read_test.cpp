// What stands in the place of a file, and what is said of it.
#include "base/file_to_read.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMost = 1 << 20;

TEST(FileToRead, SaysWhatIsThereInstead) {
  const ScratchFolder folder;
  const auto told = [&](const fs::path& path, bool takes_pipes = false) {
    return error_of([&] { ::close(open_to_read(path, {.doing = "read the plan", .takes_pipes = takes_pipes})); });
  };
  const auto holds = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_TRUE(text.starts_with("cannot read the plan '")) << text;
  };
  const fs::path pipe = folder.path() / "pipe", link = folder.path() / "link", socket_file = folder.path() / "socket";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("/nowhere/blob", link);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::strncpy(address.sun_path, socket_file.c_str(), sizeof(address.sun_path) - 1);
  const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  holds(told(folder.path()), "it is a folder, not a file; try: ");
  holds(told(folder.path(), true), "it is a folder, not a file");
  holds(told(pipe), "it is a named pipe (FIFO)");
  holds(told(socket_file), "it is a socket");
  holds(told("/dev/zero"), "it is a device");
  holds(told(link), "it is a link to /nowhere/blob, where there is no file");
  holds(told(folder.path() / "absent"), "No such file");
  ::close(listening);
}

TEST(FileToRead, IsPresentAlsoAsALinkThatLeadsNowhere) {
  const ScratchFolder folder;
  EXPECT_FALSE(is_present(folder.path() / "link"));
  fs::create_symlink("/nowhere", folder.path() / "link");
  EXPECT_TRUE(is_present(folder.path() / "link"));
  EXPECT_TRUE(is_present(folder.path()));
}

TEST(FileToRead, IsReadWholeFromAFileAndFromAPipe) {
  const ScratchFolder folder;
  const std::string text(300'000, 'x');
  EXPECT_EQ(read_whole_file(folder.write("file", text), kMost, {}), text);
  EXPECT_EQ(read_whole_file(folder.write("empty", ""), kMost, {}), "");
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { write_text(pipe, text); });
  EXPECT_EQ(read_whole_file(pipe, kMost, {.takes_pipes = true}), text);
  writer.join();
}

TEST(FileToRead, EndsAtItsLimit) {
  const ScratchFolder folder;
  EXPECT_EQ(read_whole_file(folder.write("file", "abc"), 3, {}), "abc");
  for (const fs::path& path : {folder.path() / "file", fs::path("/dev/zero")})
    EXPECT_NE(error_of([&] { read_whole_file(path, 2, {.takes_pipes = true}); }).find("more than 2 bytes"),
              std::string::npos);
}

}  // namespace
}  // namespace nodewright
