// Networks of every family in sizes that two, four and eight devices share, with weights to be drawn: the goldens' own
// heads are shared by two devices at most.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace nodewright::test {

// The goldens whose families they are of: one a family, and those whose layers differ.
std::vector<std::string> shared_families();

// config.json of `golden` with 16 heads, 8 key and value heads and a feed-forward width of 104 in `folder`; else as it
// is, two layers or as many as differ.
void write_shared_sizes(const std::string& golden, const std::filesystem::path& folder);

}  // namespace nodewright::test
