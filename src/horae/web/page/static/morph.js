// Makes one part of a page like another by changing only what differs. Both were written by the
// server, which escapes every text; here nodes are only moved, and no text becomes markup.

const JUST_NOW = 500; // milliseconds in which nobody reads what a button says
const OURS = ["open", "data-busy", "data-fresh"]; // which the server knows nothing of

export function morph(old, next) {
  if (old.classList?.contains("sure")) return; // it waits for a second word
  if (old.dataset?.keep !== undefined && old.dataset.run === next.dataset?.run) return;
  if (old.dataset?.keep !== undefined) {
    old.replaceWith(document.importNode(next, true));
    return;
  }
  setAttributes(old, next);
  setChildren(old, next);
}

function posts(button) {
  return button.getAttribute("formaction")?.split("?", 1)[0];
}

function setAttributes(old, next) {
  if (posts(old) !== posts(next)) {
    old.dataset.fresh = ""; // it does something else now, and nobody has read that yet
    setTimeout(() => delete old.dataset.fresh, JUST_NOW);
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !OURS.includes(name)) {
      old.removeAttribute(name);
    }
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function isSame(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) return false;
  return old.nodeType !== Node.ELEMENT_NODE || old.id === next.id;
}

// Rows stay where they are while a pointer or the focus is on them: only what they say changes, and
// one that is no longer there is shown as such.
function setSteady(old, next) {
  for (const known of old.children) {
    const isLeft = known.id && !next.querySelector(`:scope > #${CSS.escape(known.id)}`);
    known.classList.toggle("left", Boolean(isLeft));
  }
  for (const wanted of next.children) {
    const known = wanted.id ? old.querySelector(`:scope > #${CSS.escape(wanted.id)}`) : null;
    if (known === null) old.append(document.importNode(wanted, true));
    else morph(known, wanted);
  }
}

function setChildren(old, next) {
  const isHeld = old.dataset?.steady !== undefined && old.childElementCount > 0;
  if (isHeld && (old.matches(":hover") || old.contains(document.activeElement))) {
    setSteady(old, next);
    return;
  }
  const named = new Map();
  for (const child of old.children) if (child.id) named.set(child.id, child);
  let place = old.firstChild;
  for (const wanted of [...next.childNodes]) {
    const known = wanted.id ? named.get(wanted.id) : undefined;
    if (known !== undefined && known !== place && known.nodeName === wanted.nodeName) {
      old.insertBefore(known, place);
      place = known;
    }
    if (place !== null && isSame(place, wanted)) {
      const after = place.nextSibling;
      if (place.nodeType === Node.ELEMENT_NODE) morph(place, wanted);
      else if (place.nodeValue !== wanted.nodeValue) place.nodeValue = wanted.nodeValue;
      place = after;
    } else {
      old.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place !== null) {
    const after = place.nextSibling;
    place.remove();
    place = after;
  }
}
