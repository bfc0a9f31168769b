// The panels beside the conversation, open or not: where there is room as they were left, on a small screen over the
// conversation and one at a time.
import { keep, kept } from "./browser_store.js";

const kRoom = { settings: "(min-width: 1000px) and (min-height: 500px)",
                conversations: "(min-width: 1280px) and (min-height: 500px)" };
const kSmall = "(max-width: 900px), (max-height: 500px)";
const by_id = id => document.getElementById(id);
const is_small = () => matchMedia(kSmall).matches;

export function show_panel(name, open) {
  by_id(name).hidden = !open;
  by_id(`${name}-button`).setAttribute("aria-expanded", String(open));
}

function open_or_close(name) {
  const open = by_id(name).hidden;
  if (open && is_small()) for (const other of Object.keys(kRoom)) if (other !== name) show_panel(other, false);
  show_panel(name, open);
  if (!is_small()) keep("panels", { ...kept("panels"), [name]: open });
}

// Where a panel lies over the conversation.
export function close_small_panels() {
  if (is_small()) for (const name of Object.keys(kRoom)) show_panel(name, false);
}

export function start_panels() {
  const left = kept("panels") ?? {};
  for (const [name, room] of Object.entries(kRoom)) {
    by_id(`${name}-button`).addEventListener("click", () => open_or_close(name));
    show_panel(name, !is_small() && (typeof left[name] === "boolean" ? left[name] : matchMedia(room).matches));
  }
  matchMedia(kSmall).addEventListener("change", close_small_panels);
  document.addEventListener("keydown", event => {
    if (event.key === "Escape") close_small_panels();
  });
}
