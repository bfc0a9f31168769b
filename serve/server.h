// The server: paths of the API and the page on HTTP connections, the engines' loops behind them. It answers /health,
// /ready, / and /live before there is a model.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/api/openai_api.h"
#include "serve/http/browser_rules.h"
#include "serve/http/http_server.h"
#include "serve/page/plan_pages.h"
#include "serve/replicas/replicas.h"
#include "serve/served_call.h"
#include "serve/work_pool.h"

namespace nodewright {

struct ServerOptions {
  HttpOptions http;
  std::vector<std::string> api_keys;       // empty: anybody may call
  std::vector<std::string> allowed_hosts;  // names of this server in the header Host (serve/http/browser_rules.h)
  size_t workers = 2;                      // threads that parse and tokenize
  size_t most_waiting = 4096;              // calls that wait for one of them
  uint64_t most_work = 2'000'000'000;      // units of WorkBudget for a call's body; beyond: 400
  // A call that has been with a worker for longer hangs it: /health is 503. Work within most_work takes seconds.
  std::chrono::milliseconds hangs_after{60'000};
  bool offers_sleep = false;                // there are /sleep, /wake_up and /is_sleeping
  bool changes_adapters = false;            // there are /v1/load_lora_adapter and /v1/unload_lora_adapter
  AccessLog log;                            // on any thread, where it must not block; may be empty
  std::function<uint64_t()> lines_dropped;  // of the log and other diagnostics, for /metrics; may be empty
};

// Every method may be called from any thread.
class Server {
 public:
  // Listens at once. `replicas` must outlive this. Throws Error as HttpServer does.
  Server(ServerOptions options, Replicas& replicas);
  ~Server();

  // From now on calls are taken, and /plan shows `plans`. `api` must outlive this; once.
  // `read_adapter`: of a folder, on any thread; only with ServerOptions::changes_adapters.
  using ReadAdapter = std::function<std::shared_ptr<const AdapterImage>(const std::filesystem::path& folder)>;
  void serve(OpenAiApi& api, PlanPages plans = {}, ReadAdapter read_adapter = {});
  uint16_t port() const { return http_.port(); }
  size_t open_requests() const { return http_.open_requests(); }
  // New connections are refused; open requests go on.
  void stop_accepting() { http_.stop_accepting(); }
  // Closes all connections, and waits up to `patience` for the calls that are being read, which end early. True:
  // afterwards nothing uses what serve() was given. False: a worker hangs, and what it uses must stay.
  bool stop(std::chrono::milliseconds patience = std::chrono::hours(1));

 private:
  struct Asked {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;
    std::string request_id;
    std::chrono::steady_clock::time_point arrived;
  };
  struct Route;

  // Why a request is not answered, before its body is looked at.
  struct NotAnswered {
    ApiError error;
    HttpHeaders headers;
  };

  static const std::vector<Route>& routes();
  HttpOptions with_refusals(HttpOptions options);
  static BrowserRules rules_for(const ServerOptions& options);
  // The route for this method and path. Where there is none: null, and `allowed` is the method that the path has.
  const Route* route_of(const HttpRequest& head, std::string& allowed) const;
  std::optional<NotAnswered> why_not_answered(const HttpRequest& head, bool has_body) const;
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void dispatch(const Route& route, std::shared_ptr<Asked> asked);
  void answer_model(const Asked& asked, OpenAiApi& api);
  bool may_call(const HttpRequest& request) const;
  void answer_page(const Asked& asked);
  std::string metrics_text() const;
  void answer_health(const Asked& asked);
  void perform(const Route& route, Asked& asked, const std::function<bool()>& is_cancelled);
  void leave(const Asked& asked);
  void answer_live(const Asked& asked);
  void answer_plan(const Asked& asked);
  void order(const Asked& asked, SleepOrder order);
  void load_adapter(const Asked& asked, const ServedModel& model);
  void unload_adapter(const Asked& asked, const ServedModel& model);
  ApiError not_changed(const ApiError& problem) const;
  void call(Asked& asked, std::unique_ptr<ApiCall> call);
  void answer(const Asked& asked, int status, std::string_view type, std::string body, const HttpHeaders& more = {});
  void answer(const Asked& asked, const ApiError& error, const HttpHeaders& more = {});

  ServerOptions options_;
  const BrowserRules browser_rules_;
  Replicas& replicas_;
  AccessLog log_;
  PlanPages plans_;           // written before api_ is
  ReadAdapter read_adapter_;  // the same
  std::atomic<OpenAiApi*> api_ = nullptr;
  // A link cannot carry a key: a client with the key gets this ticket, and /plan takes it instead.
  const std::string plan_ticket_;
  WorkPool workers_;
  HttpServer http_;  // last: it calls handle()
};

}  // namespace nodewright
