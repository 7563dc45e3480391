// Requests of the views: delayed while one types, repeated while the back end is busy or away.

import { byId } from "./elements.js";

const TYPING_DELAY = 150; // milliseconds
const repeats = new Set(); // one function per requester

// What went wrong, in one sentence. `retryAfter` is in milliseconds, null where another try would
// not help. A `lasting` error is one of the whole page, which is shown once, and not by each view.
export class BackendError extends Error {
  constructor(message, { retryAfter = null, lasting = false } = {}) {
    super(message);
    this.retryAfter = retryAfter;
    this.lasting = lasting;
  }
}

// A function that takes the parameters of a view's request, null for no request. Only the newest
// request counts: `send(parameters, signal)` asks the back end, and `show` receives its answer,
// null where there is nothing. Errors are shown in `errorElement`.
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
        const result = await send(parameters, signal);
        if (signal.aborted) return;
        setBusy(false);
        showError("");
        show(result);
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof BackendError)) {
          setBusy(false);
          showError(error.message);
          throw error;
        }
        if (error.lasting) showLasting(error.message);
        showError(error.lasting ? "" : error.message);
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

// Send the current requests of all views again.
export function repeatRequests() {
  for (const repeat of repeats) repeat();
}

function showLasting(message) {
  byId("start-error").textContent = message;
  byId("start-error").hidden = false;
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
