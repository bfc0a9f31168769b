// The fields that a request line may have, with the other names they go by, and one line's fields by their first name.
#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "serve/fields/json_fields.h"

namespace nodewright {

class RequestFields {
 public:
  // Throws std::invalid_argument where `line` is no object, has a field that is not known, or has one by two names.
  explicit RequestFields(const RequestJson& line);

  // Null where the line does not have it, or has null. `name`: the first of its names in the table.
  const RequestJson* find(const std::string& name) const;
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // As the line calls it, for errors.
  std::string name_of(const std::string& name) const;

 private:
  struct Field {
    std::string written;
    const RequestJson* value;
  };
  std::map<std::string, Field> fields_;
};

// Throws std::invalid_argument where `line` has more than one of these fields, with the names of two, `why` one alone
// can be, and which to drop.
void refuse_all_but_one(const RequestFields& line, std::initializer_list<const char*> names, const char* why);

}  // namespace nodewright
