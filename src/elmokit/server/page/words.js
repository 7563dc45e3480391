// A text becomes the words that may follow it, come before it, or fill its gaps.

import { asker } from "./ask.js";
import { field, make } from "./make.js";

const GAP = /_{3,}/g, MOST = 10;
const MARKS = new Map([["<S>", "the sentence begins"], ["</S>", "the sentence ends"]]);

export function startWords(change) {
  let now = null;

  const choose = (text) => {
    change("words-text", text);
    field("words-text").focus();
  };
  const put = async (text, ask) => {
    if (text.search(GAP) >= 0) {
      const { gaps } = await ask("fill", { text, k: MOST });
      return gaps.map((words, place) => [
        `Gap ${place + 1}`, words, (word) => filled(now["words-text"], place, word),
      ]);
    }
    const both = await Promise.allSettled(
      [false, true].map((previous) => ask("next", { text, k: MOST, previous })),
    );
    const failed = both.filter(({ reason }) => reason).map(({ reason }) => reason);
    const later = failed.find(({ wait }) => wait !== null);
    // A model may read one way only.
    if (later || failed.length === both.length) throw later ?? failed[0];
    return [
      ["Next", both[0].value?.predictions, (word) => `${now["words-text"].trimEnd()} ${word}`],
      ["Before", both[1].value?.predictions, (word) => `${word} ${now["words-text"].trimStart()}`],
    ].filter(([, words]) => words);
  };
  const ask = asker("words", put, (columns) => {
    const made = (columns ?? []).map(([title, words, placed]) =>
      column(title, words, (word) => choose(placed(word))),
    );
    field("words-columns").replaceChildren(...made);
  });

  return (state) => {
    now = state;
    ask(state["words-text"].trim() || null);
  };
}

// A text with a word in one of its gaps.
function filled(text, gap, word) {
  let place = -1;
  return text.replace(GAP, (found) => {
    place += 1;
    return place === gap ? word : found;
  });
}

function column(title, words, choose) {
  const made = make("div");
  made.append(make("h2", title));
  for (const { word, probability } of words) {
    const mark = MARKS.get(word); // no word to put somewhere
    const bar = make("button", "", { className: "bar", type: "button", disabled: Boolean(mark) });
    bar.style.setProperty("--share", `${((100 * probability) / words[0].probability).toFixed(1)}%`);
    const percent = `${(100 * probability).toFixed(1)} %`;
    bar.append(mark ? make("i", mark) : make("span", word), make("span", percent));
    bar.addEventListener("click", () => choose(word));
    made.append(bar);
  }
  return made;
}
