// nodewright inspect: whether a checkpoint runs and what stops it, what it is, and what of it would fit on a device. No
// tensor is read.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/visible_text.h"
#include "bench/spread.h"
#include "bench/steps/read_bandwidth.h"
#include "cli/command.h"
#include "cli/inspect_folder.h"
#include "cli/options/tuning_choice.h"
#include "cli/options/whole_number.h"
#include "cli/output/error_words.h"
#include "cli/output/standard_output.h"
#include "cli/session.h"
#include "cli/tokenizer_outline.h"
#include "engine/byte_size.h"
#include "engine/engine.h"
#include "models/adapters/adapter_layout.h"
#include "models/config/model_config.h"
#include "models/weights/model_summary.h"
#include "runtime/device_selection.h"
#include "runtime/error.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kBandwidthSamples = 5;
constexpr int64_t kSequences[] = {1, 8, 64};

struct InspectOptions {
  std::filesystem::path model;
  std::string device = "auto";
  std::string quantization = "none", head = "none";
  std::string cache = "auto";
  int stages = 1;  // devices that the layers are cut over
  bool json = false;
};

// ---- The checkpoint --------------------------------------------------------------------------------------------

ordered_json shares_json(const std::vector<TensorShare>& shares) {
  ordered_json list = ordered_json::array();
  for (const TensorShare& s : shares)
    list.push_back({{"name", s.name}, {"tensors", s.tensors}, {"parameters", s.parameters}, {"bytes", s.bytes}});
  return list;
}

std::string_view rope_name(RopeType type) {
  constexpr std::string_view kNames[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
  return kNames[static_cast<size_t>(type)];
}

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// The layers of a mixture that have no experts.
std::vector<int64_t> dense_layers(const ModelConfig& c) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < c.layers; ++layer)
    if (c.has_experts() && c.feed_forward(layer) == FeedForward::dense) layers.push_back(layer);
  return layers;
}

ordered_json config_json(const ModelConfig& c) {
  return {{"architecture", c.architecture},
          {"layers", c.layers},
          {"hidden", c.hidden},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"intermediate", c.has_experts() ? c.experts.intermediate : c.intermediate},
          {"experts", c.experts.count},
          {"experts_per_token", c.experts.chosen},
          {"dense_layers", dense_layers(c)},
          {"dense_intermediate", c.intermediate},
          {"vocab", c.vocab},
          {"context", c.longest_context()},
          {"tied", c.tied},
          {"rope", {{"type", rope_name(c.rope.type)}, {"theta", c.rope.theta}, {"factor", c.rope.factor}}},
          {"bos", or_null(c.bos)},
          {"eos", c.eos},
          {"dtype", c.dtype}};
}

ordered_json tokenizer_json(const std::optional<TokenizerOutline>& outline) {
  if (!outline) return nullptr;
  return {{"model", outline->model},
          {"normalizer", outline->normalizer},
          {"pre_tokenizer", outline->pre_tokenizer},
          {"tokens", outline->tokens},
          {"added_tokens", outline->added_tokens}};
}

// ---- The device ------------------------------------------------------------------------------------------------

// That a sequence holds in a layer with a window, where the engine's options are those that it has by itself.
int64_t window_pages(const ModelConfig& config) {
  const KvPool pool({.page_tokens = kPageTokens,
                     .sequences = 1,
                     .window = config.window_of_all(),
                     .chunk = kStepTokens,
                     .chunks_follow = true,
                     .side_window = config.page_groups() > 1 ? config.window : 0,
                     .longest = config.max_position});
  return config.page_groups() > 1 ? pool.window_pages().total() : pool.most_pages(config.max_position);
}

// The whole, or the stages that --pp makes of it.
std::vector<StageSummary> stages_of(const InspectOptions& options, const InspectedFolder& folder) {
  if (options.stages == 1) return {{*folder.config, *folder.summary}};
  const Checkpoint checkpoint = Checkpoint::open(options.model);
  std::vector<StageSummary> stages;
  for (int64_t i = 0; i < options.stages; ++i) {
    const ModelConfig config = stage_of(*folder.config, i, options.stages);
    stages.push_back({config, summarize(checkpoint, config, layer_matrices(options.quantization))});
  }
  return stages;
}

