// Elements of the page: found by id, created, and filled with sentences, tables and bars.

export const byId = (id) => document.getElementById(id);

export function create(tag, text = "", properties = {}) {
  return Object.assign(document.createElement(tag), { textContent: text }, properties);
}

// Tokens that follow the word before without a space: punctuation and parts of contractions.
const IS_ATTACHED = /^([.,;:!?%)\]…]+|['’]\p{L}{1,2}|n['’]t)$/u;

// The words of a sentence as elements, those at `marked` positions highlighted, at `near` weakly.
export function sentence(words, marked, near = []) {
  return words.flatMap((word, position) => [
    IS_ATTACHED.test(word) ? "" : " ",
    marked.includes(position)
      ? create("mark", word, { className: near.includes(position) ? "near" : "" })
      : create("span", word),
  ]);
}

// A head of names, and rows of a name (texts or elements) and cells.
export function fillTable(table, names, rows) {
  const head = create("thead"), body = create("tbody");
  head.append(tableRow(names.map((name) => create("th", name, { scope: "col" }))));
  for (const { name, cells } of rows) {
    const rowHead = create("th", "", { scope: "row" });
    rowHead.append(...name);
    body.append(tableRow([rowHead, ...cells]));
  }
  table.replaceChildren(head, body);
}

function tableRow(cells) {
  const row = create("tr");
  row.append(...cells);
  return row;
}

// A number between -1 and 1, the background tinted by its size.
export function heatCell(number) {
  const cell = create("td", number.toFixed(2), { className: "heat" });
  cell.style.setProperty("--tint", number < 0 ? "var(--negative)" : "var(--accent)");
  const share = 55 * Math.min(1, Math.abs(number)); // not more, so that the text stays legible
  cell.style.setProperty("--share", `${share.toFixed(0)}%`);
  return cell;
}

// A number between 0 and 1 with a bar of that length; empty where there is none.
export function barCell(number) {
  if (number === undefined) return create("td");
  const cell = create("td", number.toFixed(2), { className: "bar" });
  cell.style.setProperty("--share", `${(100 * number).toFixed(1)}%`);
  return cell;
}

// What layer a slider's value means.
export function layerName(layer, top) {
  if (layer === 0) return "context-free";
  return layer === top ? `LSTM ${layer} (top)` : `LSTM ${layer}`;
}

// The layers of a model under a slider, each at the position of its value.
export function labelSlider(slider, labels, numLayers) {
  const top = numLayers - 1;
  slider.max = top;
  const ticks = Array.from({ length: numLayers }, (_, layer) => {
    const few = numLayers <= 4;
    const tick = create("span", few ? `${layer} · ${layerName(layer, top)}` : layer);
    tick.style.setProperty("--position", `${(100 * layer) / Math.max(top, 1)}%`);
    return tick;
  });
  labels.replaceChildren(...ticks);
}
