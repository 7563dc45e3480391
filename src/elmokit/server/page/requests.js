// Requests to the service: delayed while one types, repeated while it is busy or away.

import { byId } from "./elements.js";

const UNREACHABLE = "The service does not answer; this page asks again until it does.";
const TYPING_DELAY = 150, RETRY_DELAY = 2000; // milliseconds
const repeats = new Set(); // one function per requester, called when a token was given

// A function that takes the parameters of a view's request, null for no request. Only the newest
// request counts: `send(parameters, post)` computes its result, which `show` receives; `show` gets
// null where there is none. `post(path, body)` resolves to the JSON of a response; without a body
// it is a GET. Errors are shown in `errorElement`.
export function createRequester(errorElement, send, show) {
  let current = null, controller = new AbortController();

  const showError = (message) => {
    if (errorElement.textContent !== message) errorElement.textContent = message;
    errorElement.hidden = !message;
  };
  const view = errorElement.closest("[role=tabpanel]");
  const setBusy = (isBusy) => view?.setAttribute("aria-busy", isBusy);
  const run = async (parameters, signal) => {
    setBusy(true);
    await pause(TYPING_DELAY, signal);
    while (!signal.aborted) {
      try {
        const result = await send(parameters, (path, body) => request(path, body, signal));
        if (signal.aborted) return;
        setBusy(false);
        showError("");
        show(result);
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof RequestError)) throw error;
        showError(error.message);
        if (error.retryAfter === null) {
          setBusy(false);
          show(null);
          return;
        }
        await pause(error.retryAfter, signal);
      }
    }
  };
  const start = (parameters) => {
    controller.abort();
    controller = new AbortController();
    run(parameters, controller.signal);
  };
  repeats.add(() => current !== null && start(JSON.parse(current)));

  return (parameters) => {
    const text = parameters === null ? null : JSON.stringify(parameters);
    if (text === current) return;
    current = text;
    if (parameters !== null) return start(parameters);
    controller.abort();
    setBusy(false);
    showError("");
    show(null);
  };
}

// `retryAfter` is in milliseconds, null where another try would not help.
class RequestError extends Error {
  constructor(message, retryAfter = null) {
    super(message);
    this.retryAfter = retryAfter;
  }
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
    throw new RequestError(UNREACHABLE, RETRY_DELAY);
  }
  if (response.ok) return content;
  if (response.status === 401) byId("token-form").hidden = false;
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  throw new RequestError(content.error, Number.isNaN(seconds) ? null : 1000 * Math.max(seconds, 1));
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token-input").value);
  byId("token-form").hidden = true;
  for (const repeat of repeats) repeat();
});
