// The move assignment of a class that owns something, by its destructor and its move constructor.
#pragma once

#include <memory>
#include <utility>

namespace nodewright {

// What `to` owned is given back.
template <class T>
T& moved_into(T& to, T&& from) noexcept {
  if (&to == &from) return to;
  std::destroy_at(&to);
  return *std::construct_at(&to, std::move(from));
}

}  // namespace nodewright
