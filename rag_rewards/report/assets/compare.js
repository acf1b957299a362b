const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs, names = runs.map(run => run.name), base = names[0];
const COLORS = 6; // colors of files in the style
const color = k => "run-" + k % COLORS;
const swatch = k => el("span", { class: "swatch " + color(k), "aria-hidden": "true" });
const named = k => el("td", { class: "run" }, swatch(k), names[k]);

function overview() {
  const warnings = data.notes.map(text => [text, text.startsWith("the recipes differ") ? "bad" : ""]);
  const rows = runs.map((run, k) => el("tr", {}, named(k), cell(run.rows.toLocaleString(), "number"), cell(run.groups.toLocaleString(), "number"),
    cell((run.rows - run.scored).toLocaleString(), "number"), cell(run.failed.toLocaleString(), run.failed ? "number bad" : "number"), cell(run.recipe || "unknown"), el("td", {}, el("code", { text: run.signature || "none" }), run.signatures > 1 ? ` and ${run.signatures - 1} more` : "")));
  const parts = [notesList(warnings), table(["file", "rows", "groups", "unscored", "in error", "recipe", "signature"], rows, "files")];
  if (data.settings.length) parts.push(el("h3", { text: "Differences between the signatures" }), table(["setting", ...names],
    data.settings.map(each => el("tr", {}, cell(each.name), ...each.values.map(value => cell(value === null ? "default" : value, value === null ? "soft" : "")))), "settings"));
  return parts;
}

// --- means -----------------------------------------------------------------------------------------
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
const present = values => values.filter(value => value !== null && value !== undefined);
function means() {
  const rows = [];
  for (const each of data.values) {
    const at = scaleOf(present(each.runs.flatMap(run => [run.value, run.low, run.high])));
    const changes = data.comparisons.map(comparison => comparison.differences[each.name]);
    const ends = present(changes.flatMap(change => change ? [change.difference, change.low, change.high] : [])), from = scaleOf([0, ...ends]);
    each.runs.forEach((run, k) => {
      const change = k ? changes[k - 1] : null, known = change && change.difference !== null;
      const comparable = each.name === "correct" || !k || data.comparisons[k - 1].same_recipe;
      rows.push(el("tr", { class: k ? "" : "first" }, cell(k ? "" : each.name, "value"), named(k), cell(short(run.value), "number"), cell(range(run.low, run.high), "number"),
        el("td", { class: "plot wide" }, run.value === null ? "" : whisker(run.value, run.low, run.high, at, color(k))),
        cell(known ? signed(change.difference) : "", "number"), cell(known ? range(change.low, change.high) : "", "number"),
        el("td", { class: "plot wide" }, known ? whisker(change.difference, change.low, change.high, from, color(k), true) : ""),
        known ? verdict(change, comparable) : cell(k ? (run.value === null ? "no value" : "no common rows") : "", "soft"), cell(known ? change.units.toLocaleString() : run.n.toLocaleString(), "number")));
    });
  }
  const units = data.comparisons.some(each => each.unit === "question") ? "rows or questions" : "rows";
  const element = table(["value", "file", "mean", "95% interval", "", "difference", "95% interval", "", "", units], rows, "means");
  element.querySelectorAll("th").forEach((head, i) => { if (i === 4 || i === 7) head.className = "wide"; });
  return [element, el("p", { class: "soft", text: `A difference is the mean of a file minus the mean of ${base}, over their common ${units}. Intervals are those of a bootstrap with 1,000 resamples of prompts; for differences, both files are resampled together. The intervals are not corrected for the number of values.` })];
}
function verdict(change, comparable) {
  if (!comparable) return cell("other recipe", "soft verdict");
  if (change.holds === null || change.holds === undefined) return cell("");
  return change.holds ? cell(change.difference > 0 ? "higher" : "lower", change.difference > 0 ? "good verdict" : "bad verdict") : cell("no clear difference", "soft verdict");
}

