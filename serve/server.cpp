#include "serve/server.h"

#include <algorithm>
#include <exception>
#include <random>
#include <utility>

#include "runtime/error.h"
#include "serve/adapter_calls.h"
#include "serve/api/call_id.h"
#include "serve/http/query_fields.h"
#include "serve/metrics/metric_text.h"
#include "serve/page/page_files.h"
#include "serve/replicas/replica_states.h"
#include "serve/sleep_calls.h"

namespace nodewright {
namespace {

constexpr const char* kJson = "application/json";
// As the plan's page has it in its head: its styles and scripts stand in it.
constexpr const char* kPlanPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'";

bool same_in_constant_time(std::string_view given, std::string_view key) {
  size_t differences = given.size() ^ key.size();
  for (size_t i = 0; i < given.size(); ++i)
    differences |= static_cast<size_t>(static_cast<unsigned char>(given[i]) ^
                                       static_cast<unsigned char>(key.empty() ? 0 : key[i % key.size()]));
  return differences == 0;
}

ApiError no_key() { return {401, "the API key is missing or wrong: Authorization: Bearer KEY, or X-Api-Key: KEY"}; }

// A client's own is echoed, if it is a word.
std::string request_id_of(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool is_word = !given.empty() && given.size() <= 256 &&
                       std::ranges::all_of(given, [](unsigned char c) { return c > ' ' && c < 0x7f; });
  return is_word ? std::string(given) : random_id("");
}

}  // namespace

// What stands behind a path.
struct Server::Route {
  std::string_view method, path;
  bool is_open;     // without a key
  bool takes_time;  // more than an I/O thread has
  bool needs_model;
  void (*act)(Server& server, Asked& asked);
  bool ServerOptions::*offered = nullptr;  // there only where this is true; null: always
};

const std::vector<Server::Route>& Server::routes() {
  static const auto api = [](Server& server) -> OpenAiApi& { return *server.api_.load(); };
  static const std::vector<Route> routes{
      {"GET", "/health", true, false, false, [](Server& s, Asked& a) { s.answer_health(a); }},
      {"GET", "/ready", true, false, false,
       [](Server& s, Asked& a) {
         const Admission admission = s.replicas_.admission();
         const bool ready = admission == Admission::accepted || admission == Admission::full;
         s.answer(a, ready ? 200 : 503, "text/plain", ready ? "" : not_accepted(admission).message() + "\n");
       }},
      {"GET", "/metrics", true, false, false,
       [](Server& s, Asked& a) { s.answer(a, 200, "text/plain; version=0.0.4; charset=utf-8", s.metrics_text()); }},
      {"GET", "/", true, false, false, [](Server& s, Asked& a) { s.answer_page(a); }},
      {"GET", "/live", false, true, false, [](Server& s, Asked& a) { s.answer_live(a); }},
      {"GET", "/plan", true, true, true, [](Server& s, Asked& a) { s.answer_plan(a); }},
      {"GET", "/version", false, false, true, [](Server& s, Asked& a) { s.answer(a, 200, kJson, api(s).version()); }},
      {"GET", "/v1/models", false, false, true, [](Server& s, Asked& a) { s.answer(a, 200, kJson, api(s).models()); }},
      {"GET", "/tokenizer_info", false, true, true,
       [](Server& s, Asked& a) { s.answer(a, 200, kJson, api(s).tokenizer_info()); }},
      {"POST", "/sleep", false, false, true, [](Server& s, Asked& a) { s.order(a, asked_sleep(a.request.query)); },
       &ServerOptions::offers_sleep},
      {"POST", "/wake_up", false, false, true, [](Server& s, Asked& a) { s.order(a, asked_wake(a.request.query)); },
       &ServerOptions::offers_sleep},
      {"GET", "/is_sleeping", false, false, true,
       [](Server& s, Asked& a) { s.answer(a, 200, kJson, is_sleeping_body(s.replicas_.sleep_level())); },
       &ServerOptions::offers_sleep},
      {"POST", "/v1/load_lora_adapter", false, true, true,
       [](Server& s, Asked& a) { s.load_adapter(a, api(s).model()); }, &ServerOptions::changes_adapters},
      {"POST", "/v1/unload_lora_adapter", false, true, true,
       [](Server& s, Asked& a) { s.unload_adapter(a, api(s).model()); }, &ServerOptions::changes_adapters},
      {"POST", "/tokenize", false, true, true,
       [](Server& s, Asked& a) { s.answer(a, 200, kJson, api(s).tokenize(a.request.body)); }},
      {"POST", "/detokenize", false, true, true,
       [](Server& s, Asked& a) { s.answer(a, 200, kJson, api(s).detokenize(a.request.body)); }},
      {"POST", "/v1/completions", false, true, true,
       [](Server& s, Asked& a) { s.call(a, api(s).completions(a.request.body, a.request_id)); }},
      {"POST", "/v1/chat/completions", false, true, true,
       [](Server& s, Asked& a) { s.call(a, api(s).chat(a.request.body, a.request_id)); }},
      {"POST", "/v1/completions/render", false, true, true,
       [](Server& s, Asked& a) { s.answer(a, 200, kJson, api(s).render_completion(a.request.body)); }},
      {"POST", "/v1/chat/completions/render", false, true, true,
       [](Server& s, Asked& a) { s.answer(a, 200, kJson, api(s).render_chat(a.request.body)); }},
  };
  return routes;
}

Server::Server(ServerOptions options, Replicas& replicas)
    : options_(std::move(options)),
      replicas_(replicas),
      log_([this](const AccessLine& line) {
        replicas_.metrics(0).answered(line.status);
        if (options_.log) options_.log(line);
      }),
      plan_ticket_(random_id("")),
      workers_(options_.workers, options_.most_waiting),
      http_(with_refusals(options_.http), [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
        handle(std::move(request), std::move(reply));
      }) {
  http_.start();
}

Server::~Server() { stop(); }

// What never becomes a request has an id as well, and a line in the log.
HttpOptions Server::with_refusals(HttpOptions options) {
  options.refused = [this](const HttpRequest& seen, int status) {
    const std::string id = request_id_of(seen);
    log_({.peer = seen.peer, .method = "-", .path = "-", .request_id = id, .status = status});
    return answer_headers(id, status);
  };
  return options;
}

void Server::stop() {
  http_.stop();
  workers_.stop();
}

void Server::serve(OpenAiApi& api, PlanPages plans, ReadAdapter read_adapter) {
  plans_ = std::move(plans);
  read_adapter_ = std::move(read_adapter);
  api_ = &api;
}

void Server::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  auto asked = std::make_shared<Asked>();
  asked->request_id = request_id_of(request);
  asked->request = std::move(request);
  asked->reply = std::move(reply);
  asked->arrived = std::chrono::steady_clock::now();
  std::string allowed;
  for (const Route& route : routes()) {
    if (route.path != asked->request.path || (route.offered != nullptr && !(options_.*route.offered))) continue;
    const bool is_head = asked->request.method == "HEAD" && route.method == "GET";
    if (route.method == asked->request.method || is_head) return dispatch(route, std::move(asked));
    allowed = route.method;
  }
  if (allowed.empty() && !page_answer(asked->request.path).type.empty()) {
    if (asked->request.method == "GET" || asked->request.method == "HEAD") return answer_page(*asked);
    allowed = "GET";
  }
  if (allowed.empty()) return answer(*asked, {404, "there is no " + asked->request.path});
  const ApiError error(405, asked->request.path + " takes " + allowed + ", not " + asked->request.method);
  answer(*asked, 405, kJson, error_body(error), {{"Allow", allowed}});
}

