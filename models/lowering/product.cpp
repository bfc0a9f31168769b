#include "models/lowering/product.h"

namespace nodewright {
namespace {

ProductSpec spec_of(const LoweringContext& at, std::span<const Op> ops, size_t operations, const Op& product, End end) {
  const int64_t rows = product.part == Part::head ? at.step.sampled_rows : at.step.rows;
  ProductSpec spec{operations, product, end, rows};
  if (&product != &ops[0]) spec.norm = ops[0];
  spec.adapted = at.step.adapters.any() && product.kind == OpKind::product;
  return spec;
}

// f(Wgate norm(x)) * (Wup norm(x)), or f(Wup norm(x) + b), of the feed-forward block or of each row's experts.
std::optional<ProductSpec> gate_up(const LoweringContext& at, std::span<const Op> ops, OpKind product) {
  if (!begins(ops, {OpKind::norm, product, OpKind::activate})) return {};
  ProductSpec spec = spec_of(at, ops, 3, ops[1], End::gate_up);
  spec.gated = ops[2].gated;
  return spec;
}
std::optional<ProductSpec> norm_gate_up(const LoweringContext& at, std::span<const Op> ops) {
  return gate_up(at, ops, OpKind::product);
}
// The same of rows that have been normed.
std::optional<ProductSpec> gate_up_alone(const LoweringContext& at, std::span<const Op> ops) {
  if (!begins(ops, {OpKind::product, OpKind::activate})) return {};
  ProductSpec spec = spec_of(at, ops, 2, ops[0], End::gate_up);
  spec.gated = ops[1].gated;
  return spec;
}
std::optional<ProductSpec> expert_gate_up(const LoweringContext& at, std::span<const Op> ops) {
  return gate_up(at, ops, OpKind::expert_product);
}

// W norm(x) + b.
std::optional<ProductSpec> norm_project(const LoweringContext& at, std::span<const Op> ops) {
  if (!begins(ops, {OpKind::norm, OpKind::product}) || ops[1].part == Part::head) return {};
  return spec_of(at, ops, 2, ops[1], End::store);
}
std::optional<ProductSpec> logits(const LoweringContext& at, std::span<const Op> ops) {
  if (!begins(ops, {OpKind::norm, OpKind::product}) || ops[1].part != Part::head) return {};
  return spec_of(at, ops, 2, ops[1], End::logits);
}

// x += W y + b, or the norm of it, or the sum over the ranks.
template <OpKind kProduct, OpKind... kBetween>
std::optional<ProductSpec> added(const LoweringContext& at, std::span<const Op> ops) {
  if (!begins(ops, {kProduct, kBetween..., OpKind::add})) return {};
  ProductSpec spec = spec_of(at, ops, 2 + sizeof...(kBetween), ops[0], End::add);
  spec.exchanged = ((kBetween == OpKind::reduce) || ...);
  if (((kBetween == OpKind::norm) || ...)) spec.post_norm = ops[sizeof...(kBetween)];
  return spec;
}
std::optional<ProductSpec> exchanged(const LoweringContext& at, std::span<const Op> ops) {
  const auto spec = added<OpKind::product, OpKind::reduce>(at, ops);
  return spec ? spec : added<OpKind::product, OpKind::reduce, OpKind::norm>(at, ops);
}

// W x + b of rows that have been normed.
std::optional<ProductSpec> alone(const LoweringContext& at, std::span<const Op> ops) {
  if (!begins(ops, {OpKind::product})) return {};
  return spec_of(at, ops, 1, ops[0], ops[0].part == Part::head ? End::logits : End::store);
}

// Runs of more operations stand before runs of fewer.
constexpr NamedEngine kNormGateUp[] = {{"tile_norm_gate_up", in_tiles}, {"norm_gate_up", by_rows}};
constexpr NamedEngine kNormProject[] = {{"tile_norm_project", in_tiles}, {"norm_project", by_rows}};
constexpr NamedEngine kExchanged[] = {{"project_exchange", by_rows},
                                      {"tile_project_exchange", in_tiles},
                                      {"project, exchange_add", before_exchange},
                                      {"library product, exchange_add", by_library}};
constexpr NamedEngine kPostNormed[] = {
    {"tile_project", in_tiles}, {"project", by_rows}, {"library product", by_library}};
constexpr NamedEngine kAdded[] = {
    {"tile_project_add", in_tiles}, {"project_add", by_rows}, {"library product onto the residual", by_library}};
constexpr NamedEngine kLogits[] = {{"tile_logits of gained rows", in_gained_tiles},
                                   {"tile_logits", in_tiles},
                                   {"norm, tile_logits", in_normed_tiles},
                                   {"logits", by_rows}};
constexpr NamedEngine kGateUpAlone[] = {{"tile_project_gate_up", in_tiles}};
constexpr NamedEngine kAlone[] = {{"tile_project", in_tiles}, {"library product", by_library}};
constexpr NamedEngine kExpertGateUp[] = {{"tile_expert_gate_up", experts_in_tiles},
                                         {"norm_expert_gate_up", experts_by_rows}};
constexpr NamedEngine kExpertDown[] = {{"tile_expert_down", experts_in_tiles}, {"expert_down_add", experts_by_rows}};
constexpr NamedEngine kExpertDownExchanged[] = {{"tile_expert_down, exchange_add", experts_in_tiles},
                                                {"expert_down_sum, exchange_add", experts_by_rows}};
constexpr ProductPattern kPatterns[] = {
    {expert_gate_up, kExpertGateUp},
    {added<OpKind::expert_product>, kExpertDown},
    {added<OpKind::expert_product, OpKind::reduce>, kExpertDownExchanged},
    {norm_gate_up, kNormGateUp},
    {norm_project, kNormProject},
    {exchanged, kExchanged},
    {added<OpKind::product, OpKind::norm>, kPostNormed},
    {added<OpKind::product>, kAdded},
    {logits, kLogits},
    {gate_up_alone, kGateUpAlone},
    {alone, kAlone},
};

}  // namespace

std::span<const ProductPattern> product_patterns() { return kPatterns; }

bool holds_rows(const LoweringContext& at) { return at.step.may_hold() && at.device.has_clusters(); }

bool is_library_used(const LoweringContext& at, ResidualForm form) {
  const bool normed = !at.step.network.gained && !at.config.shard.is_part();  // networks whose rows a kernel norms
  return at.step.with_products() && !(holds_rows(at) && (form == ResidualForm::gained || normed));
}

}  // namespace nodewright
