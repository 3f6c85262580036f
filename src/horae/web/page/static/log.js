// Shows the log of a run: a list of which only the lines in view exist, however many there are.
// Positions are counted in rows: the lines that are kept and not folded, and one row for each gap.
import { refresh } from "./live.js";

const PAGE = 200; // lines that are asked for at once
const PAGES = 60; // of them that are remembered
const TALLEST = 8e6; // pixels; browsers cut off what is much taller
const LONGEST = 2000; // bytes of a line that the server returns
const HITS = 10000; // lines that a search finds at most
const LOOK = 250; // milliseconds between two looks at a log that grows
const LATER = 2000; // if nobody looks, or the engine is gone
const CODES = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse" };
const at = (id) => document.getElementById(id);
const later = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const whole = new Intl.NumberFormat("en");
let shown = null; // the list that is on the page

class LogList {
  constructor(box) {
    this.box = box;
    this.run = box.dataset.run;
    this.space = box.querySelector(".log-space");
    this.list = box.querySelector(".log-lines");
    this.height = parseFloat(getComputedStyle(document.documentElement).fontSize) * 1.25;
    this.pages = new Map();
    this.kept = [];
    this.leftOut = 0; // bytes
    this.headings = []; // lines at which the output of a step begins
    this.spans = []; // what is kept and not folded: its first row, first line and last line
    this.folded = new Set(); // headings of steps
    this.count = this.rows = this.top = 0;
    this.isLive = true;
    this.hits = new Set();
    this.hit = this.linked = 0;
    this.drawing = null;
    this.items = new Map(); // those in view
    box.addEventListener("scroll", () => this.scrolled());
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.go(this.top)).observe(box);
  }

  get visible() {
    return this.box.clientHeight / this.height;
  }

  get last() {
    return Math.max(0, this.rows - this.visible);
  }

  async ask(query) {
    const address = `/api/v1/runs/${this.run}/lines?${new URLSearchParams(query)}`;
    const answer = await fetch(address, { cache: "no-store" });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const told = await answer.json();
    this.isLive = told.is_live;
    if (told.count !== this.count || String(told.kept) !== String(this.kept)) {
      this.count = told.count;
      this.kept = told.kept;
      this.leftOut = told.left_out;
      this.arrange();
    }
    return told;
  }

  // Computes which rows there are, and lets the line at the top stay there.
  arrange() {
    const line = this.lineAt(this.top);
    const isFirst = this.rows === 0;
    const steps = JSON.parse(at("log-steps").dataset.steps);
    this.headings = steps;
    at("log-fold").parentElement.hidden = steps.length === 0;
    this.spans = [];
    this.rows = 0;
    this.kept.forEach(([first, last], part) => {
      if (part > 0) this.rows += 1;
      let from = first;
      steps.forEach((heading, index) => {
        if (!this.folded.has(heading) || heading < from || heading > last) return;
        this.add(from, heading);
        from = steps[index + 1] ?? last + 1;
      });
      this.add(from, last);
    });
    const tall = Math.min(this.rows * this.height, TALLEST);
    this.space.style.height = `${tall}px`;
    this.go(this.isFollowed || isFirst ? this.last : line === null ? this.top : this.rowOf(line));
  }

  add(first, last) {
    if (last < first) return;
    this.spans.push({ row: this.rows, first, last });
    this.rows += last - first + 1;
  }

  lineAt(row) {
    const found = this.spans.findLast((each) => each.row <= row);
    const line = found === undefined ? null : found.first + Math.floor(row) - found.row;
    return line !== null && line <= found.last ? line : null;
  }

  rowOf(line) {
    const found = this.spans.findLast((each) => each.first <= line);
    return found === undefined ? 0 : found.row + Math.min(line, found.last) - found.first;
  }

  get isFollowed() {
    return at("log-follow")?.checked ?? false;
  }

  // The scroll bar of a very tall list is coarser than a row, so the row is what counts.
  go(row) {
    this.top = Math.min(Math.max(0, row), this.last);
    const far = this.space.offsetHeight - this.box.clientHeight;
    this.expected = this.last > 0 ? (this.top / this.last) * Math.max(0, far) : 0;
    this.box.scrollTop = this.expected;
    this.expected = this.box.scrollTop; // as the browser has rounded it
    this.draw();
  }

  scrolled() {
    if (Math.abs(this.box.scrollTop - this.expected) < 1) return;
    const far = this.space.offsetHeight - this.box.clientHeight;
    const before = this.top;
    this.expected = this.box.scrollTop;
    this.top = far > 0 ? (this.expected / far) * this.last : 0;
    this.moved(before);
    this.draw();
  }

  // To scroll up ends to follow, to scroll to the end begins it again.
  moved(before) {
    const box = at("log-follow");
    const isAtEnd = this.last - this.top < 0.5;
    if (box !== null && (isAtEnd || this.top < before)) box.checked = isAtEnd;
  }

  move(row) {
    const before = this.top;
    this.go(row);
    this.moved(before);
  }

  wheel(event) {
    if (this.rows * this.height <= TALLEST || event.ctrlKey || event.deltaY === 0) return;
    event.preventDefault();
    const pixels = [1, this.height, this.box.clientHeight][event.deltaMode];
    this.move(this.top + (event.deltaY * pixels) / this.height);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.visible) - 1);
    const rows = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page }[event.key];
    const to = { Home: 0, End: this.last }[event.key] ?? (rows && this.top + rows);
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.move(to);
  }

  draw() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      this.show();
    });
  }

  // Leaves items that stay as they are in their place, so that a text that was selected stays so.
  show() {
    if (this.rows === 0) return;
    const first = Math.floor(this.top);
    const before = this.items;
    this.items = new Map();
    for (let row = first; row < Math.min(this.rows, first + this.visible + 1); row += 1) {
      const [key, make] = this.item(this.lineAt(row));
      this.items.set(key, before.get(key) ?? make());
    }
    const wanted = new Set(this.items.values());
    for (const each of [...this.list.children]) if (!wanted.has(each)) each.remove();
    let place = this.list.firstChild;
    for (const each of wanted) {
      if (each === place) place = place.nextSibling;
      else this.list.insertBefore(each, place);
    }
    this.list.style.top = `${(first - this.top) * this.height}px`;
  }

  // Returns what an item depends on, and how to make it.
  item(line) {
    if (line === null) return [`gap ${this.leftOut}`, () => gap(this.leftOut)];
    const found = this.row(line);
    const state = {
      line,
      found,
      isHit: this.hits.has(line),
      isAt: line === this.hit || line === this.linked,
      hasTime: at("log-times").checked,
      isOpen: this.headings.includes(line) ? !this.folded.has(line) : null,
    };
    return [JSON.stringify(state), () => this.made(state)];
  }

  made({ line, found, isHit, isAt, hasTime, isOpen }) {
    const item = document.createElement("li");
    item.classList.toggle("hit", isHit);
    item.classList.toggle("at", isAt);
    const number = document.createElement("a");
    number.className = "number";
    number.href = `#L${line}`;
    number.tabIndex = -1;
    number.dataset.number = line;
    number.setAttribute("aria-label", `Line ${line}`);
    item.append(number);
    if (hasTime && found !== undefined) {
      const time = document.createElement("time");
      time.dateTime = found.at;
      time.dataset.time = found.at.slice(11, 19);
      item.append(time);
    }
    if (isOpen !== null) item.append(this.folder(line, isOpen));
    if (found === undefined) item.classList.add("coming");
    else paint(item, found.text);
    if (found !== undefined && found.to - found.from > LONGEST && found.text.length > LONGEST / 4) {
      const more = document.createElement("a");
      more.href = `/api/v1/runs/${this.run}/log?from=${found.from}&to=${found.to}`;
      more.textContent = ` … ${whole.format(found.to - found.from)} bytes`;
      item.append(more);
    }
    return item;
  }

  folder(line, isOpen) {
    const button = document.createElement("button");
    button.className = "quiet fold";
    button.setAttribute("aria-label", "Output of this step");
    button.setAttribute("aria-expanded", isOpen);
    button.addEventListener("click", () => {
      if (!this.folded.delete(line)) this.folded.add(line);
      this.arrange();
    });
    return button;
  }

  // Returns a line if it is known, and asks for those around it if not.
  row(line) {
    const number = Math.floor((line - 1) / PAGE);
    const page = this.pages.get(number);
    const isStale = page !== undefined && !page.isWhole && page.count !== this.count;
    if (page === undefined || (isStale && !page.isAsked)) this.load(number, page);
    return page?.lines.get(line);
  }

  async load(number, old) {
    const page = old ?? { lines: new Map(), isWhole: false, count: 0 };
    page.isAsked = true;
    this.pages.set(number, page);
    if (this.pages.size > PAGES) this.pages.delete(this.pages.keys().next().value);
    const end = (number + 1) * PAGE;
    try {
      let line = number * PAGE + 1;
      while (line !== null && line <= end) {
        const told = await this.ask({ line, limit: end - line + 1 });
        for (const each of told.lines) page.lines.set(each.line, each);
        page.count = told.count;
        page.isWhole = told.count > end || !told.is_live;
        line = told.next;
      }
    } catch {
      this.pages.delete(number);
      await later(LATER); // the banner says that the engine is gone
    }
    page.isAsked = false;
    this.draw();
  }

  async follow() {
    while (shown === this) {
      const before = this.count;
      try {
        await this.ask({ line: Math.max(1, this.count), limit: 1 });
        if (this.count !== before) this.draw();
        if (this.count > before && this.text) await this.search(this.text, this.searched);
        if (!this.isLive) break;
        await later(document.hidden ? LATER : LOOK);
      } catch {
        await later(LATER);
      }
    }
    const wasLive = this.box.dataset.live !== undefined;
    delete this.box.dataset.live;
    for (const page of this.pages.values()) page.count = -1; // the last line may have grown
    this.draw();
    if (wasLive && shown === this) refresh();
  }

  async search(text, line = 1) {
    if (line === 1) this.hits.clear();
    this.text = text;
    let next = text === "" ? null : line;
    while (next !== null && this.text === text && this.hits.size < HITS) {
      const told = await this.ask({ line: next, search: text, limit: 1000 });
      if (this.text !== text) return;
      for (const each of told.lines) this.hits.add(each.line);
      next = told.next;
      this.searched = Math.max(1, next ?? told.count);
      this.tell(next !== null);
      this.draw();
    }
    this.tell(false);
    this.draw();
  }

  tell(isMore) {
    const found = this.hits.size;
    const words = `${whole.format(found)}${isMore ? "…" : ""} ${found === 1 ? "line" : "lines"}`;
    at("log-hits").textContent = this.text ? words : "";
  }

  step(back) {
    const hits = [...this.hits];
    if (hits.length === 0) return;
    const from = this.hit || (this.lineAt(this.top) ?? 0);
    const next = back ? hits.findLast((each) => each < from) : hits.find((each) => each > from);
    this.hit = next ?? hits.at(back ? -1 : 0);
    this.open(this.hit);
  }

  // Shows a line, which may be in a step that is folded.
  open(line) {
    this.folded.delete(this.headings.findLast((heading) => heading <= line));
    const box = at("log-follow");
    if (box !== null) box.checked = false;
    this.arrange();
    this.go(this.rowOf(line) - this.visible / 3);
  }

  toLink() {
    this.linked = linkedLine();
    if (this.linked > 0) this.open(this.linked);
  }
}

