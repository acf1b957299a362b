const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs, names = runs.map(run => run.name), several = runs.length > 1;
const COLORS = 6; // colors of files in the style
const color = k => "run-" + k % COLORS;
const swatch = k => el("span", { class: "swatch " + color(k), "aria-hidden": "true" });
const named = k => el("td", { class: "run" }, swatch(k), names[k]);
const soft = text => el("p", { class: "soft", text });
const count = value => value.toLocaleString();
const present = values => values.filter(value => value !== null && value !== undefined);
const unique = values => [...new Set(values)];
const range = (low, high) => low === null || low === undefined ? "" : `${short(low, 3)} to ${short(high, 3)}`.replaceAll("-", "−");
const section = (id, title, ...children) => el("section", { id, "aria-label": title }, el("h2", { text: title }), ...children);

// --- overview ------------------------------------------------------------------------------------
function overview() {
  const rows = runs.map((run, k) => el("tr", {}, named(k), cell(count(run.statistics.rows), "number"), cell(count(run.groups), "number"),
    cell(count(run.statistics.rows - run.statistics.scored), "number"), cell(count(run.failed), run.failed ? "number bad" : "number"), cell(run.recipe || "unknown"),
    el("td", {}, el("code", { text: run.signature || "none" }), run.signatures > 1 ? ` and ${run.signatures - 1} more` : "")));
  const settings = data.settings.map(each => el("tr", {}, cell(each.name), ...each.values.map(value => cell(value === null ? "default" : value, value === null ? "soft" : ""))));
  const equations = unique(runs.map(run => run.equation).filter(Boolean));
  return [notes(), table(["file", "rows", "groups", "unscored", "in error", "recipe", "signature"], rows, "files"),
    ...equations.map(text => el("p", {}, el("code", { text: "reward = " + text }))),
    ...(settings.length ? [el("h3", { text: "Differences between the signatures" }), table(["setting", ...names], settings, "settings")] : [])];
}
function notes() {
  const of = k => several ? names[k] + ": " : "";
  const drift = runs.flatMap((run, k) => run.statistics.alarms.map(each => [`${of(k)}drift: ${each.name}: ${each.message}`, "bad"]));
  const faults = runs.flatMap((run, k) => run.failed ? [[`${of(k)}${count(run.failed)} rows are in error and not shown`, "bad"], ...run.faults.map(([row, text]) => [`${row}: ${text}`, "soft"])] : []);
  const texts = data.notes.map(text => [text, text.startsWith("the recipes differ") ? "bad" : ""]);
  const all = [...drift, ...texts, ...faults];
  return all.length ? el("ul", { class: "notes" }, ...all.map(([text, kind]) => el("li", { text, class: kind }))) : null;
}

