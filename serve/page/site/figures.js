// Numbers and lists of them as the page writes them.

export const whole = number => number.toLocaleString("en-US");

export function bytes_text(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    ++unit;
  }
  return `${unit === 0 || bytes >= 100 ? bytes.toFixed(0) : bytes.toFixed(1)} ${units[unit]}`;
}

export const ms_text = ms =>
  ms === null ? "–" : ms < 10 ? `${ms.toFixed(2)} ms` : ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(2)} s`;

export const share_text = (part, all) => (all > 0 ? `${(100 * part / all).toFixed(1)}%` : "–");

// Fills a <dl> with [name, value] pairs. An entry whose text stays the same is not touched.
export function show_pairs(list, pairs) {
  if (list.children.length !== pairs.length) {
    list.replaceChildren(...pairs.map(() => {
      const pair = document.createElement("div");
      pair.append(document.createElement("dt"), document.createElement("dd"));
      return pair;
    }));
  }
  pairs.forEach(([name, value], i) => {
    const [term, told] = list.children[i].children;
    if (term.textContent !== name) term.textContent = name;
    if (told.textContent !== String(value)) told.textContent = String(value);
  });
}
