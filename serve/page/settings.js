// The settings beside the conversation: fields that survive a reload, and the request fields that they make.

const kStored = "nodewright.settings";
const kNumbers = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const kTexts = ["system", "stop_strings", "api_key"];
const kFields = [...kNumbers, ...kTexts];

const field = name => document.getElementById(name);

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(kStored) || "{}");
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};  // somebody else's text, or a browser that keeps nothing
  }
}

function store(values) {
  try {
    localStorage.setItem(kStored, JSON.stringify(values));
  } catch {
    // private windows may refuse: the settings last as long as the page
  }
}

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

function show_mode(name) {
  for (const button of document.querySelectorAll("#modes button"))
    button.setAttribute("aria-pressed", String(button.dataset.mode === name));
  field("prompt-label").textContent = name === "chat" ? "Message" : "Prompt";
  field("system").disabled = name !== "chat";
}

// A model without a template can complete and no more.
export function allow_chat(can) {
  const chat = document.querySelector("#modes [data-mode=chat]");
  chat.disabled = !can;
  chat.title = can ? "" : "The model has no chat template";
  if (!can) show_mode("completion");
}

// `key_changed`: called when another key was typed.
export function start_settings({ key_changed }) {
  const kept = stored();
  for (const name of kFields) if (typeof kept[name] === "string") field(name).value = kept[name];
  show_mode(kept.mode === "completion" ? "completion" : "chat");
  field("settings-form").addEventListener("input", () => store(values()));
  field("settings-form").addEventListener("submit", event => event.preventDefault());
  field("api_key").addEventListener("change", key_changed);
  field("reset").addEventListener("click", () => {
    for (const name of kFields) field(name).value = "";
    store(values());
    key_changed();
  });
  for (const button of document.querySelectorAll("#modes button"))
    button.addEventListener("click", () => {
      if (button.dataset.mode === mode()) return;
      show_mode(button.dataset.mode);
      store(values());
    });
  const opener = field("settings-button");
  const show = open => {
    field("settings").hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
  };
  opener.addEventListener("click", () => show(field("settings").hidden));
  show(!matchMedia("(max-width: 800px)").matches);
}

// Opens the settings at the key.
export function ask_for_key() {
  if (field("settings").hidden) field("settings-button").click();
  field("api_key").focus();
}
