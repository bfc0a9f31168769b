// A step of prompts and decoding rows as one graph, in pieces and eagerly: equal bits, and, as the driver sees them,
// three different things.
#include <functional>
#include <map>

#include "engine/device/prefill_form.h"
#include "engine/device/step_inputs.h"
#include "engine/engine.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

// Two packed prompts, the second cut before its last token, the third one's second chunk, and rows that decode.
constexpr int64_t kFormContext = 128, kFormSequences = 5;

class MixedStep {
 public:
  MixedStep(LoadedModel& loaded, int64_t rows, int64_t products_from)
      : loaded_(loaded),
        rows_(rows),
        cache_(loaded.device, loaded.model.config(), kFormSequences * pages_for(kFormContext)),
        slot_(loaded.device, loaded.model.config(),
              {.rows = rows, .max_context = kFormContext, .sequences = kFormSequences, .products_from = products_from}),
        state_(slot_.state(rows)),
        kernels_(decoder_kernels(loaded.kernels, loaded.model.config(), slot_.shape(rows))),
        plan_(decoder_plan(loaded.device, loaded.model, kernels_, cache_, state_, DecodePurpose::serve,
                           EdgePolicy::programmatic)) {
    for (int32_t sequence = 0; sequence < kFormSequences; ++sequence) {
      std::vector<int32_t> pages;
      for (int64_t i = 0; i < pages_for(kFormContext); ++i)
        pages.push_back(static_cast<int32_t>(sequence + i * kFormSequences));
      slot_.write_table(sequence, 0, pages);
    }
  }

  const Plan& plan() const { return plan_; }
  const Stream& stream() const { return loaded_.stream; }

  // Logits of the rows that choose and every key and value of the cache, as bits. The step before it fills the cache.
  std::vector<Logits> run(const std::function<void()>& launch) {
    fill_device(loaded_.device, cache_.buffer().address(), std::byte{0}, cache_.bytes(), "kv");
    slot_.poison();
    const int64_t third = (rows_ - 2) / 3;
    fill({}, {{0, 0, third}, {1, 0, third}, {2, 0, third}});
    launch();
    loaded_.stream.synchronize();
    fill({{0, third}, {1, third}}, {{2, third, third}, {3, 0, third - 1}, {4, 0, third}});
    launch();
    std::vector<Logits> results;
    const auto read = [&](uint64_t address, uint64_t bytes) {
      loaded_.stream.synchronize();
      Logits& values = results.emplace_back(bytes / sizeof(float));
      read_device(loaded_.device, std::as_writable_bytes(std::span(values)), address, "result");
    };
    for (uint64_t row = 0; row < 4; ++row)
      read(state_.logits.address() + row * static_cast<uint64_t>(state_.logits_stride) * sizeof(float),
           loaded_.vocab() * sizeof(float));
    read(cache_.buffer().address(), cache_.bytes());
    return results;
  }

 private:
  struct Chunk {
    int32_t sequence;
    int64_t position, rows;
  };
  // Each of `decoding`, and the last row of the first two chunks, chooses a token; those come first.
  void fill(std::vector<std::pair<int32_t, int64_t>> decoding, const std::vector<Chunk>& chunks) {
    int64_t row = 0;
    const auto write = [&](int32_t sequence, int64_t position) {
      write_row(state_.host_inputs, row++,
                {.token = static_cast<int32_t>((position * 37 + sequence * 11) % 100),
                 .position = position,
                 .sequence = sequence,
                 .output = 0,
                 .sampling = {}});
    };
    for (size_t i = 0; i < 2; ++i) decoding.emplace_back(chunks[i].sequence, chunks[i].position + chunks[i].rows - 1);
    for (const auto& [sequence, position] : decoding) write(sequence, position);
    state_.host_inputs.n_sampled.data[0] = static_cast<int32_t>(row);
    state_.host_inputs.keeps_logits.data[0] = 1;
    for (size_t i = 0; i < chunks.size(); ++i)
      for (int64_t n = 0; n < chunks[i].rows - (i < 2); ++n) write(chunks[i].sequence, chunks[i].position + n);
    state_.host_inputs.n_live.data[0] = static_cast<int32_t>(row);
  }

  LoadedModel& loaded_;
  int64_t rows_;
  KvCache cache_;
  DecodeSlot slot_;
  DecodeState state_;
  DecoderKernels kernels_;
  Plan plan_;
};

struct FormCase {
  const char* name;
  const char* model;
  int64_t rows, products_from;
};

class PrefillForms : public testing::TestWithParam<FormCase> {};

TEST_P(PrefillForms, GiveEqualBitsForPackedPromptsAndRowsThatDecode) {
  LoadedModel loaded(GetParam().model);
  MixedStep step(loaded, GetParam().rows, GetParam().products_from);
  PlanRun graph(step.plan(), RunMode::explicit_, step.stream());
  PromptRun piecewise(step.plan(), PrefillForm::piecewise, step.stream());
  PromptRun eager(step.plan(), PrefillForm::eager, step.stream());
  const std::vector<Logits> expected = step.run([&] { graph.launch(); });
  for (size_t row = 0; row < 4; ++row)
    EXPECT_TRUE(std::ranges::all_of(expected[row], [](float v) { return std::isfinite(v); })) << "row " << row;
  EXPECT_TRUE(same_bits(step.run([&] { piecewise.launch(); }), expected));
  EXPECT_TRUE(same_bits(step.run([&] { eager.launch(); }), expected));
}

