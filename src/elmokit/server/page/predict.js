// Predict: the words that may come next, before a text, or in its gaps.

import { byId, create } from "./elements.js";
import { createRequester } from "./requests.js";

const GAP = /_{3,}/g, NUM_WORDS = 10;
const SPECIAL_TOKENS = new Map([["<S>", "start of sentence"], ["</S>", "end of sentence"]]);

export function startPredict(backend, change) {
  let state = null;

  const setText = (text) => {
    change("predict-text", text);
    byId("predict-text").focus();
  };
  const ask = (text, signal) => predictLists(backend, text, signal);
  const send = createRequester(byId("predict-error"), ask, (lists) => {
    const shown = lists ?? [];
    const probabilities = shown.flatMap(({ words }) => words.map((word) => word.probability));
    const largest = Math.max(...probabilities);
    const insert = (list, word) => setText(list.insert(state["predict-text"], word));
    byId("predict-lists").replaceChildren(
      ...shown.map((list) => listElement(list, largest, (word) => insert(list, word))),
    );
    byId("predict-scale").textContent = shown.length
      ? `All bars are on one scale; the longest stands for ${percent(largest)}.` : "";
  });

  return (newState) => {
    state = newState;
    send(state["predict-text"].trim() || null);
  };
}

// Lists of words with a title and a function that inserts a word in a text.
async function predictLists(backend, text, signal) {
  if (text.search(GAP) >= 0) {
    const { gaps } = await backend.fillGaps({ text, k: NUM_WORDS }, signal);
    return gaps.map((words, gap) => ({
      title: gaps.length > 1 ? `Gap ${gap + 1}` : "In the gap",
      words,
      insert: (current, word) => fillGap(current, gap, word),
    }));
  }
  const results = await Promise.allSettled(
    [false, true].map((previous) => backend.nextWords({ text, k: NUM_WORDS, previous }, signal)),
  );
  const errors = results.filter(({ reason }) => reason).map(({ reason }) => reason);
  const temporary = errors.find(({ retryAfter }) => retryAfter !== null);
  // A model may have one direction only.
  if (temporary || errors.length === results.length) throw temporary ?? errors[0];
  const [next, previous] = results.map(({ value }) => value?.predictions);
  return [
    { title: "Next word", words: next, insert: (current, word) => `${current.trimEnd()} ${word}` },
    {
      title: "Word before",
      words: previous,
      insert: (current, word) => `${word} ${current.trimStart()}`,
    },
  ].filter(({ words }) => words);
}

function fillGap(text, gap, word) {
  let index = -1;
  return text.replace(GAP, (underscores) => {
    index += 1;
    return index === gap ? word : underscores;
  });
}

function listElement({ title, words }, largest, choose) {
  const element = create("div");
  element.append(create("h2", title));
  for (const { word, probability } of words) {
    const special = SPECIAL_TOKENS.get(word); // nothing that could be inserted
    const properties = { className: "bar", type: "button", disabled: Boolean(special) };
    const button = create("button", "", properties);
    button.style.setProperty("--share", `${((100 * probability) / largest).toFixed(1)}%`);
    const name = special ? create("i", special) : create("span", word);
    button.append(name, create("span", percent(probability)));
    button.addEventListener("click", () => choose(word));
    element.append(button);
  }
  return element;
}

const percent = (probability) => `${(100 * probability).toFixed(1)} %`;
