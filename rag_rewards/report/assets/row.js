const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("page").replaceChildren(
  el("header", {}, el("h1", { text: data.id }), el("span", { class: "soft", text: data.group && data.group !== data.question ? "group " + data.group : "" })),
  explanation(data));
