// One turn as it is shown: who speaks, the thoughts, the text, the note and the buttons below it. The text of an
// assistant is Markdown, all other text is as it was written.
import { is_answer } from "./conversations.js";
import { made } from "./inline.js";
import { GrowingMarkdown } from "./markdown.js";

const kNames = { user: "You", prompt: "Prompt", completion: "Completion" };

export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = made("textarea", { value: text, className: "offscreen" });  // plain HTTP has no clipboard
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("the browser does not copy");
}

// A button that says for a moment what became of it.
async function copy_by(button, text) {
  try {
    await copy(text);
    button.textContent = "Copied";
  } catch (error) {
    button.textContent = `Not copied: ${error.message}`;
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

const tool = (name, act) => made("button", { type: "button", textContent: name, onclick: act });

export class TurnView {
  // `turn`: of a conversation, which this shows and does not change. `speaker`: of an assistant.
  constructor(turn, speaker) {
    this.turn = turn;
    this.frame = 0;
    this.body = made("div", { className: "text" });
    this.thoughts = made("div", { className: "thoughts" });
    this.reasoning = made("details", { className: "reasoning", hidden: true },
                          made("summary", { textContent: "Thoughts" }), this.thoughts);
    this.error = made("p", { className: "error", hidden: true });
    this.error.setAttribute("role", "alert");
    this.note = made("p", { className: "note" });
    this.tools = made("div", { className: "tools" });
    this.below = made("div", { className: "below" }, this.note, this.tools);
    this.name = made("h3", { textContent: kNames[turn.role] ?? speaker });
    this.element = made("article", { className: `turn ${turn.role}` },
                        this.name, this.reasoning, this.body, this.error, this.below);
    this.markdown = turn.role === "assistant" ? new GrowingMarkdown(this.body) : null;
    this.body.addEventListener("click", event => {
      const button = event.target.closest(".copy-code");
      if (button) copy_by(button, button.closest(".code").querySelector("pre").textContent);
    });
    this.show();
  }

  // All of the turn as it is now.
  show() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { text, thoughts, note, error } = this.turn;
    if (this.markdown) this.markdown.show(text);
    else if (this.body.textContent !== text) this.body.textContent = text;
    this.show_thoughts(thoughts ?? "");
    this.error.textContent = error ?? "";
    this.error.hidden = !error;
    this.note.textContent = note ?? "";
    this.body.hidden = text === "" && Boolean(error || thoughts || note);
    this.element.classList.toggle("failed", text === "" && Boolean(error));
  }

  // Thoughts are open while there is nothing else to read.
  show_thoughts(thoughts) {
    const has_more = thoughts.length - this.thoughts.textContent.length;
    if (has_more > 0) this.thoughts.append(thoughts.slice(-has_more));  // a text node: never markup
    this.reasoning.hidden = thoughts === "";
    if (this.was_open_for === undefined || this.was_open_for !== (this.turn.text === "")) {
      this.was_open_for = this.turn.text === "";
      this.reasoning.open = this.was_open_for;
    }
  }

  // Tokens come faster than frames. `show`: called with what shows them.
  show_soon(show) {
    this.frame ||= requestAnimationFrame(() => show(() => this.show()));
  }

  // `acts`: {edit, again}, where the turn may be edited and its answer asked for again.
  show_tools({ edit, again }) {
    const { text, error } = this.turn, buttons = [];
    if (text !== "") {
      const button = tool("Copy", () => copy_by(button, this.turn.text));
      buttons.push(button);
    }
    if (edit && text !== "") buttons.push(tool("Edit", edit));
    if (again) buttons.push(tool(error && text === "" ? "Try again" : "Regenerate", again));
    this.tools.replaceChildren(...buttons);
  }

  // A field in place of the text. `done` gets the new text, or null.
  edit(done) {
    const field = made("textarea", { className: "editor", value: this.turn.text,
                                     ariaLabel: `Edit: ${this.name.textContent}` });
    const end = text => {
      editor.remove();
      this.element.classList.remove("editing");
      done(text);
    };
    const keep = () => { if (field.value.trim() !== "") end(field.value); };
    const editor = made("div", {}, field, made("div", { className: "tools" },
      tool("Cancel", () => end(null)), tool(is_answer(this.turn) ? "Save" : "Send again", keep)));
    field.addEventListener("keydown", event => {
      if (event.key === "Escape") {
        event.stopPropagation();
        end(null);
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        keep();
      }
    });
    this.element.classList.add("editing");
    this.body.after(editor);
    field.style.height = `${Math.min(field.scrollHeight + 4, 400)}px`;
    field.focus();
  }
}