void Server::dispatch(const Route& route, std::shared_ptr<Asked> asked) {
  if (!route.is_open && !may_call(asked->request)) return answer(*asked, no_key());
  if (route.needs_model && api_.load() == nullptr) return answer(*asked, not_accepted(Admission::loading));
  const auto act = [this, act = route.act, asked] {
    try {
      act(*this, *asked);
    } catch (const ApiError& error) {
      answer(*asked, error);
    } catch (const std::exception& error) {
      answer(*asked, {500, error.what()});
    }
    asked->reply.reset();
  };
  if (!route.takes_time) return act();
  if (!workers_.post(act)) answer(*asked, not_accepted(Admission::full));
}

bool Server::may_call(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  constexpr std::string_view kScheme = "bearer ";  // in any case
  std::string_view bearer = request.header("authorization");
  const bool has_scheme =
      bearer.size() >= kScheme.size() && std::equal(kScheme.begin(), kScheme.end(), bearer.begin(), [](char a, char b) {
        return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + ('a' - 'A')) : b);
      });
  bearer.remove_prefix(has_scheme ? kScheme.size() : bearer.size());
  return std::ranges::any_of(options_.api_keys, [&](const std::string& key) {
    return same_in_constant_time(bearer, key) || same_in_constant_time(request.header("x-api-key"), key);
  });
}

