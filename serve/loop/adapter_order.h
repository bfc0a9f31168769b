// What the engine's thread is asked to do about its adapters: the contract between the server and the loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "models/adapters/adapter_image.h"

namespace nodewright {

struct AdapterOrder {
  std::string name;
  std::shared_ptr<const AdapterImage> image;  // to be loaded under the name; null: the name is to be unloaded
  // Called once, on the engine's thread or the caller's; empty: it is done. Must neither block nor throw.
  std::function<void(const std::string& problem)> told;
};

}  // namespace nodewright
