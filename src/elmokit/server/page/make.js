// Names become elements of the page, and texts become new ones.

export const field = (name) => document.getElementById(name);

export function make(kind, text = "", settings = {}) {
  return Object.assign(document.createElement(kind), { textContent: text }, settings);
}

// A sentence, some of its words marked.
export function sentence(words, marked) {
  const kind = (place) => (marked.includes(place) ? "mark" : "span");
  return words.flatMap((word, place) => [make(kind(place), word), " "]);
}

// Rows of a table: a head of names, then a name and numbers between -1 and 1, tinted by their size;
// where there is none, the cell is empty.
export function fillTable(table, names, rows) {
  const head = make("thead"), body = make("tbody");
  head.append(row(names.map((name) => make("th", name, { scope: "col" }))));
  for (const { name, numbers } of rows) {
    body.append(row([make("th", name, { scope: "row" }), ...numbers.map(cell)]));
  }
  table.replaceChildren(head, body);
}

function row(cells) {
  const made = make("tr");
  made.append(...cells);
  return made;
}

function cell(number) {
  if (number === undefined) return make("td");
  const made = make("td", number.toFixed(2));
  made.style.setProperty("--tint", number < 0 ? "var(--against)" : "var(--accent)");
  const share = 45 * Math.min(1, Math.abs(number)); // not more: ink stays legible
  made.style.setProperty("--share", `${share.toFixed(0)}%`);
  return made;
}
