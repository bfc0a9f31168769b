#include "serve/api/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "runtime/error.h"
#include "serve/api/api_error.h"
#include "text/tokenizer/files/gguf_tokenizer.h"

namespace nodewright {
namespace {

std::optional<std::string> text_of_file(const std::filesystem::path& path) {
  constexpr uint64_t kLongestShown = uint64_t{256} << 20;  // bytes
  std::error_code unused;
  if (!std::filesystem::is_regular_file(path, unused)) return std::nullopt;
  return read_whole_file(path, kLongestShown, {.doing = "show the tokenizer"});
}

ApiError no_such_model(const ServedModel& model, const std::string& name) {
  std::string all = fmt::format("{}", fmt::join(model.names, ", "));
  for (const ServedAdapter& adapter : model.adapters->list()) all += ", " + adapter.name;
  return {404, fmt::format("the model {} does not exist; this server has {}", shown(RequestJson(name)), all), "model"};
}

std::string written(const RequestJson& json) {
  return json.dump(-1, ' ', false, RequestJson::error_handler_t::replace);
}

RequestJson model_entries(const ServedModel& model) {
  RequestJson list = RequestJson::array();
  const auto add = [&](const std::string& name, int64_t created, const std::filesystem::path& root,
                       const RequestJson& parent) {
    list.push_back({{"id", name},
                    {"object", "model"},
                    {"created", created},
                    {"owned_by", "nodewright"},
                    {"root", root.string()},
                    {"parent", parent},
                    {"max_model_len", model.max_model_len}});
  };
  for (const std::string& name : model.names) add(name, model.created, model.folder, nullptr);
  for (const ServedAdapter& adapter : model.adapters->list())
    add(adapter.name, adapter.created, adapter.folder, model.names.front());
  return list;
}

}  // namespace

ServedModel named(ServedModel model) {
  if (!model.names.empty()) return model;
  std::filesystem::path folder = std::filesystem::weakly_canonical(model.folder);
  if (!folder.has_filename()) folder = folder.parent_path();
  if (!folder.has_filename())
    throw Error({.doing = "name the model of the folder",
                 .object = model.folder.string(),
                 .detail = "the folder has no name",
                 .advice = "--served-model-name",
                 .fault = Fault::usage});
  model.names.push_back(folder.filename().string());
  return model;
}

void check_model(const ServedModel& model, const RequestBody& body) {
  const std::optional<std::string> name = body.string("model");
  if (!name || std::ranges::count(model.names, *name) > 0 || model.adapters->has(*name)) return;
  throw no_such_model(model, *name);
}

ApiError no_such_adapter(const std::string& name, const std::string& field) {
  return {404, fmt::format("no adapter {} is loaded", shown(RequestJson(name))), field};
}

std::string asked_adapter(const ServedModel& model, const RequestBody& body) {
  std::string name, said_by;
  for (const char* field : {"model", "lora_path", "adapter"}) {
    const std::optional<std::string> value = body.string(field);
    if (!value || (field == std::string_view("model") && std::ranges::count(model.names, *value) > 0)) continue;
    if (!model.adapters->has(*value)) throw no_such_adapter(*value, field);
    if (!name.empty() && name != *value)
      throw bad_request(fmt::format("{} asks for the adapter {}, and {} for {}", said_by, name, field, *value), field);
    name = *value;
    said_by = field;
  }
  return name;
}

std::string model_list(const ServedModel& model) {
  return written(RequestJson{{"object", "list"}, {"data", model_entries(model)}});
}

std::string model_entry(const ServedModel& model, std::string_view name) {
  for (const RequestJson& entry : model_entries(model))
    if (entry["id"].get<std::string>() == name) return written(entry);
  throw no_such_model(model, std::string(name));
}

std::string tokenizer_info(const ServedModel& model) {
  if (!model.tokenizer) throw ApiError(404, "the model has no tokenizer");
  RequestJson info = RequestJson::object();
  if (const auto text = text_of_file(model.folder / "tokenizer_config.json"))
    info = RequestJson::parse(*text, nullptr, false);
  if (!info.is_object()) throw ApiError(500, "tokenizer_config.json is not a JSON object");
  if (!info.contains("tokenizer_class")) info["tokenizer_class"] = "PreTrainedTokenizerFast";
  const std::filesystem::path& given = model.defaults.chat_template;
  if (given.empty() && is_gguf(model.folder))
    for (const auto& [name, source] : read_gguf_templates(model.folder))
      if (name == "default") info["chat_template"] = source;
  if (const auto source = text_of_file(given.empty() ? model.folder / "chat_template.jinja" : given))
    info["chat_template"] = *source;
  const auto spelled = [&](const char* name, const std::optional<int64_t>& id) {  // lm-eval reads eos_token
    if (!info.contains(name) && id && model.tokenizer->has(static_cast<TokenId>(*id)))
      info[name] = std::string(model.tokenizer->id_to_bytes(static_cast<TokenId>(*id)));
  };
  spelled("bos_token", model.config.bos);
  spelled("eos_token", model.config.eos.empty() ? std::nullopt : std::optional(model.config.eos.front()));
  return info.dump(-1, ' ', false, RequestJson::error_handler_t::replace);
}

}  // namespace nodewright
