// Sentences become points that part company, layer by layer.

import { asker } from "./ask.js";
import { field, make, sentence } from "./make.js";
import { COLOURS, Scatter } from "./scatter.js";

const SECONDS = 0.4; // from one layer to the next by key
const MOST_NUMBERS = 60, APART = 9; // points with a number beside them, and pixels between two such

export function startUses(change) {
  const slider = field("uses-layer"), plot = field("uses-plot");
  const scatter = new Scatter(plot);
  let found = null, now = null, moving = 0;
  scatter.drawn = () => placeNumbers(scatter.places());

  const tell = () => {
    const top = (found?.layers.length ?? 3) - 1;
    const layer = Math.max(0, Math.min(Number(now["uses-layer"]) || 0, top));
    scatter.moveTo(layer);
    field("uses-layer-shown").textContent = layer.toFixed(layer % 1 ? 1 : 0);
    slider.setAttribute("aria-valuetext", `layer ${layer.toFixed(layer % 1 ? 1 : 0)} of ${top}`);
    const whole = Math.round(layer), axes = found?.layers[whole].explained_variance;
    const shares = axes?.map((share) => `${(100 * share).toFixed(0)} %`);
    field("uses-axes").textContent = !axes ? "" : axes[0] + axes[1] < 1e-6
      ? `Layer ${whole}: all uses are the same.`
      : `Layer ${whole}: the axes show ${shares[0]} and ${shares[1]} of the variance.`;
    light(now["uses-use"] === "" ? -1 : Number(now["uses-use"]));
  };
  const light = (point) => {
    scatter.choose(point);
    [...field("uses-list").children].forEach((item, place) => {
      item.classList.toggle("chosen", place === point);
    });
    const use = found?.contexts[point];
    field("uses-chosen").replaceChildren(...(use ? sentence(use.words, [use.position]) : []));
  };
  const choose = (point) => {
    if (found?.contexts[point] && String(point) !== now["uses-use"]) change("uses-use", String(point));
  };
  const ask = asker("uses", (question, put) => put("contexts", question), (answer) => {
    found = answer;
    const uses = found?.contexts ?? [];
    if (found) slider.max = found.layers.length - 1;
    const layers = (found?.layers ?? []).map((layer) => fit(layer.points));
    scatter.show(layers, uses.map((use) => use.group));
    const groups = (found?.groups ?? []).map((name, group) => dotted(make("span", name), group));
    field("uses-groups").replaceChildren(...groups);
    field("uses-list").replaceChildren(...uses.map((use, point) => line(use, point, choose)));
    tell();
  });

  plot.addEventListener("pointermove", (event) => choose(scatter.at(event.clientX, event.clientY)));
  plot.addEventListener("pointerdown", (event) => choose(scatter.at(event.clientX, event.clientY)));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !found) return;
    event.preventDefault();
    const here = now["uses-use"] === "" ? (step > 0 ? -1 : 0) : Number(now["uses-use"]);
    choose((here + step + found.contexts.length) % found.contexts.length);
  });
  slider.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = Number(slider.value);
    const next = step > 0 ? Math.floor(from) + 1 : Math.ceil(from) - 1;
    const to = Math.min(Number(slider.max), Math.max(0, next));
    cancelAnimationFrame(moving);
    moving = glide(from, to);
  });
  slider.addEventListener("pointerdown", () => cancelAnimationFrame(moving));

  // By and by to a layer; at once for those who want nothing to move.
  const glide = (from, to) => {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const started = performance.now();
    const step = (time) => {
      const share = still ? 1 : Math.min(1, Math.max(0, (time - started) / 1000 / SECONDS));
      change("uses-layer", share === 1 ? String(to) : (from + (to - from) * share).toFixed(2));
      if (share < 1) moving = requestAnimationFrame(step);
    };
    return requestAnimationFrame(step);
  };

  return (state) => {
    now = state;
    tell();
    const lines = state["uses-texts"].split("\n").filter((text) => text.trim());
    ask(questionOf(state["uses-word"].trim(), lines));
  };
}

// The numbers of the list beside the points; of several in one place, the first.
function placeNumbers(places) {
  const made = [], few = places.length <= MOST_NUMBERS;
  const isNear = ([x, y], [otherX, otherY]) => Math.hypot(x - otherX, y - otherY) < APART;
  places.forEach((place, point) => {
    if (!few || places.slice(0, point).some((other) => isNear(place, other))) return;
    const number = make("span", point + 1);
    [number.style.left, number.style.top] = place.map((pixels) => `${pixels}px`);
    made.push(number);
  });
  field("uses-numbers").replaceChildren(...made);
}

// What is asked of lines, all of them with a label before a tab, or none.
function questionOf(word, lines) {
  if (!word || !lines.length) return null;
  if (!lines.every((text) => text.includes("\t"))) return { word, texts: lines };
  const labels = lines.map((text) => text.slice(0, text.indexOf("\t")).trim());
  return { word, texts: lines.map((text) => text.slice(text.indexOf("\t") + 1)), labels };
}

function line(use, point, choose) {
  const item = dotted(make("li", "", { tabIndex: 0 }), use.group);
  item.append(...sentence(use.words, [use.position]));
  for (const event of ["pointerenter", "focus"]) item.addEventListener(event, () => choose(point));
  return item;
}

function dotted(element, group) {
  const [red, green, blue] = COLOURS[group % COLOURS.length].map((part) => Math.round(255 * part));
  element.classList.add("dot");
  element.style.setProperty("--dot", `rgb(${red} ${green} ${blue})`);
  return element;
}

// All points within -1 and 1, both axes to one scale; what is hardly apart is one place.
function fit(points) {
  const axes = [0, 1].map((axis) => points.map((point) => point[axis]));
  const low = axes.map((numbers) => Math.min(...numbers));
  const high = axes.map((numbers) => Math.max(...numbers));
  const half = Math.max(high[0] - low[0], high[1] - low[1]) / 2;
  if (half < 1e-6) return points.map(() => [0, 0]);
  const middle = low.map((number, axis) => (number + high[axis]) / 2);
  return points.map((point) => point.map((number, axis) => (number - middle[axis]) / half));
}
