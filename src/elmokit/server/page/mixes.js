// Trained tasks become the shares of the layers in their mixes.

import { asker } from "./ask.js";
import { field, fillTable } from "./make.js";

export function startMixes() {
  const ask = asker("mixes", (_, put) => put("layer_weights"), (answer) => {
    const mixes = answer?.layer_weights ?? [];
    field("mixes-none").hidden = !answer || mixes.length > 0;
    if (!mixes.length) return field("mixes-table").replaceChildren();
    const all = [...new Set(mixes.flatMap(({ layers }) => layers))].sort((a, b) => a - b);
    const rows = mixes.map(({ task, name, position, layers, weights }) => ({
      name: `${task}, ${name}, ${position}`,
      numbers: all.map((layer) => weights[layers.indexOf(layer)]),
    }));
    const names = all.map((layer) => `layer ${layer}`);
    fillTable(field("mixes-table"), ["task, folder, place", ...names], rows);
  });

  return () => ask("all"); // once: they do not change
}
