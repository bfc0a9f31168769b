// The Markdown that models write, as elements: paragraphs, headings, lists, quotes, tables, code. Elements are made, and
// text is set as text: no word of a model becomes markup. A line's end in a paragraph is kept. What is left out:
// indented code, HTML, images, references.
import { append, inline_nodes, made } from "./inline.js";

const kMostNested = 8;  // of lists and quotes; what lies deeper is shown as it is written
// Each of these looks at a letter once or twice, whatever a line has.
const fence = /^ {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))$/;
const heading = /^ {0,3}(#{1,6}) (.*)$/;
const rule = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const quote = /^ {0,3}> ?/;
const item = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(?=\S)|\s*$|( +))/;
const table_rule = /^\|? *:?-+:? *(?:\| *:?-+:? *)*\|?$/;

const is_blank = line => line.trim() === "";
const width_of = line => line.length - line.trimStart().length;
const begins_table = (lines, at) => lines[at].includes("|") && table_rule.test((lines[at + 1] ?? "").trim()) &&
                                    cells_of(lines[at]).length === cells_of(lines[at + 1]).length;
const begins_other = line => [fence, heading, rule, quote, item].some(begin => begin.test(line));

function fence_of(line) {
  const [, ticks, after_ticks, tildes, after_tildes] = fence.exec(line);
  return { marks: ticks ?? tildes, language: (after_ticks ?? after_tildes).trim() };
}

// The blocks of a text in its order: {kind, lines}, with the lines as they stand there. Cheap, for it is asked for at
// every token; block_element() is not.
export function blocks_of(text) {
  const lines = text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), blocks = [];
  for (let at = 0; at < lines.length;) {
    if (is_blank(lines[at])) {
      ++at;
      continue;
    }
    const kind = kind_of(lines, at), from = at;
    at = end_of[kind](lines, at);
    blocks.push({ kind, lines: lines.slice(from, at) });
  }
  return blocks;
}

function kind_of(lines, at) {
  const line = lines[at];
  if (fence.test(line)) return "code";
  if (heading.test(line)) return "heading";
  if (rule.test(line)) return "rule";
  if (quote.test(line)) return "quote";
  if (item.test(line)) return "list";
  return begins_table(lines, at) ? "table" : "paragraph";
}

// The line after a block.
const end_of = {
  code(lines, at) {
    const open = fence_of(lines[at]).marks;
    const close = new RegExp(`^ {0,3}${open[0]}{${open.length},}\\s*$`);
    let end = at + 1;
    while (end < lines.length && !close.test(lines[end])) ++end;
    return Math.min(end + 1, lines.length);  // without an end it goes on: more is coming
  },
  heading: (lines, at) => at + 1,
  rule: (lines, at) => at + 1,
  quote(lines, at) {
    while (at < lines.length && quote.test(lines[at])) ++at;
    return at;
  },
  // Items of one kind, with what is indented below them or follows without a blank line.
  list(lines, at) {
    const numbered = /\d/.test(item.exec(lines[at])[2]);
    let blank = false;
    for (let end = at + 1; end <= lines.length; ++end) {
      if (end === lines.length) return end;
      const line = lines[end], found = item.exec(line);
      if (is_blank(line)) {
        blank = true;
        continue;
      }
      const goes_on = width_of(line) >= 2 || (found ? /\d/.test(found[2]) === numbered && !rule.test(line)
                                                    : !blank && !begins_other(line));
      if (!goes_on) return end;
      blank = false;
    }
  },
  table(lines, at) {
    at += 2;
    while (at < lines.length && !is_blank(lines[at]) && lines[at].includes("|")) ++at;
    return at;
  },
  paragraph(lines, at) {
    ++at;
    while (at < lines.length && !is_blank(lines[at]) && !begins_other(lines[at]) && !begins_table(lines, at)) ++at;
    return at;
  },
};

export function block_element({ kind, lines }, depth = 0) {
  return element_of[kind](lines, depth);
}

