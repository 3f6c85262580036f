// What a person asks for: one call of the API each, and what became of it in words.
import { refresh } from "./live.js";

const said = document.getElementById("said");
let hiding = null;

export function say(text, isBad = false) {
  said.textContent = text;
  said.className = isBad ? "shown bad" : "shown";
  clearTimeout(hiding);
  hiding = setTimeout(() => {
    said.className = "";
  }, isBad ? 10000 : 4000);
}

function onceKey() {
  return globalThis.crypto?.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
}

// Ask the engine for something; return its answer, or null after saying why there is none.
// With a tag it is done only if nobody was faster; if somebody was, `changed` is called instead.
export async function ask(url, body, { method = "POST", headers = {}, tag = "", changed = null } = {}) {
  const match = tag ? { "If-Match": `"${tag}"` } : {};
  let answer;
  try {
    answer = await fetch(url, {
      method,
      headers: { "Content-Type": "application/json", ...match, ...headers },
      body: JSON.stringify(body),
    });
  } catch {
    say("The engine does not respond; nothing was done.", true);
    return null;
  }
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  if (answer.status === 412 && changed !== null) {
    await changed();
    return null;
  }
  say(told.detail ?? told.error ?? `The request failed (HTTP ${answer.status}).`, true);
  return null;
}

function isSure(button) {
  if (button.dataset.sure === undefined || button.classList.contains("sure")) return true;
  const word = button.textContent;
  button.textContent = button.dataset.sure;
  button.classList.add("sure");
  setTimeout(() => {
    button.classList.remove("sure");
    if (button.textContent === button.dataset.sure) button.textContent = word;
  }, 4000);
  return false;
}

// Say what a person saw, and what stands there now.
async function sayBoth(button) {
  const url = button.dataset.post.replace(/\/\w+$/, "");
  const now = await fetch(url, { cache: "no-store" }).then((answer) => answer.json());
  const pause = now.pause ? `paused since ${now.pause.at.slice(0, 19)}` : "not paused";
  const there = `${now.rule ?? now.reason}, ${pause}`;
  const seen = button.dataset.seen;
  const isInFile = !now.file.startsWith("triggers/"); // else the ledger alone has it
  const place = isInFile ? ` in ${now.file}:${now.line}` : "";
  const both = seen === there ? `Its text${place} has changed.` : `You saw: ${seen}. Now: ${there}.`;
  say(`Nothing was done: the entry has changed since the page was loaded. ${both}`, true);
}

async function act(button) {
  if (button.dataset.fresh !== undefined) {
    say("The button changed while you clicked it; nothing was done.", true);
    return;
  }
  if (button.dataset.busy !== undefined || !isSure(button)) return;
  button.dataset.busy = "";
  const isRun = button.dataset.post.endsWith("/run");
  const headers = isRun ? { "Idempotency-Key": onceKey() } : {};
  const { tag } = button.dataset;
  const told = await ask(button.dataset.post, {}, { headers, tag, changed: () => sayBoth(button) });
  const { then } = button.dataset;
  if (told !== null && then !== undefined) {
    location.assign(then);
    return;
  }
  if (told !== null) say(button.dataset.said);
  delete button.dataset.busy;
  await refresh();
}

export function listenForActions() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-post]");
    if (button !== null) act(button);
  });
}
