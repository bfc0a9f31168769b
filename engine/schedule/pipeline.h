// What is in flight: two slots, one forward at a time, a queue of sampled steps that are committed in order, and the
// requests that they carry. A pure state machine: it holds neither memory nor driver objects, starts nothing and waits
// for nothing; the code that drives the device calls one transition beside each of its actions.
//
//   submit, admit        a request is accepted; it gets its pages
//   preempt              the one admitted last gives its pages back and waits again
//   launch, revoke       a forward goes to the device; it did not get there
//   sample               the token is chosen, when the masks of constrained rows are known
//   start_commit         the oldest sampled step's tokens are awaited and read
//   finish_commit        its requests have them; its slot is free
//   pause, resume, fail  launch no more; launch again; resolve everything
//
// Invariants, asserted by check():
//   I1  forwards and samplings go to one compute stream, in the order of step numbers
//   I2  steps are committed in that order
//   I3  the copy of a step's tokens waits for its own sampling, not for what was submitted later
//   I4  a request counts exactly the uncommitted steps that have its row, at most one per slot
//   I5  the rows of a request in flight follow each other, chunks of its prompt included; with Schedule::drained a step
//       with prompt tokens is alone in flight
//   I6  a slot is taken from launch until its commit has finished
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/kv_pool.h"
#include "engine/schedule/fair_turns.h"
#include "engine/schedule/request.h"
#include "engine/schedule/step_plan.h"
#include "engine/schedule/turn_lines.h"

namespace nodewright {

inline constexpr int kSlots = 2;

// The pages of a sequence from its page `first` on differ from those that the last step had.
struct TableChange {
  int32_t sequence = 0;
  int64_t first = 0;
  int64_t group = 0;  // of layers (ModelConfig::page_group)
  bool operator==(const TableChange&) const = default;
};

struct InFlightStep {
  uint64_t number = 0;  // 1, 2, ... in the order of launch
  int slot = 0;         // 0 or 1
  StepPlan plan;
  std::vector<PageCopy> copies;     // to be enqueued on the compute stream, in this order, before the forward
  std::vector<TableChange> tables;  // of its rows; enqueued there, too, as pool() has them now
  // Places in the order of what was submitted to the compute stream. An event recorded right after `sampling` is what
  // the copy of the tokens waits for.
  uint64_t forward = 0;
  uint64_t sampling = 0;  // 0: not yet
};

// Which token of which request a mask allows: output 0 is the first.
struct MaskKey {
  RequestId request = 0;
  int64_t output = 0;
  bool operator==(const MaskKey&) const = default;
};

// What the device chose for a row.
struct RowResult {
  int32_t token = 0;  // below 0: none could be chosen
  bool completes_stop_string = false;
  bool completes_grammar = false;
  std::string failure;  // why what the request asks for allows none; empty: its logits hold a NaN
  std::vector<RowResult> behind_drafts =
      {};  // one for each draft; count as long as the draft is what was chosen before
};

// What became of a row whose request was still waiting for it.
struct CommittedToken {
  RequestId request = 0;
  int32_t token = 0;
  std::optional<EndReason> end;
  bool operator==(const CommittedToken&) const = default;
};

// The end of a request, told once.
struct Resolution {
  RequestId request = 0;
  EndReason reason = EndReason::length;
  std::vector<int32_t> outputs;
  std::string message;       // of what failed
  int64_t found_tokens = 0;  // of the prompt, in the cache when it was first admitted
  bool by_request = false;   // it failed by what it asks for: no fault of ours
};

enum class PipelineMode { running, pausing, paused, failed };
std::string_view name_of(PipelineMode mode);

// Pages that a request gets when it is admitted: for all it may ever write, so that none runs out; or for the tokens it
// has and the next one, so that more requests run at once, a page is taken when a step needs it, and where there is
// none the request admitted last is preempted.
enum class Reserve { all, prompt };

// mixed: a step may have prompt tokens beside rows that decode, and two such steps may be in flight. drained: prompts
// have steps of their own, each alone in flight.
enum class Schedule : uint8_t { mixed, drained };
std::string_view name_of(Schedule schedule);

struct PipelineOptions {
  int64_t max_context = 0;  // tokens of prompt and outputs
  int64_t max_waiting = std::numeric_limits<int64_t>::max();
  int depth = kSlots;  // steps in flight; 1: no pipelining
  Reserve reserve = Reserve::all;
  Schedule schedule = Schedule::mixed;
};

// A value: a copy goes its own way. Not thread-safe. A transition that the state does not allow throws Error, which
// names both, and changes nothing.
class PipelineState {
 public:
  // Throws Error for a depth that is not 1 or 2.
  PipelineState(KvPool pool, const PipelineOptions& options);

  // Requests

  struct Submitted {
    std::optional<RequestId> id;  // nothing: refused, and never resolved
    std::string reason;
  };
  Submitted submit(RequestSpec spec);
  // Resolves the request as cancelled. False when it was resolved before.
  bool cancel(RequestId id);
  // Resolves this request alone as failed. False when it was resolved before.
  bool fail_request(RequestId id, std::string message, bool by_request = false);
  // Gives next_waiting() its sequence and its pages. False when why_not_admit() gives a reason.
  bool admit();
  // Cheap to ask again: what the request found in the cache is remembered (KvPool::Found).
  std::string why_not_admit() const;
  // The request that is to be admitted next, by FairTurns; null when none waits.
  const Request* next_waiting() const;
  // The request that is to give way to next_waiting(), which finds no room and whose call has less than its share; null
  // when none has to. Only with Reserve::prompt.
  const Request* yielding() const;
  // Takes all pages of yielding() or, where none has to, of the unresolved request admitted last. It waits in its turn,
  // before those that came later, and its outputs are computed anew. Throws Error, too, while a step in flight has its
  // row, or when pages are reserved for all.
  void preempt();
  int64_t preemptions() const { return preemptions_; }
  // The requests that have ended since the last call, in the order of their ends.
  std::vector<Resolution> take_resolutions();
  // As KvPool::take_page_events.
  std::vector<PageEvent> take_page_events() { return pool_.take_page_events(); }

