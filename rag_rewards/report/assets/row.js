const found = JSON.parse(document.getElementById("data").textContent);
document.getElementById("page").replaceChildren(
  el("header", {}, el("h1", { text: found.id }), el("span", { class: "soft", text: found.group && found.group !== found.question ? "group " + found.group : "" })),
  explanation(found));