ordered_json stages_json(const std::vector<StageSummary>& stages) {
  ordered_json list = ordered_json::array();
  for (const auto& [config, summary] : stages)
    list.push_back({{"layers", config.layers},
                    {"device_bytes", summary.device_bytes},
                    {"kv_bytes_per_token", summary.kv_bytes_per_token}});
  return list;
}

// Each stage gets a device like the named one.
ordered_json device_json(const std::string& name, const std::vector<StageSummary>& stages, const ModelConfig& config) {
  const OpenedDevice opened = open_device(name);
  Device& device = *opened.device;
  const uint64_t free_bytes = device.free_bytes();
  const Stream stream(device, "inspect");
  KernelCache kernels(device);
  ReadBandwidth bandwidth(device, stream, kernels, usual_read_bytes(device));
  std::vector<double> samples;
  for (int i = 0; i < kBandwidthSamples; ++i) samples.push_back(bandwidth.sample());
  const double read = spread_of(samples).median;

  const int64_t held = window_pages(config);
  ordered_json fits = ordered_json::array();
  for (const int64_t sequences : kSequences) {
    const ContextFit fit = context_fit(stages, free_bytes, sequences, held);
    fits.push_back({{"sequences", fit.sequences},
                    {"tokens_each", fit.tokens},
                    {"least_step_ms", static_cast<double>(fit.short_bytes) / read * 1e3},
                    {"filled_step_ms", static_cast<double>(fit.filled_bytes) / read * 1e3}});
  }
  const auto fits_weights = [&](const StageSummary& stage) { return free_bytes >= stage.summary.device_bytes; };
  return {{"name", device.name()},
          {"free_bytes", free_bytes},
          {"read_bytes_per_s", read},
          {"tuning", choose_tuning("auto", false, tuning_key(device.properties().name, config)).words},
          {"weights_fit", std::ranges::all_of(stages, fits_weights)},
          {"fits", fits}};
}

// ---- Both ------------------------------------------------------------------------------------------------------

ordered_json obstacles_json(const InspectedFolder& folder) {
  ordered_json list = ordered_json::array();
  for (const auto& [part, why] : folder.obstacles) list.push_back({{"part", part}, {"why", why}});
  return list;
}

void add_summary(const ModelSummary& summary, const ModelConfig& config, ordered_json& report) {
  report["parameters"] = summary.total.parameters;
  report["tensors"] = summary.total.tensors;
  report["file_bytes"] = summary.total.bytes;
  report["kinds"] = shares_json(summary.kinds);
  report["file_dtypes"] = shares_json(summary.dtypes);
  report["device_bytes"] = summary.device_bytes;
  report["weight_bytes_per_token"] = summary.bytes_per_token;
  report["kv_cache_dtype"] = name_of(config.cache);
  report["kv_bytes_per_token"] = summary.kv_bytes_per_token;
  report["window"] = summary.windowed_kv_bytes_per_token > 0 ? ordered_json(config.window) : ordered_json(nullptr);
  report["windowed_kv_bytes_per_token"] = summary.windowed_kv_bytes_per_token;
  const int64_t rank = EngineOptions{}.max_adapter_rank;
  report["adapter_rank"] = rank;
  report["adapter_bytes"] = AdapterLayout(config, adapter_limits(1, rank)).slot_bytes();
}

