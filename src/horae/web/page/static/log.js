// Follows the log of a run that goes on, and finds words in it.
import { refresh } from "./live.js";

const MOST = 5000; // lines that stay on the page
const LONGEST = 20000; // characters of a line
const WAITING = 1 << 20; // characters that wait to be shown; of more the newest
const PAUSE = 100; // milliseconds between two looks at them
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const followed = new WeakSet();
let waiting = ""; // what has come and is not shown yet
let showing = null;

const isFollowed = () => document.getElementById("log-follow")?.checked ?? false;

function come(log, text) {
  waiting += text;
  if (waiting.length > WAITING) waiting = waiting.slice(-WAITING).replace(/^[^\n]*\n/, "");
  showing ??= setTimeout(() => show(log), PAUSE);
}

// Whoever has scrolled up reads on in peace: what would push those lines out waits.
function show(log) {
  showing = null;
  if (!isFollowed() && log.childElementCount >= MOST) return;
  const text = waiting;
  waiting = "";
  add(log, text);
}

function add(log, text) {
  const lines = text.replace(ESCAPES, "").replace(/\r\n?/g, "\n").replace(CONTROLS, "").split("\n");
  const last = log.lastElementChild;
  const added = document.createDocumentFragment();
  const begin = Math.max(0, lines.length - MOST);
  lines.slice(begin).forEach((line, index) => {
    if (begin + index === 0 && last !== null) {
      last.textContent = (last.textContent + line).slice(-LONGEST);
      return;
    }
    const item = document.createElement("li");
    item.textContent = line;
    added.append(item);
  });
  log.append(added);
  while (log.childElementCount > MOST) log.firstElementChild.remove();
  find(log);
  if (isFollowed()) log.scrollTop = log.scrollHeight;
}

async function follow(log) {
  const run = log.dataset.run;
  const url = `/api/v1/runs/${run}/log?follow=1&from=${log.dataset.from}`;
  try {
    const answer = await fetch(url, { cache: "no-store" });
    if (!answer.ok) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let kept = ""; // an escape that a part ends in the middle of
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const text = kept + value;
      const cut = /\x1b[^@-Z\\^_a-z~\x07]*$|\r$/.exec(text);
      kept = cut === null || cut[0].length > 200 ? "" : cut[0];
      come(log, text.slice(0, text.length - kept.length));
    }
    come(log, kept);
  } catch {
    return; // the banner says that the engine is gone
  }
  refresh();
}

function find(log) {
  const wanted = document.getElementById("log-find")?.value.toLowerCase() ?? "";
  let hits = 0;
  for (const item of log.children) {
    const isHit = wanted !== "" && item.textContent.toLowerCase().includes(wanted);
    item.classList.toggle("hit", isHit);
    if (isHit) hits += 1;
  }
  const told = document.getElementById("log-hits");
  if (told) told.textContent = wanted === "" ? "" : `${hits} ${hits === 1 ? "line" : "lines"}`;
}

function step(log, back) {
  const hits = [...log.querySelectorAll(".hit")];
  if (hits.length === 0) return;
  const at = hits.findIndex((item) => item.classList.contains("at"));
  log.querySelector(".at")?.classList.remove("at");
  const next = hits.at((at + (back ? -1 : 1) + hits.length) % hits.length);
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
}

// To scroll up ends to follow, to scroll to the end begins it again.
function followByScrolling(log) {
  let top = log.scrollTop;
  log.addEventListener("scroll", () => {
    const box = document.getElementById("log-follow");
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 4;
    if (box && isAtEnd !== box.checked && (isAtEnd || log.scrollTop < top)) {
      box.checked = isAtEnd;
      if (isAtEnd) show(log);
    }
    top = log.scrollTop;
  });
}

export function followLog() {
  const log = document.getElementById("log");
  if (log === null || followed.has(log)) return;
  followed.add(log);
  log.scrollTop = log.scrollHeight;
  followByScrolling(log);
  const box = document.getElementById("log-follow");
  if (box && !followed.has(box)) {
    followed.add(box);
    box.addEventListener("change", () => {
      const here = document.getElementById("log");
      if (!box.checked || here === null) return;
      show(here);
      here.scrollTop = here.scrollHeight;
    });
  }
  const field = document.getElementById("log-find");
  if (field && !followed.has(field)) {
    followed.add(field);
    const here = () => document.getElementById("log");
    field.addEventListener("input", () => find(here()));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") step(here(), event.shiftKey);
    });
  }
  if (log.dataset.live !== undefined) follow(log);
}
