#include "cli/options/folders/path_checks.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string>
#include <system_error>

namespace nodewright::cli {
namespace {

namespace fs = std::filesystem;

// What a checkpoint is made of, which somebody would miss.
bool is_of_a_model(const fs::path& path) {
  const std::string name = path.filename().string(), extension = path.extension().string();
  for (const char* one : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "tekken.json",
                          "tokenizer_config.json", "special_tokens_map.json", "model.safetensors.index.json"})
    if (name == one) return true;
  return extension == ".safetensors" || extension == ".gguf" || extension == ".jinja" || extension == ".bin";
}

// Each returns what is wrong, or nothing.
std::string why_not_written(const std::string& text) {
  std::error_code unused;
  const fs::path path = text, folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (text.empty()) return "it is empty";
  if (fs::is_directory(path, unused)) return fmt::format("{} is a folder", text);
  if (!fs::is_directory(folder, unused)) return fmt::format("{}: there is no folder {}", text, folder.string());
  if (is_of_a_model(path) && fs::exists(path, unused))
    return fmt::format("{} is a file of a model, which is not written over", text);
  return "";
}

std::string why_no_new_folder(const std::string& text) {
  std::error_code unused;
  const fs::path path = text, plain = path.has_filename() ? path : path.parent_path(),
                 parent = plain.has_parent_path() ? plain.parent_path() : fs::path(".");
  if (text.empty()) return "it is empty";
  if (fs::exists(fs::symlink_status(plain, unused))) return fmt::format("{} exists already", text);
  if (!fs::is_directory(parent, unused)) return fmt::format("{}: there is no folder {}", text, parent.string());
  return "";
}

std::string why_not_read(const std::string& text) {
  std::error_code unused;
  if (text.empty()) return "it is empty";
  if (fs::is_directory(text, unused)) return fmt::format("{} is a folder", text);
  if (!fs::exists(text, unused)) return fmt::format("there is no file {}", text);
  return "";
}

std::string why_no_tuning(const std::string& text) {
  return text == "auto" || text == "none" ? "" : why_not_read(text);
}

struct PathOption {
  const char* name;
  std::string (*problem)(const std::string&);
};
constexpr std::array kPathOptions = {
    PathOption{"--out", why_not_written},        PathOption{"--timeline", why_not_written},
    PathOption{"--blocks", why_not_written},     PathOption{"--log", why_not_written},
    PathOption{"--plot", why_not_written},       PathOption{"--timings", why_not_read},
    PathOption{"--diff", why_not_read},          PathOption{"--prompt-file", why_not_read},
    PathOption{"--chat-template", why_not_read}, PathOption{"--tuning", why_no_tuning}};

}  // namespace

void add_path_checks(CLI::App& app) {
  for (const PathOption& path : kPathOptions)
    if (CLI::Option* option = app.get_option_no_throw(path.name))
      option->check(app.get_name() == "quantize" && path.problem == why_not_written ? why_no_new_folder : path.problem);
  for (CLI::App* command : app.get_subcommands({})) add_path_checks(*command);
}

}  // namespace nodewright::cli
