// Search: the passages of an index that match a query best, or occurrences of one of its words.

import { byId, create, sentence } from "./elements.js";
import { createRequester } from "./requests.js";

const NUM_RESULTS = 5;
// The parts of a score, as they are called beside it; a mode has some of them.
const PARTS = { bm25: "BM25", word_match: "words", cosine: "cosine" };

export function startSearch(backend) {
  const send = createRequester(
    byId("search-error"),
    backend.search,
    (response) => {
      byId("search-results").replaceChildren(...(response?.results ?? []).map(listItem));
      byId("search-none").hidden = !response || response.results.length > 0;
    },
  );

  return (state) => {
    const query = state["search-query"].trim(), word = state["search-word"].trim() || null;
    const file = state["search-file"].trim();
    const options = { mode: state["search-mode"] || null, files: file ? [file] : [] };
    send(query ? { query, word, k: NUM_RESULTS, ...options } : null);
  };
}

function listItem({ words, highlighted, near, score, file, line, ...rest }) {
  const item = create("li"), passage = create("p");
  const details = create("p", "", { className: "note" });
  passage.append(...sentence(words, highlighted, near));
  const bar = create("span", "", { className: "score" });
  bar.style.setProperty("--share", `${(100 * Math.min(1, Math.max(0, score))).toFixed(1)}%`);
  const known = Object.keys(PARTS).filter((name) => rest[name] !== null);
  const parts = known.map((name) => `${PARTS[name]} ${rest[name].toFixed(2)}`).join(" · ");
  const shown = known.length > 1 ? `${score.toFixed(2)} (${parts})` : parts;
  details.append(bar, `${shown} · ${file}, line ${line}`);
  item.append(passage, details);
  return item;
}