// --- means ---------------------------------------------------------------------------------------
const PLOT = 150;
function scaleOf(ends) {
  const low = Math.min(...ends), high = Math.max(...ends), pad = (high - low || Math.abs(high) || 1) * 0.08;
  return value => 6 + (value - low + pad) / (high - low + 2 * pad) * (PLOT - 12);
}
function whisker(value, low, high, at, kind, zero) {
  const picture = svg("svg", { viewBox: `0 0 ${PLOT} 22`, class: "interval " + kind, "aria-hidden": "true" }, svg("line", { class: "axis", x1: 0, x2: PLOT, y1: 11, y2: 11 }));
  if (zero) picture.append(svg("line", { class: "zero", x1: at(0), x2: at(0), y1: 1, y2: 21 }));
  if (low !== null && low !== undefined) picture.append(svg("line", { class: "whisker", x1: at(low), x2: at(high), y1: 11, y2: 11 }));
  picture.append(svg("circle", { class: "point", cx: at(value), cy: 11, r: 4 }));
  return picture;
}
function means() {
  const units = data.comparisons.some(each => each.unit === "question") ? "rows or questions" : "rows";
  const rows = data.values.flatMap(each => {
    const at = scaleOf(present(each.runs.flatMap(run => [run.value, run.low, run.high])));
    const changes = data.comparisons.map(comparison => comparison.differences[each.name]).map(change => change && change.difference !== null ? change : null);
    const from = scaleOf([0, ...present(changes.flatMap(change => change ? [change.difference, change.low, change.high] : []))]);
    return each.runs.map((run, k) => el("tr", { class: k ? "" : "first" }, cell(k ? "" : each.name, "value"), several ? named(k) : null,
      cell(short(run.value), "number"), cell(range(run.low, run.high), "number"),
      el("td", { class: "plot wide" }, run.value === null ? "" : whisker(run.value, run.low, run.high, at, color(k))),
      ...(several ? difference(each, run, k, k ? changes[k - 1] : null, from) : [cell(count(run.n), "number")])));
  });
  const differences = several ? ["difference", "95% interval", "", "", units] : [units];
  const element = table(["value", ...(several ? ["file"] : []), "mean", "95% interval", "", ...differences], rows, several ? "means" : "means one");
  for (const head of element.querySelectorAll("th")) if (!head.textContent && head.nextSibling.textContent) head.className = "wide";
  const about = several ? ` A difference is the mean of a file minus the mean of ${names[0]}, over their common ${units}; both files are resampled together. The intervals are not corrected for the number of values.` : "";
  return [element, soft("Intervals are those of a bootstrap with 1,000 resamples of prompts." + about)];
}
function difference(each, run, k, change, at) {
  if (!change) return ["", "", "", k ? (run.value === null ? "no value" : "no common rows") : "", count(run.n)].map((text, i) => cell(text, ["number", "number", "plot wide", "soft", "number"][i]));
  const comparable = each.name === "correct" || data.comparisons[k - 1].same_recipe;
  return [cell(signed(change.difference), "number"), cell(range(change.low, change.high), "number"),
    el("td", { class: "plot wide" }, whisker(change.difference, change.low, change.high, at, color(k), true)), verdict(change, comparable), cell(count(change.units), "number")];
}
function verdict(change, comparable) {
  if (!comparable) return cell("other recipe", "soft verdict");
  if (change.holds === null || change.holds === undefined) return cell("");
  return change.holds ? cell(change.difference > 0 ? "higher" : "lower", change.difference > 0 ? "good verdict" : "bad verdict") : cell("no clear difference", "soft verdict");
}

// --- wins, ties and losses -----------------------------------------------------------------------
function stack(each) {
  const total = each.higher + each.equal + each.lower;
  const box = el("div", { class: "stack", role: "img", "aria-label": `${each.name}: ${each.higher} higher, ${each.equal} equal, ${each.lower} lower` });
  for (const kind of ["higher", "equal", "lower"]) {
    const piece = el("span", { class: kind, title: `${kind}: ${count(each[kind])} (${percent(each[kind] / total)})` });
    piece.style.flexGrow = each[kind];
    if (each[kind]) box.append(piece);
  }
  return box;
}
function outcomes() {
  return data.comparisons.flatMap((each, i) => {
    const other = names[i + 1], title = data.comparisons.length > 1 ? el("h3", {}, swatch(i + 1), `${other} compared with ${names[0]}`) : null;
    if (!each.outcomes.length) return [title, soft("The files have no common rows, so that rows cannot be compared.")];
    const rows = each.outcomes.filter(one => one.higher + one.equal + one.lower).map(one => el("tr", {}, cell(one.name),
      ...["higher", "equal", "lower"].map(kind => cell(count(one[kind]), "number")), el("td", { class: "plot" }, stack(one))));
    const correct = each.differences.correct, both = correct && correct.agreement;
    const line = (text, ...counts) => el("tr", {}, cell(`${text} in ${names[0]}`), ...counts.map(n => cell(count(n), "number")));
    return [title, table(["value", `higher in ${other}`, "equal", `lower in ${other}`, ""], rows, "outcomes"),
      ...(both ? [el("h3", { text: "Correct in both files" }), table(["", `correct in ${other}`, `incorrect in ${other}`],
        [line("correct", both.both, both.only_base), line("incorrect", both.only_other, both.neither)], "correct")] : []),
      !both && correct && correct.units ? soft("The values of correct are not only 0 and 1, so that there is no table of correct and incorrect rows.") : null];
  });
}

