#include "models/weights/quantize/quantized_checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "base/gguf_file.h"
#include "base/json_file.h"
#include "models/config/model_config.h"
#include "models/weights/checkpoint.h"
#include "models/weights/weights.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr uint64_t kLargestConfig = 16 << 20;  // bytes, as of config.json (models/config/model_config.cpp)
constexpr uint64_t kCopiedAtOnce = 8 << 20;    // bytes of a tensor that stays

[[noreturn]] void refuse_source(const fs::path& folder, std::string why, std::string advice) {
  throw Error({.doing = "quantize",
               .object = folder.string(),
               .detail = std::move(why),
               .advice = std::move(advice),
               .fault = Fault::usage});
}

// A folder that goes with everything in it, unless it has become another.
class FolderUntilDone {
 public:
  explicit FolderUntilDone(const fs::path& folder)
      : folder_(folder), part_(folder.string() + ".part" + std::to_string(getpid())) {
    std::error_code failure;
    if (fs::exists(fs::symlink_status(folder, failure)))
      throw Error({.doing = "write the folder",
                   .object = folder.string(),
                   .detail = "it exists already",
                   .advice = "the name of a folder that is not there yet",
                   .fault = Fault::usage});
    if (!fs::create_directory(part_, failure)) fail(failure);
  }
  ~FolderUntilDone() {
    std::error_code ignored;
    if (!done_) fs::remove_all(part_, ignored);
  }
  FolderUntilDone(const FolderUntilDone&) = delete;
  FolderUntilDone& operator=(const FolderUntilDone&) = delete;

  const fs::path& path() const { return part_; }
  void done() {
    std::error_code failure;
    fs::rename(part_, folder_, failure);
    if (failure) fail(failure);
    done_ = true;
  }

 private:
  [[noreturn]] void fail(const std::error_code& failure) const {
    throw Error({.doing = "write the folder",
                 .object = folder_.string(),
                 .detail = failure ? failure.message() : part_.string() + " exists already"});
  }

  fs::path folder_, part_;
  bool done_ = false;
};

void write_json(const fs::path& path, const ordered_json& object) {
  std::ofstream file(path, std::ios::binary);
  file << object.dump(2) << "\n";
  file.close();
  if (!file) throw Error({.doing = "write", .object = path.string(), .detail = std::strerror(errno)});
}

// What a person or another program needs beside weights and config.json.
bool is_copied(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string(), extension = entry.path().extension().string();
  constexpr std::string_view kWeights[] = {".safetensors", ".bin", ".pt",   ".pth", ".gguf",
                                           ".msgpack",     ".h5",  ".onnx", ".npz"};
  std::error_code ignored;
  return entry.is_regular_file(ignored) && name != "config.json" && !name.ends_with(".index.json") &&
         !std::ranges::count(kWeights, extension);
}

void copy_other_files(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  for (fs::directory_iterator file(from, failure), end; !failure && file != end; file.increment(failure)) {
    if (!is_copied(*file)) continue;
    const fs::path copy = to / file->path().filename();
    if (!fs::copy_file(file->path(), copy, failure))
      throw Error({.doing = "copy", .object = file->path().string(), .detail = failure.message()});
  }
  if (failure) throw Error({.doing = "list the files of", .object = from.string(), .detail = failure.message()});
}

// Which tensors are quantized, and what the others are.
class Selection {
 public:
  Selection(const Checkpoint& checkpoint, const ModelConfig& config, QuantizedFormat format) : format_(format) {
    std::set<const TensorInfo*> embeddings;
    for (const WeightSource& source : weight_sources(checkpoint, config))
      for (const WeightPart& part : source.parts) {
        if (source.name == "embedding" || source.name == "positions") embeddings.insert(part.tensor);
        if (!is_quantized(source.name)) continue;
        if (part.transposed)
          refuse_source(checkpoint.folder(),
                        fmt::format("tensor {} is stored with its inputs first, which no quantized format has",
                                    in_quotes(part.tensor->name)),
                        "another model");
        chosen_.insert(part.tensor);
      }
    std::set<std::string> ignored{config.names.head};
    for (const TensorInfo& tensor : checkpoint.tensors()) {
      const bool is_of_layer = chosen_.contains(&tensor);
      if (is_of_layer && format == QuantizedFormat::int4 && !int4_group(tensor.shape[1])) {
        too_odd_.push_back(tensor.name);
        chosen_.erase(&tensor);
      }
      if (tensor.shape.size() != 2 || !tensor.name.ends_with(kEnding) || embeddings.contains(&tensor)) continue;
      if (!chosen_.contains(&tensor))
        ignored.insert(module_named(tensor));
      else if (format == QuantizedFormat::int4)
        modules_of_group_[*int4_group(tensor.shape[1])].push_back(module_named(tensor));
    }
    ignored_.assign(ignored.begin(), ignored.end());
    if (chosen_.empty())
      refuse_source(checkpoint.folder(), "no matrix of its layers has a width of whole groups of 32",
                    "--format fp8-row");
  }

  bool has(const TensorInfo& tensor) const { return chosen_.contains(&tensor); }
  uint64_t count() const { return chosen_.size(); }
  const std::vector<std::string>& too_odd() const { return too_odd_; }

