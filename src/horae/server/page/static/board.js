// Sets the schedule of a task, and shows what it would mean before it is saved.
import { ask, say } from "./actions.js";
import { refresh } from "./live.js";

const part = (id) => document.getElementById(id);
let task = null;
let looking = null;
let turn = 0;

function line(kind, text, name = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

async function look(query) {
  const answer = await fetch(`/api/v1/preview?${new URLSearchParams(query)}`);
  const told = await answer.json();
  return answer.ok ? told : { error: told.detail ?? `The engine refused (${answer.status}).` };
}

// What the fields say, in words and moments; an error if they say nothing that can be kept.
async function understood({ cron, at, timezone }) {
  const zone = timezone ? { zone: timezone } : {};
  try {
    const rule = cron ? await look({ cron, ...zone }) : null;
    if (rule?.error) return rule;
    if (rule?.next.length === 0) return { error: "It names a day that never comes." };
    const held = at ? await look({ at, ...zone }) : null;
    return held?.error ? held : { rule, held };
  } catch {
    return { error: "The engine does not answer." };
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
    shown.replaceChildren(line("p", "Say when it comes back, or until when it is held back."));
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
    list.append(...rule.next.map((each) => line("li", each.replace("T", " "))));
    parts.push(line("p", `${rule.words} (${rule.zone})`), list);
  }
  if (held) parts.push(line("p", `${held.words}: until then nobody takes it.`));
  shown.replaceChildren(...parts);
  part("sched-save").disabled = false;
}

function open(button) {
  const form = part("sched-form");
  task = button.dataset.schedule;
  part("sched-title").textContent = `#${task} ${button.dataset.title}`;
  for (const name of ["cron", "at", "timezone"]) form.elements[name].value = button.dataset[name];
  part("scheduling").showModal();
  preview();
}

async function save(body) {
  const told = await ask(`/api/v1/board/tasks/${task}/schedule`, body, { method: "PUT" });
  if (told === null) return;
  part("scheduling").close();
  say(`The schedule of #${task} is saved.`);
  await refresh();
}

export function setSchedules() {
  const form = part("sched-form");
  if (form === null) return;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-schedule]");
    if (button !== null) open(button);
  });
  form.addEventListener("input", () => {
    clearTimeout(looking);
    looking = setTimeout(preview, 200);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!part("sched-save").disabled) save(fields());
  });
  part("sched-clear").addEventListener("click", () => save({ clear: true }));
  part("sched-close").addEventListener("click", () => part("scheduling").close());
}
