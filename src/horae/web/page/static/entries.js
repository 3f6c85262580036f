// The table of entries: rows are selected by mouse and by key, and actions are done on all of them.
import { ask, askFor, say, wanted } from "./actions.js";
import { refresh } from "./live.js";

const chosen = new Map(); // entry -> source and title
let at = null; // the number of the entry that was last in focus

function rows() {
  return [...document.querySelectorAll("#entries tr[data-entry]")];
}

export function showChosen() {
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

function pathOf(button, entry, { source, title }) {
  const { post } = wanted(button);
  const isTick = post.endsWith("/run") && source === "crew";
  return isTick ? `/api/v1/agents/${encodeURIComponent(title)}/tick` : post.replace("/-/", `/${entry}/`);
}

async function each(button, found, body = {}) {
  let done = 0;
  for (const [entry, row] of found) {
    const answer = await ask(pathOf(button, entry, row), body);
    if (answer === null) break; // the reason is shown
    done += 1;
  }
  const said = button.dataset.said.toLowerCase();
  if (done === found.length) say(`${done} ${done === 1 ? "entry" : "entries"}: ${said}`);
  await refresh();
}

// Say how many runs a backfill of the period in the fields would be.
async function preview(form) {
  const body = Object.fromEntries(new FormData(form));
  if (!body.from || !body.to) return;
  let count = 0;
  for (const [entry] of targets()) {
    const answer = await ask(`/api/v1/entries/${entry}/backfill`, { ...body, dry_run: true });
    if (answer === null) return;
    count += answer.count;
  }
  const note = document.getElementById("ask-note");
  note.textContent = `${count.toLocaleString("en")} ${count === 1 ? "run" : "runs"} in this period`;
}

async function act(what, button) {
  const found = targets();
  if (what === "none") {
    chosen.clear();
    showChosen();
  } else if (found.length === 0) say("Select an entry first: j and k move, x selects.", true);
  else {
    const { asks } = wanted(button);
    const given = asks.length > 0 ? await askFor(asks, `${button.value} the selected entries`) : {};
    if (given !== null) await each(button, found, given);
  }
}

export function listEntries() {
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.closest("#ask") !== null) preview(box.form);
    if (box.id === "choose-all") for (const row of rows()) choose(row, box.checked);
    const row = box.closest("tr[data-entry]");
    if (row !== null) choose(row, box.checked);
    if (box.closest("#entries") !== null) showChosen();
  });
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr[data-entry]");
    if (row !== null) at = row.dataset.entry;
  });
  document.addEventListener("click", (event) => {
    const about = event.target.closest("[data-bulk]");
    if (about !== null) act(about.dataset.bulk, about.querySelector("button"));
  });
}
