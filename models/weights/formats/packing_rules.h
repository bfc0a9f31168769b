// The width and the groups of packed integers, for all modules and for those that a checkpoint's list names. Shared by
// GPTQ, AWQ and auto-round, which store integers in the same ways and differ in their lists.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "models/weights/formats/weight_format.h"

namespace nodewright {

struct Packing {
  int64_t bits = 4;
  int64_t group = 128;  // inputs that share a scale; -1: all of them

  bool operator==(const Packing&) const = default;
  // "int4, groups of 128".
  std::string words() const;
};

class PackingRules {
 public:
  // Reads bits, one of `widths`, and group_size. Throws Error, naming the key, for others.
  PackingRules(const ConfigFields& fields, std::vector<int64_t> widths);

  // `changes`: what differs for a module of this name, or for those in which the pattern is found, or that begin with
  // what it matches. Modules of 16 bits and more are not packed, and need no rule.
  void add_name(const std::string& name, const ConfigFields& changes);
  void add_pattern(const std::string& pattern, bool from_beginning, const ConfigFields& changes);

  // For a packed module; a name comes before patterns. Throws Error where two patterns say different things of it, or
  // the list says that it is not packed.
  Packing of(const std::string& module) const;
  // The same where the module need not be packed: nothing where the list says that it is not.
  std::optional<Packing> packed(const std::string& module) const;
  // "int4, groups of 128", or "int4, groups of 128, by module".
  std::string words() const;

 private:
  struct Pattern {
    std::string text;
    std::regex regex;
    bool from_beginning;
    Packing packing;
  };
  Packing read(const ConfigFields& fields, Packing absent) const;
  Packing lookup(const std::string& module) const;
  [[noreturn]] void refuse_module(std::string detail) const;

  std::string path_, key_;  // of the configuration, for errors
  std::vector<int64_t> widths_;
  Packing usual_;
  std::map<std::string, Packing, std::less<>> names_;
  std::vector<Pattern> patterns_;
};

// Integers packed along the inputs, whose groups g_idx orders if `ordered`, and along the outputs
// (column_packed_format.cpp).
enum class GptqZeros : uint8_t { less_one, as_they_are };  // versions 1 and 2
std::unique_ptr<WeightFormat> gptq_format(PackingRules rules, GptqZeros zeros, bool ordered);
std::unique_ptr<WeightFormat> awq_format(PackingRules rules);

}  // namespace nodewright
