// ELMo in JavaScript: load a model that elmokit exported, embed words, encode texts, predict words.

import { readMetadata } from "./onnx_metadata.js";
import {
  createIndexer, indexWords, SENTENCE_BEGIN, SENTENCE_END, splitSentences, splitWords, UNKNOWN,
  Vocabulary,
} from "./words.js";

export { splitSentences, splitWords };
export { loadInWorker } from "./worker_client.js";

const TOKENS_PER_BATCH = 1024;
// So many log-probabilities are computed together: 64 MB.
const LOGITS_PER_BATCH = 2 ** 24;
const GAP = "___", TRIED = 50, ROUNDS = 3;

/** A mistake in what was given, or a model that cannot be loaded. */
export class ElmokitError extends Error {
  name = "ElmokitError";
}

/** Load a model: the address of a file that `elmo export` wrote, or its bytes. */
export async function load(source, options = {}) {
  const { providers = ["wasm"], tokensPerBatch = TOKENS_PER_BATCH } = options;
  if (typeof WebAssembly === "undefined" || typeof BigInt64Array === "undefined") {
    throw new ElmokitError("this browser is too old: it has no WebAssembly with 64-bit numbers");
  }
  const runtimeLoaded = loadRuntime(options);
  runtimeLoaded.catch(() => {}); // reported below, after the file
  const bytes = await read(source, options);
  const name = typeof source === "string" || source instanceof URL ? `${source}` : "the model";
  const metadata = readMetadata(bytes);
  if (metadata?.format !== "elmokit") {
    throw new ElmokitError(
      `${name}: not a model for elmokit-js; expected a file that \`elmo export\` wrote`,
    );
  }
  if (metadata.format_version !== "1") {
    throw new ElmokitError(
      `${name}: has version ${metadata.format_version} of the format, expected 1; ` +
      "install a newer elmokit-js",
    );
  }
  const ort = await runtimeLoaded;
  const settings = { executionProviders: providers, logSeverityLevel: 3 };
  let session;
  try {
    session = await ort.InferenceSession.create(bytes, settings);
  } catch (error) {
    throw new ElmokitError(`${name}: onnxruntime cannot load it (${error.message ?? error})`);
  }
  return new Model(ort, session, metadata, { tokensPerBatch, bytes: bytes.length });
}

async function loadRuntime({ runtime, wasmPaths, threads }) {
  let ort;
  try {
    if (typeof runtime === "object") {
      ort = runtime;
    } else if (runtime) {
      ort = await import(/* webpackIgnore: true */ /* @vite-ignore */ runtime);
    } else if (typeof process === "object" && process.versions?.node) {
      ort = await import("onnxruntime-web"); // the part for WebAssembly alone does not run in Node
    } else {
      ort = await import("onnxruntime-web/wasm");
    }
  } catch (error) {
    throw new ElmokitError(
      `onnxruntime-web cannot be loaded (${error.message}); install it, or name its address ` +
      "with the option runtime",
    );
  }
  ort = ort.InferenceSession ? ort : ort.default;
  if (wasmPaths) ort.env.wasm.wasmPaths = wasmPaths;
  if (threads) ort.env.wasm.numThreads = threads;
  return ort;
}

// The bytes of a model; `onProgress` hears how many have come.
async function read(source, { onProgress, signal }) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) {
    return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  }
  let response;
  try {
    response = await fetch(source, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ElmokitError(
      `${source}: cannot be fetched (${error.cause?.message ?? error.message}); ` +
      "expected an address, or the bytes of a file",
    );
  }
  if (!response.ok) {
    throw new ElmokitError(`${source}: the server answered ${response.status}, expected a model`);
  }
  // The length of what is sent, which is not that of the file where it is packed.
  const packed = response.headers.get("content-encoding");
  let total = packed ? null : Number(response.headers.get("content-length")) || null;
  const chunks = [];
  let loaded = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    loaded += value.length;
    // Another origin may hide that what it sends is packed; then its length is not the file's.
    if (total !== null && loaded > total) total = null;
    onProgress?.({ loaded, total });
  }
  if (total !== null && loaded < total) {
    throw new ElmokitError(`${source}: ends after ${loaded} of ${total} bytes; load it again`);
  }
  const bytes = new Uint8Array(loaded);
  let position = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, position);
    position += chunk.length;
  }
  return bytes;
}

/** The vectors of a sentence's words in some layers, one after the other. */
export class SentenceVectors {
  constructor(layers, words, dim, data) {
    Object.assign(this, { layers, words, dim, data });
  }

