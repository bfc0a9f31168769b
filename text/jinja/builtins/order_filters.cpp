#include "text/jinja/builtins/order_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "text/jinja/values/operations.h"

namespace nodewright::jinja {
namespace {

using Keyed = std::pair<Value, Value>;  // a key, and what it is of

Value without_case(const Value& value, Work& work) {
  if (!value.text()) return value;
  work.spend_bytes(value.text()->size());
  return value.text()->lower();
}

// The key of an item: what stands at `path`, which may be null, in lower case unless cases count.
Value key_of(const Value& item, const Value* path, bool case_counts, Work& work) {
  const Value found = path ? member_at(item, *path, work) : item;
  return case_counts ? found : without_case(found, work);
}

const Value* path_or_null(const ArgumentReader& reader) {
  const Value* path = reader.given("attribute");
  return path && !path->is_none() ? path : nullptr;
}

std::vector<Value> in_order(std::vector<Keyed> keyed, bool reverses, Work& work) {
  work.spend(keyed.size() * std::bit_width(keyed.size()));
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return reverses ? less(b.first, a.first, work) : less(a.first, b.first, work);
  });
  std::vector<Value> items;
  for (Keyed& one : keyed) items.push_back(std::move(one.second));
  return items;
}

}  // namespace

Value member_at(Value value, const Value& path, Work& work) {
  if (!path.text()) return subscript_of(value, path, work);
  for (const Text& name : path.text()->split(Text("."), -1)) {
    const std::string& digits = name.bytes();
    const bool is_place = !digits.empty() && digits.size() < 10 &&
                          std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
    value = subscript_of(value, is_place ? Value(std::int64_t{std::stoi(digits)}) : Value(name), work);
  }
  return value;
}

// By several attributes where there are commas between them.
Value sorted(const Value& value, const Arguments& arguments, Work& work) {
  const ArgumentReader reader("the filter sort", arguments, {"reverse", "case_sensitive", "attribute"}, work);
  const bool case_counts = reader.truth_or("case_sensitive", false);
  const Value* path = path_or_null(reader);
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(value, work)) {
    std::vector<Value> keys;
    if (path && path->text())
      for (const Text& part : path->text()->split(Text(","), -1)) {
        const Value one(part);
        keys.push_back(key_of(item, &one, case_counts, work));
      }
    else
      keys.push_back(key_of(item, path, case_counts, work));
    keyed.emplace_back(std::move(keys), item);
  }
  return in_order(std::move(keyed), reader.truth_or("reverse", false), work);
}

Value sorted_items(const Value& value, const Arguments& arguments, Work& work) {
  const ArgumentReader reader("the filter dictsort", arguments, {"case_sensitive", "by", "reverse"}, work);
  if (!value.dict()) work.stop(fmt::format("dictsort of {}, not a dict", value.kind()));
  const std::string by = reader.given("by") ? reader.text("by").bytes() : "key";
  if (by != "key" && by != "value") work.stop(fmt::format("dictsort by '{}', expected key or value", by));
  std::vector<Keyed> keyed;
  for (const Value& pair : pairs_of(*value.dict(), work)) {
    const Value& key = pair.list()->items[by == "key" ? 0 : 1];
    keyed.emplace_back(reader.truth_or("case_sensitive", false) ? key : without_case(key, work), pair);
  }
  return in_order(std::move(keyed), reader.truth_or("reverse", false), work);
}

Value distinct(const Value& value, const Arguments& arguments, Work& work) {
  const ArgumentReader reader("the filter unique", arguments, {"case_sensitive", "attribute"}, work);
  std::vector<Value> seen, kept;
  for (const Value& item : items_of(value, work)) {
    Value key = key_of(item, path_or_null(reader), reader.truth_or("case_sensitive", false), work);
    if (!key.is_hashable()) work.stop(fmt::format("unique of {}", key.kind()));
    if (std::ranges::any_of(seen, [&](const Value& one) { return equal(one, key, work); })) continue;
    seen.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::list_of(std::move(kept), ListKind::stream);
}

Value extreme(const Value& value, bool largest, const Arguments& arguments, Work& work) {
  const ArgumentReader reader(largest ? "the filter max" : "the filter min", arguments, {"case_sensitive", "attribute"},
                              work);
  const std::vector<Value> items = items_of(value, work);
  if (items.empty()) return Undefined{largest ? "the max of nothing" : "the min of nothing"};
  const bool case_counts = reader.truth_or("case_sensitive", false);
  std::size_t best = 0;
  Value best_key = key_of(items[0], path_or_null(reader), case_counts, work);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i], path_or_null(reader), case_counts, work);
    if (!(largest ? less(best_key, key, work) : less(key, best_key, work))) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

}  // namespace nodewright::jinja
