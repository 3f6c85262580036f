// Keeps a page true: the server sends what changes of it, and only what differs is changed, so
// nothing flickers and nobody loses their place.
import { morph } from "./morph.js";
import { setNow, turn } from "./clock.js";

const gone = document.getElementById("gone");
const later = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
let attach = () => {};
let asking = null;
let again = false;
let isLost = false;
let lookedAt = performance.now();
let streams = true;
let heard = ""; // the address whose changes are heard
let retry = 1;
let hearing = new AbortController();

export function isGone() {
  return isLost;
}

function lose(words, remedy = "") {
  isLost = true;
  const seen = document.body.dataset.now.slice(11, 19); // by the engine's clock, in the plan's zone
  const parts = `${words} This page shows the state at ${seen}. ${remedy}`.split("`");
  gone.replaceChildren(...parts.map((text, n) => Object.assign(document.createElement(n % 2 ? "code" : "span"), { textContent: text })));
  gone.hidden = false;
  document.body.classList.add("stale");
}

function find() {
  if (!isLost) return;
  isLost = false;
  retry = 1;
  gone.hidden = true;
  gone.textContent = "";
  document.body.classList.remove("stale");
}

async function look() {
  lookedAt = performance.now();
  let answer;
  let text;
  try {
    answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    text = await answer.text();
  } catch {
    lose("The engine does not respond.", "Start it with `horae up`; this page then reconnects.");
    return false;
  }
  if (answer.status === 401 || answer.status === 403) {
    lose("You are no longer logged in; run `horae open` for a new login link.");
    return false;
  }
  if (!(answer.headers.get("content-type") ?? "").startsWith("text/html")) {
    lose(`The engine did not return this page (HTTP ${answer.status}).`);
    return false;
  }
  show(text);
  if (heard !== "" && heard !== location.href) hearAgain();
  return true;
}

// Make the page like the one that the server wrote; false if another version is loaded instead.
function show(text, now = null) {
  const page = new DOMParser().parseFromString(text, "text/html");
  find();
  if (page.body.dataset.version !== document.body.dataset.version) {
    location.reload(); // another version of horae runs now
    return false;
  }
  const { body } = document;
  if (now !== null) {
    Object.assign(page.body.dataset, { event: now.event, now: now.now });
    const asOf = page.querySelector("[data-asof]");
    if (asOf !== null) Object.assign(asOf, { textContent: now.said, dateTime: now.now });
  }
  for (const name of ["event", "now", "every"]) body.dataset[name] = page.body.dataset[name];
  setNow(body.dataset.now);
  turn(page);
  for (const id of ["icon", "pages", "main", "foot"]) {
    const next = page.getElementById(id);
    if (next !== null) morph(document.getElementById(id), next);
  }
  document.title = page.title;
  attach();
  return true;
}

// Ask for the page again; whoever asks while that goes on gets one more look after it.
export function refresh() {
  if (asking !== null) {
    again = true;
    return asking;
  }
  asking = (async () => {
    let isFound;
    try {
      do {
        again = false;
        isFound = await look();
      } while (again && isFound);
    } finally {
      asking = null;
    }
    return isFound;
  })();
  return asking;
}

// Hear what changes of this page: lines of its text, in place of those that were sent before.
async function listen() {
  heard = location.href;
  const answer = await fetch(heard, {
    headers: { Accept: "text/event-stream", "Last-Event-ID": document.body.dataset.event },
    cache: "no-store",
    signal: hearing.signal,
  });
  const kind = answer.headers.get("content-type") ?? "";
  if (!answer.ok || !kind.startsWith("text/event-stream")) {
    await answer.body?.cancel();
    return false;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const page = [];
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return true;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    lookedAt = performance.now();
    for (const part of parts) {
      const data = /^data: (.*)$/m.exec(part)?.[1];
      if (data === undefined) continue;
      const { at, cut, lines, ...now } = JSON.parse(data);
      page.splice(at, cut, ...lines);
      if (!show(page.join("\n"), now)) return true;
    }
  }
}

async function hear() {
  for (;;) {
    if (document.hidden) {
      await later(0.2);
      continue;
    }
    streams = true;
    const signal = hearing.signal;
    try {
      streams = await listen();
      await refresh();
      if (!streams) await later(Number(document.body.dataset.every)); // a proxy keeps it back
    } catch {
      if (document.hidden || signal.aborted) continue;
      await refresh();
    }
    while (isGone()) await later(0.2);
  }
}

function hearAgain() {
  hearing.abort();
  hearing = new AbortController();
}

// Of a page that nobody sees only the number in its title is kept true.
async function count() {
  if (!document.hidden || isGone()) return;
  const answer = await fetch("/api/v1/inbox?limit=0", { cache: "no-store" }).catch(() => null);
  if (!answer?.ok) return;
  const { count: number } = await answer.json();
  document.title = document.title.replace(/^(\(\d+\) )?/, number ? `(${number}) ` : "");
  if (number) document.getElementById("icon").href = `/icon/${number}.svg`;
}

export function keepLive(attached) {
  attach = attached;
  hear();
  setInterval(() => {
    if (!isGone() || document.hidden || performance.now() - lookedAt < retry * 1000) return;
    retry = Math.min(10, retry * 1.5);
    refresh();
  }, 500);
  setInterval(count, 60e3);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hearAgain(); // a browser has few connections to one host
    else refresh();
  });
}
