// Contexts: each occurrence of a word as a point, moving from layer to layer.

import { byId, create, labelSlider, layerName, sentence } from "./elements.js";
import { createRequester } from "./requests.js";
import { COLOURS, Scatter } from "./scatter.js";

const SECONDS_BY_KEY = 0.4, SECONDS_AT_START = 1.2; // from one layer to the next
const START_DELAY = 0.7; // seconds at layer 0, before the points begin to move
const MAX_NUMBERED = 60, NUMBER_DISTANCE = 9; // points with a number, pixels between two numbers
const EDGE = 30; // pixels from the right edge of the plot, where a number is left of its point
const HINT = "Point at a dot, or move through the dots with the arrow keys, to read its sentence.";

export function startContexts(backend, change, { animate }) {
  const slider = byId("contexts-layer"), plot = byId("contexts-plot");
  const scatter = new Scatter(plot);
  let response = null, state = null, frame = 0;
  let animateNext = animate && !prefersReducedMotion();
  let animatedLayer = null, animationTarget = null; // while the first animation runs
  scatter.onDraw = () => numberPoints(scatter.positions());

  const draw = () => {
    const top = (response?.layers.length ?? 3) - 1;
    const layer = animatedLayer ?? Math.max(0, Math.min(Number(state["contexts-layer"]) || 0, top));
    const nearest = Math.round(layer), number = layer.toFixed(layer % 1 ? 1 : 0);
    scatter.moveTo(layer);
    byId("contexts-layer-shown").textContent = number;
    slider.setAttribute("aria-valuetext", `layer ${number} of ${top}, ${layerName(nearest, top)}`);
    const variance = response?.layers[nearest].explained_variance;
    byId("contexts-axes").textContent = variance ? describeAxes(nearest, variance) : "";
    select(state["contexts-selected"] === "" ? -1 : Number(state["contexts-selected"]));
  };
  const select = (point) => {
    scatter.select(point);
    [...byId("contexts-list").children].forEach((item, index) => {
      item.classList.toggle("selected", index === point);
    });
    const selected = response?.contexts[point];
    const shown = selected ? sentence(selected.words, [selected.position]) : [response ? HINT : ""];
    byId("contexts-selected").replaceChildren(...shown);
    byId("contexts-selected").classList.toggle("note", !selected);
  };
  const choose = (point) => {
    if (!response?.contexts[point] || String(point) === state["contexts-selected"]) return;
    change("contexts-selected", String(point));
  };
  const send = createRequester(
    byId("contexts-error"),
    backend.contexts,
    (result) => {
      response = result;
      const contexts = response?.contexts ?? [];
      if (response) labelSlider(slider, byId("contexts-layer-names"), response.layers.length);
      const layers = (response?.layers ?? []).map((layer) => fitToPlot(layer.points));
      scatter.show(layers, contexts.map(({ group }) => group));
      const groups = response?.groups ?? [];
      byId("contexts-groups").replaceChildren(
        ...groups.map((name, group) => withDot(create("span", name), group)),
      );
      byId("contexts-list").replaceChildren(
        ...contexts.map((context, point) => listItem(context, point, choose)),
      );
      if (response && animateNext) animateFromLayer0();
      draw();
    },
  );

  const pick = (event) => choose(scatter.pointAt(event.clientX, event.clientY));
  plot.addEventListener("pointermove", pick);
  plot.addEventListener("pointerdown", pick);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !response) return;
    event.preventDefault();
    const selected = state["contexts-selected"], count = response.contexts.length;
    const current = selected === "" ? (step > 0 ? -1 : 0) : Number(selected);
    choose((current + step + count) % count);
  });
  slider.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = Number(slider.value);
    const next = step > 0 ? Math.floor(from) + 1 : Math.ceil(from) - 1;
    const to = Math.min(Number(slider.max), Math.max(0, next));
    stopMoving();
    moveSmoothly(from, to, prefersReducedMotion() ? 0 : SECONDS_BY_KEY, (layer) =>
      change("contexts-layer", layer === to ? String(to) : layer.toFixed(2)),
    );
  });
  slider.addEventListener("pointerdown", () => stopMoving());

  const stopMoving = () => {
    cancelAnimationFrame(frame);
    animatedLayer = null;
  };
  const animateFromLayer0 = () => {
    animateNext = false;
    animationTarget = state["contexts-layer"];
    const to = Math.min(Number(state["contexts-layer"]) || 0, response.layers.length - 1);
    animatedLayer = 0;
    slider.value = 0;
    const showLayer = (layer) => {
      slider.value = layer;
      animatedLayer = layer === to ? null : layer;
      draw();
    };
    moveSmoothly(0, to, SECONDS_AT_START * to, showLayer, START_DELAY);
  };
  const moveSmoothly = (from, to, seconds, showLayer, delay = 0) => {
    cancelAnimationFrame(frame);
    const start = performance.now() + 1000 * delay;
    const step = (time) => {
      const share = Math.min(1, Math.max(0, (time - start) / 1000 / seconds || 0));
      if (share < 1) frame = requestAnimationFrame(step);
      showLayer(share === 1 ? to : from + (to - from) * share);
    };
    if (seconds) frame = requestAnimationFrame(step);
    else showLayer(to);
  };

  return (newState) => {
    if (animatedLayer !== null && newState["contexts-layer"] !== animationTarget) stopMoving();
    state = newState;
    draw();
    const texts = state["contexts-texts"].split("\n").filter((text) => text.trim());
    send(requestParameters(state["contexts-word"].trim(), texts));
  };
}

const prefersReducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function describeAxes(layer, [first, second]) {
  if (first + second < 1e-6) {
    return `Layer ${layer}: all occurrences have the same vector, which knows no context.`;
  }
  const percent = (share) => `${(100 * share).toFixed(0)} %`;
  return `Layer ${layer}: the axes show ${percent(first)} and ${percent(second)} of the variance.`;
}

// The numbers of the list beside the points; of several points in one place, only the first.
function numberPoints(positions) {
  const numbers = [], areFew = positions.length <= MAX_NUMBERED;
  const isNear = ([x, y], [otherX, otherY]) => Math.hypot(x - otherX, y - otherY) < NUMBER_DISTANCE;
  positions.forEach((position, point) => {
    if (!areFew || positions.slice(0, point).some((other) => isNear(position, other))) return;
    const number = create("span", point + 1);
    [number.style.left, number.style.top] = position.map((pixels) => `${pixels}px`);
    number.classList.toggle("left", position[0] > byId("contexts-plot").clientWidth - EDGE);
    numbers.push(number);
  });
  byId("contexts-numbers").replaceChildren(...numbers);
}

// Labels are sent if every line has one, before a tab.
function requestParameters(word, texts) {
  if (!word || !texts.length) return null;
  if (!texts.every((text) => text.includes("\t"))) return { word, texts };
  const labels = texts.map((text) => text.slice(0, text.indexOf("\t")).trim());
  return { word, texts: texts.map((text) => text.slice(text.indexOf("\t") + 1)), labels };
}

function listItem({ words, position, group }, point, choose) {
  const item = withDot(create("li", "", { tabIndex: 0 }), group);
  item.append(...sentence(words, [position]));
  for (const type of ["pointerenter", "focus"]) item.addEventListener(type, () => choose(point));
  return item;
}

function withDot(element, group) {
  const colour = COLOURS[group % COLOURS.length].map((part) => Math.round(255 * part));
  element.classList.add("dot");
  element.style.setProperty("--dot", `rgb(${colour.join(" ")})`);
  return element;
}

// All points between -1 and 1, both axes on one scale; points that hardly differ become one.
function fitToPlot(points) {
  const axes = [0, 1].map((axis) => points.map((point) => point[axis]));
  const lowest = axes.map((values) => Math.min(...values));
  const highest = axes.map((values) => Math.max(...values));
  const half = Math.max(highest[0] - lowest[0], highest[1] - lowest[1]) / 2;
  if (half < 1e-6) return points.map(() => [0, 0]);
  const middle = lowest.map((low, axis) => (low + highest[axis]) / 2);
  return points.map((point) => point.map((value, axis) => (value - middle[axis]) / half));
}
