#include "models/tuning/step_tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/network/network.h"
#include "models/tuning/shipped_tunings.h"
#include "runtime/compilers/content_hash.h"
#include "runtime/compilers/image_store.h"

namespace nodewright {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kFormat = 2;  // 1: rings of tiles counted spans, not stages
constexpr uint64_t kMostBytes = 1 << 20;

constexpr std::array<std::pair<Arithmetic, const char*>, 3> kArithmetics = {
    {{Arithmetic::matvec, "matvec"}, {Arithmetic::tiles, "tiles"}, {Arithmetic::products, "products"}}};

// f(name, number, least, most, multiple): the one list of what is in a file. Multiple 0: a power of two.
template <class Number, class Function>
void each_number(Number&& of, const AttendTuning*, Function&& f) {
  f("splits", of.splits, 1, 64, 1);
  f("warps", of.warps, 1, 16, 0);
  f("ring", of.ring, 2, 12, 1);
}
template <class Number, class Function>
void each_number(Number&& of, const SharedTuning*, Function&& f) {
  f("carveout", of.carveout, 1, 100, 1);
}
template <class Number, class Function>
void each_number(Number&& of, const MatvecTuning*, Function&& f) {
  f("threads", of.threads, 32, 384, 32);
  f("batch", of.batch, 1, 16, 0);
  f("blocks_per_sm", of.blocks_per_sm, 1, MatvecShape::kMostBlocksPerSm, 1);
}
template <class Number, class Function>
void each_number(Number&& of, const TileTuning*, Function&& f) {
  f("warps", of.warps, 1, 16, 1);
  f("rows", of.rows, 8, 16, 8);
  f("piece", of.piece, 1, 16, 1);
  f("ring", of.ring, 1, 8, 1);
  f("splits", of.splits, 1, 8, 0);
}

template <class Number, class Function>
void each_number(Number&& of, const ProductTuning*, Function&& f) {
  constexpr int64_t kMost = UINT32_MAX;
  f("algorithm", of.config.algorithm, 1, kMost, 1);
  f("tile", of.config.tile, 1, kMost, 1);
  f("stages", of.config.stages, 1, kMost, 1);
  f("split_k", of.config.split_k, 1, kMost, 1);
  f("reduction", of.config.reduction, 1, kMost, 1);
  f("swizzle", of.config.swizzle, 1, kMost, 1);
  f("custom", of.config.custom, 1, kMost, 1);
  f("inner", of.config.inner, 1, kMost, 1);
  f("cluster", of.config.cluster, 1, kMost, 1);
  f("as_rows", of.as_rows, 1, kMostTunedRows, 1);
}

// f(name, of...): of a StepTuning, of ProductSizes or of both.
template <class Function, class... Structs>
void each_projection(Function&& f, Structs&&... of) {
  f("qkv", of.qkv...);
  f("out", of.out...);
  f("gate_up", of.gate_up...);
  f("down", of.down...);
  f("head", of.head...);
}

// f(name, part): what a step's object holds beside rows and arithmetic.
template <class Step, class Function>
void each_part(Step&& step, Function&& f) {
  f("attend", step.attend);
  f("shared", step.shared);
  each_projection(
      [&](const std::string& name, auto& of) {
        f(name + ".matvec", of.matvec);
        f(name + ".tile", of.tile);
        f(name + ".product", of.product);
      },
      step);
}

// No key that nobody would read.
void refuse_others(const ConfigFields& fields, const std::set<std::string>& known) {
  for (const auto& [key, value] : fields.object().items())
    if (!known.contains(key))
      fields.refuse(fmt::format("{}{} is no part of a tuning", fields.prefix(), in_quotes(key)));
}

bool is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

template <class Part>
void read_part(Part& part, const ConfigFields& fields) {
  std::set<std::string> known;
  each_number(part, static_cast<const Part*>(nullptr),
              [&](const char* name, int64_t& number, int64_t least, int64_t most, int64_t multiple) {
                known.insert(name);
                number = fields.integer(name, 0, least, most);
                if (multiple == 0 ? !is_power_of_two(number) : number % multiple != 0)
                  fields.refuse(fmt::format("{}{} is {}, expected a {}", fields.prefix(), name, number,
                                            multiple == 0 ? "power of two" : fmt::format("multiple of {}", multiple)));
              });
  refuse_others(fields, known);
  // Files of older programs have an algorithm by its place in a list that may have changed.
  if constexpr (std::is_same_v<Part, ProductTuning>)
    if (part.config.algorithm != 0 && part.config.tile == 0 && part.config.stages == 0) part = {};
}

StepTuning read_step(const ConfigFields& fields) {
  StepTuning step;
  std::set<std::string> known = {"rows", "arithmetic"};
  if (const std::string word = fields.text("arithmetic", ""); !word.empty()) {
    for (const auto& [arithmetic, name] : kArithmetics)
      if (word == name) step.arithmetic = arithmetic;
    if (!step.arithmetic)
      fields.refuse(
          fmt::format("{}arithmetic is {}, expected matvec, tiles or products", fields.prefix(), in_quotes(word)));
  }
  each_part(step, [&](const std::string& name, auto& part) {
    known.insert(name);
    if (const json* object = fields.object(name)) read_part(part, fields.inside(*object, fields.prefix() + name + "."));
  });
  refuse_others(fields, known);
  return step;
}

template <class Part>
ordered_json part_json(const Part& part) {
  ordered_json object = ordered_json::object();
  each_number(part, static_cast<const Part*>(nullptr),
              [&](const char* name, int64_t number, int64_t, int64_t, int64_t) {
                if (number != 0) object[name] = number;
              });
  return object;
}

std::map<int64_t, int64_t> read_sizes(const ConfigFields& fields) {
  std::map<int64_t, int64_t> sizes;
  for (const auto& [key, value] : fields.object().items()) {
    int64_t rows = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), rows);
    if (error != std::errc() || end != key.data() + key.size() || rows < 1 || rows > kMostTunedRows)
      fields.refuse(fmt::format("{}{} is no number of rows, 1 to {}", fields.prefix(), in_quotes(key), kMostTunedRows));
    sizes[rows] = fields.integer(key, 0, 0, kMostTunedRows);
  }
  return sizes;
}

