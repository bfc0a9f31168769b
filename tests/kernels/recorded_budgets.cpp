#include "tests/kernels/recorded_budgets.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/error.h"
#include "tests/support/test_places.h"

namespace nodewright::test {
namespace {

using nlohmann::ordered_json;

// f(name, member, slack, more_is_worse): the one list of what a line holds.
template <class Function>
void each_number(const KernelBudget*, Function&& f) {
  f("registers", &KernelBudget::registers, 0.0, true);
  f("spills", &KernelBudget::spill_bytes, 0.0, true);
  f("stack", &KernelBudget::stack_bytes, 0.0, true);
  f("threads", &KernelBudget::threads, 0.0, true);
  f("shared", &KernelBudget::shared_bytes, 0.0, true);
  f("blocks", &KernelBudget::blocks_of_sm, 0.0, false);
  f("code", &KernelBudget::code_bytes, kCodeSlack, true);
}
template <class Function>
void each_number(const LayerBudget*, Function&& f) {
  f("kernels", &LayerBudget::kernels, 0.0, true);
  f("code", &LayerBudget::code_bytes, kCodeSlack, true);
}

template <class Budget>
std::map<std::string, Budget> budgets_of(const nlohmann::json& lines) {
  std::map<std::string, Budget> budgets;
  for (const auto& [key, line] : lines.items())
    each_number(static_cast<const Budget*>(nullptr), [&](const char* name, uint64_t Budget::*number, double, bool) {
      budgets[key].*number = line.at(name).template get<uint64_t>();
    });
  return budgets;
}

template <class Budget>
void write_lines(std::ostream& file, const char* name, const std::map<std::string, Budget>& budgets) {
  file << "  " << ordered_json(name) << ": {";
  const char* before = "\n";
  for (const auto& [key, budget] : budgets) {
    ordered_json line;
    each_number(&budget, [&](const char* number, uint64_t Budget::*at, double, bool) { line[number] = budget.*at; });
    file << before << "    " << ordered_json(key) << ": " << line;
    before = ",\n";
  }
  file << "\n  }";
}

template <class Budget>
void compare(const std::map<std::string, Budget>& recorded, const std::map<std::string, Budget>& measured,
             std::vector<std::string>& said) {
  for (const auto& [key, now] : measured) {
    const auto found = recorded.find(key);
    if (found == recorded.end()) {
      said.push_back(key + " has no line");
      continue;
    }
    each_number(&now, [&](const char* name, uint64_t Budget::*number, double slack, bool more_is_worse) {
      const auto was = static_cast<double>(found->second.*number), is = static_cast<double>(now.*number);
      if (more_is_worse ? is > was * (1 + slack) : is < was)
        said.push_back(key + ": " + name + " " + std::to_string(now.*number) + ", recorded " +
                       std::to_string(found->second.*number));
    });
  }
  for (const auto& [key, was] : recorded)
    if (!measured.contains(key)) said.push_back(key + " has a line and does not ship");
}

}  // namespace

std::filesystem::path budgets_file() { return source_dir() / "tests/kernels/budgets.json"; }

Budgets read_budgets() {
  std::ifstream file(budgets_file());
  if (!file)
    throw Error(
        {.doing = "read recorded budgets", .object = budgets_file().string(), .detail = "there is no such file"});
  const nlohmann::json json = nlohmann::json::parse(file);
  return {json.at("nvrtc").get<std::string>(), json.at("inputs").get<std::string>(),
          budgets_of<LayerBudget>(json.at("layers")), budgets_of<KernelBudget>(json.at("kernels"))};
}

void write_budgets(const Budgets& budgets) {
  std::ostringstream text;
  text << "{\n  \"nvrtc\": " << ordered_json(budgets.nvrtc) << ",\n  \"inputs\": " << ordered_json(budgets.inputs)
       << ",\n";
  write_lines(text, "layers", budgets.layers);
  text << ",\n";
  write_lines(text, "kernels", budgets.kernels);
  text << "\n}\n";
  std::ofstream file(budgets_file());
  file << text.str();
  if (!file.flush())
    throw Error({.doing = "write budgets", .object = budgets_file().string(), .detail = "the file takes no bytes"});
}

std::vector<std::string> complaints(const Budgets& recorded, const Budgets& measured) {
  std::vector<std::string> said;
  compare(recorded.layers, measured.layers, said);
  compare(recorded.kernels, measured.kernels, said);
  return said;
}

}  // namespace nodewright::test
