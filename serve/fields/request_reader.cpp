#include "serve/fields/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "engine/sampling/sampling_range.h"
#include "engine/sampling/seeds.h"
#include "serve/fields/denying_fields.h"
#include "serve/tools/chat_rendering.h"

namespace nodewright {
namespace {

constexpr int64_t kMostOutputs = 128;  // of one request

HiddenStates hidden_states(const RequestJson& value) {
  for (const HiddenStates hidden : {HiddenStates::none, HiddenStates::last, HiddenStates::full})
    if (value.is_string() && value.get<std::string>() == name_of(hidden)) return hidden;
  throw std::invalid_argument(fmt::format(R"(hidden is {}, expected "none", "last" or "full")", shown(value)));
}

// In their order, without those that came before: what is looked for at each token grows with the vocabulary at most.
std::vector<int32_t> each_once(std::vector<int32_t> ids) {
  std::unordered_set<int32_t> seen;
  std::erase_if(ids, [&](int32_t id) { return !seen.insert(id).second; });
  return ids;
}

}  // namespace

RequestReader::RequestReader(RequestDefaults defaults, const ModelConfig& config,
                             const std::optional<Tokenizer>& tokenizer)
    : defaults_(std::move(defaults)),
      seed_(defaults_.sampling.seed ? *defaults_.sampling.seed : random_seed()),
      config_(config),
      tokenizer_(tokenizer),
      choices_(config, tokenizer) {}

AskedRequest RequestReader::read(const RequestFields& fields, int64_t number) {
  ChatForm answer;
  std::vector<int32_t> prompt = prompt_of(fields, answer);
  return asked(read_call(fields, std::move(answer)), number, std::move(prompt));
}

CallFields RequestReader::read_call(const RequestFields& fields, ChatForm answer, const TextStructure* structure) {
  CallFields call;
  RequestSpec& spec = call.spec;
  if (const RequestJson* stream = fields.find("stream")) call.stream = flag_of(*stream, "stream");
  const RequestJson* n = fields.find("n");
  call.says_n = n != nullptr;
  if (n != nullptr) call.outputs = integer_of(*n, "n", 1, kMostOutputs);
  spec.max_tokens = defaults_.max_tokens;
  if (const RequestJson* most = fields.find("max_tokens"))
    spec.max_tokens = integer_of(*most, fields.name_of("max_tokens"), 1, UINT32_MAX);
  std::vector<int32_t> stop_ids;
  if (const RequestJson* ids = fields.find("stop_token_ids"))
    stop_ids = each_once(token_ids_of(*ids, fields.name_of("stop_token_ids"), config_.vocab));
  std::vector<int32_t> eos(config_.eos.begin(), config_.eos.end());
  if (const RequestJson* ignore = fields.find("ignore_eos"); ignore != nullptr && flag_of(*ignore, "ignore_eos"))
    eos.clear();
  stop_ids.insert(stop_ids.end(), eos.begin(), eos.end());
  spec.stop_ids = std::move(stop_ids);
  if (const RequestJson* hidden = fields.find("hidden")) spec.hidden = hidden_states(*hidden);
  if (const RequestJson* adapter = fields.find("adapter")) spec.adapter = string_of(*adapter, "adapter");
  call.has_seed = fields.has("seed");
  call.sampling = sampling_of_request(fields);
  call.denying = denying_fields(fields);
  call.choice = choices_.read_call(fields, eos, call.sampling, answer, structure);
  return call;
}

// Two requests without a seed never draw the same numbers.
AskedRequest RequestReader::asked(const CallFields& call, int64_t number, SharedList<int32_t> prompt) const {
  AskedRequest asked{.spec = call.spec,
                     .says_n = call.says_n,
                     .stream = call.stream,
                     .answer = call.choice.answer,
                     .denying = call.denying};
  asked.spec.prompt = std::move(prompt);
  SamplingOptions words = call.sampling;
  if (!call.has_seed) words.seed = derived_seed(seed_, static_cast<uint64_t>(number));
  const Sampling sampling = sampling_of(words, config_.generation);
  for (int64_t k = 0; k < call.outputs; ++k) {
    AskedOutput& output = asked.outputs.emplace_back(AskedOutput{sampling, choices_.begin(call.choice)});
    if (k > 0) output.sampling.seed = derived_seed(*sampling.seed, static_cast<uint64_t>(k));
  }
  return asked;
}

std::vector<int32_t> RequestReader::prompt_of(const RequestFields& fields, ChatForm& answer) {
  const RequestJson *prompt = fields.find("prompt"), *ids = fields.find("prompt_token_ids");
  const RequestJson* messages = fields.find("messages");
  if (prompt == nullptr && ids == nullptr && messages == nullptr)
    throw std::invalid_argument("it needs one of prompt, messages and prompt_token_ids");
  refuse_all_but_one(fields, {"prompt", "prompt_token_ids", "messages"}, "a request has one prompt");
  for (const char* name : {"tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs"})
    if (fields.has(name) && messages == nullptr)
      throw std::invalid_argument(fmt::format("it has {}, which needs messages", name));
  std::vector<int32_t> tokens;
  if (ids != nullptr) {
    tokens = token_ids_of(*ids, fields.name_of("prompt_token_ids"), config_.vocab);
  } else if (messages == nullptr && prompt->is_array()) {
    tokens = token_ids_of(*prompt, "prompt", config_.vocab);
  } else {
    const std::string text = messages == nullptr ? string_of(*prompt, "prompt") : "";
    if (!tokenizer_)
      throw std::invalid_argument(
          fmt::format("{} is text, and the model has no tokenizer.json", messages != nullptr ? "messages" : "prompt"));
    tokens = messages != nullptr ? chat_prompt(fields, answer) : tokenizer_->encode(text, {.add_special_tokens = true});
  }
  if (tokens.empty()) throw std::invalid_argument("the prompt has no tokens");
  return tokens;
}

std::vector<int32_t> RequestReader::chat_prompt(const RequestFields& fields, ChatForm& answer) {
  const RequestJson *tools = fields.find("tools"), *parallel = fields.find("parallel_tool_calls");
  ChatAsk asked{.messages = *fields.find("messages"), .variables = defaults_.template_args, .tools = tools};
  if (const RequestJson* more = fields.find("chat_template_kwargs")) {
    if (!more->is_object()) refuse_value("chat_template_kwargs", more, "an object");
    asked.variables.update(*more);
  }
  const ChatTemplates& templates = chat_templates();
  if (const auto named = asked.variables.find("chat_template"); named != asked.variables.end()) {
    if (!named->is_string() || !templates.has(named->get<std::string>()))
      throw std::invalid_argument(
          fmt::format("chat_template_kwargs brings a chat_template, and the checkpoint's are the only ones, by their "
                      "names: {}",
                      templates.names()));
    asked.template_name = named->get<std::string>();
    asked.variables.erase(named);
  }
  const ToolFields of_tools{.tools = tools,
                            .choice = fields.find("tool_choice"),
                            .parallel = parallel == nullptr || flag_of(*parallel, "parallel_tool_calls"),
                            .only_if_known = true};
  const TemplateShape& shape = templates.chosen(tools != nullptr && !tools->empty(), asked.template_name).shape();
  ToolChoice choice =
      tool_choice_of(of_tools, {.shape = &shape, .tokenizer = tokenizer_, .parser = defaults_.parsers.tool_calls});
  const RenderedChat rendered = rendered_chat(templates, std::move(asked));
  const bool is_structured = fields.has("regex") || fields.has("json_schema") || fields.has("grammar");
  answer = chat_form(std::move(choice), is_structured ? ReasoningParser::none : defaults_.parsers.reasoning,
                     rendered.thought, tokenizer_);
  return encode_prompt(*tokenizer_, rendered.prompt);
}

const ChatTemplates& RequestReader::chat_templates() {
  const std::lock_guard lock(template_mutex_);
  if (!templates_) templates_.emplace(ChatTemplates::from_folder(defaults_.model, defaults_.chat_template));
  return *templates_;
}

SamplingOptions RequestReader::sampling_of_request(const RequestFields& fields) const {
  SamplingOptions sampling = defaults_.sampling;
  const RequestJson *temperature = fields.find("temperature"), *top_k = fields.find("top_k"),
                    *top_p = fields.find("top_p"), *min_p = fields.find("min_p");
  if (temperature != nullptr || top_k != nullptr || top_p != nullptr || min_p != nullptr) sampling.greedy = false;
  if (temperature != nullptr) sampling.temperature = number_of(*temperature, "temperature");
  if (top_k != nullptr) sampling.top_k = std::max<int64_t>(integer_of(*top_k, "top_k", -1, INT32_MAX), 0);
  if (top_p != nullptr) sampling.top_p = number_of(*top_p, "top_p");
  if (min_p != nullptr) sampling.min_p = number_of(*min_p, "min_p");
  if (const auto fault = sampling_fault(sampling.temperature.value_or(0), sampling.top_k.value_or(0),
                                        sampling.top_p.value_or(1), sampling.min_p.value_or(0)))
    throw std::invalid_argument(fault->field + ": " + fault->detail);
  if (const RequestJson* seed = fields.find("seed")) sampling.seed = seed_of(*seed, "seed");
  return sampling;
}

}  // namespace nodewright
