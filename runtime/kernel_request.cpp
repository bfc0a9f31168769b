#include "runtime/kernel_request.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <ranges>

#include "runtime/error.h"

namespace nodewright {
namespace {

bool is_identifier(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front()))) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

const EmbeddedSource* find_source(std::string_view path, std::span<const EmbeddedSource> extra) {
  for (const EmbeddedSource& source : extra)
    if (source.path == path) return &source;
  for (const EmbeddedSource& source : embedded_sources())
    if (source.path == path) return &source;
  return nullptr;
}

// The paths of `#include "..."` lines, whatever conditions they stand under.
std::vector<std::string_view> includes_of(std::string_view text) {
  std::vector<std::string_view> paths;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const auto skip_blanks = [&] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
    skip_blanks();
    if (!line.starts_with('#')) continue;
    line.remove_prefix(1);
    skip_blanks();
    if (!line.starts_with("include")) continue;
    line.remove_prefix(std::string_view("include").size());
    skip_blanks();
    if (!line.starts_with('"')) continue;
    line.remove_prefix(1);
    if (const size_t quote = line.find('"'); quote != std::string_view::npos) paths.push_back(line.substr(0, quote));
  }
  return paths;
}

std::string known_kernels(std::span<const EmbeddedSource> extra) {
  std::string names;
  const auto add = [&](std::span<const EmbeddedSource> sources) {
    for (std::string_view path : sources | std::views::transform(&EmbeddedSource::path)) {
      if (!path.starts_with("kernels_src/") || !path.ends_with(".cu")) continue;
      path.remove_prefix(std::string_view("kernels_src/").size());
      path.remove_suffix(std::string_view(".cu").size());
      names += (names.empty() ? "" : ", ") + std::string(path);
    }
  };
  add(extra);
  add(embedded_sources());
  return names;
}

}  // namespace

std::string to_string(const KernelRequest& request) {
  std::string text = request.name;
  for (const Constant& constant : request.constants)
    text += (text.size() == request.name.size() ? "[" : ",") + constant.name + "=" + std::to_string(constant.value);
  if (!request.constants.empty()) text += "]";
  return request.timed ? text + " timed" : text;
}

KernelProgram program_of(const KernelRequest& request, std::span<const EmbeddedSource> extra,
                         std::string_view skipped_folder) {
  for (const Constant& constant : request.constants)
    if (!is_identifier(constant.name))
      throw Error({.doing = "specialise kernel",
                   .object = request.name,
                   .detail = "'" + constant.name + "' is no name for a constant"});
  const EmbeddedSource* source =
      is_identifier(request.name) ? find_source("kernels_src/" + request.name + ".cu", extra) : nullptr;
  if (source == nullptr)
    throw Error({.doing = "find the source of kernel",
                 .object = request.name,
                 .detail = "there is no kernels_src/" + request.name + ".cu; there are " + known_kernels(extra),
                 .advice = "name the kernel as its file, and build the program again after adding one"});

  KernelProgram program{.source = *source, .headers = {}, .prelude = {}};
  std::map<std::string_view, EmbeddedSource> reached;
  std::vector<EmbeddedSource> open = {*source};
  while (!open.empty()) {
    const EmbeddedSource current = open.back();
    open.pop_back();
    for (const std::string_view path : includes_of(current.text)) {
      if (reached.contains(path) || (!skipped_folder.empty() && path.starts_with(skipped_folder))) continue;
      const EmbeddedSource* header = find_source(path, extra);
      if (header == nullptr) continue;  // the compiler will say so, if the line is not under a false condition
      reached.emplace(path, *header);
      open.push_back(*header);
    }
  }
  for (const auto& [path, header] : reached) program.headers.push_back(header);

  program.prelude = request.timed ? "#define NODEWRIGHT_TIMED 1\n" : "";
  program.prelude += "namespace nodewright {\n";
  for (const Constant& constant : request.constants)
    program.prelude += "constexpr long long " + constant.name + " = " +
                       (constant.value == INT64_MIN ? "-9223372036854775807LL - 1" : std::to_string(constant.value)) +
                       ";\n";
  program.prelude += "}\n";
  return program;
}

Digest hash_of(const KernelProgram& program, std::string_view compiler) {
  ContentHash hash;
  hash.add_field(compiler);
  hash.add_field(program.prelude);
  hash.add_field(program.source.path);
  hash.add_field(program.source.text);
  for (const EmbeddedSource& header : program.headers) {
    hash.add_field(header.path);
    hash.add_field(header.text);
  }
  return hash.finish();
}

}  // namespace nodewright