INSTANTIATE_TEST_SUITE_P(Golden, PrefillForms,
                         testing::Values(FormCase{"Matvec", "llama/odd_sizes", 8, 0},
                                         FormCase{"Products", "llama/odd_sizes", 40, 16},
                                         FormCase{"Windows", "gemma3/window_16", 80, 16},
                                         FormCase{"LayerNorms", "gpt2/learned_positions", 40, 16}),
                         [](const testing::TestParamInfo<FormCase>& info) { return info.param.name; });

// Calls by their names.
class CallCounts {
 public:
  explicit CallCounts(Interposer& interposer) : interposer_(interposer) {
    interposer_.trace_to([this](std::string_view line) {
      const size_t begin = line.find(' ') + 1;
      ++counts_[std::string(line.substr(begin, line.find('(') - begin))];
    });
  }
  ~CallCounts() { interposer_.trace_to({}); }
  CallCounts(const CallCounts&) = delete;
  CallCounts& operator=(const CallCounts&) = delete;
  int64_t of(const std::string& name) { return counts_[name]; }

 private:
  Interposer& interposer_;
  std::map<std::string, int64_t> counts_;
};

TEST(PrefillFormTrace, AnEngineLaunchesStepsWithPromptTokensInTheFormThatWasAskedFor) {
  LoadedModel loaded("llama/odd_sizes", test_device(), Observe::yes);
  const int64_t layers = loaded.model.config().layers;
  for (const PrefillForm form : {PrefillForm::graph, PrefillForm::piecewise, PrefillForm::eager}) {
    SCOPED_TRACE(to_string(form));
    Engine engine(loaded.device, loaded.kernels, loaded.model,
                  {.max_batch = 8, .buckets = {8}, .max_context = 64, .prefill = form});
    ASSERT_TRUE(engine.submit({.prompt = {1, 2, 3, 4, 5}, .max_tokens = 3}).id);
    CallCounts calls(*loaded.opened.interposer);
    while (engine.advance()) continue;
    ASSERT_EQ(engine.stats().prefill_steps, 1);
    const int64_t others = engine.stats().steps() - 1;  // decode
    const bool is_graph = form == PrefillForm::graph, is_piecewise = form == PrefillForm::piecewise;
    EXPECT_EQ(calls.of("cuGraphLaunch"), others + (is_graph ? 1 : is_piecewise ? layers + 1 : 0));
    const int64_t tables = 1;  // of the step that is the first to need them; no later one changes them
    EXPECT_EQ(calls.of("cuLaunchKernelEx"), tables + (is_graph ? 0 : is_piecewise ? layers : 4 + 5 * layers));
  }
}

TEST(PrefillFormTrace, PiecesAreCutAtAttentionAndTheOthersAreNot) {
  LoadedModel loaded("llama/odd_sizes", test_device(), Observe::yes);
  MixedStep step(loaded, 40, 16);
  PlanRun graph(step.plan(), RunMode::explicit_, step.stream());
  PromptRun piecewise(step.plan(), PrefillForm::piecewise, step.stream());
  PromptRun eager(step.plan(), PrefillForm::eager, step.stream());
  const auto calls_of = [&](const auto& launch) {
    int64_t graphs = 0, launches = 0;
    step.run([&] {
      CallCounts calls(*loaded.opened.interposer);
      launch();
      graphs += calls.of("cuGraphLaunch"), launches += calls.of("cuLaunchKernelEx");
    });
    return std::pair(graphs, launches);  // of two steps
  };
  const int64_t layers = loaded.model.config().layers;
  int64_t kernels = 0;
  for (const PlanNode& node : step.plan().nodes) kernels += node.kind == NodeKind::kernel;
  EXPECT_EQ(calls_of([&] { graph.launch(); }), std::pair(int64_t{2}, int64_t{0}));
  EXPECT_EQ(calls_of([&] { piecewise.launch(); }), std::pair(2 * (layers + 1), 2 * 2 * layers));
  const auto [graphs, launches] = calls_of([&] { eager.launch(); });
  EXPECT_EQ(graphs, 0);
  EXPECT_GE(launches, 2 * kernels);  // and, on the CPU driver, the products
}

TEST(PrefillForm, IsOneOfThreeWords) {
  for (const PrefillForm form : {PrefillForm::graph, PrefillForm::piecewise, PrefillForm::eager})
    EXPECT_EQ(prefill_form(to_string(form)), form);
  expect_words(error_of([] { (void)prefill_form("whole"); }), {"whole", "graph, piecewise or eager"});
}

}  // namespace
}  // namespace nodewright
