// Conversations as the browser keeps them, each under a name of its own: {id, created, changed, turns}. A turn is {role,
// text} with, where there are some, `thoughts`, the `note` below it and the `error` that ended it. Draws nothing.
import { drop, keep, kept, kept_names } from "./browser_store.js";

const kName = "conversation.", kDraft = "draft.", kOpen = "open";
const kRoles = ["user", "assistant", "prompt", "completion"];
const kTitle = 60;  // letters

export const is_answer = turn => turn.role === "assistant" || turn.role === "completion";

export function new_conversation() {
  const now = Date.now();
  const random = crypto.getRandomValues(new Uint32Array(2));  // randomUUID() wants https
  const id = [now, ...random].map(part => part.toString(36)).join("");
  return { id, created: now, changed: now, turns: [] };
}

// Kept text may be anyone's: what is no turn is left out.
function turns_of(found) {
  const text = value => (typeof value === "string" ? value : "");
  return (Array.isArray(found) ? found : []).filter(one => kRoles.includes(one?.role) && typeof one.text === "string")
    .map(({ role, text: said, thoughts, note, error }) =>
      ({ role, text: said, thoughts: text(thoughts), note: text(note), error: text(error) }));
}

// null where there is none.
export function kept_conversation(id) {
  const found = kept(kName + id);
  if (typeof found !== "object" || found === null) return null;
  const turns = turns_of(found.turns);
  if (turns.length === 0) return null;
  const time = value => (Number.isFinite(value) ? value : 0);
  return { id, created: time(found.created), changed: time(found.changed), turns };
}

// All that are kept, the latest first.
export function kept_conversations() {
  return kept_names().filter(name => name.startsWith(kName)).map(name => kept_conversation(name.slice(kName.length)))
    .filter(Boolean).sort((one, other) => other.changed - one.changed);
}

// False where the browser has no room for it.
export function keep_conversation(conversation) {
  const { id, created, changed, turns } = conversation;
  return turns.length === 0 || keep(kName + id, { created, changed, turns });
}

export function forget_conversation(id) {
  drop(kName + id);
  drop(kDraft + id);
}

export const names_conversation = name => name === null || name.startsWith(kName);

export function title_of({ turns }) {
  const words = (turns[0]?.text ?? "").trim().split(/\s+/).join(" ");
  return [...words].length > kTitle ? [...words].slice(0, kTitle - 1).join("") + "…" : words;
}

// The message that has not been sent. A conversation without turns is the new one, whatever its id.
const draft_name = ({ id, turns }) => kDraft + (turns.length === 0 ? "new" : id);

export function draft_of(conversation) {
  const found = kept(draft_name(conversation));
  return typeof found === "string" ? found : "";
}

export function keep_draft(conversation, text) {
  if (text === "") drop(draft_name(conversation));
  else keep(draft_name(conversation), text);
}

// The conversation that this window had open, or in a new window the one opened last anywhere; "" is a new one.
export function open_id() {
  const found = kept(kOpen, sessionStorage) ?? kept(kOpen);
  return typeof found === "string" ? found : "";
}

export function keep_open({ id, turns }) {
  const open = turns.length === 0 ? "" : id;
  keep(kOpen, open, sessionStorage);
  keep(kOpen, open);
}
