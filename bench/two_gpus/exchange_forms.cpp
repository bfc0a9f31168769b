// What an all-reduce costs inside a decode step that streams its weights: 28 layers of the shapes of Llama 3.2 3B on
// two GPUs, two exchanges a layer, in four forms measured in turns. One JSON line a form and row count.
//   exchange_forms CUBIN
#include "bench/two_gpus/decode_arguments.h"
#include "bench/two_gpus/pair.h"

using namespace two_gpus;

namespace {

constexpr int kLayers = 28, kHidden = 3072, kQkv = 2560, kGateUp = 8192, kMostRows = 32, kBlocks = 132, kSteps = 20;
constexpr int kExchanges = 2 * kLayers, kForms = 4;
constexpr unsigned kRing = 98304;
const char* const kNames[kForms] = {"local add", "a: epilogue", "b: prologue of the consumer", "c: own node"};

// The memory of one rank. Every exchange writes a residual of its own, so that all launches compute the same.
struct Rank {
  CUdeviceptr weights, residuals, qkv, gate_up, partial[2], packets, step, stamps;
  long layer_bytes = 2L * (kQkv * kHidden + kHidden * 1536 + kGateUp * kHidden + kHidden * 4096);

  Rank(const Pair& pair, int d) {
    const long weight_bytes = layer_bytes * kLayers + 2L * kQkv * kHidden;
    weights = pair.memory(d, weight_bytes), residuals = pair.memory(d, residual_bytes() * (kExchanges + 1));
    qkv = pair.memory(d, 2L * kMostRows * kQkv), gate_up = pair.memory(d, 2L * kMostRows * kGateUp);
    for (auto& each : partial) each = pair.memory(d, 4L * kMostRows * kHidden);
    packets = pair.memory(d, 2 * packet_bytes()), step = pair.memory(d, 64);
    stamps = pair.memory(d, 4L * kBlocks * kExchanges);
    fill(pair, d, weights, weight_bytes / 2, 17 + d, 1.0f / 64),
        fill(pair, d, residuals, residual_bytes() / 2, 5, 1.0f);
    pair.synchronize();
  }
  static long residual_bytes() { return 2L * kMostRows * kHidden; }
  static long packet_bytes() { return 8L * kMostRows * kHidden; }
  CUdeviceptr residual(int k) const { return residuals + k * residual_bytes(); }

 private:
  static void fill(const Pair& pair, int d, CUdeviceptr to, long count, unsigned seed, float scale) {
    void* arguments[] = {&to, &count, &seed, &scale};
    pair.launch(d, pair.kernel(d, "fill"), 1024, 256, arguments);
  }
};

// The graph of one rank.
struct Step {
  const Pair& pair;
  const Rank &own, &peer;
  int d, form, rows, early;
  bool stamped;
  Chain chain = {};
  long weight = 0;

  void product(const char* name, int k, int outputs, DecodeArguments a) {
    a.weights = reinterpret_cast<void*>(own.weights + weight), weight += 2L * k * outputs;
    a.step = reinterpret_cast<unsigned*>(own.step), a.abort = pair.abort(d);
    a.outputs = outputs, a.rows = rows, a.starts_early = early;
    const CUfunction kernel = pair.kernel(d, name);
    MUST(cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kRing));
    void* arguments[] = {&a};
    chain.add(kernel, kBlocks, 256, kRing, arguments);
  }
  // A product that reads the residual after exchange k - 1.
  void reader(int k, int outputs, CUdeviceptr y) {
    DecodeArguments a = {};
    a.x = reinterpret_cast<void*>(own.residual(k)), a.x_stride = kHidden, a.y = reinterpret_cast<void*>(y);
    if (form == 2 && k > 0) {
      a.gathers = 1, a.gathered_index = k - 1, a.residual = reinterpret_cast<void*>(own.residual(k - 1));
      a.x_next = reinterpret_cast<void*>(own.residual(k)), a.own = reinterpret_cast<float*>(own.partial[(k - 1) & 1]);
      a.in_packets = packets(own, k - 1);
    }
    product("product_3072", kHidden, outputs, a);
  }
  // A product whose outputs are exchange k.
  void writer(const char* name, int k, int inner, CUdeviceptr x, int x_stride) {
    DecodeArguments a = {};
    a.x = reinterpret_cast<void*>(x), a.x_stride = x_stride, a.index = k;
    a.residual = reinterpret_cast<void*>(own.residual(k)), a.y = reinterpret_cast<void*>(own.residual(k + 1));
    a.ending = form == 0 ? kLocalAdd : form == 1 ? kExchange : form == 2 ? kPush : kPartial;
    a.partial = reinterpret_cast<float*>(own.partial[k & 1]), a.out_packets = packets(peer, k);
    a.in_packets = packets(own, k);
    if (stamped) a.stamps = reinterpret_cast<unsigned*>(own.stamps) + k * kBlocks;
    product(name, inner, kHidden, a);
    if (form != 3) return;
    a.own = a.partial, a.step = reinterpret_cast<unsigned*>(own.step), a.abort = pair.abort(d);
    a.outputs = kHidden, a.rows = rows;
    void* arguments[] = {&a};
    chain.add(pair.kernel(d, "exchange_node"), std::min(kBlocks, 12 * rows), 256, 0, arguments);
  }
  static unsigned long long* packets(const Rank& of, int k) {
    return reinterpret_cast<unsigned long long*>(of.packets + (k & 1) * Rank::packet_bytes());
  }
  CUgraphExec build() {
    pair.use(d);
    for (int layer = 0; layer < kLayers; ++layer) {
      reader(2 * layer, kQkv, own.qkv);
      writer("product_1536", 2 * layer, 1536, own.qkv, kQkv);
      reader(2 * layer + 1, kGateUp, own.gate_up);
      writer("product_4096", 2 * layer + 1, 4096, own.gate_up, kGateUp);
    }
    reader(kExchanges, kQkv, own.qkv);
    CUdeviceptr step = own.step;
    void* arguments[] = {&step};
    chain.add(pair.kernel(d, "count_step"), 1, 32, 0, arguments, true);
    return chain.instantiate(pair.stream[d]);
  }
};

