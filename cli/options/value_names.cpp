#include "cli/options/value_names.h"

#include <map>
#include <string>

namespace nodewright::cli {
namespace {

constexpr const char* kDevices = "auto|cuda|cuda:N|cpu";

const std::map<std::string, const char*> kValueNames = {{"--model", "DIR"},
                                                        {"--against", "DIR"},
                                                        {"--device", kDevices},
                                                        {"--prompt-file", "FILE"},
                                                        {"--prompt-ids", "IDS"},
                                                        {"--template-arg", "NAME=VALUE"},
                                                        {"--chat-template", "FILE"},
                                                        {"--adapter", "NAME=DIR"},
                                                        {"--merge-adapter", "NAME=DIR"},
                                                        {"--stop-token-ids", "IDS"},
                                                        {"--logit-bias", "ID=BIAS"},
                                                        {"--regex", "PATTERN"},
                                                        {"--json-schema", "SCHEMA|FILE"},
                                                        {"--memory-limit", "SIZE"},
                                                        {"--adapter-memory", "SIZE"},
                                                        {"--tuning", "auto|none|FILE"},
                                                        {"--prefill", "graph|piecewise|eager"},
                                                        {"--forms", "graph|piecewise|eager"},
                                                        {"--buckets", "exact|N"},
                                                        {"--requests", "FILE"},
                                                        {"--hidden-dir", "DIR"},
                                                        {"--log", "FILE"},
                                                        {"--out", "FILE"},
                                                        {"--timeline", "FILE"},
                                                        {"--blocks", "FILE"},
                                                        {"--plot", "FILE"},
                                                        {"--timings", "FILE"},
                                                        {"--host", "HOST"},
                                                        {"--uds", "FILE"},
                                                        {"--served-model-name", "NAME"},
                                                        {"--api-key", "KEY"},
                                                        {"--cors-origin", "ORIGIN"},
                                                        {"--allowed-host", "NAME"},
                                                        {"--rendezvous", "HOST:PORT"},
                                                        {"--kv-events-endpoint", "ENDPOINT"},
                                                        {"--kv-events-replay-endpoint", "ENDPOINT"},
                                                        {"--kv-events-topic", "TOPIC"},
                                                        {"--continue", "IDS"},
                                                        {"--decode", "IDS"},
                                                        {"--parts", "PART"},
                                                        {"--sampling", "WORDS"},
                                                        {"--url", "URL"},
                                                        {"--prompt-tokens", "LENGTHS"},
                                                        {"--output-tokens", "LENGTHS"},
                                                        {"--commit", "COMMIT"},
                                                        {"--scale-shapes", "SHAPE"},
                                                        {"LOG", "FILE"}};

// Where a command means something else by the name.
const std::map<std::string, const char*> kOfCommands = {{"inspect --device", "auto|none|cuda|cuda:N|cpu"},
                                                        {"quantize --out", "DIR"}};

void name_value(const CLI::App& command, CLI::Option& option) {
  if (option.get_type_size() == 0 || option.get_type_name() != "TEXT") return;
  const std::string name = option.get_lnames().empty() ? option.get_name(true) : "--" + option.get_lnames().front();
  if (const auto own = kOfCommands.find(command.get_name() + " " + name); own != kOfCommands.end())
    option.type_name(own->second);
  else if (const auto named = kValueNames.find(name); named != kValueNames.end())
    option.type_name(named->second);
}

}  // namespace

void name_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) name_value(app, *option);
  for (CLI::App* command : app.get_subcommands({})) name_values(*command);
}

}  // namespace nodewright::cli
