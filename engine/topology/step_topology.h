// How several devices run one step: whose plans it has, in which order they are launched, and where its tokens come
// from. One device is a topology, too.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/device/step_clock.h"
#include "engine/device/step_device.h"

namespace nodewright {

// One thread at a time, but for build(): several threads may build different buckets.
class StepTopology {
 public:
  using Devices = std::vector<std::unique_ptr<StepDevice>>;

  explicit StepTopology(Devices devices) : devices_(std::move(devices)) {}
  virtual ~StepTopology() = default;
  StepTopology(const StepTopology&) = delete;
  StepTopology& operator=(const StepTopology&) = delete;

  const Devices& devices() const { return devices_; }
  StepDevice& first() const { return *devices_.front(); }
  // The devices that choose a step's tokens; those of the first of them come back.
  virtual std::span<const std::unique_ptr<StepDevice>> choosers() const { return devices_; }

  // Makes the memory that devices share, once they have slots and before any plan. Throws Error as StepSlots does.
  virtual void make_shared_memory(const StepSlotsOptions&) {}
  virtual void drop_shared_memory() {}

  // A bucket's step in a slot, by device, over these caches. Throws Error as decoder_plan().
  struct Step {
    int slot = 0;
    int bucket = 0;
    int rows = 0;
    bool adapted = false;  // rows have adapters
  };
  virtual std::vector<Plan> plans(const Step& step, std::span<const KvCache* const> caches, EdgePolicy policy) const;
  // The graphs of built.bucket in built.slot, of all devices; counts in `built` what they take.
  virtual void build(const StepSlotsOptions& options, BuiltBucket& built);
  // Whether one thread alone may build.
  virtual bool is_built_by_one_thread() const { return false; }

  // Submits what changes and the step. `clock`: null, or told when the first device begins and ends.
  virtual void launch(const StepLaunch& launch, StepClock* clock);
  // After a step that chose tokens, before they are copied to the host.
  virtual void hand_back_tokens(int /*slot*/) {}
  // Plans of later steps take no tokens of earlier ones.
  virtual void forget_tokens() {}
  // Called when a step did not end in time: devices that wait for others stop doing so.
  virtual void give_up() {}

 protected:
  // Launches the step's graphs, changes submitted.
  virtual void launch_graphs(const StepLaunch& launch) { first().launch(launch); }

  Devices devices_;
};

// The topology of these places. Throws Error (usage) where they form no team or pipeline, or one that cannot run as
// `options` say: StepSlots lists the cases.
std::unique_ptr<StepTopology> make_topology(std::span<const ModelPlace> places, const StepSlotsOptions& options);

}  // namespace nodewright
