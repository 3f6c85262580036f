// Keys for what can be done on a page, and one box to find anything.
import { actOnEntries, chooseEntry, hasEntries, moveInEntries } from "./entries.js";

const dialog = document.getElementById("search");
const input = dialog.querySelector("input");
const list = document.getElementById("search-results");
const PAGES = { n: "/", e: "/entries", t: "/timeline", c: "/calendar", a: "/crew", b: "/board", p: "/plan" };
const IN_TABLE = {
  j: () => moveInEntries(1),
  k: () => moveInEntries(-1),
  x: chooseEntry,
  r: () => actOnEntries("run"),
  p: () => actOnEntries("pause"),
  u: () => actOnEntries("resume"),
  b: () => actOnEntries("backfill"),
  Escape: () => actOnEntries("none"),
};
let goes = false; // after g, the next key names a page
let looking = 0;

function open() {
  input.value = "";
  list.replaceChildren();
  dialog.showModal();
  find();
}

async function find() {
  looking += 1;
  const mine = looking;
  const url = `/api/v1/search?q=${encodeURIComponent(input.value)}`;
  let answer;
  try {
    answer = await fetch(url, { cache: "no-store" });
  } catch {
    return;
  }
  if (!answer.ok || mine !== looking) return;
  const { results } = await answer.json();
  list.replaceChildren(...results.map(item));
  mark(0);
}

function item({ kind, title, detail, href }) {
  const line = document.createElement("li");
  const link = document.createElement("a");
  const more = document.createElement("small");
  link.href = href;
  link.tabIndex = -1;
  link.textContent = title;
  more.textContent = detail ? `${kind} · ${detail}` : kind;
  line.role = "option";
  line.append(link, more);
  return line;
}

function mark(place) {
  const lines = [...list.children];
  const here = Math.min(lines.length - 1, Math.max(0, place));
  lines.forEach((line, number) => {
    line.ariaSelected = String(number === here);
    line.id = `result-${number}`;
  });
  input.setAttribute("aria-activedescendant", here < 0 ? "" : `result-${here}`);
  lines[here]?.scrollIntoView({ block: "nearest" });
}

function marked() {
  return [...list.children].findIndex((line) => line.ariaSelected === "true");
}

function inBox(event) {
  if (event.key === "ArrowDown") mark(marked() + 1);
  else if (event.key === "ArrowUp") mark(marked() - 1);
  else if (event.key === "Escape") dialog.close(); // a search field would only be emptied
  else if (event.key === "Enter") list.children[marked()]?.querySelector("a").click();
  else return;
  event.preventDefault();
}

function isWriting(target) {
  return target.closest("input:not([type=checkbox]), select, textarea, dialog") !== null;
}

function onKey(event) {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    open();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
  if (goes) {
    goes = false;
    if (PAGES[event.key] !== undefined) location.assign(PAGES[event.key]);
    return;
  }
  const act = hasEntries() ? IN_TABLE[event.key] : undefined;
  if (event.key === "/") open();
  else if (event.key === "g") goes = true;
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (act !== undefined) act();
  else return;
  event.preventDefault();
}

export function listenForKeys() {
  document.addEventListener("keydown", onKey);
  input.addEventListener("keydown", inBox);
  input.addEventListener("input", find);
  document.getElementById("search-open").addEventListener("click", open);
}
