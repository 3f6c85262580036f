// Changes the schedule of an entry in its plan: what is meant is shown before it is saved.
import { ask, say } from "./actions.js";
import { refresh } from "./live.js";

const dialog = document.getElementById("rule");
const form = document.getElementById("rule-form");
const save = document.getElementById("rule-save");
const error = document.getElementById("rule-error");
let entry = "";
let tag = ""; // of the plan as it was read
let turn = 0;
let typing = null;

async function read() {
  const mine = (turn += 1);
  save.disabled = true;
  const to = form.elements.to.value.trim();
  const url = `/api/v1/entries/${entry}/schedule?${new URLSearchParams({ to })}`;
  const answer = await fetch(url, { cache: "no-store" }).catch(() => null);
  const told = await answer?.json().catch(() => ({}));
  if (mine !== turn) return null; // somebody typed on
  if (!answer?.ok) {
    error.textContent = told?.detail ?? "The engine does not respond.";
    return null;
  }
  tag = (answer.headers.get("etag") ?? "").replaceAll('"', "");
  error.textContent = told.then?.reason ?? "";
  show(told);
  save.disabled = !told.then || told.then.reason !== null || told.then.written === told.now.written;
  return told;
}

export function made(kind, text, name = "") {
  return Object.assign(document.createElement(kind), { textContent: text, className: name });
}

// A time of the API for people, without the offset of its zone.
export function moment(at) {
  const day = new Date(`${at.slice(0, 10)}T12:00Z`);
  const name = day.toLocaleDateString("en", { weekday: "short", timeZone: "UTC" });
  return `${name} ${at.slice(0, 19).replace("T", " ").replace(/:00$/, "")}`;
}

// The next times before and after: those that only one side has stand out.
function column(title, meaning, other, kind) {
  const side = document.createElement("section");
  const list = document.createElement("ol");
  for (const at of meaning.next) {
    const isAlone = other !== null && !other.next.includes(at);
    list.append(made("li", moment(at), isAlone ? kind : ""));
  }
  side.append(made("h3", title), made("p", meaning.words ?? meaning.reason ?? "", "reason"), list);
  return side;
}

function show({ now, then, warnings, zone }) {
  const isMeant = then !== null && then.reason === null;
  const parts = [column(`Now (${zone})`, now, isMeant ? then : null, "old")];
  if (isMeant) parts.push(column("Then", then, now, "new"));
  for (const each of warnings) parts.push(made("p", each, "finding"));
  document.getElementById("rule-preview").replaceChildren(...parts);
}

async function open(about) {
  entry = about.dataset.rule;
  form.elements.to.value = "";
  error.textContent = "";
  const told = await read();
  if (told === null) {
    say(error.textContent, true);
    return;
  }
  const place = told.file.startsWith("triggers/") ? "trigger" : `${told.file}:${told.line}`;
  document.getElementById("rule-title").textContent = `${told.title}, ${place}`;
  form.elements.to.value = told.now.written;
  dialog.showModal();
  form.elements.to.select();
}

async function change() {
  const schedule = form.elements.to.value.trim();
  const changed = async () => {
    await read();
    error.textContent = "The plan has changed since you opened it; look at the times and save again.";
  };
  const told = await ask(`/api/v1/entries/${entry}/schedule`, { schedule }, { method: "PUT", tag, changed });
  if (told === null) return;
  dialog.close();
  const where = told.commit ? `commit ${told.commit.slice(0, 12)}` : told.file;
  say(`Schedule saved: ${where}`, false, told.undo ?? null);
  await refresh();
}

export function changeRules() {
  document.addEventListener("click", (event) => {
    const about = event.target.closest("[data-rule]");
    if (about !== null) open(about);
  });
  form.addEventListener("input", () => {
    save.disabled = true; // until it is read
    clearTimeout(typing);
    typing = setTimeout(read, 200);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!save.disabled) change();
  });
  document.getElementById("rule-close").addEventListener("click", () => dialog.close());
}