  /** The vector of a word in a layer, both counted from 0. */
  vector(layer, word) {
    const start = (layer * this.words + word) * this.dim;
    return this.data.subarray(start, start + this.dim);
  }
}

/** A model ready to embed; made by `load`. */
export class Model {
  #ort;
  #session;
  #indexer;
  #vocabulary = null;
  #tokensPerBatch;
  #lastRun = Promise.resolve();

  constructor(ort, session, metadata, { tokensPerBatch, bytes }) {
    this.#ort = ort;
    this.#session = session;
    this.#indexer = createIndexer(metadata);
    this.#tokensPerBatch = tokensPerBatch;
    if (metadata.vocabulary) this.#vocabulary = new Vocabulary(JSON.parse(metadata.vocabulary));
    this.info = Object.freeze({
      fingerprint: metadata.fingerprint,
      tokenizer: metadata.tokenizer,
      licence: metadata.licence,
      layers: Number(metadata.num_layers),
      dim: Number(metadata.dim),
      projectionSize: Number(metadata.projection_size),
      cellSize: Number(metadata.cell_size),
      directions: Object.freeze(JSON.parse(metadata.directions)),
      parameters: Number(metadata.parameters),
      precision: metadata.precision,
      softmax: metadata.softmax === "true",
      ids: metadata.ids,
      maxCharacters: Number(metadata.max_characters),
      vocabularySize: this.#vocabulary?.words.length ?? null,
      bytes,
    });
  }

  /** For each sentence, a list of words, the vectors of its words. */
  async embed(sentences, { layers = "all", boundaries = false } = {}) {
    const listed = checkSentences(sentences);
    const selection = selectLayers(layers, this.info.layers);
    const vectors = new Array(listed.length);
    for (const indices of batches(listed, this.#tokensPerBatch)) {
      const batch = indices.map((index) => listed[index]);
      const { layers: output } = await this.#run(batch);
      batch.forEach((sentence, row) => {
        const words = boundaries ? [0, sentence.length + 2] : [1, sentence.length + 1];
        vectors[indices[row]] = combine(output, row, words, selection);
      });
    }
    return vectors;
  }

  /** One vector for each text, a list of words or a raw text; of zeros if it has no words. */
  async encode(texts, { layers = "mean", pooling = "mean", normalize = false } = {}) {
    const pool = this.#pooling(pooling);
    const tokenized = [...texts].map((text) => this.#tokenize(text));
    const sentences = await this.embed(tokenized.flat(), { layers });
    let next = 0;
    return tokenized.map((text) => {
      const parts = sentences.slice(next, (next += text.length));
      const words = text.flat();
      const { layers: numLayers, dim } = parts[0] ?? this.#emptyVectors(layers);
      const encoded = new Float32Array(numLayers * dim);
      for (let layer = 0; words.length && layer < numLayers; layer++) {
        const rows = parts.flatMap(
          (part) => Array.from({ length: part.words }, (_, word) => part.vector(layer, word)),
        );
        encoded.set(pool(rows, words), layer * dim);
      }
      return normalize ? unitVector(encoded) : encoded;
    });
  }

  /** The k likeliest words after a text; `</S>` is its end. */
  async nextWords(text, k = 10, { specialTokens = false } = {}) {
    return this.#predict("forward", this.#tokenize(text).at(-1) ?? [], k, specialTokens);
  }

  /** The k likeliest words before a text; `<S>` is its beginning. */
  async previousWords(text, k = 10, { specialTokens = false } = {}) {
    return this.#predict("backward", this.#tokenize(text)[0] ?? [], k, specialTokens);
  }

  /**
   * For each `___` of a text, the k words that fit best from both sides.
   *
   * As in elmokit, the likeliest words are put in, and the whole sentence is scored. Several gaps
   * are first filled from one side, then each again until nothing changes, three times at most.
   */
  async fill(text, k = 10) {
    checkCount(k);
    this.#checkSoftmax();
    const tokenized = this.#tokenize(typeof text === "string" ? text.replace(/_{3,}/g, GAP) : text);
    const results = [];
    for (const sentence of tokenized) {
      const gaps = sentence.flatMap((word, index) => (word === GAP ? [index] : []));
      const filled = [...sentence];
      const fromOneSide = [...gaps];
      if (this.info.directions[0] === "backward") fromOneSide.reverse();
      for (const gap of gaps.length > 1 ? fromOneSide : []) {
        [{ word: filled[gap] }] = await this.#candidates(filled, gap, 1, this.info.directions[0]);
      }
      const predictions = new Map();
      for (let round = 0; gaps.length && round < ROUNDS; round++) {
        const before = filled.join("\n");
        for (const gap of gaps) {
          predictions.set(gap, await this.#fillGap(filled, gap, Math.max(k, TRIED)));
          filled[gap] = predictions.get(gap)[0].word;
        }
        if (gaps.length === 1 || filled.join("\n") === before) break;
      }
      results.push(...gaps.map((gap) => predictions.get(gap).slice(0, k)));
    }
    if (!results.length) throw new ElmokitError(`the text has no gap; write ${GAP} for a word`);
    return results;
  }

  /** The natural logarithm of the probability of each sentence, the mean of both directions. */
  async score(sentences) {
    this.#checkSoftmax();
    const { directions } = this.info;
    const scores = await this.#sumLogarithms(checkSentences(sentences), (sentence) => [
      ...sentence.map((word, step) => [step, step + 2, word]),
      ...(directions.includes("forward") ? [[sentence.length, -1, SENTENCE_END]] : []),
      ...(directions.includes("backward") ? [[-1, 1, SENTENCE_BEGIN]] : []),
    ]);
    return scores.map((score) => score / directions.length);
  }

  /** Free the memory of the model, which cannot be used any more. */
  async release() {
    await this.#lastRun;
    await this.#session.release();
  }

  #tokenize(text) {
    if (typeof text === "string") return splitSentences(text).map(splitWords);
    return checkSentences([text]);
  }

