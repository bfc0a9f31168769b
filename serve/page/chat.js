// The conversation: turns, one answer at a time as a stream that can be stopped, its speed below it.
import { stream_of } from "./api.js";
import { api_key, mode, request_fields, system_prompt } from "./settings.js";

const turns = [];     // {role: user, assistant, prompt or completion; text, of it `shown` letters; element, body, note, tools}
let running = null;   // the AbortController of the answer that is coming
let model = null;     // the name to call it by

const by_id = id => document.getElementById(id);

export const set_model = name => { model = name; };

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function add_turn(role, text) {
  const turn = { role, text, shown: text.length, frame: 0 };
  turn.body = element("div", { className: "text", textContent: text });
  turn.thoughts = element("div", { className: "thoughts" });
  turn.note = element("p", { className: "note" });
  turn.tools = element("div", { className: "tools" });
  turn.element = element("article", { className: `turn ${role}` }, element("h3", { textContent: role }), turn.thoughts,
                         turn.body, element("div", { className: "below" }, turn.note, turn.tools));
  by_id("turns").append(turn.element);
  turns.push(turn);
  return turn;
}

function remove_turn(turn) {
  turn.element.remove();
  turns.splice(turns.indexOf(turn), 1);
}

async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = element("textarea", { value: text, className: "offscreen" });  // plain HTTP has no clipboard
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("the browser does not copy");
}

function tool(name, act) {
  return element("button", { type: "button", textContent: name, onclick: act });
}

// Buttons of every turn, those of the last answer among them.
function show_tools() {
  const answers = turns.filter(turn => turn.role === "assistant" || turn.role === "completion");
  for (const turn of turns) {
    const button = tool("Copy", async () => {
      try {
        await copy(turn.text);
        button.textContent = "Copied";
      } catch (error) {
        button.textContent = `Not copied: ${error.message}`;
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    turn.tools.replaceChildren(button);
    if (turn === answers.at(-1) && running === null) turn.tools.append(tool("Regenerate", regenerate));
  }
  by_id("stop").disabled = running === null;
  by_id("send").disabled = running !== null;
  by_id("turns").setAttribute("aria-busy", String(running !== null));
}

const milliseconds = ms => (ms < 10 ? ms.toFixed(1) : ms.toFixed(0)) + " ms";

// "12 tokens, 340 tokens/s, first after 8.1 ms". `clock`: {sent, first, last} of performance.now(), `tokens` of the answer.
function speed_of({ sent, first, last }, tokens, usage) {
  if (first === 0) return "no tokens";
  const parts = [`${tokens} token${tokens === 1 ? "" : "s"}`];
  if (tokens > 1 && last > first) parts.push(`${((tokens - 1) / (last - first) * 1000).toFixed(1)} tokens/s`);
  parts.push(`first after ${milliseconds(first - sent)}`);
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    parts.push(`prompt ${usage.prompt_tokens}` + (cached ? `, ${cached} of them cached` : ""));
  }
  return parts.join(" · ");
}

const end_words = { length: "ended by its length", stop: "", tool_calls: "calls a tool" };

function body_for(turn) {
  const fields = { model: model ?? undefined, ...request_fields() };
  const before = turns.slice(0, turns.indexOf(turn));
  if (turn.role === "completion") return { ...fields, prompt: before.at(-1).text };
  // A message that got an error instead of an answer is not told again.
  const messages = before.filter((one, i) => !one.failed && !before[i + 1]?.failed)
                         .filter(one => one.role === "user" || one.role === "assistant")
                         .map(one => ({ role: one.role, content: one.text }));
  if (system_prompt() !== "") messages.unshift({ role: "system", content: system_prompt() });
  return { ...fields, messages };
}

// Keeps the end in sight unless the reader has scrolled up.
function follow(change) {
  const log = by_id("turns");
  const at_end = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  change();
  if (at_end) log.scrollTop = log.scrollHeight;
}

async function fill(turn) {
  const path = turn.role === "completion" ? "/v1/completions" : "/v1/chat/completions";
  const clock = { sent: performance.now(), first: 0, last: 0 };
  let tokens = 0, usage = null, end = "";
  running = new AbortController();
  show_tools();
  try {
    for await (const chunk of stream_of(path, body_for(turn), api_key(), running.signal)) {
      if (chunk.usage) usage = chunk.usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      const text = choice.delta ? choice.delta.content : choice.text, thought = choice.delta?.reasoning_content;
      if (choice.delta?.tool_calls) add_text(turn, JSON.stringify(choice.delta.tool_calls, null, 2));
      if (choice.finish_reason) end = end_words[choice.finish_reason] ?? choice.finish_reason;
      const says = typeof text === "string" && !(choice.delta?.role && text === "");
      if (!says && !thought) continue;
      clock.last = performance.now();
      clock.first ||= clock.last;
      ++tokens;
      if (thought) follow(() => turn.thoughts.append(thought));  // not told again, and a text node
      if (says) add_text(turn, text);
    }
  } catch (error) {
    if (error.name === "AbortError") {
      end = "stopped";
    } else {
      turn.failed = turn.text === "";
      turn.element.classList.add("failed");
      follow(() => turn.element.append(element("p", { className: "error", textContent: error.message })));
    }
  }
  running = null;
  show_text(turn);
  const speed = speed_of(clock, usage ? usage.completion_tokens : tokens, usage);
  if (!turn.failed) follow(() => { turn.note.textContent = [speed, end].filter(Boolean).join(" · "); });
  show_tools();
}

// Tokens come faster than frames: what came since the last frame is shown at once.
function add_text(turn, text) {
  turn.text += text;
  turn.frame ||= requestAnimationFrame(() => show_text(turn));
}

function show_text(turn) {
  cancelAnimationFrame(turn.frame);
  turn.frame = 0;
  if (turn.shown === turn.text.length) return;
  follow(() => turn.body.append(turn.text.slice(turn.shown)));  // a text node: never markup
  turn.shown = turn.text.length;
}

function regenerate() {
  if (running !== null) return;
  const last = turns.findLast(turn => turn.role === "assistant" || turn.role === "completion");
  if (!last) return;
  const role = last.role;
  remove_turn(last);
  fill(add_turn(role, ""));
  by_id("prompt").focus();
}

function send() {
  const prompt = by_id("prompt");
  if (running !== null || prompt.value === "") return;
  const chats = mode() === "chat";
  add_turn(chats ? "user" : "prompt", prompt.value);
  prompt.value = "";
  fill(add_turn(chats ? "assistant" : "completion", ""));
  by_id("turns").scrollTop = by_id("turns").scrollHeight;
}

// The server cancels a call whose connection closes.
export function stop() {
  running?.abort();
}

export function clear() {
  stop();
  turns.length = 0;
  by_id("turns").replaceChildren();
  by_id("prompt").focus();
}

export function start_chat() {
  by_id("composer").addEventListener("submit", event => {
    event.preventDefault();
    send();
  });
  by_id("prompt").addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", event => {
    if (event.key === "Escape") stop();
  });
  by_id("stop").addEventListener("click", () => {
    stop();
    by_id("prompt").focus();
  });
  by_id("clear").addEventListener("click", clear);
}
