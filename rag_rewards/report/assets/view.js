"use strict";
// Functions of both pages. Text of rows is assigned to textContent, never parsed as HTML.
const el = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
};
const short = (value, digits = 4) =>
  value === null || value === undefined ? "–" : Number.isInteger(value) ? String(value) : String(+value.toPrecision(digits));
const signed = value => (value > 0 ? "+" : value < 0 ? "−" : "") + short(Math.abs(value), 3);
const percent = value => value === null || value === undefined ? "–" : (100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0) + "%";
const unpack = async id => {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), char => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
};
const table = (heads, rows, kind) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": kind || "table" }, el("table", { class: kind },
  el("thead", {}, el("tr", {}, ...heads.map(text => el("th", { scope: "col", text })))),
  el("tbody", {}, ...rows)));
const cell = (text, kind, attributes = {}) => el("td", { class: kind, text, ...attributes });

const FULL = 2; // nats at which a word has the full color
const shade = (node, value) => {
  node.classList.remove("more", "less");
  if (node.title.endsWith("from the documents")) node.title = "";
  if (value === null || value === undefined || Math.abs(value) < 0.05) return;
  node.classList.add(value > 0 ? "more" : "less");
  node.style.setProperty("--share", Math.round(15 + 85 * Math.min(Math.abs(value) / FULL, 1)) + "%");
  node.title = signed(value) + " nats from the documents";
};
function segment(each, names) {
  const label = each.c && each.c.find(name => names.has(name));
  const node = label === undefined ? el("span", { class: each.k || "", text: each.t })
    : el("a", { class: "cite", href: "#" + names.get(label), text: each.t });
  if (each.k === "cite" && label === undefined) node.title = "the row has no such document";
  shade(node, each.v);
  return node;
}
let explanations = 0;
function explanation(data, folded = false) {
  const mark = "d" + ++explanations + "-";
  const passages = data.passages || [];
  const names = new Map(passages.map((each, i) => [each.label, mark + i]));
  const facts = [["reward", data.reward === null ? "unscored" : short(data.reward)]];
  if (data.advantage !== undefined) facts.push(["advantage", signed(data.advantage)]);
  if (data.correct !== undefined) facts.push(["correct", short(data.correct)]);
  if (data.step !== undefined) facts.push(["step", short(data.step)]);
  const box = el("article", { class: "rollout" },
    el("div", { class: "facts" }, ...facts.map(([name, text]) => el("div", {}, el("b", { text }), el("span", { text: name })))),
    el("p", { class: "why", text: data.reason || "" }));
  if (data.equation) box.append(el("p", {}, el("code", { text: "reward = " + data.equation })));
  if (data.question) box.append(el("h3", { text: "Question" }), el("p", { class: "text", text: data.question }));
  if ((data.gold || []).length) box.append(el("h3", { text: "Gold answer" }), ...data.gold.map(all => el("p", { class: "text", text: all.join(" | ") })));
  const segments = data.segments || [];
  const turns = data.turns || [];
  if (turns.length) box.append(...turnSections(turns, data));
  if (!turns.length || segments.some(each => each.v !== undefined && each.v !== null)) box.append(el("h3", { text: turns.length ? "Last turn" : "Response" }), segments.length
    ? el("p", { class: "response" }, ...segments.map(each => segment(each, names)))
    : el("p", { class: "soft", text: "The response is empty." }));
  const shades = Object.entries(data.shades || {}).filter(([, values]) => values.length === segments.length);
  if (shades.length > 1) box.append(colorBy(box.querySelector(".response"), segments, shades));
  if (segments.some(each => each.v !== undefined && each.v !== null)) {
    const more = el("span", { text: "green" }), less = el("span", { text: "red" });
    shade(more, FULL); shade(less, -FULL); more.title = less.title = "";
    box.append(el("p", { class: "soft" }, more, ": more likely with the documents, ", less, `: less likely; full color at ${FULL} nats; ${data.tokens}`));
  }
  for (const note of data.notes || []) box.append(el("p", { class: "soft", text: note }));
  if ((data.parts || []).length) box.append(el("h3", { text: "Components" }), table(["component", "value", "reason", "how to increase it"],
    data.parts.map(part => el("tr", {}, cell(part.name), cell(short(part.value), "number"), cell(part.why || ""), cell(part.change || ""))), "parts"));
  if ((data.changes || []).length) box.append(el("h3", { text: "Variants of the response" }), table(["variant", "reward", "change"],
    data.changes.map(each => el("tr", { title: each.response }, cell(each.what), cell(short(each.reward), "number"), cell(signed(each.reward - data.reward), "number")))));
  if (passages.length) {
    const largest = Math.max(...passages.map(each => Math.abs(each.effect ?? 0)), 1e-9);
    const hasEffects = passages.some(each => each.effect !== undefined && each.effect !== null);
    const order = passages.map((each, i) => [each, i]);
    if (hasEffects) order.sort((a, b) => (b[0].effect ?? -1e9) - (a[0].effect ?? -1e9));
    const title = hasEffects ? "Documents by their contribution" : "Documents", sections = order.map(([each, i]) => passage(each, mark + i, largest));
    box.append(...folded ? [el("details", {}, el("summary", { text: title }), ...sections)] : [el("h3", { text: title }), ...sections]);
  } else if (!turns.length) box.append(el("p", { class: "soft", text: "The row has no documents." }));
  if (data.signature) box.append(el("p", { class: "soft" }, el("code", { text: data.signature })));
  return box;
}
function turnSections(turns, data) {
  const searches = `${data.searches} ${data.searches === 1 ? "search" : "searches"}`;
  const sections = [el("h3", {}, "Turns ", el("span", { class: "soft", text: `dialect ${data.dialect}, ${searches}` }))];
  let previous = 0;
  for (const each of turns) {
    if (each.number > previous + 1) sections.push(el("p", { class: "soft", text: `… ${(each.number - previous - 1).toLocaleString()} turns …` }));
    previous = each.number;
    sections.push(turnSection(each));
  }
  return sections;
}
function turnSection(each) {
  const facts = Object.entries(each.components || {}).map(([name, value]) => el("span", { class: "soft", text: `${name} ${short(value, 3)}` }));
  const reward = each.reward === undefined || each.reward === null ? null : el("span", { class: "number", text: "reward " + signed(each.reward) });
  const parts = [el("div", { class: "head" }, el("b", { text: "Turn " + each.number }), reward, ...facts), el("p", { class: "response" }, ...tagged(each.text))];
  (each.queries || []).forEach((query, i) => parts.push(el("p", { class: "query" }, el("b", { text: "Query " }), query, (each.repeated || [])[i] ? el("span", { class: "warn", text: " repeats an earlier query" }) : null)));
  for (const fault of each.malformed || []) parts.push(el("p", { class: "bad" }, el("b", { text: "Malformed " }), fault));
  const results = each.results || [];
  if (!results.length && (each.queries || []).length) parts.push(el("p", { class: "warn", text: each.results ? "The search found no document." : "The environment returned no results." }));
  for (const result of results) parts.push(el("p", { class: (result.marks || []).length ? "result marked" : "result" },
    el("b", { text: `${result.label ? `[${result.label}] ` : ""}${result.title || ""} ` }), el("span", { class: "marks", text: (result.marks || []).join(", ") + " " }), result.text));
  if (each.count > results.length) parts.push(el("p", { class: "soft", text: `… ${(each.count - results.length).toLocaleString()} more documents` }));
  if (each.observation && !results.length) parts.push(el("p", { class: "soft", text: "Observation: " + each.observation }));
  return el("section", { class: "turn", "aria-label": "turn " + each.number }, ...parts);
}
function tagged(text) {
  return (text || "").split(/(<\/?\w{1,20}>|<\|\w{1,30}\|>)/).map((piece, i) => el("span", { class: i % 2 ? "tag" : "", text: piece }));
}
function colorBy(response, segments, shades) {
  const choose = (button, values) => () => {
    [...response.children].forEach((node, i) => shade(node, values[i]));
    for (const other of button.parentElement.querySelectorAll("button")) other.setAttribute("aria-pressed", other === button);
  };
  const box = el("p", { class: "shades soft" }, "color by ");
  for (const [name, values] of [["the reward", segments.map(each => each.v)], ...shades.map(([label, values]) => ["document " + label, values])]) {
    const button = el("button", { type: "button", text: name, "aria-pressed": String(name === "the reward") });
    button.addEventListener("click", choose(button, values));
    box.append(button, " ");
  }
  return box;
}
function passage(each, id, largest) {
  const marks = [each.supporting ? "supporting" : "", each.cited ? "cited" : ""].filter(Boolean).join(", ");
  const head = el("div", { class: "head" }, el("b", { text: `[${each.label}] ${each.title || ""}` }), el("span", { class: "soft", text: marks }));
  if (each.effect !== undefined && each.effect !== null) {
    const bar = el("span", { class: each.effect < 0 ? "bar below" : "bar" });
    bar.style.width = Math.max(100 * Math.abs(each.effect) / largest, 0.5) + "%";
    head.append(el("span", { class: "number", text: signed(each.effect) + " nats" }), el("span", { class: "track" }, bar));
  }
  return el("section", { class: each.supporting ? "passage supporting" : "passage", id, tabindex: "-1" }, head, el("p", { text: each.text }));
}
