// Attention of one row over its keys on tensor cores: the query heads of a block's tile are the rows of one matrix. The
// context is dealt in chunks of 16 keys, which lie in one page: a split takes some that lie together, warp w of it
// those whose number is w, modulo the warps. A warp requests kRing chunks ahead, keys and values apart, since a chunk's
// keys have been used when its values are needed, and waits for no other warp until its last chunk; then the warps of a
// block meet in shared memory, in their order, and the splits of a row in that of their cluster (merge_in_cluster.cuh)
// or in global memory (merge_splits.cuh): a row's bits depend on its own tokens only. Keys and values are bf16 as they
// lie, or fp16 that FP8 becomes in registers (cache_format.cuh), sums fp32. A matrix has 16 rows and a tile at most 8
// heads: rows 8 to 15 hold what rounding leaves of q * scale, and then of the probabilities, so that both count with
// twice the digits in as many matrix instructions. A chunk of FP8 has 32 keys, as many bytes: two tiles of 16.
//
// With kParts the order of sums follows from the row's length alone: its chunks are dealt to kParts parts that lie
// together. The parts of a section, kPartsOfSection, are folded one into the other, and sections meet as splits of a
// cluster do. A block has several sections, each of them a warp's, or a section alone, with a warp for each part.
//
// Constants: kHeads, kKvHeads, kHeadDim, kPaddedHeadDim, kCacheFormat, kHeadTile, kPageSize, kSplits, kWarps, kRing,
// kInCluster, kParts (0: none).
#pragma once

#include "kernels_src/attention/cache_format.cuh"
#include "kernels_src/attention/merge_in_cluster.cuh"
#include "kernels_src/attention/merge_splits.cuh"
#include "kernels_src/device/bulk_copies.cuh"
#include "kernels_src/device/tensor.cuh"

namespace nodewright {

constexpr int kMatrixRows = 16, kMostHeads = 8;
constexpr int kTilesOfChunk = kFp8Cache ? 2 : 1, kTileKeys = 16, kChunk = kTilesOfChunk * kTileKeys;
constexpr int kDim = static_cast<int>((kHeadDim + 15) / 16 * 16);
// A stage is the image of what it was copied from (kv_in_row), unless that has no row as long as a tile's.
constexpr bool kAsItLies = kDim == kPaddedHeadDim, kInBulk = kHasBulkCopies && kAsItLies;
constexpr int kStride = kAsItLies ? kDim : kDim + 8, kQueryStride = kDim + 8;
constexpr int kSteps = kDim / 16;                     // of 16 elements of a head
constexpr int kStage = 2 * kChunk * kStride;          // elements: keys, then values
constexpr int kPieces = kChunk * kDim / kPiece / 32;  // of 16 bytes, of a chunk's keys or values: a lane's share
constexpr int kDepth = static_cast<int>(kRing), kBlockWarps = static_cast<int>(kWarps);
constexpr bool kQueriesInRegisters = kDim <= 128;
// Chunks that a warp takes at once, where as many are on their way meanwhile.
constexpr int kTogether = !kFp8Cache && kRing > 3 && kRing % 2 == 0 ? 2 : 1;
// Groups of copies that a warp has open: keys of kDepth / kTogether chunks, then their values.
constexpr int kGroups = 2 * kDepth / kTogether;
constexpr int kValuesBehindKeys = static_cast<int>(kKvHeads * kPageSize * kPaddedHeadDim);  // elements of a page
constexpr bool kOrdered = kParts > 0;
constexpr int kAllParts = kOrdered ? static_cast<int>(kParts) : kSections, kPartsOfSection = kAllParts / kSections;
constexpr int kPartsOfBlock = kSectionsOfBlock * kPartsOfSection, kPartsOfWarp = kPartsOfBlock / kBlockWarps;
constexpr int kSectionsOfWarp = kHasSections ? kSectionsOfBlock / kBlockWarps : 1;
static_assert(!kOrdered || ((kSplits == 1 || kInCluster != 0) &&
                            (kHasSections ? kSections % kSplits == 0 && kPartsOfWarp % kPartsOfSection == 0
                                          : kSplits == kSections && kPartsOfWarp == 1)));
constexpr unsigned kBlocksOfAnSm = kDim <= 128 && kWarps <= 4 ? (kHasSections && kDim > 64 ? 2 : 3) : 1;
constexpr int kMeeting = static_cast<int>(kWarps > kSplits ? kWarps : kSplits);
static_assert(kPageSize % kChunk == 0, "a chunk lies in one page");
static_assert(!kFp8Cache || kAsItLies, "rows of FP8 are whole pieces");
static_assert(kTileHeads <= kMostHeads, "half a matrix holds the heads of a tile");

// The chunks of one block, by number: chunk c is keys kChunk c to kChunk c + kChunk - 1.
struct Chunks {
  int first, last;                          // none when first >= last
  int splits;                               // that have any; with kParts sections
  int from = 0, count = 0, first_part = 0;  // with kParts: of the row; the block's

