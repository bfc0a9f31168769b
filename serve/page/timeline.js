// The time line of the live view: tokens/s above, outputs that run and wait below, of the last two minutes.
import { whole } from "./figures.js";

const kSeconds = 120;
const samples = [];  // {at: the server's seconds, rate: tokens/s, running, waiting}

export function add_sample(sample) {
  if (samples.length > 0 && sample.at < samples.at(-1).at) samples.length = 0;  // another server
  samples.push(sample);
  while (samples[0].at < sample.at - kSeconds) samples.shift();
}

// A round number at or above `value`.
function top_of(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map(step => step * power).find(round => round >= value);
}

function draw_band(context, { top, height, width, names, colours, label }) {
  const most = top_of(Math.max(...samples.flatMap(sample => names.map(name => sample[name])), 0));
  const now = samples.at(-1).at;
  const x = at => width * (1 - (now - at) / kSeconds);
  const y = value => top + height * (1 - value / most);
  context.fillStyle = colours.line;
  context.fillRect(0, top + height, width, 1);
  context.fillRect(0, top, width, 1);
  names.forEach((name, i) => {
    context.strokeStyle = colours[name];
    context.lineWidth = 1.6;
    context.setLineDash(i === 0 ? [] : [4, 3]);
    context.beginPath();
    for (const sample of samples) context.lineTo(x(sample.at), y(sample[name]));
    context.stroke();
  });
  context.setLineDash([]);
  context.fillStyle = colours.dim;
  context.fillText(`${whole(most)} ${label}`, 4, top + 13);
}

export function draw_timeline(canvas) {
  if (samples.length === 0 || canvas.clientWidth === 0) return;
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const colours = Object.fromEntries(["rate", "running", "waiting", "line", "dim"].map(
    name => [name, style.getPropertyValue(`--${name}`).trim()]));
  context.font = `11px ${style.fontFamily}`;
  const half = height / 2;
  draw_band(context, { top: 1, height: half - 10, width, names: ["rate"], colours, label: "tokens/s" });
  draw_band(context, { top: half + 4, height: half - 10, width, names: ["running", "waiting"], colours, label: "outputs" });
  const last = samples.at(-1);
  canvas.setAttribute("aria-label", `Of the last two minutes: now ${last.rate.toFixed(0)} tokens/s, ` +
                                    `${last.running} running, ${last.waiting} waiting`);
}
