#include "models/lowering/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "models/lowering/lowering_rows.h"
#include "models/lowering/product.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// After the products, in order: what comes first wins. Runs of more operations stand before runs of fewer.
constexpr LoweringRow kRows[] = {
    {"embed", lower_embed},
    {"embed_exchange", lower_embed_exchange},
    {"route", lower_route},
    {"norm_heads_exchange", lower_norm_heads_exchange},
    {"rope_flash_decode", lower_rope_flash_decode},
    {"rope_append", lower_rope_append},
    {"attend", lower_attend},
    {"gather_logits", lower_gather},
    {"norm_hidden", lower_hidden},
    {"sample", lower_sample},
    {"norm_rows", lower_norm_rows},
    {"gate", lower_gate},
    {"norm_shrink", lower_norm_shrink},
    {"shrink", lower_shrink},
    {"expand", lower_expand},
};

std::string describe_run(std::span<const Op> ops) {
  std::string text;
  for (const Op& op : ops) {
    text += (text.empty() ? "" : " ") + std::string(to_string(op.kind));
    if (op.kind == OpKind::product || op.kind == OpKind::norm || op.kind == OpKind::shrink || op.kind == OpKind::expand)
      text += " " + std::string(to_string(op.part));
  }
  return text;
}

// Why the residual cannot go this way, or nothing.
std::string why_not(ResidualForm form, const LoweringContext& at) {
  switch (form) {
    case ResidualForm::gained:
      if (at.config.blocks != Blocks::sequential) return "what the blocks read is the same residual";
      if (!at.step.may_leave_gained(at.config))
        return fmt::format(
            "for {} to {} rows, or invariant numerics, of a network with RMS norms before its blocks alone",
            at.step.network.quantized ? kTilesFromRows : 5, at.step.network.held_to());
      if (at.step.with_products() && !holds_rows(at)) return "the step's products are a library's";
      return {};
    case ResidualForm::deferred:
      if (!at.step.network.post_norms) return "no norms behind the blocks";
      if (at.config.norm == Norm::layer) return "the kernels that norm twice take no LayerNorms";
      if (at.config.blocks != Blocks::sequential) return "what the blocks read is the same residual";
      return {};
    case ResidualForm::plain:
      break;
  }
  return {};
}

// What takes the first of `ops`: an engine of the products that they begin with, or a row. `note` gets its name, and
// what could not before it.
std::optional<LoweredRun> taken(std::span<const Op> ops, const LoweringContext& at, ResidualForm form,
                                LoweringNote& note) {
  const auto is_taken = [&](std::string_view name, const LoweringResult& attempt) {
    if (const auto* why = std::get_if<std::string>(&attempt)) {
      if (!why->empty()) note.passed.emplace_back(name, *why);
      return false;
    }
    note.row = name;
    return true;
  };
  for (const ProductPattern& pattern : product_patterns())
    if (const std::optional<ProductSpec> spec = pattern.match(at, ops))
      for (const NamedEngine& engine : pattern.engines) {
        LoweringResult attempt = engine.take(at, *spec, form);
        if (is_taken(engine.name, attempt)) return std::get<LoweredRun>(std::move(attempt));
      }
  for (const LoweringRow& row : kRows) {
    LoweringResult attempt = row.lower(at, ops, form);
    if (is_taken(row.name, attempt)) return std::get<LoweredRun>(std::move(attempt));
  }
  return std::nullopt;
}

