// Two sentences become a grid of cosines.

import { asker } from "./ask.js";
import { field, fillTable } from "./make.js";

export function startAlike() {
  let found = null, now = null;

  const draw = () => {
    const top = (found?.layers.length ?? 3) - 1;
    const layer = Math.max(0, Math.min(Math.round(Number(now["alike-layer"]) || 0), top));
    field("alike-layer-shown").textContent = layer;
    if (!found) return field("alike-grid").replaceChildren();
    const grid = found.layers[layer];
    const rows = found.first.map((name, place) => ({ name, numbers: grid[place] }));
    fillTable(field("alike-grid"), ["", ...found.second], rows);
  };
  const ask = asker("alike", (question, put) => put("similarity", question), (answer) => {
    found = answer;
    if (found) field("alike-layer").max = found.layers.length - 1;
    draw();
  });

  return (state) => {
    now = state;
    draw();
    const [first, second] = [state["alike-first"].trim(), state["alike-second"].trim()];
    ask(first && second ? { first, second } : null);
  };
}