  // Chunks that are taken at once stay together.
  NODEWRIGHT_DEVICE int units() const { return (count + kTogether - 1) / kTogether; }
  // Parts of the row that have any, and the first chunk of one.
  NODEWRIGHT_DEVICE int parts() const { return min(units(), kAllParts); }
  NODEWRIGHT_DEVICE int start_of(int part) const {
    return from + min((units() < kAllParts ? part : units() * part / kAllParts) * kTogether, count);
  }
};
NODEWRIGHT_DEVICE Chunks chunks_of(int oldest, int length, int split) {
  const int from = oldest / kChunk, count = (length + kChunk - 1) / kChunk - from;
  if constexpr (kOrdered) {
    Chunks chunks{0, 0, 0, from, count, split * kPartsOfBlock};
    chunks.splits = (chunks.parts() + kPartsOfSection - 1) / kPartsOfSection;
    chunks.first = chunks.start_of(chunks.first_part);
    chunks.last = chunks.start_of(chunks.first_part + kPartsOfBlock);
    return chunks;
  }
  const int share = max(static_cast<int>((count + kSplits - 1) / kSplits), kBlockWarps);
  const int first = from + split * share;
  return {first, min(first + share, from + count), (count + share - 1) / share};
}

// The block's shared memory, after `bytes_before` bytes of the kernel's own.
struct FlashMemory {
  KvElement* ring;  // [kWarps][kRing][keys, values][kChunk][kStride]; at the end [kWarps] weighted values
  // [kMatrixRows][kQueryStride] scaled, as operands; row h + 8: what rounding leaves of row h; others are anything
  bf16* queries;
  uint64_t* barriers;  // [kWarps][kGroups]
  Merged* found;       // [kTileHeads][kWarps]
  Merged* merged;      // [kTileHeads]
  Received received;
  float* weights;  // [kTileHeads][kMeeting]
  int* ticket;

  // The values of a section of the block, kTileHeads heads: a warp's last one lies over its ring, which has been read
  // by then.
  NODEWRIGHT_DEVICE float* section(int s) const {
    constexpr int kBefore = kSectionsOfWarp - 1;
    if constexpr (kInCluster != 0) s %= kSectionsOfBlock;
    const int warp = s / kSectionsOfWarp, i = s % kSectionsOfWarp;
    return i == kBefore ? reinterpret_cast<float*>(ring + warp * kDepth * kStage)
                        : received.values + (warp * kBefore + i) * kElements;
  }
};
NODEWRIGHT_DEVICE FlashMemory flash_memory(int bytes_before) {
  FlashMemory m;
  m.ring = reinterpret_cast<KvElement*>(shared_memory() + bytes_before);
  m.queries = reinterpret_cast<bf16*>(m.ring + kBlockWarps * kDepth * kStage);
  m.barriers = reinterpret_cast<uint64_t*>(m.queries + kMatrixRows * kQueryStride);
  m.found = reinterpret_cast<Merged*>(m.barriers + kBlockWarps * kGroups);
  m.merged = m.found + kTileHeads * kBlockWarps;
  m.received = received_at(m.merged + kTileHeads);
  m.weights = m.received.end();
  m.ticket = reinterpret_cast<int*>(m.weights + kTileHeads * kMeeting);
  return m;
}

// `v`: element d of head h, scaled; d < kDim.
NODEWRIGHT_DEVICE void store_query(const FlashMemory& m, int h, int d, float v) {
  if constexpr (kFp8Cache) {
    bf16* const to = m.queries + h * kQueryStride + column_of(d);
    const uint32_t rounded = round_halves(v, 0.0f);
    to[0] = {static_cast<uint16_t>(rounded)};
    to[kMostHeads * kQueryStride] = {static_cast<uint16_t>(rest_of_pair<true>(rounded, v, 0.0f))};
  } else {
    const bf16 rounded = to_bf16(v);
    m.queries[h * kQueryStride + d] = rounded;
    m.queries[(h + kMostHeads) * kQueryStride + d] = to_bf16(v - to_float(rounded));
  }
}

// Where a lane finds a row of a matrix: half `half` of the i-th load of row `row` of a tile's keys or values.
NODEWRIGHT_DEVICE int in_stage(int row, int half, int i) {
  return row * kStride + (place_in_row(row, half_of_load<kSteps>(i, half) * kPiece) ^ i * 2 * kPiece);
}
// Where the keys of the t-th of tiles that a warp takes at once begin, from the first one's stage on.
NODEWRIGHT_DEVICE int start_of_tile(int t) {
  return t / kTilesOfChunk * kStage + t % kTilesOfChunk * kTileKeys * kStride;
}

// The chunks of a warp on their way to shared memory. A key that is not within oldest .. end - 1 becomes zero: nothing
// may have been written there, and 0 * NaN is NaN. The keys of a chunk that are there lie together, and so do their
// values: one copy each, where the device has copies of any size (docs/attention.md); else every lane copies its
// share.
struct ChunkRing {
  const KvElement* kv;  // of the key head
  const int* table;     // the row's pages
  int oldest, end;
  Chunks chunks;
  KvElement* stages;                    // of the warp
  CopyBarrier barriers;                 // of the warp: the first of its groups'
  int pages = 0;                        // lane l: of one of the next 32 chunks
  int first_part, own_first, own_last;  // with kParts: of the warp
  // Addresses in the chunks whose values are requested next: in bulk, lane l's is the l-th chunk's; otherwise each
  // lane's is its first piece of every chunk.
  const KvElement* keys[kInBulk ? 1 : kTogether]{};
  AsyncCopies<kPieces * kTogether, kGroups> copies{};

