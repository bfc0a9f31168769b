// The field for a message: it grows with its text, and its keys send and stop.

const kMostPixels = 240;
const by_id = id => document.getElementById(id);

function fit(field) {
  field.style.height = "auto";
  const most = Math.min(kMostPixels, innerHeight * 0.4);
  field.style.height = `${Math.min(field.scrollHeight + 2, most)}px`;
}

// On a keyboard of glass Enter begins a line: there is no Shift+Enter.
const enter_sends = () => !matchMedia("(pointer: coarse)").matches;

export function start_composer({ send, stop }) {
  const field = by_id("prompt");
  by_id("composer").addEventListener("submit", event => {
    event.preventDefault();
    send();
  });
  field.addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || !enter_sends()) return;
    event.preventDefault();
    send();
  });
  field.addEventListener("input", () => fit(field));
  document.addEventListener("keydown", event => {
    if (event.key === "Escape") stop();
  });
  addEventListener("resize", () => fit(field));
  by_id("keys-hint").hidden = !enter_sends();
}