ProductSizes read_products(const ConfigFields& fields) {
  ProductSizes products;
  std::set<std::string> known;
  each_projection(
      [&](const std::string& name, std::map<int64_t, int64_t>& sizes) {
        known.insert(name);
        if (const json* object = fields.object(name))
          sizes = read_sizes(fields.inside(*object, fields.prefix() + name + "."));
      },
      products);
  refuse_others(fields, known);
  return products;
}

ordered_json products_json(const ProductSizes& products) {
  ordered_json object = ordered_json::object();
  each_projection(
      [&](const std::string& name, const std::map<int64_t, int64_t>& sizes) {
        for (const auto& [rows, as_rows] : sizes) object[name][std::to_string(rows)] = as_rows;
      },
      products);
  return object;
}

Tuning tuning_of(const json& object, const std::string& path) {
  const ConfigFields fields(object, path, "read tuning");
  refuse_others(fields, {"format", "device", "model", "steps", "products"});
  if (fields.integer("format", 0, 0, INT32_MAX) != kFormat)
    fields.refuse(fmt::format("format is not {}", kFormat), "make the file again with nodewright tune");
  Tuning tuning{
      .key = {.device = fields.text("device", ""), .model = fields.text("model", "")}, .steps = {}, .products = {}};
  if (const json* products = fields.object("products"))
    tuning.products = read_products(fields.inside(*products, "products."));
  const json* steps = fields.find("steps");
  if (!steps || !steps->is_array()) fields.refuse("steps is not a list");
  for (const json& step : *steps) {
    const std::string prefix = fmt::format("steps[{}].", &step - &steps->front());
    if (!step.is_object()) fields.refuse(prefix.substr(0, prefix.size() - 1) + " is not an object");
    const ConfigFields of_step = fields.inside(step, prefix);
    const int64_t rows = of_step.integer("rows", 0, 1, kMostTunedRows);
    if (rows == 0) of_step.refuse(prefix + "rows is missing");
    if (!tuning.steps.emplace(rows, read_step(of_step)).second)
      of_step.refuse(fmt::format("{}rows is {}, as of a step before", prefix, rows));
  }
  return tuning;
}

}  // namespace

