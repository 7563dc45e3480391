// Layer weights: the share of each layer in the scalar mixes of trained tasks.

import { barCell, byId, create, fillTable } from "./elements.js";
import { createRequester } from "./requests.js";

export function startLayerWeights(backend) {
  const send = createRequester(
    byId("layer-weights-error"),
    (_, signal) => backend.layerWeights(signal),
    (response) => {
      const mixes = response?.layer_weights ?? [];
      byId("layer-weights-none").hidden = !response || mixes.length > 0;
      if (!mixes.length) return byId("layer-weights-table").replaceChildren();
      const layers = [...new Set(mixes.flatMap((mix) => mix.layers))].sort((a, b) => a - b);
      const rows = mixes.map((mix) => ({
        name: [create("strong", mix.task), create("span", `${mix.name}, ${mix.position}`)],
        cells: layers.map((layer) => barCell(mix.weights[mix.layers.indexOf(layer)])),
      }));
      const names = layers.map((layer) => `Layer ${layer}`);
      fillTable(byId("layer-weights-table"), ["Task", ...names], rows);
    },
  );

  return () => send("all"); // once: they do not change
}
