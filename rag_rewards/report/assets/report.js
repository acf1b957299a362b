const data = JSON.parse(document.getElementById("data").textContent);
const stats = data.statistics;

function overview() {
  const reward = stats.distributions[0], signal = stats.signals[0], correct = stats.distributions.find(each => each.name === "correct");
  const parts = [el("div", { class: "facts" },
    fact("rollouts", stats.rows.toLocaleString()), fact("groups", data.groups.toLocaleString()),
    fact("mean reward", short(reward && reward.mean)), correct && correct.n ? fact("correct", percent(correct.mean)) : null,
    fact("groups without signal", signal ? percent(signal.dead) : "–"))];
  const notes = [...stats.alarms.map(each => [`drift: ${each.name}: ${each.message}`, "bad"]), ...stats.notes.map(text => [text, ""])];
  if (data.failed) notes.push([`${data.failed.toLocaleString()} rows are in error and not shown`, "bad"], ...data.faults.slice(0, 5).map(([row, text]) => [`${row}: ${text}`, "soft"]));
  if (notes.length) parts.push(notesList(notes));
  if (data.equation) parts.push(el("p", {}, el("code", { text: "reward = " + data.equation })));
  return parts;
}
function against() {
  const names = stats.names;
  if (names.length < 2) return [el("p", { class: "soft", text: "There is only one value per rollout, so there is nothing to compare." })];
  const heads = ["", ...names];
  const rows = names.map((name, i) => el("tr", {}, el("th", { scope: "row", text: name }), ...names.map((_, j) => {
    const value = stats.matrix[i][j], node = el("td", { class: "heat", text: value === null ? "–" : (Math.abs(value) < 0.005 ? 0 : value).toFixed(2) });
    if (value === null) node.title = "one of the two is constant";
    else if (i !== j && Math.abs(value) >= 0.05) { node.classList.add(value > 0 ? "more" : "less"); node.style.setProperty("--share", Math.round(80 * Math.abs(value)) + "%"); }
    return node;
  })));
  const varies = Math.max(1, names.findIndex((_, i) => i > 0 && stats.distributions[i].low < stats.distributions[i].high));
  const pick = (id, chosen) => el("select", { id, onchange: scatter }, ...names.map((name, i) => el("option", { value: i, text: name, selected: i === chosen })));
  return [table(heads, rows, "correlations"), el("p", { class: "soft", text: "Pearson correlation over all rollouts; – if one of the two is constant." }),
    el("div", { class: "controls" }, el("label", {}, "horizontal axis", pick("across", varies)), el("label", {}, "vertical axis", pick("up", 0))),
    el("figure", { class: "chart" }, el("canvas", { id: "scatter", width: 900, height: 320, role: "img", "aria-label": "scatter plot of two values" }), el("figcaption", { id: "scatter-caption", class: "soft" }))];
}
const column = name => name === "reward" ? columns.reward : name === "correct" ? columns.correct : columns.parts[name];
function scatter() {
  const board = document.getElementById("scatter");
  if (!board || !columns) return;
  const [x, y] = ["across", "up"].map(id => stats.names[document.getElementById(id).value]);
  const xs = column(x), ys = column(y), pairs = [];
  for (let i = 0; i < xs.length; i++) if (xs[i] !== null && ys[i] !== null) pairs.push([xs[i], ys[i]]);
  const pen = board.getContext("2d"), style = getComputedStyle(document.documentElement);
  const range = k => { let low = Infinity, high = -Infinity; for (const pair of pairs) { low = Math.min(low, pair[k]); high = Math.max(high, pair[k]); } return [low, high]; };
  const [x0, x1] = range(0), [y0, y1] = range(1);
  const [wide, high] = [0, 1].map(k => new Set(pairs.map(pair => pair[k])).size <= 7 ? [90, 44][k] : 8);
  pen.clearRect(0, 0, 900, 320);
  pen.fillStyle = style.getPropertyValue("--bar");
  pen.globalAlpha = Math.max(0.04, Math.min(0.5, 300 / pairs.length));
  let seed = 7; // reproducible offsets, so that equal pairs do not hide each other
  const noise = () => (seed = (seed * 16807) % 2147483647) / 2147483647 - 0.5;
  for (const [a, b] of pairs) { pen.beginPath(); pen.arc(90 + (x1 > x0 ? (a - x0) / (x1 - x0) : 0.5) * 750 + wide * noise(), 268 - (y1 > y0 ? (b - y0) / (y1 - y0) : 0.5) * 225 + high * noise(), 3, 0, 7); pen.fill(); }
  pen.globalAlpha = 1; pen.fillStyle = style.getPropertyValue("--soft"); pen.font = "13px system-ui";
  if (pairs.length) { pen.textAlign = "center"; pen.fillText(short(x0, 3), x1 > x0 ? 90 : 465, 314); if (x1 > x0) pen.fillText(short(x1, 3), 840, 314); pen.textAlign = "left"; pen.fillText(short(y0, 3), 2, y1 > y0 ? 272 : 160); if (y1 > y0) pen.fillText(short(y1, 3), 2, 47); }
  document.getElementById("scatter-caption").textContent = pairs.length ? `${y} against ${x} for ${pairs.length.toLocaleString()} rollouts, with small random offsets` : "No rollout has both values.";
}
function groups() {
  const sizes = Object.entries(stats.sizes).map(([size, n]) => `${n.toLocaleString()} of size ${size}`);
  const parts = [el("p", { class: "soft", text: sizes.length ? `Number of groups by size: ${sizes.slice(0, 12).join(", ")}${sizes.length > 12 ? ", …" : ""}.` : "There are no groups." })];
  const live = stats.signals.filter(each => each.dead !== null);
  if (!live.length) return [...parts, el("p", { class: "soft", text: "No group has two scored rollouts, so the spread within groups is undefined." })];
  parts.push(el("div", { class: "charts" }, distribution(stats.spreads)), table(["", "groups without spread", "mean standard deviation"],
    live.map(each => el("tr", {}, cell(each.name), cell(percent(each.dead), each.dead > 0.5 ? "number bad" : "number"), cell(short(each.spread, 3), "number"))), "signal"));
  if (!data.showcase.length) return [...parts, el("p", { class: "soft", text: "The rewards are equal within every group, so there is no best and no worst rollout." })];
  parts.push(el("h3", { text: "Groups with the largest range of rewards" }), el("div", { id: "showcase" }, el("p", { class: "soft", text: "…" })));
  return parts;
}
function showcase() {
  const place = document.getElementById("showcase");
  if (!place) return;
  place.replaceChildren(...data.showcase.map(([group, best, worst]) => el("details", { class: "group", ontoggle: sides },
    el("summary", { text: `${columns.question[group] || columns.key[group] || columns.id[best]} – ${short(columns.reward[best], 3)} against ${short(columns.reward[worst], 3)}` }),
    el("div", { class: "sides", "data-best": best, "data-worst": worst }))));
}
async function sides(event) {
  const place = event.target.querySelector(".sides");
  if (!event.target.open || place.childElementCount) return;
  const both = await Promise.all([["best", place.dataset.best], ["worst", place.dataset.worst]].map(async ([name, i]) => el("div", {}, el("h3", { text: `${name}: ${columns.id[i]}` }), await rollout(+i, true))));
  place.replaceChildren(...both);
}
function responses() {
  const shares = Object.entries(stats.rates).filter(([, value]) => value !== null);
  return [el("div", { class: "facts" }, ...shares.map(([name, value]) => fact(name, name.endsWith("per response") ? short(value, 3) : percent(value)))), el("div", { class: "charts" }, distribution(stats.words))];
}
function searches() {
  const turns = stats.turns, value = name => name.endsWith("per rollout") ? short(turns.rates[name], 3) : percent(turns.rates[name]);
  const parts = [el("div", { class: "facts" }, ...Object.keys(turns.rates).map(name => fact(name, value(name)))), el("div", { class: "charts" }, distribution(stats.searches))];
  parts.push(turns.malformed.length ? table(["malformed turns", "turns", "meaning"], turns.malformed.map(each => el("tr", {}, cell(each.name), cell(each.turns.toLocaleString()), cell(each.meaning))), "malformed")
    : el("p", { class: "soft", text: "No turn is malformed." }));
  const credit = turns.credit.filter(each => each.dead !== null);
  if (credit.length) parts.push(table(["method of credit", "groups without signal"], credit.map(each => el("tr", {}, cell(each.method), cell(percent(each.dead), each.dead > 0.5 ? "number bad" : "number"))), "signal"),
    el("p", { class: "soft", text: "A group has no signal if the advantage of every turn is 0. Groups of one rollout are left out." }));
  return parts;
}
function training() {
  if (!stats.steps.length) return [el("p", { class: "soft", text: "This section requires rows with at least two different values of `step`." })];
  const names = Object.keys(stats.steps[0].values);
  const charts = names.map(name => line(name, stats.steps.map(each => [each.step, each.values[name]]))).filter(Boolean);
  const alarms = stats.alarms.length ? el("ul", { class: "notes" }, ...stats.alarms.map(each => el("li", {}, el("b", { class: "bad", text: each.name + ": " }), each.message)))
    : el("p", { class: "soft", text: stats.steps.length < 4 ? "Drift is detected from four steps on." : "No drift between the first and the last quarter of the steps." });
  return [alarms, el("div", { class: "charts" }, ...charts)];
}

