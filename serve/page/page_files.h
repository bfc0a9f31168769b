// The files of the server's page as the program carries them. Filled at build time by cmake/EmbedSources.cmake.
#pragma once

#include <span>
#include <string_view>

#include "kernels_src/kernel_sources.h"

namespace nodewright {

// "serve/page/site/chat.js" and the others.
std::span<const EmbeddedSource> serve_page_files();

// What GET `path` answers with, where it is a file of the page: "/" is page.html. Its type is empty where it is none.
struct PageAnswer {
  std::string_view type, text;
};
PageAnswer page_answer(std::string_view path);

// Sent with each of them: nothing is fetched from elsewhere, no script stands in the page, nobody frames it.
inline constexpr std::string_view kPagePolicy =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

}  // namespace nodewright
