// Keeps a page true: when something happens, or enough time has passed, the same page is asked
// for again and only what differs is changed, so nothing flickers and nobody loses their place.
import { morph } from "./morph.js";
import { setNow } from "./clock.js";

const gone = document.getElementById("gone");
const later = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
let attach = () => {};
let asking = null;
let again = false;
let isLost = false;
let lookedAt = performance.now();
let took = 0; // milliseconds that the last look needed
let retry = 1;
let hearing = new AbortController();

export function isGone() {
  return isLost;
}

function lose(words, remedy = "") {
  isLost = true;
  const seen = document.body.dataset.now.slice(11, 19); // by the engine's clock, in the plan's zone
  gone.textContent = `${words} This page shows the state at ${seen}. ${remedy}`;
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
  const page = new DOMParser().parseFromString(text, "text/html");
  find();
  if (page.body.dataset.version !== document.body.dataset.version) {
    location.reload(); // another version of horae runs now
    return true;
  }
  for (const id of ["icon", "pages", "main", "foot"]) {
    const next = page.getElementById(id);
    if (next !== null) morph(document.getElementById(id), next);
  }
  document.title = page.title;
  for (const name of ["event", "now", "every"]) {
    document.body.dataset[name] = page.body.dataset[name];
  }
  setNow(document.body.dataset.now);
  took = performance.now() - lookedAt;
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

async function listen() {
  const answer = await fetch("/api/v1/events/stream", {
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
  let soon = null;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return true;
    if (/^id:/m.test(value)) {
      soon ??= setTimeout(() => {
        soon = null;
        refresh();
      }, Math.max(150, 2 * took)); // a page that is dear to make is asked for less often
    }
  }
}

async function poll() {
  const after = Number(document.body.dataset.event);
  const answer = await fetch(`/api/v1/events?after=${after}&limit=1`, { cache: "no-store" });
  if (answer.ok && (await answer.json()).events.length > 0) await refresh();
}

async function hear() {
  let streams = true;
  for (;;) {
    if (document.hidden) {
      await later(0.2);
      continue;
    }
    try {
      if (streams) {
        streams = await listen();
        await refresh();
      } else {
        await poll();
        await later(1);
      }
    } catch {
      streams = true;
      if (document.hidden) continue;
      await refresh();
    }
    while (isGone()) await later(0.2);
  }
}

export function keepLive(attached) {
  attach = attached;
  hear();
  setInterval(() => {
    const wait = isGone() ? retry : Number(document.body.dataset.every);
    if (document.hidden || performance.now() - lookedAt < wait * 1000) return;
    if (isGone()) retry = Math.min(10, retry * 1.5);
    refresh();
  }, 500);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      refresh();
      return;
    }
    hearing.abort(); // a browser has few connections to one host, and others need them
    hearing = new AbortController();
  });
}
