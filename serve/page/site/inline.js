// One paragraph of Markdown as nodes: emphasis, code, links, escapes. Markup of HTML is text, an image is its words.
// One pass: the work grows with the text, whatever stands in it.

// "](address)", "](<address>)" and "](address "title")", with one pair of brackets in the address.
const kAddress = new RegExp(String.raw`^\]\((?:<([^<>\n]{0,2000})>|` +
                            String.raw`([^\s()<>]{0,2000}(?:\([^\s()<>]{0,2000}\)[^\s()<>]{0,2000})?))` +
                            String.raw`(?:\s+"[^"\n]{0,500}")?\s*\)`);
const kMostNested = 12;  // of emphasis: the depth of the document is the page's, not the model's

// An element with these properties and children: nodes, words, and lists of them, which may be long.
export function made(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else element.append(child);
  }
}

// A link that leads to a web page or an address of mail; other words of this form stay words.
function link_to(address, words = "") {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  return made("a", { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, words);
}

// Where each run of backticks is, by its length, so that a code's end is found without a search.
function tick_runs(text) {
  const runs = new Map();
  for (const { 0: ticks, index } of text.matchAll(/`+/g)) {
    if (!runs.has(ticks.length)) runs.set(ticks.length, []);
    runs.get(ticks.length).push(index);
  }
  for (const places of runs.values()) places.reverse();  // the next one is the last
  return runs;
}

const is_space = letter => letter === undefined || /\s/u.test(letter);
// Chinese and Japanese marks stand beside words without a space, and are no marks here.
const is_mark = letter => letter !== undefined && /[\p{P}\p{S}]/u.test(letter) &&
                          !/[\u3000-\u303f\uff00-\uffef]/.test(letter);

// May a run of `*`, `_` or `~` open, may it close (CommonMark 0.31, 6.2).
function sides_of(text, from, to) {
  const before = text[from - 1], after = text[to];
  const left = !is_space(after) && (!is_mark(after) || is_space(before) || is_mark(before));
  const right = !is_space(before) && (!is_mark(before) || is_space(after) || is_mark(after));
  if (text[from] !== "_") return { opens: left, closes: right };
  return { opens: left && (!right || is_mark(before)), closes: right && (!left || is_mark(after)) };
}

class Inline {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.out = [];       // {node, depth}
    this.open = { "*": [], "_": [], "~": [], "[": [] };  // {place in out, count}, the latest last
    this.ticks = tick_runs(text);
  }

  push(node, depth = 0) {
    this.out.push({ node, depth });
  }

  words(text) {
    const last = this.out.at(-1);
    if (last && last.plain) last.node.data += text;
    else if (text !== "") this.out.push({ node: document.createTextNode(text), depth: 0, plain: true });
  }

  // What stands in `out` from `place` on, taken from it; openers there have nothing to close any more.
  take(place) {
    for (const list of Object.values(this.open)) while (list.length > 0 && list.at(-1).place >= place) list.pop();
    return this.out.splice(place);
  }

  // Puts the nodes from `place` on into one.
  wrap(place, element) {
    const inside = this.out.slice(place), depth = 1 + inside.reduce((most, one) => Math.max(most, one.depth), 0);
    if (depth > kMostNested) {
      for (const list of Object.values(this.open)) list.length = 0;  // whatever began before would be deeper still
      return false;
    }
    this.take(place);
    append(element, inside.map(one => one.node));
    this.push(element, depth);
    return true;
  }

  code() {
    let begin = this.at;
    while (this.text[begin] === "`") ++begin;
    const count = begin - this.at, ends = this.ticks.get(count) ?? [];
    while (ends.length > 0 && ends.at(-1) < begin) ends.pop();
    const end = ends.at(-1);
    if (end === undefined) return this.words(this.text.slice(this.at, this.at = begin));
    const inside = this.text.slice(begin, end).replaceAll("\n", " ");
    this.push(made("code", { textContent: /^ .*[^ ].* $/.test(inside) ? inside.slice(1, -1) : inside }));
    this.at = end + count;
  }

  emphasis(letter) {
    let end = this.at;
    while (this.text[end] === letter) ++end;
    const { opens, closes } = sides_of(this.text, this.at, end), list = this.open[letter];
    let count = end - this.at;
    this.at = end;
    const tags = letter === "~" ? { 2: "del" } : { 1: "em", 2: "strong" };
    while (closes && count > 0 && list.length > 0) {
      const opener = list.at(-1), used = Math.min(2, count, opener.count);
      if (!tags[used] || !this.wrap(opener.place + 1, made(tags[used]))) break;
      count -= used;  // wrap() has dropped the openers inside, this one is before them
      const left = opener.count - used;
      if (left > 0) {
        opener.count = left;
        this.out[opener.place].node.data = letter.repeat(left);
      } else {
        const [, wrapped] = this.take(opener.place);
        this.out.push(wrapped);
      }
    }
    if (count === 0) return;
    if (!opens || (letter === "~" && count !== 2)) return this.words(letter.repeat(count));
    list.push({ place: this.out.length, count });
    this.push(document.createTextNode(letter.repeat(count)));
  }

  // "](address)" or "](address "title")" after an opening bracket.
  close_link() {
    const opener = this.open["["].pop();
    const found = kAddress.exec(this.text.slice(this.at, this.at + 8000));
    const link = opener && found && link_to(found[1] ?? found[2]);
    if (!link || !this.wrap(opener.place + 1, link)) return this.words(this.text[this.at++]);
    for (const inner of link.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);
    if (link.textContent === "") link.textContent = link.href;
    const [, wrapped] = this.take(opener.place);  // less the bracket
    this.out.push(wrapped);
    this.open["["].length = 0;  // no link is inside another
    this.at += found[0].length;
  }

  // <https://…>, or https://… as it stands.
  address() {
    const rest = this.text.slice(this.at, this.at + 2000);
    const marked = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/.exec(rest);
    const bare = marked ? null : /^https?:\/\/[^\s<>`"]*[^\s<>`"'.,;:!?*_~)\]}]/.exec(rest);
    const found = marked ?? bare;
    const link = found && link_to(marked ? marked[1] : bare[0], marked ? marked[1] : bare[0]);
    if (!link) return this.words(this.text[this.at++]);
    this.push(link);
    this.at += found[0].length;
  }

  nodes() {
    const special = /[\\`*_~[\]<]|!(?=\[)|https?:\/\//g;
    while (this.at < this.text.length) {
      special.lastIndex = this.at;
      const next = special.exec(this.text)?.index ?? this.text.length;
      this.words(this.text.slice(this.at, next));
      this.at = next;
      const letter = this.text[next];
      if (letter === "\\" && /[!-/:-@[-`{-~]/.test(this.text[next + 1] ?? "")) {
        this.words(this.text[next + 1]);
        this.at += 2;
      } else if (letter === "`") this.code();
      else if (letter === "*" || letter === "_" || letter === "~") this.emphasis(letter);
      else if (letter === "[" || letter === "!") {
        const begin = letter === "[" ? "[" : "![";
        this.open["["].push({ place: this.out.length });
        this.push(document.createTextNode(begin));
        this.at += begin.length;
      } else if (letter === "]") this.close_link();
      else if (letter === "<" || letter === "h") this.address();
      else if (letter !== undefined) this.words(this.text[this.at++]);
    }
    return this.out.map(one => one.node);
  }
}

export const inline_nodes = text => new Inline(text).nodes();
