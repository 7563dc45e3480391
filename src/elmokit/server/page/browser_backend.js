// The back end of `elmo page`: the browser computes, with the model in a worker (elmokit-js).
//
// Its files are beside the page, in the folders that model/page.json names.

import { cluster, dot, projectLayers } from "./projection.js";
import { BackendError } from "./requests.js";
import { createSearch, fold } from "./passage_search.js";
import { createTokenizer } from "./tokenizer.js";

const ROOT = new URL("..", import.meta.url);
const FORMAT = 1;
const CLUSTERS = 2;
// As the service's: of the words of a request, occurrences, the words of their sentences, pairs of
// words, and the words that are read to fill gaps.
const MAX_TOKENS = 8192, MAX_OCCURRENCES = 500, MAX_WORDS = 2 ** 16, MAX_PAIRS = 2 ** 14;
const MAX_FILL_TOKENS = 2 ** 15, TRIED = 50, ROUNDS = 3;
const STAND_IN = "\ue000"; // one word to every tokenizer, which may split underlines
const GAP = "___";
const CONTROL_WAIT = 2000; // milliseconds until the page goes on without its service worker
// A module with one instruction of 128 bits, which onnxruntime needs.
const SIMD = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15,
  253, 98, 11,
]);

export function createBackend({ showProgress }) {
  const page = readPage();
  const model = page.then((content) => loadModel(content, showProgress));
  model.catch(() => {
    showProgress(null);
    forgetFiles();
  });
  let lastTurn = Promise.resolve();

  // One request after the other; those that nobody waits for any more are left out.
  const inTurn = (answer) => (parameters, signal) => {
    const turn = lastTurn.then(async () => {
      const loaded = await model;
      signal.throwIfAborted();
      return answer(loaded, parameters);
    });
    lastTurn = turn.catch(() => {});
    return turn;
  };
  return {
    info: async () => (await page).info,
    layerWeights: async () => ({ layer_weights: (await page).layer_weights }),
    contexts: inTurn(contexts),
    similarity: inTurn(similarity),
    nextWords: inTurn(nextWords),
    fillGaps: inTurn(fillGaps),
    search: inTurn(({ search }, parameters) => search(parameters)),
  };
}

async function readPage() {
  if (typeof WebAssembly !== "object" || !WebAssembly.validate(SIMD)) {
    throw lasting(
      "This browser has no WebAssembly with vector instructions, which the model needs: use " +
        "Chrome or Edge 110, Firefox 115, Safari 16.4, or newer.",
    );
  }
  await startServiceWorker();
  const page = await readJson("model/page.json");
  if (page.format !== FORMAT) throw lasting("The files of this page are not of one version.");
  return page;
}

// What answers requests: the model, the tokenizer and the search.
async function loadModel({ files, tokenizer, index, info }, showProgress) {
  const total = files.model.bytes + files.wasm.bytes;
  let shown = -1; // percent; more often than that, drawing takes longer than loading
  const show = (loaded) => {
    const percent = Math.min(100, Math.floor((100 * loaded) / total));
    if (percent === shown) return;
    shown = percent;
    const progress = `Loading the model: ${megabytes(loaded)} of ${megabytes(total)} MB`;
    showProgress(percent / 100, percent < 100 ? progress : "Starting the model …");
  };
  show(0);
  // The worker reads this file again, from the cache; it cannot say how far it is.
  await read(files.wasm.path, (loaded) => show(Math.min(loaded, files.wasm.bytes)));
  const url = (path) => new URL(path, ROOT).href;
  let loaded;
  try {
    const { loadInWorker } = await import(url(files.elmokit.path));
    loaded = await loadInWorker(url(files.model.path), {
      runtime: url(files.runtime.path),
      wasmPaths: { mjs: url(files.glue.path), wasm: url(files.wasm.path) },
      threads: 1, // more wait for each other at every step of the LSTMs
      onProgress: ({ loaded: bytes }) =>
        show(files.wasm.bytes + Math.min(bytes, files.model.bytes)),
    });
  } catch (error) {
    throw lasting(`The model of this page cannot be used: ${oneLine(error.message)}.`);
  }
  showProgress(null);
  const model = Object.fromEntries(
    ["embed", "nextWords", "previousWords", "fill"].map((method) => [
      method,
      (...values) => loaded[method](...values).catch((error) => {
        throw new BackendError(oneLine(error.message));
      }),
    ]),
  );
  const tokenize = createTokenizer(tokenizer);
  const search = createSearch({ files: index, model, tokenize, read, readJson });
  return { model, tokenize, search, hasSoftmax: info.softmax_words !== null };
}

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
const lasting = (message) => new BackendError(message, { lasting: true });
const oneLine = (message) => message.replace(/\s+/gu, " ").trim().replace(/\.$/u, "");