// --- rows ------------------------------------------------------------------------------------------
function bar(each) {
  const total = each.higher + each.equal + each.lower;
  const box = el("div", { class: "stack", role: "img", "aria-label": `${each.name}: ${each.higher} higher, ${each.equal} equal, ${each.lower} lower` });
  for (const [kind, count] of [["higher", each.higher], ["equal", each.equal], ["lower", each.lower]]) {
    const piece = el("span", { class: kind, title: `${kind}: ${count.toLocaleString()} (${percent(count / total)})` });
    piece.style.flexGrow = count;
    if (count) box.append(piece);
  }
  return box;
}
function outcomes() {
  const parts = [];
  data.comparisons.forEach((each, i) => {
    if (data.comparisons.length > 1) parts.push(el("h3", {}, swatch(i + 1), `${each.other} compared with ${each.base}`));
    if (!each.outcomes.length) { parts.push(el("p", { class: "soft", text: "The files have no common rows, so that rows cannot be compared." })); return; }
    parts.push(table(["value", `higher in ${each.other}`, "equal", `lower in ${each.other}`, ""], each.outcomes.filter(one => one.higher + one.equal + one.lower).map(one =>
      el("tr", {}, cell(one.name), cell(one.higher.toLocaleString(), "number"), cell(one.equal.toLocaleString(), "number"), cell(one.lower.toLocaleString(), "number"), el("td", { class: "plot" }, bar(one)))), "outcomes"));
    const both = each.differences.correct && each.differences.correct.agreement;
    if (both) parts.push(el("h3", { text: "Correct in both files" }), table(["", `correct in ${each.other}`, `incorrect in ${each.other}`], [
      el("tr", {}, cell(`correct in ${each.base}`), cell(both.both.toLocaleString(), "number"), cell(both.only_base.toLocaleString(), "number")),
      el("tr", {}, cell(`incorrect in ${each.base}`), cell(both.only_other.toLocaleString(), "number"), cell(both.neither.toLocaleString(), "number"))], "correct"));
    else if (each.differences.correct && each.differences.correct.units) parts.push(el("p", { class: "soft", text: "The values of correct are not only 0 and 1, so that there is no table of correct and incorrect rows." }));
  });
  return parts;
}
const DIRECTIONS = {
  "all changes": () => true, "higher reward": each => each.change > 0, "lower reward": each => each.change < 0,
  "more correct": each => each.correct > 0, "less correct": each => each.correct < 0,
};
const chosen = id => document.getElementById(id) ? document.getElementById(id).value : "";
function changed() {
  const other = el("label", {}, "file", el("select", { id: "other", onchange: show }, ...data.comparisons.map((each, i) => el("option", { value: i, text: each.other }))));
  return [el("div", { class: "controls" }, data.comparisons.length > 1 ? other : null, el("label", {}, "show", el("select", { id: "direction", onchange: show }, ...Object.keys(DIRECTIONS).map(text => el("option", { text }))))),
    el("p", { class: "soft", id: "found", role: "status" }), el("div", { id: "changes" })];
}
function show() {
  const i = +(chosen("other") || 0), each = data.comparisons[i], rows = each.changes.filter(DIRECTIONS[chosen("direction")]);
  const order = each.same_recipe ? "The largest change of the reward is first." : "The largest change of correct is first, because the recipes differ.";
  document.getElementById("found").textContent = each.unit !== "row" ? "The files have no common rows." : each.changed ? `${each.changed.toLocaleString()} rows changed; the list contains ${rows.length.toLocaleString()} of them. ${order}` : "The reward and correct are equal in all common rows.";
  document.getElementById("changes").replaceChildren(...rows.map(row => entry(row, i)));
}
const arrow = ([from, to]) => `${short(from, 3)} → ${short(to, 3)}`;
function entry(row, i) {
  const moved = Object.entries(row.values).filter(([name, [from, to]]) => name !== "reward" && from !== to);
  return el("details", { class: "group", ontoggle: event => open(event, row, i) }, el("summary", {},
    el("b", { text: row.id + (row.step === null ? "" : `, step ${row.step}`) }), " ", row.values.reward ? el("span", { class: "number " + (row.change > 0 ? "good" : row.change < 0 ? "bad" : "soft"), text: `reward ${arrow(row.values.reward)}` }) : null, " ",
    el("span", { class: "soft", text: moved.map(([name, pair]) => `${name} ${arrow(pair)}`).join(", ") }), row.question ? el("div", { text: row.question }) : null),
    el("div", { class: "sides" }));
}
async function open(event, row, i) {
  const place = event.target.querySelector(".sides");
  if (!event.target.open || place.childElementCount) return;
  if (row.text === null) { place.append(el("p", { class: "soft", text: `To limit its size, this page does not contain the text of this row. Show it with: rag-rewards explain FILE --id ${row.id}` })); return; }
  const block = await unpack(row.text);
  place.replaceChildren(...[0, i + 1].map((k, side) => el("div", {}, el("h3", {}, swatch(k), names[k]), explanation(restored(block, side), true))));
}

