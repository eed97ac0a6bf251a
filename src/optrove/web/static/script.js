// "/" focuses the search, buttons copy commands, and running sweeps show their progress.
"use strict";

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const search = document.getElementById("search");
  search.focus();
  search.select();
});

async function copied(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Over plain HTTP from another machine there is no clipboard but this old one.
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    const said = button.textContent;
    try {
      await copied(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Failed";
    }
    setTimeout(() => { button.textContent = said; }, 1500);
  });
}

const EVERY_MS = 2000;

async function follow(box) {
  const bar = box.querySelector("progress");
  const words = box.querySelector("[data-live-text]");
  let answer;
  try {
    answer = await fetch(box.dataset.live, { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(answer.statusText);
  } catch {
    words.textContent = "The server does not answer.";
    setTimeout(() => follow(box), 5 * EVERY_MS);
    return;
  }
  const progress = await answer.json();
  const of = progress.planned === null ? "" : ` of ${progress.planned.toLocaleString("en")}`;
  bar.max = Math.max(progress.planned || progress.tried, 1);
  bar.value = progress.tried;
  words.textContent = `${progress.tried.toLocaleString("en")}${of} tried, ${progress.passed.toLocaleString("en")} of ${progress.ran.toLocaleString("en")} that ran passed`;
  if (progress.state === "running") {
    setTimeout(() => follow(box), EVERY_MS);
  } else {
    words.textContent += `; ${progress.state_text}`;
  }
}

for (const box of document.querySelectorAll("[data-live]")) {
  setTimeout(() => follow(box), EVERY_MS);
}

// On a narrow screen the filters would push everything else out of sight.
if (window.matchMedia("(max-width: 52rem)").matches) {
  for (const filters of document.querySelectorAll(".facets > details")) filters.open = false;
}