// --- rows that changed most ----------------------------------------------------------------------
const DIRECTIONS = {
  "all changes": () => true, "higher reward": each => each.reward > 0, "lower reward": each => each.reward < 0,
  "more correct": each => each.correct > 0, "less correct": each => each.correct < 0,
};
function changed() {
  const other = el("label", {}, "file", el("select", { id: "other", onchange: showChanges }, ...data.comparisons.map((_, i) => el("option", { value: i, text: names[i + 1] }))));
  return [el("div", { class: "controls" }, data.comparisons.length > 1 ? other : null, el("label", {}, "show", el("select", { id: "direction", onchange: showChanges }, ...options(DIRECTIONS)))),
    el("p", { class: "soft", id: "changed-count", role: "status" }), el("div", { id: "changes" })];
}
function showChanges() {
  if (!several) return;
  const i = +(value("other") || 0), each = data.comparisons[i], rows = each.changes.filter(DIRECTIONS[value("direction")]);
  const order = each.same_recipe ? "The largest change of the reward is first." : "The largest change of correct is first, because the recipes differ.";
  const listed = each.changed ? `${count(each.changed)} rows changed; the list contains ${count(rows.length)} of them. ${order}` : "The reward and correct are equal in all common rows.";
  document.getElementById("changed-count").textContent = each.unit === "row" ? listed : "The files have no common rows.";
  document.getElementById("changes").replaceChildren(...rows.map(change => entry(change, i + 1)));
}
function entry(change, k) {
  const [from, to] = [columns[0], columns[k]], i = change.base, j = change.other;
  const arrow = (a, b) => `${short(a, 3)} → ${short(b, 3)}`;
  const moved = unique(["correct", ...Object.keys(from.parts), ...Object.keys(to.parts)]).map(name => [name, (column(0, name) || [])[i], (column(k, name) || [])[j]]).filter(([, a, b]) => a !== b);
  const id = from.id[i].length > 160 ? from.id[i].slice(0, 159) + "…" : from.id[i], question = from.question[from.group[i]];
  return el("details", { class: "group", ontoggle: event => sides(event, [[0, i, names[0]], [k, j, names[k]]]) }, el("summary", {},
    el("b", { text: id + (from.step[i] === null ? "" : `, step ${from.step[i]}`) }), " ",
    el("span", { class: "number " + (change.reward > 0 ? "good" : change.reward < 0 ? "bad" : "soft"), text: `reward ${arrow(from.reward[i], to.reward[j])}` }), " ",
    el("span", { class: "soft", text: moved.map(([name, a, b]) => `${name} ${arrow(a, b)}`).join(", ") }), question ? el("div", { text: question }) : null), el("div", { class: "sides" }));
}
async function sides(event, rollouts) {
  const place = event.target.querySelector(".sides");
  if (!event.target.open || place.childElementCount) return;
  place.replaceChildren(...await Promise.all(rollouts.map(async ([k, i, title]) => el("div", {}, el("h3", { text: title }), await rollout(k, i, true)))));
}

