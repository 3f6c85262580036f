// Counts down to what comes, and up from what runs, by the engine's clock and not by ours.
let ahead = 0; // how far the engine's clock is ahead of the one here, in milliseconds

export function setNow(text) {
  ahead = Date.parse(text) - Date.now();
}

export function now() {
  return Date.now() + ahead;
}

function rough(milliseconds) {
  let seconds = Math.floor(Math.abs(milliseconds) / 1000);
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count) parts.push(`${count}${unit}`);
    else if (parts.length) break;
  }
  return parts.slice(0, 2).join(" ") || "0s";
}

export function turn(page = document) {
  for (const each of page.querySelectorAll("[data-away], [data-took]")) {
    const far = Date.parse(each.dateTime) - now();
    let said = rough(far);
    if (each.dataset.away !== undefined) said = far > 0 ? `in ${said}` : `${said} ago`;
    if (each.textContent !== said) each.textContent = said;
  }
}

export function turnClocks() {
  setNow(document.body.dataset.now);
  setInterval(() => turn(), 1000);
}

// Only a browser knows its own zone; the server writes the times.
export function offerOwnZone() {
  const link = document.getElementById("own-zone");
  if (link === null) return;
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  link.hidden = false;
  link.href = `/zone?to=${encodeURIComponent(own)}`;
  link.title = own;
  if (own === link.dataset.zone) link.ariaCurrent = "true";
}
