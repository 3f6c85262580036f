// What a person asks for: one call of the API each, and what became of it in words.
import { refresh } from "./live.js";

const said = document.getElementById("said");
const asking = document.getElementById("ask");
let hiding = null;

// Say what became of something, and for ten seconds offer to undo it.
export function say(text, isBad = false, undo = null) {
  said.textContent = text;
  said.className = isBad ? "shown bad" : "shown";
  if (undo !== null) {
    const button = document.createElement("button");
    button.textContent = "Undo";
    button.dataset.key = "z";
    button.addEventListener("click", () => takeBack(undo));
    said.append(" ", button);
  }
  clearTimeout(hiding);
  hiding = setTimeout(() => {
    said.className = "";
    said.querySelector("button")?.remove();
  }, isBad || undo !== null ? 10000 : 4000);
}

async function takeBack(undo) {
  const changed = () => say("Not undone: the file has changed since.", true);
  const told = await ask("/api/v1/edits/undo", { undo }, { changed });
  if (told !== null) say(told.commit ? `Undone, as commit ${told.commit.slice(0, 12)}` : "Undone");
  await refresh();
}

function onceKey() {
  return globalThis.crypto?.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
}

// Ask the engine for something; return its answer, or null after saying why there is none.
// With a tag it is done only if nobody was faster; if somebody was, `changed` is called instead.
export async function ask(url, body, { method = "POST", tag = "", changed = null } = {}) {
  const match = tag ? { "If-Match": `"${tag}"` } : {};
  const once = url.endsWith("/run") ? { "Idempotency-Key": onceKey() } : {};
  let answer;
  try {
    answer = await fetch(url, {
      method,
      headers: { "Content-Type": "application/json", ...match, ...once },
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

// Show fields, such as "until=1h" and "status:todo|done", and return what is written in them; null
// if cancelled.
export function askFor(words, title) {
  document.getElementById("ask-head").textContent = title;
  document.getElementById("ask-ok").textContent = title.split(/[:\s]/, 1)[0];
  const known = document.getElementById("fields").content;
  const fields = words.map((word) => {
    const [, name, options, value = ""] = /^(\w+)(?::([^=]*))?(?:=(.*))?$/.exec(word);
    const line = document.importNode(known.querySelector(`[name="${name}"]`).parentNode, true);
    if (options) {
      const list = Object.assign(document.createElement("select"), { name });
      list.append(...options.split("|").map((each) => new Option(each)));
      line.lastElementChild.replaceWith(list);
    } else line.lastElementChild.value = value;
    return line;
  });
  document.getElementById("ask-fields").replaceChildren(...fields);
  document.getElementById("ask-note").textContent = "";
  asking.returnValue = "";
  asking.showModal();
  return new Promise((done) => {
    const over = () => {
      const form = new FormData(asking.querySelector("form"));
      const given = [...form].map(([name, value]) => [name, value.trim()]);
      done(asking.returnValue === "ok" ? Object.fromEntries(given) : null);
    };
    asking.addEventListener("close", over, { once: true });
  });
}

function isSure(button, question) {
  if (question === undefined || button.classList.contains("sure")) return true;
  const word = button.textContent;
  button.textContent = question;
  button.classList.add("sure");
  setTimeout(() => {
    button.classList.remove("sure");
    if (button.textContent === question) button.textContent = word;
  }, 4000);
  return false;
}

// Say what a person saw, and what stands there now.
async function sayBoth(post, seen) {
  if (!post.includes("/entries/")) {
    say("Nothing was done: the task has changed since the page was loaded.", true);
    return;
  }
  const url = post.replace(/\/\w+$/, "");
  const now = await fetch(url, { cache: "no-store" }).then((answer) => answer.json());
  const pause = now.pause ? `paused since ${now.pause.at.slice(0, 19)}` : "not paused";
  const there = `${now.rule ?? now.reason}, ${pause}`;
  const isInFile = !now.file.startsWith("triggers/"); // else the ledger alone has it
  const place = isInFile ? ` in ${now.file}:${now.line}` : "";
  const both = seen === there ? `Its text${place} has changed.` : `You saw: ${seen}. Now: ${there}.`;
  say(`Nothing was done: the entry has changed since the page was loaded. ${both}`, true);
}

// What a button posts, if it is not a script that does so (see actions.py).
export function wanted(button) {
  const { pathname, searchParams } = new URL(button.formAction);
  const { ask: _, sure, tag, then, ...body } = Object.fromEntries(searchParams);
  return { post: pathname.slice("/do".length), asks: searchParams.getAll("ask"), sure, tag, then, body };
}

async function act(button) {
  if (button.dataset.fresh !== undefined) {
    say("The button changed while you clicked it; nothing was done.", true);
    return;
  }
  // What was seen: the page may be written anew while a person fills in the fields.
  const { post, asks, sure, tag, then, ...about } = wanted(button);
  const { seen, said: done } = button.dataset;
  if (button.dataset.busy !== undefined || !isSure(button, sure)) return;
  let body = about.body;
  if (asks.length > 0) {
    const given = await askFor(asks, button.value);
    if (given === null) return;
    body = { ...body, ...given };
  }
  button.dataset.busy = "";
  const told = await ask(post, body, { tag, changed: () => sayBoth(post, seen) });
  if (told !== null && then !== undefined) {
    location.assign(then);
    return;
  }
  if (told !== null) say(done, false, told.undo ?? null);
  delete button.dataset.busy;
  await refresh();
}

export function listenForActions() {
  asking.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.nodeName !== "SELECT") return;
    event.preventDefault(); // it would open the list
    asking.querySelector("form").requestSubmit(document.getElementById("ask-ok"));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[formaction]");
    if (button === null) return;
    event.preventDefault();
    if (button.closest("[data-rule], [data-schedule], [data-bulk]") === null) act(button);
  });
}