// --- charts --------------------------------------------------------------------------------------
const SVG = "http://www.w3.org/2000/svg", WIDTH = 320, HEIGHT = 120, BAND = 54, FOOT = 18;
const svg = (name, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) key === "text" ? element.textContent = value : element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const chart = (name, about, picture) => el("figure", { class: "chart" }, el("figcaption", {}, name + " ", el("span", { class: "soft", text: about })), picture);
const ends = (y, ...texts) => texts.map((text, i) => svg("text", { x: i ? WIDTH : 0, y, "text-anchor": i ? "end" : "start", text }));
function distribution(each) {
  const own = each.runs[0], n = each.edges.length - (each.discrete ? 0 : 1), room = WIDTH / Math.max(n, 1), band = several ? BAND : HEIGHT;
  const summary = several || !own.n ? "" : (own.message || `mean ${short(own.mean, 3)}, std ${short(own.std, 3)}`) + (own.missing ? `, ${count(own.missing)} missing` : "");
  if (n <= 0) return chart(each.name, summary, soft(own.message));
  const shares = each.runs.map(run => run.counts.map(value => run.n ? value / run.n : 0)), most = Math.max(...shares.flat(), 1e-9), few = each.discrete && n <= 7;
  const high = runs.length * band, picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${high + FOOT}`, role: "img", "aria-label": `distribution of ${each.name}` });
  shares.forEach((shares, k) => {
    const foot = (k + 1) * band;
    shares.forEach((share, i) => {
      const tall = Math.max(share ? 1.5 : 0, (band - 16) * share / most), wide = Math.min(Math.max(room - 1.5, 1), 46);
      const place = each.discrete ? short(each.edges[i]) : `${short(each.edges[i], 3)} to ${short(each.edges[i + 1], 3)}`;
      picture.append(svg("rect", { class: "fill " + color(k), x: i * room + (room - wide) / 2, y: foot - tall, width: wide, height: tall },
        svg("title", { text: `${several ? names[k] + ": " : ""}${place}: ${count(each.runs[k].counts[i])} (${percent(share)})` })));
      if (few && share) picture.append(svg("text", { x: (i + 0.5) * room, y: foot - tall - 3, "text-anchor": "middle", text: percent(share) }));
    });
    picture.append(svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: foot, y2: foot }));
  });
  picture.append(...(few ? each.edges.map((edge, i) => svg("text", { x: (i + 0.5) * room, y: high + 13, "text-anchor": "middle", text: short(edge, 3) }))
    : ends(high + 13, short(each.edges[0], 3), short(each.edges.at(-1), 3))));
  return chart(each.name, summary, picture);
}
function lines(name) {
  const series = runs.map(run => run.statistics.steps.map(each => [each.step, each.values[name]]).filter(point => present(point).length === 2)), all = series.flat();
  if (!series.some(points => points.length > 1)) return null;
  const [xs, ys] = [0, 1].map(i => all.map(point => point[i])), [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const px = x => (x - x0) / (x1 - x0 || 1) * WIDTH, py = y => y1 === y0 ? HEIGHT / 2 : 8 + (1 - (y - y0) / (y1 - y0)) * (HEIGHT - 16);
  const about = several ? "" : y0 === y1 ? `constant ${short(y0)}` : `${short(ys[0], 3)} → ${short(ys.at(-1), 3)}`;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + FOOT}`, role: "img", "aria-label": `${name} over training steps ${about}` },
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }), ...ends(HEIGHT + 13, `step ${x0}`, x1));
  if (y1 > y0) picture.append(svg("text", { x: 2, y: 9, text: short(y1, 3) }), svg("text", { x: 2, y: HEIGHT - 4, text: short(y0, 3) }));
  series.forEach((points, k) => {
    picture.append(svg("path", { class: "line " + color(k), d: points.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)},${py(y).toFixed(1)}`).join("") }));
    picture.append(...points.map(([x, y]) => svg("circle", { class: "dot " + color(k), cx: px(x), cy: py(y), r: 2.5 }, svg("title", { text: `${several ? names[k] + ", " : ""}step ${x}: ${short(y)}` }))));
  });
  return chart(name, about, picture);
}
const charts = (...figures) => [several ? el("p", { class: "legend soft" }, ...names.map((name, k) => el("span", {}, swatch(k), name))) : null, el("div", { class: "charts" }, ...figures)];

// --- tables with a column for each file ----------------------------------------------------------
const rateText = (name, value) => name.endsWith("per response") || name.endsWith("per rollout") ? short(value, 3) : percent(value);
function rates(of) {
  const rows = unique(runs.flatMap((_, k) => Object.keys(of(k)))).map(name => [name, runs.map((_, k) => of(k)[name])]).filter(([, values]) => present(values).length);
  return table(["", ...(several ? names : [""])], rows.map(([name, values]) => el("tr", {}, cell(name), ...values.map(value => cell(rateText(name, value), "number")))), "rates");
}
function groups() {
  const sizes = runs.map((run, k) => {
    const all = Object.entries(run.statistics.sizes).map(([size, n]) => `${count(n)} of size ${size}`);
    return soft(`${several ? names[k] + ": number" : "Number"} of groups by size: ${all.slice(0, 12).join(", ") || "none"}${all.length > 12 ? ", …" : ""}.`);
  });
  const signals = runs.flatMap((run, k) => run.statistics.signals.filter(each => each.dead !== null).map(each => el("tr", {}, cell(each.name), several ? named(k) : null,
    cell(percent(each.dead), each.dead > 0.5 ? "number bad" : "number"), cell(short(each.spread, 3), "number"))));
  if (!signals.length) return [...sizes, soft("No group has two scored rollouts, so the spread within groups is undefined.")];
  return [...sizes, ...charts(distribution(data.spreads)), table(["", ...(several ? ["file"] : []), "groups without spread", "mean standard deviation"], signals, "signal"), el("div", { id: "showcase" })];
}
function searches() {
  const turns = runs.map(run => run.statistics.turns || { rates: {}, malformed: [], credit: [] });
  const malformed = unique(turns.flatMap(each => each.malformed.map(one => one.name))).map(name => {
    const found = turns.map(each => each.malformed.find(one => one.name === name));
    return el("tr", {}, cell(name), ...found.map(one => cell(count(one ? one.turns : 0), "number")), cell(found.find(Boolean).meaning));
  });
  const credit = unique(turns.flatMap(each => each.credit.filter(one => one.dead !== null).map(one => one.method))).map(method => {
    const dead = turns.map(each => (each.credit.find(one => one.method === method) || {}).dead);
    return el("tr", {}, cell(method), ...dead.map(value => cell(percent(value), value > 0.5 ? "number bad" : "number")));
  });
  return [rates(k => turns[k].rates), ...charts(distribution(data.searches)),
    malformed.length ? table(["malformed turns", ...(several ? names : ["turns"]), "meaning"], malformed, "malformed") : soft("No turn is malformed."),
    ...(credit.length ? [table(["method of credit", ...(several ? names : ["groups without signal"])], credit, "signal"),
      soft("The share of the groups in which the advantage of every turn is 0. Groups of one rollout are left out.")] : [])];
}
function training() {
  const steps = runs.flatMap(run => run.statistics.steps);
  if (!steps.length) return [soft("This section requires rows with at least two different values of `step`.")];
  const alarms = runs.flatMap((run, k) => run.statistics.alarms.map(each => el("li", {}, el("b", { class: "bad", text: `${several ? names[k] + ": " : ""}${each.name}: ` }), each.message)));
  const quiet = runs.some(run => run.statistics.steps.length >= 4) ? "No drift between the first and the last quarter of the steps." : "Drift is detected from four steps on.";
  return [alarms.length ? el("ul", { class: "notes" }, ...alarms) : soft(quiet), ...charts(...unique(steps.flatMap(each => Object.keys(each.values))).map(lines).filter(Boolean))];
}

// --- sections of one file ------------------------------------------------------------------------
const PAGE = 50;
let columns = null, search = [], chosen = [], at = 0, file = 0;
const blocks = new Map(), stats = () => runs[file].statistics;
const value = id => { const node = document.getElementById(id); return node ? node.value : ""; };
const options = all => Object.keys(all).map(text => el("option", { text }));
const column = (k, name) => name === "reward" || name === "correct" ? columns[k][name] : columns[k].parts[name];
const ofFile = () => several ? el("p", { class: "soft" }, swatch(file), names[file]) : null;
function correlations() {
  const all = stats().names;
  if (all.length < 2) return [ofFile(), soft("There is only one value per rollout, so there is nothing to compare.")];
  const rows = all.map((name, i) => el("tr", {}, el("th", { scope: "row", text: name }), ...stats().matrix[i].map((value, j) => {
    const node = el("td", { class: "heat", text: value === null ? "–" : (Math.abs(value) < 0.005 ? 0 : value).toFixed(2) });
    if (value !== null && i !== j && Math.abs(value) >= 0.05) { node.classList.add(value > 0 ? "more" : "less"); node.style.setProperty("--share", Math.round(80 * Math.abs(value)) + "%"); }
    return node;
  })));
  const varies = Math.max(1, all.findIndex((_, i) => i && stats().matrix[i][i] !== null));
  const pick = (id, chosen) => el("select", { id, onchange: scatter }, ...all.map((text, i) => el("option", { value: i, text, selected: i === chosen })));
  return [ofFile(), table(["", ...all], rows, "correlations"), soft("Pearson correlation over all rollouts; – if one of the two is constant."),
    el("div", { class: "controls" }, el("label", {}, "horizontal axis", pick("across", varies)), el("label", {}, "vertical axis", pick("up", 0))),
    el("figure", { class: "chart" }, el("canvas", { id: "scatter", width: 900, height: 320, role: "img", "aria-label": "scatter plot of two values" }), el("figcaption", { id: "scatter-caption", class: "soft" }))];
}
function scatter() {
  const board = document.getElementById("scatter");
  if (!board || !columns) return;
  const [x, y] = ["across", "up"].map(id => stats().names[value(id)]), xs = column(file, x), ys = column(file, y);
  const pairs = xs.map((a, i) => [a, ys[i]]).filter(pair => present(pair).length === 2);
  const pen = board.getContext("2d"), style = getComputedStyle(document.documentElement);
  const ends = k => pairs.reduce(([low, high], pair) => [Math.min(low, pair[k]), Math.max(high, pair[k])], [Infinity, -Infinity]);
  const [x0, x1] = ends(0), [y0, y1] = ends(1);
  const [wide, high] = [0, 1].map(k => new Set(pairs.map(pair => pair[k])).size <= 7 ? [90, 44][k] : 8);
  pen.clearRect(0, 0, 900, 320);
  pen.fillStyle = style.getPropertyValue("--bar");
  pen.globalAlpha = Math.max(0.04, Math.min(0.5, 300 / pairs.length));
  let seed = 7; // reproducible offsets, so that equal pairs do not hide each other
  const noise = () => (seed = (seed * 16807) % 2147483647) / 2147483647 - 0.5;
  for (const [a, b] of pairs) { pen.beginPath(); pen.arc(90 + (x1 > x0 ? (a - x0) / (x1 - x0) : 0.5) * 750 + wide * noise(), 268 - (y1 > y0 ? (b - y0) / (y1 - y0) : 0.5) * 225 + high * noise(), 3, 0, 7); pen.fill(); }
  pen.globalAlpha = 1; pen.fillStyle = style.getPropertyValue("--soft"); pen.font = "13px system-ui";
  const write = (text, x, y) => pen.fillText(short(text, 3), x, y);
  if (pairs.length) { pen.textAlign = "center"; write(x0, x1 > x0 ? 90 : 465, 314); if (x1 > x0) write(x1, 840, 314); pen.textAlign = "left"; write(y0, 2, y1 > y0 ? 272 : 160); if (y1 > y0) write(y1, 2, 47); }
  document.getElementById("scatter-caption").textContent = pairs.length ? `${y} against ${x} for ${count(pairs.length)} rollouts, with small random offsets` : "No rollout has both values.";
}
function showcase() {
  const place = document.getElementById("showcase"), own = columns[file];
  if (!place) return;
  if (!runs[file].showcase.length) return place.replaceChildren(ofFile() || "", soft("The rewards are equal within every group, so there is no best and no worst rollout."));
  place.replaceChildren(el("h3", { text: "Groups with the largest range of rewards" }), ofFile() || "", ...runs[file].showcase.map(([group, best, worst]) =>
    el("details", { class: "group", ontoggle: event => sides(event, [[file, best, `best: ${own.id[best]}`], [file, worst, `worst: ${own.id[worst]}`]]) },
      el("summary", { text: `${own.question[group] || own.key[group] || own.id[best]} – ${short(own.reward[best], 3)} against ${short(own.reward[worst], 3)}` }), el("div", { class: "sides" }))));
}
const FILTERS = {
  all: () => true, "correct": (own, i) => own.correct[i] === 1, "incorrect": (own, i) => own.correct[i] !== null && own.correct[i] < 1,
  "abstention or refusal": (own, i) => own.refused[i] === 1, "no citation": (own, i) => own.cites[i] === 0, "cut at the length limit": (own, i) => own.cut[i] === 1,
  "no search": (own, i) => own.searches[i] === 0, "duplicate query": (own, i) => own.repeated[i] > 0, "malformed turn": (own, i) => own.malformed[i] > 0,
  "wrong format": (own, i) => own.parts.format && own.parts.format[i] < 1, "unscored": (own, i) => own.reward[i] === null, "with text in this page": (own, i) => own.block[i] !== null,
};
const ORDERS = {
  "order of the file": null, "highest reward": (own, i) => -(own.reward[i] ?? -Infinity), "lowest reward": (own, i) => own.reward[i] ?? Infinity,
  "highest advantage": (own, i) => -(own.advantage[i] ?? -1e9), "lowest advantage": (own, i) => own.advantage[i] ?? 1e9, "longest": (own, i) => -own.words[i], "shortest": (own, i) => own.words[i],
  "most searches": (own, i) => -(own.searches[i] ?? -1),
};
function rollouts() {
  const number = (id, text) => el("label", {}, text, el("input", { id, type: "number", step: "any", oninput: filter }));
  const { rows, steps } = stats(), texts = runs[file].texts;
  return [ofFile(), el("div", { class: "controls", role: "search" },
    el("label", {}, "search id, question, answer", el("input", { id: "search", type: "search", oninput: filter })),
    el("label", {}, "show", el("select", { id: "look", onchange: filter }, ...options(FILTERS))),
    el("label", {}, "order", el("select", { id: "order", onchange: filter }, ...options(ORDERS))),
    number("least", "reward from"), number("most", "to"), steps.length ? number("step", "step") : null),
    el("p", { class: "soft", id: "found", role: "status", text: "…" }), el("div", { id: "table" }),
    el("div", { class: "controls" }, el("button", { id: "back", type: "button", text: "← previous", onclick: () => turn(-1) }), el("button", { id: "next", type: "button", text: "next →", onclick: () => turn(1) }), el("span", { class: "soft", id: "where" })),
    texts < rows ? soft(`To limit its size, this page contains the texts of ${count(texts)} of ${count(rows)} rollouts. The numbers include all rollouts. \`rag-rewards explain\` shows the text of each.`) : null];
}
function filter() {
  if (!columns) return;
  const own = columns[file], words = value("search").toLowerCase().split(/\s+/).filter(Boolean), look = FILTERS[value("look")];
  const [least, most, step] = ["least", "most", "step"].map(id => value(id) === "" ? null : +value(id));
  const between = reward => (least === null || (reward !== null && reward >= least)) && (most === null || (reward !== null && reward <= most));
  chosen = own.id.map((_, i) => i).filter(i => look(own, i) && between(own.reward[i]) && (step === null || own.step[i] === step) && words.every(word => search[file][i].includes(word)));
  const key = ORDERS[value("order")];
  if (key) { const keys = new Map(chosen.map(i => [i, key(own, i)])); chosen.sort((a, b) => keys.get(a) === keys.get(b) ? a - b : keys.get(a) - keys.get(b)); }
  at = 0;
  show();
}
function turn(way) { at = Math.min(Math.max(at + way * PAGE, 0), Math.max(chosen.length - 1, 0)); at -= at % PAGE; show(); }
function show() {
  const own = columns[file], parts = Object.keys(own.parts), hasTurns = stats().turns;
  const rows = chosen.slice(at, at + PAGE).map(i => el("tr", { onclick: () => open(i) },
    el("td", {}, el("button", { type: "button", text: own.id[i], onclick: event => { event.stopPropagation(); open(i); } })),
    cell(short(own.reward[i]), "number"), cell(own.answer[i]), cell(own.question[own.group[i]], "wide"), hasTurns ? cell(short(own.searches[i]), "number wide") : null, ...parts.map(name => cell(short(own.parts[name][i], 3), "number wide"))));
  const element = table(["rollout", "reward", "answer", "question", ...(hasTurns ? ["searches"] : []), ...parts], rows, "rollouts");
  element.querySelectorAll("th").forEach((head, i) => { if (i > 2) head.className = "wide"; });
  document.getElementById("table").replaceChildren(chosen.length ? element : soft(own.id.length ? "No rollout matches the filters." : "The file has no rollouts."));
  document.getElementById("found").textContent = `${count(chosen.length)} of ${count(own.id.length)} rollouts`;
  document.getElementById("where").textContent = chosen.length ? `${count(at + 1)} to ${count(Math.min(at + PAGE, chosen.length))}` : "";
  document.getElementById("back").disabled = at === 0;
  document.getElementById("next").disabled = at + PAGE >= chosen.length;
}
async function rollout(k, i, folded) {
  const own = columns[k], name = `block-${k}-${own.block[i]}`;
  if (own.block[i] === null) return numbers(own, i);
  if (!blocks.has(name)) blocks.set(name, unpack(name));
  const block = await blocks.get(name), entry = block.rows[i], text = each => ({ ...each, text: block.texts[each.text] });
  const turns = (entry.turns || []).map(turn => turn.results ? { ...turn, results: turn.results.map(text) } : turn);
  return explanation({ ...entry, turns, passages: (entry.passages || []).map(text), equation: runs[k].equation }, folded);
}
function numbers(own, i) {
  const parts = Object.keys(own.parts).map(name => [name, own.parts[name][i]]);
  return el("article", { class: "rollout" }, soft(`To limit its size, this page does not contain the text of this rollout. Show it with: rag-rewards explain FILE --id ${own.id[i]}`),
    el("h3", { text: "Question" }), el("p", { class: "text", text: own.question[own.group[i]] }), el("h3", { text: "Answer" }), el("p", { class: "text", text: own.answer[i] || "–" }),
    table(["component", "value"], [["reward", own.reward[i]], ...parts].map(([name, value]) => el("tr", {}, cell(name), cell(short(value), "number")))));
}
async function open(i) {
  const own = columns[file], others = own.id.map((_, k) => k).filter(k => k !== i && own.group[k] === own.group[i]);
  const box = el("dialog", { "aria-label": own.id[i], onclose: () => box.remove(), onclick: event => { if (event.target === box) box.close(); } },
    el("button", { type: "button", class: "close", text: "close", onclick: () => box.close() }), el("h1", { text: own.id[i] }));
  document.body.append(box);
  box.showModal();
  box.append(await rollout(file, i));
  if (others.length) box.append(el("h3", { text: "Other rollouts of the group" }), el("p", {}, ...others.slice(0, 32).flatMap(k =>
    [el("button", { type: "button", text: `${own.id[k]} (${short(own.reward[k], 3)})`, onclick: () => { box.close(); open(k); } }), " "])));
}
function chooseFile(event) {
  file = +event.target.value;
  for (const [id, title, parts] of ofOneFile) document.getElementById(id).replaceWith(section(id, title, ...parts()));
  filter(); showcase(); scatter();
}

