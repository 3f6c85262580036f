// The table of entries: rows are selected by mouse and by key, and actions are done on all of them.
import { ask, say } from "./actions.js";
import { refresh } from "./live.js";

const chosen = new Map(); // entry -> source and title
let at = null; // the number of the entry that keys act on

function rows() {
  return [...document.querySelectorAll("#entries tr[data-entry]")];
}

function show() {
  const bar = document.getElementById("bulk");
  if (bar === null) return;
  bar.hidden = chosen.size === 0;
  document.getElementById("chosen").textContent = `${chosen.size} selected`;
  for (const row of rows()) {
    const box = row.querySelector("input[type=checkbox]");
    box.checked = chosen.has(row.dataset.entry);
    row.classList.toggle("chosen", box.checked);
  }
  const all = document.getElementById("choose-all");
  all.checked = chosen.size > 0 && rows().every((row) => chosen.has(row.dataset.entry));
}

function choose(row, is) {
  const { entry, source, title } = row.dataset;
  if (is) chosen.set(entry, { source, title });
  else chosen.delete(entry);
}

function targets() {
  if (chosen.size > 0) return [...chosen];
  const row = at === null ? null : document.getElementById(`e${at}`);
  return row === null ? [] : [[at, row.dataset]];
}

function pathOf(what, entry, { source, title }) {
  if (what === "run" && source === "crew") return `/api/v1/agents/${encodeURIComponent(title)}/tick`;
  return `/api/v1/entries/${entry}/${what}`;
}

async function each(what, body = {}) {
  const words = { run: "run requested", pause: "paused", resume: "resumed", backfill: "backfilled" };
  const found = targets();
  let done = 0;
  for (const [entry, row] of found) {
    const headers = what === "run" ? { "Idempotency-Key": `${Date.now()}-${Math.random()}` } : {};
    const answer = await ask(pathOf(what, entry, row), body, { headers });
    if (answer === null) break; // the reason is shown
    done += 1;
  }
  if (done === found.length) say(`${done} ${done === 1 ? "entry" : "entries"}: ${words[what]}`);
  await refresh();
}

function asked(name, then) {
  const dialog = document.getElementById(`bulk-${name}`);
  dialog.returnValue = "";
  dialog.addEventListener(
    "close",
    () => {
      const form = new FormData(dialog.querySelector("form"));
      if (dialog.returnValue === "ok") then(Object.fromEntries(form));
    },
    { once: true },
  );
  dialog.showModal();
}

async function preview() {
  const dialog = document.getElementById("bulk-backfill");
  const body = Object.fromEntries(new FormData(dialog.querySelector("form")));
  const words = document.getElementById("bulk-preview");
  if (!body.from || !body.to) return;
  let count = 0;
  for (const [entry, row] of targets()) {
    const answer = await ask(pathOf("backfill", entry, row), { ...body, dry_run: true });
    if (answer === null) return;
    count += answer.count;
  }
  words.textContent = `${count.toLocaleString("en")} ${count === 1 ? "run" : "runs"} in this period`;
}

export function actOnEntries(what) {
  if (what === "none") {
    chosen.clear();
    show();
    return;
  }
  if (targets().length === 0) say("Select an entry first: j and k move, x selects.", true);
  else if (what === "pause" || what === "backfill") asked(what, (body) => each(what, body));
  else each(what);
}

export function moveInEntries(step) {
  const known = rows();
  const place = known.findIndex((row) => row.dataset.entry === at);
  const next = known[Math.min(known.length - 1, Math.max(0, place + step))];
  if (next === undefined) return;
  at = next.dataset.entry;
  next.querySelector("a.title").focus();
}

export function chooseEntry() {
  const row = at === null ? null : document.getElementById(`e${at}`);
  if (row !== null) choose(row, !chosen.has(at));
  show();
}

export function hasEntries() {
  return document.getElementById("entries") !== null;
}

export function showChosen() {
  if (hasEntries()) show();
}

export function listEntries() {
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.closest("#bulk-backfill") !== null) preview();
    if (box.id === "choose-all") for (const row of rows()) choose(row, box.checked);
    const row = box.closest("tr[data-entry]");
    if (row !== null) choose(row, box.checked);
    if (box.closest("#entries") !== null) show();
  });
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr[data-entry]");
    if (row !== null) at = row.dataset.entry;
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-bulk]");
    if (button !== null) actOnEntries(button.dataset.bulk);
  });
}
