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
export async function ask(url, body, { method = "POST", headers = {} } = {}) {
  let answer;
  try {
    answer = await fetch(url, {
      method,
      headers: { "Content-Type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  } catch {
    say("The engine does not answer; nothing was done.", true);
    return null;
  }
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  say(told.detail ?? told.error ?? `The engine refused (${answer.status}).`, true);
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

async function act(button) {
  if (button.dataset.busy !== undefined || !isSure(button)) return;
  button.dataset.busy = "";
  const isRun = button.dataset.post.endsWith("/run");
  const headers = isRun ? { "Idempotency-Key": onceKey() } : {};
  const told = await ask(button.dataset.post, {}, { headers });
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
