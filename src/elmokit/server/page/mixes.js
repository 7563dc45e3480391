// Trained tasks become the shares of the layers in their mixes.

import { asker } from "./ask.js";
import { field, fillTable } from "./make.js";

export function startMixes() {
  const ask = asker("mixes", (_, put) => put("mixes"), (answer) => {
    const mixes = answer?.mixes ?? [];
    field("mixes-none").hidden = !answer || mixes.length > 0;
    if (!mixes.length) return field("mixes-table").replaceChildren();
    const most = Math.max(...mixes.map(({ shares }) => shares.length));
    const layers = Array.from({ length: most }, (_, layer) => `layer ${layer}`);
    const rows = mixes.map(({ task, folder, place, shares }) => ({
      name: `${task}, ${folder}, ${place}`,
      numbers: shares,
    }));
    fillTable(field("mixes-table"), ["task, folder, place", ...layers], rows);
  });

  return () => ask("all"); // once: they do not change
}