ordered_json inspect(const InspectOptions& options) {
  try {
    check_model_folder(options.model);
  } catch (const Error& error) {
    if (error.parts().fault == Fault::usage) throw;  // otherwise it lacks files, which are listed below
  }
  const InspectedFolder folder =
      inspect_folder(options.model, layer_matrices(options.quantization), [&](ModelConfig& config) {
        config.rounds_head = options.head == "fp8", config.cache = cache_format(options.cache);
      });
  ordered_json report = {
      {"model", options.model.string()}, {"runs", folder.obstacles.empty()}, {"obstacles", obstacles_json(folder)}};
  if (folder.config) report.update(config_json(*folder.config));
  if (folder.summary) add_summary(*folder.summary, *folder.config, report);
  report["tokenizer"] = tokenizer_json(folder.tokenizer);
  report["chat_template"] = folder.chat_template;
  report["device"] = nullptr;
  if (!folder.summary) return report;
  const std::vector<StageSummary> stages = stages_of(options, folder);
  if (options.stages > 1) report["stages"] = stages_json(stages);
  if (options.device == "none") return report;
  try {
    ModelConfig loaded = *folder.config;
    loaded.layouts = folder.summary->layouts;
    report["device"] = device_json(options.device, stages, loaded);
  } catch (const Error& error) {
    if (options.device != "auto") throw;
    report["no_device"] = error_words(error);
  }
  return report;
}

std::string size_text(const ordered_json& bytes) { return byte_size_text(bytes.get<double>()); }

std::string ids_text(const ordered_json& ids) {
  std::string text;
  for (const ordered_json& id : ids) text += (text.empty() ? "" : ", ") + id.dump();
  return text.empty() ? "none" : text;
}

std::string tokenizer_text(const ordered_json& t) {
  if (t.is_null()) return "none";
  const auto part = [](const ordered_json& types) { return types.get<std::string>(); };
  return fmt::format("{}, {} tokens and {} added; normalizer {}, pre-tokenizer {}", part(t["model"]),
                     t["tokens"].dump(), t["added_tokens"].dump(),
                     part(t["normalizer"]).empty() ? "none" : part(t["normalizer"]),
                     part(t["pre_tokenizer"]).empty() ? "none" : part(t["pre_tokenizer"]));
}

std::string share_lines(const ordered_json& shares, const ordered_json& parameters) {
  std::string text;
  for (const ordered_json& s : shares) {
    const double share = s["parameters"].get<double>() / std::max(parameters.get<double>(), 1.0);
    text += fmt::format("  {:<13} {:>14} parameters {:>6.1f} % {:>9} in {} tensors\n", s["name"].get<std::string>(),
                        s["parameters"].get<uint64_t>(), share * 100, size_text(s["bytes"]), s["tensors"].dump());
  }
  return text;
}

std::string stages_text(const ordered_json& r) {
  std::string text;
  for (const ordered_json& stage : r["stages"])
    text += fmt::format("{} {} layers, {} of weights\n", text.empty() ? "stages       " : "             ",
                        stage["layers"].dump(), size_text(stage["device_bytes"]));
  return text;
}

std::string device_text(const ordered_json& r) {
  const ordered_json& d = r["device"];
  if (d.is_null())
    return r.contains("no_device") ? fmt::format("device        none: {}\n", r["no_device"].get<std::string>()) : "";
  std::string text = fmt::format("device        {}, {} free, reads {}/s (median of {})\n", d["name"].get<std::string>(),
                                 size_text(d["free_bytes"]), size_text(d["read_bytes_per_s"]), kBandwidthSamples);
  text += fmt::format("tuning        {}\n", d["tuning"].get<std::string>());
  if (!d["weights_fit"].get<bool>())
    return text + fmt::format("              the weights do not fit{}: they need {}\n",
                              r.contains("stages") ? " on each of so many devices" : "", size_text(r["device_bytes"]));
  text += "  sequences   tokens each   a step takes at least   with so many tokens\n";
  for (const ordered_json& fit : d["fits"])
    text +=
        fmt::format("  {:>9}   {:>11}   {:>18.3f} ms   {:>16.3f} ms\n", fit["sequences"].dump(),
                    fit["tokens_each"].dump(), fit["least_step_ms"].get<double>(), fit["filled_step_ms"].get<double>());
  return text;
}

