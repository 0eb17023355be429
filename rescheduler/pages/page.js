"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const nodes = () => [...document.querySelectorAll("details.node")];

  // Search: a node is shown if it contains all words. Its pods are shown if they match, or if the node's own line does.
  const texts = new WeakMap();
  const text = (element) => {
    if (!texts.has(element)) texts.set(element, element.textContent.toLowerCase());
    return texts.get(element);
  };
  const openedBySearch = new WeakSet();

  function showPods(node, matches, all) {
    const pods = [...node.querySelectorAll(".pod")];
    const matching = all ? [] : pods.filter(matches);
    for (const pod of pods) pod.hidden = matching.length > 0 && !matching.includes(pod);
    if (matching.length > 0 && !node.open) {
      node.open = true;
      openedBySearch.add(node);
    } else if (all && openedBySearch.delete(node)) {
      node.open = false;
    }
  }

  function search() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (element) => words.every((word) => text(element).includes(word));
    let shown = 0;
    const all = nodes();
    for (const node of all) {
      node.hidden = !matches(node);
      if (!node.hidden) {
        shown += 1;
        showPods(node, matches, words.length === 0 || matches(node.firstElementChild));
      }
    }
    const count = words.length === 0 ? "" : `${shown} of ${all.length} nodes match`;
    if (byId("count").textContent !== count) byId("count").textContent = count;
  }

  function useTools() {
    byId("tools").hidden = false;
    byId("search").addEventListener("input", search);
    byId("open-all").addEventListener("click", () => nodes().forEach((node) => { node.open = !node.hidden; }));
    byId("close-all").addEventListener("click", () => nodes().forEach((node) => { node.open = false; }));
  }

  // Print with all nodes open.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = nodes().filter((node) => !node.open);
    for (const node of closed) node.open = true;
  });
  addEventListener("afterprint", () => {
    for (const node of closed) node.open = false;
  });

  // Live update: read the page again and replace the parts that changed. Open nodes and the search are kept.
  const INTERVAL = 2000, LONGEST = 60000;
  let tag = null, failures = 0, timer = 0;

  function updateNodes(current, next) {
    const known = new Map([...current.querySelectorAll("details.node")].map((node) => [node.id, node]));
    const list = [...next.querySelectorAll("details.node")].map((node) => {
      const old = known.get(node.id);
      if (old && old.dataset.version === node.dataset.version) return old;
      if (!old) return node;
      node.open = old.open;
      if (openedBySearch.has(old)) openedBySearch.add(node);
      return node;
    });
    const focused = document.activeElement?.closest("details.node")?.id;
    const container = current.querySelector(".nodes"), target = next.querySelector(".nodes");
    if (container && target) {
      container.className = target.className;
      container.replaceChildren(...list);
    } else {
      current.replaceChildren(...next.childNodes);
    }
    if (focused && !document.activeElement?.closest("details.node")) byId(focused)?.firstElementChild.focus();
  }

  function update(page) {
    for (const current of document.querySelectorAll("[data-part]")) {
      const next = page.getElementById(current.id);
      if (!next || next.dataset.part === current.dataset.part) continue;
      current.dataset.part = next.dataset.part;
      if (current.id === "nodes") updateNodes(current, next);
      else current.replaceChildren(...next.childNodes);
    }
    document.title = page.title;
    tick();
    search();
  }

  // Add to each time how long ago it was. Texts of parts are compared without it.
  function tick() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = Math.max(0, Math.round((Date.now() - Date.parse(time.dateTime)) / 1000));
      const ago = seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
      time.textContent = `${time.dateTime} (${ago} ago)`;
    }
  }

  async function poll() {
    try {
      const headers = tag ? { Accept: "text/html", "If-None-Match": tag } : { Accept: "text/html" };
      const answer = await fetch(location.pathname, { headers });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        update(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } else if (answer.status !== 304) {
        throw new Error(`status ${answer.status}`);
      }
      failures = 0;
    } catch {
      failures += 1;
    }
    const message = failures === 0 ? "" : "The daemon does not respond; this page shows an earlier state.";
    if (byId("connection").textContent !== message) byId("connection").textContent = message;
    schedule();
  }

  function schedule() {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(poll, Math.min(LONGEST, INTERVAL * 2 ** failures));
  }

  if (byId("search")) useTools();
  if (document.body.dataset.live !== undefined) {
    document.addEventListener("visibilitychange", schedule);
    setInterval(tick, 1000);
    tick();
    schedule();
  }
})();
