// What NVRTC makes of every kernel of Llama-3.2-1B and 3B, Qwen3-4B, gemma-3-1b and GPT-2, for Ampere and
// Hopper, without a GPU: registers, spills, the wait, and that both compilers lay out the argument structs alike.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "kernels_src/advance.h"
#include "kernels_src/attend.h"
#include "kernels_src/attend_tiles.h"
#include "kernels_src/dense_attend.h"
#include "kernels_src/embed.h"
#include "kernels_src/embed_positions.h"
#include "kernels_src/gate.h"
#include "kernels_src/layer_norm_project.h"
#include "kernels_src/norm_add.h"
#include "kernels_src/norm_gate_up.h"
#include "kernels_src/norm_hidden.h"
#include "kernels_src/norm_project.h"
#include "kernels_src/norm_rows.h"
#include "kernels_src/project.h"
#include "kernels_src/project_add.h"
#include "kernels_src/project_bias_add.h"
#include "kernels_src/projection_shape.h"
#include "kernels_src/read_stream.h"
#include "kernels_src/record_choice.h"
#include "kernels_src/repeat_until.h"
#include "kernels_src/rope_append.h"
#include "kernels_src/rope_flash_decode.h"
#include "kernels_src/sample.h"
#include "kernels_src/saxpy.h"
#include "kernels_src/shape_logits.h"
#include "kernels_src/stamp.h"
#include "kernels_src/update_tables.h"
#include "models/decoder_kernels.h"
#include "runtime/cubin_reader.h"
#include "runtime/nvrtc.h"

