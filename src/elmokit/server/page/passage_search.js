// Search in the browser: by words and by meaning, over the passages that came with the page, as
// elmokit ranks them (elmokit/search).

import { dot } from "./projection.js";
import { BackendError } from "./requests.js";

const HALF_WEIGHT_SHARE = 3e-4, EULER_GAMMA = 0.5772156649015329; // of idf weights, see pooling.py
const MAX_TERM_CHARACTERS = 100;

// A function from the parameters of a search to what the service would answer. `files` are those of
// the index, which `read` and `readJson` read at the first search.
export function createSearch({ files, model, tokenize, ...reading }) {
  let loading = null;
  return async (parameters) => {
    loading ??= loadIndex(files, reading);
    const index = await loading.catch((error) => {
      loading = null;
      throw error;
    });
    const query = await prepare(parameters, index, model, tokenize);
    const hits = rank(find(query, index), query, index);
    const marked = await highlight(query, hits, index, model);
    const results = hits.map((hit, row) => resultOf(hit, marked[row]));
    return { mode: query.mode, results };
  };
}

function resultOf({ passage, score, cosine, bm25, match }, { same, near }) {
  const { id, file, line, start, end, text, sentences } = passage;
  const highlighted = [...same, ...near].sort((one, other) => one - other);
  const parts = { cosine: cosine ?? null, bm25: bm25 ?? null, word_match: match ?? null };
  const words = sentences.flat();
  return { id, score, ...parts, text, words, highlighted, near, file, line, start, end };
}

async function loadIndex(files, { read, readJson }) {
  const index = await readJson(files.passages);
  const { dim, word_dim: wordDim, passages } = index;
  const bytes = await read(files.numbers);
  let offset = 0;
  const take = (NumberArray, count) => {
    const start = offset;
    offset += count * NumberArray.BYTES_PER_ELEMENT;
    return new NumberArray(bytes.buffer, start, count);
  };
  const floats = (count) => take(Float32Array, count);
  const halves = (count) => fromHalf(take(Uint16Array, count));
  const whitening = (size, hasMatrix) => {
    return { mean: floats(size), matrix: hasMatrix ? floats(size * size) : null };
  };
  index.whitening = whitening(dim, index.has_matrix);
  if (index.stems) index.wordWhitening = whitening(wordDim, index.has_word_matrix);
  const rows = (matrix, size) => {
    return (row) => matrix.subarray(row * size, (row + 1) * size);
  };
  index.vector = rows(halves(dim * index.vector_passages.length), dim);
  if (index.stems) {
    const wordVector = rows(halves(wordDim * index.words.length), wordDim);
    index.wordVectors = new Map(index.words.map((word, row) => [word, wordVector(row)]));
    index.stems = new Map(Object.entries(index.stems));
    const lengths = passages.reduce((total, { terms }) => total + terms.length, 0);
    index.averageLength = lengths / passages.length;
    index.frequencies = new Map();
    for (const { terms } of passages) {
      for (const term of new Set(terms)) {
        index.frequencies.set(term, (index.frequencies.get(term) ?? 0) + 1);
      }
    }
  }
  index.stopWords = new Set(index.stop_words);
  index.vocabulary = files.vocabulary ? await readJson(files.vocabulary) : [];
  index.ranks = new Map(index.vocabulary.map((word, rank) => [word, rank]));
  return index;
}