// The bytes of a file of the page; `onProgress` hears how many have come.
async function read(path, onProgress = () => {}) {
  let problem;
  try {
    const response = await fetch(new URL(path, ROOT));
    problem = `the server answered ${response.status}`;
    if (response.ok) {
      const chunks = [];
      let length = 0;
      for (const reader = response.body.getReader(); ; ) {
        const { done, value } = await reader.read();
        if (done) return new Uint8Array(await new Blob(chunks).arrayBuffer());
        chunks.push(value);
        onProgress((length += value.length));
      }
    }
  } catch (error) {
    problem = error.message;
  }
  throw lasting(`The file ${path} of this page cannot be loaded (${problem}); load it again.`);
}

async function readJson(path) {
  const bytes = await read(path);
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw lasting(`The file ${path} of this page is damaged; load it again.`);
  }
}

// It keeps the page's files for when there is no network. It should have control before the large
// files are loaded, so that they are loaded once.
async function startServiceWorker() {
  const { serviceWorker } = navigator;
  if (!serviceWorker) return; // as in a page that was not sent by https
  const controlled = new Promise((resolve) => {
    serviceWorker.addEventListener("controllerchange", resolve, { once: true });
  });
  const timeout = new Promise((resolve) => setTimeout(resolve, CONTROL_WAIT));
  try {
    await serviceWorker.register(new URL("service_worker.js", ROOT));
    if (!serviceWorker.controller) await Promise.race([controlled, timeout]);
  } catch {
    // Some browsers allow none: the page works, but not without a network.
  }
}

// Empty the caches of the service worker, which may have kept damaged files: the next visit loads
// all of them again.
async function forgetFiles() {
  if (!globalThis.caches || !navigator.onLine) return;
  const names = await caches.keys();
  const own = names.filter((name) => name.startsWith(`elmokit ${ROOT.href} `));
  await Promise.all(own.map((name) => caches.delete(name)));
}

async function contexts({ model, tokenize }, { word: given, texts, labels }) {
  const word = given.trim();
  const tokenized = texts.map(tokenize);
  checkSize(tokenized.flat());
  const folded = fold(word);
  const found = tokenized.flatMap((sentences, text) =>
    sentences.flatMap((words) => {
      const positions = [...words.keys()].filter((at) => fold(words[at]).startsWith(folded));
      return positions.length ? [{ words, positions, label: labels?.[text] }] : [];
    }),
  );
  const count = found.reduce((total, { positions }) => total + positions.length, 0);
  if (count < 2) {
    const frequency = count ? "occurs only once" : "does not occur";
    throw new BackendError(
      `'${word}' ${frequency} in the texts; two occurrences are needed for a map`,
    );
  }
  if (count > MAX_OCCURRENCES) throw tooLarge(`'${word}' occurs ${count} times`, MAX_OCCURRENCES);
  const shown = found.reduce((total, own) => total + own.words.length * own.positions.length, 0);
  if (shown > MAX_WORDS) {
    throw tooLarge(`the sentences of the occurrences have ${shown} words`, MAX_WORDS);
  }
  const vectors = await model.embed(found.map(({ words }) => words));
  const layers = Array.from({ length: vectors[0].layers }, (_, layer) =>
    found.flatMap(({ positions }, row) =>
      positions.map((position) => vectors[row].vector(layer, position)),
    ),
  );
  const { names, numbers } = groupOccurrences(found, labels, layers.at(-1));
  const occurrences = found.flatMap(({ words, positions }) =>
    positions.map((position) => ({ words, position })),
  );
  return {
    contexts: occurrences.map((own, row) => ({ ...own, group: numbers[row] })),
    groups: names,
    layers: projectLayers(layers),
  };
}

