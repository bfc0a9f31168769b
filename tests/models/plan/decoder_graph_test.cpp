// The structure of decode plans: node names, edges that are all there and all needed, what the driver holds, and a
// golden dump. To write the golden anew: NODEWRIGHT_WRITE_GOLDEN=1.
#include "models/plan/decoder_graph.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "graph/dump/graph_dump.h"
#include "graph/graph_exec.h"
#include "graph/hazard_check.h"
#include "models/plan/choice_graph.h"
#include "runtime/device_selection.h"
#include "tests/support/test_device.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

const std::vector<std::string> kModels = {"llama/odd_sizes",    "llama/one_kv_head", "llama/unaligned",
                                          "qwen3/normed_heads", "gemma3/window_16",  "gpt2/learned_positions"};

// A golden model with the plans of one bucket.
struct Planned {
  Planned(const std::string& golden, int64_t rows, HiddenStates hidden = HiddenStates::none, LaunchSteps steps = {})
      : device(*opened.device),
        stream(device, "plans"),
        kernels(device),
        model(DecoderModel::load(device, stream, test::source_dir() / "tests/golden" / golden)),
        cache(device, model.config(), 8),
        slot(device, model.config(),
             {.rows = rows, .max_context = 256, .sequences = rows, .hidden = hidden, .steps = steps}),
        state(slot.state(rows)),
        choice_slot(device, model.config(), slot.limits()),
        choice_state(choice_slot.state(rows)),
        decoder_kernels_(decoder_kernels(kernels, model.config(), slot.shape(rows))) {}

  Plan plan(DecodePurpose purpose = DecodePurpose::step, EdgePolicy policy = EdgePolicy::programmatic) {
    return decoder_plan(device, model, decoder_kernels_, cache, state, purpose, policy);
  }

  Plan second_choice(EdgePolicy policy = EdgePolicy::programmatic) {
    return choice_plan(device, model.config().vocab, choice_kernels(kernels, choice_state), state, choice_state,
                       policy);
  }

  OpenedDevice opened = open_device(test::test_device());
  Device& device;
  Stream stream;
  KernelCache kernels;
  DecoderModel model;
  KvCache cache;
  DecodeSlot slot;
  DecodeState state;
  ChoiceSlot choice_slot;
  ChoiceState choice_state;
  DecoderKernels decoder_kernels_;
};

class DecoderGraph : public testing::TestWithParam<std::pair<std::string, int64_t>> {
 protected:
  Planned planned{GetParam().first, GetParam().second};

  std::vector<Plan> plans(EdgePolicy policy = EdgePolicy::programmatic) {
    std::vector<Plan> all;
    for (DecodePurpose purpose : {DecodePurpose::step, DecodePurpose::prefill})
      all.push_back(planned.plan(purpose, policy));
    all.push_back(planned.second_choice(policy));
    return all;
  }
};