// All of `ops`, each by the first that takes it; false, with `stopped` said, where there is none.
bool lower_all(std::span<const Op> ops, const LoweringContext& at, ResidualForm form, std::vector<LoweredRun>& into,
               std::vector<LoweringNote>& notes, std::string& stopped) {
  while (!ops.empty()) {
    LoweringNote note;
    std::optional<LoweredRun> lowered = taken(ops, at, form, note);
    if (!lowered) {
      stopped = fmt::format("no kernel for '{}'", describe_run(ops.first(std::min<size_t>(ops.size(), 3))));
      for (const auto& [row, why] : note.passed) stopped += fmt::format("; {}: {}", row, why);
      return false;
    }
    note.operations = describe_run(ops.first(lowered->operations));
    for (const KernelChoice& kernel : lowered->kernels) note.kernels.push_back(to_string(kernel.request));
    for (const ProductChoice& product : lowered->products) note.kernels.push_back("product " + product.name);
    ops = ops.subspan(lowered->operations);
    into.push_back(*std::move(lowered));
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
  }
  return true;
}

bool lower_kinds(const Network& network, const LoweringContext& at, LoweredStep& step, std::string& stopped) {
  step.layers = network.layers;
  step.kinds.resize(network.kinds.size());
  for (size_t kind = 0; kind < step.kinds.size(); ++kind)
    if (!lower_all(network.kinds[kind].ops, at, step.form, step.kinds[kind], step.notes, stopped)) return false;
  return true;
}

}  // namespace

std::string_view to_string(ResidualForm form) {
  switch (form) {
    case ResidualForm::gained:
      return "gained";
    case ResidualForm::deferred:
      return "deferred";
    case ResidualForm::plain:
      break;
  }
  return "plain";
}

bool begins(std::span<const Op> ops, std::initializer_list<OpKind> kinds) {
  if (ops.size() < kinds.size()) return false;
  size_t i = 0;
  for (const OpKind kind : kinds)
    if (ops[i++].kind != kind) return false;
  return true;
}

const ProjectionTuning& tuning_of(const StepTuning& tuning, Part part) {
  static const ProjectionTuning kUntuned;
  switch (part) {
    case Part::qkv:
      return tuning.qkv;
    case Part::out:
      return tuning.out;
    case Part::gate_up:
      return tuning.gate_up;
    case Part::down:
      return tuning.down;
    case Part::router:
      return kUntuned;
    default:
      return tuning.head;
  }
}

std::string node_name(const Op& product) {
  return product.part == Part::gate_up && !product.gated ? "up" : std::string(to_string(product.part));
}

Constant factor_constant(const char* name, float factor) {
  return {name, factor == 1 ? 0 : int64_t{std::bit_cast<uint32_t>(factor)}};
}
Constant cap_constant(const char* name, float cap) {
  return {name, cap == 0 ? 0 : int64_t{std::bit_cast<uint32_t>(cap)}};
}
std::vector<Constant> logit_constants(const ModelConfig& config) {
  return {factor_constant("kScale", config.logit_scale), cap_constant("kCap", config.logit_cap)};
}
std::vector<Constant> unscaled_constants() { return {{"kScale", 0}, {"kCap", 0}}; }

LoweredStep lower(const Network& network, const LoweringContext& at) {
  std::vector<std::pair<ResidualForm, std::string>> passed;
  for (const ResidualForm form : {ResidualForm::gained, ResidualForm::deferred, ResidualForm::plain}) {
    LoweredStep step{.form = form};
    std::string stopped = why_not(form, at);
    std::vector<Op> last = network.last;
    if (at.step.hidden_rows() > 0) {  // the caller gets the rows that the head normalizes
      Op hand_out = last.front();
      hand_out.kind = OpKind::hand_out;
      last.insert(last.begin(), hand_out);
    }
    if (stopped.empty() && lower_all(network.first, at, form, step.first, step.notes, stopped) &&
        lower_kinds(network, at, step, stopped) && lower_all(last, at, form, step.last, step.notes, stopped)) {
      step.forms_passed = std::move(passed);
      return step;
    }
    passed.emplace_back(form, stopped);
  }
  throw Error({.doing = "choose kernels for",
               .object = at.config.architecture,
               .detail = fmt::format("a step of {} rows: {}", at.step.rows, passed.back().second)});
}

}  // namespace nodewright
