#include "cli/options/folders/strange_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNames = 6;       // of what is there
constexpr size_t kMostEntries = 1000;  // that are looked at: somebody may name their home

[[noreturn]] void refuse_folder(const fs::path& folder, std::string detail, std::string advice,
                                Fault fault = Fault::usage) {
  throw Error({.doing = "use --model",
               .object = folder.string(),
               .detail = std::move(detail),
               .advice = std::move(advice),
               .fault = fault});
}

// In the order of their names.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end && entries.size() < kMostEntries;
       at.increment(failed))
    entries.push_back(at->path());
  std::ranges::sort(entries);
  return entries;
}

std::string names_of(const std::vector<fs::path>& entries) {
  std::vector<std::string> names;
  for (const fs::path& one : entries)
    if (names.size() < kMostNames) names.push_back(in_quotes(one.filename().string()));
  const size_t more = entries.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace

void refuse_strange_folder(const fs::path& folder) {
  constexpr const char* kNone = "it holds no checkpoint: config.json is missing";
  constexpr const char* kLayout =
      "a checkpoint in the Hugging Face layout: config.json, model.safetensors, tokenizer.json";
  if (is_present(folder / "snapshots"))
    refuse_folder(folder, "it is a folder of Hugging Face's cache, and refs/main names none of its snapshots",
                  "one of the folders in its snapshots/, or hf download");
  if (is_present(folder / "adapter_config.json"))
    refuse_folder(folder, "it holds a LoRA adapter, not a model",
                  fmt::format("--model BASE --adapter NAME={}", folder.string()));
  std::error_code unreadable;
  const fs::directory_iterator looked(folder, unreadable);
  if (unreadable)
    refuse_folder(folder, "this user may not look into it: " + unreadable.message(), "the right to read it (chmod)");
  const std::vector<fs::path> entries = entries_of(folder);
  if (entries.empty()) refuse_folder(folder, "it is empty", kLayout);
  if (const std::vector<fs::path> files = gguf_files_in(folder); !files.empty())
    refuse_folder(
        folder,
        fmt::format("it holds no config.json, and the GGUF file{} {}", files.size() == 1 ? "" : "s", names_of(files)),
        "--model " + files.front().string());
  std::vector<fs::path> models;
  for (const fs::path& one : entries) {
    if (is_present(one / "config.json")) models.push_back(one);
  }
  if (!models.empty())
    refuse_folder(folder,
                  fmt::format("{}, and below it {}: {}", kNone, models.size() == 1 ? "one has it" : "some have it",
                              names_of(models)),
                  "--model " + models.front().string());
  const bool is_original = is_present(folder / "params.json");
  const bool has_weights = std::ranges::any_of(entries, [](const fs::path& one) {
    return one.extension() == ".safetensors" || one.extension() == ".bin" || one.extension() == ".pth";
  });
  refuse_folder(folder, fmt::format("{}; it has {}", kNone, names_of(entries)),
                is_original   ? "the same model in the Hugging Face layout, not in that of its maker"
                : has_weights ? "the other files of the checkpoint, config.json and tokenizer.json, beside the weights"
                              : kLayout,
                has_weights ? Fault::run_time : Fault::usage);  // a checkpoint, with a file too few
}

}  // namespace nodewright::cli