// --- the table -----------------------------------------------------------------------------------
const PAGE = 50;
let columns = null, search = [], chosen = [], at = 0;
const blocks = new Map();
const FILTERS = {
  all: () => true, "correct": i => columns.correct[i] === 1, "incorrect": i => columns.correct[i] !== null && columns.correct[i] < 1,
  "abstention or refusal": i => columns.refused[i] === 1, "no citation": i => columns.cites[i] === 0, "cut at the length limit": i => columns.cut[i] === 1,
  ...(stats.turns ? { "no search": i => columns.searches[i] === 0, "duplicate query": i => columns.repeated[i] > 0, "malformed turn": i => columns.malformed[i] > 0 } : {}),
  "wrong format": i => columns.parts.format && columns.parts.format[i] < 1, "unscored": i => columns.reward[i] === null, "with text in this page": i => columns.block[i] !== null,
};
const ORDERS = {
  "order of the file": null, "highest reward": i => columns.reward[i] === null ? Infinity : -columns.reward[i], "lowest reward": i => columns.reward[i] ?? Infinity,
  "highest advantage": i => -(columns.advantage[i] ?? -1e9), "lowest advantage": i => columns.advantage[i] ?? 1e9, "longest": i => -columns.words[i], "shortest": i => columns.words[i],
  ...(stats.turns ? { "most searches": i => -(columns.searches[i] ?? -1) } : {}),
};
function rollouts() {
  const options = all => Object.keys(all).map(text => el("option", { text }));
  const number = (id, text) => el("label", {}, text, el("input", { id, type: "number", step: "any", oninput: filter }));
  return [el("div", { class: "controls", role: "search" },
    el("label", {}, "search id, question, answer", el("input", { id: "search", type: "search", oninput: filter })),
    el("label", {}, "show", el("select", { id: "look", onchange: filter }, ...options(FILTERS))),
    el("label", {}, "order", el("select", { id: "order", onchange: filter }, ...options(ORDERS))),
    number("least", "reward from"), number("most", "to"),
    stats.steps.length ? number("step", "step") : null),
    el("p", { class: "soft", id: "found", role: "status", text: "…" }), el("div", { id: "table" }),
    el("div", { class: "controls" }, el("button", { id: "back", type: "button", text: "← previous", onclick: () => turn(-1) }), el("button", { id: "next", type: "button", text: "next →", onclick: () => turn(1) }), el("span", { class: "soft", id: "where" })),
    data.texts < stats.rows ? el("p", { class: "soft", text: `To limit its size, this page contains the texts of ${data.texts.toLocaleString()} of ${stats.rows.toLocaleString()} rollouts. The numbers include all rollouts. \`rag-rewards explain\` shows the text of each.` }) : null];
}
const value = id => { const node = document.getElementById(id); return node ? node.value : ""; };
function filter() {
  if (!columns) return;
  const words = value("search").toLowerCase().split(/\s+/).filter(Boolean), look = FILTERS[value("look")];
  const [least, most, step] = ["least", "most", "step"].map(id => value(id) === "" ? null : +value(id));
  chosen = [];
  for (let i = 0; i < columns.id.length; i++) {
    const reward = columns.reward[i];
    if (!look(i) || (least !== null && !(reward !== null && reward >= least)) || (most !== null && !(reward !== null && reward <= most)) || (step !== null && columns.step[i] !== step)) continue;
    if (words.every(word => search[i].includes(word))) chosen.push(i);
  }
  const key = ORDERS[value("order")];
  if (key) { const keys = new Map(chosen.map(i => [i, key(i)])); chosen.sort((a, b) => keys.get(a) - keys.get(b) || a - b); }
  at = 0;
  show();
}
function turn(way) { at = Math.min(Math.max(at + way * PAGE, 0), Math.max(chosen.length - 1, 0)); at -= at % PAGE; show(); }
function show() {
  const parts = Object.keys(columns.parts), heads = ["rollout", "reward", "answer", "question", ...(stats.turns ? ["searches"] : []), ...parts];
  const rows = chosen.slice(at, at + PAGE).map(i => el("tr", { onclick: () => open(i) },
    el("td", {}, el("button", { type: "button", text: columns.id[i], onclick: event => { event.stopPropagation(); open(i); } })),
    cell(short(columns.reward[i]), "number"), cell(columns.answer[i]), cell(columns.question[columns.group[i]], "wide"), stats.turns ? cell(short(columns.searches[i]), "number wide") : null, ...parts.map(name => cell(short(columns.parts[name][i], 3), "number wide"))));
  const element = table(heads, rows, "rollouts");
  element.querySelectorAll("th").forEach((head, i) => { if (i > 2) head.className = "wide"; });
  document.getElementById("table").replaceChildren(chosen.length ? element : el("p", { class: "soft", text: columns.id.length ? "No rollout matches the filters." : "The file has no rollouts." }));
  document.getElementById("found").textContent = `${chosen.length.toLocaleString()} of ${columns.id.length.toLocaleString()} rollouts`;
  document.getElementById("where").textContent = chosen.length ? `${(at + 1).toLocaleString()} to ${Math.min(at + PAGE, chosen.length).toLocaleString()}` : "";
  document.getElementById("back").disabled = at === 0;
  document.getElementById("next").disabled = at + PAGE >= chosen.length;
}
async function rollout(i, folded) {
  const place = columns.block[i];
  if (place === null) return explanationOfNumbers(i);
  if (!blocks.has(place)) blocks.set(place, unpack("block-" + place));
  return explanation({ ...restored(await blocks.get(place), i), equation: data.equation }, folded);
}
function explanationOfNumbers(i) {
  const parts = Object.keys(columns.parts).map(name => ({ name, value: columns.parts[name][i] }));
  return el("article", { class: "rollout" }, el("p", { class: "soft", text: `This page does not contain the text of this rollout. Show it with: rag-rewards explain FILE --id ${columns.id[i]}` }),
    el("h3", { text: "Question" }), el("p", { class: "text", text: columns.question[columns.group[i]] }), el("h3", { text: "Answer" }), el("p", { class: "text", text: columns.answer[i] || "–" }),
    table(["component", "value"], [{ name: "reward", value: columns.reward[i] }, ...parts].map(part => el("tr", {}, cell(part.name), cell(short(part.value), "number")))));
}
async function open(i) {
  const group = columns.group[i], others = columns.id.map((_, k) => k).filter(k => k !== i && columns.group[k] === group);
  const box = el("dialog", { "aria-label": columns.id[i], onclose: () => box.remove(), onclick: event => { if (event.target === box) box.close(); } },
    el("button", { type: "button", class: "close", text: "close", onclick: () => box.close() }), el("h1", { text: columns.id[i] }));
  document.body.append(box);
  box.showModal();
  box.append(await rollout(i));
  if (others.length) box.append(el("h3", { text: "Other rollouts of the group" }), el("p", {}, ...others.slice(0, 32).flatMap(k =>
    [el("button", { type: "button", text: `${columns.id[k]} (${short(columns.reward[k], 3)})`, onclick: () => { box.close(); open(k); } }), " "])));
}

