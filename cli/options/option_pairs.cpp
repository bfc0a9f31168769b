#include "cli/options/option_pairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/options/refusals.h"
#include "runtime/device_selection.h"

namespace nodewright::cli {
namespace {

void check_context_pairs(const EngineSettings& given, int64_t context, int64_t model_context) {
  const int64_t pages = given.engine.pages;
  if (context > model_context)
    refuse_pair("--max-context and --model",
                fmt::format("a context of {} tokens, and the model was made for {}", context, model_context),
                fmt::format("--max-context {}, or less", model_context));
  if (pages > 0 && pages * kPageTokens < context)
    refuse_pair(
        "--pages and --max-context",
        fmt::format("{} pages hold {} tokens, and one request may have {}", pages, pages * kPageTokens, context),
        fmt::format("--pages {}, or --max-context {}", pages_for(context), pages * kPageTokens));
}

void check_bucket_pairs(const EngineSettings& given) {
  const EngineOptions& engine = given.engine;
  if (engine.buckets.empty()) return;
  std::vector<int> sizes = engine.buckets;
  std::ranges::sort(sizes);
  if (sizes.back() < engine.max_batch && !engine.allow_eager)
    refuse_pair("--buckets and --max-batch",
                fmt::format("the largest bucket has {} rows, and --max-batch is {}", sizes.back(), engine.max_batch),
                fmt::format("a bucket of {}, --max-batch {}, or --allow-eager for steps without a graph",
                            engine.max_batch, sizes.back()));
  if (given.step_tokens.value_or(0) > std::max(sizes.back(), engine.max_batch))
    refuse_pair(
        "--buckets and --step-tokens",
        fmt::format("the largest bucket has {} rows, and --step-tokens is {}", sizes.back(), *given.step_tokens),
        fmt::format("a bucket of {}, or --step-tokens {}", *given.step_tokens, sizes.back()));
  // What the largest step has, with drafts that fill whatever bucket there is.
  const int64_t most = std::max<int64_t>(given.step_tokens.value_or(INT32_MAX), engine.max_batch);
  if (const auto enough = std::ranges::lower_bound(sizes, most);
      engine.speculate == 0 && enough != sizes.end() && *enough != sizes.back())
    refuse_pair("--buckets, --max-batch and --step-tokens",
                fmt::format("no step has more than {} rows, and the bucket of {} holds them: that of {} is never used",
                            most, *enough, sizes.back()),
                fmt::format("no bucket of {}, or a larger --max-batch or --step-tokens", sizes.back()));
  // A larger batch leaves room when it is not full.
  const auto drafted = std::ranges::upper_bound(sizes, 1);
  if (engine.speculate > 0 && engine.max_batch == 1 && sizes.front() == 1 &&
      (drafted == sizes.end() || *drafted > 1 + engine.speculate))
    refuse_pair("--speculate and --buckets",
                fmt::format("drafts are rows beside the one that --max-batch allows, and no bucket has 2 to {}",
                            1 + engine.speculate),
                fmt::format("a bucket of {}, or --speculate 0", 1 + engine.speculate));
}

void check_form_pairs(const EngineSettings& given, const SessionOptions& session) {
  if (prefill_form(given.prefill) == PrefillForm::piecewise && session.mode == "eager")
    refuse_pair("--prefill and --mode", "the pieces are graphs, and eager means none",
                "--prefill eager, or --mode explicit");
  if (given.products_from.value_or(0) > 0 && session.numerics == "invariant")
    refuse_pair("--products-from and --numerics",
                "a library's product sums in an order of its own, which invariant numerics cannot take",
                "--products-from 0, or --numerics fast");
}

void check_overlap_pairs(const EngineSettings& given, const SessionOptions& session) {
  if (given.engine.overlap == 1) return;
  if (session.stages > 1)
    refuse_pair("--overlap and --pp", "stages exchange no sums that the halves of a step could hide",
                "--tp, or --overlap 1");
  if (session.tensor_parallel == 1 || (session.tensor_parallel == 0 && devices_named(session.device) < 2))
    refuse_pair("--overlap and --tp", "one device exchanges no sums that the halves of a step could hide",
                "--tp 2, or --overlap 1");
  if (session.collectives != "packets")
    refuse_pair("--overlap and --collectives", "halves take turns at exchanging packets",
                "--collectives packets, or --overlap 1");
  if (session.numerics == "invariant" || given.products_from == 0)
    refuse_pair(given.products_from == 0 ? "--overlap and --products-from" : "--overlap and --numerics",
                "halves are for steps of a library's products", "--overlap 1, or leave the other out");
}

}  // namespace

void check_pairs(const EngineSettings& given, const SessionOptions& session, int64_t model_context) {
  check_context_pairs(given, session.max_context, model_context);
  check_bucket_pairs(given);
  check_form_pairs(given, session);
  check_overlap_pairs(given, session);
}

}  // namespace nodewright::cli