// --- charts ----------------------------------------------------------------------------------------
const BAND = 54;
function distributions(each) {
  const n = each.edges.length - (each.discrete ? 0 : 1), room = WIDTH / Math.max(n, 1), totals = each.counts.map(counts => counts.reduce((a, b) => a + b, 0));
  const shares = each.counts.map((counts, k) => counts.map(count => totals[k] ? count / totals[k] : 0)), most = Math.max(...shares.flat(), 1e-9);
  const high = runs.length * BAND, picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${high + FOOT}`, role: "img", "aria-label": `distribution of ${each.name} in each file` });
  shares.forEach((own, k) => {
    const foot = (k + 1) * BAND;
    own.forEach((share, i) => {
      const tall = Math.max(share ? 1.5 : 0, (BAND - 16) * share / most), wide = Math.min(Math.max(room - 1.5, 1), 46);
      const value = each.discrete ? short(each.edges[i], 3) : `${short(each.edges[i], 3)} to ${short(each.edges[i + 1], 3)}`;
      const piece = svg("rect", { class: "fill " + color(k), x: i * room + (room - wide) / 2, y: foot - tall, width: wide, height: tall });
      piece.append(svg("title", { text: `${names[k]}: ${value}: ${each.counts[k][i].toLocaleString()} (${percent(share)})` }));
      picture.append(piece);
      if (each.discrete && n <= 7 && share) picture.append(svg("text", { x: (i + 0.5) * room, y: foot - tall - 3, "text-anchor": "middle", text: percent(share) }));
    });
    picture.append(svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: foot, y2: foot }));
  });
  if (each.discrete && n <= 7) each.edges.forEach((edge, i) => picture.append(svg("text", { x: (i + 0.5) * room, y: high + 13, "text-anchor": "middle", text: short(edge, 3) })));
  else if (n) picture.append(svg("text", { x: 0, y: high + 13, text: short(each.low, 3) }), svg("text", { x: WIDTH, y: high + 13, "text-anchor": "end", text: short(each.high, 3) }));
  return el("figure", { class: "chart" }, el("figcaption", { text: each.name }), n ? picture : el("p", { class: "soft", text: "No row has a value." }));
}
const legend = () => el("p", { class: "legend soft" }, ...names.map((name, k) => el("span", {}, swatch(k), name)));
function rates() {
  const text = each => value => each.name.endsWith("per response") || each.name.endsWith("per rollout") ? short(value, 3) : percent(value);
  return [table(["", ...names], data.rates.map(each => el("tr", {}, cell(each.name), ...each.runs.map(value => cell(text(each)(value), "number")))), "rates")];
}
function lines(each) {
  const series = each.runs.map(points => points.filter(point => point[1] !== null && point[1] !== undefined)), all = series.flat();
  if (!series.some(points => points.length > 1)) return null;
  const xs = all.map(point => point[0]), ys = all.map(point => point[1]), [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const px = x => (x - x0) / (x1 - x0 || 1) * WIDTH, py = y => y1 === y0 ? HEIGHT / 2 : 8 + (1 - (y - y0) / (y1 - y0)) * (HEIGHT - 16);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + FOOT}`, role: "img", "aria-label": `${each.name} over training steps in each file` }, svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
    svg("text", { x: 0, y: HEIGHT + 13, text: `step ${x0}` }), svg("text", { x: WIDTH, y: HEIGHT + 13, "text-anchor": "end", text: x1 }), svg("text", { x: 2, y: 9, text: short(y1, 3) }));
  if (y1 > y0) picture.append(svg("text", { x: 2, y: HEIGHT - 4, text: short(y0, 3) }));
  series.forEach((points, k) => {
    picture.append(svg("path", { class: "line " + color(k), d: points.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)},${py(y).toFixed(1)}`).join("") }));
    for (const [x, y] of points) { const dot = svg("circle", { class: "dot " + color(k), cx: px(x), cy: py(y), r: 2.5 }); dot.append(svg("title", { text: `${names[k]}, step ${x}: ${short(y)}` })); picture.append(dot); }
  });
  return el("figure", { class: "chart" }, el("figcaption", { text: each.name }), picture);
}

const sections = [["means", "Means", means()], ["outcomes", "Wins, ties and losses", outcomes()], ["changed", "Rows that changed most", changed()],
  ["distributions", "Distributions", [legend(), el("div", { class: "charts" }, ...data.distributions.map(distributions))]], ["responses", "Responses", rates()],
  ...(data.agreement ? [["agreement", "Agreement with labels", [agreementTable(data.agreement, names)]]] : []),
  ...(data.training.length ? [["training", "Changes over training", [legend(), el("div", { class: "charts" }, ...data.training.map(lines).filter(Boolean))]]] : [])];
document.getElementById("page").replaceChildren(header(data.title, sections), ...overview().filter(Boolean),
  ...sections.map(([id, title, parts]) => section(id, title, ...parts)), el("p", { class: "soft", text: `rag-rewards ${data.version}` }));
show();
document.documentElement.dataset.ready = "yes";
