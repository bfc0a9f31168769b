// Both compilers lay out the argument structs alike.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "examples/nanogpt/nanogpt_sources.h"
#include "tests/kernels/compiled_kernels.h"

namespace nodewright::test {
namespace {

// NVRTC has no offsetof; __INTADDR__ is what its headers make it of.
std::string offset_in_nvrtc(const std::string& name, std::string_view field) {
  return "__INTADDR__(&((nodewright::" + name + "*)0)->" + std::string(field) + ")";
}

// A static_assert for each field of `block`, the struct at `offset` of the struct `name`, with g++'s offsets, for NVRTC
// to judge. `path`: how C++ names the block, with a dot after it.
template <class A>
void add_asserts(std::string& text, const std::string& name, const A& block, const std::string& path, size_t offset) {
  using namespace field_visit_detail;
  const auto pointers = field_pointers(block);
  const auto add = [&]<size_t I>(std::integral_constant<size_t, I>) {
    const auto& field = *at_place<I>(pointers);
    const std::string member = path + std::string(field_name<A, I>());
    const size_t at =
        offset + static_cast<size_t>(reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&block));
    text += "static_assert(" + offset_in_nvrtc(name, member) + " == " + std::to_string(at) + ");\n";
    text +=
        "static_assert(sizeof(nodewright::" + name + "::" + member + ") == " + std::to_string(sizeof(field)) + ");\n";
    if constexpr (holds_roles<std::remove_cvref_t<decltype(field)>>()) add_asserts(text, name, field, member + ".", at);
  };
  [&]<size_t... I>(std::index_sequence<I...>) { (add(std::integral_constant<size_t, I>()), ...); }
  (std::make_index_sequence<decltype(pointers)::count>());
}
template <class A>
std::string layout_asserts(const std::string& name) {
  std::string text = "static_assert(sizeof(nodewright::" + name + ") == " + std::to_string(sizeof(A)) + ");\n";
  add_asserts(text, name, A{}, "", 0);
  return text;
}

TEST(ArgumentStructs, HaveTheSameLayoutInBothCompilers) {
  std::string text;
  for (const std::string_view header : kArgumentHeaders) text += "#include \"" + std::string(header) + "\"\n";
  for (const EmbeddedSource& source : nanogpt_sources())
    if (source.path.ends_with(".h") && !source.path.ends_with("_shape.h"))
      text += "#include \"" + std::string(source.path) + "\"\n";
  std::set<std::string> seen;  // several kernels take the same struct
  for_each_kernel([&]<class Args>(const char*, const char* name) {
    if (seen.insert(name).second) text += layout_asserts<Args>(name);
  });
  text += layout_asserts<LayerNormProject<bf16>>("LayerNormProject<nodewright::bf16>") +
          layout_asserts<LayerNormProject<float>>("LayerNormProject<float>") +
          layout_asserts<ProjectBiasAdd<float>>("ProjectBiasAdd<float>") +
          layout_asserts<EmbedPositions<float>>("EmbedPositions<float>") + layout_asserts<DenseAttend>("DenseAttend") +
          layout_asserts<Timed<Sample>>("Timed<nodewright::Sample>");
  const auto compile = [](const std::string& source) {
    std::vector<EmbeddedSource> extra(nanogpt_sources().begin(), nanogpt_sources().end());
    extra.push_back({"kernels_src/layouts.cu", source});
    Nvrtc::load()->compile(nvrtc_source({"layouts", {}}, extra), nvrtc_options(9, 0));
  };
  EXPECT_NO_THROW(compile(text)) << text;
  EXPECT_ANY_THROW(compile(text + "static_assert(" + offset_in_nvrtc("Embed", "in.vocab") + " == 0);\n"));
}

}  // namespace
}  // namespace nodewright::test
