#include "cli/options/folders/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "cli/options/folders/strange_folder.h"
#include "runtime/error.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOfModels = "models--";

bool exists_at(const fs::path& path) {
  std::error_code unused;  // what cannot be looked at is as good as not there
  return fs::exists(path, unused);
}

std::optional<fs::path> folder_of_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<fs::path>(value);
}

// As huggingface_hub finds it.
fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto folder = folder_of_variable(name)) return *folder;
  if (const auto home = folder_of_variable("HF_HOME")) return *home / "hub";
  if (const auto cache = folder_of_variable("XDG_CACHE_HOME")) return *cache / "huggingface" / "hub";
  if (const auto home = folder_of_variable("HOME")) return *home / ".cache" / "huggingface" / "hub";
  return {};
}

// OWNER/NAME in the letters that the hub allows.
bool is_hub_name(const std::string& words) {
  const size_t slash = words.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == words.size() || words.starts_with('.')) return false;
  return std::ranges::count(words, '/') == 1 && std::ranges::all_of(words, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '/' || c == '-' || c == '_' || c == '.';
         });
}

// The first word of such a file; empty where it names no folder.
std::string main_revision(const fs::path& file) {
  constexpr uint64_t kLongestRevision = 4096;  // bytes
  std::error_code unused;
  if (!fs::is_regular_file(file, unused)) return "";
  std::string text = read_whole_file(file, kLongestRevision, {.doing = "read the revision of a model"});
  text.resize(std::min(text.find_first_of(" \t\r\n"), text.size()));
  return text.find('/') == std::string::npos ? text : "";
}

// The snapshot of a folder models--X--Y: the one that refs/main names, else the only one.
std::optional<fs::path> snapshot_in(const fs::path& folder) {
  if (const std::string revision = main_revision(folder / "refs" / "main"); !revision.empty())
    if (const fs::path snapshot = folder / "snapshots" / revision; exists_at(snapshot)) return snapshot;
  std::vector<fs::path> all;
  std::error_code unused;
  for (const fs::directory_entry& one : fs::directory_iterator(folder / "snapshots", unused)) all.push_back(one.path());
  return all.size() == 1 ? std::optional<fs::path>(all.front()) : std::nullopt;
}

std::string last_name(const fs::path& folder) {
  return folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
}

}  // namespace

CLI::Option* add_model_option(CLI::App& command, fs::path& folder, const std::string& about) {
  return command.add_option("-m,--model,DIR", folder, about)->transform([](const std::string& words) {
    return model_folder(words).string();
  });
}

fs::path model_folder(const fs::path& words) {
  if (exists_at(words)) {
    if (exists_at(words / "config.json") || !exists_at(words / "snapshots")) return words;
    return snapshot_in(words).value_or(words);
  }
  if (!is_hub_name(words.string()) || hub_cache().empty()) return words;
  std::string name = words.string();
  name.replace(name.find('/'), 1, "--");
  return snapshot_in(hub_cache() / (std::string(kOfModels) + name)).value_or(words);
}

void check_model_folder(const fs::path& folder, const std::string& option) {
  std::error_code unused;
  if (fs::is_directory(folder, unused)) {
    if (is_present(folder / "config.json") || Tokenizer::file_in(folder)) return;
    refuse_strange_folder(folder);
  }
  if (fs::is_regular_file(folder, unused)) {
    if (is_gguf(folder)) return;
    throw Error({.doing = "use " + option,
                 .object = folder.string(),
                 .detail = "it is a file",
                 .advice = "the folder of the checkpoint, with config.json in it, or a file whose name ends in .gguf",
                 .fault = Fault::usage});
  }
  const bool hub = is_hub_name(folder.string());
  const std::string cached =
      hub && !hub_cache().empty() ? fmt::format(", nor such a model in {}", hub_cache().string()) : "";
  throw Error({.doing = "use " + option,
               .object = folder.string(),
               .detail = folder.empty() ? "it is empty" : "there is no such folder" + cached,
               .advice = hub ? fmt::format("hf download {0} --local-dir {1}, then {2} {1}", folder.string(),
                                           last_name(folder), option)
                             : "the path of a Hugging Face checkpoint folder",
               .fault = Fault::usage});
}

std::string folder_name(const fs::path& folder) {
  const fs::path path = folder.has_filename() ? folder : folder.parent_path();
  std::string cached = path.parent_path().parent_path().filename().string();
  if (path.parent_path().filename() != "snapshots" || !cached.starts_with(kOfModels)) return last_name(folder);
  cached.erase(0, kOfModels.size());
  if (const size_t dashes = cached.find("--"); dashes != std::string::npos) cached.replace(dashes, 2, "/");
  return cached;
}

}  // namespace nodewright::cli
