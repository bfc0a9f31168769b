#include "runtime/kernels/kernel_waits.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace nodewright {
namespace {

// They define the words that are looked for.
bool is_dialect(std::string_view path) {
  return path == "kernels_src/device/dialect.cuh" || path == "cpu_driver/emulation.h";
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool in_line_comment(std::string_view text, size_t at) {
  const size_t begin = text.rfind('\n', at) + 1;  // 0 on the first line
  return text.substr(begin, at - begin).find("//") != std::string_view::npos;
}

// Whether `word` stands in `text`, not as part of a longer one, outside comments that begin with //.
bool calls(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) continue;
    if (!in_line_comment(text, at)) return true;
  }
  return false;
}

// Ways to let dependents start without having waited: the dialect's, PTX, CUDA's own.
bool may_release_early(std::string_view text) {
  constexpr std::string_view kWays[] = {"release_dependents", "launch_dependents", "TriggerProgrammaticLaunch"};
  return std::ranges::any_of(kWays, [&](std::string_view way) { return text.find(way) != std::string_view::npos; });
}

}  // namespace

KernelWaits waits_of(const KernelProgram& program) {
  const bool by_macro =
      calls(program.source.text, "NODEWRIGHT_KERNEL") || calls(program.source.text, "NODEWRIGHT_KERNEL_OF");
  bool waits = false, exits = false;
  bool releases_early = !program.include_folders.empty();  // their headers are not read
  const auto read = [&](const EmbeddedSource& source) {
    if (is_dialect(source.path)) return;
    waits |= calls(source.text, "wait_for_inputs");
    exits |= calls(source.text, "exit;");  // in asm: ends a thread past the macro's end
    releases_early |= may_release_early(source.text);
  };
  read({"", program.prelude});
  read(program.source);
  for (const EmbeddedSource& header : program.headers) read(header);
  const bool for_inputs = by_macro && waits && !exits;
  return {for_inputs, for_inputs && !releases_early};
}

std::string demand_of_macro(const std::string& name) {
  return "\nusing nodewright_kernel_body = decltype(" + name + "_body);  // NODEWRIGHT_KERNEL(" + name + ", ...)\n";
}

}  // namespace nodewright
