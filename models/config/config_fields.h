// One JSON object of a configuration file, asked key by key. Every question names the key, and every refusal the file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"

namespace nodewright {

inline constexpr int64_t kMostTokens = 1 << 24;  // of a vocabulary; several times that of any released model

// Each question throws Error where the value is of another type or out of range; with a list of faults it is added
// there, and the answer is that of an absent key. Null counts as absent, as it does for transformers' optional fields.
class ConfigFields {
 public:
  // `doing`: completes "cannot ...". The object and the list of faults are borrowed.
  ConfigFields(const nlohmann::json& object, std::string path, std::string doing, std::vector<Error>* faults = nullptr)
      : object_(object), path_(std::move(path)), doing_(std::move(doing)), faults_(faults) {}
  // The fields of an object inside this one. `prefix` precedes keys in messages: "rope_scaling.".
  ConfigFields inside(const nlohmann::json& object, std::string prefix) const;

  const nlohmann::json* find(const std::string& key) const;
  bool has(const std::string& key) const { return object_.contains(key); }  // even if null
  const nlohmann::json& object() const { return object_; }
  const std::string& path() const { return path_; }
  const std::string& prefix() const { return prefix_; }

  int64_t integer(const std::string& key, int64_t absent, int64_t least, int64_t most) const;
  // A finite number, integers included; `least` is excluded when `open`.
  double number(const std::string& key, double absent, double least, double most, bool open) const;
  bool boolean(const std::string& key, bool absent) const;
  std::string text(const std::string& key, std::string absent) const;
  // A list of integers, each as integer() takes it; empty if absent.
  std::vector<int64_t> integers(const std::string& key) const;
  // An object under `key`, or null if absent or empty.
  const nlohmann::json* object(const std::string& key) const;
  // One integer or a list of them; -1, which some files write for "none", gives none.
  std::vector<int64_t> token_ids(const std::string& key) const;
  std::optional<int64_t> token_id(const std::string& key, std::optional<int64_t> absent) const;

  // What is wrong by itself: throws, or adds it to the list of faults.
  void fault(std::string detail, std::string advice = {}) const;
  // What is wrong with several values together, or leaves nothing to go on with.
  [[noreturn]] void refuse(std::string detail, std::string advice = {}) const;

 private:
  std::optional<int64_t> integer_in(const nlohmann::json& value, const std::string& key, int64_t least,
                                    int64_t most) const;
  void wrong_type(const std::string& key, const nlohmann::json& value, std::string_view expected) const;

  const nlohmann::json& object_;
  std::string path_;
  std::string prefix_;
  std::string doing_;
  std::vector<Error>* faults_;  // null: the first is thrown
};

}  // namespace nodewright
