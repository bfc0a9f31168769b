#include "bench/steps/prefill_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bench/measured_work.h"
#include "bench/steps/prompt_step.h"
#include "runtime/error.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

// A square bf16 product of values that are no constant: the power a GPU draws, and so its clock, depends on them.
class ProductRate {
 public:
  ProductRate(Device& device, const Stream& stream, KernelCache& kernels, int64_t edge)
      : stream_(stream),
        plan_(
            MatmulPlanner(device, kernels).plan("matrix rate", {.m = edge, .n = edge, .k = edge, .transpose_b = true})),
        left_(device, "rate.left", bytes_of_square(edge)),
        right_(device, "rate.right", bytes_of_square(edge)),
        result_(device, "rate.result", bytes_of_square(edge)),
        workspace_(device, "rate.workspace", plan_->workspace_bytes() + 1),
        start_(device, "rate.start", true),
        end_(device, "rate.end", true) {
    std::vector<bf16> values(static_cast<size_t>(edge * edge));
    uint32_t state = 1;
    for (bf16& value : values) {
      state = state * 1664525u + 1013904223u;                                 // Numerical Recipes
      value.bits = static_cast<uint16_t>((state >> 16 & 0x807fu) | 0x3f00u);  // +-0.5 to 1
    }
    for (const DeviceBuffer* buffer : {&left_, &right_})
      write_device(device, buffer->address(), std::as_bytes(std::span(values)), buffer->name());
  }

  // Multiplications and additions a second of one product.
  double sample() {
    start_.record(stream_);
    plan_->submit({.a = left_.address(),
                   .b = right_.address(),
                   .y = result_.address(),
                   .workspace = plan_->workspace_bytes() > 0 ? workspace_.address() : 0},
                  stream_.get());
    end_.record(stream_);
    end_.synchronize();
    return static_cast<double>(plan_->flops()) / (1e-3 * static_cast<double>(end_.ms_since(start_)));
  }

 private:
  static uint64_t bytes_of_square(int64_t edge) { return static_cast<uint64_t>(edge * edge) * sizeof(bf16); }

  const Stream& stream_;
  std::shared_ptr<const MatmulPlan> plan_;
  DeviceBuffer left_, right_, result_, workspace_;
  Event start_, end_;
};

double weight_flops(const ModelConfig& c, int64_t tokens) {
  double layers = 0;
  for (int64_t layer = 0; layer < c.layers; ++layer)
    layers += static_cast<double>(layer_elements(c, layer, c.experts.chosen));
  const auto head = static_cast<double>(matrix_size(c, Part::head).elements());
  return 2 * (static_cast<double>(tokens) * layers + head);  // one row sees the head
}

double attention_flops(const ModelConfig& c, int64_t tokens) {
  double keys = 0;
  for (int64_t position = 0; position < tokens; ++position) keys += static_cast<double>(attended_keys(c, position + 1));
  return 4 * keys * static_cast<double>(c.query_width());
}

struct FormRun {
  PrefillForm form;
  std::unique_ptr<PlanRun> graph;
  std::unique_ptr<PromptRun> other;
  std::vector<double> ms;
  void launch() { graph ? graph->launch() : other->launch(); }
};

}  // namespace

std::vector<PrefillBenchLine> bench_prefill(Device& device, const Stream& stream, KernelCache& kernels,
                                            const DecoderModel& model, const PrefillBenchOptions& options,
                                            const std::function<void(const PrefillBenchLine&)>& told) {
  for (const int64_t tokens : options.tokens)
    if (tokens > model.config().max_position)
      throw Error({.doing = "time a prompt of",
                   .object = fmt::format("{} tokens", tokens),
                   .detail = fmt::format("the model's context is {}", model.config().max_position),
                   .fault = Fault::usage});
  const int64_t usual_edge = device.driver().is_cpu() ? 64 : 8192;
  ProductRate ceiling(device, stream, kernels, options.product_edge > 0 ? options.product_edge : usual_edge);
  std::vector<PrefillBenchLine> lines;
  for (const int64_t tokens : options.tokens) {
    const PromptStep step({&device, &kernels, &model}, {.buckets = BucketSet({static_cast<int>(tokens)}),
                                                        .max_context = std::max(tokens, options.max_context),
                                                        .pages = pages_for(tokens),
                                                        .numerics = options.numerics,
                                                        .tuning = options.tuning,
                                                        .policy = options.policy,
                                                        .products_from = options.products_from});
    std::vector<FormRun> runs;
    for (const PrefillForm form : options.forms) {
      FormRun& run = runs.emplace_back(FormRun{.form = form, .graph = {}, .other = {}, .ms = {}});
      if (form == PrefillForm::graph)
        run.graph = std::make_unique<PlanRun>(step.plan, RunMode::explicit_, stream);
      else
        run.other = std::make_unique<PromptRun>(step.plan, form, stream);
    }
    std::vector<double> rates;
    for (int sample = -2; sample < options.samples; ++sample) {  // two rounds warm up
      const double rate = ceiling.sample();
      if (sample >= 0) rates.push_back(rate);
      for (size_t i = 0; i < runs.size(); ++i) {  // another one goes first each time
        FormRun& run = runs[(i + static_cast<size_t>(sample + 2)) % runs.size()];
        const double us = us_of([&] {
          run.launch();
          stream.synchronize();
        });
        if (sample >= 0) run.ms.push_back(us * 1e-3);
      }
    }
    for (const FormRun& run : runs) {
      PrefillBenchLine line{.tokens = tokens, .form = run.form};
      line.ms = spread_of(run.ms);
      line.weight_flops = weight_flops(model.config(), tokens);
      line.attention_flops = attention_flops(model.config(), tokens);
      line.product_flops_per_s = spread_of(rates);
      line.share =
          (line.weight_flops + line.attention_flops) / (1e-3 * line.ms.median) / line.product_flops_per_s.median;
      told(lines.emplace_back(line));
    }
  }
  return lines;
}

}  // namespace nodewright
