// A server of OpenAI's interface as its clients see it: the requests of traffic_bench.h, sent over HTTP as streamed
// completions. Knows no engine: any server will do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/spread.h"
#include "bench/steps/arrivals.h"

namespace nodewright {

struct HttpTrafficOptions {
  std::string url;                       // http://HOST:PORT or unix:PATH
  std::string model;                     // as the server calls it
  std::string api_key;                   // empty: none
  std::string fields;                    // more of each body, as JSON: `,"temperature":0`
  std::vector<PlannedRequest> requests;  // prompts are token ids
  int64_t concurrency = 0;               // requests that are open at once, whatever their arrival says; 0: by arrival
  uint64_t seed = 0;                     // of the prompts
  int64_t vocab = 0;                     // that prompts are drawn from
  int rounds = 1;                        // of the same requests with other tokens, whose figures are one sample
  int64_t idle_connections = 0;          // open meanwhile, without a request
};

// By the arrival of events at the client.
struct HttpTrafficFigures : RequestFigures {
  int64_t events = 0;
};

// Ends when every request has. Throws Error when one is refused or fails, with the server's words.
HttpTrafficFigures measure_http_traffic(const HttpTrafficOptions& options);

}  // namespace nodewright
