// What runs behind a server, in words and numbers for a reader: told once, when the model is there. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/step_inputs.h"

namespace nodewright {

struct ModelCard {
  std::string name;                       // of answers
  std::string device;                     // "NVIDIA H100 80GB HBM3"
  std::string weights;                    // elements of the weights on the device: "bf16"
  std::string numerics, mode, tuning;     // the words of the command line
  int64_t context = 0;                    // tokens of the longest sequence
  int64_t rows = 0;                       // outputs computed at once
  std::vector<int> buckets;               // rows of the graphs whose plans can be shown, ascending
  bool chats = false, tokenizes = false;  // there is a chat template, a tokenizer
  Sampling sampling;                      // of calls that do not say; without a seed each call draws its own
};

}  // namespace nodewright