TEST_P(DecoderGraph, HasTheNodesOfEveryLayerInTheirOrder) {
  std::vector<std::string> of_layer{"qkv", "rope", "attend", "out", "gate_up", "down"};
  const StepShape& shape = planned.decoder_kernels_.shape;
  const bool with_products = shape.with_products();
  const bool holds = with_products && planned.decoder_kernels_.form == ResidualForm::gained;
  if (with_products) {
    EXPECT_EQ(holds, shape.rows <= kHeldToRows && shape.may_leave_gained(planned.model.config()) &&
                         planned.device.properties().has_clusters());
  }
  const bool is_gpt2 = GetParam().first.starts_with("gpt2");
  if (is_gpt2) of_layer = {"qkv", "append", "attend", "out", "up", "down"};
  const bool takes_ends = shape.rows <= kTilesToRows;  // tiles add the bias and activate; no registers hold its rows
  if (is_gpt2 && with_products && !takes_ends)
    of_layer = {"qkv", "qkv_bias", "append", "attend", "out", "out_bias", "up", "down", "down_bias"};
  const bool attends_in_tiles = with_products && GetParam().second > kHeldToRows;
  // One kernel rotates and attends, or the one that rotates adds the bias.
  std::erase_if(of_layer, [&](const std::string& name) {
    return attends_in_tiles ? name == "qkv_bias" : name == "rope" || name == "append";
  });
  EXPECT_EQ(with_products, shape.rows >= shape.network.products_from);
  const auto insert_before = [&](const char* node, const char* added) {
    of_layer.insert(std::find(of_layer.begin(), of_layer.end(), node), added);
  };
  if (attends_in_tiles) insert_before("out", "attend_tiles");
  if (with_products && !holds) {
    insert_before("qkv", "norm");
    insert_before(is_gpt2 ? "up" : "gate_up", "feed_forward_norm");
    if (!is_gpt2 || !takes_ends) insert_before("down", is_gpt2 ? "activate" : "gate");
  }
  std::vector<std::string> expected{"inputs", "embed"};
  for (int64_t layer = 0; layer < planned.model.config().layers; ++layer)
    for (const std::string& name : of_layer) expected.push_back("l" + std::to_string(layer) + "." + name);
  const auto names = [](const Plan& plan) {
    std::vector<std::string> all;
    for (const PlanNode& node : plan.nodes) all.push_back(node.name);
    return all;
  };
  const Plan prefill = planned.plan(DecodePurpose::prefill), step = planned.plan();
  if (with_products) {  // a chunk has no row that chooses
    std::vector<std::string> of_chunk = expected;
    if (attends_in_tiles) std::erase_if(of_chunk, [](const std::string& name) { return name.ends_with(".attend"); });
    EXPECT_EQ(names(prefill), of_chunk);
    if (!holds && shape.has_head_product()) expected.push_back("norm");
  } else {
    EXPECT_EQ(names(prefill), expected);
  }
  expected.insert(expected.end(), {"logits", "sample"});
  EXPECT_EQ(names(step), expected);
  EXPECT_EQ(names(planned.second_choice()), (std::vector<std::string>{"inputs", "shape", "sample", "record"}));
  const bool in_tiles = GetParam().second >= kTilesFromRows && GetParam().second <= kTilesToRows && shape.network.tiles;
  const bool holds_head =
      shape.may_hold_head() && planned.device.properties().has_clusters() && planned.model.config().hidden % 8 == 0;
  for (const PlanNode& node : step.nodes)
    for (const char* projection : {"qkv", "out", "gate_up", ".up", "down", "logits"})
      if (node.name.ends_with(projection)) {
        const bool normed = with_products && !holds && shape.rows <= kHeldToRows;  // each as its size says
        const bool head = holds_head && node.name == "logits";
        EXPECT_TRUE(node.kernel_name().starts_with("tile_") == (in_tiles || holds || head) || normed)
            << node.name << ": " << node.kernel_name();
      }
  const std::string rows = std::to_string(GetParam().second);
  EXPECT_EQ(step.name, "decode.b" + rows);
  EXPECT_EQ(prefill.name, "prefill.b" + rows);
  EXPECT_EQ(step.facts, (PlanFacts{{"bucket", std::to_string(GetParam().second)}}));
}

// In a family with post norms two residuals are read and written in turn, and a product's neighbour adds in place.
TEST_P(DecoderGraph, AddsWhatABlockProjectsInTheKernelThatReadsTheResidualNext) {
  const StepShape& shape = planned.decoder_kernels_.shape;
  const bool folds = shape.network.post_norms;
  EXPECT_EQ(folds, GetParam().first.starts_with("gemma3"));
  EXPECT_EQ(planned.state.mid_residual.count, folds ? planned.state.residual.count : 0);
  for (const PlanNode& node : planned.plan().nodes) {
    const auto touches = [&](const char* field) {
      return std::any_of(node.uses.begin(), node.uses.end(), [&](const auto& use) { return use.field == field; });
    };
    const bool layers = node.name.find('.') != std::string::npos;
    const bool reads = shape.with_products() ? node.name.ends_with("norm") && node.name != "l0.norm"
                                             : node.name.ends_with("gate_up") || node.name == "logits" ||
                                                   (node.name.ends_with(".qkv") && node.name != "l0.qkv");
    EXPECT_EQ(touches("from.projected"), folds && reads) << node.name;
    EXPECT_EQ(touches("from.x_next"), folds && reads && layers) << node.name;
  }
}

