// Whether a library product may be one kernel node of ours: decided by comparing bits, once for each device, driver,
// library, algorithm and shape, and remembered on disk.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/image_store.h"
#include "runtime/matmul_plan.h"

namespace nodewright {

// How a product stands in the driver's graph.
struct ProductForm {
  bool imported = true;    // one kernel node; otherwise a child graph
  std::string reason;      // why it is a child graph
  bool reference = false;  // a kernel of ours, no library's
  bool operator==(const ProductForm&) const = default;
};
// "imported", "child graph, because its algorithm is 2 nodes", or "reference kernel"
std::string to_string(const ProductForm& form);

// For tests: changes the arguments of an imported kernel before it is compared.
using AlterArguments = std::function<void(std::span<std::byte>)>;

// Function, grid, block, dynamic shared bytes and arguments of a kernel node of somebody else's.
struct KernelLaunch {
  CUfunction function = nullptr;
  std::array<unsigned, 7> shape{};
  std::vector<std::byte> arguments;
  bool operator==(const KernelLaunch&) const = default;
};

// A product in a graph of the driver.
struct BuiltProduct {
  CUgraphNode node = nullptr;
  ProductForm form;
  KernelLaunch kernel;  // that was added, if it was imported
};

struct ImportComparison {
  ProductForm form;
  bool lasting = true;  // false: the driver refused a call, which it may not do the next time
};
// Runs `plan` on scratch memory, twice by a direct call and once as an imported kernel node. Imported only if all three
// give the same bits. Throws Error when the memory cannot be had or a product does not run.
ImportComparison compare_import(const MatmulPlan& plan, const AlterArguments& alter = {});

class ProductForms {
 public:
  // `folder`: where answers are kept; empty: ImageStore::default_folder().
  explicit ProductForms(std::filesystem::path folder = {}, AlterArguments alter = {});

  // From this object, from disk, or by compare_import. A damaged file, or one of another library, driver or device,
  // counts as none.
  const ProductForm& of(const MatmulPlan& plan);

  struct Stats {
    uint64_t compared = 0, read = 0;  // answers found out, and answers read from disk
    uint64_t rejected = 0;            // files found damaged
    uint64_t not_kept = 0;            // answers that may not last
    std::string disk_problem;         // why an answer could not be kept; empty when all is well
  };
  const Stats& stats() const { return stats_; }

  // The file that holds the answer for `plan`.
  std::filesystem::path file_of(const MatmulPlan& plan) const;

 private:
  ImageStore store_;
  AlterArguments alter_;
  std::map<Digest, ProductForm> known_;
  Stats stats_;
};

}  // namespace nodewright
