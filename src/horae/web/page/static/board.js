// Sets the schedule of a task, and shows what it would mean before it is saved.
import { ask, say } from "./actions.js";
import { refresh } from "./live.js";
import { made as line, moment } from "./rule.js";

const part = (id) => document.getElementById(id);
const NAMES = { cron: "schedule", timezone: "time zone", at: "scheduled for" };
let task = null;
let tag = ""; // of the task as it was read
let read = {}; // its schedule then
let meant = {}; // what the fields say, words as cron
let looking = null;
let turn = 0;

async function look(query) {
  const answer = await fetch(`/api/v1/preview?${new URLSearchParams(query)}`);
  const told = await answer.json();
  return answer.ok ? told : { error: told.detail ?? `The request failed (HTTP ${answer.status}).` };
}

// What the fields say, in words and moments; an error if they say nothing that can be kept.
async function understood({ cron, at, timezone }) {
  const zone = timezone ? { zone: timezone } : {};
  try {
    const rule = cron ? await look({ when: cron, ...zone }) : null;
    if (rule?.error) return rule;
    if (rule?.next.length === 0) return { error: "The schedule matches no date." };
    const held = at ? await look({ at, ...zone }) : null;
    return held?.error ? held : { rule, held };
  } catch {
    return { error: "The engine does not respond." };
  }
}

function fields() {
  const found = {};
  for (const [name, value] of new FormData(part("sched-form"))) {
    if (value.trim()) found[name] = value.trim();
  }
  return found;
}

async function preview() {
  const asked = fields();
  const mine = (turn += 1);
  const shown = part("sched-preview");
  part("sched-save").disabled = true;
  if (!asked.cron && !asked.at) {
    shown.replaceChildren(line("p", "Enter a schedule, a scheduled time, or both."));
    return;
  }
  const { error, rule, held } = await understood(asked);
  if (mine !== turn) return; // somebody typed on
  if (error) {
    shown.replaceChildren(line("p", error, "error"));
    return;
  }
  const parts = [];
  if (rule) {
    const list = document.createElement("ol");
    list.append(...rule.next.map((each) => line("li", moment(each))));
    parts.push(line("p", `${rule.words} (${rule.zone})`), list);
    if (rule.cron !== asked.cron) parts.unshift(line("p", `saved as ${rule.cron}`));
  }
  if (held) parts.push(line("p", `${held.words}: the task waits until then.`));
  shown.replaceChildren(...parts);
  meant = rule ? { ...asked, cron: rule.cron } : asked;
  part("sched-save").disabled = false;
}

// Read the task as it is now, with its tag; null after saying why that cannot be.
async function readTask() {
  const answer = await fetch(`/api/v1/board/tasks/${task}`, { cache: "no-store" }).catch(() => null);
  const told = await answer?.json().catch(() => ({}));
  if (!answer?.ok) {
    say(told?.detail ?? "The engine does not respond.", true);
    return null;
  }
  tag = (answer.headers.get("etag") ?? "").replaceAll('"', "");
  return {
    cron: told.cron_schedule ?? "",
    timezone: told.timezone ?? "",
    at: told.scheduled_for ?? "",
  };
}

function fill(schedule) {
  read = schedule;
  for (const name of Object.keys(NAMES)) part("sched-form").elements[name].value = schedule[name];
  part("sched-conflict").hidden = true;
  preview();
}

async function open(about) {
  task = about.dataset.schedule;
  part("sched-title").textContent = `#${task} ${about.dataset.title}`;
  const schedule = await readTask();
  if (schedule === null) return;
  fill(schedule);
  part("scheduling").showModal();
}

// Somebody saved the task since it was read: if they left its schedule alone, ours goes beside
// theirs; if not, show both, and let a person choose.
async function meet(body) {
  const before = read;
  const theirs = await readTask();
  if (theirs === null) return;
  if (Object.keys(NAMES).every((name) => theirs[name] === before[name])) {
    await save(body);
    return;
  }
  const row = (name) => {
    const made = document.createElement("tr");
    const head = line("th", NAMES[name]);
    head.scope = "row";
    made.append(head, line("td", body[name] || "–"), line("td", theirs[name] || "–"));
    return made;
  };
  const conflict = part("sched-conflict");
  conflict.querySelector("tbody").replaceChildren(...Object.keys(NAMES).map(row));
  conflict.hidden = false;
  part("sched-mine").onclick = () => {
    read = theirs;
    save(body);
  };
  part("sched-theirs").onclick = () => fill(theirs);
}

async function save(body) {
  const url = `/api/v1/board/tasks/${task}/schedule`;
  const told = await ask(url, body, { method: "PUT", tag, changed: () => meet(body) });
  if (told === null) return;
  part("scheduling").close();
  say(`Schedule of #${task} saved.`, false, told.undo ?? null);
  await refresh();
}

// Cards are dragged from column to column.
function moveCards() {
  let card = null;
  document.addEventListener("dragstart", (event) => {
    card = event.target.closest?.("[data-task]") ?? null;
  });
  document.addEventListener("dragover", (event) => {
    if (card !== null && event.target.closest("[data-status]")) event.preventDefault();
  });
  document.addEventListener("drop", async (event) => {
    const status = event.target.closest("[data-status]")?.dataset.status;
    if (card === null || status === undefined) return;
    event.preventDefault();
    const { task: number, tag } = card.dataset;
    card = null;
    const changed = () => say("Nothing was done: the task has changed meanwhile.", true);
    const told = await ask(`/api/v1/board/tasks/${number}/move`, { status }, { tag, changed });
    if (told !== null) say(`#${number} moved to ${told.status}.`, false, told.undo ?? null);
    await refresh();
  });
}

export function setSchedules() {
  const form = part("sched-form");
  moveCards();
  document.addEventListener("click", (event) => {
    const about = event.target.closest("[data-schedule]");
    if (about !== null) open(about);
  });
  form.addEventListener("input", () => {
    part("sched-save").disabled = true; // until it is read
    clearTimeout(looking);
    looking = setTimeout(preview, 200);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!part("sched-save").disabled) save(meant);
  });
  part("sched-clear").addEventListener("click", () => save({ clear: true }));
  part("sched-close").addEventListener("click", () => part("scheduling").close());
}
