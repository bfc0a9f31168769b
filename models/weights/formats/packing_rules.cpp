#include "models/weights/formats/packing_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/config/name_pattern.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr const char* kReadingRules = "read the quantization config of";
constexpr int64_t kUnpackedBits = 16;  // and more: the module stays as it was

}  // namespace

std::string Packing::words() const {
  return fmt::format("int{}, {}", bits, group < 0 ? "a scale for each row" : fmt::format("groups of {}", group));
}

PackingRules::PackingRules(const ConfigFields& fields, std::vector<int64_t> widths)
    : path_(fields.path()),
      key_(fields.prefix().substr(0, fields.prefix().find('.'))),
      widths_(std::move(widths)),
      usual_(read(fields, {})) {
  if (usual_.bits >= kUnpackedBits) fields.refuse(fmt::format("{}bits is {}", fields.prefix(), usual_.bits));
}

Packing PackingRules::read(const ConfigFields& fields, Packing absent) const {
  const Packing packing{fields.integer("bits", absent.bits, 1, 32),
                        fields.integer("group_size", absent.group, -1, 1 << 20)};
  if (packing.bits < kUnpackedBits && std::ranges::count(widths_, packing.bits) == 0)
    fields.refuse(fmt::format("{}bits is {}, expected {}", fields.prefix(), packing.bits, fmt::join(widths_, " or ")));
  if (packing.group == 0) fields.refuse(fields.prefix() + "group_size is 0, expected -1 or at least 1");
  return packing;
}

void PackingRules::add_name(const std::string& name, const ConfigFields& changes) {
  names_.emplace(name, read(changes, usual_));
}

void PackingRules::add_pattern(const std::string& pattern, bool from_beginning, const ConfigFields& changes) {
  patterns_.push_back(
      {pattern, name_pattern(kReadingRules, path_, changes.prefix(), pattern), from_beginning, read(changes, usual_)});
}

Packing PackingRules::of(const std::string& module) const {
  if (const std::optional<Packing> packing = packed(module)) return *packing;
  refuse_module(fmt::format("{} gives module {} {} bits, which the files hold packed", key_, in_quotes(module),
                            lookup(module).bits));
}

std::optional<Packing> PackingRules::packed(const std::string& module) const {
  const Packing packing = lookup(module);
  return packing.bits < kUnpackedBits ? std::optional(packing) : std::nullopt;
}

Packing PackingRules::lookup(const std::string& module) const {
  if (const auto found = names_.find(module); found != names_.end()) return found->second;
  const Pattern* first = nullptr;
  for (const Pattern& one : patterns_) {
    const auto where =
        one.from_beginning ? std::regex_constants::match_continuous : std::regex_constants::match_default;
    if (!std::regex_search(module, one.regex, where)) continue;
    if (first != nullptr && first->packing != one.packing)
      refuse_module(fmt::format("{} has {} and {}, which both fit module {} and say different things", key_,
                                in_quotes(first->text), in_quotes(one.text), in_quotes(module)));
    first = &one;
  }
  return first == nullptr ? usual_ : first->packing;
}

void PackingRules::refuse_module(std::string detail) const {
  throw Error({.doing = kReadingRules, .object = path_, .detail = std::move(detail)});
}

std::string PackingRules::words() const {
  return usual_.words() + (names_.empty() && patterns_.empty() ? "" : ", by module");
}

}  // namespace nodewright