  NODEWRIGHT_DEVICE ChunkRing(const bf16* kv, const int* table, int kv_head, int oldest, int end, Chunks chunks,
                              const FlashMemory& memory)
      : kv(pool_of(kv) + kv_head * kPageSize * kPaddedHeadDim),
        table(table),
        oldest(oldest),
        end(end),
        chunks(chunks),
        stages(memory.ring + static_cast<int>(threadIdx.x / 32) * kDepth * kStage),
        barriers{shared_address(memory.barriers + threadIdx.x / 32 * kGroups)},
        first_part(chunks.first_part + static_cast<int>(threadIdx.x / 32) * kPartsOfWarp),
        own_first(kOrdered ? chunks.start_of(first_part) : 0),
        own_last(kOrdered ? chunks.start_of(first_part + kPartsOfWarp) : 0) {}

  // The number of the warp's i-th chunk.
  NODEWRIGHT_DEVICE int number(int i) const {
    if constexpr (kOrdered) return own_first + i;
    return chunks.first + static_cast<int>(threadIdx.x / 32) + i * kBlockWarps;
  }
  // Where its chunks end.
  NODEWRIGHT_DEVICE int end_of_chunks() const { return kOrdered ? own_last : chunks.last; }
  NODEWRIGHT_DEVICE bool has(int i) const { return number(i) < end_of_chunks(); }
  // With kParts: how many chunks the warp has up to the end of its part `part`.
  NODEWRIGHT_DEVICE int chunks_to(int part) const { return chunks.start_of(first_part + part + 1) - own_first; }
  // The stage of chunk i; those of chunks that are taken together are adjacent.
  NODEWRIGHT_DEVICE KvElement* stage(int i) const { return stages + i % kDepth * kStage; }
  // The chunks i to i + kCount - 1 are there, and all their keys are to be read from the cache.
  template <int kCount>
  NODEWRIGHT_DEVICE bool are_whole(int i) const {
    const int last = number(i + kCount - 1);
    return last < end_of_chunks() && number(i) * kChunk >= oldest && (last + 1) * kChunk <= end;
  }
  NODEWRIGHT_DEVICE void find_pages(int i) {
    const int mine = i + static_cast<int>(threadIdx.x % 32);
    pages = has(mine) ? load_settled(table + number(mine) * kChunk / kPageSize) : 0;
  }
  // The first kDepth chunks. find_pages(0) comes first.
  NODEWRIGHT_DEVICE void start() {
    if constexpr (kInBulk) {
      if (threadIdx.x % 32 < kGroups) barrier_of(static_cast<int>(threadIdx.x % 32)).init(1);
      CopyBarrier::publish();
      __syncwarp();
    }
    NODEWRIGHT_NO_UNROLL
    for (int i = 0; i < kDepth; i += kTogether) request_keys(i, stage(i)), request_values(i, stage(i));
  }
  // Requests the keys of chunks i to i + kTogether - 1 that exist, as one group. Called in order, from i = 0.
  NODEWRIGHT_DEVICE void request_keys(int i, KvElement* to) {
    if (i > 0 && i % 32 == 0) find_pages(i);
    const int lane = static_cast<int>(threadIdx.x % 32);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int c = 0; c < (kInBulk ? 1 : kTogether); ++c) {
      const int chunk = i + (kInBulk ? lane % kTogether : c);
      const int page = __shfl_sync(0xffffffffu, pages, chunk % 32);
      const unsigned slot = static_cast<unsigned>(number(chunk)) % static_cast<unsigned>(kPageSize / kChunk) * kChunk;
      keys[c] = kv + static_cast<int64_t>(page) * (2 * kValuesBehindKeys) + slot * kPaddedHeadDim;
      if constexpr (kAsItLies && !kInBulk) keys[c] += lane * kPiece;
    }
    if constexpr (kInBulk)
      request_in_bulk<0>(i, to);
    else
      request<0>(i, to);
  }
  // After the keys of the same chunks.
  NODEWRIGHT_DEVICE void request_values(int i, KvElement* to) {
    if constexpr (kInBulk)
      request_in_bulk<1>(i, to);
    else
      request<1>(i, to);
  }
  // Until the keys of chunk i, and of those taken with it, or also their values, are there. kLeft: groups of the warp
  // that have been requested since.
  template <int kLeft>
  NODEWRIGHT_DEVICE void wait_for_keys(int i) {
    wait<kLeft>(i, 0);
  }
  template <int kLeft>
  NODEWRIGHT_DEVICE void wait_for_values(int i) {
    wait<kLeft>(i, 1);
  }

