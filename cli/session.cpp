#include "cli/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <utility>

#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/options/adapter_options.h"
#include "cli/options/refusals.h"
#include "cli/options/run_mode_word.h"
#include "cli/options/whole_number.h"
#include "cli/output/progress_bar.h"
#include "cli/output/say.h"
#include "engine/byte_size.h"
#include "models/config/part.h"
#include "models/weights/row_stride.h"
#include "runtime/compilers/image_store.h"
#include "runtime/error.h"
#include "runtime/libraries/nccl_collectives.h"
#include "runtime/memory/host_heap.h"

namespace nodewright::cli {
namespace {

OpenedDevice open(const SessionOptions& options) {
  check_model_folder(options.model);
  if (!options.device.starts_with("cpu")) fill_huge_heap();  // the CPU driver keeps no graphs of its own
  const int ranks = devices_of_model(options, 1);
  const DeviceChoice chosen =
      choose_devices(options.device, ranks, ranks == 1 ? "one engine" : sharing_words(options, ranks));
  OpenedDevice opened =
      open_devices(open_driver(chosen.driver), chosen.ordinals, options.trace ? Observe::yes : Observe::no);
  if (options.trace) opened.interposer->trace_to([](std::string_view line) { say("{}\n", line); });
  return opened;
}

std::vector<std::unique_ptr<Collectives>> nccl_of(const SessionOptions& options, const OpenedDevice& opened) {
  const auto refuse = [](const char* detail, const char* advice) {
    refuse_option("--collectives nccl", detail, advice);
  };
  if (options.stages > 1) refuse("stages of --pp copy what they hand over", "leave it out, or --tp");
  if (opened.more.empty()) refuse("one device exchanges nothing", "leave it out, or --tp 2");
  if (opened.device->driver().is_cpu()) refuse("NCCL gathers from GPUs alone", "leave it out on the CPU driver");
  std::vector<Device*> devices = {opened.device.get()};
  for (const auto& device : opened.more) devices.push_back(device.get());
  std::vector<std::unique_ptr<Collectives>> all;
  for (auto& one : NcclCollectives::of_devices(NcclLibrary::load(), devices)) all.push_back(std::move(one));
  return all;
}

// Kernels read bf16, FP8 and integers with scales for groups of columns: what is stored otherwise takes the memory and
// the time of bf16.
void say_format(const DecoderModel& model, const SessionOptions& options) {
  const bool rounds = layer_matrices(options.quantization) == LayerMatrices::rounded;
  const ModelConfig& config = model.config();
  if (options.quiet) return;
  if (config.rounds_head)  // on the last stage
    say("nodewright: head: rounded to FP8 with a scale for each row ({}{})\n",
        byte_size_text(
            static_cast<uint64_t>(WeightLayout{WeightCode::fp8}.bytes(config.head_rows(), row_stride(config.hidden)))),
        config.tied ? " beside the embedding in bf16" : "");
  if (model.stored_as().empty() && !rounds) return;
  std::vector<std::string> in_fp8, in_int4, in_int8, in_bf16 = {"embedding"};
  if (!config.rounds_head) in_bf16.emplace_back("head");
  if (config.has_experts()) in_bf16.emplace_back("router");
  for (const Part part : {Part::qkv, Part::out, Part::gate_up, Part::down}) {
    const bool of_experts = config.has_experts() && (part == Part::gate_up || part == Part::down);
    std::map<std::vector<std::string>*, int64_t> layers;  // that have the part in a form
    for (size_t layer = 0; layer < static_cast<size_t>(config.all_layers()); ++layer) {
      const WeightLayout layout = layout_of(config.layouts.of_layer(layer), part);
      ++layers[layout.has_nibbles() ? &in_int4 : layout.is_grouped() ? &in_int8 : layout.is_fp8() ? &in_fp8 : &in_bf16];
    }
    for (const auto& [form, count] : layers) {
      std::string name = weight_name(config, part);
      if (rounds && form == &in_bf16)
        name += fmt::format(" (its {} columns are no multiple of 16)",
                            (of_experts ? expert_matrix_size : matrix_size)(config, part).cols);
      if (layers.size() > 1) name += fmt::format(" of {} layers", count);
      form->push_back(std::move(name));
    }
  }
  const std::string stay =
      fmt::format("bf16: {} ({})", fmt::join(in_bf16, ", "), byte_size_text(model.weights().bytes()));
  if (rounds)
    return say("nodewright: weights: {} rounded to FP8 with a scale for each row; {}\n", fmt::join(in_fp8, ", "), stay);
  std::string multiplied;
  for (const auto& [names, format] : {std::pair{in_fp8, "FP8"}, {in_int8, "int8"}, {in_int4, "int4"}})
    if (!names.empty()) multiplied += fmt::format("{} multiplied in {}; ", fmt::join(names, ", "), format);
  say("nodewright: weights: {}; {}\n", model.stored_as(),
      multiplied.empty()
          ? fmt::format("dequantized while they load, bf16 on the device ({})", byte_size_text(model.weights().bytes()))
          : multiplied + stay);
}

void say_cache(const DecoderModel& model, const SessionOptions& options) {
  if (options.quiet || model.config().cache != CacheFormat::fp8) return;
  const bool has_scales = std::ranges::any_of(model.weights().layers(), [](const LayerWeights& layer) {
    return layer.cache_scales.key != 1 || layer.cache_scales.value != 1;
  });
  say("nodewright: cache: keys and values in FP8 {}, up to 448 times that\n",
      has_scales ? "with the checkpoint's scales" : "with a scale of 1");
}

// By rank or stage, all at once.
std::vector<DecoderModel> load_models(const OpenedDevice& opened, Stream& stream, const SessionOptions& options,
                                      Loading loading) {
  auto bar = std::make_shared<ProgressBar>("loading " + options.model.string(), ProgressBar::Unit::bytes);
  const Progress progress{[bar, quiet = options.quiet](uint64_t done, uint64_t total) {
    if (quiet) return;
    bar->show(done, total);
    if (done == total) bar->wipe();
  }};
  LoadOptions load{.context = options.max_context,
                   .draws_weights = options.load_format == "dummy",
                   .rounds_to_fp8 = layer_matrices(options.quantization) == LayerMatrices::rounded,
                   .rounds_head = options.head == "fp8",
                   .cache = cache_format(options.cache)};
  for (const NamedFolder& one : named_folders("--merge-adapter", options.merged)) load.merged.push_back(one.folder);
  std::vector<DecoderModel> models;
  const auto count = static_cast<int64_t>(opened.more.size()) + 1;
  const bool by_stage = options.stages > 1;
  (by_stage ? load.stage.count : load.shard.ranks) = count;
  if (options.rank) load.shard = {*options.rank, options.tensor_parallel};
  if (count == 1 && (loading == Loading::done || options.trace)) {
    models.push_back(DecoderModel::load(*opened.device, stream, options.model, progress, load));
    say_format(models.front(), options);
    say_cache(models.front(), options);
    return models;
  }
  models.push_back(DecoderModel::begin_load(*opened.device, options.model, progress, load));
  say_format(models.front(), options);
  say_cache(models.front(), options);
  for (const auto& device : opened.more) {
    ++(by_stage ? load.stage.index : load.shard.rank);
    models.push_back(DecoderModel::begin_load(*device, options.model, {}, load));
  }
  if (loading == Loading::done)
    for (const DecoderModel& model : models) model.wait();
  return models;
}

// A first start takes a while: on a terminal a bar shows that, elsewhere one line says so. The compiler of the CPU
// driver works in a folder, which is gone also where Ctrl-C ends that.
KernelCacheOptions kernel_options(bool quiet) {
  struct Told {
    std::unique_ptr<CaughtMeanwhile> caught;
    std::atomic<bool> first = true;
  };
  KernelCacheOptions options;
  auto told = std::make_shared<Told>();
  options.compiles = [told, quiet](size_t kernels) {
    const bool is_first = told->first.exchange(false);
    if (kernels > 1) told->caught = std::make_unique<CaughtMeanwhile>();  // of prepare(), which tells its progress
    if (!quiet && isatty(STDERR_FILENO) == 0 && (is_first || kernels > 1))
      say("nodewright: compiling {} kernel{}, once; the next start finds them in {}\n", kernels,
          kernels == 1 ? "" : "s", ImageStore::default_folder().string());
  };
  auto bar = std::make_shared<ProgressBar>("preparing kernels");
  options.progress = [bar, told, quiet](size_t done, size_t total, std::string_view) {
    end_if_interrupted();
    if (!quiet) bar->show(done, total);
    if (done == total) told->caught.reset();
  };
  options.not_trusted = [](const std::string& problem) {
    say("nodewright: compiled kernels on disk are not used, and are compiled again: {}\n", problem);
  };
  options.not_kept = [](const std::string& problem) {
    say("nodewright: what is compiled is not kept, and the next start compiles it again: {}; try: set "
        "NODEWRIGHT_CACHE to a folder that you can write, and nobody else\n",
        problem);
  };
  return options;
}

}  // namespace

void add_session_options(CLI::App& command, SessionOptions& options) {
  add_model_option(command, options.model, "Hugging Face checkpoint folder, or OWNER/NAME in its cache")->required();
  command.add_option("--device", options.device, kDeviceHelp)->capture_default_str();
  command.add_option("--edges", options.edges, "what orders the nodes of a plan")
      ->check(CLI::IsMember({"programmatic", "full", "serial"}))
      ->capture_default_str();
  command.add_option("--numerics", options.numerics, "invariant: a row's bits do not depend on the size of its batch")
      ->check(CLI::IsMember({"fast", "invariant"}))
      ->capture_default_str();
  command
      .add_option("--max-context,--max-model-len", options.max_context,
                  "tokens of the longest sequence (default: as needed)")
      ->check(whole_number<uint32_t, 1>);
  add_load_format_option(command, options);
  add_quantization_option(command, options.quantization);
  add_head_option(command, options.head);
  add_cache_option(command, options.cache);
  command.add_option("--tuning", options.tuning, "what `nodewright tune` wrote: auto, none or a file")
      ->capture_default_str();
  command.add_flag("--trace", options.trace, "print every driver call to stderr");
}

int devices_of_model(const SessionOptions& options, int replicas) {
  if (options.stages > 1 && options.tensor_parallel > 1)
    refuse_pair("--pp and --tp", "a layer is either split over devices or on one of them",
                "one of the two; --tp is the faster where devices are linked");
  if (options.rank) return 1;
  if (options.stages > 1) return options.stages;
  if (options.tensor_parallel > 0) return options.tensor_parallel;
  return std::max(devices_named(options.device) / replicas, 1);
}

int64_t served_context(const SessionOptions& options, const ModelConfig& config, bool on_cpu) {
  if (options.max_context > 0) return options.max_context;
  return std::min(config.max_position, on_cpu ? kServedContextOnCpu : kServedContext);
}

std::string sharing_words(const SessionOptions& options, int devices) {
  return fmt::format("--{} {}", options.stages > 1 ? "pp" : "tp", devices);
}

static void add_collectives_option(CLI::App& command, SessionOptions& options) {
  command
      .add_option("--collectives", options.collectives,
                  "how the devices of --tp exchange: packets, which their kernels send each other; or nccl")
      ->check(CLI::IsMember({"packets", "nccl"}))
      ->capture_default_str();
}

void add_parallel_options(CLI::App& command, SessionOptions& options) {
  options.tensor_parallel = 0;
  command
      .add_option("--tp,--tensor-parallel-size", options.tensor_parallel,
                  "devices that share the model, each with a part of every layer: those that --device "
                  "names, as cuda:0,1, or the one it names and those after it (default: as many as it "
                  "names)")
      ->check(whole_number<uint32_t, 1>);
  command
      .add_option("--pp,--pipeline-parallel-size", options.stages,
                  "devices that the layers are cut over, each with some of them; not with --tp")
      ->check(whole_number<uint32_t, 1>)
      ->capture_default_str();
  add_collectives_option(command, options);
}

void add_load_format_option(CLI::App& command, SessionOptions& options) {
  command
      .add_option("--load-format", options.load_format,
                  "dummy: random weights are drawn for the shapes of config.json, and no weight file is "
                  "read")
      ->check(CLI::IsMember({"auto", "safetensors", "dummy"}))
      ->capture_default_str();
}

void add_quantization_option(CLI::App& command, std::string& quantization) {
  command
      .add_option("--quantization", quantization,
                  "fp8: the layers' matrices are rounded to FP8 while they load, with a scale for each row")
      ->check(CLI::IsMember({"none", "fp8"}))
      ->capture_default_str();
}

void add_head_option(CLI::App& command, std::string& head) {
  command
      .add_option(
          "--quantize-head", head,
          "fp8: the head is rounded to FP8 while it loads, with a scale for each row; a copy of its own where it "
          "is the embedding")
      ->check(CLI::IsMember({"none", "fp8"}))
      ->capture_default_str();
}

void add_cache_option(CLI::App& command, std::string& cache) {
  command
      .add_option("--kv-cache-dtype", cache,
                  "fp8: keys and values are kept in FP8 (e4m3), in half the memory of bf16; auto: bf16")
      ->check(CLI::IsMember({"auto", "bf16", "bfloat16", "fp8", "fp8_e4m3"}))
      ->capture_default_str();
}

CacheFormat cache_format(const std::string& word) {
  return word.starts_with("fp8") ? CacheFormat::fp8 : CacheFormat::bf16;
}

LayerMatrices layer_matrices(const std::string& word) {
  return word == "fp8" ? LayerMatrices::rounded : LayerMatrices::stored;
}

void add_mode_option(CLI::App& command, SessionOptions& options) {
  command.add_option("--mode", options.mode, "how a plan is run")
      ->check(CLI::IsMember({"explicit", "captured", "eager"}))
      ->capture_default_str();
}

void refuse_mode(CLI::App& command, const std::string& why) {
  command
      .add_option_function<std::string>("--mode",
                                        [why](const std::string&) { throw CLI::ValidationError("--mode", why); })
      ->group("");  // not in the help
}

void add_bucket_option(CLI::App& command, SessionOptions& options) {
  command.add_option("--bucket", options.bucket, "rows of the decode graph")
      ->check(whole_number<uint32_t, 1>)
      ->capture_default_str();
}

void add_steps_options(CLI::App& command, SessionOptions& options) {
  command
      .add_option("--steps-per-launch", options.steps.most,
                  "steps that the device runs one after the other in a launch, before the host sees their "
                  "tokens")
      ->check(whole_number<uint32_t, 1>)
      ->capture_default_str();
  command.add_flag("--until-ended", options.steps.loop,
                   "the steps of a launch are a loop in the graph, which ends when every row has ended");
}

void check_steps(const SessionOptions& options) {
  const auto refuse = [](const char* pair, const char* detail, const char* way_out) {
    refuse_pair(pair, detail, way_out);
  };
  if (!options.steps.loop) return;
  if (options.mode == "captured")
    refuse("--until-ended and --mode", "stream capture cannot hold a loop",
           "--mode explicit, or --steps-per-launch alone");
  if (options.steps.most == 1)
    refuse("--until-ended and --steps-per-launch", "a loop of one step ends with it", "--steps-per-launch 64, or more");
}

Session::Session(const SessionOptions& options, Loading loading) : Session(options, open(options), loading) {}

Session::Session(const SessionOptions& options, OpenedDevice opened, Loading loading)
    : options_(options),
      opened_(std::move(opened)),
      stream_(*opened_.device, "compute"),
      models_(load_models(opened_, stream_, options, loading)),
      tuning_(choose_tuning(options.tuning, numerics_of(options.numerics) == Numerics::invariant,
                            tuning_key(opened_.device->properties().name, config()))) {
  if (options.collectives == "nccl" && !options.rank) collectives_ = nccl_of(options, opened_);
  for (size_t rank = 0; rank < models_.size(); ++rank) {
    Device& device = rank == 0 ? *opened_.device : *opened_.more[rank - 1];
    kernels_.push_back(std::make_unique<KernelCache>(device, kernel_options(options.quiet)));
    places_.push_back(
        {&device, kernels_.back().get(), &models_[rank], collectives_.empty() ? nullptr : collectives_[rank].get()});
  }
}

DecoderModel Session::load_another(const std::filesystem::path& folder) {
  SessionOptions other = options_;
  other.model = folder;
  other.quantization = other.head = "none";
  other.cache = "auto";
  return std::move(load_models(opened_, stream_, other, Loading::done).front());
}

int64_t Session::context_limit() const {
  return options_.max_context > 0 ? options_.max_context : config().max_position;
}

void Session::check_fits(int64_t needed_context) const {
  if (needed_context > context_limit())
    throw Error({.doing = "fit the prompt into the context of",
                 .object = options_.model.string(),
                 .detail = fmt::format("{} tokens are needed, {} {}", needed_context,
                                       options_.max_context > 0 ? "--max-context is" : "the model was made for",
                                       context_limit()),
                 .advice = "a shorter prompt or fewer tokens",
                 .fault = Fault::usage});
}

DirectStepsOptions Session::direct_steps(int64_t needed_context) const {
  check_fits(needed_context);
  if (places_.size() > 1)
    refuse_option(sharing_words(options_, static_cast<int>(places_.size())), "several steps a launch run on one device",
                  "leave out --steps-per-launch");
  return {.bucket = options_.bucket,
          .slots = {.max_context = options_.max_context > 0 ? options_.max_context : needed_context,
                    .numerics = numerics_of(options_.numerics),
                    .tuning = tuning_.tuning,
                    .mode = run_mode(options_.mode),
                    .policy = edge_policy(options_.edges),
                    .steps = options_.steps}};
}

EdgePolicy edge_policy(const std::string& word) {
  if (word == "serial") return EdgePolicy::serial;
  return word == "full" ? EdgePolicy::full : EdgePolicy::programmatic;
}

Numerics numerics_of(const std::string& word) { return word == "fast" ? Numerics::fast : Numerics::invariant; }

std::vector<int32_t> parse_ids(const std::string& option, const std::string& text) {
  std::vector<int32_t> ids;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    size_t first = begin, last = comma;
    while (first < last && text[first] == ' ') ++first;
    while (last > first && text[last - 1] == ' ') --last;
    int32_t id = 0;
    const auto [end, failure] = std::from_chars(text.data() + first, text.data() + last, id);
    if (failure != std::errc() || end != text.data() + last)
      throw Error({.doing = "read " + option,
                   .object = first < last ? text.substr(first, last - first) : text,
                   .detail = text.empty()   ? "it is empty"
                             : first < last ? "it is not a token id"
                                            : "an id is missing",
                   .advice = "numbers separated by commas, such as 1,2,3",
                   .fault = Fault::usage});
    ids.push_back(id);
    begin = comma + 1;
  }
  return ids;
}

}  // namespace nodewright::cli