// A step of one row reads its experts alone.
TEST(DecoderGraphOfExperts, ReadsTheExpertsThatRowsChooseEvenly) {
  for (const int64_t rows : {1, 3}) {
    Planned planned("qwen3_moe/normed", rows);
    const Experts& experts = planned.model.config().experts;
    const double chosen = static_cast<double>(experts.chosen) / static_cast<double>(experts.count);
    const double share = rows == 1 ? chosen : 1 - (1 - chosen) * (1 - chosen) * (1 - chosen);
    const Plan plan = planned.plan();
    for (const std::string name : {"l0.gate_up", "l0.down"}) {
      const auto node = std::ranges::find(plan.nodes, name, &PlanNode::name);
      ASSERT_NE(node, plan.nodes.end());
      const auto weight = std::ranges::find(node->uses, "weight", &Use::field);
      ASSERT_NE(weight, node->uses.end()) << name;
      const auto read = static_cast<double>(node->traffic.bytes_read), all = static_cast<double>(weight->bytes);
      EXPECT_GT(read, share * all - 1) << name << ", " << rows << " rows";
      EXPECT_LT(read, share * all + 8 * 1024) << name << ", " << rows << " rows";
      EXPECT_GT(node->traffic.bytes_written, 0u) << name;
    }
  }
}

TEST_P(DecoderGraph, OrdersEveryTwoNodesThatShareBytes) {
  for (EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic})
    for (const Plan& plan : plans(policy))
      for (const MissingOrder& missing : missing_orders(plan)) ADD_FAILURE() << plan.name << ": " << describe(missing);
}

TEST_P(DecoderGraph, HasNoEdgeThatCouldBeLeftOut) {
  for (EdgePolicy policy : {EdgePolicy::full, EdgePolicy::programmatic})
    for (const Plan& plan : plans(policy)) {
      ASSERT_GE(plan.edges.size() + 1, plan.nodes.size()) << plan.name;
      for (size_t i = 0; i < plan.edges.size(); ++i) {
        Plan without = plan;
        without.edges.erase(without.edges.begin() + static_cast<long>(i));
        EXPECT_FALSE(missing_orders(without).empty())
            << plan.name << ": " << plan.nodes[plan.edges[i].from].name << " -> " << plan.nodes[plan.edges[i].to].name;
      }
    }
}

TEST_P(DecoderGraph, IsProgrammaticOnlyBetweenKernelsOfWhichTheLaterWaits) {
  for (const Plan& plan : plans()) {
    size_t programmatic = 0;
    for (const Edge& edge : plan.edges) {
      if (edge.type != EdgeType::programmatic) continue;
      ++programmatic;
      EXPECT_EQ(plan.nodes[edge.from].kind, NodeKind::kernel) << plan.nodes[edge.from].name;
      EXPECT_EQ(plan.nodes[edge.to].kind, NodeKind::kernel) << plan.nodes[edge.to].name;
      EXPECT_TRUE(plan.nodes[edge.to].waits_for_inputs) << plan.nodes[edge.to].name;
    }
    if (planned.device.properties().cc_major >= 9) {
      EXPECT_GT(programmatic, 0u) << plan.name;
    } else {
      EXPECT_EQ(programmatic, 0u) << plan.name;
    }
  }
  for (const Plan& plan : plans(EdgePolicy::full))
    for (const Edge& edge : plan.edges) EXPECT_EQ(edge.type, EdgeType::full);
}

