// Trained tasks become the shares of the layers in their mixes.

import { asker } from "./ask.js";
import { field, fillTable } from "./make.js";

export function startMixes() {
  const ask = asker("mixes", (_, put) => put("mixes"), (answer) => {
    const mixes = answer?.mixes ?? [];
    field("mixes-none").hidden = !answer || mixes.length > 0;
    if (!mixes.length) return field("mixes-table").replaceChildren();
    const all = [...new Set(mixes.flatMap(({ layers }) => layers))].sort((a, b) => a - b);
    const rows = mixes.map(({ task, folder, place, layers, shares }) => ({
      name: `${task}, ${folder}, ${place}`,
      numbers: all.map((layer) => shares[layers.indexOf(layer)]),
    }));
    const names = all.map((layer) => `layer ${layer}`);
    fillTable(field("mixes-table"), ["task, folder, place", ...names], rows);
  });

  return () => ask("all"); // once: they do not change
}
