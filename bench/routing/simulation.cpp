#include "bench/routing/simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <queue>
#include <random>
#include <vector>

namespace nodewright::routing {
namespace {

constexpr int64_t kStep = 512, kPage = 64;  // tokens

struct Request {
  double arrived = 0;
  int64_t prompt_left = 0, outputs_left = 0;
  int64_t prompt = 0;
  int64_t prefix = -1;
  int64_t stream = -1;
};

struct Replica {
  std::vector<Request> running;
  std::deque<Request> waiting;         // beyond its rows
  std::map<int64_t, double> prefixes;  // cached, with their last use
  bool steps = false;                  // a step is under way
};

class Simulation {
 public:
  Simulation(const StepTimes& times, const Traffic& traffic, const Setup& setup)
      : times_(times), traffic_(traffic), setup_(setup), random_(setup.seed), replicas_(setup.replicas) {
    offers_.resize(setup.replicas);
    for (ReplicaOffer& offer : offers_) offer.load.rows = setup.rows;
    left_ = traffic.requests * static_cast<int64_t>(setup.replicas);
  }

  Simulated run() {
    begin();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.ms;
      if (event.replica < 0)
        arrive(event.stream);
      else
        end_step(static_cast<size_t>(event.replica));
    }
    return result();
  }

 private:
  struct Event {
    double ms = 0;
    int64_t replica = -1;  // whose step ends; below 0: a request arrives
    int64_t stream = -1;
    bool operator<(const Event& other) const { return ms > other.ms; }
  };

  int64_t one_of(const Range& range) {
    return std::uniform_int_distribution<int64_t>(range.least, range.most)(random_);
  }

  void begin() {
    const auto count = static_cast<int64_t>(setup_.replicas);
    if (traffic_.rate > 0) return next_arrival();
    for (int64_t stream = 0; stream < count * traffic_.streams; ++stream) events_.push({.stream = stream});
  }
  void next_arrival() {
    const double per_ms = traffic_.rate * static_cast<double>(setup_.replicas) / 1e3;
    events_.push({.ms = now_ + std::exponential_distribution<double>(per_ms)(random_)});
  }

  void arrive(int64_t stream) {
    if (left_ == 0) return;
    --left_;
    Request request{.arrived = now_, .outputs_left = one_of(traffic_.output), .prompt = one_of(traffic_.prompt)};
    request.stream = stream;
    if (traffic_.prefixes > 0) {
      request.prefix = one_of({0, traffic_.prefixes * static_cast<int64_t>(setup_.replicas) - 1});
      request.prompt += traffic_.prefix_pages * kPage;
    }
    if (setup_.policy == Policy::round_robin) {
      give(next_++ % setup_.replicas, request);
    } else {
      queue_.push_back(request);
      share_out();
    }
    if (traffic_.rate > 0 && left_ > 0) next_arrival();
  }

  void share_out() {
    while (!queue_.empty()) {
      Request& request = queue_.front();
      if (request.prefix >= 0)
        for (size_t i = 0; i < replicas_.size(); ++i)
          offers_[i].cached_pages = replicas_[i].prefixes.contains(request.prefix) ? traffic_.prefix_pages : 0;
      const auto chosen = choose_replica(offers_, {.prompt_tokens = request.prompt}, setup_.preference);
      if (!chosen) return;
      give(*chosen, request);
      queue_.pop_front();
    }
  }

  void give(size_t i, Request request) {
    Replica& replica = replicas_[i];
    const bool finds = request.prefix >= 0 && replica.prefixes.contains(request.prefix);
    const int64_t found = finds ? traffic_.prefix_pages * kPage : 0;
    request.prompt_left = std::max<int64_t>(request.prompt - found, 1);
    found_ += found;
    asked_ += request.prompt;
    LoopLoad& load = offers_[i].load;
    ++load.outputs;
    load.tokens += request.prompt_left + request.outputs_left;
    replica.waiting.push_back(request);
    begin_step(i);
  }

