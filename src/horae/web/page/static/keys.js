// Keys: each action of a page names its own (`data-key`), rows are walked through with j and k, and
// one box finds entries, agents, tasks, receipts and files, and with Ctrl-K actions, too.
const dialog = document.getElementById("search");
const input = dialog.querySelector("input");
const list = document.getElementById("search-results");
const keys = document.getElementById("keys");
const PAGES = { "/": "n", "/entries": "e", "/timeline": "t", "/crew": "a", "/board": "b", "/plan": "p" };
let goes = false; // after g, the next key names a page
let looking = 0;
let at = ""; // the id of the row that keys act on
let actions = [];

const rows = () => [...document.querySelectorAll("main [data-row]:not(.left)")].filter((row) => row.checkVisibility());
const row = () => document.activeElement.closest("[data-row]") ?? (at && document.getElementById(at));
const pages = () => [...document.querySelectorAll("#pages a")];

// What can be done here: in the row, and on the page beside its rows.
function offers() {
  const here = row();
  const own = here ? [...here.querySelectorAll("[data-key]")] : [];
  const others = [...document.querySelectorAll("[data-key]")].filter((each) => !each.closest("[data-row]"));
  return [...own, ...others];
}

function nameOf(each) {
  const said = each.ariaLabel ?? (each.closest("#pages") ? each.firstChild : each).textContent.trim();
  const title = each.closest("[data-row]")?.querySelector(".title")?.textContent;
  return title && !said.includes(title) ? `${said.replace("…", "")}: ${title}` : said;
}

function move(step) {
  const known = rows();
  const place = known.indexOf(row());
  const next = known[Math.min(known.length - 1, Math.max(0, place + step))];
  if (next === undefined) return;
  at = next.id;
  (next.querySelector("a.title") ?? next.querySelector("a, button"))?.focus();
}

// The search

function open(withActions) {
  const others = document.querySelectorAll(".top .act.out, #zones a:not([hidden]), .pages a");
  actions = withActions ? [...offers(), ...pages(), ...others] : [];
  input.value = "";
  list.replaceChildren();
  dialog.showModal();
  find();
}

async function find() {
  looking += 1;
  const mine = looking;
  const words = input.value.toLowerCase().split(/\s+/);
  const fitting = actions.filter((each) => words.every((word) => nameOf(each).toLowerCase().includes(word)));
  const own = fitting.map((each) => item({ title: nameOf(each), kind: keyOf(each), act: each }));
  const url = `/api/v1/search?q=${encodeURIComponent(input.value)}`;
  list.replaceChildren(...own);
  mark(0);
  const answer = await fetch(url, { cache: "no-store" }).catch(() => null);
  if (!answer?.ok || mine !== looking) return;
  const { results } = await answer.json();
  list.replaceChildren(...own, ...results.map(item));
  mark(Math.max(0, marked()));
}

function keyOf(each) {
  const page = PAGES[each.getAttribute("href")];
  return each.dataset.key ?? (page ? `g ${page}` : "");
}

function item({ kind, title, detail, href, act }) {
  const line = document.createElement("li");
  const more = document.createElement("small");
  more.textContent = detail ? `${kind} · ${detail}` : kind;
  line.role = "option";
  line.append(Object.assign(document.createElement("span"), { textContent: title }), more);
  line.addEventListener("click", () => {
    dialog.close();
    if (act) act.click();
    else location.assign(href);
  });
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
  else if (event.key === "Enter") list.children[marked()]?.click();
  else return;
  event.preventDefault();
}

// All keys of this page

function tell() {
  const known = new Map([["/", "search"], ["Ctrl-K", "search, and all actions"], ["j, k", "next and previous row"], ["Enter", "open the row"]]);
  for (const each of pages()) known.set(keyOf(each), nameOf(each));
  for (const each of document.querySelectorAll("[data-key]")) {
    const said = each.title || (each.ariaLabel ?? each.textContent).trim();
    const key = { ArrowLeft: "←", ArrowRight: "→" }[each.dataset.key] ?? each.dataset.key;
    known.set(key, each.closest("[data-row]") ? said.split(":")[0] : said);
  }
  known.set("?", "this list");
  const lines = [...known].map(([key, what]) => {
    const line = document.createElement("div");
    for (const [kind, text] of [["dt", key], ["dd", what]]) {
      line.append(Object.assign(document.createElement(kind), { textContent: text }));
    }
    return line;
  });
  document.getElementById("keys-list").replaceChildren(...lines);
  keys.showModal();
}

function isWriting(target) {
  const isField = target.closest("input:not([type=checkbox]), select, textarea") !== null;
  return isField || document.querySelector("dialog[open]") !== null;
}

function onKey(event) {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    open(true);
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
  if (goes) {
    goes = false;
    pages().find((each) => keyOf(each) === `g ${event.key}`)?.click();
    return;
  }
  const act = offers().find((each) => each.dataset.key === event.key);
  if (event.key === "/") open(false);
  else if (event.key === "g") goes = true;
  else if (event.key === "?") tell();
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (act !== undefined) act.click();
  else return;
  event.preventDefault();
}

export function listenForKeys() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("focusin", (event) => {
    const here = event.target.closest("main [data-row]");
    if (here !== null) at = here.id;
  });
  input.addEventListener("keydown", inBox);
  input.addEventListener("input", find);
  document.getElementById("search-open").addEventListener("click", () => open(false));
}
