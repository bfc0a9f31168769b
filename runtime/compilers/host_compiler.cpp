// The compiler runs as a child process in a private temporary folder; nothing of the project's source tree is needed.
// It sees paths from that folder alone, the same in every process, so that ccache knows a kernel again.
#include "runtime/compilers/host_compiler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "kernels_src/kernel_sources.h"
#include "runtime/compilers/content_hash.h"
#include "runtime/compilers/include_lines.h"
#include "runtime/error.h"
#include "runtime/host/held_signals.h"
#include "runtime/host/path_trust.h"

extern char** environ;

namespace nodewright {
namespace {

namespace fs = std::filesystem;

// -ffp-contract=off: the same bits with and without fused multiply-add in the machine, and in checked images.
// -O1, also for debug builds: at -O0 a small model decodes at 2 tokens/s, and -O2 is no faster but takes half as long
// again to compile. _GLIBCXX_BITS_SPECFUN_H: <math.h> without C++17's special functions, a tenth of the time.
const std::vector<std::string> kOptions = {"-std=c++20",
                                           "-O1",
                                           "-march=native",
                                           "-fPIC",
                                           "-w",
                                           "-fvisibility=hidden",
                                           "-fno-rtti",
                                           "-fno-exceptions",
                                           "-ffp-contract=off",
                                           "-fno-math-errno",
                                           "-D_GLIBCXX_BITS_SPECFUN_H"};

// The compilations of the whole process, for stop_compiling().
struct Compilations {
  std::mutex mutex;
  std::condition_variable ended;
  std::set<pid_t> compilers;  // that run, or wait to be reaped
  int folders = 0;
  bool stopped = false;
};

Compilations& compilations() {
  static auto* all = new Compilations;  // never destroyed: threads that compile may outlive main()
  return *all;
}

// g++ and ccache run others, which would go on and write into the folder: a process is stopped before its children are
// read, so that it starts no more of them, and ends after them. Where the system lists no children, it ends alone.
void kill_with_children(pid_t process) {
  kill(process, SIGSTOP);
  std::ifstream children("/proc/" + std::to_string(process) + "/task/" + std::to_string(process) + "/children");
  for (pid_t child = 0; children >> child;) kill_with_children(child);
  kill(process, SIGKILL);
}

void demand_not_stopped() {
  if (compilations().stopped)
    throw Error({.doing = "start the host compiler", .detail = "the process is about to end"});
}

// One of them, from before its folder is made until that is gone.
class Compilation {
 public:
  Compilation() {
    const std::lock_guard lock(compilations().mutex);
    demand_not_stopped();
    ++compilations().folders;
  }
  ~Compilation() {
    const std::lock_guard lock(compilations().mutex);
    if (--compilations().folders == 0) compilations().ended.notify_all();
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
};

// A folder that goes away with all that is in it. Ctrl-C reaches this thread afterwards, and the compiler at once.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "nodewright-kernel-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw Error({.doing = "make a temporary folder for the host compiler",
                   .object = pattern,
                   .detail = strerror(errno),
                   .advice = "set TMPDIR to a folder that you may write to"});
    path_ = fs::absolute(pattern);  // commands run in it
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }
  const sigset_t& signals_before() const { return signals_.before(); }

 private:
  HeldSignals signals_;
  Compilation compilation_;
  fs::path path_;
};

void write_file(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush())
    throw Error(
        {.doing = "write a kernel source for the host compiler", .object = path.string(), .detail = strerror(errno)});
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

struct Outcome {
  int status;  // 0: success
  std::string output;
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// Ours, but what the compiler leaves when it is killed goes with the folder.
std::vector<std::string> environment_of(const TemporaryFolder& folder) {
  std::vector<std::string> variables{"TMPDIR=" + folder.path().string()};
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!std::string_view(*variable).starts_with("TMPDIR=")) variables.emplace_back(*variable);
  return variables;
}

