#include "models/plan/network_form.h"

#include <algorithm>
#include <set>

namespace nodewright {

const char* not_in_tiles(const Op& op) {
  const bool norms = op.kind == OpKind::norm || op.kind == OpKind::hand_out;
  if (norms && op.norm == Norm::layer) return "it follows a LayerNorm";
  if (op.kind == OpKind::product && op.bias) return "it has a bias";
  if (op.part == Part::gate_up && !op.gated) return "no gate";
  return nullptr;
}

NetworkForm network_form(const Network& network) {
  NetworkForm form{.post_norms = has_post_norms(network), .products = true, .gained = true};
  std::set<int> residuals;  // values
  bool all_taken = true;
  const auto look_at = [&](const Op& op, bool in_layer) {
    if (op.kind == OpKind::embed || op.kind == OpKind::add) residuals.insert(op.out.id);
    const bool multiplies = op.kind == OpKind::product, bare = multiplies && residuals.contains(op.in.id);
    const bool taken = not_in_tiles(op) == nullptr && !bare;
    form.tiles |= in_layer && multiplies && taken;
    form.products &= in_layer && multiplies ? !bare : taken;
    all_taken &= taken;
    form.gained &= op.kind != OpKind::norm || op.norm == Norm::rms;
  };
  for (const Op& op : network.first) look_at(op, false);
  for (const Op& op : network.layer) look_at(op, true);
  for (const Op& op : network.last) look_at(op, false);
  form.products &= form.tiles && (all_taken || !form.post_norms);  // rows alone leave no output for a norm behind them
  form.gained &= all_taken && !form.post_norms;
  return form;
}

}  // namespace nodewright
