#include "graph/product_form.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "graph/library_nodes.h"
#include "runtime/error.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace nodewright {
namespace {

constexpr const char* kFileName = "product";
constexpr std::string_view kFormat = "product form 1";
constexpr std::string_view kImported = "imported";

// Everything that the answer depends on.
Digest key_of(const MatmulPlan& plan) {
  const MatmulShape& s = plan.shape();
  const DeviceProperties& device = plan.device().properties();
  ContentHash hash;
  hash.add_field(kFormat);
  hash.add_field(fmt::format("{} sm_{}{} {} SMs, driver {}", device.name, device.cc_major, device.cc_minor,
                             device.sm_count, plan.device().driver().version()));
  hash.add_field(fmt::format("cuBLASLt {}", plan.library_version()));
  hash.add(std::as_bytes(std::span(plan.algorithm().words)));
  hash.add_field(fmt::format("{} lda {} ldb {} ldc {} ldy {} alpha {:a} beta {:a} aligned {} workspace {}",
                             to_string(s), s.lda, s.ldb, s.ldc, s.ldy, s.alpha, s.beta, plan.alignment_bytes(),
                             plan.workspace_bytes()));
  return hash.finish();
}

// Values of magnitude 1/32 to 1. A prime count of them repeats, so that no row of a matrix equals the next.
constexpr uint64_t kPatternElements = 65521;
std::vector<std::byte> pattern_of(Element element, uint64_t elements, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(std::min(elements, kPatternElements) * bytes_of(element));
  for (uint64_t at = 0; at < bytes.size(); at += bytes_of(element)) {
    const auto word = static_cast<uint32_t>(random());
    const uint32_t sign = word >> 31, exponent = word >> 24 & 3;  // of 2^-4 to 2^-1, by the element's bias
    uint32_t bits = sign << 15 | (11 + exponent) << 10 | (word & 0x3ff);
    if (element == Element::bf16) bits = sign << 15 | (123 + exponent) << 7 | (word & 0x7f);
    if (element == Element::f32) bits = sign << 31 | (123 + exponent) << 23 | (word & 0x7fffff);
    std::memcpy(bytes.data() + at, &bits, bytes_of(element));  // the low bytes: little-endian, as the device
  }
  return bytes;
}

// Operands for one product that nobody else uses.
class Scratch {
 public:
  explicit Scratch(const MatmulPlan& plan)
      : plan_(plan),
        a_(plan.device(), plan.name() + ".check.a", plan.spans().a),
        b_(plan.device(), plan.name() + ".check.b", plan.spans().b),
        c_(plan.device(), plan.name() + ".check.c", plan.spans().c),
        bias_(plan.device(), plan.name() + ".check.bias", plan.spans().bias),
        y_(plan.device(), plan.name() + ".check.y", plan.spans().y),
        expected_(plan.device(), plan.name() + ".check.expected", plan.spans().y),
        workspace_(plan.device(), plan.name() + ".check.workspace", plan.spans().workspace),
        pieces_(plan.device(), plan.name() + ".check.pieces", 2 * kPieceBytes) {
    fill(a_, plan.shape().inputs, 1);
    fill(b_, plan.shape().inputs, 2);
    fill(c_, plan.shape().output, 3);
    fill(bias_, plan.shape().output, 4);
  }

  MatmulOperands operands() const {
    return {.a = a_.address(),
            .b = b_.address(),
            .c = c_.address(),
            .bias = bias_.address(),
            .y = y_.address(),
            .workspace = workspace_.address()};
  }

  // `run` leaves its result in y, which holds NaN before.
  template <class Run>
  void take(Run&& run) {
    Device& device = plan_.device();
    fill_device(device, y_.address(), std::byte{0xff}, y_.bytes(), y_.name());
    if (workspace_.bytes() != 0)
      fill_device(device, workspace_.address(), std::byte{0xff}, workspace_.bytes(), workspace_.name());
    run();
  }

  // The last result is what later ones are compared with.
  void expect_this() {
    const Driver& driver = plan_.device().driver();
    driver.check(driver.cuMemcpyDtoD(expected_.address(), y_.address(), y_.bytes()), "cuMemcpyDtoD", "keep", y_.name());
  }

  // The last result has the same bits. Read in pieces: a head's result may have hundreds of MB.
  bool is_expected() {
    for (uint64_t at = 0; at < y_.bytes(); at += kPieceBytes) {
      const uint64_t bytes = std::min(kPieceBytes, y_.bytes() - at);
      const std::span<std::byte> pieces = pieces_.as<std::byte>();
      const std::span result = pieces.first(bytes), expected = pieces.subspan(kPieceBytes, bytes);
      read_device(plan_.device(), result, y_.address() + at, y_.name());
      read_device(plan_.device(), expected, expected_.address() + at, y_.name());
      if (std::memcmp(result.data(), expected.data(), bytes) != 0) return false;
    }
    return true;
  }

