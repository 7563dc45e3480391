// A model in a worker, so that the page stays responsive while it computes.

import { SentenceVectors } from "./elmokit.js";

/** As `load`, in a worker: a model with the same methods. */
export async function loadInWorker(source, options = {}) {
  const { onProgress, worker: given, signal, ...rest } = options;
  const worker = given ?? new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  const model = new WorkerModel(worker, onProgress);
  const stop = () => model.stop(signal.reason);
  signal?.addEventListener("abort", stop);
  try {
    // Addresses are relative to the page, which the worker does not know.
    const absolute = (address) => (
      typeof address === "string" ? new URL(address, document.baseURI).href : address
    );
    if (rest.runtime !== undefined) rest.runtime = absolute(rest.runtime);
    if (typeof rest.wasmPaths === "object") {
      const paths = Object.entries(rest.wasmPaths);
      rest.wasmPaths = Object.fromEntries(paths.map(([name, path]) => [name, absolute(path)]));
    } else if (rest.wasmPaths !== undefined) {
      rest.wasmPaths = absolute(rest.wasmPaths);
    }
    signal?.throwIfAborted();
    const address = source instanceof URL ? source.href : absolute(source);
    model.info = Object.freeze(await model.call("load", address, rest));
  } catch (error) {
    model.stop(error);
    throw error;
  } finally {
    signal?.removeEventListener("abort", stop);
  }
  return model;
}

class WorkerModel {
  #worker;
  #waiting = new Map();
  #numCalls = 0;
  #stopped = null;
  info = null;

  constructor(worker, onProgress) {
    this.#worker = worker;
    worker.addEventListener("message", ({ data: { id, progress, result, error } }) => {
      if (progress) {
        onProgress?.(progress);
        return;
      }
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) reject(Object.assign(new Error(error.message), { name: error.name }));
      else resolve(result);
    });
    worker.addEventListener("error", (event) => {
      this.stop(new Error(`the worker cannot run (${event.message ?? "its script failed"})`));
    });
  }

  async embed(sentences, options) {
    const vectors = await this.call("embed", sentences, options);
    return vectors.map(
      ({ layers, words, dim, data }) => new SentenceVectors(layers, words, dim, data),
    );
  }

  encode(texts, options) {
    return this.call("encode", texts, options);
  }

  nextWords(text, k, options) {
    return this.call("nextWords", text, k, options);
  }

  previousWords(text, k, options) {
    return this.call("previousWords", text, k, options);
  }

  fill(text, k) {
    return this.call("fill", text, k);
  }

  score(sentences) {
    return this.call("score", sentences);
  }

  async release() {
    this.stop(new Error("the model was released"));
  }

  /** The answer of the worker's model. */
  call(method, ...values) {
    if (this.#stopped) return Promise.reject(this.#stopped);
    const id = this.#numCalls++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, method, values });
    });
  }

  /** End the worker; who waits for an answer, and who asks later, gets the error. */
  stop(error) {
    this.#worker.terminate();
    this.#stopped ??= error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
