// How far a golden checkpoint's logits may stand from transformers': tests/golden/parity.json has the error of every
// case as measured on the CPU driver, and the limit is a multiple of that.
#pragma once

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/engine/parity/golden_model.h"

namespace nodewright::test {

// Steps of one row, of eight, or of products; "hidden": states after the final norm, in steps of eight.
inline const std::vector<std::string> kParityForms = {"one_row", "eight_rows", "products", "hidden"};

// Another rounding in one place turns that of all that follows: with a rotation base 1 % off, of no consequence after
// few tokens, errors were 0.6 to 1.7 times those of the table. Never more than 3.
inline constexpr double kLimitOverError = 2.5;

inline std::filesystem::path parity_file() { return source_dir() / "tests/golden/parity.json"; }

inline nlohmann::ordered_json read_parity() {
  std::ifstream file(parity_file());
  return nlohmann::ordered_json::parse(file);
}

// In parts of the standard deviation, as relative_error says. Of the case with that prompt, by its place in cases.json.
inline double recorded_error(const std::string& golden, const std::string& form, size_t prompt) {
  return read_parity().at("percent").at(golden).at(form).at(prompt).get<double>() / 100;
}
inline double parity_limit(const std::string& golden, const std::string& form, size_t prompt) {
  return kLimitOverError * recorded_error(golden, form, prompt);
}

inline bool writes_parity() { return std::getenv("NODEWRIGHT_WRITE_PARITY") != nullptr; }

// Puts measured errors into the table, a line a golden, percent to three places.
inline void record_errors(const std::string& golden, const std::string& form, const std::vector<double>& errors) {
  nlohmann::ordered_json table = read_parity();
  nlohmann::ordered_json& line = table["percent"][golden][form] = nlohmann::ordered_json::array();
  for (const double error : errors) line.push_back(std::round(1e5 * error) / 1e3);
  std::ofstream file(parity_file());
  file << "{\n  \"about\": " << table.at("about") << ",\n  \"percent\": {";
  const char* before = "\n";
  for (const auto& [name, forms] : table.at("percent").items()) {
    file << before << "    " << nlohmann::json(name) << ": " << forms;
    before = ",\n";
  }
  file << "\n  }\n}\n";
}

}  // namespace nodewright::test
