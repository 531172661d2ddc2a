// Light, dark, or as the system says: set before anything is drawn, remembered by the browser.
"use strict";
const THEME = "r2med-theme";
const chosen = () => {
  try { return localStorage.getItem(THEME) || ""; } catch { return ""; }
};

function show(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  const media = { light: "not all", dark: "all" }[theme] || "(prefers-color-scheme: dark)";
  for (const source of document.querySelectorAll("picture source")) source.media = media;
  for (const button of document.querySelectorAll("[data-theme-switch] button"))
    button.setAttribute("aria-pressed", String(button.value === theme));
}

show(chosen());
addEventListener("DOMContentLoaded", () => {
  const group = document.querySelector("[data-theme-switch]");
  if (!group) return;
  group.hidden = false;
  group.addEventListener("click", (event) => {
    if (!event.target.matches("button")) return;
    try { localStorage.setItem(THEME, event.target.value); } catch { /* shown, not remembered */ }
    show(event.target.value);
  });
  show(chosen());
});
// Another page of ours may have changed it.
addEventListener("storage", () => show(chosen()));
addEventListener("pageshow", () => show(chosen()));
