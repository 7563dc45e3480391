// A text becomes the words that may follow it, come before it, or fill its gaps.

import { asker } from "./ask.js";
import { field, make } from "./make.js";

const GAP = /_{3,}/g, MOST = 10;

export function startWords(change) {
  let now = null;

  const choose = (text) => {
    change("words-text", text);
    field("words-text").focus();
  };
  const put = async (text, ask) => {
    if (text.search(GAP) >= 0) {
      const { gaps } = await ask("fill", { text, k: MOST });
      return gaps.map((words, place) => [`Gap ${place + 1}`, words, (word) => filled(now["words-text"], place, word)]);
    }
    const [next, previous] = await Promise.all([false, true].map((previous) => ask("next", { text, k: MOST, previous })));
    return [
      ["Next", next.words, (word) => `${now["words-text"].trimEnd()} ${word}`],
      ["Before", previous.words, (word) => `${word} ${now["words-text"].trimStart()}`],
    ];
  };
  const ask = asker("words", put, (columns) => {
    field("words-columns").replaceChildren(...(columns ?? []).map(([title, words, placed]) => column(title, words, (word) => choose(placed(word)))));
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
    const bar = make("button", "", { className: "bar", type: "button" });
    bar.style.setProperty("--share", `${((100 * probability) / words[0].probability).toFixed(1)}%`);
    bar.append(make("span", word), make("span", `${(100 * probability).toFixed(1)} %`));
    bar.addEventListener("click", () => choose(word));
    made.append(bar);
  }
  return made;
}
