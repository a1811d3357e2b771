// Elements, and tables whose rows are kept by key.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/** An element. Texts are texts: nothing that a caller says is read as HTML. */
export const h = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);

/** A text of the proxy, as children of an element: what stands between backticks is code. */
export const words = (text) => text.split(/`([^`]+)`/).map((part, place) => (place % 2 ? h("code", {}, part) : part));

export const svg = (tag, properties = {}, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

/** Put children in place of what is there, unless they look the same; what has the focus keeps it. */
export function put(element, ...children) {
  const fresh = element.cloneNode(false);
  fresh.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  if (fresh.innerHTML === element.innerHTML) return;
  const held = element.contains(document.activeElement) ? document.activeElement.dataset?.act : null;
  element.replaceChildren(...fresh.childNodes);
  if (held) element.querySelector(`[data-act="${CSS.escape(held)}"]`)?.focus();
}

/**
 * Make the rows of a table body those of the items, by key. While pointer or focus is in it, rows keep their places:
 * what you are about to click on does not move away.
 */
export function rows(body, items, key, render) {
  const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const busy = body.matches(":hover") || body.contains(document.activeElement);
  const fresh = [];
  for (const item of items) {
    const name = key(item);
    const row = render(item);
    const kept = old.get(name);
    row.dataset.key = name;
    old.delete(name);
    if (kept === undefined) {
      fresh.push(row);
      continue;
    }
    if (kept.className !== row.className) kept.className = row.className;
    if (kept.innerHTML !== row.innerHTML) put(kept, ...row.childNodes);
    kept.open = row.open;
    kept.act = row.act;
    fresh.push(kept);
  }
  for (const [, gone] of old) {
    if (gone.contains(document.activeElement) || gone === document.activeElement) {
      gone.classList.add("over");
      gone.querySelectorAll("button").forEach((one) => (one.disabled = true));
      fresh.push(gone);
    } else gone.remove();
  }
  if (busy) fresh.filter((row) => row.parentNode !== body).forEach((row) => body.append(row));
  else fresh.forEach((row, place) => body.children[place] === row || body.insertBefore(row, body.children[place] ?? null));
  const focusable = [...body.children].filter((row) => row.tabIndex >= 0);
  if (focusable.length === 0 && body.children.length) body.children[0].tabIndex = 0;
}

/** A bar: how much of a limit is used; `tick` marks another level, 0 to 1. */
export function bar(used, tick = null) {
  const percent = (part) => `${Math.max(0, Math.min(1, part)) * 100}%`;
  return svg("svg", { class: "bar", "aria-hidden": "true" },
    svg("rect", { class: "track", width: "100%", height: 4, y: 2 }),
    svg("rect", { class: "used", width: percent(used), height: 4, y: 2 }),
    tick === null ? null : svg("rect", { class: "tick", x: percent(tick), width: 2, height: 8 }));
}
