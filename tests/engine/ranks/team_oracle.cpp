#include "tests/engine/ranks/team_oracle.h"

#include <cstring>
#include <set>
#include <stdexcept>
#include <variant>

#include "graph/team/team_plan.h"
#include "kernels_src/attention/attend.h"
#include "kernels_src/attention/attend_tiles.h"
#include "kernels_src/attention/rope_append.h"
#include "kernels_src/attention/rope_flash_decode.h"
#include "kernels_src/collective/gathered_add.h"
#include "kernels_src/collective/gathered_embed.h"
#include "kernels_src/collective/gathered_logits.h"
#include "kernels_src/collective/gathered_norm_heads.h"
#include "kernels_src/collective/own_embedding.h"
#include "kernels_src/collective/own_squares.h"
#include "kernels_src/collective/rank_value.h"
#include "kernels_src/elementwise/add_bias.h"
#include "kernels_src/elementwise/gate.h"
#include "kernels_src/exchange/embed_exchange.h"
#include "kernels_src/exchange/exchange_add.h"
#include "kernels_src/exchange/gather_logits.h"
#include "kernels_src/exchange/norm_heads_exchange.h"
#include "kernels_src/experts/choose_experts.h"
#include "kernels_src/experts/expert_down_rows.h"
#include "kernels_src/experts/expert_tiles.h"
#include "kernels_src/experts/group_by_expert.h"
#include "kernels_src/experts/norm_expert_gate_up.h"
#include "kernels_src/projection/dequantize.h"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/projection/project.h"
#include "kernels_src/projection/project_exchange.h"
#include "kernels_src/residual/embed.h"
#include "kernels_src/residual/norm_hidden.h"
#include "kernels_src/residual/norm_rows.h"
#include "kernels_src/sampling/cap_logits.h"
#include "kernels_src/sampling/sample.h"
#include "kernels_src/step/fetch_inputs.h"
#include "models/weights/row_stride.h"
#include "runtime/libraries/collectives.h"
#include "tests/engine/ranks/oracle_kernels.h"

namespace nodewright::test {
namespace {

template <class A>
A arguments_of(const PlanNode& node) {
  if (node.arguments.size() != sizeof(A)) throw std::logic_error(node.name + ": other arguments");
  A args{};
  std::memcpy(&args, node.arguments.data(), sizeof(A));
  return args;
}

int64_t constant_of(const PlanNode& node, std::string_view name) {
  for (const Constant& constant : node.kernel->request.constants)
    if (constant.name == name) return std::get<int64_t>(constant.value.held);
  throw std::logic_error(node.name + " has no " + std::string(name));
}

// The kernels that a part of a network has in common with a whole one: adds the node where it is one of those.
template <class... A>
struct OrdinaryKernels {
  static bool add(GraphBuilder& g, const std::string& name, const PlanNode& node) {
    return (add_one<A>(g, name, node) || ...);
  }
  template <class One>
  static bool add_one(GraphBuilder& g, const std::string& name, const PlanNode& node) {
    if (node.fields.data() != fields_of<One>().data()) return false;
    g.launch(name, Kernel<One>{node.kernel, node.shape}, arguments_of<One>(node));
    return true;
  }
};
using Ordinary =
    OrdinaryKernels<AddBias, Attend, AttendTiles, CapLogits, ChooseExperts, Dequantize, ExpertDown, ExpertDownSum,
                    ExpertGateUp, FetchInputs, Gate, GatheredAdd, GatheredEmbed, GatheredLogits, GatheredNormHeads,
                    GroupByExpert, NormExpertGateUp, NormGateUp, NormHidden, NormProject, NormRows, OwnEmbedding,
                    OwnSquares, Project, nodewright::RankValue, RopeAppend, RopeFlashDecode, Sample>;

// What stands in front of an exchange's sum and after it.
struct Summed {
  SumOut to;
  In<int32_t> n_live;
  int64_t cols;
};
Summed summed(const ProjectExchange& a) { return {a.to, a.n_live, a.w.outputs}; }
Summed summed(const ExchangeAdd& a) { return {a.to, a.own.n_live, a.own.cols}; }

// The plans of all ranks, node by node side by side.
class OnePlan {
 public:
  OnePlan(LoadedTeam& loaded, const std::vector<Plan>& ranks, const ExchangeMemory& memory,
          const std::vector<DeviceArray<float>>& products, const DeviceArray<float>& values,
          const DeviceArray<bf16>& embedding, int64_t rows)
      : loaded_(loaded),
        plans_(ranks),
        products_(products),
        values_(values),
        embedding_(embedding),
        rows_(rows),
        g_(loaded.device(0), "one_device") {
    for (size_t rank = 0; rank < ranks.size(); ++rank) declare(rank, memory);
    for (const DeviceArray<float>& product : products) g_.declare(product);
    g_.declare(values);
    g_.declare(embedding, {.live_in = true}, "weight");
  }