TEST_P(DecoderGraph, IsHeldByTheDriverAsPlanned) {
  for (EdgePolicy policy : {EdgePolicy::full, EdgePolicy::programmatic})
    for (Plan& plan : plans(policy))
      for (const std::string& difference : read_back(ExplicitGraph(std::move(plan)))) ADD_FAILURE() << difference;
}

using ModelsAndBuckets = std::vector<std::pair<std::string, int64_t>>;

ModelsAndBuckets models_and_buckets() {
  ModelsAndBuckets all;
  for (const std::string& model : kModels)
    for (int64_t bucket : {1, 2, 4, 8}) all.emplace_back(model, bucket);
  for (const char* model : {"llama/odd_sizes", "gemma3/window_16", "gpt2/learned_positions"})
    for (const int64_t rows : {kProductsFromRows, kHeldToRows + 1}) all.emplace_back(model, rows);
  return all;
}

std::string name_of(const testing::TestParamInfo<std::pair<std::string, int64_t>>& info) {
  std::string model = info.param.first;
  std::replace(model.begin(), model.end(), '/', '_');
  return model + "_bucket_" + std::to_string(info.param.second);
}

INSTANTIATE_TEST_SUITE_P(Golden, DecoderGraph, testing::ValuesIn(models_and_buckets()), name_of);

// The checker in Python, which shares no code with the builder. A machine with a GPU need not have Python.
class DecoderGraphCheckerOnCpuDriver : public DecoderGraph {
 protected:
  struct Verdict {
    int exit_code = -1;
    std::string text;
  };

  static Verdict check(const std::string& json) {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("nodewright-plan-" + std::to_string(::getpid()) + ".json");
    std::ofstream(file) << json;
    const std::string command = "python3 '" + (test::source_dir() / "tests/reference/check_plan.py").string() + "' '" +
                                file.string() + "' 2>&1";
    Verdict verdict;
    if (FILE* pipe = ::popen(command.c_str(), "r"); pipe != nullptr) {
      char text[4096];
      while (const size_t bytes = std::fread(text, 1, sizeof text, pipe)) verdict.text.append(text, bytes);
      const int status = ::pclose(pipe);
      if (WIFEXITED(status)) verdict.exit_code = WEXITSTATUS(status);
    }
    std::filesystem::remove(file);
    return verdict;
  }
};

TEST_P(DecoderGraphCheckerOnCpuDriver, FindsTheDumpInOrder) {
  for (const Plan& plan : plans()) {
    const Verdict verdict = check(to_json(plan));
    EXPECT_EQ(verdict.exit_code, 0) << verdict.text;
    EXPECT_NE(verdict.text.find("all in order"), std::string::npos) << verdict.text;
  }
}

TEST_P(DecoderGraphCheckerOnCpuDriver, FindsAnEdgeThatIsMissingOrNotNeeded) {
  const Plan plan = planned.plan();
  Plan missing = plan;
  missing.edges.erase(missing.edges.begin() + static_cast<long>(missing.edges.size() / 2));
  EXPECT_EQ(check(to_json(missing)).exit_code, 1);
  Plan needless = plan;
  needless.edges.push_back({0, static_cast<uint32_t>(plan.nodes.size() - 1), EdgeType::full, {}});
  const Verdict verdict = check(to_json(needless));
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_NE(verdict.text.find("inputs -> sample"), std::string::npos) << verdict.text;
}

// Each plan takes a process of Python: one step a model here, the others in sweeps.
const ModelsAndBuckets kChecked = {{"llama/odd_sizes", 8},        {"llama/odd_sizes", kHeldToRows + 1},
                                   {"gemma3/window_16", 1},       {"gemma3/window_16", kProductsFromRows},
                                   {"gpt2/learned_positions", 2}, {"qwen3/normed_heads", 4}};
