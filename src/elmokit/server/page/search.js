// A query becomes the passages nearest to it, those of their words that made them near lit.

import { asker } from "./ask.js";
import { field, make, sentence } from "./make.js";

const MOST = 10;

export function startSearch() {
  const ask = asker("search", (query, put) => put("search", { query, k: MOST }), (answer) => {
    field("search-found").replaceChildren(...(answer?.found ?? []).map(line));
  });

  return (state) => ask(state["search-query"].trim() || null);
}

function line({ words, lit, score, file, line: number }) {
  const item = make("li");
  const whence = `${score.toFixed(2)}, ${file}, line ${number}`;
  item.append(...sentence(words, lit), make("span", whence, { className: "quiet" }));
  return item;
}