namespace nodewright::test::budgets_test {
namespace {

// The shapes of the released checkpoints' config.json.
ModelConfig llama_1b() {
  ModelConfig c;
  c.hidden = 2048, c.layers = 16, c.heads = 32, c.kv_heads = 8, c.head_dim = 64, c.intermediate = 8192,
  c.vocab = 128256;
  return c;
}
ModelConfig llama_3b() {
  ModelConfig c;
  c.hidden = 3072, c.layers = 28, c.heads = 24, c.kv_heads = 8, c.head_dim = 128, c.intermediate = 8192,
  c.vocab = 128256;
  return c;
}

ModelConfig qwen3_4b() {
  ModelConfig c;
  c.hidden = 2560, c.layers = 36, c.heads = 32, c.kv_heads = 8, c.head_dim = 128, c.intermediate = 9728,
  c.vocab = 151936;
  c.head_norm = true;
  return c;
}
ModelConfig gemma3_1b() {
  ModelConfig c;
  c.hidden = 1152, c.layers = 26, c.heads = 4, c.kv_heads = 1, c.head_dim = 256, c.intermediate = 6912,
  c.vocab = 262144;
  c.norm = Norm::rms_one_plus, c.head_norm = c.post_norms = true, c.activation = Activation::gelu_tanh;
  c.embedding_scale = 34;
  return c;
}
// GPT-2 as a checkpoint, through the paged cache; also with nanoGPT's gelu and the width of GPT-2 XL.
ModelConfig gpt2_small() {
  ModelConfig c;
  c.hidden = 768, c.layers = 12, c.heads = c.kv_heads = 12, c.head_dim = 64, c.intermediate = 3072, c.vocab = 50257;
  c.norm = Norm::layer, c.biases = c.learned_positions = true, c.gated = false, c.activation = Activation::gelu_tanh;
  return c;
}
ModelConfig gpt2_xl() {
  ModelConfig c = gpt2_small();
  c.hidden = 1600, c.heads = c.kv_heads = 25, c.intermediate = 6400, c.activation = Activation::gelu_erf;
  return c;
}

struct Target {
  int cc_major, sm_count;
};
constexpr Target kAmpere{8, 108}, kHopper{9, 132};  // A100, H100 and H200

// CUDA programming guide, technical specifications, 8.0 and 9.0: shared memory of a block.
DeviceProperties properties_of(Target target) {
  DeviceProperties device;
  device.sm_count = target.sm_count;
  device.shared_optin_bytes = (target.cc_major >= 9 ? 227u : 163u) << 10;
  return device;
}

constexpr uint64_t kRegistersOfAnSm = 65536;  // CUDA programming guide, technical specifications, 8.0 and 9.0

// cosf and sinf reduce angles above 105615 radians in local memory (CUDA programming guide, mathematical functions),
// and around that rare path NVRTC 13.0 spills a register or two.
constexpr uint64_t kRopeStackBytes = 40;

NvrtcSource nvrtc_source(const KernelRequest& request, std::span<const EmbeddedSource> extra = {}) {
  const KernelProgram program = program_of(request, extra, "runtime/cpu_driver/");
  NvrtcSource source{std::string(program.source.path), program.prelude + std::string(program.source.text), {}};
  for (const EmbeddedSource& header : program.headers)
    source.headers.push_back({std::string(header.path), std::string(header.text)});
  return source;
}

std::map<std::string, uint64_t> args_bytes() {
  return {{"embed", sizeof(Embed)},
          {"norm_project", sizeof(NormProject)},
          {"norm_gate_up", sizeof(NormGateUp)},
          {"project_add", sizeof(ProjectAdd)},
          {"project", sizeof(Project)},
          {"norm_add", sizeof(NormAdd)},
          {"rope_append", sizeof(RopeAppend)},
          {"rope_flash_decode", sizeof(RopeFlashDecode)},
          {"attend", sizeof(Attend)},
          {"attend_tiles", sizeof(AttendTiles)},
          {"norm_rows", sizeof(NormRows)},
          {"norm_hidden", sizeof(NormHidden)},
          {"gate", sizeof(Gate)},
          {"sample", sizeof(Sample)},
          {"shape_logits", sizeof(ShapeLogits)},
          {"record_choice", sizeof(RecordChoice)},
          {"advance", sizeof(Advance)},
          {"update_tables", sizeof(UpdateTables)},
          {"layer_norm_project", sizeof(LayerNormProject<float>)},
          {"project_bias_add", sizeof(ProjectBiasAdd<float>)},
          {"embed_positions", sizeof(EmbedPositions<float>)},
          {"dense_attend", sizeof(DenseAttend)},
          {"read_stream", sizeof(ReadStream)},
          {"saxpy", sizeof(Saxpy)},
          {"stamp", sizeof(Stamp)},
          {"repeat_until", sizeof(RepeatUntil)}};
}

// A kernel in tiles takes what the one that it stands for takes.
std::string args_name(const std::string& kernel) {
  if (kernel == "flash_decode") return "attend";
  return kernel.starts_with("tile_") ? kernel.substr(5) : kernel;
}

using Buckets = std::vector<int64_t>;

// Every distinct request of a model's buckets, and the kernels that no model asks for. Of the buckets that a GPU's
// small batches use the smallest and the largest, between which the others lie; `buckets` is shorter where another
// model or GPU has the same kernels and a compiler's time counts for more.
std::map<std::string, KernelRequest> requests_of(const ModelConfig& config, Target target,
                                                 const Buckets& buckets = {1, 8}) {
  std::map<std::string, KernelRequest> requests;
  for (const int64_t rows : buckets)
    for (const KernelRequest& request : decoder_kernel_requests(config, rows, properties_of(target)))
      requests.emplace(to_string(request), request);
  for (const char* name : {"read_stream", "saxpy", "stamp", "repeat_until", "advance", "update_tables"})
    requests.emplace(name, KernelRequest{name, {}});
  return requests;
}

std::map<std::string, KernelRequest> timed_forms_of(const std::map<std::string, KernelRequest>& requests) {
  std::map<std::string, KernelRequest> timed;
  for (auto [key, request] : requests) {
    request.timed = true;
    timed.emplace(to_string(request), request);
  }
  return timed;
}

// GPT-2 and its kin: hidden sizes of the nanoGPT article's model, of GPT-2 and of GPT-2 XL, in bf16 and float.
std::map<std::string, KernelRequest> gpt2_requests() {
  std::map<std::string, KernelRequest> requests;
  const auto add = [&](const char* name, std::vector<Constant> constants) {
    KernelRequest request{name, std::move(constants)};
    requests.emplace(to_string(request), request);
  };
  add("shape_logits", {});
  for (const int64_t blocks : {1, 4, 16}) {
    add("record_choice", {{"kBlocksOfRow", blocks}});
    add("sample", {{"kBlocksOfRow", blocks}});
  }
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus, Norm::layer})
    for (const int64_t post_norm : {0, 1})
      if (post_norm == 0 || norm != Norm::layer)
        add("norm_hidden", {{"kNorm", static_cast<int64_t>(norm)}, {"kPostNorm", post_norm}});
  for (const int64_t weight_bytes : {2, 4}) {
    add("embed_positions", {{"kWeightBytes", weight_bytes}});
    for (const int64_t hidden : {32, 768, 1600})
      for (const int64_t cols : {hidden, 4 * hidden}) {
        const ProjectionShape shape{1, cols, 1, weight_bytes};
        std::vector<Constant> constants{{"kCols", cols},
                                        {"kWeightBytes", weight_bytes},
                                        {"kLanes", shape.lanes()},
                                        {"kThreads", ProjectionShape::kThreads}};
        add("project_bias_add", constants);
        if (cols != hidden) continue;
        constants.push_back({"kActivation", 0});
        for (const Activation f : {Activation::none, Activation::gelu_erf, Activation::gelu_tanh}) {
          constants.back().value = static_cast<int64_t>(f);
          add("layer_norm_project", constants);
        }
      }
  }
  for (const auto& [heads, head_dim] : {std::pair<int64_t, int64_t>{4, 8}, {12, 64}})
    add("dense_attend",
        {{"kHeads", heads}, {"kHeadDim", head_dim}, {"kSlices", DenseAttendShape{.head_dim = head_dim}.slices()}});
  return requests;
}

