// The JSON body of a call, and its fields as values. Null counts as absent. Every function throws ApiError 400 naming
// the field.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "serve/api/api_error.h"
#include "serve/fields/json_fields.h"

namespace nodewright {

class RequestBody {
 public:
  // Refuses what is no JSON object, nesting deeper than kDeepestRequestJson, objects of more than 4096 keys (whose
  // order costs the square of their number), a key that an object has twice, more than 2,000,000 values or 1,000,000
  // texts, lists and objects: what it makes takes a small multiple of the body's bytes. Spends WorkBudget, and so ends
  // where the client leaves. Numbers stay as they are written (base/written_number.h).
  static RequestBody parse(std::string_view text);

  // Null where the body does not have it, or has null. Valid as long as this.
  const RequestJson* find(const std::string& name) const;
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // Null where none of them is there; refuses two.
  const RequestJson* find_one(std::initializer_list<const char*> names) const;

  bool flag(const std::string& name, bool otherwise) const;
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most) const;
  std::optional<std::string> string(const std::string& name) const;
  // Null where it is absent.
  const RequestJson* object(const std::string& name) const;
  const RequestJson* array(const std::string& name) const;

  const RequestJson& json() const { return json_; }
  // The field that `message` is about: the first key of the body that it names; empty where it names none.
  std::string field_in(const std::string& message) const;

 private:
  explicit RequestBody(RequestJson json) : json_(std::move(json)) {}

  RequestJson json_;
};

// Calls `read`; what it throws about the request becomes ApiError 400 about `param` or, where that is empty, about the
// field that the message names.
void refusing(const RequestBody& body, const std::string& param, const std::function<void()>& read);

}  // namespace nodewright
