// The worker of `loadInWorker`: it has the model, and answers one message with another.

import { load } from "./elmokit.js";

const METHODS = new Set(["embed", "encode", "nextWords", "previousWords", "fill", "score"]);
let model = null;

self.addEventListener("message", async ({ data: { id, method, values } }) => {
  try {
    self.postMessage({ id, result: await answer(method, values) });
  } catch (error) {
    self.postMessage({ id, error: { name: error.name, message: error.message } });
  }
});

async function answer(method, values) {
  if (method === "load") {
    const [source, options] = values;
    const onProgress = (progress) => self.postMessage({ progress });
    model = await load(source, { ...options, onProgress });
    return model.info;
  }
  if (!METHODS.has(method)) throw new TypeError(`no method called ${method}`);
  return model[method](...values);
}
