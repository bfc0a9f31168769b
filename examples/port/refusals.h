// What Nodewright says of the mistake in captured.cu, and of a plan without one of its edges.
#pragma once

#include <nodewright/nodewright.h>

#include <cstdio>
#include <functional>

namespace port {

// `plan`: plans the step, with the mistake or without. Returns 0 when the mistake and the lack of any edge are refused.
inline int show_refusals(const std::function<nodewright::Plan(bool mistake)>& plan) {
  bool refused = false;
  try {
    plan(true);
  } catch (const nodewright::Error& error) {
    std::printf("the mistake: %s\n", error.what());
    refused = true;
  }
  const nodewright::Plan right = plan(false);
  size_t missed = 0;
  for (size_t i = 0; i < right.edges.size(); ++i) {
    nodewright::Plan without = right;
    without.edges.erase(without.edges.begin() + static_cast<std::ptrdiff_t>(i));
    const std::vector<nodewright::MissingOrder> missing = missing_orders(without);
    if (!missing.empty() && missed++ == 0) std::printf("without its first edge: %s\n", describe(missing[0]).c_str());
  }
  std::printf("%zu of %zu edges are missed when they are taken away\n", missed, right.edges.size());
  return refused && missed == right.edges.size() ? 0 : 1;
}

}  // namespace port
