/** A mistake in what was given, or a model that cannot be loaded. */
export class ElmokitError extends Error {}

export interface LoadOptions {
  /** Called while the file comes; `total` is null if the server does not say it. */
  onProgress?: (progress: { loaded: number; total: number | null }) => void;
  /** Stops the loading. */
  signal?: AbortSignal;
  /**
   * The module onnxruntime-web, or the address of its script. Without it, the package is imported
   * by its name: in Node and with a bundler or an import map. A worker needs the address.
   */
  runtime?: string | object;
  /** The folder of onnxruntime-web's .wasm files, if it is not that of its script. */
  wasmPaths?: string | object;
  /** How many threads compute; more than one only where the page is cross-origin isolated. */
  threads?: number;
  /** onnxruntime-web's execution providers; ["wasm"]. */
  providers?: string[];
  /** How many words are computed together, padding included; 1024. */
  tokensPerBatch?: number;
}

/** What a model is. */
export interface ModelInfo {
  readonly fingerprint: string;
  /** How the model's text was split into words; give it words that are split so. */
  readonly tokenizer: string;
  readonly licence: string;
  /** How many layers a word has, the context-free one included. */
  readonly layers: number;
  /** The size of a layer's vector. */
  readonly dim: number;
  readonly projectionSize: number;
  readonly cellSize: number;
  readonly directions: readonly ("forward" | "backward")[];
  readonly parameters: number;
  readonly precision: "float32" | "int8";
  /** Whether it predicts words. */
  readonly softmax: boolean;
  readonly ids: "bytes" | "words" | "lexicons";
  readonly maxCharacters: number;
  readonly vocabularySize: number | null;
  /** The size of the file. */
  readonly bytes: number;
}

/** "all", "top", a number or a list of numbers (-1: the top), or all combined into one. */
export type Layers = "all" | "top" | "mean" | "sum" | "concat" | number | number[];

export type Pooling = "mean" | "idf" | "max" | "first" | "last";

/** A raw text, or the words of a sentence. */
export type Text = string | string[];

/** The vectors of a sentence's words: `data` has layer after layer, and in each word after word. */
export class SentenceVectors {
  constructor(layers: number, words: number, dim: number, data: Float32Array);
  readonly layers: number;
  readonly words: number;
  readonly dim: number;
  readonly data: Float32Array;
  /** The vector of a word in a layer, both counted from 0. */
  vector(layer: number, word: number): Float32Array;
}

export interface Prediction {
  word: string;
  probability: number;
}

export interface Model {
  readonly info: ModelInfo;
  /** For each sentence, a list of words, the vectors of its words. */
  embed(
    sentences: Iterable<string[]>,
    options?: { layers?: Layers; boundaries?: boolean },
  ): Promise<SentenceVectors[]>;
  /** One vector for each text, of all chosen layers one after the other; 0 if it has no words. */
  encode(
    texts: Iterable<Text>,
    options?: { layers?: Layers; pooling?: Pooling; normalize?: boolean },
  ): Promise<Float32Array[]>;
  /** The k likeliest words after a text; `</S>` is its end. */
  nextWords(text: Text, k?: number, options?: { specialTokens?: boolean }): Promise<Prediction[]>;
  /** The k likeliest words before a text; `<S>` is its beginning. */
  previousWords(
    text: Text, k?: number, options?: { specialTokens?: boolean },
  ): Promise<Prediction[]>;
  /** For each `___` of a text, the k words that fit best from both sides. */
  fill(text: Text, k?: number): Promise<Prediction[][]>;
  /** The natural logarithm of each sentence's probability, the mean of both directions. */
  score(sentences: Iterable<string[]>): Promise<number[]>;
  /** Free the memory of the model, which cannot be used any more. */
  release(): Promise<void>;
}

/** Load a model: the address of a file that `elmo export` wrote, or its bytes. */
export function load(
  source: string | URL | ArrayBuffer | ArrayBufferView, options?: LoadOptions,
): Promise<Model>;

/** As `load`, in a worker, so that the page stays responsive; `worker` runs worker.js. */
export function loadInWorker(
  source: string | URL | ArrayBuffer | ArrayBufferView,
  options?: LoadOptions & { runtime?: string; worker?: Worker },
): Promise<Model>;

/** The cosine of two vectors; 0 if one of them is zero. */
export function cosine(one: ArrayLike<number>, other: ArrayLike<number>): number;

/** The words and punctuation marks of a sentence, by simple rules; not those of Moses. */
export function splitWords(text: string): string[];

/** The sentences of a text, by simple rules. */
export function splitSentences(text: string): string[];