  // The outputs for sentences computed together; `asked` are places of words that are predicted.
  async #run(sentences, asked = [], k = 1) {
    const { Tensor } = this.#ort;
    const { types, words, numSteps } = indexWords(sentences);
    const { numColumns } = this.#indexer;
    const chars = new Int32Array((types.length + 1) * numColumns);
    chars.set(this.#indexer.encode(types), numColumns); // row 0 is padding
    const feeds = {
      chars: new Tensor("int64", int64(chars), [types.length + 1, numColumns]),
      words: new Tensor("int64", int64(words), [sentences.length, numSteps]),
    };
    const outputs = asked.length
      ? ["top_words", "top_log_probabilities", "log_probabilities"] : ["layers"];
    if (this.info.softmax) {
      feeds.asked = new Tensor("int64", int64(asked.flat()), [asked.length, 4]);
      feeds.k = new Tensor("int64", int64([k]), [1]);
    }
    // onnxruntime-web runs one call at a time.
    const run = this.#lastRun.then(() => this.#session.run(feeds, outputs));
    this.#lastRun = run.catch(() => {});
    return run;
  }

  async #predict(direction, sentence, k, specialTokens) {
    checkCount(k);
    this.#checkSoftmax();
    if (!this.info.directions.includes(direction)) {
      throw new ElmokitError(
        `predicting ${direction === "forward" ? "next" : "previous"} words needs a ${direction} ` +
        `LSTM, but the model has only a ${this.info.directions[0]} one`,
      );
    }
    const start = direction === "forward" ? SENTENCE_BEGIN : SENTENCE_END;
    const excluded = specialTokens ? [] : [UNKNOWN, start];
    const place = direction === "forward" ? [0, sentence.length, -1, 0] : [0, -1, 1, 0];
    const words = await this.#likeliest(sentence, place, k, excluded);
    return words.map(({ word, log }) => ({ word, probability: Math.exp(log) }));
  }

  async #likeliest(sentence, place, k, excluded) {
    const { top_words: ids, top_log_probabilities: logs } =
      await this.#run([sentence], [place], k + excluded.length);
    const words = Array.from(ids.data, (id, rank) => (
      { word: this.#vocabulary.words[Number(id)], log: logs.data[rank] }
    ));
    return words.filter(({ word }) => !excluded.includes(word)).slice(0, k);
  }

  // The words with the largest product of both directions' probabilities in a gap.
  #candidates(filled, gap, count, direction = null) {
    const place = [
      0, direction === "backward" ? -1 : gap, direction === "forward" ? -1 : gap + 2, 0,
    ];
    return this.#likeliest(filled, place, count, [UNKNOWN, SENTENCE_BEGIN, SENTENCE_END]);
  }

  async #fillGap(filled, gap, tried) {
    const words = await this.#candidates(filled, gap, tried);
    const { directions } = this.info;
    const sentences = words.map(({ word }) => (
      filled.map((other, index) => (index === gap ? word : other))
    ));
    // The word in the gap changes what is predicted after it forward, and before it backward.
    const sums = await this.#sumLogarithms(sentences, (sentence) => [
      ...(directions.includes("backward") ? [[-1, 1, SENTENCE_BEGIN]] : []),
      ...sentence.flatMap((word, step) => {
        if (step < gap) return directions.includes("backward") ? [[-1, step + 2, word]] : [];
        return step > gap && directions.includes("forward") ? [[step, -1, word]] : [];
      }),
      ...(directions.includes("forward") ? [[sentence.length, -1, SENTENCE_END]] : []),
    ]);
    const scores = sums.map((sum, index) => (sum + words[index].log) / directions.length);
    const largest = Math.max(...scores);
    const shares = scores.map((score) => Math.exp(score - largest));
    const total = shares.reduce((sum, share) => sum + share, 0);
    return words
      .map(({ word }, index) => ({ word, probability: shares[index] / total }))
      .sort((one, other) => other.probability - one.probability);
  }

  // For each sentence the sum of the log-probabilities of its places: steps of both LSTMs, a word.
  async #sumLogarithms(sentences, placesOf) {
    const sums = new Array(sentences.length).fill(0);
    const rows = Math.max(1, Math.floor(LOGITS_PER_BATCH / this.#vocabulary.words.length));
    for (const indices of batches(sentences, Math.min(this.#tokensPerBatch, rows))) {
      const batch = indices.map((index) => sentences[index]);
      const asked = batch.flatMap((sentence, row) => (
        placesOf(sentence).map(([forward, backward, word]) => (
          [row, forward, backward, this.#wordId(word)]
        ))
      ));
      const { log_probabilities: output } = await this.#run(batch, asked, 1);
      asked.forEach(([row], place) => (sums[indices[row]] += output.data[place]));
    }
    return sums;
  }

  #wordId(word) {
    const id = this.#vocabulary.id(word);
    if (id < 0) throw new ElmokitError(`${JSON.stringify(word)} is not in the vocabulary`);
    return id;
  }

  #checkSoftmax() {
    if (!this.info.softmax) {
      throw new ElmokitError(
        "the file has no softmax, so it has vectors but no probabilities; write it again with " +
        "`elmo export --softmax`",
      );
    }
  }

  #emptyVectors(layers) {
    const { numbers, combination } = selectLayers(layers, this.info.layers);
    const parts = combination === "concat" ? numbers.length : 1;
    return { layers: combination ? 1 : numbers.length, dim: parts * this.info.dim };
  }

  #pooling(name) {
    const pool = POOLINGS.get(name);
    if (!pool) {
      const known = [...POOLINGS.keys()].join(", ");
      throw new ElmokitError(`pooling is "${name}", expected one of ${known}`);
    }
    if (name === "idf" && !this.#vocabulary) {
      throw new ElmokitError(
        'pooling "idf" needs a vocabulary, which says how rare words are; write the file again ' +
        "with `elmo export --softmax`, or choose another pooling",
      );
    }
    return (rows, words) => pool(rows, words, this.#vocabulary);
  }
}

