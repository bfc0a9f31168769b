#include "models/config/shard.h"

#include <fmt/format.h>

#include "models/config/model_config.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_shard(const ModelConfig& whole, const Shard& shard, std::string detail) {
  throw Error({.doing = "split over devices",
               .object = whole.architecture,
               .detail = std::move(detail),
               .advice = fmt::format("another number of devices than {}, or one", shard.ranks),
               .fault = Fault::usage});
}

// Exchanges of the embedding, after out and down and for the heads' norm in each layer, and of the logits.
int64_t exchanges_with_one_norm(const ModelConfig& part) {
  return (part.norms_heads_of_ranks() ? 3 : 2) * part.layers + 2;
}

}  // namespace

ModelConfig shard_of(const ModelConfig& whole, Shard shard) {
  if (!shard.is_part()) return whole;
  const auto divided = [&](const char* name, int64_t n) {
    if (n % shard.ranks != 0)
      refuse_shard(whole, shard, fmt::format("{} is {}, which {} devices cannot share evenly", name, n, shard.ranks));
    return n / shard.ranks;
  };
  if (whole.vocab < shard.ranks)
    refuse_shard(whole, shard, fmt::format("a vocabulary of {} tokens is fewer than the devices", whole.vocab));
  ModelConfig part = whole;
  part.heads = divided("num_attention_heads", whole.heads);
  part.kv_heads = divided("num_key_value_heads", whole.kv_heads);
  part.intermediate = divided("intermediate_size", whole.intermediate);
  part.experts.intermediate = divided("an expert's feed-forward width", whole.experts.intermediate);
  part.shard = shard;
  return part;
}

int64_t exchanges_of_step(const ModelConfig& part, int64_t lanes) {
  const int64_t together = lanes * (exchanges_with_one_norm(part) - 2) + 2;
  return together + together % 2;
}

bool norms_heads_apart(const ModelConfig& part, int64_t layer) {
  return part.norms_heads_of_ranks() && layer == 0 && exchanges_with_one_norm(part) % 2 != 0;
}

}  // namespace nodewright