  // As the libraries write it that read it: transformers' FineGrainedFP8Config, compressed-tensors 0.20.
  ordered_json config() const {
    if (format_ == QuantizedFormat::fp8_block)
      return {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {128, 128}},
              {"modules_to_not_convert", ignored_}};
    ordered_json groups = ordered_json::object();
    if (format_ == QuantizedFormat::fp8_row) groups["group_0"] = scheme({"Linear"}, "float", 8, "channel", nullptr);
    for (const auto& [size, modules] : modules_of_group_)
      groups[fmt::format("group_{}", groups.size())] =
          scheme(modules_of_group_.size() == 1 ? std::vector<std::string>{"Linear"} : modules, "int", 4, "group", size);
    return {{"quant_method", "compressed-tensors"},
            {"format", format_ == QuantizedFormat::fp8_row ? "float-quantized" : "pack-quantized"},
            {"quantization_status", "compressed"},
            {"config_groups", groups},
            {"ignore", ignored_},
            {"kv_cache_scheme", nullptr}};
  }

 private:
  static constexpr std::string_view kEnding = ".weight";

  // The matrices of a layer, as the sources of weights are named.
  static bool is_quantized(std::string_view source) {
    if (!source.starts_with('l') || source.size() < 2 || std::isdigit(static_cast<unsigned char>(source[1])) == 0)
      return false;
    constexpr std::string_view kParts[] = {"qkv", "out", "gate_up", "up", "down"};
    return std::ranges::count(kParts, source.substr(source.find('.') + 1)) > 0;
  }
  static std::string module_named(const TensorInfo& tensor) {
    return tensor.name.substr(0, tensor.name.size() - kEnding.size());
  }
  static ordered_json scheme(const std::vector<std::string>& targets, const char* type, int bits, const char* strategy,
                             const ordered_json& group) {
    return {{"targets", targets},
            {"weights",
             {{"num_bits", bits},
              {"type", type},
              {"symmetric", true},
              {"strategy", strategy},
              {"group_size", group},
              {"dynamic", false}}},
            {"input_activations", nullptr},
            {"output_activations", nullptr}};
  }

  QuantizedFormat format_;
  std::set<const TensorInfo*> chosen_;
  std::vector<std::string> ignored_, too_odd_;
  std::map<int64_t, std::vector<std::string>, std::greater<>> modules_of_group_;  // of int4
};

class Writing {
 public:
  Writing(const Checkpoint& checkpoint, const Selection& selection, QuantizedFormat format, unsigned threads,
          const Progress& progress)
      : selection_(selection), format_(format), threads_(threads), progress_(progress) {
    for (const TensorInfo& tensor : checkpoint.tensors()) {
      files_[tensor.file->path().filename().string()].push_back(&tensor);
      found_.bytes_before += tensor.bytes;
    }
    for (auto& [name, tensors] : files_) std::ranges::sort(tensors, {}, &TensorInfo::offset);
    found_.matrices = selection.count();
    found_.too_odd = selection.too_odd();
  }

  QuantizedCheckpoint to(const fs::path& folder) {
    ordered_json places = ordered_json::object();
    for (const auto& [name, tensors] : files_) {
      std::vector<WrittenTensor> written;
      for (const TensorInfo* tensor : tensors)
        if (selection_.has(*tensor))
          std::ranges::copy(quantized_tensors(format_, *tensor), std::back_inserter(written));
        else
          written.push_back({tensor->name, tensor->dtype, tensor->shape});
      for (const WrittenTensor& one : written) {
        found_.bytes += one.bytes();
        places[one.name] = name;
      }
      SafetensorsWriter file(folder / name, written);
      for (const TensorInfo* tensor : tensors) write(*tensor, file);
      file.close();
    }
    if (files_.size() > 1 || !files_.contains("model.safetensors"))
      write_json(folder / kIndex, {{"metadata", {{"total_size", found_.bytes}}}, {"weight_map", places}});
    return found_;
  }

 private:
  void write(const TensorInfo& tensor, SafetensorsWriter& file) {
    if (selection_.has(tensor)) {
      file.append(quantize_tensor(format_, tensor, threads_));
      return report(tensor.bytes);
    }
    std::vector<std::byte> some;
    for (uint64_t at = 0; at < tensor.bytes; at += some.size()) {
      some.resize(std::min(kCopiedAtOnce, tensor.bytes - at));
      tensor.file->read(tensor.offset + at, some);
      file.append(some);
      report(some.size());
    }
  }
  void report(uint64_t bytes) {
    done_ += bytes;
    if (progress_.report) progress_.report(done_, found_.bytes_before);
  }

  const Selection& selection_;
  QuantizedFormat format_;
  unsigned threads_;
  const Progress& progress_;
  std::map<std::string, std::vector<const TensorInfo*>> files_;
  QuantizedCheckpoint found_;
  uint64_t done_ = 0;
};

}  // namespace

QuantizedCheckpoint quantize_checkpoint(const fs::path& from, const fs::path& to, QuantizedFormat format,
                                        unsigned threads, const Progress& progress) {
  if (is_gguf(from)) refuse_source(from, "it is a GGUF file", "the checkpoint that it was made of");
  const ModelConfig config = read_model_config(from);
  const Checkpoint checkpoint = Checkpoint::open(from);
  if (checkpoint.format() != nullptr)
    refuse_source(from, fmt::format("it is quantized already: {}", checkpoint.format()->words()),
                  "the checkpoint that it was made of");
  const Selection selection(checkpoint, config, format);
  FolderUntilDone folder(to.has_filename() ? to : to.parent_path());
  copy_other_files(from, folder.path());
  ordered_json written = ordered_json::parse(read_json_text(from / "config.json", "quantize", kLargestConfig));
  written["quantization_config"] = selection.config();
  write_json(folder.path() / "config.json", written);
  const QuantizedCheckpoint found = Writing(checkpoint, selection, format, threads, progress).to(folder.path());
  folder.done();
  return found;
}

}  // namespace nodewright