 private:
  void fill(const DeviceBuffer& buffer, Element element, unsigned seed) {
    if (buffer.bytes() == 0) return;
    const std::vector<std::byte> pattern = pattern_of(element, buffer.bytes() / bytes_of(element), seed);
    write_device(plan_.device(), buffer.address(), pattern, buffer.name());
    const Driver& driver = plan_.device().driver();
    for (uint64_t filled = pattern.size(); filled < buffer.bytes();) {
      const uint64_t more = std::min(filled, buffer.bytes() - filled);
      driver.check(driver.cuMemcpyDtoD(buffer.address() + filled, buffer.address(), more), "cuMemcpyDtoD", "fill",
                   buffer.name());
      filled += more;
    }
  }

  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

  const MatmulPlan& plan_;
  DeviceBuffer a_, b_, c_, bias_, y_, expected_, workspace_;
  PinnedBuffer pieces_;
};

GraphExecHandle graph_of(const MatmulPlan& plan, const RecordedProduct& recorded) {
  const Driver& driver = plan.device().driver();
  CUgraph graph = nullptr;
  driver.check(driver.cuGraphCreate(&graph, 0), "cuGraphCreate", "compare product", plan.name());
  const GraphHandle owned(driver, graph);
  recorded.add_kernel({.graph = graph, .before = {}, .types = {}}, plan.name());
  return instantiate(driver, graph, plan.name(), [&](CUgraphNode) { return plan.name(); });
}

ProductForm child(std::string reason) { return {.imported = false, .reason = std::move(reason)}; }

}  // namespace

std::string to_string(const ProductForm& form) {
  if (form.reference) return "reference kernel";
  return form.imported ? std::string(kImported) : "child graph, because " + form.reason;
}

ImportComparison compare_import(const MatmulPlan& plan, const AlterArguments& alter) {
  Scratch scratch(plan);
  const Stream stream(plan.device(), "compare " + plan.name());
  const auto direct = [&] {
    plan.submit(scratch.operands(), stream.get());
    stream.synchronize();
  };
  scratch.take(direct);
  scratch.expect_this();
  scratch.take(direct);
  if (!scratch.is_expected()) return {child("two direct calls give different bits")};

  RecordedProduct recorded(plan, scratch.operands(), plan.name(), stream);
  if (!recorded.obstacle().empty()) return {child(recorded.obstacle())};
  if (alter) alter(recorded.arguments());
  std::optional<GraphExecHandle> exec;
  try {
    exec.emplace(graph_of(plan, recorded));
  } catch (const Error& error) {
    return {child(fmt::format("the driver refuses its kernel as a node: {}", error.what())), false};
  }
  const Driver& driver = plan.device().driver();
  scratch.take([&] {
    driver.check(driver.cuGraphLaunch(exec->get(), stream.get()), "cuGraphLaunch", "compare product", plan.name());
    stream.synchronize();
  });
  if (!scratch.is_expected()) return {child("its imported kernel gives other bits than a direct call")};
  return {};
}

ProductForms::ProductForms(std::filesystem::path folder, AlterArguments alter)
    : store_(folder.empty() ? ImageStore::default_folder() : std::move(folder)), alter_(std::move(alter)) {
  stats_.disk_problem = store_.problem();
}

const ProductForm& ProductForms::of(const MatmulPlan& plan) {
  const Digest key = key_of(plan);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const ImageStore::Read read = store_.read(kFileName, key);
  if (read.found == ImageStore::Found::yes) {
    const std::string text(reinterpret_cast<const char*>(read.image.data()), read.image.size());
    ++stats_.read;
    return known_[key] = text == kImported ? ProductForm{} : child(text);
  }
  if (read.found == ImageStore::Found::damaged) ++stats_.rejected;
  const auto [form, lasting] = compare_import(plan, alter_);
  ++stats_.compared;
  if (!lasting) {
    ++stats_.not_kept;
    return known_[key] = form;
  }
  const std::string text = form.imported ? std::string(kImported) : form.reason;
  if (std::string problem = store_.write(kFileName, key, std::as_bytes(std::span(text))); !problem.empty())
    stats_.disk_problem = std::move(problem);
  return known_[key] = form;
}

std::filesystem::path ProductForms::file_of(const MatmulPlan& plan) const {
  return store_.file_of(kFileName, key_of(plan));
}

}  // namespace nodewright
