// Moves in the timeline without loading a page: links keep the focus, a click on a lane and the
// wheel with Ctrl zoom to where the pointer is.
import { refresh } from "./live.js";

let rest = null; // between two zooms by one turn of the wheel

async function go(href) {
  if (new URL(href, location.href).href !== location.href) history.pushState(null, "", href);
  await refresh();
}

// The link of the axis, or of the row, to the time under a pointer.
function under(board, event) {
  const links = [...board.querySelectorAll(".ticks a")];
  const found = links.filter((each) => each.getBoundingClientRect().left <= event.clientX + 1);
  return found.at(-1) ?? event.target.closest(".row")?.querySelector("a[data-way]") ?? null;
}

export function listenForMoves() {
  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    const board = event.target.closest("div#timeline");
    const link = event.target.closest("a") ?? (board && event.target.closest("svg.line") && under(board, event));
    if (!link?.matches("a[data-way]")) return;
    event.preventDefault();
    go(link.href.baseVal ?? link.href);
  });
  document.addEventListener("wheel", (event) => {
    const board = event.target.closest("#timeline");
    if (!event.ctrlKey || board === null) return;
    event.preventDefault();
    if (rest !== null) return;
    rest = setTimeout(() => { rest = null; }, 300);
    const link = event.deltaY > 0 ? document.querySelector("[data-key='-']")
      : event.target.closest("a[data-way]") ?? under(board, event);
    if (link !== null) go(link.href.baseVal ?? link.href);
  }, { passive: false });
  addEventListener("popstate", () => refresh());
}