  // Steps

  // Pages that the rows of the step need beyond those that are available. Only with Reserve::prompt above 0.
  int64_t pages_short(const StepPlan& plan) const;
  // Counts each row, gives it the pages that it needs, and takes a slot. The device may be given the forward only after
  // this returns.
  const InFlightStep& launch(StepPlan plan);
  // Why no step of this kind can be launched, whatever its rows; empty when one can.
  std::string why_not_launch(StepKind kind) const;
  // Undoes the launch whose forward was not dispatched. After dispatch only fail() is right.
  void revoke();
  // The masks that the forward's rows need, or nothing while a step that must be committed before is not. A row whose
  // request is resolved needs none.
  std::optional<std::vector<MaskKey>> masks_needed() const;
  // Moves the forward to the queue of sampled steps. Throws Error, too, when a mask is missing or of another output.
  const InFlightStep& sample(std::span<const MaskKey> masks = {});
  // The oldest sampled step; its slot stays taken until finish_commit().
  const InFlightStep& start_commit();
  // `results`: one for each row, in order; those of rows that choose no token, or whose request is resolved, count for
  // nothing. Of a row with drafts the tokens count up to the first that is not the draft after it. Returns the tokens
  // that their requests accepted.
  std::vector<CommittedToken> finish_commit(std::span<const RowResult> results);

  // Modes

  // No step is launched from now on; the mode is `paused` as soon as nothing is in flight.
  void pause();
  // After graphs or weights were rebuilt, the mode must have been `paused`. Weights also empty the prefix cache.
  enum class Rebuilt { nothing, graphs, weights };
  void resume(Rebuilt rebuilt);
  // What the pages hold is gone, and nothing is cached any more. The mode must be `paused`, and no request admitted.
  void lose_pages();
  // The device is lost: resolves every request as failed with `message`, and frees every page and slot. Nothing can be
  // submitted after it; a second call does nothing.
  void fail(const std::string& message);

  // Looking

  PipelineMode mode() const { return mode_; }
  const KvPool& pool() const { return pool_; }
  const PipelineOptions& options() const { return options_; }
  const std::optional<InFlightStep>& forward() const { return forward_; }
  const std::deque<InFlightStep>& sampled() const { return sampled_; }  // oldest first
  const std::optional<InFlightStep>& committing() const { return committing_; }
  int in_flight() const;
  bool is_drained() const { return in_flight() == 0; }
  std::optional<int> free_slot() const;                                 // the one that the next launch takes
  const std::deque<RequestId>& waiting() const { return waiting_; }     // in the order of submission
  const std::vector<RequestId>& admitted() const { return admitted_; }  // in order of admission, until they end
  const TurnLines& prompt_turns() const { return prompt_turns_; }  // of admitted requests, until their prompts begin
  const Request* find(RequestId id) const;                         // null when it has ended
  std::string describe() const;                                    // one line, for messages

  // Throws Error, with the invariant, where the state contradicts itself. Cheap enough for debug builds.
  void check() const;

 private:
  // Cached by next_waiting(): the tokens of a waiting request do not change.
  struct FirstWaiting {
    RequestId id = 0;
    std::vector<int32_t> tokens;
    KvPool::Found found;
  };

  Request& at(RequestId id) { return requests_.at(id); }
  [[noreturn]] void refuse(const char* transition, const std::string& why) const;
  int64_t admitted_length(const Request& request) const;
  FirstWaiting& first_waiting() const;
  const Request* shares_with(const Request& request) const;
  bool waits_for_prompt(const Request& request) const;
  std::string why_no_pages(int64_t spare) const;
  int64_t pages_missing(const RowPlan& row) const;
  void resolve(Request& request, EndReason reason, std::string message, bool by_request = false);
  void accept(Request& request, int64_t first, int64_t tokens, bool samples, const RowResult& result,
              std::vector<CommittedToken>& accepted);
  void erase_if_ended(RequestId id);
  void pause_if_drained();

  void check_streams() const;
  void check_slots() const;
  void check_requests() const;
  void check_rows() const;
  std::vector<const InFlightStep*> steps() const;  // oldest first

  KvPool pool_;
  PipelineOptions options_;
  PipelineMode mode_ = PipelineMode::running;
  std::string failure_;
  std::map<RequestId, Request> requests_;
  std::deque<RequestId> waiting_;
  FairTurns turns_;
  TurnLines prompt_turns_;
  mutable FirstWaiting first_waiting_;
  std::vector<RequestId> admitted_;
  std::optional<InFlightStep> forward_, committing_;
  std::deque<InFlightStep> sampled_;
  std::vector<PageCopy> copies_;  // of admitted requests, for the next launch
  std::vector<Resolution> resolutions_;
  RequestId last_id_ = 0;
  int64_t preemptions_ = 0;
  uint64_t launched_ = 0, committed_ = 0;  // numbers of steps
  uint64_t submitted_ = 0;                 // to the compute stream
};

}  // namespace nodewright