std::string model_sizes(const ModelConfig& c) {
  const char* norm = c.norm == Norm::layer ? "layer" : c.norm == Norm::rms ? "rms" : "rms plus one";
  std::string widths = std::to_string(c.has_experts() ? c.experts.intermediate : c.intermediate);
  if (c.has_experts() && c.has_dense())
    widths += fmt::format(", {} of {} layers", c.intermediate, std::ranges::count(c.dense, true));
  std::vector<std::string> formats = {""};  // for a comma
  for (const WeightLayouts& of : c.layouts.all())
    for (const WeightLayout& layout : {of.qkv, of.out, of.gate_up, of.down}) {
      if (!layout.is_quantized()) continue;
      std::string one = name_of(layout);
      if (layout.is_grouped())
        one += fmt::format(", groups of {}", layout.group);
      else if (layout.in_blocks)
        one += " in blocks";
      if (std::ranges::count(formats, one) == 0) formats.push_back(one);
    }
  return fmt::format("hidden {}, layers {}, heads {} of {} for {}, intermediate {}{}, vocab {}, {} norms{}{}{}",
                     c.hidden, c.all_layers(), c.heads, c.head_dim, c.kv_heads, widths,
                     c.gated ? "" : " without a gate", c.vocab, norm, c.head_norm == HeadNorm::none ? "" : ", of heads",
                     has_post_norms(network_of(c)) ? ", behind blocks" : "", fmt::join(formats, ", "));
}

std::filesystem::path tuning_file(const TuningKey& key) {
  const std::filesystem::path folder = ImageStore::default_folder();
  if (folder.empty()) return {};
  ContentHash hash;  // a name of harmless characters
  hash.add_field(key.device);
  hash.add_field(key.model);
  return folder / "tuning" / (to_hex(hash.finish()).substr(0, 16) + ".json");
}

StepTuning Tuning::of(int64_t rows) const {
  const auto found = steps.find(rows);
  StepTuning step = found == steps.end() ? StepTuning{} : found->second;
  each_projection(
      [&](const std::string&, ProjectionTuning& projection, const std::map<int64_t, int64_t>& sizes) {
        const auto above = sizes.upper_bound(rows);
        if (projection.product == ProductTuning{} && above != sizes.begin())
          projection.product.as_rows = std::prev(above)->second;
      },
      step, products);
  return step;
}

Tuning read_tuning(const std::filesystem::path& path) {
  return tuning_of(read_json_object(path, "read tuning", kMostBytes), path.string());
}

Tuning shipped_tuning(const TuningKey& key) {
  for (const EmbeddedSource& file : shipped_tunings())
    if (Tuning tuning = tuning_of(json::parse(file.text), std::string(file.path)); tuning.key == key) return tuning;
  return {.key = key, .steps = {}, .products = {}};
}

std::string tuning_json(const Tuning& tuning) {
  ordered_json file = {{"format", kFormat},
                       {"device", tuning.key.device},
                       {"model", tuning.key.model},
                       {"steps", ordered_json::array()}};
  for (const auto& [rows, step] : tuning.steps) {
    ordered_json object = {{"rows", rows}};
    for (const auto& [arithmetic, name] : kArithmetics)
      if (step.arithmetic == arithmetic) object["arithmetic"] = name;
    each_part(step, [&](const std::string& name, const auto& part) {
      if (ordered_json numbers = part_json(part); !numbers.empty()) object[name] = std::move(numbers);
    });
    file["steps"].push_back(std::move(object));
  }
  if (ordered_json products = products_json(tuning.products); !products.empty()) file["products"] = std::move(products);
  return file.dump(2) + "\n";
}

}  // namespace nodewright
