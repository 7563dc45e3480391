// Similarity: the cosine similarity of each word of one sentence and each word of another.

import { byId, create, fillTable, heatCell, labelSlider, layerName } from "./elements.js";
import { createRequester } from "./requests.js";

const MAX_PAIRS = 6;
const IS_WORD = /[\p{L}\p{N}]/u;

export function startSimilarity(backend) {
  const slider = byId("similarity-layer");
  let response = null, state = null;

  const draw = () => {
    const top = (response?.layers.length ?? 3) - 1;
    const layer = Math.max(0, Math.min(Math.round(Number(state["similarity-layer"]) || 0), top));
    byId("similarity-layer-shown").textContent = layer;
    slider.setAttribute("aria-valuetext", `layer ${layer} of ${top}, ${layerName(layer, top)}`);
    byId("similarity-results").hidden = !response;
    if (!response) return;
    const { first, second } = response, cosines = response.layers[layer];
    const rows = first.map((word, row) => ({ name: [word], cells: cosines[row].map(heatCell) }));
    fillTable(byId("similarity-table"), ["", ...second], rows);
    byId("similarity-pairs").replaceChildren(...mostSimilar(first, second, cosines).map(pairItem));
  };
  const send = createRequester(
    byId("similarity-error"),
    backend.similarity,
    (result) => {
      response = result;
      if (response) labelSlider(slider, byId("similarity-layer-names"), response.layers.length);
      draw();
    },
  );

  return (newState) => {
    state = newState;
    draw();
    const [first, second] = [state["similarity-first"].trim(), state["similarity-second"].trim()];
    send(first && second ? { first, second } : null);
  };
}

// For each word of the first sentence the most similar word of the second; the best of these.
function mostSimilar(first, second, cosines) {
  const columns = [...second.keys()].filter((column) => IS_WORD.test(second[column]));
  if (!columns.length) return [];
  return first
    .map((word, row) => {
      const best = columns.reduce((a, b) => (cosines[row][b] > cosines[row][a] ? b : a));
      return { words: [word, second[best]], cosine: cosines[row][best] };
    })
    .filter(({ words: [word] }) => IS_WORD.test(word))
    .sort((a, b) => b.cosine - a.cosine)
    .slice(0, MAX_PAIRS);
}

function pairItem({ words, cosine }) {
  const item = create("li", "", { className: "bar" });
  item.style.setProperty("--share", `${(100 * Math.max(0, cosine)).toFixed(1)}%`);
  item.append(create("span", words.join(" – ")), create("span", cosine.toFixed(2)));
  return item;
}