// Returns the line that the address of the page names, or 0.
function linkedLine() {
  return Number(/^#L([1-9][0-9]{0,14})$/.exec(location.hash)?.[1] ?? 0);
}

function gap(bytes) {
  const item = document.createElement("li");
  item.className = "gap";
  item.textContent = `${whole.format(bytes)} bytes left out`;
  return item;
}

// Adds a text in its colours; what else a terminal would obey is left out.
function paint(item, text) {
  let from = 0;
  let styles = new Set();
  const add = (to) => {
    const part = text.slice(from, to).replace(CONTROLS, "");
    if (part === "") return;
    const span = document.createElement("span");
    span.className = [...styles].join(" ");
    span.textContent = part;
    item.append(styles.size > 0 ? span : part);
  };
  for (const code of text.matchAll(CODES)) {
    add(code.index);
    from = code.index + code[0].length;
    if (code[2] === "m") styles = styled(styles, code[1].split(";").map(Number));
  }
  add(text.length);
}

function styled(before, codes) {
  const styles = new Set(before);
  const without = (start) => {
    for (const each of before) if (each.startsWith(start)) styles.delete(each);
  };
  for (let index = 0; index < codes.length; index += 1) {
    let code = codes[index];
    if (code === 38 || code === 48) {
      // Of many colours only the first sixteen have a style.
      const color = codes[index + 1] === 5 ? codes[index + 2] : 16;
      index += codes[index + 1] === 5 ? 2 : 4;
      code += color < 8 ? color - 8 : color < 16 ? color + 44 : 1;
    }
    if (code === 0) styles.clear();
    else if (code === 22) ["bold", "dim"].forEach((each) => styles.delete(each));
    else if (code > 22 && code < 28) styles.delete(STYLES[code - 20]);
    else if (STYLES[code]) styles.add(STYLES[code]);
    else if ((code >= 30 && code < 40) || (code >= 90 && code < 98)) {
      without("fg");
      if (code !== 39) styles.add(`fg${code % 10 + (code >= 90 ? 8 : 0)}`);
    } else if ((code >= 40 && code < 50) || (code >= 100 && code < 108)) {
      without("bg");
      if (code !== 49) styles.add(`bg${code % 10 + (code >= 100 ? 8 : 0)}`);
    }
  }
  return styles;
}

function listen() {
  let typing = null;
  const field = at("log-find");
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => shown.search(field.value).catch(() => {}), 200);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") shown.step(event.shiftKey);
  });
  at("log-follow").addEventListener("change", () => shown.isFollowed && shown.go(shown.last));
  at("log-times").addEventListener("change", () => shown.draw());
  at("log-fold")?.addEventListener("change", (event) => {
    shown.folded = new Set(event.target.checked ? shown.headings : []);
    shown.arrange();
  });
}

addEventListener("hashchange", () => shown?.toLink());

export async function followLog() {
  const box = at("log");
  if (box === null) return;
  if (shown?.box === box) {
    shown.arrange(); // a step may have ended
    return;
  }
  shown = new LogList(box);
  const bar = document.querySelector(".logbar");
  if (bar.dataset.heard === undefined) {
    bar.dataset.heard = "";
    listen();
  }
  const list = shown;
  await list.load(Math.floor((Math.max(1, linkedLine()) - 1) / PAGE));
  list.toLink();
  list.follow();
}