 private:
  NODEWRIGHT_DEVICE CopyBarrier barrier_of(int group) const { return {barriers.address + 8u * group}; }
  NODEWRIGHT_DEVICE static int group_of(int i, int values) { return i % kDepth / kTogether * 2 + values; }
  template <int kLeft>
  NODEWRIGHT_DEVICE void wait(int i, int values) {
    if constexpr (kInBulk)
      barrier_of(group_of(i, values)).wait(static_cast<unsigned>(i / kDepth));
    else
      copies.template wait<kLeft>();
  }

  template <int kValues>
  NODEWRIGHT_DEVICE void request_in_bulk(int i, KvElement* to) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int kRowBytes = kDim * static_cast<int>(sizeof(KvElement));
    const CopyBarrier barrier = barrier_of(group_of(i, kValues));
    const KvElement* const from = keys[0] + kValues * kValuesBehindKeys;
    to += kValues * kChunk * kStride;
    if (are_whole<kTogether>(i)) {  // mostly
      if (lane < kTogether) barrier.copy(shared_address(to + lane * kStage), from, kChunk * kRowBytes);
      if (lane == 0) barrier.arrive_and_expect(kTogether * kChunk * kRowBytes);
      return;
    }
    if (!has(i)) return;
    int bytes = 0;
    NODEWRIGHT_NO_UNROLL
    for (int c = 0; c < kTogether && has(i + c); ++c) {
      const int key0 = number(i + c) * kChunk, first = max(oldest - key0, 0), last = min(end - key0, kChunk);
      const int rows = max(last - first, 0);
      bytes += rows * kRowBytes;
      if (lane == c && rows > 0)
        barrier.copy(shared_address(to + c * kStage + first * kStride), from + first * kDim, rows * kRowBytes);
      for (int p = lane; p < kChunk * kDim / kPiece; p += 32)
        if (p / (kDim / kPiece) < first || p / (kDim / kPiece) >= last)
          store_16(to + c * kStage + p * kPiece, uint4{0u, 0u, 0u, 0u});
    }
    if (lane == 0) barrier.arrive_and_expect(bytes);
  }

  template <int kValues>
  NODEWRIGHT_DEVICE void request(int i, KvElement* to) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int kRow = kDim / kPiece, kApart = 32 * kPiece;  // pieces; elements between those of a lane
    to += kValues * kChunk * kStride;
    const auto copy_whole = [&](int c) {  // copies and nothing else
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int p = 0; p < kPieces; ++p)
        copies.request(to + c * kStage + lane * kPiece + p * kApart, keys[c] + kValues * kValuesBehindKeys + p * kApart,
                       true);
    };
    if (kAsItLies && kTogether > 1 && are_whole<kTogether>(i)) {  // mostly
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int c = 0; c < kTogether; ++c) copy_whole(c);
    } else {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int c = 0; c < kTogether; ++c) {
        if (kAsItLies && are_whole<1>(i + c)) {
          copy_whole(c);
          continue;
        }
        if (!has(i + c)) break;
        const int key0 = number(i + c) * kChunk;
        const KvElement* from = keys[c] - (kAsItLies ? lane * kPiece : 0) + kValues * kValuesBehindKeys;
        NODEWRIGHT_NO_UNROLL
        for (int p = lane; p < kChunk * kRow; p += 32) {
          const int key = p / kRow, d = p % kRow * kPiece;
          const bool is_there = key0 + key >= oldest && key0 + key < end && d < kPaddedHeadDim;
          copies.request(to + c * kStage + key * kStride + d, from + (is_there ? key * kPaddedHeadDim + d : 0),
                         is_there);
        }
      }
    }
    copies.close_group();
  }
};

