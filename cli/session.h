// What the model commands share: the options that name a model and a device, and the objects that they open.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/options/folders/model_folder.h"
#include "cli/options/tuning_choice.h"
#include "engine/direct_steps.h"
#include "engine/topology/step_slots.h"
#include "models/decoder_model.h"
#include "runtime/device_selection.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/stream.h"

namespace nodewright::cli {

struct SessionOptions {
  std::filesystem::path model;
  std::string device = "auto";
  std::string mode = "explicit";
  std::string edges = "programmatic";
  std::string numerics = "fast";
  int64_t bucket = 1;
  int64_t max_context = 0;  // 0: what the command needs
  std::string load_format = "auto";
  std::string quantization = "none";  // of the weights while they load
  std::string head = "none";          // --quantize-head
  std::string cache = "auto";         // the dtype of keys and values
  std::vector<std::string> merged;    // NAME=DIR of adapters that become part of the weights
  LaunchSteps steps;
  std::string tuning = "auto";          // the user's file for device and model if there is one; none; or a file
  bool trace = false;                   // every driver call to stderr
  int tensor_parallel = 1;              // devices that share each layer; 0: as many as --device names, without stages
  int stages = 1;                       // devices that have some of the layers each
  std::string collectives = "packets";  // how those of tensor_parallel exchange; or nccl
  std::optional<int> rank = {};  // of tensor_parallel, whose others are in other processes; nothing: all are here
  bool quiet = false;            // no progress on stderr: another one of the process shows its own
};

// --model, --device, --edges, --numerics, --max-context, --load-format, --quantization, --quantize-head,
// --kv-cache-dtype, --tuning, --trace.
void add_session_options(CLI::App& command, SessionOptions& options);
// --tp and --pp, of the commands that serve with an engine.
void add_parallel_options(CLI::App& command, SessionOptions& options);
// Devices of this process that share the model, for each of `replicas` replicas. Throws Error (usage) where --tp and
// --pp are both given.
int devices_of_model(const SessionOptions& options, int replicas);
// "--tp 2" or "--pp 2": the option that makes `devices` devices share the model.
std::string sharing_words(const SessionOptions& options, int devices);
// --load-format alone, --quantization alone, --quantize-head alone, --kv-cache-dtype alone.
void add_load_format_option(CLI::App& command, SessionOptions& options);
void add_quantization_option(CLI::App& command, std::string& quantization);
void add_head_option(CLI::App& command, std::string& head);
void add_cache_option(CLI::App& command, std::string& cache);
// `word`: one that the parser lets through for --quantization, and for --kv-cache-dtype.
LayerMatrices layer_matrices(const std::string& word);
CacheFormat cache_format(const std::string& word);
// --mode, of the commands that run a plan in any of the three ways; the others say why not.
void add_mode_option(CLI::App& command, SessionOptions& options);
void refuse_mode(CLI::App& command, const std::string& why);
// --bucket, of the commands that run one graph.
void add_bucket_option(CLI::App& command, SessionOptions& options);
// --steps-per-launch, --until-ended.
void add_steps_options(CLI::App& command, SessionOptions& options);
// Throws Error (usage) where the two contradict --mode or each other.
void check_steps(const SessionOptions& options);

// What has happened to the weights when a Session is there. Begun: they are on their way, and the Engine or the
// DirectSteps that are made meanwhile wait for them.
enum class Loading { done, begun };

// Tokens of the longest sequence where --max-context is silent and requests may be of any length.
inline constexpr int64_t kServedContext = 32768, kServedContextOnCpu = 2048;
int64_t served_context(const SessionOptions& options, const ModelConfig& config, bool on_cpu);

// A device with a model on it. Loading shows a progress bar on stderr when that is a terminal. With --trace it is
// always done first, so that a trace repeats from run to run.
class Session {
 public:
  explicit Session(const SessionOptions& options, Loading loading = Loading::done);
  // On a device that is open, current on this thread.
  Session(const SessionOptions& options, OpenedDevice opened, Loading loading);

  Device& device() { return *opened_.device; }
  Stream& stream() { return stream_; }
  const DecoderModel& model() const { return models_.front(); }
  std::span<DecoderModel> models() { return models_; }  // by rank, as places()
  const ModelConfig& config() const { return models_.front().config(); }
  KernelCache& kernels() { return *kernels_.front(); }
  // The devices that share the model, by rank or stage, each with its part; one with all of it where there is no --tp
  // and no --pp.
  const std::vector<ModelPlace>& places() const { return places_; }
  // For a model whose other ranks are in other processes: how engines made from now on exchange with them. Must outlive
  // them.
  void exchange_by(Collectives& collectives) { places_.front().collectives = &collectives; }
  // Another checkpoint on device(), loaded as the session's own, but as it is stored.
  DecoderModel load_another(const std::filesystem::path& folder);
  // What --tuning says; null: nothing was measured, or numerics are invariant.
  const std::shared_ptr<const Tuning>& tuning() const { return tuning_.tuning; }
  // The same in words, for --stats.
  const std::string& tuning_words() const { return tuning_.words; }

  // Tokens that a sequence may have: --max-context, or what the model was made for.
  int64_t context_limit() const;

  // Throws Error (usage) where a sequence of `needed_context` tokens exceeds context_limit().
  void check_fits(int64_t needed_context) const;

  // `needed_context`: tokens the command will put into its one sequence; --max-context may make room for more. Throws
  // Error as check_fits() does.
  DirectStepsOptions direct_steps(int64_t needed_context) const;

 private:
  SessionOptions options_;
  OpenedDevice opened_;
  Stream stream_;
  std::vector<DecoderModel> models_;                       // by rank
  std::vector<std::unique_ptr<KernelCache>> kernels_;      // by rank
  std::vector<std::unique_ptr<Collectives>> collectives_;  // by rank; empty: by packets. They outlive every engine
  std::vector<ModelPlace> places_;
  TuningChoice tuning_;
};

// `word`: one that the parser lets through for --edges, for --numerics.
EdgePolicy edge_policy(const std::string& word);
Numerics numerics_of(const std::string& word);

// "1,2,3" as token ids. Throws Error (usage) naming `option` and the word that is not a number, or an empty list.
std::vector<int32_t> parse_ids(const std::string& option, const std::string& text);

}  // namespace nodewright::cli