void Server::answer_page(const Asked& asked) {
  const PageAnswer page = page_answer(asked.request.path);
  answer(asked, 200, page.type, std::string(page.text),
         {{"Content-Security-Policy", std::string(kPagePolicy)},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cache-Control", "no-cache"}});
}

std::string Server::metrics_text() const {
  MetricText own({});
  if (options_.lines_dropped)
    own.counter("nodewright_log_lines_dropped_total", "Lines that standard error did not take",
                static_cast<double>(options_.lines_dropped()));
  return replicas_.metrics_text() + own.text();
}

void Server::answer_health(const Asked& asked) {
  const bool failed = replicas_.admission() == Admission::failed;
  if (replicas_.count() > 1) return answer(asked, failed ? 503 : 200, kJson, health_body(replicas_.states()));
  answer(asked, failed ? 503 : 200, "text/plain", failed ? "the engine has failed\n" : "");
}

void Server::answer_live(const Asked& asked) {
  HttpHeaders more{{"Cache-Control", "no-store"}};
  if (!options_.api_keys.empty()) more.emplace_back("x-plan-ticket", plan_ticket_);
  answer(asked, 200, kJson, live_body(replicas_), more);
}

void Server::answer_plan(const Asked& asked) {
  const std::string_view ticket = query_value(asked.request.query, "ticket");
  if (!may_call(asked.request) && !same_in_constant_time(ticket, plan_ticket_)) return answer(asked, no_key());
  answer(asked, 200, "text/html; charset=utf-8", plans_.html(asked.request.query),
         {{"Content-Security-Policy", kPlanPolicy},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cache-Control", "no-store"}});
}

// The engine's thread answers, in its time.
void Server::order(const Asked& asked, SleepOrder order) {
  order.told = [this, asked](const SleepOutcome& outcome) {
    if (outcome.end == SleepEnd::done) return answer(asked, 200, kJson, sleep_body(outcome));
    answer(asked, sleep_error(outcome, not_accepted(replicas_.admission())));
  };
  replicas_.order(std::move(order));
}

// Read here; the engine's thread takes it between two steps, and answers.
void Server::load_adapter(const Asked& asked, const ServedModel& model) {
  const AskedAdapter adapter = asked_load(model, asked.request.body);
  if (const std::string full = model.adapters->reserve(adapter.name); !full.empty())
    throw bad_request(full, "lora_name");
  std::shared_ptr<const AdapterImage> image;
  try {
    image = read_adapter_(adapter.folder);
  } catch (const Error& error) {
    model.adapters->give_up(adapter.name);
    throw bad_request(error.what(), "lora_path");
  } catch (...) {
    model.adapters->give_up(adapter.name);
    throw;
  }
  replicas_.change({adapter.name, std::move(image), [this, asked, adapter, &model](const std::string& problem) {
                      if (!problem.empty()) {
                        model.adapters->give_up(adapter.name);
                        return answer(asked, bad_request(problem, "lora_name"));
                      }
                      model.adapters->add(adapter.name, adapter.folder);
                      answer(asked, 200, "text/plain", loaded_text(adapter.name));
                    }});
}

void Server::unload_adapter(const Asked& asked, const ServedModel& model) {
  const std::string name = asked_unload(model, asked.request.body);
  replicas_.change({name, nullptr, [this, asked, name, &model](const std::string& problem) {
                      if (!problem.empty()) return answer(asked, {404, problem, "lora_name"});
                      model.adapters->remove(name);
                      answer(asked, 200, "text/plain", unloaded_text(name));
                    }});
}

void Server::call(Asked& asked, std::unique_ptr<ApiCall> call) {
  AccessLine line{.peer = asked.request.peer,
                  .method = asked.request.method,
                  .path = asked.request.path,
                  .request_id = asked.request_id};
  std::make_shared<ServedCall>(std::move(call), asked.reply, replicas_, std::move(line), log_)->begin();
}

void Server::answer(const Asked& asked, int status, std::string_view type, std::string body, const HttpHeaders& more) {
  HttpHeaders headers = answer_headers(asked.request_id, status);
  headers.insert(headers.end(), more.begin(), more.end());
  asked.reply->send(status, type, std::move(body), headers);
  log_({.peer = asked.request.peer,
        .method = asked.request.method,
        .path = asked.request.path,
        .request_id = asked.request_id,
        .status = status,
        .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - asked.arrived).count()});
}

void Server::answer(const Asked& asked, const ApiError& error) {
  answer(asked, error.status(), kJson, error_body(error));
}

}  // namespace nodewright
