#include "runtime/kernels/kernel_request.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <ranges>

#include "runtime/compilers/include_lines.h"
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

// A source of `extra` comes before an embedded one of the same kernel.
const EmbeddedSource* find_kernel(std::string_view name, std::span<const EmbeddedSource> extra) {
  for (const std::span<const EmbeddedSource> sources : {extra, embedded_sources()})
    for (const EmbeddedSource& source : sources)
      if (kernel_name_of(source.path) == name) return &source;
  return nullptr;
}

// As the program has it: a float with all its bits.
std::string declaration_of(const Constant& constant) {
  const auto define = [&](const char* type, const std::string& value) {
    return std::string("constexpr ") + type + " " + constant.name + " = " + value + ";\n";
  };
  const auto real = [&](double value, const char* form) {
    if (!std::isfinite(value))
      throw Error({.doing = "specialise kernel", .object = constant.name, .detail = "its value is no finite number"});
    char text[48];
    std::snprintf(text, sizeof text, form, value);
    return std::string(text);
  };
  return std::visit(
      [&]<class T>(const T& value) {
        if constexpr (std::is_same_v<T, TypeName>)
          return "using " + constant.name + " = " + value.name + ";\n";
        else if constexpr (std::is_same_v<T, Expression>)
          return define("auto", value.text);
        else if constexpr (std::is_same_v<T, bool>)
          return define("bool", value ? "true" : "false");
        else if constexpr (std::is_same_v<T, float>)
          return define("float", real(static_cast<double>(value), "%af"));
        else if constexpr (std::is_same_v<T, double>)
          return define("double", real(value, "%a"));
        else
          return define("long long", value == INT64_MIN ? "-9223372036854775807LL - 1" : std::to_string(value));
      },
      constant.value.held);
}

// As reports call it: a number by its shortest text that reads back as the same.
std::string value_text(const Constant& constant) {
  return std::visit(
      []<class T>(const T& value) {
        if constexpr (std::is_same_v<T, TypeName>) {
          return value.name;
        } else if constexpr (std::is_same_v<T, Expression>) {
          return value.text;
        } else if constexpr (std::is_same_v<T, bool>) {
          return std::string(value ? "true" : "false");
        } else {
          char text[48];
          return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
        }
      },
      constant.value.held);
}

std::string known_kernels(std::span<const EmbeddedSource> extra) {
  std::string names;
  const auto add = [&](std::span<const EmbeddedSource> sources) {
    for (const std::string_view path : sources | std::views::transform(&EmbeddedSource::path))
      if (const std::string_view name = kernel_name_of(path); !name.empty())
        names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(extra);
  add(embedded_sources());
  return names;
}

}  // namespace

std::string to_string(const KernelRequest& request) {
  std::string text = request.name;
  for (const Constant& constant : request.constants)
    text += (text.size() == request.name.size() ? "[" : ",") + constant.name + "=" + value_text(constant);
  if (!request.constants.empty()) text += "]";
  for (const Define& define : request.defines) text += " -D" + define.name + "=" + define.value;
  for (const std::string& header : request.headers) text += " <" + header + ">";
  for (const std::string& folder : request.include_folders) text += " -I" + folder;
  return request.timed ? text + " timed" : text;
}

KernelProgram program_of(const KernelRequest& request, std::span<const EmbeddedSource> extra,
                         std::string_view skipped_folder) {
  for (const Constant& constant : request.constants)
    if (!is_identifier(constant.name))
      throw Error({.doing = "specialise kernel",
                   .object = request.name,
                   .detail = "'" + constant.name + "' is no name for a constant"});
  for (const Define& define : request.defines)
    if (!is_identifier(define.name))
      throw Error({.doing = "specialise kernel",
                   .object = request.name,
                   .detail = "'" + define.name + "' is no name for a macro"});
  const EmbeddedSource* source = is_identifier(request.name) ? find_kernel(request.name, extra) : nullptr;
  if (source == nullptr)
    throw Error({.doing = "find the source of kernel",
                 .object = request.name,
                 .detail = "there is no kernels_src/" + request.name + ".cu; there are " + known_kernels(extra),
                 .advice = "name one of them, or pass its source in KernelCacheOptions::extra_sources"});

  KernelProgram program{.source = *source, .headers = {}, .prelude = {}};
  std::map<std::string_view, EmbeddedSource> reached;
  std::vector<EmbeddedSource> open = {*source};
  while (!open.empty()) {
    const EmbeddedSource current = open.back();
    open.pop_back();
    for (const auto& [path, quoted] : include_lines(current.text)) {
      if (!quoted || reached.contains(path) || (!skipped_folder.empty() && path.starts_with(skipped_folder))) continue;
      const EmbeddedSource* header = find_source(path, extra);
      if (header == nullptr) continue;  // the compiler will say so, if the line is not under a false condition
      reached.emplace(path, *header);
      open.push_back(*header);
    }
  }
  for (const auto& [path, header] : reached) program.headers.push_back(header);

  program.prelude = request.timed ? "#define NODEWRIGHT_TIMED 1\n" : "";
  for (const Define& define : request.defines) program.prelude += "#define " + define.name + " " + define.value + "\n";
  for (const std::string& header : request.headers) program.prelude += "#include <" + header + ">\n";
  program.prelude += "namespace nodewright {\n";
  for (const Constant& constant : request.constants) program.prelude += declaration_of(constant);
  program.prelude += "}\n";
  program.include_folders = request.include_folders;
  if (!program.include_folders.empty())
    program.files = hash_included_files({program.prelude, std::string(source->text)}, program.include_folders);
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
  for (const std::string& folder : program.include_folders) hash.add_field(folder);
  if (!program.include_folders.empty())
    hash.add_field({reinterpret_cast<const char*>(program.files.data()), program.files.size()});
  return hash.finish();
}

}  // namespace nodewright
