// The settings beside the conversation: fields that survive a reload, the defaults that they show while they are empty,
// and the request fields that they make.
import { keep, kept } from "./browser_store.js";
import { whole } from "./figures.js";
import { show_panel } from "./panels.js";

const kCompletionTokens = 512;  // of a completion that does not say; one without an end would go on to the context's
const kNumbers = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const kTexts = ["system", "stop_strings", "api_key"];
const kFields = [...kNumbers, ...kTexts];

const field = name => document.getElementById(name);

function values() {
  const found = {};
  for (const name of kFields) if (field(name).value !== "") found[name] = field(name).value;
  found.mode = mode();
  return found;
}

export function mode() {
  return document.querySelector("#modes [aria-pressed=true]").dataset.mode;
}

export const api_key = () => field("api_key").value.trim();

// What the fields say, as a body's fields; empty ones are left out.
export function request_fields() {
  const found = {};
  for (const name of kNumbers) if (field(name).value !== "") found[name] = Number(field(name).value);
  const stops = field("stop_strings").value.split("\n").filter(line => line !== "");
  if (stops.length > 0) found.stop = stops;
  return found;
}

export const system_prompt = () => field("system").value;

// max_tokens of a completion where its field is empty and the context has room.
export const completion_tokens = context => Math.min(kCompletionTokens, context);

let shown_model = null;  // of /live

// What the server does where a field is empty, in the fields.
export function show_defaults(model = shown_model) {
  shown_model = model;
  if (model === null) return;
  const shown = { ...model.defaults, seed: model.defaults.seed ?? "random", stop_strings: "none", api_key: "none",
                  system: mode() === "chat" ? "none" : "not sent with a completion",
                  max_tokens: mode() === "chat" ? `≤ ${whole(model.context)}` : completion_tokens(model.context) };
  for (const [name, value] of Object.entries(shown)) if (kFields.includes(name)) field(name).placeholder = String(value);
}

function show_mode(name) {
  for (const button of document.querySelectorAll("#modes button"))
    button.setAttribute("aria-pressed", String(button.dataset.mode === name));
  field("prompt-label").textContent = name === "chat" ? "Message" : "Prompt";
  field("system").disabled = name !== "chat";
  field("prompt").placeholder = name === "chat" ? "Write a message" : "Write the beginning of a text";
  field("mode-hint").textContent = name === "chat" ? "The model answers in a conversation, by its chat template."
    : "The model goes on with the text as it stands, without a template.";
  show_defaults();
}

// A model without a template can complete and no more.
export function allow_chat(can) {
  const chat = document.querySelector("#modes [data-mode=chat]");
  chat.disabled = !can;
  chat.title = can ? "" : "The model has no chat template";
  if (can || mode() === "completion") return;
  show_mode("completion");
  mode_changed();
}

let mode_changed = () => {};

// `key_changed`: called when another key was typed; `mode_told`: when requests are of another kind.
export function start_settings({ key_changed, mode_told }) {
  const found = kept("settings"), left = found !== null && typeof found === "object" ? found : {};
  mode_changed = mode_told;
  for (const name of kFields) if (typeof left[name] === "string") field(name).value = left[name];
  show_mode(left.mode === "completion" ? "completion" : "chat");
  field("settings-form").addEventListener("input", () => keep("settings", values()));
  field("settings-form").addEventListener("submit", event => event.preventDefault());
  field("api_key").addEventListener("change", key_changed);
  field("reset").addEventListener("click", () => {
    for (const name of kFields) field(name).value = "";
    keep("settings", values());
    key_changed();
  });
  for (const button of document.querySelectorAll("#modes button"))
    button.addEventListener("click", () => {
      if (button.dataset.mode === mode()) return;
      show_mode(button.dataset.mode);
      keep("settings", values());
      mode_changed();
    });
}

// Opens the settings at the key.
export function ask_for_key() {
  show_panel("settings", true);
  field("api_key").focus();
}