function groupOccurrences(found, labels, vectors) {
  if (!labels) {
    const numbers = cluster(vectors, CLUSTERS);
    const count = Math.max(...numbers) + 1;
    return { names: Array.from({ length: count }, (_, n) => `cluster ${n + 1}`), numbers };
  }
  const all = found.flatMap(({ label, positions }) => positions.map(() => label));
  const names = [...new Set(all)].sort();
  return { names, numbers: all.map((label) => names.indexOf(label)) };
}

async function similarity({ model, tokenize }, { first, second }) {
  const [one, other] = [first, second].map(tokenize);
  if (!one.length || !other.length) {
    throw new BackendError("a text has no word; give two texts with words");
  }
  checkSize([...one, ...other]);
  const pairs = one.flat().length * other.flat().length;
  if (pairs > MAX_PAIRS) throw tooLarge(`the words make ${pairs} pairs`, MAX_PAIRS);
  const vectors = await model.embed([...one, ...other]);
  const layers = Array.from({ length: vectors[0].layers }, (_, layer) => {
    const units = vectors.map((own) =>
      Array.from({ length: own.words }, (_, at) => unitVector(own.vector(layer, at))),
    );
    const columns = units.slice(one.length).flat();
    return units.slice(0, one.length).flat().map((row) => columns.map((own) => dot(row, own)));
  });
  return { first: one.flat(), second: other.flat(), layers };
}

async function nextWords({ model, tokenize, hasSoftmax }, { text, k, previous }) {
  checkSoftmax(hasSoftmax);
  const sentences = tokenize(text);
  checkSize(sentences);
  const words = sentences.at(previous ? 0 : -1) ?? [];
  const predictions = previous ? await model.previousWords(words, k)
    : await model.nextWords(words, k);
  return { predictions };
}

async function fillGaps({ model, tokenize, hasSoftmax }, { text, k }) {
  checkSoftmax(hasSoftmax);
  const sentences = tokenize(text.replace(/_{3,}/gu, STAND_IN)).map((words) =>
    words.map((word) => (word === STAND_IN ? GAP : word)),
  );
  const joined = sentences.flat().find((word) => word.includes(STAND_IN));
  if (joined) {
    throw new BackendError(
      `the gap in '${joined.replace(STAND_IN, GAP)}' is not a word by itself; put a space before ` +
        "and after it",
    );
  }
  const gapped = sentences.filter((words) => words.includes(GAP));
  const gaps = gapped.flat().filter((word) => word === GAP).length;
  const tokens = countTokens(gapped) * Math.max(k, TRIED) * gaps * (gaps > 1 ? ROUNDS : 1);
  if (tokens > MAX_FILL_TOKENS) {
    throw tooLarge(`trying ${Math.max(k, TRIED)} words in each gap takes ${tokens} tokens`,
      MAX_FILL_TOKENS);
  }
  const filled = [];
  for (const words of gapped) filled.push(...(await model.fill(words, k)));
  return { gaps: filled };
}

function checkSoftmax(hasSoftmax) {
  if (hasSoftmax) return;
  throw new BackendError("the model of this page has no softmax, so it cannot predict words");
}

const countTokens = (sentences) => sentences.reduce((total, words) => total + words.length + 2, 0);

function checkSize(sentences) {
  const tokens = countTokens(sentences);
  if (tokens > MAX_TOKENS) throw tooLarge(`the text has ${tokens} tokens`, MAX_TOKENS);
}

const tooLarge = (what, limit) =>
  new BackendError(`${what}, the limit is ${limit}; give less text`);

function unitVector(vector) {
  const length = Math.max(Math.sqrt(dot(vector, vector)), 1e-12);
  return Float32Array.from(vector, (number) => number / length);
}
