#include "runtime/libraries/opened_library.h"

#include <dlfcn.h>

namespace nodewright {

std::string open_first(std::span<const std::string> places, const TakeEntries& take, std::string& tried) {
  for (const std::string& place : places) {
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string why;
    if (library != nullptr) {
      const char* const missing = take(library);
      if (missing == nullptr) return place;
      why = place + " lacks " + missing;
    } else {
      const char* const words = dlerror();
      why = words != nullptr ? words : place;
    }
    tried += (tried.empty() ? "" : "; ") + why;
  }
  return "";
}

}  // namespace nodewright
