#include "serve/server.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <random>
#include <utility>

#include "base/work_budget.h"
#include "runtime/error.h"
#include "serve/adapter_calls.h"
#include "serve/api/call_id.h"
#include "serve/http/messages/http_text.h"
#include "serve/http/messages/query_fields.h"
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

// Who takes turns with others: the holder of a key, or where there are none a machine.
std::string client_of(const HttpRequest& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return request.peer.substr(0, request.peer.rfind(':'));
  const std::string_view bearer = request.header("authorization"), key = request.header("x-api-key");
  return std::string(key.empty() ? bearer : key);
}

ApiError no_key() { return {401, "the API key is missing or wrong: Authorization: Bearer KEY, or X-Api-Key: KEY"}; }

// A client's own is echoed, if it is a word.
std::string request_id_of(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool is_word = !given.empty() && given.size() <= 256 &&
                       std::ranges::all_of(given, [](unsigned char c) { return c > ' ' && c < 0x7f; });
  return is_word ? std::string(given) : random_id("");
}

// Nothing of an answer is guessed to be a page, and no other site's page may embed it.
const HttpHeaders kEveryAnswer = {{"X-Content-Type-Options", "nosniff"},
                                  {"Cross-Origin-Resource-Policy", "same-origin"}};

constexpr std::string_view kModelPath = "/v1/models/";  // followed by a model's name

// Clients that join an address and a path often write one slash too many.
std::string_view without_last_slash(std::string_view path) {
  return path.size() > 1 && path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
}

std::string own_host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
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
  bool reads_files = false;                // of any size: a slow call is no stuck worker
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
      {"GET", kModelPath, false, false, true, [](Server& s, Asked& a) { s.answer_model(a, api(s)); }},
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
       [](Server& s, Asked& a) { s.load_adapter(a, api(s).model()); }, &ServerOptions::changes_adapters, true},
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
      browser_rules_(rules_for(options_)),
      replicas_(replicas),
      log_([this](const AccessLine& line) {
        replicas_.metrics(0).answered(line.status);
        if (options_.log) options_.log(line);
      }),
      plan_ticket_(random_id("")),
      workers_({.threads = options_.workers, .most_waiting = options_.most_waiting}),
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
    const bool is_known = !seen.path.empty();
    log_({.peer = seen.peer,
          .method = is_known ? seen.method : "-",
          .path = is_known ? seen.path : "-",
          .request_id = id,
          .status = status});
    return answer_headers(id, status);
  };
  options.refuse_head = [this](const HttpRequest& head) -> std::optional<HttpRefusal> {
    const std::optional<NotAnswered> why = why_not_answered(head, true);
    if (!why) return std::nullopt;
    return HttpRefusal{why->error.status(), kJson, error_body(why->error), why->headers};
  };
  options.headers.insert(options.headers.end(), kEveryAnswer.begin(), kEveryAnswer.end());
  options.kept_paths = {"/health", "/ready", "/metrics"};
  return options;
}

BrowserRules Server::rules_for(const ServerOptions& options) {
  BrowserRules rules{.hosts = options.allowed_hosts, .origin = options.http.cors_origin};
  rules.hosts.push_back(options.http.host);
  rules.hosts.push_back(own_host_name());
  return rules;
}

bool Server::stop(std::chrono::milliseconds patience) {
  http_.stop();
  return workers_.stop(patience);
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
  const HttpRequest& seen = asked->request;
  if (const auto why = why_not_answered(seen, !seen.body.empty())) return answer(*asked, why->error, why->headers);
  std::string allowed;
  if (const Route* const route = route_of(seen, allowed)) return dispatch(*route, std::move(asked));
  answer_page(*asked);
}

const Server::Route* Server::route_of(const HttpRequest& head, std::string& allowed) const {
  const std::string_view path = without_last_slash(head.path);
  for (const Route& route : routes()) {
    const bool is_its = route.path == path || (route.path == kModelPath && path.starts_with(kModelPath));
    if (!is_its || (route.offered != nullptr && !(options_.*route.offered))) continue;
    const bool is_head = head.method == "HEAD" && route.method == "GET";
    if (route.method == head.method || is_head) return &route;
    allowed = route.method;
  }
  return nullptr;
}

// Checks in the order in which a caller without a key learns least: origin, route, key, form of the body.
std::optional<Server::NotAnswered> Server::why_not_answered(const HttpRequest& head, bool has_body) const {
  std::string allowed;
  const Route* const route = route_of(head, allowed);
  const bool is_page = route == nullptr && !page_answer(head.path).type.empty();
  const bool is_linked = is_page || (route != nullptr && (route->path == "/" || route->path == "/plan"));
  const std::string foreign = why_foreign(browser_rules_, head, is_linked);
  if (!foreign.empty()) return NotAnswered{{403, foreign}, {}};
  const bool gets = head.method == "GET" || head.method == "HEAD";
  if (is_page && !gets) allowed = "GET";
  if (route == nullptr && !(is_page && gets)) {
    if (allowed.empty()) return NotAnswered{{404, "there is no " + head.path}, {}};
    return NotAnswered{{405, head.path + " takes " + allowed + ", not " + head.method}, {{"Allow", allowed}}};
  }
  if (route != nullptr && !route->is_open && !may_call(head)) return NotAnswered{no_key(), {}};
  if (has_body && gets) return NotAnswered{{413, head.method + " " + head.path + " takes no body"}, {}};
  const std::string_view encoding = head.header("Content-Encoding");
  if (has_body && !encoding.empty() && !same_ignoring_case(encoding, "identity"))
    return NotAnswered{{415, "the body has a Content-Encoding, and bodies are read as they are: send plain JSON"},
                       {{"Accept-Encoding", "identity"}}};
  if (has_body && !is_json_type(head.header("Content-Type")))
    return NotAnswered{{415, "the body needs the header Content-Type: application/json"}, {{"Accept", kJson}}};
  if (route != nullptr && route->needs_model && api_.load() == nullptr)
    return NotAnswered{not_accepted(Admission::loading), {}};
  return std::nullopt;
}

