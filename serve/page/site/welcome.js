// What an empty conversation says: whom one talks to, and what one could begin with.
import { made } from "./inline.js";
import { mode } from "./settings.js";

const kExamples = {
  chat: ["Tell me a story about a fox.", "Explain what a cache is in three sentences.",
         "Write a Python function that reverses a list."],
  completion: ["Once upon a time", "The three states of matter are", "def fibonacci(n):"],
};
const by_id = id => document.getElementById(id);
let shown = "";

function begin_with(text) {
  by_id("prompt").value = text;
  by_id("prompt").dispatchEvent(new Event("input"));
  by_id("prompt").focus();
}

export function show_welcome(is_empty, model) {
  by_id("welcome").hidden = !is_empty;
  const now = `${mode()} ${model}`;
  if (now === shown) return;
  shown = now;
  const name = model ?? "the model";
  by_id("greeting").textContent = mode() === "chat" ? `Chat with ${name}` : `Let ${name} go on with a text`;
  by_id("greeting-hint").textContent = mode() === "chat"
    ? "Write a message below, or begin with one of these:" : "Write the beginning below, or take one of these:";
  by_id("examples").replaceChildren(...kExamples[mode()].map(text =>
    made("button", { type: "button", textContent: text, onclick: () => begin_with(text) })));
}
