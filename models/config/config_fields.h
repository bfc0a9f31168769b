// One JSON object of a configuration file, asked key by key. Every question names the key, and every refusal the file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

inline constexpr int64_t kMostTokens = 1 << 24;  // of a vocabulary; several times that of any released model

// Each question throws Error where the value is of another type or out of range. Null counts as absent, as it does for
// transformers' optional fields.
class ConfigFields {
 public:
  // `prefix`: what stands before a key in messages, "rope_scaling." for a nested object. `doing`: completes "cannot
  // ...". The object is borrowed.
  ConfigFields(const nlohmann::json& object, std::string path, std::string prefix = {},
               std::string doing = "read the model configuration")
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)), doing_(std::move(doing)) {}

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
  // An object under `key`, or null if absent or empty.
  const nlohmann::json* object(const std::string& key) const;
  // One integer or a list of them; -1, which some files write for "none", gives none.
  std::vector<int64_t> token_ids(const std::string& key) const;
  std::optional<int64_t> token_id(const std::string& key, std::optional<int64_t> absent) const;

  [[noreturn]] void refuse(std::string detail, std::string advice = {}) const;

 private:
  int64_t integer_in(const nlohmann::json& value, const std::string& key, int64_t least, int64_t most) const;
  [[noreturn]] void wrong_type(const std::string& key, const nlohmann::json& value, std::string_view expected) const;

  const nlohmann::json& object_;
  std::string path_;
  std::string prefix_;
  std::string doing_;
};

}  // namespace nodewright
