// The conversation that is open: its turns, one answer at a time as a stream that can be stopped, and the field below.
import { fill } from "./answer.js";
import { when_changed_elsewhere } from "./browser_store.js";
import { draft_of, is_answer, keep_conversation, keep_draft, keep_open, kept_conversation, names_conversation,
         new_conversation, open_id, title_of } from "./conversations.js";
import { mode } from "./settings.js";
import { TurnView } from "./turn.js";
import { show_welcome } from "./welcome.js";

const kKeepEveryMs = 1000;  // while an answer comes
let conversation = new_conversation();
let views = [];        // of its turns
let running = null;    // the AbortController of the answer that is coming
let model = null;      // the name to call it by
let is_kept = true;    // false once the browser had no room
let changed = () => {};

const by_id = id => document.getElementById(id);

export const open_conversation = () => conversation;
export const model_name = () => model;
export const has_room = () => is_kept;

export function set_model(name) {
  if (name === model) return;
  model = name;
  for (const { turn, name: element } of views) if (turn.role === "assistant") element.textContent = name;
  show_welcome(conversation.turns.length === 0, model);
}

function keep() {
  if (conversation.turns.length === 0) return;
  conversation.changed = Date.now();
  is_kept = keep_conversation(conversation);
  keep_open(conversation);
  changed();
}

const is_at_end = log => log.scrollHeight - log.scrollTop - log.clientHeight < 40;

// Keeps the end in sight unless the reader has scrolled up.
function follow(change) {
  const log = by_id("talk"), at_end = is_at_end(log);
  change();
  if (at_end) log.scrollTop = log.scrollHeight;
}

// The same where the talk gets less room: a notice above it, a keyboard of glass below.
function follow_room() {
  const log = by_id("talk");
  let was_at_end = true;
  log.addEventListener("scroll", () => was_at_end = is_at_end(log));
  new ResizeObserver(() => { if (was_at_end) log.scrollTop = log.scrollHeight; }).observe(log);
}

function add_turn(role, text) {
  const turn = { role, text };
  conversation.turns.push(turn);
  const view = new TurnView(turn, model ?? "Assistant");
  views.push(view);
  by_id("turns").append(view.element);
  return view;
}

// Buttons of every turn, and what else follows from there being turns and an answer that is coming.
function show_state() {
  const last = views.findLast(view => is_answer(view.turn));
  for (const view of views) {
    const again = view === last && view === views.at(-1) ? regenerate : null;
    view.show_tools(running !== null ? {} : { edit: () => edit(view), again });
  }
  by_id("stop").disabled = running === null;
  by_id("send").disabled = running !== null;
  by_id("turns").setAttribute("aria-busy", String(running !== null));
  by_id("title").textContent = title_of(conversation);
  show_welcome(conversation.turns.length === 0, model);
}

async function answer(role) {
  const before = conversation.turns.slice(), asked = conversation, view = add_turn(role, "");
  const mine = running = new AbortController();
  let kept_at = performance.now();
  show_state();
  keep();
  by_id("talk").scrollTop = by_id("talk").scrollHeight;
  await fill(view.turn, before, model, mine.signal, () => {
    view.show_soon(follow);
    if (asked !== conversation || performance.now() - kept_at < kKeepEveryMs) return;
    kept_at = performance.now();
    is_kept = keep_conversation(conversation);
  });
  if (running === mine) running = null;
  follow(() => view.show());
  if (asked !== conversation) return;  // another one has been opened, which stopped this one
  keep();
  follow(show_state);
}

// Without the turns from `view` on.
function cut_at(view) {
  const at = views.indexOf(view);
  for (const gone of views.splice(at)) gone.element.remove();
  conversation.turns.splice(at);
}

function regenerate() {
  const last = views.findLast(view => is_answer(view.turn));
  if (running !== null || !last) return;
  const { role } = last.turn;
  cut_at(last);
  answer(role);
  by_id("prompt").focus();
}

// A message that was edited is sent again, and what followed it is gone; an answer is changed where it stands.
function edit(view) {
  view.edit(text => {
    if (text === null || running !== null) return;
    if (is_answer(view.turn)) {
      view.turn.text = text;
      view.show();
      keep();
      return show_state();
    }
    const { role } = view.turn;
    cut_at(view);
    add_turn(role, text);
    answer(role === "user" ? "assistant" : "completion");
  });
}

// Spaces alone are no message.
export function send() {
  const prompt = by_id("prompt");
  if (running !== null || prompt.value.trim() === "") return;
  const chats = mode() === "chat";
  keep_draft(conversation, "");
  add_turn(chats ? "user" : "prompt", prompt.value);
  prompt.value = "";
  prompt.dispatchEvent(new Event("input"));
  answer(chats ? "assistant" : "completion");
}

// The server cancels a call whose connection closes.
export function stop() {
  running?.abort();
}

// Shows `next`. An answer that is coming ends, and what has come of it is kept.
export function show_conversation(next) {
  if (running !== null) {
    conversation.turns.at(-1).note = "stopped";
    keep();
    stop();
    running = null;
  }
  conversation = next;
  keep_open(conversation);
  views = conversation.turns.map(turn => new TurnView(turn, model ?? "Assistant"));
  by_id("turns").replaceChildren(...views.map(view => view.element));
  by_id("prompt").value = draft_of(conversation);
  by_id("prompt").dispatchEvent(new Event("input"));
  show_state();
  by_id("talk").scrollTop = by_id("talk").scrollHeight;
  changed();
}

export function clear() {
  show_conversation(new_conversation());
  by_id("prompt").focus();
}

// `told`: called when conversations have changed, also in another window.
export function start_chat({ told }) {
  changed = told;
  follow_room();
  by_id("stop").addEventListener("click", () => {
    stop();
    by_id("prompt").focus();
  });
  by_id("clear").addEventListener("click", clear);
  by_id("prompt").addEventListener("input", () => keep_draft(conversation, by_id("prompt").value));
  addEventListener("pagehide", () => { if (running !== null) keep(); });
  when_changed_elsewhere(name => {
    if (!names_conversation(name)) return;
    const now = kept_conversation(conversation.id);
    if (running === null && now && now.changed > conversation.changed) show_conversation(now);
    else changed();
  });
  show_conversation(kept_conversation(open_id()) ?? new_conversation());
}
