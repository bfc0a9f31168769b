// The engine of the commands that serve requests (run, serve, generate, chat, bench serve): its options, and their
// defaults where the command line is silent.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/session.h"
#include "engine/engine.h"

namespace nodewright::cli {

struct EngineSettings {
  EngineOptions engine;  // what is set as it stands on the command line; max_batch is the command's
  std::optional<int> step_tokens;
  std::optional<int64_t> products_from;
  std::string prefill = "graph", schedule = "mixed", memory_limit;
  bool no_prefix_cache = false, no_pipelining = false;
  std::filesystem::path log;          // of each step; empty: none
  std::vector<std::string> adapters;  // NAME=DIR each (cli/options/adapter_options.h)
  std::optional<int> max_adapters;
  bool loads_adapters = false;  // others may come while it serves
  std::function<bool()> logs;   // whether a step that is committed now is written to it; empty: every one is
};

// The options that fill the settings, --step-tokens to --log.
void add_engine_options(CLI::App& command, EngineSettings& settings);

// What the requests of a command ask of its engine.
struct EngineNeeds {
  int64_t prompt_tokens = 0;  // of all prompts together; more than a step takes where they are not known yet
  bool one_prompt = false;    // it is one prompt's, and no other comes: graphs for its own steps are enough
  int64_t max_context = 1;    // tokens of the longest request; no more than the session's context limit is used
  bool choices = false;
  HiddenStates hidden = HiddenStates::none;
};

// Prompt tokens that go through the layers at once where the command serves one prompt on one sequence.
int64_t rows_of_one_prompt(Session& session, int64_t prompt_tokens);

// The options with which make_engine() makes an engine, without its callbacks.
EngineOptions engine_options(const EngineSettings& settings, const SessionOptions& options, Session& session,
                             const EngineNeeds& needs);

// Builds it and loads the adapters of the command line, with a progress bar on stderr when that is a terminal. Steps
// that run without a graph are reported there, too.
std::unique_ptr<Engine> make_engine(const EngineSettings& settings, const SessionOptions& options, Session& session,
                                    const EngineNeeds& needs);

}  // namespace nodewright::cli