// What a warp's chunks gave, of head lane / 4. values[n][i] and [i + 2] are one sum.
struct FlashState {
  float values[2 * kSteps][4], top, sum;

  NODEWRIGHT_DEVICE void start() {
    top = -INFINITY, sum = 0.0f;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < 2 * kSteps; ++n) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i) values[n][i] = 0.0f;
    }
  }
  // What the values are divided by in the end, the quad's.
  NODEWRIGHT_DEVICE float total([[maybe_unused]] float value_scale) const {
    if constexpr (kFp8Cache) return quad_sum(sum) / value_scale;
    return quad_sum(sum);
  }
};

// Parts of a section become one, in their order: the values that are there times `keep`, and those of the next part
// times `weight`.
struct Fold {
  float keep, weight;
  NODEWRIGHT_DEVICE float of(float before, float next) const { return fmaf(next, weight, before * keep); }
};
NODEWRIGHT_DEVICE Fold fold(Merged& into, Merged next) {
  const float top = fmaxf(into.top, next.top);
  const Fold by{power_of_two(into.top - top), power_of_two(next.top - top)};
  into = {top, by.of(into.sum, next.sum)};
  return by;
}

// The section that a warp is in, of head lane / 4.
struct Section {
  float values[2 * kSteps][2];
  Merged of;

  NODEWRIGHT_DEVICE void add(const FlashState& part, float value_scale, bool is_first) {
    const Merged next{part.top, part.total(value_scale)};
    Fold by{0.0f, 1.0f};
    if (is_first)
      of = next;
    else
      by = fold(of, next);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < 2 * kSteps; ++n) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 2; ++k) {
        const float value = part.values[n][k] + part.values[n][k + 2];
        values[n][k] = is_first ? value : by.of(values[n][k], value);
      }
    }
  }
  NODEWRIGHT_DEVICE void leave(const FlashMemory& to, int section) const {
    const int lane = static_cast<int>(threadIdx.x % 32), pair = lane % 4 * 2, head = lane / 4;
    if (head >= kTileHeads) return;
    float* const mine = to.section(section) + head * kHead;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < 2 * kSteps; ++n) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int k = 0; k < 2; ++k)
        if (const int d = element_of(n, pair, k); kDim == kHeadDim || d < kHeadDim) mine[d] = values[n][k];
    }
    if (pair == 0) to.received.found[section * kTileHeads + head] = of;
  }
};

