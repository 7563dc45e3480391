// Questions to the service become its answers; of a view's questions only the newest counts.

import { field } from "./make.js";

const LOST = "The service does not answer; this page asks again until it does.";
// Milliseconds until typing rests, and until a lost service is asked again.
const REST = 150, AGAIN = 2000;
const reasked = new Set(); // what is to be asked once more when a token was given

// A function that takes a view's question, null for none. `put(question, ask)` asks it, and its
// answer is given to `show`: null where there is none.
export function asker(view, put, show) {
  const trouble = field(`${view}-trouble`);
  let asked = null, controller = new AbortController();

  const tell = (sentence) => {
    if (trouble.textContent !== sentence) trouble.textContent = sentence;
    trouble.hidden = !sentence;
  };
  const run = async (question, signal) => {
    await pause(REST, signal);
    while (!signal.aborted) {
      try {
        const found = await put(question, (path, body) => ask(path, body, signal));
        if (signal.aborted) return;
        tell("");
        show(found);
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof Refusal)) throw error;
        tell(error.message);
        if (error.wait === null) {
          show(null);
          return;
        }
        await pause(error.wait, signal);
      }
    }
  };
  const begin = (question) => {
    controller.abort();
    controller = new AbortController();
    run(question, controller.signal);
  };
  reasked.add(() => asked !== null && begin(JSON.parse(asked)));

  return (question) => {
    const text = question === null ? null : JSON.stringify(question);
    if (text === asked) return;
    asked = text;
    if (question !== null) return begin(question);
    controller.abort();
    tell("");
    show(null);
  };
}

// No answer, why, and after how many milliseconds to ask again; null is never.
class Refusal extends Error {
  constructor(message, wait = null) {
    super(message);
    this.wait = wait;
  }
}

// The answer to a body, or to none, as JSON.
async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const asking = { headers, signal };
  if (body !== undefined) Object.assign(asking, { method: "POST", body: JSON.stringify(body) });
  let reply, said;
  try {
    reply = await fetch(path, asking);
    said = await reply.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Refusal(LOST, AGAIN);
  }
  if (reply.ok) return said;
  if (reply.status === 401) field("token").hidden = false;
  const seconds = Number.parseInt(reply.headers.get("Retry-After"), 10);
  throw new Refusal(said.error, Number.isNaN(seconds) ? null : 1000 * Math.max(seconds, 1));
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

field("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", field("token-given").value);
  field("token").hidden = true;
  for (const again of reasked) again();
});
