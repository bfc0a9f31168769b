// The weights of a decoder in device memory, in the layout that the kernels read. Loading converts, interleaves and
// pads on the host; nothing writes them afterwards.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/cache_scales.h"
#include "models/weights/checkpoint.h"
#include "models/weights/row_stride.h"
#include "models/weights/weight_upload.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {

// A norm's vectors, [width] each; shift of a LayerNorm only.
struct NormWeights {
  Weight<WeightElement> gain, shift;
};

// Row r of the matrix is at data + r * stride: rows start 16-byte aligned, so that they can be read in 16-byte words.
struct WeightMatrix {
  // [rows, stride], row-major; columns from cols on are zero. The scales of FP8 and int4 weights follow
  // (kernels_src/product/format/weight_layout.h), and an element of the view is two bytes of any of these.
  Weight<WeightElement> data;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;          // row_stride(cols)
  Weight<WeightElement> bias;  // [rows], or empty
  WeightLayout layout;
};

// What a family lacks is empty.
struct LayerWeights {
  NormWeights attention_norm;  // [hidden]
  WeightMatrix qkv;            // [(heads + 2 * kv_heads) * head_dim, hidden]: query rows, then key, then value
  Weight<WeightElement> q_norm, k_norm;       // [head_dim], or with HeadNorm::width of all heads that qkv has
  WeightMatrix out;                           // [hidden, heads * head_dim]
  Weight<WeightElement> attention_post_norm;  // [hidden]
  NormWeights feed_forward_norm;              // [hidden]
  WeightMatrix router;                        // [experts, hidden] of a layer with experts, whose gate_up and down are
                                              // the matrices, one below the other
  WeightMatrix gate_up;  // [2 * intermediate, hidden]: row 2i is gate i, row 2i + 1 is up i; without a
                         // gate [intermediate, hidden]
  WeightMatrix down;     // [hidden, intermediate]
  Weight<WeightElement> feed_forward_post_norm;  // [hidden]
  CacheScales cache_scales;                      // 1 unless the cache is FP8 (ModelConfig::cache)
};

// What the layers' matrices are on the device: bf16, all of them; FP8 or int4 where the checkpoint has them in a form
// that kernels multiply; or FP8, all that can be, rounded while they load with a scale for each row.
enum class LayerMatrices : uint8_t { bf16, stored, rounded };

// What DecoderWeights::load would read and put on a device.
struct WeightFootprint {
  std::vector<const TensorInfo*> tensors;  // that it reads, by name; they live as long as the checkpoint
  uint64_t bytes = 0;                      // of device memory
  uint64_t bytes_per_token = 0;            // as DecoderWeights::bytes_per_token()
  ModelLayouts layouts;                    // as DecoderWeights::layouts()
};
// From the headers, the order of int4 matrices' columns, and an FP8 cache's scales: no weight is read. Throws Error
// where config and tensors disagree, as load does, where those scales are none, and (usage) where the matrices are to
// be rounded of a quantized checkpoint, or of a network that has none in a shape for FP8, or where
// ModelConfig::rounds_head asks for a head that a team shares, or that is quantized.
WeightFootprint weight_footprint(const Checkpoint& checkpoint, const ModelConfig& config,
                                 LayerMatrices matrices = LayerMatrices::bf16);

// What DecoderWeights::place would have read, each at its offset in the buffer: which rows of which tensors become
// which of ours. They live as long as the checkpoint. Throws Error as weight_footprint.
std::vector<WeightSource> weight_sources(const Checkpoint& checkpoint, const ModelConfig& config);

class DecoderWeights {
 public:
  // Reads, converts to bf16 (round to nearest even) and uploads every tensor; returns when all have arrived. Throws
  // Error when the checkpoint lacks a tensor, has one of another shape than `config` implies, or has one that this
  // model does not use; when a file cannot be read; and when memory is short. A tied head in the file is ignored.
  static DecoderWeights load(Device& device, Stream& stream, const Checkpoint& checkpoint, const ModelConfig& config,
                             const Progress& progress = {}, const UploadForm& form = {});

  struct Places;
  // The first half of load(): every tensor has its place in device memory, and none has been read.
  static Places place(Device& device, const Checkpoint& checkpoint, const ModelConfig& config,
                      LayerMatrices matrices = LayerMatrices::bf16);

  const WeightMatrix& embedding() const { return embedding_; }   // [vocab, hidden]
  const WeightMatrix& positions() const { return positions_; }   // [max_position, hidden], if they are learned
  const WeightMatrix& head() const { return head_; }             // [vocab, hidden]; the embedding if tied and in bf16
  const NormWeights& final_norm() const { return final_norm_; }  // [hidden]
  const std::vector<LayerWeights>& layers() const { return layers_; }
  // For a stage of a pipeline: the post norm of the layer before its first, whose output it may have to add; and the
  // gain after its last layer, which may pre-scale that layer's output. Empty where the stage or the family has none.
  Weight<WeightElement> post_gain_before() const { return post_gain_before_; }  // [hidden]
  Weight<WeightElement> gain_behind() const { return gain_behind_; }            // [hidden]

  // A stage has its own, numbered as in the whole network. "embedding", "l0.attention_norm", "l0.qkv", ...,
  // "final_norm", and "head" unless tied; each 256-byte aligned. "l0.qkv.bias", "final_norm.shift" and the like follow
  // what they belong to.
  std::span<const NamedRange> ranges() const { return ranges_; }
  // All of them, one after the other.
  NamedRange range() const { return {buffer_.name(), buffer_.address(), buffer_.bytes(), "weight"}; }
  uint64_t bytes() const { return buffer_.bytes(); }  // of device memory; 0 after release_memory()

  // Gives the device memory back. Until take_memory() no address of a weight means anything.
  void release_memory();
  // Takes as much device memory again, whose contents are undefined; every weight and range moves to its place in it.
  // Throws Error with the bytes needed and free, and has changed nothing then.
  void take_memory();

  // Layers of other stages have theirs here, too.
  const ModelLayouts& layouts() const { return layouts_; }

  // What one token reads: everything once, but of an embedding that is not also the head, and of positions, one row.
  uint64_t bytes_per_token() const { return bytes_per_token_; }
  // Bytes that a step of `rows` rows reads: of a mixture the experts that its rows have, if each row chooses evenly and
  // independently.
  uint64_t bytes_of_step(int64_t rows) const;

 private:
  explicit DecoderWeights(DeviceBuffer buffer)
      : buffer_(std::move(buffer)), needed_bytes_(buffer_.bytes()), placed_at_(buffer_.address()) {}

  DeviceBuffer buffer_;
  uint64_t needed_bytes_;  // of the buffer, when there is one
  uint64_t placed_at_;     // the address of the buffer that the members below were placed in
  WeightMatrix embedding_, positions_, head_;
  NormWeights final_norm_;
  Weight<WeightElement> post_gain_before_, gain_behind_;
  std::vector<LayerWeights> layers_;
  std::vector<NamedRange> ranges_;
  ModelLayouts layouts_;
  uint64_t bytes_per_token_ = 0;
  uint64_t expert_bytes_ = 0;  // of all experts
  double chosen_experts_ = 0;  // the part of them that a row has
};

// Weights, and what upload_weights is to read into their range(). The sources live as long as the checkpoint.
struct DecoderWeights::Places {
  DecoderWeights weights;
  std::vector<WeightSource> sources;
};

}  // namespace nodewright