// The warp's chunks i to i + kCount - 1, which are there, and after fewer than kTogether none; whole: as are_whole
// says. Instructions of one tile do not wait for those of another; a single tile's scores are sums of two chains.
template <int kCount, class Queries>
NODEWRIGHT_DEVICE void attend_at_once(ChunkRing& ring, int i, bool whole, int length, FlashState& state,
                                      Queries load_query) {
  constexpr int kTiles = kCount * kTilesOfChunk, kChains = kTiles == 1 ? 2 : 1;
  constexpr bool kMayGoOn = kCount == kTogether;
  const int lane = static_cast<int>(threadIdx.x % 32), pair = lane % 4 * 2;
  float scores[kTiles][kChains][2][4] = {};
  KvElement* const stage = ring.stage(i);
  const auto key_piece = [&](int t, int load) {
    return stage + start_of_tile(t) + in_stage(lane / 16 * 8 + lane % 8, lane / 8 % 2, load);
  };
  multiply_keys<kSteps>(scores, load_query, key_piece);
  if constexpr (kMayGoOn) {
    __syncwarp();  // the keys that are requested now overwrite these
    ring.request_keys(i + kDepth, stage);
  }
  // Keys 2t, 2t + 1 of the first eight of a tile, then of the others.
  float weights[kTiles][4], highest = -INFINITY;
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int t = 0; t < kTiles; ++t) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < 4; ++j) {
      const auto score = [&](int chain) { return scores[t][chain][j / 2][j % 2] + scores[t][chain][j / 2][j % 2 + 2]; };
      weights[t][j] = score(0);
      if constexpr (kChains == 2) weights[t][j] += score(1);
      weights[t][j] = capped_by<kScoreCap>(weights[t][j]);
    }
  }
  if (!whole) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int t = 0; t < kTiles; ++t) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int j = 0; j < 4; ++j) {
        const int key =
            ring.number(i + t / kTilesOfChunk) * kChunk + t % kTilesOfChunk * kTileKeys + j / 2 * 8 + pair + j % 2;
        if (key < ring.oldest || key >= length) weights[t][j] = -INFINITY;
      }
    }
  }
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int t = 0; t < kTiles; ++t) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < 4; ++j) highest = fmaxf(highest, weights[t][j]);
  }
  if constexpr (kFp8Cache) highest -= kLift;
  const float before = state.top;
  state.top = fmaxf(before, quad_max(highest));  // finite: every chunk holds a key
  const float keep = power_of_two(before - state.top);
  state.sum *= keep;
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int n = 0; n < 2 * kSteps; ++n) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < 4; ++j) state.values[n][j] *= keep;
  }
  ring.template wait_for_values<(kMayGoOn ? kGroups - 1 : 0)>(i);
  __syncwarp();
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int t = 0; t < kTiles; ++t) {
    uint32_t p[4];
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int j = 0; j < 4; ++j) weights[t][j] = power_of_two(weights[t][j] - state.top), state.sum += weights[t][j];
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < 2; ++n) {
      const float low = weights[t][2 * n], high = weights[t][2 * n + 1];
      p[2 * n] = operand_pair<kFp8Cache>(low, high);
      p[2 * n + 1] = rest_of_pair<kFp8Cache>(p[2 * n], low, high);
    }
    const auto value_piece = [&](int load) {
      return stage + start_of_tile(t) + kChunk * kStride + in_stage(lane / 8 % 2 * 8 + lane % 8, lane / 16, load);
    };
    multiply_values(state.values, p, value_piece);
  }
  if constexpr (kMayGoOn) {
    __syncwarp();  // as of keys
    ring.request_values(i + kDepth, stage);
  }
}

// Attends to the keys `oldest` to length - 1; the ring has started, and memory.queries are complete. patch(keys,
// values, key0) puts into a stage, where the cache would have it (kv_in_row), what is not there, keys from ring.end on.
template <class Patch>
NODEWRIGHT_DEVICE void attend_chunks(ChunkRing& ring, int length, float value_scale, const FlashMemory& memory,
                                     FlashState& state, Patch patch) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto read_query = [&](uint32_t(&left)[4], int step) {
    load_matrices(left, memory.queries + lane % 16 * kQueryStride + step * 16 + lane / 16 * 8);
  };
  uint32_t q[kQueriesInRegisters ? kSteps : 1][4];
  if constexpr (kQueriesInRegisters) {
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int step = 0; step < kSteps; ++step) read_query(q[step], step);
  }
  const auto load_query = [&](uint32_t(&left)[4], int step) {
    if constexpr (kQueriesInRegisters) {
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int j = 0; j < 4; ++j) left[j] = q[step][j];
    } else {
      read_query(left, step);
    }
  };
  Section section;
  int part = 0;
  state.start();
  // Which chunks are taken together is a matter of the row's own keys, not of what is patched.
  for (int i = 0; ring.has(i); i += kTogether) {
    ring.template wait_for_keys<kGroups - 1>(i);
    __syncwarp();
    const bool alone = kTogether == 1 || !ring.has(i + 1),
               whole = alone ? ring.are_whole<1>(i) : ring.are_whole<kTogether>(i);
    if (!whole) {
      ring.template wait_for_values<kGroups - 2>(i);
      __syncwarp();
      NODEWRIGHT_NO_UNROLL
      for (int c = i; c < i + kTogether && ring.has(c); ++c)
        patch(ring.stage(c), ring.stage(c) + kChunk * kStride, ring.number(c) * kChunk);
      order_stores_before_copies();
    }
    if (alone)
      attend_at_once<1>(ring, i, whole, length, state, load_query);
    else
      attend_at_once<kTogether>(ring, i, whole, length, state, load_query);
    if constexpr (kHasSections) {
      if (i + kTogether < ring.chunks_to(part)) continue;
      section.add(state, value_scale, part % kPartsOfSection == 0);
      if ((part + 1) % kPartsOfSection == 0 || !ring.has(i + kTogether))
        section.leave(memory, (ring.first_part + part) / kPartsOfSection);
      state.start(), ++part;
    }
  }
}

