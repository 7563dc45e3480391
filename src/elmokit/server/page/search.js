// A query becomes the passages nearest to it, or uses of a word; what made them near is lit.

import { asker } from "./ask.js";
import { field, make, sentence } from "./make.js";

const MOST = 10;

export function startSearch() {
  const ask = asker("search", (question, put) => put("search", question), (answer) => {
    field("search-found").replaceChildren(...(answer?.results ?? []).map(line));
  });

  return (state) => {
    const [query, word] = [state["search-query"].trim(), state["search-word"].trim() || null];
    ask(query ? { query, word, k: MOST } : null);
  };
}

function line({ words, highlighted, score, file, line: number }) {
  const item = make("li");
  const whence = `${score.toFixed(2)}, ${file}, line ${number}`;
  item.append(...sentence(words, highlighted), make("span", whence, { className: "quiet" }));
  return item;
}
