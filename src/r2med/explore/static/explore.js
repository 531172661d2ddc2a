// What the pages do beyond links and forms. Everything works without it.
"use strict";

// Search narrows the table while one types; sending the form makes it part of the address.
const search = document.querySelector("[data-search]");
if (search) {
  const rows = [...document.querySelectorAll("tr[data-system], tr[data-find]")];
  const hint = document.querySelector("[data-search-hint]");
  search.addEventListener("input", () => {
    if (hint && search.dataset.below) hint.hidden = !search.value;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const name = (row.dataset.find || row.dataset.system).toLowerCase();
      row.hidden = !words.every((word) => name.includes(word));
    }
  });
}

// Choosing in a filter shows at once what it keeps.
for (const form of document.querySelectorAll("[data-filter]")) {
  form.addEventListener("change", (event) => {
    if (event.target.matches("select")) form.requestSubmit();
  });
  // Empty fields do not belong into an address.
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
  });
}
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("[data-filter] :disabled")) field.disabled = false;
});

// A comparison needs two systems or more.
for (const form of document.querySelectorAll("[data-choose]")) {
  const button = form.querySelector("button");
  const count = form.querySelector("[data-count]");
  const boxes = [...form.querySelectorAll("input[name=system]")];
  if (!button || !boxes.length) continue;
  const least = count ? count.textContent : "";
  const update = () => {
    const chosen = boxes.filter((box) => box.checked).length;
    button.disabled = chosen < 2;
    if (count) count.textContent = chosen ? `${chosen} chosen` : least;
  };
  form.addEventListener("change", update);
  addEventListener("pageshow", update);
  update();
}

// Keys of the query page: j and k walk through the queries, f folds texts, ? shows help.
const help = document.querySelector("[data-help]");
if (help) {
  const hint = document.querySelector("[data-hint]");
  if (hint) hint.hidden = false;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, dialog")) return;
    const there = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
    if (there) there.click();
    else if (event.key === "?") help.showModal();
    else if (event.key === "f") {
      const texts = [...document.querySelectorAll("details.more")];
      const open = texts.some((text) => !text.open);
      for (const text of texts) text.open = open;
    }
  });
}

// A running evaluation is followed by reading its page again; nothing is fetched from elsewhere.
const live = document.querySelector('[data-live="yes"]');
if (live) {
  const follow = async () => {
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("[data-live]");
      if (fresh) {
        live.replaceChildren(...fresh.childNodes);
        if (fresh.dataset.live !== "yes") return;
      }
    } catch { /* the server ended; the page stays as it was */ }
    setTimeout(follow, 2000);
  };
  setTimeout(follow, 2000);
}

// Columns of a table are sorted by a click on their heads; numbers from the highest down first.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  for (const head of table.querySelectorAll("th[data-sort]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    const value = (row) => {
      const text = row.cells[head.cellIndex]?.textContent.trim() ?? "";
      return head.dataset.sort === "number" ? Number(text.replace(/[^0-9.-]/g, "")) : text;
    };
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    button.addEventListener("click", () => {
      const current = head.getAttribute("aria-sort");
      const down = current ? current === "ascending" : head.dataset.sort === "number";
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const rows = [...body.rows].map((row) => [value(row), row]);
      rows.sort(([a], [b]) => sign * (typeof a === "number" ? a - b : compare(a, b)));
      body.append(...rows.map(([, row]) => row));
    });
  }
}

// What takes long to compute is loaded after the page, into a place of its size.
for (const place of document.querySelectorAll("[data-load]")) {
  const status = place.querySelector("[role=status]");
  if (location.protocol === "file:") continue;
  if (status) status.textContent = "Counting shared words …";
  fetch(place.dataset.load)
    .then((answer) => answer.text())
    .then((text) => new DOMParser().parseFromString(text, "text/html"))
    .then((page) => {
      const content = page.querySelector("[data-content]");
      const problem = page.querySelector(".answer");
      if (content) place.replaceChildren(content);
      else if (status) status.textContent = problem ? problem.textContent : "This cannot be drawn.";
    })
    .catch(() => { if (status) status.textContent = "The server did not answer."; });
}