// Warps -> block -> row's y.
template <class Args>
NODEWRIGHT_DEVICE void merge_warps(const Args& args, int row, int tile, int split, const Chunks& chunks,
                                   const FlashState& state, const FlashMemory& memory) {
  const int splits = chunks.splits;
  if constexpr (kHasSections && kInCluster != 0) {
    __syncthreads();
    merge_sections_in_cluster(args, row, tile, split, splits, memory.received,
                              [&](int s) { return memory.section(s); });
    return;
  }
  if constexpr (kHasSections) {
    __syncthreads();
    bf16* const y = args.y.data + row * args.y_stride + tile * kElements;
    for (int i = static_cast<int>(threadIdx.x); i < kElements; i += kThreads)
      y[i] =
          to_bf16(merged_value(memory.received.found + i / kHead, splits, [&](int s) { return memory.section(s)[i]; }));
    return;
  }
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32), pair = lane % 4 * 2;
  // Head h of warp w, over the first stage of its ring.
  const auto values_of = [&](int w, int h) {
    return reinterpret_cast<float*>(memory.ring + w * kDepth * kStage) + h * kQueryStride;
  };
  const int head = lane / 4;
  const float total = state.total(args.value_scale);
  if (head < kTileHeads) {
    float* mine = values_of(warp, head) + element_of(0, pair, 0);
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int n = 0; n < 2 * kSteps; ++n) {
      mine[element_of(n, 0, 0)] = state.values[n][0] + state.values[n][2];
      mine[element_of(n, 0, 1)] = state.values[n][1] + state.values[n][3];
    }
    if (pair == 0) memory.found[head * kBlockWarps + warp] = {state.top, total};
  }
  __syncthreads();
  const int parts = kOrdered ? min(kBlockWarps, chunks.parts() - chunks.first_part) : 0;
  auto* const folds = reinterpret_cast<Fold*>(memory.weights);  // [kTileHeads][kMeeting / 2], with kParts
  for (int h = warp; h < kTileHeads; h += kBlockWarps) {
    Merged merged;
    if constexpr (kOrdered) {
      merged = memory.found[h * kBlockWarps];
      for (int w = 1; w < parts; ++w) {
        const Fold by = fold(merged, memory.found[h * kBlockWarps + w]);
        if (lane == 0) folds[h * kMeeting / 2 + w] = by;
      }
    } else {
      merged = merge_weights(kBlockWarps, memory.weights + h * kMeeting,
                             [&](int w) { return memory.found[h * kBlockWarps + w]; });
    }
    if (lane == 0) memory.merged[h] = merged;
  }
  __syncthreads();
  const auto value_of = [&](int h, int d) {
    if constexpr (kOrdered) {
      float value = values_of(0, h)[d];
      NODEWRIGHT_UNROLL_ON_DEVICE
      for (int w = 1; w < kBlockWarps; ++w)
        if (w < parts) value = folds[h * kMeeting / 2 + w].of(value, values_of(w, h)[d]);
      return value;
    }
    float value = 0.0f;
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int w = 0; w < kBlockWarps; ++w) value = fmaf(values_of(w, h)[d], memory.weights[h * kMeeting + w], value);
    return value;
  };
  if constexpr (kInCluster != 0)
    merge_in_cluster(args, row, tile, split, splits, memory.merged, memory.received, value_of);
  else
    merge_splits(args, row, tile, split, splits, memory.weights, kMeeting, memory.merged, memory.ticket, value_of);
}

}  // namespace nodewright
