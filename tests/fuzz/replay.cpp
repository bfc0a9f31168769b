// A fuzzer without libFuzzer: replay_NAME CORPUS [SECONDS] [SEED] runs every file of the folder, then seeded mutations
// of them for so long. It knows no coverage: what it is for is to run wherever the tests do. A finding ends the
// process; the input that is being tried lies in a file that is named at the start.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

// No input may make a reader ask for more at once than the largest table of a tokenizer (4 Mi ids of 40 bytes).
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=512:allocator_may_return_null=0"; }

namespace {

using Random = std::mt19937_64;

constexpr unsigned kLongestSeconds = 600;          // of one input that hangs, under the sanitizers
constexpr size_t kLargestInput = size_t{1} << 20;  // bytes that mutations may grow to

// What small files are made of, and numbers at the edges of their types.
constexpr const char* kWords[] = {"{",
                                  "}",
                                  "[",
                                  "]",
                                  "\"",
                                  ",",
                                  ":",
                                  "null",
                                  "true",
                                  "-1",
                                  "0",
                                  "1e999",
                                  "1.5",
                                  "[[[[[[[[",
                                  "\\u0000",
                                  "\xff",
                                  "\xc3",
                                  "9223372036854775807",
                                  "9223372036854775808",
                                  "18446744073709551615",
                                  "4294967296",
                                  "4194303",
                                  "{\"a\":",
                                  "(?:a*)*",
                                  "\n",
                                  "\0"};

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t below(Random& random, size_t end) { return end == 0 ? 0 : random() % end; }

// Some bytes of `text`.
std::string piece(Random& random, const std::string& text) {
  const size_t at = below(random, text.size());
  return text.substr(at, below(random, std::min<size_t>(text.size() - at, 64)) + 1);
}

std::string mutated(Random& random, const std::vector<std::string>& corpus) {
  std::string text = corpus[below(random, corpus.size())];
  for (size_t n = below(random, 6) + 1; n > 0; --n) {
    const size_t at = below(random, text.size() + 1);
    switch (below(random, 7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(random, 8)));
        break;
      case 2:
        text.erase(at, below(random, 16) + 1);
        break;
      case 3:
        text.insert(at, kWords[below(random, std::size(kWords))]);
        break;
      case 4:
        text.insert(at, piece(random, corpus[below(random, corpus.size())]));
        break;
      case 5:
        text.insert(at, piece(random, text));
        break;
      default:
        text.resize(at);
    }
  }
  text.resize(std::min(text.size(), kLargestInput));
  return text;
}

// The input under trial, in a file that survives the process.
class Kept {
 public:
  explicit Kept(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + "." + std::to_string(::getpid()) + ".input")),
        descriptor_(::open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600)) {}
  ~Kept() {
    ::close(descriptor_);
    std::error_code unused;
    std::filesystem::remove(path_, unused);
  }
  void keep(const std::string& input) const {
    const auto size = static_cast<ssize_t>(input.size());
    nodewright::fuzz::require(
        ::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, input.data(), input.size(), 0) == size,
        "the input can be kept");
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

void try_one(const Kept& kept, const std::string& input) {
  kept.keep(input);
  ::alarm(kLongestSeconds);  // ends a process that hangs
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  ::alarm(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() < 2) {
    std::fprintf(stderr, "usage: replay_NAME CORPUS [SECONDS] [SEED]\n");
    return 2;
  }
  const auto seconds = std::chrono::duration<double>(words.size() > 2 ? std::stod(words[2]) : 0);
  const unsigned long seed = words.size() > 3 ? std::stoul(words[3]) : 1;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(words[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // the same mutations on every machine
  if (files.empty()) {
    std::fprintf(stderr, "replay: no input in %s\n", words[1].c_str());
    return 1;
  }
  const std::filesystem::path program = words[0];
  const Kept kept(program.filename().string());
  std::printf("the input being tried: %s; seed %lu\n", kept.path().c_str(), seed);
  std::fflush(stdout);
  std::vector<std::string> corpus;
  for (const auto& file : files) try_one(kept, corpus.emplace_back(contents(file)));

  Random random(seed);
  size_t mutations = 0;
  const auto start = std::chrono::steady_clock::now();
  for (; std::chrono::steady_clock::now() - start < seconds; ++mutations) try_one(kept, mutated(random, corpus));
  std::printf("%zu inputs and %zu mutations of them\n", corpus.size(), mutations);
  return 0;
}