/** The cosine of two vectors; 0 if one of them is zero. */
export function cosine(one, other) {
  if (one.length !== other.length) {
    throw new ElmokitError(
      `vectors of ${one.length} and of ${other.length} dimensions cannot be compared`,
    );
  }
  let product = 0, squares = 0, otherSquares = 0;
  for (let index = 0; index < one.length; index++) {
    product += one[index] * other[index];
    squares += one[index] ** 2;
    otherSquares += other[index] ** 2;
  }
  return product / Math.max(Math.sqrt(squares * otherSquares), 1e-24);
}

// Whole numbers as int64, two halves each: a BigInt for each number would take long.
function int64(numbers) {
  const halves = new Int32Array(2 * numbers.length);
  for (let index = 0; index < numbers.length; index++) {
    halves[2 * index] = numbers[index];
    if (numbers[index] < 0) halves[2 * index + 1] = -1;
  }
  return new BigInt64Array(halves.buffer);
}

// Indices of sentences that are computed together, the longest first.
function* batches(sentences, tokensPerBatch) {
  const order = sentences.map((_, index) => index);
  order.sort((one, other) => sentences[other].length - sentences[one].length);
  let batch = [];
  for (const index of order) {
    const longest = sentences[batch[0] ?? index].length + 2;
    if (batch.length && longest * (batch.length + 1) > tokensPerBatch) {
      yield batch;
      batch = [];
    }
    batch.push(index);
  }
  if (batch.length) yield batch;
}