// Compiles all of them on every core; what spills registers does not compile.
std::map<std::string, CubinKernel> compile_all(const std::map<std::string, KernelRequest>& requests, Target target,
                                               Spills of_most = Spills::refused) {
  const auto nvrtc = Nvrtc::load();
  std::vector<std::pair<std::string, KernelRequest>> list(requests.begin(), requests.end());
  std::map<std::string, CubinKernel> kernels;
  std::mutex mutex;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < list.size(); i = next++) {
      try {
        const Spills spills = list[i].second.name.starts_with("rope_") ? Spills::warned : of_most;
        const std::vector<std::string> options = nvrtc_options(target.cc_major, 0, spills);
        const std::vector<CubinKernel> read =
            read_cubin(nvrtc->compile(nvrtc_source(list[i].second), options).cubin, list[i].first);
        const std::lock_guard lock(mutex);
        if (read.size() == 1)
          kernels.emplace(list[i].first, read[0]);
        else
          ADD_FAILURE() << list[i].first << " holds " << read.size() << " kernels";
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        ADD_FAILURE() << list[i].first << ": " << error.what();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return kernels;
}

void check_budgets(const std::map<std::string, KernelRequest>& requests, Target target) {
  const std::map<std::string, CubinKernel> kernels = compile_all(requests, target);
  ASSERT_EQ(kernels.size(), requests.size());
  for (const auto& [key, kernel] : kernels) {
    SCOPED_TRACE(key + " for sm_" + std::to_string(target.cc_major) + "0: " + std::to_string(kernel.registers) +
                 " registers, " + std::to_string(kernel.max_threads) + " threads, " +
                 std::to_string(kernel.stack_bytes) + " bytes of stack");
    EXPECT_LE(kernel.stack_bytes, kernel.name.starts_with("rope_") ? kRopeStackBytes : 0);
    ASSERT_GT(kernel.max_threads, 0);
    // Two blocks on an SM: the next kernel's first weights are requested while this one ends. Kernels of a block a row
    // of logits have nothing to request early. Registers are handed out 8 a thread.
    const uint64_t registers = (static_cast<uint64_t>(kernel.registers) + 7) / 8 * 8;
    static const std::set<std::string> kRowOfLogits = {"sample", "shape_logits", "record_choice"};
    const uint64_t blocks = kRowOfLogits.contains(kernel.name) ? 1 : 2;
    EXPECT_LE(blocks * registers * static_cast<uint64_t>(kernel.max_threads), kRegistersOfAnSm);
    EXPECT_EQ(kernel.waits, target.cc_major >= 9 ? 1 : 0) << "the wait at the end of NODEWRIGHT_KERNEL costs nothing";
    EXPECT_LE(kernel.shared_bytes, 48u * 1024);
    ASSERT_EQ(kernel.parameters.size(), 1u);
    EXPECT_EQ(kernel.parameters[0].offset, 0u);
    const uint64_t own = args_bytes().at(args_name(kernel.name));
    EXPECT_EQ(kernel.parameters[0].bytes,
              requests.at(key).timed ? timed_stamps_offset(own) + sizeof(Out<BlockStamps>) : own);
  }
}

TEST(KernelBudgets, HoldForEveryBucketOfLlama1bOnHopper) {
  check_budgets(requests_of(llama_1b(), kHopper, {1, 2, 4, 8}), kHopper);
}
TEST(KernelBudgets, HoldForLlama1bOnAmpere) { check_budgets(requests_of(llama_1b(), kAmpere), kAmpere); }
TEST(KernelBudgets, HoldForLlama3bOnHopper) { check_budgets(requests_of(llama_3b(), kHopper), kHopper); }
TEST(KernelBudgets, HoldForLlama3bOnAmpere) { check_budgets(requests_of(llama_3b(), kAmpere, {1}), kAmpere); }
TEST(KernelBudgets, HoldForQwen3OnHopper) { check_budgets(requests_of(qwen3_4b(), kHopper), kHopper); }
TEST(KernelBudgets, HoldForGemma3OnHopper) { check_budgets(requests_of(gemma3_1b(), kHopper), kHopper); }
TEST(KernelBudgets, HoldForGemma3OnAmpere) { check_budgets(requests_of(gemma3_1b(), kAmpere, {1}), kAmpere); }
TEST(KernelBudgets, HoldForGpt2CheckpointsOnHopper) {
  check_budgets(requests_of(gpt2_small(), kHopper, {1}), kHopper);
  check_budgets(requests_of(gpt2_xl(), kHopper, {8}), kHopper);
}
TEST(KernelBudgets, HoldForGpt2OnHopper) { check_budgets(gpt2_requests(), kHopper); }
TEST(KernelBudgets, HoldForGpt2OnAmpere) { check_budgets(gpt2_requests(), kAmpere); }

TEST(KernelBudgets, HoldForStepsOfProductsOnHopper) {
  std::map<std::string, KernelRequest> requests;
  for (const ModelConfig& config : {llama_1b(), llama_3b(), gemma3_1b()})  // heads of 64, 128 and 256
    for (const KernelRequest& request :
         decoder_kernel_requests(config, StepShape(1024, 16, Arithmetic::products), properties_of(kHopper)))
      if (request.name == "attend_tiles" || request.name == "norm_rows" || request.name == "gate")
        requests.emplace(to_string(request), request);
  EXPECT_EQ(requests.size(), 8u);
  check_budgets(requests, kHopper);
}

// A block of tiles has an SM to itself, but for its registers.
TEST(KernelBudgets, HoldForTilesOnHopperAndAmpere) {
  for (const Target target : {kHopper, kAmpere}) {
    std::map<std::string, KernelRequest> requests;
    const auto add = [&](const ModelConfig& config, int64_t rows) {
      for (const KernelRequest& request :
           decoder_kernel_requests(config, StepShape(rows, rows, Arithmetic::tiles), properties_of(target)))
        if (request.name.starts_with("tile_")) requests.emplace(to_string(request), request);
    };
    add(llama_1b(), 8);
    add(llama_1b(), 16);
    add(llama_3b(), 16);
    add(gemma3_1b(), 8);  // six warps; qkv with and without a post norm
    add(gemma3_1b(), 16);
    EXPECT_EQ(requests.size(), 23u);
    check_budgets(requests, target);
  }
}

// What was measured to be faster may spill a register or two; it compiles, and a block of it fits on an SM.
TEST(KernelBudgets, OfTheTuningsThatAreShippedLetThemRun) {
  std::map<std::string, KernelRequest> requests;
  for (const ModelConfig& config : {llama_1b(), llama_3b(), qwen3_4b(), gemma3_1b()}) {
    const Tuning tuning = shipped_tuning({"NVIDIA H200", model_sizes(config)});
    EXPECT_TRUE(tuning.steps.contains(1)) << model_sizes(config);
    for (const auto& [rows, step] : tuning.steps) {
      const auto requests_with = [&, rows = rows](const StepTuning& with) {
        std::map<std::string, KernelRequest> all;
        const StepShape shape = step_shape(config, rows, rows, kProductsFromRows, Numerics::fast, with);
        for (const KernelRequest& request : decoder_kernel_requests(config, shape, properties_of(kHopper)))
          all.emplace(to_string(request), request);
        return all;
      };
      const auto usual = requests_with({});
      for (const auto& [key, request] : requests_with(step))
        if (!usual.contains(key)) requests.emplace(key, request);
    }
  }
  EXPECT_GT(requests.size(), 10u);
  for (const auto& [key, kernel] : compile_all(requests, kHopper, Spills::warned)) {
    const uint64_t registers = (static_cast<uint64_t>(kernel.registers) + 7) / 8 * 8;
    EXPECT_LE(registers * static_cast<uint64_t>(kernel.max_threads), kRegistersOfAnSm) << key;
    EXPECT_LE(kernel.stack_bytes, 128u) << key;
  }
}

// The stamps are the same code in every form.
TEST(KernelBudgets, HoldForTheTimedFormsOfLlama1bOnHopper) {
  check_budgets(timed_forms_of(requests_of(llama_1b(), kHopper)), kHopper);
}
TEST(KernelBudgets, HoldForTheTimedFormsOfGpt2OnHopper) { check_budgets(timed_forms_of(gpt2_requests()), kHopper); }

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
  for (const auto& [name, bytes] : args_bytes()) text += "#include \"kernels_src/" + name + ".h\"\n";
  text += layout_asserts<Embed>("Embed") + layout_asserts<NormProject>("NormProject") +
          layout_asserts<NormGateUp>("NormGateUp") + layout_asserts<ProjectAdd>("ProjectAdd") +
          layout_asserts<Project>("Project") + layout_asserts<NormAdd>("NormAdd") +
          layout_asserts<RopeAppend>("RopeAppend") + layout_asserts<Attend>("Attend") +
          layout_asserts<AttendTiles>("AttendTiles") + layout_asserts<NormRows>("NormRows") +
          layout_asserts<NormHidden>("NormHidden") + layout_asserts<Gate>("Gate") +
          layout_asserts<LayerNormProject<bf16>>("LayerNormProject<nodewright::bf16>") +
          layout_asserts<LayerNormProject<float>>("LayerNormProject<float>") +
          layout_asserts<ProjectBiasAdd<float>>("ProjectBiasAdd<float>") +
          layout_asserts<EmbedPositions<float>>("EmbedPositions<float>") + layout_asserts<DenseAttend>("DenseAttend") +
          layout_asserts<Sample>("Sample") + layout_asserts<ShapeLogits>("ShapeLogits") +
          layout_asserts<RecordChoice>("RecordChoice") + layout_asserts<Advance>("Advance") +
          layout_asserts<ReadStream>("ReadStream") + layout_asserts<Saxpy>("Saxpy") + layout_asserts<Stamp>("Stamp") +
          layout_asserts<Timed<Sample>>("Timed<nodewright::Sample>") + layout_asserts<RepeatUntil>("RepeatUntil");
  const auto compile = [](const std::string& source) {
    const std::vector<EmbeddedSource> extra = {{"kernels_src/layouts.cu", source}};
    Nvrtc::load()->compile(nvrtc_source({"layouts", {}}, extra), nvrtc_options(9, 0));
  };
  EXPECT_NO_THROW(compile(text)) << text;
  EXPECT_ANY_THROW(compile(text + "static_assert(" + offset_in_nvrtc("Embed", "vocab") + " == 0);\n"));
}

}  // namespace
}  // namespace nodewright::test::budgets_test