const element_of = {
  code(lines) {
    const { marks, language } = fence_of(lines[0]), last = lines.at(-1).trim();
    const closed = lines.length > 1 && last.length >= marks.length && last === marks[0].repeat(last.length);
    const text = lines.slice(1, closed ? -1 : undefined).join("\n");
    const copy = made("button", { type: "button", className: "copy-code", textContent: "Copy" });
    return made("div", { className: "code" },
                made("div", { className: "code-head" },
                     made("span", { textContent: language.slice(0, 40) || "text" }), copy),
                made("pre", { tabIndex: 0 }, made("code", { textContent: text })));
  },
  heading(lines) {
    const [, marks, text] = heading.exec(lines[0]);
    const tag = "h" + Math.min(6, marks.length + 3);
    return made(tag, { className: "level" + marks.length }, inline_nodes(less_marks(text)));
  },
  rule: () => made("hr"),
  quote: (lines, depth) => made("blockquote", {}, inside(lines.map(line => line.replace(quote, "")), depth)),
  list(lines, depth) {
    const first = item.exec(lines[0])[2], numbered = /\d/.test(first);
    const loose = lines.some((line, i) => i > 0 && is_blank(lines[i - 1]) && !is_blank(line) && width_of(line) < 2);
    const list = made(numbered ? "ol" : "ul", { className: loose ? "loose" : "" });
    if (numbered && parseInt(first, 10) !== 1) list.start = parseInt(first, 10);
    append(list, items_of(lines).map(one => made("li", {}, inside(one, depth))));
    return list;
  },
  table(lines) {
    const sides = cells_of(lines[1]).map(cell => cell.endsWith(":") ? (cell.startsWith(":") ? "middle" : "end") : "");
    const row = (line, tag) => {
      const cells = cells_of(line);
      return made("tr", {}, sides.map((side, i) => made(tag, { className: side }, inline_nodes(cells[i] ?? ""))));
    };
    const table = made("table", {}, made("thead", {}, row(lines[0], "th")),
                       made("tbody", {}, lines.slice(2).map(line => row(line, "td"))));
    return made("div", { className: "wide", tabIndex: 0 }, table);
  },
  paragraph: lines => made("p", {}, inline_nodes(lines.map(line => line.trimStart()).join("\n"))),
};

function inside(lines, depth) {
  if (depth >= kMostNested) return [made("p", { textContent: lines.join("\n") })];
  return blocks_of(lines.join("\n")).map(block => block_element(block, depth + 1));
}

// "Title ##" as "Title".
function less_marks(text) {
  const all = text.trim();
  let end = all.length;
  while (all[end - 1] === "#") --end;
  return end === 0 || all[end - 1] === " " ? all.slice(0, end).trim() : all;
}

// The lines of each item, less its mark and the indent below it.
function items_of(lines) {
  const items = [], base = width_of(lines[0]);
  let indent = 0;
  for (const line of lines) {
    const found = item.exec(line);
    if (found && width_of(line) < base + 2) {
      indent = found[1].length + found[2].length + (found[3]?.length ?? 1);
      items.push([line.slice(indent)]);
    } else {
      items.at(-1).push(line.slice(Math.min(indent, width_of(line))));
    }
  }
  return items;
}

// "| a | b \| c |" as ["a", "b | c"].
function cells_of(line) {
  const cells = line.trim().replace(/^\|/, "").split(/(?<!\\)\|/).map(cell => cell.trim().replaceAll("\\|", "|"));
  if (cells.at(-1) === "") cells.pop();
  return cells;
}

// A text that grows, shown in `element`. Blocks that have not changed keep their elements, and with them a selection.
export class GrowingMarkdown {
  constructor(element) {
    this.element = element;
    this.shown = [];  // the lines of each block as one text
  }

  show(text) {
    const blocks = blocks_of(text), sources = blocks.map(block => block.lines.join("\n"));
    let same = 0;
    while (same < sources.length && sources[same] === this.shown[same]) ++same;
    while (this.element.children.length > same) this.element.lastElementChild.remove();
    append(this.element, blocks.slice(same).map(block => block_element(block)));
    this.shown = sources;
  }
}
