// A JSON schema as a server reads it, then a zero byte and the bytes that choose a text of it. It becomes an expression
// and rules, or is refused with the reason, within the work that text/grammar promises. Texts of the expression are
// JSON, and follow the schema as another reader understands it.
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "base/written_number.h"
#include "serve/api/asked/request_body.h"
#include "serve/fields/schema_references.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/grammar_walk.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema/json_schema_rules.h"
#include "text/grammar/schema/schema_place.h"

using namespace nodewright;

namespace {

constexpr int kMostTokens = 80;
constexpr uint64_t kManyUnits = 500'000;
// What replaces the references copies 4 MiB of 20 000 values, whose keys are compared.
constexpr uint64_t kMostUnitsOfReferences = (4 << 20) + 20'000 * 4096;
// What one operation may count beyond the limit before it is not done.
constexpr uint64_t kMostUnitsOfSchema = kMostSchemaWork + 1'000'000;

// Whether JSON follows a schema, of the keywords that json_schema.h takes.
class Reader {
 public:
  explicit Reader(const RequestJson& root) : root_(root) {}

  bool follows(const RequestJson& value, const RequestJson& schema) const {
    if (const auto reference = schema.find("$ref"); reference != schema.end())
      return follows(value, referred_schema(root_, *reference, "#"));
    if (const auto constant = schema.find("const"); constant != schema.end() && !same_json(value, *constant))
      return false;
    if (const auto choices = schema.find("enum");
        choices != schema.end() && !any(*choices, [&](const RequestJson& one) { return same_json(value, one); }))
      return false;
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (const auto options = schema.find(key);
          options != schema.end() && !any(*options, [&](const RequestJson& one) { return follows(value, one); }))
        return false;
    if (const auto type = schema.find("type"); type != schema.end() && !is_of(value, *type)) return false;
    if (is_json_number(value)) return is_within(number_value(value), schema);
    if (value.is_string()) return has_length(value.get<std::string>(), schema);
    if (value.is_array())
      return counted(value.size(), schema, "minItems", "maxItems") &&
             (!schema.contains("items") || all_follow(value, schema["items"]));
    return !value.is_object() || has_properties(value, schema);
  }

 private:
  using Asks = std::function<bool(const RequestJson&)>;

  static bool any(const RequestJson& list, const Asks& asks) { return std::any_of(list.begin(), list.end(), asks); }

  static bool is_of(const RequestJson& value, const RequestJson& type) {
    if (type.is_array()) return any(type, [&](const RequestJson& one) { return is_of(value, one); });
    if (type == "integer") return is_whole_number(value);
    return is_json_number(value) ? type == "number" : type == value.type_name();
  }

  // Bounds to eleven digits; the tests of number_ranges hold the rest.
  static bool is_within(double value, const RequestJson& schema) {
    const auto bound = [&](const char* key) {
      const auto found = schema.find(key);
      return found == schema.end() || !is_json_number(*found) ? std::nan("") : number_value(*found);
    };
    for (const char* key : {"minimum", "exclusiveMinimum"})
      if (const double least = bound(key); value < least - 1e-11 * std::fabs(least)) return false;
    for (const char* key : {"maximum", "exclusiveMaximum"})
      if (const double most = bound(key); value > most + 1e-11 * std::fabs(most)) return false;
    return true;
  }

  static bool counted(size_t count, const RequestJson& schema, const char* least_key, const char* most_key) {
    const auto limit = [&](const char* key, int64_t otherwise) {
      return schema.contains(key) ? whole_number(schema[key]).value() : otherwise;
    };
    return std::cmp_greater_equal(count, limit(least_key, 0)) && std::cmp_less_equal(count, limit(most_key, INT64_MAX));
  }

  static bool has_length(const std::string& text, const RequestJson& schema) {
    const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; };
    const auto characters = text.size() - static_cast<size_t>(std::ranges::count_if(text, continues));
    return counted(characters, schema, "minLength", "maxLength");
  }

  bool all_follow(const RequestJson& values, const RequestJson& schema) const {
    return std::ranges::all_of(values, [&](const RequestJson& one) { return follows(one, schema); });
  }

  bool has_properties(const RequestJson& value, const RequestJson& schema) const {
    for (const RequestJson& name : schema.value("required", RequestJson::array()))
      if (!value.contains(name.get<std::string>())) return false;
    const RequestJson properties = schema.value("properties", RequestJson::object());
    const bool has_keywords = schema.contains("properties") || schema.contains("additionalProperties");
    for (const auto& [name, one] : value.items()) {
      if (has_keywords && !properties.contains(name)) return false;
      if (has_keywords && !follows(one, properties[name])) return false;
    }
    return true;
  }

  const RequestJson& root_;
};

// What reading refuses; other exceptions end the process.
template <class Read>
std::optional<std::string> read_or_refused(const char* what, uint64_t most_units, size_t size, const Read& read) {
  try {
    return fuzz::metered(what, {most_units, size}, read);
  } catch (const Error& error) {
    fuzz::check_refusal(error);
  } catch (const std::invalid_argument& error) {
    fuzz::require(*error.what() != '\0', "a refusal says why");
  }
  return std::nullopt;
}

void follow(const std::string& pattern, const RequestJson& schema, std::string_view choices) {
  fuzz::Script script(choices);
  const Reader reader(schema);
  try {
    fuzz::GrammarWalk walk(pattern, script);
    for (int i = 0; i < kMostTokens; ++i) {
      if (walk.is_complete()) {
        const RequestJson value = parse_as_written(walk.text());  // ends the process where the text is no JSON
        fuzz::require(reader.follows(value, schema), "a text of a schema follows it");
      }
      if (!walk.step("}]\",:1a")) return;
    }
  } catch (const Error& error) {  // it takes more states than an automaton may have
    fuzz::check_refusal(error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::TwoParts parts = fuzz::two_parts(data, size);
  std::optional<RequestBody> body;
  try {
    body = RequestBody::parse(parts.first);
  } catch (const ApiError&) {
    return 0;
  }
  const fuzz::Meter all(UINT64_MAX / 2);
  const RequestJson& schema = body->json();
  std::optional<RequestJson> plain;
  read_or_refused("replacing references", kMostUnitsOfReferences, size, [&] {
    plain = without_references(schema);
    return std::string();
  });
  read_or_refused("making rules", kMostUnitsOfSchema, size, [&] { return json_schema_rules(schema); });
  if (!plain) return 0;
  const auto pattern =
      read_or_refused("making an expression", kMostUnitsOfSchema, size, [&] { return json_schema_pattern(*plain); });
  if (pattern) follow(*pattern, schema, parts.second);
  return all.units() < kManyUnits ? 0 : -1;
}