// Numbers of 16 bits as numbers of 32.
function fromHalf(halves) {
  return Float32Array.from(halves, (half) => {
    const sign = half & 0x8000 ? -1 : 1;
    const exponent = (half >> 10) & 31, fraction = half & 1023;
    if (!exponent) return sign * fraction * 2 ** -24;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
}

// The query as its mode needs it: a vector, and words to match with their weights and terms.
async function prepare({ query: text, mode: given, word, files, k }, index, model, tokenize) {
  if (word) {
    throw new BackendError("the passages of this page cannot be searched for one word of a query");
  }
  const mode = given ?? index.modes[0];
  if (!index.modes.includes(mode)) {
    throw new BackendError(`mode is '${mode}', expected one of ${index.modes.join(", ")}`);
  }
  const sentences = tokenize(text);
  if (!sentences.length) throw new BackendError(`the query '${text}' has no word`);
  const query = { mode, k, sentences, isAllowed: fileFilter(files ?? [], index) };
  if (mode !== "lexical") {
    const [words] = await embedTexts([sentences], index, model);
    query.vector = whiten(pool(words, index), index.whitening);
  }
  if (mode === "semantic") return query;
  const spoken = sentences.flat().filter(isWord);
  const content = spoken.filter((word) => isContentWord(word, index));
  query.hasContent = content.length > 0;
  query.words = query.hasContent ? content : spoken;
  query.terms = query.words.map((word) => termsOf(word, index));
  query.weights = new Map(query.terms.flat().map((term) => [term, termWeight(term, index)]));
  if (mode === "hybrid") query.wordVectors = await embedWords(query.words, index, model);
  return query;
}

// The passages among which the best are, with their cosines.
function find({ mode, vector, weights, k, isAllowed }, index) {
  const { passages, settings } = index;
  const cosines = new Float32Array(passages.length).fill(-Infinity);
  if (vector) {
    index.vector_passages.forEach((passage, row) => {
      cosines[passage] = Math.max(cosines[passage], dot(index.vector(row), vector));
    });
  }
  const found = passages.map((passage, n) => {
    return { passage, cosine: vector ? cosines[n] : undefined };
  });
  const all = found.filter(({ passage }) => isAllowed(passage.file));
  if (mode === "semantic") return best(all, ({ cosine }) => cosine, k);
  for (const own of all) own.bm25 = bm25(own.passage.terms, weights, index);
  const depth = Math.max(settings.min_candidates, 2 * k);
  const withTerms = all.filter((own) => own.bm25 > 0);
  const candidates = new Set(best(withTerms, (own) => own.bm25, depth));
  if (vector) for (const own of best(all, ({ cosine }) => cosine, depth)) candidates.add(own);
  return [...candidates];
}

const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&");

// Whether passages of a file are searched: all, or those with one of these names or globs.
function fileFilter(globs, { passages }) {
  if (!globs.length) return () => true;
  const matchers = globs.map(globMatcher);
  const isAllowed = (file) => globs.includes(file) || matchers.some((matches) => matches(file));
  if (!passages.some(({ file }) => isAllowed(file))) {
    throw new BackendError(`no file of the index matches ${globs.join(", ")}`);
  }
  return isAllowed;
}

// Whether a name matches a glob, as Python's fnmatch.
export function globMatcher(glob) {
  const parts = glob.match(/\*|\?|\[!?\]?[^\]]*\]|[^*?[]+|\[/gu) ?? [];
  const pattern = parts.map((part) => {
    if (part === "*") return ".*";
    if (part === "?") return ".";
    if (part.length < 3 || !part.startsWith("[")) return escaped(part);
    const [, negation, characters] = part.match(/^\[(!?)(.*)\]$/su);
    return `[${negation && "^"}${characters.replace(/(.)-(.)|./gsu, rangeOf)}]`;
  });
  const whole = new RegExp(`^${pattern.join("")}$`, "su");
  return (name) => whole.test(name);
}

// A range or a character of a glob in a regular expression; a reversed range has no character.
function rangeOf(text, first, last) {
  const literal = (character) => character.replace(/[\\\]^[-]/u, "\\$&");
  if (first === undefined) return literal(text);
  const isReversed = first.codePointAt(0) > last.codePointAt(0);
  return isReversed ? "" : `${literal(first)}-${literal(last)}`;
}

function rank(candidates, query, index) {
  const { mode, k } = query, { settings } = index;
  if (mode === "semantic") return candidates.map((own) => ({ ...own, score: own.cosine }));
  if (mode === "lexical") {
    const scored = candidates.map((own) => ({ ...own, score: own.bm25 }));
    return best(scored, ({ score }) => score, k);
  }
  const partial = ({ bm25: share, cosine }) =>
    settings.bm25_weight * share + settings.cosine_weight * cosine;
  const depth = Math.max(settings.min_candidates, 2 * k);
  const scored = best(candidates, partial, depth).map((own) => {
    const match = matchWords(query, own.passage, index);
    return { ...own, match, score: partial(own) + settings.word_match_weight * match };
  });
  return best(scored, ({ score }) => score, k);
}

const best = (items, score, k) =>
  [...items].sort((one, other) => score(other) - score(one)).slice(0, k);

// How well the best sentence of a passage matches the words of the query: for each, the squared
// cosine with the most similar word of the sentence; then the weighted mean of these.
function matchWords({ words, terms, weights, wordVectors, hasContent }, { sentences }, index) {
  const shares = words.map((_, n) => terms[n].reduce((sum, term) => sum + weights.get(term), 0));
  const total = shares.reduce((sum, share) => sum + share, 0);
  if (!total) return 0;
  const matches = sentences.map((sentence) => {
    const compared = sentence.filter((word) => !hasContent || isContentWord(word, index));
    const vectors = compared.map((word) => index.wordVectors.get(word));
    return shares.reduce((sum, share, n) => {
      const cosines = vectors.map((vector) => dot(vector, wordVectors[n]));
      return sum + (share * Math.max(0, ...cosines) ** 2) / total;
    }, 0);
  });
  return Math.max(0, ...matches);
}

// Each word in lower case, without punctuation and without its ending: "well-being" has two terms.
function termsOf(word, { stems }) {
  const folded = fold(word.normalize("NFKC"));
  const runs = (folded.match(/[\p{L}\p{N}\p{M}]+/gu) ?? []).filter(isWord);
  return runs.map((run) => {
    const short = [...run].slice(0, MAX_TERM_CHARACTERS).join("");
    return stems?.get(short) ?? short;
  });
}

function termWeight(term, { passages, frequencies }) {
  const frequency = frequencies.get(term) ?? 0;
  return Math.log(1 + (passages.length - frequency + 0.5) / (frequency + 0.5));
}

// BM25 as a share: 1 for a passage of average length that has every term of the query once.
function bm25(terms, weights, { averageLength, settings }) {
  const total = [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  if (!total) return 0;
  const share = settings.length_share;
  const relativeLength = 1 - share + (share * terms.length) / Math.max(averageLength, 1);
  const saturation = settings.saturation * relativeLength;
  const counts = new Map();
  for (const term of terms) {
    if (weights.has(term)) counts.set(term, (counts.get(term) ?? 0) + 1);
  }
  let score = 0;
  for (const [term, count] of counts) score += (weights.get(term) * count) / (count + saturation);
  return ((settings.saturation + 1) * score) / total;
}

// The whitened context-free vectors of words.
async function embedWords(words, { word_dim: dim, wordWhitening }, model) {
  const [vectors] = await model.embed([words], { layers: 0 });
  // Both halves of layer 0 are the same.
  return words.map((_, at) => whiten(vectors.vector(0, at).subarray(0, dim), wordWhitening));
}

// For each text, sentences of words, its words with their vectors in the layers of the index.
async function embedTexts(texts, { layers }, model) {
  const vectors = await model.embed(texts.flat(), { layers });
  let next = 0;
  return texts.map((sentences) =>
    sentences.flatMap((words) => {
      const own = vectors[next++];
      return words.map((word, at) => ({ word, vector: own.vector(0, at) }));
    }),
  );
}

// One vector of the words' vectors, by the pooling of the index.
function pool(words, index) {
  const vectors = words.map(({ vector }) => vector);
  if (index.pooling === "first") return vectors[0];
  if (index.pooling === "last") return vectors.at(-1);
  if (index.pooling === "max") {
    return vectors.reduce((most, own) => most.map((number, i) => Math.max(number, own[i])));
  }
  const weights = index.pooling === "idf" ? idfWeights(words, index) : words.map(() => 1);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const mean = new Float32Array(index.dim);
  words.forEach(({ vector }, at) => {
    for (let i = 0; i < mean.length; i++) mean[i] += (weights[at] / total) * vector[i];
  });
  return mean;
}

function idfWeights(words, { ranks, vocabulary }) {
  const norm = Math.log(vocabulary.length) + EULER_GAMMA;
  const weights = words.map(({ word }) => {
    const known = ranks.get(word) ?? ranks.get(word.toLowerCase());
    const share = known === undefined ? 0 : 1 / ((known + 1) * norm);
    return isWord(word) ? HALF_WEIGHT_SHARE / (HALF_WEIGHT_SHARE + share) : 0;
  });
  return weights.some(Boolean) ? weights : words.map(() => 1);
}

// A vector without the mean, multiplied by the matrix, of length 1.
function whiten(vector, { mean, matrix }) {
  const centred = vector.map((number, i) => number - mean[i]);
  let whitened = centred;
  if (matrix) {
    whitened = new Float32Array(mean.length);
    centred.forEach((number, row) => {
      const start = row * mean.length;
      for (let i = 0; i < mean.length; i++) whitened[i] += number * matrix[start + i];
    });
  }
  const length = Math.max(Math.sqrt(dot(whitened, whitened)), 1e-12);
  return whitened.map((number) => number / length);
}

const isWord = (word) => /[\p{L}\p{N}]/u.test(word);
const ACRONYMS = new Set(["US", "IT", "WHO"]); // no stop words, as in elmokit/search/lexical.py
const isContentWord = (word, { stopWords }) =>
  isWord(word) &&
  (ACRONYMS.has(word) || !stopWords.has(word.toLowerCase().replaceAll("’", "'")));

// A word without the difference of capital and small letters, as Python's casefold.
export const fold = (word) => [...word].map(foldCharacter).join("");

function foldCharacter(character) {
  if (character === "ı") return character; // not the small letter of I
  if (/\p{Script=Cherokee}/u.test(character)) return character.toUpperCase();
  return character.toLowerCase().toUpperCase().toLowerCase(); // the first for ẞ, which is ss
}

// For each hit, the positions of the content words that stand in the query in any form, and of
// others that are near to one of its words and to the query as a whole.
async function highlight(query, hits, index, model) {
  const texts = [query.sentences, ...hits.map(({ passage }) => passage.sentences)];
  const content = texts.map((sentences) => {
    const words = sentences.flat();
    return [...words.keys()].filter((at) => isContentWord(words[at], index));
  });
  const wanted = new Set(content[0].flatMap((at) => termsOf(query.sentences.flat()[at], index)));
  const highlights = hits.map(({ passage }, row) => {
    const words = passage.sentences.flat();
    const hasWanted = (at) => termsOf(words[at], index).some((term) => wanted.has(term));
    return { same: content[row + 1].filter(hasWanted), near: [] };
  });
  if (!query.vector) return highlights;
  const embedded = (await embedTexts(texts, index, model)).map((words, row) =>
    content[row].map((at) => ({ at, vector: whiten(words[at].vector, index.whitening) })),
  );
  const { min_cosine: minCosine, share_of_cosine: share } = index.settings;
  hits.forEach(({ cosine }, row) => {
    const { same, near } = highlights[row];
    for (const { at, vector } of embedded[row + 1]) {
      const isNear = embedded[0].some((own) => dot(own.vector, vector) >= minCosine);
      const isAbout = dot(vector, query.vector) >= share * cosine;
      if (isNear && isAbout && !same.includes(at)) near.push(at);
    }
  });
  return highlights;
}
