// Tabs, fields and the address bar become one state: a link shows what its sender saw.

import { startAlike } from "./alike.js";
import { field } from "./make.js";
import { startMixes } from "./mixes.js";
import { startSearch } from "./search.js";
import { startUses } from "./uses.js";
import { startWords } from "./words.js";

const VIEWS = ["uses", "alike", "words", "mixes", "search"];
const BEGIN = {
  view: "uses",
  "uses-word": "bank",
  "uses-texts": [
    "She keeps her savings in a bank on the high street .",
    "They pulled the boat up on the muddy bank of the river .",
    "The bank refused to give the company another loan .",
    "Willows grow along the bank of the stream .",
    "He opened an account at a bank in Geneva .",
    "We sat on the grassy bank and watched the water .",
  ].join("\n"),
  "uses-layer": "0",
  "uses-use": "",
  "alike-first": "The bank refused to give a loan .",
  "alike-second": "Willows grow on the bank of the river .",
  "alike-layer": "2",
  "words-text": "The river flows into the",
  "search-query": "a painter of landscapes",
  "search-word": "",
};
const FIELDS = Object.keys(BEGIN).filter((name) => name.includes("-") && name !== "uses-use");
const LINKED = 200; // milliseconds: browsers refuse to change the address more often

const state = { ...BEGIN, ...linked() };
const shows = {
  uses: startUses(change),
  alike: startAlike(),
  words: startWords(change),
  mixes: startMixes(),
  search: startSearch(),
};
let linking = null;

function linked() {
  const told = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries([...told].filter(([name]) => Object.hasOwn(BEGIN, name)));
}

function change(name, value) {
  state[name] = value;
  show();
}

function show() {
  if (!VIEWS.includes(state.view)) state.view = BEGIN.view;
  for (const view of VIEWS) {
    const here = view === state.view;
    field(view).hidden = !here;
    field(`tab-${view}`).setAttribute("aria-selected", String(here));
    field(`tab-${view}`).tabIndex = here ? 0 : -1;
  }
  for (const name of FIELDS) if (field(name).value !== state[name]) field(name).value = state[name];
  shows[state.view](state);
  linking ??= setTimeout(link, LINKED);
}

function link() {
  linking = null;
  const told = Object.entries(state).filter(([name, value]) => value !== BEGIN[name]);
  history.replaceState(null, "", told.length ? `#${new URLSearchParams(told)}` : location.pathname);
}

for (const view of VIEWS) {
  field(`tab-${view}`).addEventListener("click", () => change("view", view));
}
field("tabs").addEventListener("keydown", (event) => {
  const here = VIEWS.indexOf(state.view), last = VIEWS.length - 1;
  const [right, left] = [here === last ? 0 : here + 1, here === 0 ? last : here - 1];
  const next = { ArrowRight: right, ArrowLeft: left, Home: 0, End: last }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  change("view", VIEWS[next]);
  field(`tab-${state.view}`).focus();
});
for (const name of FIELDS) {
  field(name).addEventListener("input", (event) => {
    if (name === "uses-word" || name === "uses-texts") state["uses-use"] = "";
    change(name, event.target.value);
  });
}
window.addEventListener("hashchange", () => {
  clearTimeout(linking);
  linking = null;
  Object.assign(state, BEGIN, linked());
  show();
});
show();
