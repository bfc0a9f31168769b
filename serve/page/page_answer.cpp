// page_answer: which file of the page a path is, and its type.
#include <utility>

#include "serve/page/page_files.h"

namespace nodewright {
namespace {

constexpr std::pair<std::string_view, std::string_view> kTypes[] = {{".html", "text/html; charset=utf-8"},
                                                                    {".css", "text/css; charset=utf-8"},
                                                                    {".js", "text/javascript; charset=utf-8"},
                                                                    {".svg", "image/svg+xml"}};

}  // namespace

PageAnswer page_answer(std::string_view path) {
  if (path == "/") path = "/page.html";
  for (const EmbeddedSource& file : serve_page_files()) {
    if (file.path.substr(file.path.rfind('/')) != path) continue;
    for (const auto& [ending, type] : kTypes)
      if (path.ends_with(ending)) return {type, file.text};
  }
  return {};
}

}  // namespace nodewright
