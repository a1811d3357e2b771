// The policy in force, and what a reload would change.

import { problem } from "./actions.js";
import { h, put } from "./dom.js";
import { ask } from "./feed.js";

/** Show the files; `at` is a place such as "/etc/team.hmp:61". */
export async function show(main, at) {
  put(main, h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / policy"), h("p", { class: "empty" }, "reading …"));
  const found = await ask("/v1/policy");
  const change = await ask("/v1/policy/diff").catch((error) => ({ text: error.message, old: "", new: "x" }));
  const [, file, line] = /^(.*):(\d+)$/.exec(at ?? "") ?? [];
  const named = (path) => path === file || path.endsWith(`/${file}`) || (file ?? "").endsWith(`/${path}`);
  const differs = change.old !== change.new;
  put(main,
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / policy"),
    h("div", { class: "title" }, h("h2", { class: "title-name" }, found.path.split("/").at(-1)), h("code", { class: "dim" }, found.hash.slice(0, 8)),
      differs ? h("span", { class: "act" }, h("button", { type: "button", "data-act": "reload", onclick: () => reload(main, found.hash) }, "Reload")) : null),
    h("p", { class: "lede" }, differs ? "The file has changed since; a reload would do this:" : "The file has the policy that is in force."),
    differs ? h("pre", { class: "scroll" }, change.text) : null,
    Object.entries(found.files).map(([path, text]) => h("section", {}, h("div", { class: "head" }, h("h2", {}, path)),
      h("ol", { class: "source", tabindex: 0, "aria-label": `text of ${path}` }, text.replace(/\n$/, "").split("\n").map((one, place) =>
        h("li", { class: named(path) && place + 1 === Number(line) ? "here" : null }, one || " "))))));
  main.querySelector(".here")?.scrollIntoView({ block: "center" });
}

async function reload(main, hash) {
  const answer = await fetch("/v1/reload", { method: "POST", headers: { "if-match": `"${hash}"` } });
  if (answer.ok) {
    await show(main, null);
    return;
  }
  const found = await answer.json().catch(() => ({}));
  problem([found.detail ?? `status ${answer.status}`, ...(found.diagnostics ?? [])].join("\n"));
}
