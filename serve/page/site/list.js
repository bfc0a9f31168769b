// The list of kept conversations: each can be opened and deleted, the open one exported.
import { clear, has_room, model_name, open_conversation, show_conversation } from "./chat.js";
import { forget_conversation, kept_conversation, kept_conversations, title_of } from "./conversations.js";
import { download, json_of, markdown_of } from "./export.js";
import { made } from "./inline.js";
import { close_small_panels } from "./panels.js";
import { system_prompt } from "./settings.js";

const by_id = id => document.getElementById(id);
const kHint = by_id("list-hint").textContent;

const day_text = time => new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

function forget(ids) {
  if (ids.includes(open_conversation().id)) clear();  // first: it keeps what it leaves
  ids.forEach(forget_conversation);
  show_list();
}

function entry(one) {
  const title = title_of(one), is_open = one.id === open_conversation().id;
  const open = made("button", { type: "button", className: "open", onclick: () => {
    const found = kept_conversation(one.id);
    if (found && one.id !== open_conversation().id) show_conversation(found);
    close_small_panels();
    by_id("prompt").focus();
  } }, made("span", { textContent: title }), made("small", { textContent: day_text(one.changed) }));
  if (is_open) open.setAttribute("aria-current", "true");
  const remove = made("button", { type: "button", className: "delete", textContent: "×", title: "Delete",
                                  ariaLabel: `Delete ${title}`,
                                  onclick: () => { if (confirm(`Delete “${title}”?`)) forget([one.id]); } });
  return made("li", {}, open, remove);
}

export function show_list() {
  const all = kept_conversations(), empty = open_conversation().turns.length === 0;
  by_id("list").replaceChildren(...all.map(entry));
  by_id("delete-all").hidden = all.length === 0;
  by_id("export-markdown").disabled = by_id("export-json").disabled = empty;
  by_id("list-hint").textContent = has_room() ? kHint
    : "This browser has no room for more: export conversations and delete some. The open one is not kept.";
  by_id("list-hint").classList.toggle("warning", !has_room());
}

export function start_list() {
  by_id("delete-all").addEventListener("click", () => {
    const all = kept_conversations();
    if (confirm(`Delete all ${all.length} conversations?`)) forget(all.map(one => one.id));
  });
  by_id("export-markdown").addEventListener("click", () =>
    download(open_conversation(), "md", "text/markdown", markdown_of(open_conversation(), system_prompt())));
  by_id("export-json").addEventListener("click", () =>
    download(open_conversation(), "json", "application/json",
             json_of(open_conversation(), system_prompt(), model_name())));
}
