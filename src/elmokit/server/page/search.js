// Search: the passages of an index most similar to a query, or occurrences of one of its words.

import { byId, create, sentence } from "./elements.js";
import { createRequester } from "./requests.js";

const NUM_RESULTS = 5;

export function startSearch() {
  const send = createRequester(
    byId("search-error"),
    (parameters, post) => post("search", parameters),
    (response) => {
      byId("search-results").replaceChildren(...(response?.results ?? []).map(listItem));
    },
  );

  return (state) => {
    const query = state["search-query"].trim(), word = state["search-word"].trim() || null;
    send(query ? { query, word, k: NUM_RESULTS } : null);
  };
}

function listItem({ words, highlighted, score, file, line }) {
  const item = create("li"), passage = create("p");
  const details = create("p", "", { className: "note" });
  passage.append(...sentence(words, highlighted));
  const bar = create("span", "", { className: "score" });
  bar.style.setProperty("--share", `${(100 * Math.min(1, Math.max(0, score))).toFixed(1)}%`);
  details.append(bar, `${score.toFixed(2)} · ${file}, line ${line}`);
  item.append(passage, details);
  return item;
}
