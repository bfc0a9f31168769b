// The server: paths of the API and the page on HTTP connections, the engines' loops behind them. It answers /health,
// /ready, / and /live before there is a model.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/api/openai_api.h"
#include "serve/http/http_server.h"
#include "serve/page/plan_pages.h"
#include "serve/replicas/replicas.h"
#include "serve/served_call.h"
#include "serve/work_pool.h"

namespace nodewright {

struct ServerOptions {
  HttpOptions http;
  std::vector<std::string> api_keys;        // empty: anybody may call
  size_t workers = 2;                       // threads that parse and tokenize
  size_t most_waiting = 4096;               // calls that wait for one of them
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
  // Closes all connections, and waits for the calls that are being read: afterwards nothing uses what serve() was
  // given.
  void stop();

 private:
  struct Asked {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;
    std::string request_id;
    std::chrono::steady_clock::time_point arrived;
  };
  struct Route;

  static const std::vector<Route>& routes();
  HttpOptions with_refusals(HttpOptions options);
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void dispatch(const Route& route, std::shared_ptr<Asked> asked);
  bool may_call(const HttpRequest& request) const;
  void answer_page(const Asked& asked);
  std::string metrics_text() const;
  void answer_health(const Asked& asked);
  void answer_live(const Asked& asked);
  void answer_plan(const Asked& asked);
  void order(const Asked& asked, SleepOrder order);
  void load_adapter(const Asked& asked, const ServedModel& model);
  void unload_adapter(const Asked& asked, const ServedModel& model);
  void call(Asked& asked, std::unique_ptr<ApiCall> call);
  void answer(const Asked& asked, int status, std::string_view type, std::string body, const HttpHeaders& more = {});
  void answer(const Asked& asked, const ApiError& error);

  ServerOptions options_;
  Replicas& replicas_;
  AccessLog log_;
  PlanPages plans_;           // written before api_ is
  ReadAdapter read_adapter_;  // the same
  std::atomic<OpenAiApi*> api_ = nullptr;
  // A link cannot carry a key: who has one is told this, and /plan takes it instead.
  const std::string plan_ticket_;
  WorkPool workers_;
  HttpServer http_;  // last: it calls handle()
};

}  // namespace nodewright
