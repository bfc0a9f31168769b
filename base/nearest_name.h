// What somebody meant who wrote a word that is not known: an option, a subcommand, a field.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nodewright {

// The one of `names` that takes the fewest edits to come from `word`, letters changed, left out, put in or swapped; or
// that `word` is the beginning of. Empty where none is near: more than a third of it would have to change.
std::string nearest_name(std::string_view word, std::span<const std::string> names);

}  // namespace nodewright