function checkSentences(sentences) {
  if (typeof sentences === "string" || typeof sentences?.[Symbol.iterator] !== "function") {
    throw new TypeError("sentences: expected a list of lists of words");
  }
  return Array.from(sentences, (sentence, index) => {
    if (!Array.isArray(sentence)) {
      throw new TypeError(`sentence ${index} is ${describe(sentence)}, expected a list of words`);
    }
    sentence.forEach((word, place) => {
      if (typeof word !== "string") {
        throw new TypeError(
          `sentence ${index}: word ${place} is ${describe(word)}, expected a string`,
        );
      }
    });
    return sentence;
  });
}

function describe(value) {
  return value === null ? "null" : `a ${typeof value} (${String(value).slice(0, 80)})`;
}

function checkCount(k) {
  if (!Number.isInteger(k) || k < 1) throw new ElmokitError(`k is ${k}, expected 1 or more words`);
}

// Numbers of layers, and how several are combined into one.
function selectLayers(layers, count) {
  const all = Array.from({ length: count }, (_, number) => number);
  if (layers === "all") return { numbers: all, combination: null };
  if (layers === "top") return { numbers: [count - 1], combination: null };
  if (["mean", "sum", "concat"].includes(layers)) return { numbers: all, combination: layers };
  const listed = Array.isArray(layers) ? layers : [layers];
  const numbers = listed.map((number) => (number < 0 ? number + count : number));
  if (!numbers.every((number) => Number.isInteger(number) && number >= 0 && number < count)) {
    throw new ElmokitError(
      `layers is ${JSON.stringify(layers)}, expected "all", "top", "mean", "sum", "concat", or ` +
      `numbers from ${-count} to ${count - 1}`,
    );
  }
  return { numbers, combination: null };
}

// The selected layers of one sentence of an output, (layers, sentences, steps, dim).
function combine(output, row, [begin, end], { numbers, combination }) {
  const [, sentences, steps, dim] = output.dims;
  const words = end - begin;
  const parts = numbers.map((number) => {
    const start = ((number * sentences + row) * steps + begin) * dim;
    return output.data.subarray(start, start + words * dim);
  });
  if (combination === "concat") {
    const data = new Float32Array(parts.length * words * dim);
    parts.forEach((part, number) => {
      for (let word = 0; word < words; word++) {
        const vector = part.subarray(word * dim, (word + 1) * dim);
        data.set(vector, (word * parts.length + number) * dim);
      }
    });
    return new SentenceVectors(1, words, parts.length * dim, data);
  }
  if (combination) {
    const data = new Float32Array(words * dim);
    const divisor = combination === "mean" ? parts.length : 1;
    for (let index = 0; index < data.length; index++) {
      let sum = 0;
      for (const part of parts) sum += part[index];
      data[index] = sum / divisor;
    }
    return new SentenceVectors(1, words, dim, data);
  }
  const data = new Float32Array(parts.length * words * dim);
  parts.forEach((part, number) => data.set(part, number * words * dim));
  return new SentenceVectors(parts.length, words, dim, data);
}

const POOLINGS = new Map([
  ["mean", (rows) => average(rows, rows.map(() => 1))],
  ["idf", (rows, words, vocabulary) => average(rows, idfWeights(words, vocabulary))],
  ["max", (rows) => largest(rows)],
  ["first", (rows) => rows[0]],
  ["last", (rows) => rows.at(-1)],
]);

function largest(rows) {
  const best = Float32Array.from(rows[0]);
  for (const row of rows) {
    for (let index = 0; index < best.length; index++) {
      if (row[index] > best[index]) best[index] = row[index];
    }
  }
  return best;
}

function average(rows, weights) {
  const sums = new Float64Array(rows[0].length);
  rows.forEach((row, place) => {
    for (let index = 0; index < sums.length; index++) sums[index] += weights[place] * row[index];
  });
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return Float32Array.from(sums, (sum) => sum / total);
}

// A weight from 0 to 1 for each word: the rarer, the larger; as elmokit's pooling "idf".
function idfWeights(words, vocabulary) {
  const halfWeightShare = 3e-4, eulerGamma = 0.5772156649015329;
  const norm = Math.log(vocabulary.words.length) + eulerGamma;
  const isWord = (word) => /[\p{L}\p{N}]/u.test(word);
  const onlyPunctuation = !words.some(isWord);
  return words.map((word) => {
    if (!isWord(word) && !onlyPunctuation) return 0;
    const id = vocabulary.ids.get(word) ?? vocabulary.ids.get(word.toLowerCase());
    const share = id === undefined ? 0 : 1 / (Math.max(1, id + 1) * norm);
    return halfWeightShare / (halfWeightShare + share);
  });
}

function unitVector(vector) {
  const length = Math.sqrt(vector.reduce((sum, number) => sum + number * number, 0));
  return vector.map((number) => number / Math.max(length, 1e-12));
}
