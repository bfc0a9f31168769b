#include "models/step/network_form.h"

#include <set>

namespace nodewright {

NetworkForm network_form(const Network& network) {
  NetworkForm form{.post_norms = has_post_norms(network), .products = true, .gained = true};
  std::set<int> residuals;  // values
  bool biased = true;       // each product of a layer has a bias
  const auto look_at = [&](const Op& op, bool in_layer) {
    if (op.kind == OpKind::embed || op.kind == OpKind::embed_shared || op.kind == OpKind::add)
      residuals.insert(op.out.id);
    const bool multiplies = op.kind == OpKind::product, bare = multiplies && residuals.contains(op.in.id);
    form.tiles |= in_layer && multiplies && !bare;
    form.products &= !bare;
    biased &= !in_layer || !multiplies || op.bias;
    form.quantized |= multiplies && op.weights.is_quantized();
    form.alone &= op.kind != OpKind::reduce;
    form.gained &= (op.kind != OpKind::norm || op.norm == Norm::rms) && op.kind != OpKind::expert_product;
  };
  for (const Op& op : network.first) look_at(op, false);
  for (const LayerKind& kind : network.kinds)
    for (const Op& op : kind.ops) look_at(op, true);
  for (const Op& op : network.last) look_at(op, false);
  form.products &= form.tiles;
  form.gained &= form.products && !form.post_norms;
  // Rows that are held spare the node of each bias. Where a norm stands before each block and behind it, every block of
  // a tile kernel computes both for itself: past one tile of 8 rows a kernel before norms them
  // (bench/results/2026-11-28-h200-rows-in-tiles.txt). Ranks of a team would multiply with a library.
  if (form.products && !form.gained && form.alone)
    form.products_from = biased ? 4 : form.post_norms ? 9 : kProductsFromRows;
  return form;
}

}  // namespace nodewright
