// The time line of the live view: tokens/s above, outputs that run and wait below, of the last two minutes. The browser
// keeps the samples, so that they are there after a reload.
import { keep, kept } from "./browser_store.js";
import { whole } from "./figures.js";

const kSeconds = 120, kTick = 30, kKeepEvery = 5;
const kGap = 5;        // seconds without a sample are a gap in the lines
const samples = read();  // {at: seconds since 1970, rate: tokens/s, running, waiting}
let kept_at = 0;

function read() {
  const found = kept("samples"), now = Date.now() / 1000;
  const is_sample = one => one && ["at", "rate", "running", "waiting"].every(name => Number.isFinite(one[name]));
  return (Array.isArray(found) ? found : []).filter(one => is_sample(one) && one.at <= now && one.at > now - kSeconds);
}

// {rate, running, waiting} of now.
export function add_sample(sample) {
  const at = Date.now() / 1000;
  if (samples.length > 0 && samples.at(-1).at > at) samples.length = 0;  // the clock was set back
  while (samples.length > 0 && samples[0].at < at - kSeconds) samples.shift();
  samples.push({ at, ...sample });
  if (at - kept_at < kKeepEvery) return;
  kept_at = at;
  keep("samples", samples);
}

addEventListener("pagehide", () => { if (samples.length > 0) keep("samples", samples); });

// A round number at or above `value`.
function top_of(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map(step => step * power).find(round => round >= value);
}

function draw_band(context, { top, height, x, width, names, colours, label }) {
  const most = top_of(Math.max(...samples.flatMap(sample => names.map(name => sample[name])), 0));
  const y = value => top + height * (1 - value / most);
  context.fillStyle = colours.line;
  context.fillRect(0, top + height, width, 1);
  context.fillRect(0, top, width, 1);
  names.forEach((name, i) => {
    context.strokeStyle = colours[name];
    context.lineWidth = 1.6;
    context.setLineDash(i === 0 ? [] : [4, 3]);
    context.beginPath();
    samples.forEach((sample, at) => {
      const is_first = at === 0 || sample.at - samples[at - 1].at > kGap;
      context[is_first ? "moveTo" : "lineTo"](x(sample.at), y(sample[name]));
    });
    context.stroke();
  });
  context.setLineDash([]);
  context.fillStyle = colours.dim;
  context.textAlign = "left";
  context.fillText(`${whole(most)} ${label}`, 4, top + 13);
}

const ago_text = seconds => seconds === 0 ? "now" : seconds % 60 === 0 ? `${seconds / 60} min ago` : `${seconds} s ago`;

function draw_axis(context, { top, x, width, now, colours }) {
  const step = width < 480 ? 2 * kTick : kTick;
  for (let ago = kSeconds; ago >= 0; ago -= step) {
    const at = x(now - ago);
    context.fillStyle = colours.line;
    context.fillRect(Math.min(at, width - 1), 0, 1, top + 4);
    context.fillStyle = colours.dim;
    context.textAlign = ago === kSeconds ? "left" : ago === 0 ? "right" : "center";
    context.fillText(ago_text(ago), at, top + 16);
  }
}

export function draw_timeline(canvas) {
  if (samples.length === 0 || canvas.clientWidth === 0) return;
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight, bottom = height - 20;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const colours = Object.fromEntries(["rate", "running", "waiting", "line", "dim"].map(
    name => [name, style.getPropertyValue(`--${name}`).trim()]));
  context.font = `11px ${style.fontFamily}`;
  const now = Date.now() / 1000, half = bottom / 2, x = at => width * (1 - (now - at) / kSeconds);
  draw_axis(context, { top: bottom, x, width, now, colours });
  draw_band(context, { top: 1, height: half - 10, x, width, names: ["rate"], colours, label: "tokens/s" });
  draw_band(context, { top: half + 4, height: half - 10, x, width, names: ["running", "waiting"], colours,
                       label: "outputs" });
  const last = samples.at(-1);
  canvas.setAttribute("aria-label", `The last two minutes: ${last.rate.toFixed(0)} tokens/s, ` +
                                    `${last.running} running, ${last.waiting} waiting at the end`);
}