void Server::dispatch(const Route& route, std::shared_ptr<Asked> asked) {
  if (!route.takes_time) return perform(route, *asked, {});
  const auto gone = std::make_shared<std::atomic<bool>>(false);  // the client is
  asked->reply->when_gone([gone] { *gone = true; });
  const auto job = [this, &route, asked, gone] {
    perform(route, *asked, [&] { return *gone || workers_.is_stopping(); });
    asked->reply.reset();
  };
  if (!workers_.post(job, client_of(asked->request, options_.api_keys), !route.reads_files))
    answer(*asked, not_accepted(Admission::full));
}

// Under a WorkBudget, which stops the work when the client is gone.
void Server::perform(const Route& route, Asked& asked, const std::function<bool()>& is_cancelled) {
  try {
    if (is_cancelled && is_cancelled()) return leave(asked);
    const WorkBudget budget(options_.most_work, is_cancelled);
    route.act(*this, asked);
  } catch (const ApiError& error) {
    answer(asked, error);
  } catch (const WorkExceeded& error) {
    answer(asked, bad_request(error.what()));
  } catch (const WorkCancelled&) {
    leave(asked);
  } catch (const std::exception& error) {
    answer(asked, {500, error.what()});
  }
}

void Server::answer_model(const Asked& asked, OpenAiApi& api) {
  const std::string_view path = without_last_slash(asked.request.path);
  answer(asked, 200, kJson, api.model_named(percent_decoded(path.substr(kModelPath.size()))));
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
  if (workers_.longest() > options_.hangs_after)
    return answer(asked, 503, "text/plain", "a worker hangs: a call is being read for longer than it may take\n");
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
         {{"Content-Security-Policy", kPlanPolicy}, {"Referrer-Policy", "no-referrer"}, {"Cache-Control", "no-store"}});
}

// The engine's thread answers, in its time.
void Server::order(const Asked& asked, SleepOrder order) {
  order.told = [this, asked](const SleepOutcome& outcome) {
    if (outcome.end == SleepEnd::done) return answer(asked, 200, kJson, sleep_body(outcome));
    answer(asked, sleep_error(outcome, not_accepted(replicas_.admission())));
  };
  replicas_.order(std::move(order));
}

// Why the engine's thread did not change its adapters: `problem`, unless it takes no more orders at all.
ApiError Server::not_changed(const ApiError& problem) const {
  const Admission admission = replicas_.admission();
  const bool has_ended = admission == Admission::draining || admission == Admission::failed;
  return has_ended ? not_accepted(admission) : problem;
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
                        return answer(asked, not_changed(bad_request(problem, "lora_name")));
                      }
                      model.adapters->add(adapter.name, adapter.folder);
                      answer(asked, 200, "text/plain", loaded_text(adapter.name));
                    }});
}

void Server::unload_adapter(const Asked& asked, const ServedModel& model) {
  const std::string name = asked_unload(model, asked.request.body);
  const std::optional<ServedAdapter> adapter = model.adapters->withdraw(name);
  if (!adapter) throw no_such_adapter(name, "lora_name");  // another call was first
  replicas_.change({name, nullptr, [this, asked, adapter = *adapter, &model](const std::string& problem) {
                      if (problem.empty()) return answer(asked, 200, "text/plain", unloaded_text(adapter.name));
                      model.adapters->restore(adapter);
                      answer(asked, not_changed({404, problem, "lora_name"}));
                    }});
}

void Server::call(Asked& asked, std::unique_ptr<ApiCall> call) {
  AccessLine line{.peer = asked.request.peer,
                  .method = asked.request.method,
                  .path = asked.request.path,
                  .request_id = asked.request_id};
  const uint64_t client = std::hash<std::string>()(client_of(asked.request, options_.api_keys));
  std::make_shared<ServedCall>(std::move(call), asked.reply, replicas_, std::move(line), log_, client)->begin();
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

// The client has gone: nobody is answered.
void Server::leave(const Asked& asked) {
  log_({.peer = asked.request.peer,
        .method = asked.request.method,
        .path = asked.request.path,
        .request_id = asked.request_id,
        .status = 499,
        .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - asked.arrived).count()});
}

void Server::answer(const Asked& asked, const ApiError& error, const HttpHeaders& more) {
  answer(asked, error.status(), kJson, error_body(error), more);
}

}  // namespace nodewright
