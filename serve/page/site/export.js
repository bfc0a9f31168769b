// A conversation as a file: Markdown to read, JSON to send again.
import { made } from "./inline.js";
import { title_of } from "./conversations.js";

const kNames = { user: "You", prompt: "Prompt", assistant: "Assistant", completion: "Completion" };

export function markdown_of({ turns }, system) {
  const parts = system === "" ? [] : [`## System\n\n${system}`];
  for (const { role, text } of turns.filter(turn => turn.text !== ""))
    parts.push(`## ${kNames[role]}\n\n${text.trim()}`);
  return parts.join("\n\n") + "\n";
}

// "messages" as a call has them; what completed a prompt is under "completions".
export function json_of({ created, turns }, system, model) {
  const messages = turns.filter(turn => ["user", "assistant"].includes(turn.role) && turn.text !== "")
    .map(({ role, text, thoughts }) => ({ role, content: text, ...(thoughts ? { reasoning_content: thoughts } : {}) }));
  const completions = turns.flatMap(({ role, text }, i) =>
    role === "prompt" && turns[i + 1]?.role === "completion" ? [{ prompt: text, text: turns[i + 1].text }] : []);
  return JSON.stringify({ model, created: new Date(created).toISOString(),
    messages: system === "" || messages.length === 0 ? messages : [{ role: "system", content: system }, ...messages],
    completions }, null, 2) + "\n";
}

export function download(conversation, ending, type, text) {
  const name = title_of(conversation).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40) || "conversation";
  const url = URL.createObjectURL(new Blob([text], { type }));
  made("a", { href: url, download: `${name}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);  // the browser may still ask where to
}
