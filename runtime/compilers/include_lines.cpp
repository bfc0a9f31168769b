#include "runtime/compilers/include_lines.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

namespace nodewright {

std::vector<IncludeLine> include_lines(std::string_view text) {
  std::vector<IncludeLine> includes;
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
    if (!line.starts_with('"') && !line.starts_with('<')) continue;
    const bool quoted = line.front() == '"';
    line.remove_prefix(1);
    if (const size_t close = line.find(quoted ? '"' : '>'); close != std::string_view::npos)
      includes.push_back({line.substr(0, close), quoted});
  }
  return includes;
}

Digest hash_included_files(const std::vector<std::string>& texts, const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  struct Open {
    std::string text;
    fs::path folder;  // of the file; empty for a text of the program
  };
  std::vector<Open> open;
  for (const std::string& text : texts) open.push_back({text, {}});
  std::set<fs::path> seen;
  ContentHash hash;
  for (size_t next = 0; next < open.size(); ++next) {
    const Open current = std::move(open[next]);
    std::vector<fs::path> beside(folders.begin(), folders.end());
    if (!current.folder.empty()) beside.insert(beside.begin(), current.folder);
    for (const IncludeLine& include : include_lines(current.text))
      for (const fs::path& folder : beside) {
        const fs::path file = (folder / include.path).lexically_normal();
        std::ifstream stream(file, std::ios::binary);
        if (!stream || !fs::is_regular_file(file)) continue;
        if (!seen.insert(file).second) break;
        std::string text{std::istreambuf_iterator<char>(stream), {}};
        hash.add_field(file.string());
        hash.add_field(text);
        open.push_back({std::move(text), file.parent_path()});
        break;
      }
  }
  return hash.finish();
}

}  // namespace nodewright
