#include "serve/loop/delivery.h"

#include <iterator>

#include "runtime/host/held_signals.h"

namespace nodewright {

Delivery::Delivery(std::function<void(double)> delivered) : delivered_(std::move(delivered)) {
  const HeldSignals held;  // signals are for the thread that waits for them
  thread_ = std::thread([this] { deliver(); });
  pthread_setname_np(thread_.native_handle(), "delivery");
}

Delivery::~Delivery() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  came_.notify_one();
  thread_.join();
}

void Delivery::send(std::vector<Parcel> parcels) {
  if (parcels.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (parcels_.empty()) {
      oldest_ = std::chrono::steady_clock::now();
      parcels_ = std::move(parcels);
    } else {
      std::move(parcels.begin(), parcels.end(), std::back_inserter(parcels_));
    }
  }
  came_.notify_one();
}

void Delivery::flush() {
  std::unique_lock lock(mutex_);
  emptied_.wait(lock, [&] { return parcels_.empty() && !delivers_; });
}

void Delivery::deliver() {
  std::vector<Parcel> parcels;
  while (true) {
    std::chrono::steady_clock::time_point oldest;
    {
      std::unique_lock lock(mutex_);
      delivers_ = false;
      if (parcels_.empty()) emptied_.notify_all();
      came_.wait(lock, [&] { return ended_ || !parcels_.empty(); });
      if (parcels_.empty()) return;
      parcels.swap(parcels_);
      delivers_ = true;
      oldest = oldest_;
    }
    for (Parcel& parcel : parcels)
      if (parcel.refused.empty())
        parcel.to->updated(std::move(parcel.updates));
      else
        parcel.to->refused(parcel.refused);
    parcels.clear();
    delivered_(std::chrono::duration<double>(std::chrono::steady_clock::now() - oldest).count());
  }
}

}  // namespace nodewright
