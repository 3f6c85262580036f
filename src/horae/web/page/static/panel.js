// Shows why beside the page that asked, instead of in its place.
import { say } from "./actions.js";

const panel = document.getElementById("panel");
const body = document.getElementById("panel-body");

async function open(url) {
  let answer;
  try {
    answer = await fetch(url, { headers: { Accept: "text/html" }, cache: "no-store" });
  } catch {
    say("The engine does not respond.", true);
    return;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const main = page.getElementById("why") ?? page.getElementById("main");
  if (main === null) {
    location.href = url;
    return;
  }
  for (const link of main.querySelectorAll('a[href^="?"]')) {
    link.setAttribute("href", new URL(url, location.href).pathname + link.getAttribute("href"));
    link.dataset.panel = "";
  }
  main.removeAttribute("id");
  body.replaceChildren(document.importNode(main, true));
  if (!panel.open) panel.showModal();
}

export function openPanels() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-panel]");
    if (link === null || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(link.getAttribute("href"));
  });
  panel.addEventListener("click", (event) => {
    if (event.target === panel) panel.close();
  });
}