  void begin_step(size_t i) {
    Replica& replica = replicas_[i];
    if (replica.steps) return;
    while (!replica.waiting.empty() && std::ssize(replica.running) < setup_.rows) {
      replica.running.push_back(replica.waiting.front());
      replica.waiting.pop_front();
    }
    if (replica.running.empty()) return;
    int64_t rows = 0, prompt = 0;
    for (const Request& one : replica.running)
      (one.prompt_left == 0 ? rows : prompt) += std::max<int64_t>(one.prompt_left, 1);
    replica.steps = true;
    events_.push(
        {.ms = now_ + times_.step_ms(rows, std::min(prompt, kStep - rows)), .replica = static_cast<int64_t>(i)});
  }

  void end_step(size_t i) {
    Replica& replica = replicas_[i];
    replica.steps = false;
    int64_t rows = 0;
    for (const Request& one : replica.running) rows += one.prompt_left == 0 ? 1 : 0;
    int64_t room = kStep - rows, done = 0;
    for (Request& one : replica.running) {
      const bool decodes = one.prompt_left == 0;
      const int64_t chunk = std::min(one.prompt_left, room);
      one.prompt_left -= chunk;
      room -= chunk;
      done += chunk;
      if (!decodes && one.prompt_left > 0) continue;
      if (!decodes) begun(replica, one);
      --one.outputs_left;
      ++done;
      ++tokens_;
    }
    LoopLoad& load = offers_[i].load;
    load.tokens -= done;
    std::erase_if(replica.running, [&](const Request& one) {
      if (one.outputs_left > 0) return false;
      --load.outputs;
      if (one.stream >= 0) events_.push({.ms = now_, .stream = one.stream});
      return true;
    });
    last_ = now_;
    share_out();
    begin_step(i);
  }

  void begun(Replica& replica, const Request& request) {
    first_ms_.push_back(now_ - request.arrived);
    if (request.prefix < 0) return;
    replica.prefixes[request.prefix] = now_;
    if (std::ssize(replica.prefixes) > traffic_.cached_prefixes)
      replica.prefixes.erase(
          std::ranges::min_element(replica.prefixes, {}, [](const auto& one) { return one.second; }));
  }

  Simulated result() {
    std::ranges::sort(first_ms_);
    const auto quantile = [this](double share) {
      return first_ms_[static_cast<size_t>(share * static_cast<double>(first_ms_.size() - 1))];
    };
    return {.tokens_per_s = static_cast<double>(tokens_) / last_ * 1e3 / static_cast<double>(setup_.replicas),
            .first_token_ms_median = quantile(0.5),
            .first_token_ms_p99 = quantile(0.99),
            .found = static_cast<double>(found_) / static_cast<double>(asked_)};
  }

  const StepTimes& times_;
  const Traffic& traffic_;
  const Setup& setup_;
  std::mt19937_64 random_;
  std::vector<Replica> replicas_;
  std::vector<ReplicaOffer> offers_;
  std::deque<Request> queue_;
  std::priority_queue<Event> events_;
  size_t next_ = 0;
  double now_ = 0, last_ = 0;
  int64_t left_ = 0, tokens_ = 0, found_ = 0, asked_ = 0;
  std::vector<double> first_ms_;
};

}  // namespace

double at(const Curve& curve, double x) {
  const auto above = std::ranges::lower_bound(curve, x, {}, &std::pair<double, double>::first);
  if (above == curve.end()) return curve.back().second;
  if (above == curve.begin() || above->first == x) return above->second;
  const auto [x0, y0] = *(above - 1);
  return y0 + (above->second - y0) * (x - x0) / (above->first - x0);
}

// A step with prompts takes no less than one of its decoding rows alone.
double StepTimes::step_ms(int64_t decode_rows, int64_t prompt_tokens) const {
  const double alone = decode_rows == 0 ? 0 : at(decode, static_cast<double>(decode_rows));
  return prompt_tokens == 0 ? alone : std::max(alone, at(prompt, static_cast<double>(decode_rows + prompt_tokens)));
}

Simulated simulate(const StepTimes& times, const Traffic& traffic, const Setup& setup) {
  return Simulation(times, traffic, setup).run();
}

}  // namespace nodewright::routing
