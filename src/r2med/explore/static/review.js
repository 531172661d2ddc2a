// Keys, the time a decision takes, and the text that supports it. The page works without any of it.
"use strict";
const started = performance.now();
const form = document.getElementById("decision");
const passage = document.getElementById("passage");

if (form && form.elements.seconds) {
  form.addEventListener("submit", () => {
    form.elements.seconds.value = ((performance.now() - started) / 1000).toFixed(1);
  });
}

// Shared words are marked without another request, so that a comment or a selected span stays.
const marks = document.getElementById("marks");
if (marks && form) {
  marks.addEventListener("click", (event) => {
    event.preventDefault();
    const shown = passage.classList.toggle("marked");
    form.elements.marks.value = shown ? "1" : "";
    marks.querySelector("span").textContent = shown ? "Hide" : "Mark";
  });
}

// Whoever opens the answer once gets it open on the pages that follow.
const fold = document.getElementById("answer");
if (fold) {
  try { fold.open = sessionStorage.getItem("review-answer") === "open"; } catch { /* no storage */ }
  fold.addEventListener("toggle", () => {
    try { sessionStorage.setItem("review-answer", fold.open ? "open" : ""); } catch { /* no storage */ }
  });
}

const remove = document.getElementById("span-remove");
if (remove && form) {
  remove.addEventListener("click", () => {
    form.elements.span.value = "";
    document.getSelection().removeAllRanges();
    document.getElementById("span-shown").hidden = true;
  });
}

document.addEventListener("selectionchange", () => {
  const selection = document.getSelection();
  const inside = selection.rangeCount && passage && passage.contains(selection.anchorNode) && passage.contains(selection.focusNode);
  const text = inside ? selection.toString().trim() : "";
  if (!text || !form || !form.elements.span) return;
  form.elements.span.value = text.slice(0, 2000);
  const shown = document.getElementById("span-shown");
  shown.hidden = false;
  shown.querySelector("q").textContent = text;
});

// Keys n and p select the next and the previous sentence, because text cannot be selected by keyboard.
const SENTENCE_STEPS = { n: 1, p: -1 };
let sentenceIndex = -1;

function selectSentence(step) {
  const segmenter = new Intl.Segmenter("en", { granularity: "sentence" });
  const sentences = [...segmenter.segment(passage.textContent)].filter((part) => part.segment.trim());
  if (!sentences.length) return;
  sentenceIndex = Math.min(Math.max(sentenceIndex + step, 0), sentences.length - 1);
  const { index, segment } = sentences[sentenceIndex];
  const range = document.createRange();
  range.setStart(...findOffset(index));
  range.setEnd(...findOffset(index + segment.trimEnd().length));
  document.getSelection().removeAllRanges();
  document.getSelection().addRange(range);
  const distance = range.getBoundingClientRect().top - passage.getBoundingClientRect().top;
  passage.scrollTop += distance - 4;
}

function findOffset(offset) {
  const walker = document.createTreeWalker(passage, NodeFilter.SHOW_TEXT);
  let node = walker.nextNode();
  while (node && offset > node.length) {
    offset -= node.length;
    node = walker.nextNode();
  }
  return [node, offset];
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const typing = event.target.matches("textarea, input, select");
  if (event.key === "Escape" && typing) { event.target.blur(); return; }
  if (typing) return;
  if (event.key === "c" && form) {
    event.preventDefault();
    form.querySelector("textarea").focus();
    return;
  }
  if (event.key in SENTENCE_STEPS && passage && form && form.elements.span) {
    event.preventDefault();
    selectSentence(SENTENCE_STEPS[event.key]);
    return;
  }
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (target) { event.preventDefault(); target.click(); }
});