std::string network_text(const ordered_json& r) {
  const auto number = [&](const char* key) { return r[key].dump(); };
  std::string text;
  text += fmt::format("architecture  {}: {} layers, hidden {}, intermediate {}, vocabulary {}, context {}{}\n",
                      r["architecture"].get<std::string>(), number("layers"), number("hidden"), number("intermediate"),
                      number("vocab"), number("context"), r["tied"].get<bool>() ? ", tied head" : "");
  const auto layers = r["layers"].get<size_t>(), dense = r["dense_layers"].size();
  if (r["experts"] != 0)
    text += fmt::format("experts       {} in {}, {} of a token{}\n", number("experts"),
                        dense == 0 ? "each layer" : fmt::format("{} of {} layers", layers - dense, layers),
                        number("experts_per_token"),
                        dense == 0 ? "" : "; the others have one block of " + number("dense_intermediate"));
  text += fmt::format("attention     {} heads and {} key/value heads of {}; rotary {}, theta {:g}\n", number("heads"),
                      number("kv_heads"), number("head_dim"), r["rope"]["type"].get<std::string>(),
                      r["rope"]["theta"].get<double>());
  return text;
}

std::string weights_text(const ordered_json& r) {
  const auto number = [&](const char* key) { return r[key].dump(); };
  std::string text;
  text += fmt::format("parameters    {} in {} tensors, {} in the files\n", number("parameters"), number("tensors"),
                      size_text(r["file_bytes"]));
  text += share_lines(r["kinds"], r["parameters"]) + "stored as\n" + share_lines(r["file_dtypes"], r["parameters"]);
  text += fmt::format("on a device   {} of weights, {} of them moved by a step of one token\n",
                      size_text(r["device_bytes"]), size_text(r["weight_bytes_per_token"]));
  text +=
      fmt::format("cache         {} a token{}{}\n", size_text(r["kv_bytes_per_token"]),
                  r["kv_cache_dtype"] == "fp8" ? " in FP8" : "",
                  r["window"].is_null() ? ""
                                        : fmt::format(", {} of them only of the last {} tokens",
                                                      size_text(r["windowed_kv_bytes_per_token"]), number("window")));
  text += fmt::format("adapters      {} for each of --max-adapters, at a rank of {}\n", size_text(r["adapter_bytes"]),
                      number("adapter_rank"));
  return text;
}

std::string text_of(const ordered_json& r) {
  const std::string chat = r["chat_template"].get<std::string>();
  const bool has_config = r.contains("architecture");
  std::string text = fmt::format("model         {}\nruns          {}\n", r["model"].get<std::string>(),
                                 r["runs"].get<bool>() ? "yes" : "no");
  for (const ordered_json& one : r["obstacles"])
    text += fmt::format("  {:<18} {}\n", one["part"].get<std::string>(), one["why"].get<std::string>());
  if (has_config) text += network_text(r);
  if (r.contains("parameters")) text += weights_text(r);
  if (r.contains("stages")) text += stages_text(r);
  text += fmt::format("tokenizer     {}", tokenizer_text(r["tokenizer"]));
  if (has_config)
    text += fmt::format("; bos {}, eos {}", r["bos"].is_null() ? "none" : r["bos"].dump(), ids_text(r["eos"]));
  text += fmt::format("; chat template {}\n", chat.empty() ? "none" : "in " + chat);
  return text + device_text(r);
}

int inspect_command(const InspectOptions& options) {
  const ordered_json report = inspect(options);
  write_standard_output(options.json ? report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n"
                                     : visible_text(text_of(report)));
  return report["runs"].get<bool>() ? 0 : 1;
}

}  // namespace

void add_inspect(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Say whether a checkpoint runs, what it is and what of it fits on a device");
  add_model_option(*command, options->model, "Hugging Face checkpoint folder, or OWNER/NAME in its cache")->required();
  command
      ->add_option("--device", options->device,
                   "auto (where there is one), none, cuda, cuda:N or cpu; more in docs/command.md")
      ->capture_default_str();
  command
      ->add_option("--pp,--pipeline-parallel-size", options->stages,
                   "devices that the layers are cut over, each with as much memory as the named one")
      ->check(whole_number<uint32_t, 1>)
      ->capture_default_str();
  add_quantization_option(*command, options->quantization);
  add_head_option(*command, options->head);
  add_cache_option(*command, options->cache);
  command->add_flag("--json", options->json, "print everything as JSON, sizes in bytes");
  command->callback([options, &chosen] { chosen = [options] { return inspect_command(*options); }; });
}

}  // namespace nodewright::cli
