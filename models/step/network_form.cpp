#include "models/step/network_form.h"

#include <set>

namespace nodewright {

NetworkForm network_form(const Network& network) {
  NetworkForm form{.post_norms = has_post_norms(network), .products = true, .gained = true};
  std::set<int> residuals;  // values
  const auto look_at = [&](const Op& op, bool in_layer) {
    if (op.kind == OpKind::embed || op.kind == OpKind::embed_shared || op.kind == OpKind::add)
      residuals.insert(op.out.id);
    const bool multiplies = op.kind == OpKind::product, bare = multiplies && residuals.contains(op.in.id);
    form.tiles |= in_layer && multiplies && !bare;
    form.products &= !bare;
    form.gained &= (op.kind != OpKind::norm || op.norm == Norm::rms) && op.kind != OpKind::expert_product;
  };
  for (const Op& op : network.first) look_at(op, false);
  for (const LayerKind& kind : network.kinds)
    for (const Op& op : kind.ops) look_at(op, true);
  for (const Op& op : network.last) look_at(op, false);
  form.products &= form.tiles;
  form.gained &= form.products && !form.post_norms;
  return form;
}

}  // namespace nodewright
