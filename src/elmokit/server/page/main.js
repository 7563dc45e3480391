// The tabs, the fields and the address bar; a link shows what its sender saw.
//
// The views ask a back end, which has a function for each kind of request: info, layerWeights,
// contexts, similarity, nextWords, fillGaps and search. They take the parameters and return the
// content of the service's routes. http_backend.js asks the service, and browser_backend.js
// computes in the browser; the attribute data-backend of the page says which one it has.

import { startContexts } from "./contexts.js";
import { byId, create } from "./elements.js";
import { EXAMPLES } from "./examples.js";
import { startLayerWeights } from "./layer_weights.js";
import { startPredict } from "./predict.js";
import { createRequester } from "./requests.js";
import { startSearch } from "./search.js";
import { startSimilarity } from "./similarity.js";

const VIEWS = ["contexts", "similarity", "predict", "layer-weights", "search"];
// The fields of the page, with what they hold at first.
const FIELDS = {
  ...Object.assign({}, ...Object.values(EXAMPLES).map(([first]) => first.fields)),
  "contexts-layer": "2",
  "similarity-layer": "2",
  "search-mode": "",
  "search-file": "",
  "search-word": "",
};
const DEFAULTS = { view: "contexts", "contexts-selected": "", ...FIELDS };
const ADDRESS_DELAY = 200; // milliseconds: browsers refuse to change the address more often

const backendName = document.documentElement.dataset.backend;
const { createBackend } = await import(`./${backendName}_backend.js`);
const backend = createBackend({ showProgress });

const state = { ...DEFAULTS, ...stateFromAddress() };
const views = {
  contexts: startContexts(backend, change, { animate: !("contexts-layer" in stateFromAddress()) }),
  similarity: startSimilarity(backend),
  predict: startPredict(backend, change),
  "layer-weights": startLayerWeights(backend),
  search: startSearch(backend),
};
let addressTimer = null;

function stateFromAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries([...parameters].filter(([name]) => Object.hasOwn(DEFAULTS, name)));
}

function change(name, value) {
  changeAll({ [name]: value });
}

function changeAll(values) {
  Object.assign(state, values);
  show();
}

function show() {
  if (!VIEWS.includes(state.view)) state.view = DEFAULTS.view;
  for (const view of VIEWS) {
    const isShown = view === state.view;
    byId(view).hidden = !isShown;
    byId(`tab-${view}`).setAttribute("aria-selected", String(isShown));
    byId(`tab-${view}`).tabIndex = isShown ? 0 : -1;
  }
  for (const name of Object.keys(FIELDS)) {
    if (byId(name).value !== state[name]) byId(name).value = state[name];
  }
  views[state.view](state);
  addressTimer ??= setTimeout(updateAddress, ADDRESS_DELAY);
}

// What a back end loads before it can answer: a share from 0 to 1, and what; null when done.
function showProgress(share, text) {
  byId("loading").hidden = share === null;
  if (share === null) return;
  byId("loading-progress").value = share;
  byId("loading-text").textContent = text;
}

function updateAddress() {
  addressTimer = null;
  const changed = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  const hash = `#${new URLSearchParams(changed)}`;
  history.replaceState(null, "", changed.length ? hash : location.pathname);
}

for (const view of VIEWS) {
  byId(`tab-${view}`).addEventListener("click", () => change("view", view));
}
byId("tabs").addEventListener("keydown", (event) => {
  const current = VIEWS.indexOf(state.view), last = VIEWS.length - 1;
  const right = current === last ? 0 : current + 1, left = current === 0 ? last : current - 1;
  const next = { ArrowRight: right, ArrowLeft: left, Home: 0, End: last }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  change("view", VIEWS[next]);
  byId(`tab-${state.view}`).focus();
});
for (const name of Object.keys(FIELDS)) {
  byId(name).addEventListener("input", (event) => {
    const isNewText = name === "contexts-word" || name === "contexts-texts";
    changeAll({ [name]: event.target.value, ...(isNewText && { "contexts-selected": "" }) });
  });
}
for (const [view, examples] of Object.entries(EXAMPLES)) {
  for (const { name, fields } of examples) {
    const button = create("button", name, { type: "button" });
    button.addEventListener("click", () => changeAll({ "contexts-selected": "", ...fields }));
    byId(`${view}-examples`).append(button);
  }
}
window.addEventListener("hashchange", () => {
  clearTimeout(addressTimer);
  addressTimer = null;
  Object.assign(state, DEFAULTS, stateFromAddress());
  show();
});

const askForInfo = (_, signal) => backend.info(signal);
const requestInfo = createRequester(byId("info-error"), askForInfo, (info) => {
  byId("model").hidden = !info;
  if (!info) return;
  byId("model-name").textContent = info.model;
  const millions = (info.parameters / 1e6).toFixed(1);
  byId("model-size").textContent =
    `${info.layers} layers · ${info.dim} dimensions · ${millions} million parameters`;
  document.title = `${info.model} · elmokit`;
  // Only an index of words can be asked for the occurrences of one word.
  byId("search-word-field").hidden = info.index !== "words" && !state["search-word"];
  // An index without lexical part has one mode.
  byId("search-mode-field").hidden = info.search_modes.length < 2 && !state["search-mode"];
});
requestInfo("info");
show();
document.documentElement.dataset.started = "true"; // see check_start.js