// When it has ended. It is reaped under the lock: nobody kills another process that has got its number.
int status_of(pid_t child) {
  siginfo_t unused;
  while (waitid(P_PID, static_cast<id_t>(child), &unused, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  const std::lock_guard lock(compilations().mutex);
  int status = 0;
  waitpid(child, &status, 0);
  compilations().compilers.erase(child);
  return status;
}

// Standard output and standard error go to the file `name` of the folder, so that nothing can block on a full pipe.
Outcome run(const std::vector<std::string>& command, const TemporaryFolder& folder, const char* name) {
  const fs::path log = folder.path() / name;
  const std::vector<std::string> variables = environment_of(folder);
  const std::string program = fs::absolute(command[0]).string();
  const std::vector<char*> words = pointers(command), environment = pointers(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.path().c_str());
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &folder.signals_before());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  int problem = ECANCELED;
  {
    const std::lock_guard lock(compilations().mutex);
    if (!compilations().stopped)
      problem = posix_spawn(&child, program.c_str(), &actions, &attributes, words.data(), environment.data());
    if (problem == 0) compilations().compilers.insert(child);
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) return {problem, strerror(problem)};
  return {status_of(child), read_file(log)};
}

// The file that the shell would run; empty if there is none.
std::string find_on_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : std::string();
  const char* variable = getenv("PATH");
  std::istringstream folders(variable != nullptr ? variable : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code ignored;
    if (fs::is_regular_file(candidate, ignored) && access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return {};
}

std::string join(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// At most the first lines of what a compiler says: the rest repeats them.
std::string first_lines(const std::string& text, size_t limit) {
  return text.size() <= limit ? text : text.substr(0, limit) + " ...";
}

std::string describe_compiler(const std::string& path) {
  const TemporaryFolder folder;
  const Outcome version = run({path, "--version"}, folder, "version");
  if (version.status != 0)
    throw Error({.doing = "ask the host compiler for its version",
                 .object = path,
                 .detail = first_lines(version.output, 400),
                 .advice = "install g++, or set NODEWRIGHT_CXX to a C++20 compiler"});
  // What -march=native stands for on this machine, as the compiler's own macros say it.
  const Outcome macros = run({path, "-march=native", "-dM", "-E", "-x", "c++", "/dev/null"}, folder, "macros");
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : macros.output) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  char machine[24];
  snprintf(machine, sizeof machine, "%016llx", static_cast<unsigned long long>(hash));
  return path + "; " + version.output.substr(0, version.output.find('\n')) + "; macros " + machine + "; " +
         join(kOptions);
}

// ---- the dialect as g++ has read it: a quarter of the time in which a kernel compiles ----

constexpr const char* kDialect = "kernels_src/device/dialect.cuh";

// Names the precompiled dialect of this request; empty where it can have none. The compiler reads it before the
// prelude, so that a prelude with macros goes without. Clang asks for the files that it was made of, which are gone;
// ccache keeps whole kernels.
std::string dialect_name(const HostCompileRequest& request, const std::string& compiler) {
  if (request.keep.empty() || request.prelude.find('#') != std::string::npos) return {};
  const std::string identity = host_compiler_identity();
  std::error_code ignored;
  if (identity.find("clang") != std::string::npos || fs::canonical(compiler, ignored).filename() == "ccache") return {};
  std::set<std::string> reached;
  std::vector<std::string> open = {kDialect};
  while (!open.empty()) {
    const auto source = request.sources.find(open.back());
    open.pop_back();
    if (source == request.sources.end() || !reached.insert(source->first).second) continue;
    for (const IncludeLine& line : include_lines(source->second)) open.emplace_back(line.path);
  }
  if (reached.empty()) return {};
  ContentHash hash;
  hash.add_field(identity);
  hash.add_field(request.checked ? "checked" : "plain");
  for (const std::string& path : reached) {
    hash.add_field(path);
    hash.add_field(request.sources.at(path));
  }
  return "dialect-" + to_hex(hash.finish()).substr(0, 32) + ".h";
}

bool is_trusted(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  const bool trusted = why_untrusted(file, path).empty();
  close(file);
  return trusted;
}

fs::path precompiled(const fs::path& header) { return header.string() + ".gch"; }

// Puts a finished file into its place at once: a reader never sees half of one.
bool publish(const fs::path& file, const fs::path& as) {
  const fs::path half = as.string() + "." + std::to_string(getpid());
  std::error_code failure, ignored;
  fs::copy_file(file, half, fs::copy_options::overwrite_existing, failure);
  if (!failure) fs::permissions(half, fs::perms::owner_read | fs::perms::owner_write, failure);
  if (!failure) fs::rename(half, as, failure);
  if (failure) fs::remove(half, ignored);
  return !failure;
}

// The header that -include names, beside which its precompiled form lies; empty where there is none. `compile`: with
// all options.
fs::path precompiled_dialect(const HostCompileRequest& request, const std::vector<std::string>& compile,
                             const TemporaryFolder& folder) {
  const std::string name = dialect_name(request, compile[0]);
  if (name.empty()) return {};
  static std::mutex mutex;              // one thread makes it for all
  static std::map<fs::path, int> left;  // kernels until one is made: it takes what three of them gain
  const std::lock_guard lock(mutex);
  fs::path header = fs::absolute(request.keep) / name;
  if (is_trusted(precompiled(header))) return header;
  int& until = left.try_emplace(header, 3).first->second;
  if (until > 0) {
    --until;
    return {};
  }
  write_file(folder.path() / "dialect.h", "#include \"" + std::string(kDialect) + "\"\n");
  const Outcome made = run(with(compile, {"-x", "c++-header", "dialect.h", "-o", "dialect.h.gch"}), folder, "log");
  if (made.status == 0 && publish(folder.path() / "dialect.h.gch", precompiled(header))) return header;
  until = std::numeric_limits<int>::max();
  return {};
}

}  // namespace

bool stop_compiling(std::chrono::milliseconds patience) {
  Compilations& all = compilations();
  std::unique_lock lock(all.mutex);
  all.stopped = true;
  for (const pid_t compiler : all.compilers) kill_with_children(compiler);
  return all.ended.wait_for(lock, patience, [&] { return all.folders == 0; });
}

std::string host_compiler_path() {
  if (const char* chosen = getenv("NODEWRIGHT_CXX"); chosen != nullptr && *chosen != 0) {
    std::string found = find_on_path(chosen);
    if (!found.empty()) return found;
    throw Error({.doing = "find the host compiler that NODEWRIGHT_CXX names",
                 .object = chosen,
                 .detail = "no such program",
                 .advice = "set NODEWRIGHT_CXX to the path of a C++20 compiler, or unset it",
                 .fault = Fault::usage});
  }
  for (const char* name : {"g++", "c++", "clang++"})
    if (std::string found = find_on_path(name); !found.empty()) return found;
  throw Error({.doing = "find a host compiler for the CPU driver's kernels",
               .object = "g++",
               .detail = "neither g++, c++ nor clang++ is on the PATH",
               .advice = "install g++ (Debian: apt-get install g++), or set NODEWRIGHT_CXX to a C++20 compiler"});
}

std::string host_compiler_identity() {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;  // by path: asking takes two processes
  const std::string path = host_compiler_path();
  const std::lock_guard lock(mutex);
  auto& identity = known[path];
  if (identity.empty()) identity = describe_compiler(path);
  return identity;
}

std::vector<std::byte> compile_for_cpu(const HostCompileRequest& request) {
  const auto found = std::ranges::find_if(
      request.sources, [&](const auto& source) { return kernel_name_of(source.first) == request.kernel; });
  if (found == request.sources.end())
    throw Error({.doing = "compile a kernel for the CPU driver",
                 .object = request.kernel,
                 .detail = "no source kernels_src/" + request.kernel + ".cu"});
  const auto& [source, text] = *found;
  const std::string compiler = host_compiler_path();
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  for (const auto& [path, contents] : request.sources) write_file(root / path, contents);
  // In the file itself, not in one that is included: ccache keeps few variants of one text.
  write_file(root / source, request.prelude + "#line 1 \"" + source + "\"\n" + std::string(text));

  std::vector<std::string> compile = {compiler};
  compile.insert(compile.end(), kOptions.begin(), kOptions.end());
  if (request.checked) compile.insert(compile.end(), {"-fsanitize=thread", "-DNODEWRIGHT_CHECKED"});
  compile.emplace_back("-I.");
  compile.insert(compile.end(), request.extra.begin(), request.extra.end());
  const std::vector<std::string> plain = with(compile, {"-c", "-x", "c++", source, "-o", "kernel.o"});
  // Linked on its own: with -fsanitize=thread the driver program would link the sanitizer's library.
  const std::vector<std::string> link = {compiler, "-shared", "-Wl,-z,defs", "kernel.o", "-o", "kernel.so", "-lm"};
  const fs::path dialect = precompiled_dialect(request, compile, folder);
  const auto compiled = [&] {
    if (!dialect.empty() && run(with(plain, {"-include", dialect.string()}), folder, "log").status == 0)
      return Outcome{0, {}};
    Outcome outcome = run(plain, folder, "log");
    std::error_code ignored;
    if (outcome.status == 0 && !dialect.empty()) fs::remove(precompiled(dialect), ignored);  // it is damaged
    return outcome;
  };
  for (const bool links : {false, true}) {
    const Outcome outcome = links ? run(link, folder, "log") : compiled();
    if (outcome.status == 0) continue;
    throw Error({.doing = request.checked ? "compile a checked kernel for the CPU driver"
                                          : "compile a kernel for the CPU driver",
                 .object = request.kernel,
                 .detail = first_lines(outcome.output, 4000),
                 .advice = "see whether the compiler knows C++20: " + compiler + " --version"});
  }
  const std::string bytes = read_file(root / "kernel.so");
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

}  // namespace nodewright