  Plan build() && {
    for (size_t i = 0; i < plans_[0].nodes.size(); ++i) {
      for (const Plan& plan : plans_)
        if (plan.nodes.size() != plans_[0].nodes.size() || plan.nodes[i].name != plans_[0].nodes[i].name)
          throw std::logic_error("ranks have other nodes");
      if (plans_[0].nodes[i].exchange)
        add_exchange(i);
      else if (is_all_gather(plans_[0].nodes[i]))
        for_each_rank(i, [&](size_t rank, const PlanNode& node) { copy_from_all(i, rank, node); });
      else
        for (size_t rank = 0; rank < plans_.size(); ++rank) add_ordinary(rank, plans_[rank].nodes[i]);
    }
    return std::move(g_).finish();
  }

 private:
  static std::string at(const std::string& name, size_t rank) { return name + "@" + std::to_string(rank); }

  // What the host says is one range for all ranks; the memory of exchanges is not used.
  void declare(size_t rank, const ExchangeMemory& memory) {
    std::set<uint64_t> left_out;
    for (size_t other = 0; other < plans_.size(); ++other) left_out.insert(memory.packet_range(other).address);
    for (const NamedRange& word : memory.word_ranges(rank)) left_out.insert(word.address);
    for (const Buffer& buffer : plans_[rank].buffers) {
      NamedRange range = buffer.range;
      if (left_out.contains(range.address) || !declared_.insert(range.address).second) continue;
      const bool padded = range.name == "logits";  // up to its stride, where nobody writes
      range.name = at(range.name, rank);
      g_.declare(range, {.live_in = buffer.live_in || padded, .live_out = buffer.live_out});
    }
  }

  void add_ordinary(size_t rank, const PlanNode& node) {
    const std::string name = at(node.name, rank);
    if (node.kind == NodeKind::memcpy) {
      const CopyParameters& copy = node.copy;
      g_.copy(name, CopyEnd(copy.to, copy.bytes, copy.to_host), CopyEnd(copy.from, copy.bytes, copy.from_host),
              copy.bytes);
    } else if (node.kind == NodeKind::library) {
      std::vector<DeclaredUse> uses;
      for (const Use& use : node.uses)
        uses.push_back({use.field,
                        CopyEnd(plans_[rank].buffers[use.buffer].range.address + use.offset, use.bytes, false),
                        use.access});
      g_.library(name, uses, *node.library);
    } else if (!Ordinary::add(g_, name, node)) {
      throw std::logic_error(node.name + ": a node that the oracle does not know");
    }
  }

  static bool is_all_gather(const PlanNode& node) {
    return node.kind == NodeKind::library && node.library->what == "all_gather";
  }
  CopyEnd end_of(size_t rank, const Use& use) const {
    return {plans_[rank].buffers[use.buffer].range.address + use.offset, use.bytes, false};
  }
  void copy_from_all(size_t i, size_t rank, const PlanNode& node) {
    const CopyEnd to = end_of(rank, node.uses[1]);
    for (size_t other = 0; other < plans_.size(); ++other) {
      const CopyEnd from = end_of(other, plans_[other].nodes[i].uses[0]);
      g_.copy(at(node.name + ".of" + std::to_string(other), rank),
              CopyEnd(to.address + other * from.bytes, from.bytes, false), from, from.bytes);
    }
  }