// --- first the sections, then the rows, which are compressed -------------------------------------
const hasTurns = runs.some(run => run.statistics.turns), ofOneFile = [["against", "Correlations of components", correlations], ["rollouts", "Rollouts", rollouts]];
const sections = [["means", "Means", means], ...(several ? [["outcomes", "Wins, ties and losses", outcomes], ["changed", "Rows that changed most", changed]] : []),
  ["distributions", "Distributions", () => charts(...data.distributions.map(distribution))], ["groups", "Groups", groups],
  ["responses", "Responses", () => [rates(k => runs[k].statistics.rates), ...charts(distribution(data.words))]],
  ...(hasTurns ? [["searches", "Searches", searches]] : []), ["training", "Changes over training", training], ...ofOneFile];
const links = sections.map(([id, text]) => el("a", { href: "#" + id, text }));
const select = several ? el("label", {}, "rollouts of ", el("select", { id: "file", onchange: chooseFile }, ...names.map((text, value) => el("option", { value, text })))) : null;
document.getElementById("page").replaceChildren(...[el("header", {}, el("h1", { text: data.title }), el("nav", { "aria-label": "sections" }, ...links), select), ...overview()].filter(Boolean),
  ...sections.map(([id, title, parts]) => section(id, title, ...parts())), soft(`rag-rewards ${data.version}`));
Promise.all(runs.map((_, k) => unpack("columns-" + k))).then(unpacked => {
  columns = unpacked;
  search = columns.map(own => own.id.map((id, i) => `${id} ${own.question[own.group[i]]} ${own.answer[i]}`.toLowerCase()));
  filter(); showChanges(); showcase(); scatter();
  document.documentElement.dataset.ready = "yes";
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", scatter);
