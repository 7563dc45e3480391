// The back end of `elmo serve`: the service computes, over HTTP, and may ask for a token.

import { byId } from "./elements.js";
import { BackendError, repeatRequests } from "./requests.js";

const UNREACHABLE = "The service does not answer; this page asks again until it does.";
const RETRY_DELAY = 2000; // milliseconds

export function createBackend() {
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", byId("token-input").value);
    byId("token-form").hidden = true;
    repeatRequests();
  });
  const post = (path) => (parameters, signal) => request(path, parameters, signal);
  const get = (path) => (signal) => request(path, undefined, signal);
  return {
    info: get("info"),
    layerWeights: get("layer_weights"),
    contexts: post("contexts"),
    similarity: post("similarity"),
    nextWords: post("next"),
    fillGaps: post("fill"),
    search: post("search"),
  };
}

async function request(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers, signal };
  if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  let response, content;
  try {
    response = await fetch(path, options);
    content = await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new BackendError(UNREACHABLE, { retryAfter: RETRY_DELAY });
  }
  if (response.ok) return content;
  if (response.status === 401) byId("token-form").hidden = false;
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  const retryAfter = Number.isNaN(seconds) ? null : 1000 * Math.max(seconds, 1);
  throw new BackendError(content.error, { retryAfter });
}