  void add_exchange(size_t i) {
    const std::string& kernel = plans_[0].nodes[i].kernel->request.name;
    if (kernel == "embed_exchange") return for_each_rank(i, [&](size_t r, const PlanNode& n) { embed(r, n); });
    if (kernel == "gather_logits") return for_each_rank(i, [&](size_t r, const PlanNode& n) { gather(i, r, n); });
    if (kernel == "norm_heads_exchange") {
      for_each_rank(i, [&](size_t rank, const PlanNode& node) { squares(rank, node); });
      for_each_rank(i, [&](size_t rank, const PlanNode& node) { norm_heads(rank, node); });
      return;
    }
    if (kernel == "exchange_add") {
      for_each_rank(i, [&](size_t rank, const PlanNode& node) { value_of_sum(rank, node); });
      for_each_rank(i, [&](size_t rank, const PlanNode& node) {
        sum(rank, node, summed(arguments_of<ExchangeAdd>(node)), 0, 1);
      });
      return;
    }
    const bool tiled = kernel == "tile_project_exchange";
    if (!tiled && kernel != "project_exchange") throw std::logic_error(kernel + ": an unknown exchange");
    for_each_rank(i, [&](size_t rank, const PlanNode& node) { value_of_product(rank, node, tiled); });
    for_each_rank(i, [&](size_t rank, const PlanNode& node) {
      const int64_t threads = tiled ? constant_of(node, "kThreads") : 0;
      const int64_t tokens = tiled ? 8 * constant_of(node, "kTokenTiles") : 1;
      const int64_t lanes = threads >= 32 * tokens ? 32 : threads >= 16 * tokens ? 16 : 8;  // tile_kept_sums.cuh
      sum(rank, node, summed(arguments_of<ProjectExchange>(node)), tiled ? lanes : 0,
          tiled ? constant_of(node, "kSplits") : 1);
    });
  }
  template <class Function>
  void for_each_rank(size_t i, const Function& f) {
    for (size_t rank = 0; rank < plans_.size(); ++rank) f(rank, plans_[rank].nodes[i]);
  }

  // From the whole embedding.
  void embed(size_t rank, const PlanNode& node) {
    Embed args = arguments_of<EmbedExchange>(node).embed;
    args.embedding = embedding_.weight();
    KernelRequest request{"embed", {}};
    for (const char* name : {"kScaled", "kPositions", "kLeavesGained"})
      request.constants.push_back({name, constant_of(node, name)});
    const auto kernel = loaded_.kernels[rank]->kernel<Embed>(
        request, embed_shape(static_cast<unsigned>(rows_), constant_of(node, "kLeavesGained") != 0));
    g_.launch(at(node.name, rank), kernel, args);
  }

  // The product alone, whose sums then count as the rank's.
  void value_of_product(size_t rank, const PlanNode& node, bool tiled) {
    const auto a = arguments_of<ProjectExchange>(node);
    KernelRequest request = node.kernel->request;
    request.name = tiled ? "tile_project" : "project";
    const DeviceArray<float>& product = products_[rank];
    g_.launch(at(node.name + ".product", rank), loaded_.kernels[rank]->kernel<Project>(request, node.shape),
              {.from = a.from, .w = a.w, .to = {product, a.to.stride}, .n_live = a.n_live});
    RankValue value = value_args(rank, a.w.outputs, a.to.stride, a.n_live);
    value.y = product.view();
    launch_value(rank, node, value, {{"kBulk", 0}, {"kBias", 0}, {"kChosen", 0}});
  }
  void value_of_sum(size_t rank, const PlanNode& node) {
    const auto a = arguments_of<ExchangeAdd>(node);
    RankValue value = value_args(rank, a.own.cols, a.to.stride, a.own.n_live);
    value.y = a.own.y;
    value.y_bf16 = a.own.y_bf16;
    value.bias = a.own.bias;
    value.weights = a.own.weights;
    std::vector<Constant> constants;
    for (const char* name : {"kBulk", "kBias", "kChosen"}) constants.push_back({name, constant_of(node, name)});
    launch_value(rank, node, value, std::move(constants));
  }
  RankValue value_args(size_t rank, int64_t cols, int64_t stride, In<int32_t> n_live) const {
    RankValue value{};
    const auto count = static_cast<uint64_t>(rows_ * cols);
    value.value = values_.view().subview(rank * count, count);
    value.n_live = n_live;
    value.cols = cols;
    value.stride = stride;
    return value;
  }
  void launch_value(size_t rank, const PlanNode& node, const RankValue& args, std::vector<Constant> constants) {
    constants.push_back({"kScale", constant_of(node, "kScale")});
    g_.launch(at(node.name + ".value", rank),
              kernel<RankValue>(rank, kRankValue, {"oracle_value", std::move(constants)}, rows_), args);
  }

