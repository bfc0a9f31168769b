// Networks that several devices share: the goldens whose heads two can, and every family in sizes that two, four and
// eight can, with weights to be drawn.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace nodewright::test {

// Without `but`.
std::vector<std::string> split_goldens(const std::vector<std::string>& but = {});

// The goldens whose families they are of: one a family, or two.
std::vector<std::string> shared_families();

// config.json of `golden` with 16 heads, as many or half as many of keys, and a feed-forward width of 104 in `folder`;
// else as it is. `layers`: in place of its own, where it says them as Llama does; 0: its own. `in_eights`: the
// residual's columns are, so that prompts are exchanged in bulk; else of some.
void write_shared_sizes(const std::string& golden, const std::filesystem::path& folder, int64_t layers = 0,
                        bool in_eights = false);

}  // namespace nodewright::test
