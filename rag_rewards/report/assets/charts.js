// Charts and sections of the pages about files of rows.
const SVG = "http://www.w3.org/2000/svg";
const svg = (name, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) key === "text" ? element.textContent = value : element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const WIDTH = 300, HEIGHT = 130, FOOT = 18;

function histogram(entry) {
  if (!entry.n) return el("p", { class: "soft", text: "No rollout has a value." });
  const most = Math.max(...entry.counts), n = entry.counts.length, room = WIDTH / n;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + FOOT}`, role: "img", "aria-label": `distribution of ${entry.name}` });
  entry.counts.forEach((count, i) => {
    const high = Math.max(count ? 1.5 : 0, (HEIGHT - 14) * count / most), wide = Math.min(Math.max(room - 1.5, 1), 46);
    const bar = svg("rect", { class: "fill", x: i * room + (room - wide) / 2, y: HEIGHT - high, width: wide, height: high });
    const name = entry.discrete ? short(entry.edges[i]) : `${short(entry.edges[i], 3)} to ${short(entry.edges[i + 1], 3)}`;
    bar.append(svg("title", { text: `${name}: ${count.toLocaleString()}` }));
    picture.append(bar);
    if (entry.discrete && n <= 7) picture.append(svg("text", { x: (i + 0.5) * room, y: HEIGHT + 13, "text-anchor": "middle", text: short(entry.edges[i], 3) }),
      svg("text", { x: (i + 0.5) * room, y: HEIGHT - high - 3, "text-anchor": "middle", text: count.toLocaleString() }));
  });
  picture.append(svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }));
  if (!entry.discrete || n > 7) picture.append(svg("text", { x: 0, y: HEIGHT + 13, text: short(entry.low, 3) }), svg("text", { x: WIDTH, y: HEIGHT + 13, "text-anchor": "end", text: short(entry.high, 3) }));
  return picture;
}
function distribution(entry) {
  const summary = entry.n ? entry.message || `mean ${short(entry.mean, 3)}, std ${short(entry.std, 3)}` : "";
  const missing = entry.missing && entry.n ? `, ${entry.missing.toLocaleString()} missing` : "";
  return el("figure", { class: "chart" }, el("figcaption", {}, entry.name + " ", el("span", { class: "soft", text: summary + missing })), histogram(entry));
}
function line(name, points) {
  const present = points.filter(each => each[1] !== null && each[1] !== undefined);
  if (present.length < 2) return null;
  const xs = present.map(each => each[0]), ys = present.map(each => each[1]);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const px = x => (x - x0) / (x1 - x0 || 1) * WIDTH, py = y => y1 === y0 ? HEIGHT / 2 : 8 + (1 - (y - y0) / (y1 - y0)) * (HEIGHT - 16);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + FOOT}`, role: "img", "aria-label": `${name} over training steps, from ${short(ys[0], 3)} to ${short(ys.at(-1), 3)}` },
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
    svg("path", { class: "line", d: present.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)},${py(y).toFixed(1)}`).join("") }),
    svg("text", { x: 0, y: HEIGHT + 13, text: `step ${x0}` }), svg("text", { x: WIDTH, y: HEIGHT + 13, "text-anchor": "end", text: x1 }));
  if (y1 > y0) picture.append(svg("text", { x: 2, y: 9, text: short(y1, 3) }), svg("text", { x: 2, y: HEIGHT - 4, text: short(y0, 3) }));
  for (const [x, y] of present) { const dot = svg("circle", { class: "dot", cx: px(x), cy: py(y), r: 3 }); dot.append(svg("title", { text: `step ${x}: ${short(y)}` })); picture.append(dot); }
  return el("figure", { class: "chart" }, el("figcaption", {}, name + " ", el("span", { class: "soft", text: y0 === y1 ? `constant ${short(y0)}` : `${short(ys[0], 3)} → ${short(ys.at(-1), 3)}` })), picture);
}
const section = (id, title, ...children) => el("section", { id, "aria-label": title }, el("h2", { text: title }), ...children);
const fact = (name, text) => el("div", {}, el("b", { text }), el("span", { text: name }));
const header = (title, sections) => el("header", {}, el("h1", { text: title }), el("nav", { "aria-label": "sections" }, ...sections.map(([id, text]) => el("a", { href: "#" + id, text }))));
const notesList = notes => notes.length ? el("ul", { class: "notes" }, ...notes.map(([text, kind]) => el("li", { text, class: kind }))) : null;
function restored(block, i) {
  const entry = block.rows[i], text = each => ({ ...each, text: block.texts[each.text] });
  return { ...entry, passages: (entry.passages || []).map(text), turns: (entry.turns || []).map(turn => turn.results ? { ...turn, results: turn.results.map(text) } : turn) };
}
const range = (low, high) => low === null || low === undefined ? "" : `${short(low, 3)} to ${short(high, 3)}`.replaceAll("-", "−");
const FIGURES = [["kappa", "κ"], ["precision", "precision"], ["recall", "recall"], ["false_positive_rate", "false positives"], ["auc", "AUC"]];
function agreementTable(runs, names) {
  const several = names.length > 1, rows = [];
  runs[0].forEach((first, i) => runs.forEach((values, k) => {
    const each = values[i], figures = each.figures;
    if (!figures.rows && several) return;
    rows.push(el("tr", {}, cell(k ? "" : first.metric.replace("components.", "")), several ? cell(names[k]) : null, cell(figures.rows.toLocaleString(), "number"), cell(figures.yes.toLocaleString(), "number"), cell(each.missing.toLocaleString(), "number"),
      ...FIGURES.map(([key]) => el("td", { class: "number", title: figures[key].reason || "" }, short(figures[key].value, 3), el("div", { class: "soft", text: range(figures[key].low, figures[key].high) })))));
  }));
  const reasons = [...new Set(runs.flat().map(each => (each.figures.kappa.reason || "").split(";")[0]).filter(Boolean))];
  return el("div", {}, table(["value", ...(several ? ["file"] : []), "rows", "label yes", "without label", ...FIGURES.map(([, name]) => name)], rows, "agreement"),
    el("p", { class: "soft", text: `Agreement with the column ${runs[0][0].label}, with 95% intervals. Rows without a label are left out. ${reasons.length ? "– means: " + reasons.join("; ") + "." : ""}` }));
}
