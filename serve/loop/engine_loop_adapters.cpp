// Adapters that come and go while an engine loop serves.
#include <exception>
#include <utility>

#include "serve/loop/engine_loop.h"

namespace nodewright {

void EngineLoop::change(AdapterOrder order) {
  {
    const std::lock_guard lock(mutex_);
    if (accepts_ && !draining_ && !failed_) {
      adapter_orders_.push_back(std::move(order));
      came_.notify_one();
      return;
    }
  }
  order.told("the server takes no more calls");
}

void EngineLoop::follow_adapter_orders(Engine& engine, std::vector<AdapterOrder> orders) {
  for (AdapterOrder& order : orders) {
    std::string problem;
    try {
      if (order.image)
        engine.load_adapter(order.name, std::move(order.image));
      else if (!engine.unload_adapter(order.name))
        problem = "no adapter is called so";
    } catch (const std::exception& error) {
      problem = error.what();
    }
    order.told(problem);
  }
}

}  // namespace nodewright
