// One step of a network whose layers are cut into stages, a device each: a plan a stage. Each but the last one ends in
// nodes that copy the residual into the memory of the next stage, in the form in which it travels, and the inputs.
#pragma once

#include <span>
#include <vector>

#include "graph/node.h"
#include "models/plan/decoder_graph.h"

namespace nodewright {

// A stage of a step. What it borrows must outlive the plan's runs, which write the state of the next stage besides.
struct StagePart {
  Device* device;
  const DecoderModel* model;      // its layers (models/config/stage.h)
  const DecoderKernels* kernels;  // for them, of this device
  const KvCache* cache;           // of them
  DecodeState state;
};

// By stage, of purpose serve. The plan of stage 1 is named "decode.b8@1". No edge leads from one to another: the
// caller makes stage s + 1 wait for stage s. The devices have access to each other's memory (Team). Throws Error naming
// the node that cannot be added, or where a stage has no room for what the one before leaves.
std::vector<Plan> stage_plans(std::span<const StagePart> stages, EdgePolicy policy);

}  // namespace nodewright