  // `lanes`: of a row, in the kernel whose partial sums of squares these are.
  void sum(size_t rank, const PlanNode& node, const Summed& of, int64_t lanes, int64_t splits) {
    const bool gained = of.to.next.gained.count > 0;
    const int64_t tokens = (rows_ + 7) / 8 * 8;
    const KernelRequest request{"oracle_sum",
                                {{"kRanks", plans_.size()},
                                 {"kAdds", constant_of(node, "kAdds")},
                                 {"kLeavesGained", gained ? 1 : 0},
                                 {"kLanes", lanes},
                                 {"kSplits", splits},
                                 {"kTokens", tokens}}};
    const int64_t blocks = gained ? node.shape.grid[0] : rows_;
    g_.launch(at(node.name, rank), kernel<RankSum>(rank, kRankSum, request, blocks),
              {.values = values_.view().subview(0, plans_.size() * static_cast<uint64_t>(rows_ * of.cols)),
               .residual = of.to.residual,
               .sum = of.to.sum,
               .n_live = of.n_live,
               .rows = rows_,
               .cols = of.cols,
               .stride = of.to.stride,
               .gain = of.to.next.gain,
               .gained = of.to.next.gained,
               .squares = of.to.next.squares});
  }

  // Sums of squares go where other exchanges have the ranks' values.
  uint64_t squares_of_rank(const PlanNode& node) const { return static_cast<uint64_t>(rows_) * node.shape.grid[1]; }
  void squares(size_t rank, const PlanNode& node) {
    const auto a = arguments_of<NormHeadsExchange>(node);
    KernelRequest request{"rank_squares", {}};
    for (const char* name : {"kHeads", "kKvHeads", "kHeadDim"})
      request.constants.push_back({name, constant_of(node, name)});
    const uint64_t count = squares_of_rank(node);
    g_.launch(at(node.name + ".squares", rank), kernel<RankSquares>(rank, kRankSquares, request, rows_),
              {.qkv = {a.qkv.data, a.qkv.count},
               .squares = values_.view().subview(rank * count, count),
               .n_live = a.n_live,
               .strips = node.shape.grid[1],
               .first = a.first_strip,
               .stride = a.stride});
  }
  void norm_heads(size_t rank, const PlanNode& node) {
    const auto a = arguments_of<NormHeadsExchange>(node);
    KernelRequest request = node.kernel->request;
    request.name = "rank_norm";
    g_.launch(at(node.name, rank), kernel<RankNorm>(rank, kRankNorm, request, rows_),
              {.qkv = a.qkv,
               .squares = values_.view().subview(0, plans_.size() * squares_of_rank(node)),
               .q_gain = a.q_gain,
               .k_gain = a.k_gain,
               .n_live = a.n_live,
               .strips = node.shape.grid[1],
               .first = a.first_strip,
               .stride = a.stride,
               .eps = a.eps});
  }

  // To the rank, from all.
  void gather(size_t i, size_t rank, const PlanNode& node) {
    const auto to = arguments_of<GatherLogits>(node);
    const auto ranks = static_cast<int64_t>(plans_.size());
    for (int64_t other = 0; other < ranks; ++other) {
      const auto from = arguments_of<GatherLogits>(plans_[static_cast<size_t>(other)].nodes[i]);
      const int64_t first = to.vocab * other / ranks, count = to.vocab * (other + 1) / ranks - first;
      const std::string name = at(node.name + ".of" + std::to_string(other), rank);
      const auto floats = [](int64_t n) { return static_cast<uint64_t>(n) * sizeof(float); };
      const uint64_t begin = reinterpret_cast<uint64_t>(to.logits.data) + floats(first);
      g_.copy_rows(
          name, CopyEnd(begin, floats(to.logits_stride * (to.rows - 1) + count), false),
          CopyEnd(reinterpret_cast<uint64_t>(from.part.data), floats(from.part_stride * (to.rows - 1) + count), false),
          {.bytes = floats(count),
           .rows = static_cast<uint64_t>(to.rows),
           .to_pitch = floats(to.logits_stride),
           .from_pitch = floats(from.part_stride)});
      if (to.parts == 0) continue;
      RankBest best{.best = {reinterpret_cast<const int32_t*>(from.best.data), 2 * from.best.count},
                    .all = {reinterpret_cast<int32_t*>(to.all_best.data), 2 * to.all_best.count},
                    .rows = to.rows,
                    .parts = to.parts,
                    .rank = other,
                    .first = first};
      g_.launch(name + ".best",
                kernel<RankBest>(rank, kRankBest, {"oracle_best", {{"kRanks", plans_.size()}}}, to.rows), best);
    }
  }

