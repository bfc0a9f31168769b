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

// One static_assert for each field, with g++'s offsets, for NVRTC to judge.
template <class A>
std::string layout_asserts(const std::string& name) {
  std::string text = "static_assert(sizeof(nodewright::" + name + ") == " + std::to_string(sizeof(A)) + ");\n";
  const A args{};
  for_each_field(args, [&](const FieldInfo& field, const auto&) {
    text += "static_assert(" + offset_in_nvrtc(name, field.name) + " == " + std::to_string(field.offset) + ");\n";
    text += "static_assert(sizeof(nodewright::" + name + "::" + std::string(field.name) +
            ") == " + std::to_string(field.bytes) + ");\n";
  });
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
  EXPECT_ANY_THROW(compile(text + "static_assert(" + offset_in_nvrtc("Embed", "vocab") + " == 0);\n"));
}

}  // namespace
}  // namespace nodewright::test
