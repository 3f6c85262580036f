// Moves and zooms the timeline: by dragging, by the wheel with Ctrl, by buttons and by keys.
import { refresh } from "./live.js";

const LEAST = 60e3;
const MOST = 366 * 86400e3;
const known = new WeakSet();

const starts = (board) => Date.parse(board.dataset.start);
const ends = (board) => Date.parse(board.dataset.end);

function slide(board, pixels) {
  for (const each of board.querySelectorAll(".moving")) each.setAttribute("x", pixels);
}

async function go(board, start, span) {
  const length = Math.round(Math.min(MOST, Math.max(LEAST, span)) / 1000);
  const url = new URL(location.href);
  url.searchParams.set("from", new Date(start).toISOString().replace(/\.\d+Z$/, "Z"));
  url.searchParams.set("span", `${length}s`);
  history.replaceState(null, "", url);
  await refresh();
  slide(document.getElementById("timeline") ?? board, 0);
}

function zoom(board, factor, part = 0.5) {
  const span = ends(board) - starts(board);
  const wanted = Math.min(MOST, Math.max(LEAST, span * factor));
  return go(board, starts(board) + (span - wanted) * part, wanted);
}

function move(board, part) {
  const span = ends(board) - starts(board);
  return go(board, starts(board) + span * part, span);
}

function drag(board) {
  let from = null;
  let far = 0;
  board.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest(".name")) return;
    from = event.clientX;
    far = 0;
  });
  window.addEventListener("pointermove", (event) => {
    if (from === null) return;
    far = event.clientX - from;
    if (Math.abs(far) > 4) board.classList.add("dragging");
    if (board.classList.contains("dragging")) slide(board, far);
  });
  const end = () => {
    if (from === null) return;
    from = null;
    if (!board.classList.contains("dragging")) return;
    board.classList.remove("dragging");
    const width = board.querySelector("svg")?.clientWidth || 1;
    move(board, -far / width);
  };
  window.addEventListener("pointerup", end);
  window.addEventListener("pointercancel", end);
  board.addEventListener("click", (event) => {
    if (Math.abs(far) > 4) event.preventDefault(); // it was moved, not chosen
    far = 0;
  }, true);
  board.addEventListener("dragstart", (event) => event.preventDefault());
}

const KEYS = {
  ArrowLeft: (board) => move(board, -0.25),
  ArrowRight: (board) => move(board, 0.25),
  "+": (board) => zoom(board, 0.5),
  "=": (board) => zoom(board, 0.5),
  "-": (board) => zoom(board, 2),
};

export function moveTimeline() {
  const board = document.getElementById("timeline");
  if (board === null || known.has(board)) return;
  known.add(board);
  drag(board);
  let rest = null;
  board.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    if (rest !== null) return;
    rest = setTimeout(() => { rest = null; }, 150);
    const line = board.querySelector("svg").getBoundingClientRect();
    zoom(board, event.deltaY < 0 ? 0.7 : 1.4, (event.clientX - line.left) / line.width);
  }, { passive: false });
  board.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(board);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-zoom]");
    if (button !== null) zoom(board, Number(button.dataset.zoom));
  });
}