// Microseconds of a step: kSteps launches on both GPUs in turns, between two events on each; the slower GPU's.
double time_steps(const Pair& pair, CUgraphExec (&exec)[2]) {
  static CUevent events[2][2] = {};
  for (int d = 0; d < 2; ++d)
    for (auto& event : events[d])
      if (pair.use(d); !event) MUST(cuEventCreate(&event, 0));
  for (int i = 0; i <= kSteps; ++i)
    for (int d = 0; d < 2; ++d) {
      pair.use(d), MUST(cuGraphLaunch(exec[d], pair.stream[d]));
      if (i == 0 || i == kSteps) MUST(cuEventRecord(events[d][i == kSteps], pair.stream[d]));
    }
  pair.synchronize();
  float ms[2];
  for (int d = 0; d < 2; ++d) pair.use(d), MUST(cuEventElapsedTime(&ms[d], events[d][0], events[d][1]));
  if (pair.aborted()) std::fprintf(stderr, "a poll gave up\n"), std::exit(1);
  return std::max(ms[0], ms[1]) * 1e3 / kSteps;
}

// The last residual of both ranks: "equal" when all forms and ranks that exchange have the same bits.
std::vector<unsigned short> last_residual(const Pair& pair, const Rank& rank, int d, int rows) {
  std::vector<unsigned short> bits(rows * kHidden);
  pair.use(d), MUST(cuMemcpyDtoH(bits.data(), rank.residual(kExchanges), bits.size() * 2));
  return bits;
}

void measure(const Pair& pair, const Rank (&ranks)[2], int rows, int early) {
  CUgraphExec exec[kForms][2], stamped[2];
  for (int form = 0; form < kForms; ++form)
    for (int d = 0; d < 2; ++d) exec[form][d] = Step{pair, ranks[d], ranks[1 - d], d, form, rows, early, false}.build();
  for (int d = 0; d < 2; ++d) stamped[d] = Step{pair, ranks[d], ranks[1 - d], d, 1, rows, early, true}.build();
  std::vector<double> us[kForms], exchange_us[kForms], waits_ns;
  std::vector<unsigned short> expected;
  bool equal = true;
  for (int round = -2; round < 16; ++round) {
    double first = 0;
    for (int form = 0; form < kForms; ++form) {
      const double step = time_steps(pair, exec[form]);
      if (form == 0) first = step;
      if (round >= 0) us[form].push_back(step), exchange_us[form].push_back((step - first) / kExchanges);
      for (int d = 0; d < 2 && form > 0; ++d) {
        const auto bits = last_residual(pair, ranks[d], d, rows);
        if (expected.empty()) expected = bits;
        equal = equal && bits == expected && bits[5] != 0 && (bits[5] & 0x7f80) != 0x7f80;
      }
    }
  }
  time_steps(pair, stamped);
  std::vector<unsigned> stamps(kBlocks * kExchanges);
  pair.use(0), MUST(cuMemcpyDtoH(stamps.data(), ranks[0].stamps, stamps.size() * 4));
  waits_ns.assign(stamps.begin(), stamps.end());
  for (int form = 0; form < kForms; ++form)
    std::printf(
        "{\"experiment\": \"exchange\", %s, \"form\": \"%s\", \"rows\": %d, \"next_starts\": \"%s the wait\", "
        "\"step_us\": %s, \"exchange_us\": %s, \"push_to_arrival_ns\": %s, \"weight_bytes\": %ld, \"equal_bits\": "
        "%s}\n",
        pair.gpu.c_str(), kNames[form], rows, early ? "before" : "after", spread(us[form]).c_str(),
        spread(exchange_us[form]).c_str(), form == 1 ? spread(waits_ns).c_str() : "{}", ranks[0].layer_bytes * kLayers,
        equal ? "true" : "false");
  std::fflush(stdout);
}

}  // namespace

int main(int, char** argv) {
  const Pair pair(argv[1]);
  const Rank ranks[2] = {Rank(pair, 0), Rank(pair, 1)};
  for (const int rows : {1, 8, 32})
    for (const int early : {1, 0}) measure(pair, ranks, rows, early);
  return 0;
}
