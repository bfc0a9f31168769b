#include "models/weights/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/json_file.h"
#include "models/config/part.h"
#include "models/weights/formats/int4_words.h"
#include "runtime/error.h"
#include "runtime/memory/arena.h"

namespace nodewright {
namespace {

using Source = WeightSource;

// What a checkpoint may hold of the frequencies, the rotations and the mask, all of which follow from config.json:
// names that released files and those of older libraries have, below any part of the network.
bool is_derived(std::string_view name) {
  constexpr std::string_view kLastNames[] = {
      "inv_freq",      "original_inv_freq", "cos_cached", "sin_cached", "cos_cache",    "sin_cache",
      "cos_sin_cache", "rotary_cos",        "rotary_sin", "freqs_cis",  "position_ids", "masked_bias",
      "causal_mask",   "attention_mask",    "attn_mask",  "attn_bias",  "mask",         "tril"};
  constexpr std::string_view kEndings[] = {".attn.bias", ".attention.bias", ".self_attn.bias", ".rope.freqs",
                                           ".rotary_emb.freqs"};
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return name == "rope.freqs" || std::ranges::count(kLastNames, last) > 0 ||
         std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

constexpr const char* kScalesEnding = ".scales";

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// ---- What goes where -------------------------------------------------------------------------------------------

// The whole buffer, range after range: embedding, positions, the layers' in the order of LayerWeights, final norm,
// head.
class Image {
 public:
  Image(const Checkpoint& checkpoint, const ModelConfig& config, LayerMatrices matrices = LayerMatrices::bf16)
      : checkpoint_(checkpoint), config_(config), names_(config.names), matrices_(matrices) {
    const ModelConfig& c = config;
    // A file saved from the network without its head leaves the prefix out.
    const std::string bare = names_.embedding + ".weight";
    for (const std::string& prefix : {names_.prefix, names_.other_prefix, std::string()})
      if (checkpoint.has(prefix + bare)) {
        names_.prefix = prefix;
        break;
      }
    const std::string& prefix = names_.prefix;
    const Stage& stage = c.stage;

    kept_ = stage.is_first() || (stage.is_last() && c.tied);
    matrix("embedding", c.hidden, of_vocabulary(prefix + names_.embedding));
    kept_ = stage.is_first();
    if (c.learned_positions) matrix("positions", c.hidden, whole(prefix + names_.positions, c.max_position));
    for (int64_t l = 0; l < c.all_layers(); ++l)
      layer(l - stage.first_layer, fmt::format("l{}.", l), fmt::format("{}{}.{}.", prefix, names_.layers, l));
    kept_ = stage.is_last();
    norm("final_norm", prefix, names_.final_norm);
    if (!c.tied) matrix("head", c.hidden, of_vocabulary(names_.head));
    refuse_unused();
    if (matrices == LayerMatrices::rounded) check_rounding();
    if (matrices != LayerMatrices::bf16) {
      layouts_.of_layers.resize(static_cast<size_t>(c.all_layers()));
      keep_codes("qkv", &WeightLayouts::qkv);
      keep_codes("out", &WeightLayouts::out);
      keep_codes(config.gated ? "gate_up" : "up", &WeightLayouts::gate_up, config.gated ? 2 : 1);
      keep_codes("down", &WeightLayouts::down);
      if (std::ranges::count(layouts_.of_layers, layouts_) == c.all_layers()) layouts_.of_layers.clear();
    }
    if (matrices == LayerMatrices::rounded && layouts_ == ModelLayouts{})
      refuse_rounding(names_.transposed ? "its matrices are stored with their inputs first"
                                        : "none of its layers' matrices has a width that is a multiple of 16");
    for (Source& source : sources_) {
      source.offset = bytes_;
      bytes_ += source.bytes();
      if (of_experts_.contains(matrix_of(source))) expert_bytes_ += source.bytes();
      if (source.element != SourceElement::codes)
        bytes_ = round_up(bytes_, kArenaAlignBytes);  // else its scales follow
    }
  }

  const std::vector<Source>& sources() const { return sources_; }
  // By name, as the checkpoint holds them.
  std::vector<const TensorInfo*> tensors() const {
    std::set<const TensorInfo*> read;
    for (const Source& source : sources_)
      for (const WeightPart& part : source.parts) read.insert(part.tensor);
    std::vector<const TensorInfo*> tensors(read.begin(), read.end());
    std::ranges::sort(tensors, {}, &TensorInfo::name);
    return tensors;
  }
  uint64_t bytes() const { return bytes_; }

  // A token reads one row of the embedding and of the positions, all of the embedding where it is the head, and of the
  // experts its own.
  uint64_t bytes_per_token() const {
    const Stage& stage = config_.stage;
    uint64_t bytes = 0;
    for (const Source& source : sources_) {
      const bool embedding = source.name == "embedding", is_head = embedding && config_.tied && stage.is_last();
      if (stage.is_first() && (embedding || source.name == "positions")) bytes += source.row_bytes();
      if ((!embedding || is_head) && source.name != "positions") bytes += source.bytes();
    }
    if (!config_.has_experts()) return bytes;
    return bytes - expert_bytes_ +
           expert_bytes_ / static_cast<uint64_t>(config_.experts.count) * static_cast<uint64_t>(config_.experts.chosen);
  }
  uint64_t expert_bytes() const { return expert_bytes_; }
  const ModelLayouts& layouts() const { return layouts_; }
  // For each layer of the stage.
  const std::vector<CacheScaleTensors>& cache_scales() const { return cache_scales_; }

 private:
  // Rows of a tensor that become neighbours: from, from + step, ...
  struct Piece {
    std::string tensor;
    int64_t tensor_rows, from, rows, step = 1;
    int64_t tensor_cols = 0, from_col = 0;  // of all ranks; 0: the rank has all columns
  };
  using Pieces = std::vector<Piece>;
  static Pieces whole(const std::string& tensor, int64_t rows) { return {{tensor, rows, 0, rows}}; }

  // This rank's share of `n` rows, in a part of the network.
  Pieces own(const std::string& tensor, int64_t n) const {
    return {{tensor, n, config_.shard.first_of(n), config_.shard.count_of(n)}};
  }
  Pieces of_vocabulary(const std::string& tensor) const { return own(tensor, config_.vocab); }
  // What heads or width are in the whole network, of which the configuration has this rank's part.
  int64_t all(int64_t part) const { return part * config_.shard.ranks; }

  // Layer `l` of a stage, if it is one of its own; others are looked at, and what they share with it is kept.
  void layer(int64_t l, const std::string& ours, const std::string& theirs) {
    const ModelConfig& c = config_;
    const TensorNames& n = names_;
    const bool is_own = l >= 0 && l < c.layers;
    kept_ = is_own || (l == c.layers && !c.stage.is_last());  // the gain that the last sum of the stage may take
    norm(ours + "attention_norm", theirs, n.attention_norm);
    kept_ = is_own;
    product(ours + "qkv", matrix_size(c, Part::qkv).cols, qkv(theirs), c.biases.qkv);
    const CacheScaleTensors scales = find_cache_scales(checkpoint_, n, theirs);
    for (const TensorInfo* tensor : {scales.key, scales.value}) used_.insert(tensor);
    if (is_own) cache_scales_.push_back(scales);
    if (c.head_norm != HeadNorm::none) {
      vector(ours + "q_norm", head_gains(theirs + n.q_norm, c.heads));
      vector(ours + "k_norm", head_gains(theirs + n.k_norm, c.kv_heads));
    }
    summed_product(ours + "out", matrix_size(c, Part::out).cols, whole(theirs + n.out, c.hidden), c.biases.out);
    norm(ours + "attention_post_norm", theirs, n.attention_post_norm);
    norm(ours + "feed_forward_norm", theirs, n.feed_forward_norm);
    if (c.feed_forward(l) == FeedForward::experts)
      experts(ours, theirs);
    else
      feed_forward(ours, theirs);
    kept_ = is_own || l == -1;  // of what the stage before has made, and this one adds
    norm(ours + "feed_forward_post_norm", theirs, n.feed_forward_post_norm);
  }

  void feed_forward(const std::string& ours, const std::string& theirs) {
    const ModelConfig& c = config_;
    if (c.gated)
      gate_up(ours + "gate_up", theirs);
    else
      product(ours + "up", matrix_size(c, Part::gate_up).cols, own(theirs + names_.up, all(c.intermediate)),
              c.biases.gate_up);
    summed_product(ours + "down", matrix_size(c, Part::down).cols, whole(theirs + names_.down, c.hidden),
                   c.biases.down);
  }

  // ---- Queries and keys, whose heads lie so that elements i and i + head_dim / 2 turn together

  // One head. What does not turn fills the two halves after what does, in pairs whose frequency is zero.
  void append_head(Pieces& pieces, const Piece& head) const {
    const int64_t dim = config_.head_dim, turned = config_.rotated(), rest = (dim - turned) / 2;
    const auto piece = [&](int64_t from, int64_t rows, int64_t step = 1) {
      if (rows > 0) pieces.push_back({head.tensor, head.tensor_rows, head.from + from, rows, step});
    };
    const bool neighbours = config_.rotates_neighbours;
    for (const int64_t half : {0, 1}) {
      if (neighbours)
        piece(half, turned / 2, 2);
      else
        piece(half * turned / 2, turned / 2);
      piece(turned + half * rest, rest);
    }
  }
  bool turns_as_stored() const { return config_.rotated() == config_.head_dim && !config_.rotates_neighbours; }
  // `heads` heads that a tensor of `tensor_rows` holds from row `from` on.
  void append_heads(Pieces& pieces, const std::string& tensor, int64_t tensor_rows, int64_t from, int64_t heads) const {
    const int64_t dim = config_.head_dim;
    if (turns_as_stored()) {
      pieces.push_back({tensor, tensor_rows, from, heads * dim});
      return;
    }
    for (int64_t h = 0; h < heads; ++h) append_head(pieces, {tensor, tensor_rows, from + h * dim, dim});
  }
  // The gains of this rank's `heads` heads: one head's for all, or each its own.
  Pieces head_gains(const std::string& tensor, int64_t heads) const {
    Pieces pieces;
    const int64_t own = heads * config_.head_dim;
    if (config_.head_norm == HeadNorm::width)
      append_heads(pieces, tensor, all(own), config_.shard.first_of(all(own)), heads);
    else
      append_heads(pieces, tensor, config_.head_dim, 0, 1);
    return pieces;
  }

  Pieces qkv(const std::string& theirs) const {
    const ModelConfig& c = config_;
    const std::vector<std::string>& n = names_.qkv;
    const int64_t queries = all(c.query_width()), keys = all(c.kv_width());
    const int64_t first_query = c.shard.first_of(queries), first_key = c.shard.first_of(keys);
    Pieces pieces;
    if (n.size() == 3) {
      append_heads(pieces, theirs + n[0], queries, first_query, c.heads);
      append_heads(pieces, theirs + n[1], keys, first_key, c.kv_heads);
      pieces.push_back({theirs + n[2], keys, first_key, c.kv_width()});
      return pieces;
    }
    const std::string tensor = theirs + n[0];
    const int64_t rows = queries + 2 * keys, dim = c.head_dim;
    if (names_.fused == FusedHeads::by_head) {
      const int64_t first = c.shard.rank * c.heads;
      for (const int64_t kind : {0, 1})
        for (int64_t h = first; h < first + c.heads; ++h)
          append_head(pieces, {tensor, rows, (3 * h + kind) * dim, dim});
      for (int64_t h = first; h < first + c.heads; ++h) pieces.push_back({tensor, rows, (3 * h + 2) * dim, dim});
      return pieces;
    }
    if (turns_as_stored() && !c.shard.is_part()) return whole(tensor, rows);
    append_heads(pieces, tensor, rows, first_query, c.heads);
    append_heads(pieces, tensor, rows, queries + first_key, c.kv_heads);
    pieces.push_back({tensor, rows, queries + keys + first_key, c.kv_width()});
    return pieces;
  }

  // ---- Ranges

  // `part`: the tensor's name after the prefix; empty where the family has no such norm.
  void norm(const std::string& name, const std::string& prefix, const std::string& part) {
    if (part.empty()) return;
    vector(name, whole(prefix + part, config_.hidden));
    if (config_.norm != Norm::layer) return;
    if (config_.norm_shifts)
      vector(name + ".shift", whole(prefix + part, config_.hidden), ".bias");
    else
      zeros(name + ".shift", config_.hidden);
  }

  // A matrix of a layer, and its bias where it has one.
  void product(const std::string& name, int64_t cols, const Pieces& pieces, bool bias) {
    matrix(name, cols, pieces, names_.transposed);
    if (bias) vector(name + ".bias", pieces, ".bias");
  }

  // A product whose columns are this rank's: all ranks' outputs are added, and so the bias is the first one's.
  void summed_product(const std::string& name, int64_t cols, Pieces pieces, bool bias) {
    for (Piece& piece : pieces)
      if (config_.shard.is_part())
        piece.tensor_cols = all(cols), piece.from_col = config_.shard.first_of(piece.tensor_cols);
    matrix(name, cols, pieces, names_.transposed);
    if (!bias) return;
    if (config_.shard.rank == 0) return vector(name + ".bias", pieces, ".bias");
    for (const Piece& piece : pieces) use(checkpoint_.require(piece.tensor + ".bias", {piece.tensor_rows}));
    zeros(name + ".bias", config_.hidden);
  }
  void zeros(std::string name, int64_t rows) { add({std::move(name), 0, rows, 1, 1, {}}); }

  // Row 2i is gate i, row 2i + 1 is up i.
  void gate_up(const std::string& name, const std::string& theirs) {
    const int64_t own = config_.intermediate, inner = all(own), first = config_.shard.first_of(inner);
    const bool fused = !names_.gate_up.empty();
    const Pieces pieces =
        fused ? Pieces{{theirs + names_.gate_up, 2 * inner, first, own},
                       {theirs + names_.gate_up, 2 * inner, inner + first, own}}
              : Pieces{{theirs + names_.gate, inner, first, own}, {theirs + names_.up, inner, first, own}};
    rows(name, config_.hidden, row_stride(config_.hidden), pieces, ".weight", 2);
    if (config_.biases.gate_up) rows(name + ".bias", 1, 1, pieces, ".bias", 2);
  }

  // The matrices of a mixture's experts, one below the other, each as that of one block: of a part of the network its
  // share of every expert, and the whole router.
  void experts(const std::string& ours, const std::string& theirs) {
    const ModelConfig& c = config_;
    const TensorNames& n = names_;
    matrix(ours + "router", c.hidden, whole(theirs + n.router, c.experts.count));
    Source gates{ours + "gate_up", 0, 0, c.hidden, row_stride(c.hidden), {}};
    const int64_t own = c.experts.intermediate, inner = all(own), first = c.shard.first_of(inner);
    Pieces downs;
    for (int64_t i = 0; i < c.experts.count; ++i) {
      const std::string expert = fmt::format("{}{}.{}.", theirs, n.experts, i);
      for (const int64_t kind : {0, 1})
        append(gates, {expert + (kind == 0 ? n.expert_gate : n.expert_up), inner, first, own}, ".weight",
               2 * i * own + kind, 2);
      downs.push_back({expert + n.expert_down, c.hidden, 0, c.hidden});
    }
    add(std::move(gates));
    summed_product(ours + "down", own, std::move(downs), false);
    of_experts_.insert({ours + "gate_up", ours + "down"});
  }

  // One row, the pieces one after the other: as a column, so that each is a run of rows.
  void vector(std::string name, const Pieces& pieces, const char* ending = ".weight") {
    rows(std::move(name), 1, 1, pieces, ending);
  }

  // The rows of the pieces one below the other.
  void matrix(std::string name, int64_t cols, const Pieces& pieces, bool transposed = false) {
    rows(std::move(name), cols, row_stride(cols), pieces, ".weight", 1, transposed);
  }

  // Row i of piece p: where `step` is 1 after those of the pieces before it, else at p + i * step.
  void rows(std::string name, int64_t cols, int64_t stride, const Pieces& pieces, const std::string& ending,
            int64_t step = 1, bool transposed = false) {
    Source source{std::move(name), 0, 0, cols, stride, {}};
    for (const Piece& piece : pieces)
      append(source, piece, ending, step == 1 ? source.rows : static_cast<int64_t>(source.parts.size()), step,
             transposed);
    add(std::move(source));
  }
  // The piece's rows at first, first + step, ...
  void append(Source& source, const Piece& piece, const std::string& ending, int64_t first, int64_t step,
              bool transposed = false) {
    std::vector<int64_t> shape{piece.tensor_rows};
    if (source.stride > 1)
      shape.insert(transposed ? shape.begin() : shape.end(), piece.tensor_cols > 0 ? piece.tensor_cols : source.cols);
    const TensorInfo& info = checkpoint_.require(piece.tensor + ending, shape);
    use(info);
    if (info.encoded != nullptr && info.file != nullptr && transposed)
      throw Error({.doing = fmt::format("load tensor {} of", in_quotes(info.name)),
                   .object = info.file->path().string(),
                   .detail = fmt::format("it is stored as {}, which is not supported for transposed matrices",
                                         info.encoded->format()),
                   .advice = "the checkpoint without quantization"});
    source.parts.push_back({.tensor = &info,
                            .rows = piece.rows,
                            .first = first,
                            .step = step,
                            .transposed = transposed,
                            .from = piece.from,
                            .from_step = piece.step,
                            .from_col = piece.from_col});
    source.rows += piece.rows;
  }

  void use(const TensorInfo& tensor) {
    used_.insert(&tensor);
    if (tensor.encoded == nullptr) return;
    for (const TensorInfo* stored : tensor.encoded->stored()) used_.insert(stored);
  }

  void add(Source source) { (kept_ ? sources_ : of_others_).push_back(std::move(source)); }

  // ---- Codes

  [[noreturn]] void refuse_rounding(std::string why) const {
    throw Error({.doing = "round the weights to FP8 of",
                 .object = checkpoint_.folder().string(),
                 .detail = std::move(why),
                 .advice = "leave out --quantization fp8",
                 .fault = Fault::usage});
  }

  void check_rounding() const {
    if (checkpoint_.format() != nullptr)
      refuse_rounding(fmt::format("they are stored as {}", checkpoint_.format()->words()));
  }

  // Leaves the codes of the layers' matrices of this name that have a layout, each with its scales in a source behind
  // it. Layers of other stages count, too: each stage has the kernels of the whole network.
  void keep_codes(const std::string& part, WeightLayout WeightLayouts::*of_part, int64_t unit = 1) {
    for (auto* sources : {&sources_, &of_others_}) {
      std::vector<Source> all;
      for (Source& source : *sources) {
        all.push_back(std::move(source));
        const std::string& name = all.back().name;
        if (!name.starts_with('l') || !name.ends_with("." + part)) continue;
        std::optional<WeightLayout> layout = fp8_layout(all.back(), unit);
        if (!layout) layout = group_layout(all.back());
        if (!layout) continue;
        layouts_.of_layers[std::stoul(name.substr(1))].*of_part = *layout;
        all.back().element = SourceElement::codes;
        all.back().layout = *layout;
        all.push_back(scales_of(all.back()));
      }
      *sources = std::move(all);
    }
    const WeightLayout first = layouts_.of_layers.front().*of_part;
    if (std::ranges::all_of(layouts_.of_layers, [&](const WeightLayouts& of) { return of.*of_part == first; }))
      layouts_.*of_part = first;
  }

  // The name of the matrix that codes or scales are of.
  static std::string_view matrix_of(const Source& source) {
    std::string_view name = source.name;
    if (name.ends_with(kScalesEnding)) name.remove_suffix(std::string_view(kScalesEnding).size());
    return name;
  }

  // Scales of rows, or of blocks that are groups of the layout's rows.
  std::optional<WeightLayout> fp8_layout(const Source& source, int64_t unit) const {
    constexpr int64_t kBlock = WeightLayout::kScaleBlock;
    WeightLayout layout{WeightCode::fp8, false, unit};
    if (source.parts.empty() || source.cols % layout.word_columns() != 0 || source.cols != source.stride) return {};
    for (size_t i = 0; i < source.parts.size(); ++i) {
      const WeightPart& part = source.parts[i];
      std::optional<ScaleBlock> block;
      if (part.tensor->encoded != nullptr)
        block = part.tensor->encoded->fp8_block();
      else if (matrices_ == LayerMatrices::rounded)
        block = {1, part.tensor_cols()};
      if (!block || part.transposed) return {};
      const bool of_rows = block->cols >= part.tensor_cols(),
                 of_blocks = block->rows == kBlock && block->cols == kBlock;
      if (i == 0) layout.in_blocks = !of_rows;
      if (layout.in_blocks ? !of_blocks : !of_rows) return {};
      if (layout.in_blocks && config_.shard.is_part() && !cuts_between_blocks(source, part)) return {};
    }
    if (layout.in_blocks && !groups_of(source, layout)) return {};
    return layout;
  }

  // Whether no rank has a part of a block: ranks have as many rows and columns each, and agree on the layout.
  static bool cuts_between_blocks(const Source& source, const WeightPart& part) {
    constexpr int64_t kBlock = WeightLayout::kScaleBlock;
    const bool columns = source.cols == part.tensor_cols() || source.cols % kBlock == 0;
    return columns && part.rows % kBlock == 0 && part.from % kBlock == 0;
  }

  // One for all tensors.
  static std::optional<WeightLayout> group_layout(const Source& source) {
    std::optional<WeightLayout> layout;
    const TensorInfo* known = nullptr;
    for (const WeightPart& part : source.parts) {
      if (part.tensor == known) continue;
      known = part.tensor;
      const std::optional<WeightLayout> own = known->encoded ? known->encoded->group_layout() : std::nullopt;
      if (!own || part.transposed || source.cols % own->padded_to() != 0) return {};
      layout = layout ? common_layout(*layout, *own) : own;
      if (!layout) return {};
    }
    return layout;
  }

  // For each group of rows with scales a part that names a row of its block; nothing where a group is of several
  // blocks.
  static std::optional<std::vector<WeightPart>> groups_of(const Source& source, const WeightLayout& layout) {
    constexpr int64_t kBlock = WeightLayout::kScaleBlock;
    std::vector<WeightPart> groups(static_cast<size_t>(layout.groups(source.rows)), WeightPart{nullptr, 1, 0, 1});
    for (const WeightPart& part : source.parts)
      for (int64_t i = 0; i < part.rows; ++i) {
        const int64_t number = layout.group_of(part.first + i * part.step);
        const int64_t block_row = (part.from + i * part.from_step) / kBlock * kBlock;
        WeightPart& group = groups[static_cast<size_t>(number)];
        if (group.tensor == nullptr) {
          group.tensor = part.tensor, group.first = number, group.from = block_row, group.from_col = part.from_col;
        } else if (group.tensor != part.tensor || group.from != block_row) {
          return {};
        }
      }
    std::erase_if(groups, [](const WeightPart& group) { return group.tensor == nullptr; });
    return groups;
  }

  static Source scales_of(const Source& source) {
    constexpr int64_t kBlock = WeightLayout::kScaleBlock;
    const WeightLayout& layout = source.layout;
    Source scales{source.name + kScalesEnding, 0, source.rows, 1, 1, source.parts, SourceElement::scales, layout};
    if (layout.is_grouped()) {
      scales.cols = layout.group_words(source.cols);
      scales.stride = layout.group_stride(source.stride);
    }
    if (!layout.in_blocks) return scales;
    scales.rows = layout.groups(source.rows);
    scales.cols = (source.cols + kBlock - 1) / kBlock;
    scales.stride = WeightLayout::scale_stride(source.stride);
    scales.parts = *groups_of(source, layout);
    return scales;
  }

  // A tensor that nothing reads (a bias, one layer more) means that config.json describes another network.
  void refuse_unused() const {
    const TensorInfo* first = nullptr;
    size_t count = 0;
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      const bool derived = is_derived(tensor.name);
      const bool other = std::ranges::any_of(
          names_.unused_beginnings, [&](std::string_view beginning) { return tensor.name.starts_with(beginning); });
      const bool spare_head = config_.tied && tensor.name == names_.head + ".weight";
      if (used_.contains(&tensor) || derived || other || spare_head) continue;
      if (checkpoint_.format() != nullptr && checkpoint_.format()->is_spare(tensor, checkpoint_)) continue;
      if (count++ == 0) first = &tensor;
    }
    if (first)
      throw Error({.doing = "load the weights of",
                   .object = checkpoint_.folder().string(),
                   .detail = fmt::format("{} tensors belong to no part of the network that config.json describes, the "
                                         "first is {} with shape {}",
                                         count, in_quotes(first->name), shape_text(first->shape)),
                   .advice = "check that config.json belongs to these weights"});
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  TensorNames names_;
  const LayerMatrices matrices_;
  std::vector<Source> sources_;
  std::set<const TensorInfo*> used_;  // also by other stages
  bool kept_ = true;                  // what add() is given
  std::vector<Source> of_others_;     // what is not kept: of layers of other stages
  ModelLayouts layouts_;
  std::vector<CacheScaleTensors> cache_scales_;
  std::set<std::string, std::less<>> of_experts_;  // names of sources
  uint64_t bytes_ = 0;
  uint64_t expert_bytes_ = 0;  // of all experts' sources
};

}  // namespace

WeightFootprint weight_footprint(const Checkpoint& checkpoint, const ModelConfig& config, LayerMatrices matrices) {
  const Image image(checkpoint, config, matrices);
  if (config.cache == CacheFormat::fp8)
    for (const CacheScaleTensors& scales : image.cache_scales()) read_cache_scales(scales);
  return {image.tensors(), image.bytes(), image.bytes_per_token(), image.layouts()};
}

uint64_t DecoderWeights::bytes_of_step(int64_t rows) const {
  const double read = 1 - std::pow(1 - chosen_experts_, static_cast<double>(rows));  // of the experts
  return bytes_per_token_ + static_cast<uint64_t>(static_cast<double>(expert_bytes_) * (read - chosen_experts_));
}

std::vector<WeightSource> weight_sources(const Checkpoint& checkpoint, const ModelConfig& config) {
  return Image(checkpoint, config).sources();
}

DecoderWeights DecoderWeights::load(Device& device, Stream& stream, const Checkpoint& checkpoint,
                                    const ModelConfig& config, const Progress& progress, const UploadForm& form) {
  Places placed = place(device, checkpoint, config);
  upload_weights(device, stream, placed.sources, placed.weights.range(), progress, form);
  return std::move(placed.weights);
}

DecoderWeights::Places DecoderWeights::place(Device& device, const Checkpoint& checkpoint, const ModelConfig& config,
                                             LayerMatrices matrices) {
  const Image image(checkpoint, config, matrices);
  DecoderWeights weights(DeviceBuffer(device, "weights", image.bytes()));

  std::map<std::string_view, const Source*> sources;
  for (const Source& s : image.sources()) {
    sources.emplace(s.name, &s);
    if (s.element == SourceElement::scales)
      weights.ranges_.back().bytes += s.bytes();
    else
      weights.ranges_.push_back({s.name, weights.buffer_.address() + s.offset, s.bytes(), "weight"});
  }
  const auto vector = [&](const std::string& name) -> Weight<WeightElement> {
    const auto found = sources.find(name);
    if (found == sources.end()) return {};
    const Source& s = *found->second;
    return weight_of<WeightElement>(weights.buffer_)
        .subview(s.offset / sizeof(WeightElement), s.bytes() / sizeof(WeightElement));
  };
  const auto norm = [&](const std::string& name) { return NormWeights{vector(name), vector(name + ".shift")}; };
  const auto matrix = [&](const std::string& name) -> WeightMatrix {
    const auto found = sources.find(name);
    if (found == sources.end()) return {};
    const Source& s = *found->second;
    WeightMatrix found_matrix{vector(name), s.rows, s.cols, s.stride, vector(name + ".bias"), {}};
    if (s.element == SourceElement::codes) {
      found_matrix.layout = s.layout;
      found_matrix.data.count =
          static_cast<uint64_t>(found_matrix.layout.bytes(s.rows, s.stride)) / sizeof(WeightElement);
    }
    return found_matrix;
  };

  weights.embedding_ = matrix("embedding");
  weights.positions_ = matrix("positions");
  const int64_t first = config.stage.first_layer;
  for (int64_t l = 0; l < config.layers; ++l) {
    const std::string prefix = fmt::format("l{}.", first + l);
    weights.layers_.push_back({.attention_norm = norm(prefix + "attention_norm"),
                               .qkv = matrix(prefix + "qkv"),
                               .q_norm = vector(prefix + "q_norm"),
                               .k_norm = vector(prefix + "k_norm"),
                               .out = matrix(prefix + "out"),
                               .attention_post_norm = vector(prefix + "attention_post_norm"),
                               .feed_forward_norm = norm(prefix + "feed_forward_norm"),
                               .router = matrix(prefix + "router"),
                               .gate_up = matrix(prefix + (config.gated ? "gate_up" : "up")),
                               .down = matrix(prefix + "down"),
                               .feed_forward_post_norm = vector(prefix + "feed_forward_post_norm")});
    if (config.cache == CacheFormat::fp8)
      weights.layers_.back().cache_scales = read_cache_scales(image.cache_scales()[static_cast<size_t>(l)]);
  }
  if (config.stage.is_part()) {
    weights.post_gain_before_ = vector(fmt::format("l{}.feed_forward_post_norm", first - 1));
    if (!config.stage.is_last())
      weights.gain_behind_ = vector(fmt::format("l{}.attention_norm", first + config.layers));
  }
  weights.final_norm_ = norm("final_norm");
  if (config.stage.is_last()) weights.head_ = config.tied ? weights.embedding_ : matrix("head");

  weights.layouts_ = image.layouts();
  weights.bytes_per_token_ = image.bytes_per_token();
  weights.expert_bytes_ = image.expert_bytes();
  if (config.has_experts())
    weights.chosen_experts_ = static_cast<double>(config.experts.chosen) / static_cast<double>(config.experts.count);
  return {std::move(weights), image.sources()};
}

}  // namespace nodewright