  template <class A>
  Kernel<A> kernel(size_t rank, const InlineKernel& source, const KernelRequest& request, int64_t blocks) {
    KernelCache& cache = *loaded_.kernels[rank];
    cache.add(source);
    return cache.kernel<A>(
        request, {{static_cast<unsigned>(blocks), 1, 1}, {kOracleThreads, 1, 1}, kOracleThreads / 32 * sizeof(float)});
  }

  LoadedTeam& loaded_;
  const std::vector<Plan>& plans_;
  const std::vector<DeviceArray<float>>& products_;
  const DeviceArray<float>& values_;
  const DeviceArray<bf16>& embedding_;
  int64_t rows_;
  GraphBuilder g_;
  std::set<uint64_t> declared_;
};

// Whose calls are copies in the oracle.
class NoCollectives : public Collectives {
 public:
  NoCollectives(size_t rank, size_t ranks) : rank_(rank), ranks_(ranks) {}
  size_t rank() const override { return rank_; }
  size_t ranks() const override { return ranks_; }
  void all_gather(CUstream, CUdeviceptr, CUdeviceptr, uint64_t) override {}
  void all_gather_on_host(const void*, void*, uint64_t) override {}
  void give_up() noexcept override {}
  bool given_up() const noexcept override { return false; }

 private:
  size_t rank_, ranks_;
};

// The parts of all ranks below each other.
void copy_embedding(const LoadedTeam& loaded, const DeviceArray<bf16>& to) {
  std::vector<bf16> rows;
  for (const DecoderModel& model : loaded.models) {
    const Weight<bf16> part = model.weights().embedding().data;
    const auto count = static_cast<size_t>(model.config().head_rows() * row_stride(model.config().hidden));
    rows.resize(rows.size() + count);
    read_device(loaded.device(0), std::as_writable_bytes(std::span(rows).last(count)), part.address(), "embedding");
  }
  to.write(rows);
}

}  // namespace

OneDeviceTeam::OneDeviceTeam(LoadedTeam& loaded, int64_t rows, Numerics numerics, int64_t most_sampled,
                             bool collectives)
    : parts_(loaded, rows, numerics, most_sampled, {}, 1, collectives),
      team_(loaded.devices),
      memory_(team_, "exchange", parts_.exchange_size()),
      stream_(loaded.device(0), "one_device") {
  Device& device = loaded.device(0);
  const ModelConfig& config = loaded.models[0].config();
  const auto stride = static_cast<uint64_t>(row_stride(config.hidden)), n = static_cast<uint64_t>(rows);
  std::vector<Plan> plans;
  for (size_t rank = 0; rank < loaded.ranks(); ++rank) {
    products_.emplace_back(device, "oracle.product" + std::to_string(rank), n * stride);
    if (collectives) {
      NoCollectives group(rank, loaded.ranks());
      plans.push_back(parts_.collective_plan(rank, group));
      continue;
    }
    TeamRank of(memory_, rank);
    GraphBuilder g(device, "part" + std::to_string(rank));
    for (size_t other = 0; other < loaded.ranks(); ++other)
      g.declare(memory_.packet_range(other), {.live_in = other == rank, .live_out = other != rank, .peer = true});
    for (const NamedRange& word : memory_.word_ranges(rank)) g.declare(word, {.live_in = true, .peer = true});
    parts_.describe(g, of);
    plans.push_back(std::move(g).finish());
  }
  values_.emplace(device, "oracle.values", loaded.ranks() * n * stride);
  embedding_.emplace(device, "oracle.embedding", static_cast<uint64_t>(config.vocab) * stride);
  copy_embedding(loaded, *embedding_);
  graph_.emplace(OnePlan(loaded, plans, memory_, products_, *values_, *embedding_, rows).build());
}

int64_t OneDeviceTeam::run(std::span<const int32_t> tokens, int64_t first, bool poisons, bool keeps) {
  const int64_t last = parts_.write_step(tokens, first, poisons, keeps);
  graph_->launch(stream_);
  stream_.synchronize();
  return last;
}

}  // namespace nodewright::test