// --- first the sections, then the table, which is compressed -------------------------------------------------------
const labels = () => [agreementTable(data.agreement, [""])];
const sections = [["distributions", "Distributions"], ["against", "Correlations of components"], ["groups", "Groups"], ["responses", "Responses"], ...(stats.turns ? [["searches", "Searches"]] : []), ...(data.agreement ? [["agreement", "Agreement with labels"]] : []), ["training", "Changes over training"], ["rollouts", "Rollouts"]];
document.getElementById("page").replaceChildren(
  header(data.title, sections),
  ...overview(),
  section("distributions", "Distributions", el("div", { class: "charts" }, ...stats.distributions.map(distribution))),
  section("against", "Correlations of components", ...against()),
  section("groups", "Groups", ...groups()),
  section("responses", "Responses", ...responses()),
  ...(stats.turns ? [section("searches", "Searches", ...searches())] : []),
  ...(data.agreement ? [section("agreement", "Agreement with labels", ...labels())] : []),
  section("training", "Changes over training", ...training()),
  section("rollouts", "Rollouts", ...rollouts()),
  el("p", { class: "soft" }, el("code", { text: data.signature || "" }), ` rag-rewards ${data.version}`));
unpack("columns").then(unpacked => {
  columns = unpacked;
  search = columns.id.map((id, i) => `${id} ${columns.question[columns.group[i]]} ${columns.answer[i]}`.toLowerCase());
  filter(); showcase(); scatter();
  document.documentElement.dataset.ready = "yes";
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", scatter);