ModelsAndBuckets not_checked() {
  ModelsAndBuckets all = models_and_buckets();
  std::erase_if(all, [](const auto& one) { return std::ranges::find(kChecked, one) != kChecked.end(); });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Golden, DecoderGraphCheckerOnCpuDriver, testing::ValuesIn(kChecked), name_of);
INSTANTIATE_TEST_SUITE_P(GoldenSweep, DecoderGraphCheckerOnCpuDriver, testing::ValuesIn(not_checked()), name_of);

TEST(DecoderGraphHidden, IsOneNodeMoreInStepsAndWithoutItNoByte) {
  constexpr EdgePolicy kPolicies[] = {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic};
  struct Found {
    std::vector<std::string> prefill, steps[3];
    uint64_t bytes = 0, of_buffer = 0;
  };
  const auto look = [&](const std::string& model, int64_t rows, HiddenStates hidden) {
    const auto names = [](const Plan& plan) {
      std::vector<std::string> all;
      for (const PlanNode& node : plan.nodes) all.push_back(node.name);
      return all;
    };
    Planned planned(model, rows, hidden);
    Found found{.prefill = names(planned.plan(DecodePurpose::prefill)),
                .steps = {},
                .bytes = planned.slot.bytes(),
                .of_buffer = planned.state.hidden.bytes()};
    for (size_t i = 0; i < 3; ++i) {
      Plan plan = planned.plan(DecodePurpose::serve, kPolicies[i]);
      found.steps[i] = names(plan);
      for (const MissingOrder& missing : missing_orders(plan)) ADD_FAILURE() << describe(missing);
      for (const std::string& difference : read_back(ExplicitGraph(std::move(plan)))) ADD_FAILURE() << difference;
    }
    const auto of_all = sizeof(float) * static_cast<uint64_t>(rows * planned.model.config().hidden);
    EXPECT_EQ(found.of_buffer, hidden == HiddenStates::none ? 0 : of_all);
    return found;
  };
  for (const auto& [model, rows] :
       {std::pair<std::string, int64_t>{"gpt2/learned_positions", 8}, {"llama/odd_sizes", kProductsFromRows}}) {
    const Found without = look(model, rows, HiddenStates::none);
    for (const HiddenStates hidden : {HiddenStates::last, HiddenStates::full}) {
      Found with = look(model, rows, hidden);
      EXPECT_EQ(with.prefill, without.prefill);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(std::erase(with.steps[i], "hidden"), 1u);
        EXPECT_EQ(with.steps[i], without.steps[i]);
      }
      EXPECT_GE(with.bytes, without.bytes + with.of_buffer);
    }
  }
}

// Each step's rows are settled for its kernels though the step before, or a kernel that fetches them, has written them.
TEST(DecoderGraphSteps, EveryKernelOfALaunchOfSeveralStartsEarly) {
  for (const auto& [model, rows] : {std::pair<std::string, int64_t>{"llama/odd_sizes", 1},
                                    {"qwen3/normed_heads", 4},
                                    {"gemma3/window_16", 1},
                                    {"llama/odd_sizes", kHeldToRows}}) {
    Planned planned(model, rows, HiddenStates::none, {.most = 3});
    const Plan plan = planned.plan();
    EXPECT_TRUE(missing_orders(plan).empty());
    for (const Edge& edge : plan.edges) {
      const bool early = planned.device.properties().cc_major >= 9;
      EXPECT_EQ(edge.type, early ? EdgeType::programmatic : EdgeType::full)
          << plan.nodes[edge.from].name << " -> " << plan.nodes[edge.to].name;
    }
  }
}

// Grids depend on the number of SMs, so the golden is that of the CPU driver's four.
TEST(DecoderGraphDumpOnCpuDriver, IsAsTheGoldenFile) {
  Planned planned("llama/odd_sizes", 1);
  const std::string text = to_text(planned.plan());
  const std::filesystem::path path = test::source_dir() / "tests/golden/graph/odd_sizes.decode.b1.txt";
  if (std::getenv("NODEWRIGHT_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

}  // namespace
}  // namespace nodewright
