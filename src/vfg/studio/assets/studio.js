// What the page does by itself: it sends actions, shows the answers and keeps to the keyboard.
(function () {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const props = (id, values) => window.dash_clientside.set_props(id, values);
  const nothing = () => window.dash_clientside.no_update;
  let busy = false;      // an action is on its way, and its answer is not there yet
  let waiting = null;    // the latest action that has to wait for it
  let sent = null;       // the action whose answer comes next
  let view = null;       // what is shown
  let count = 0;

  function send(action) {
    if (busy) { waiting = action; return; }
    busy = true;
    sent = action;
    window.vfgSent = performance.now();
    props("action", { data: Object.assign({ number: ++count }, action) });
    setTimeout(() => { busy = false; }, 8000);
  }

  function put(id, html) {
    const place = byId(id);
    if (place && place.innerHTML !== html) place.innerHTML = html;
  }

  // Cards are replaced one by one, and controls that are in use stay as they are.
  function showAnswers(html) {
    const made = document.createElement("template");
    made.innerHTML = html;
    const place = byId("answers");
    const ink = place.querySelector(".inks input:checked");
    const chosen = ink && made.content.querySelector(`.inks input[value="${ink.value}"]`);
    if (chosen) chosen.setAttribute("checked", "");
    const old = Array.from(place.querySelectorAll(".card[data-select]"));
    const fresh = Array.from(made.content.querySelectorAll(".card[data-select]"));
    const same = old.length && old.length === fresh.length && old.every((one, k) => one.dataset.select === fresh[k].dataset.select);
    if (!same) { place.replaceChildren(made.content); return; }
    old.forEach((one, k) => { if (one.outerHTML !== fresh[k].outerHTML) replaceCard(one, fresh[k]); });
    [".pictures", ".latent-nodes"].forEach((part) => {
      const before = place.querySelector(part), after = made.content.querySelector(part);
      if (before && after && before.outerHTML !== after.outerHTML) before.replaceWith(after);
      else if (before && !after) before.remove();
      else if (after && !before) place.append(after);
    });
  }

  function replaceCard(old, fresh) {
    const kept = old.querySelector(".editor"), made = fresh.querySelector(".editor");
    if (!(kept && made && kept.dataset.key === made.dataset.key)) { old.replaceWith(fresh); return; }
    Array.from(fresh.attributes).forEach((one) => old.setAttribute(one.name, one.value));
    const parts = Array.from(fresh.childNodes);
    const middle = parts.indexOf(made);
    Array.from(old.childNodes).forEach((one) => { if (one !== kept) one.remove(); });
    kept.before(...parts.slice(0, middle));
    kept.after(...parts.slice(middle + 1));
  }

  const focusKeys = ["select", "set", "type", "slide", "remove", "node", "rowLeaf"];
  function focusMark() {
    const active = document.activeElement;
    const key = active && focusKeys.find((one) => active.dataset && active.dataset[one]);
    if (!key) return null;
    const name = "data-" + key.replace(/[A-Z]/g, (letter) => "-" + letter.toLowerCase());
    const value = active.dataset.value ? `[data-value="${CSS.escape(active.dataset.value)}"]` : "";
    const inside = active.closest("[id]");
    return { inside: inside && inside.id, mark: `[${name}="${CSS.escape(active.dataset[key])}"]`, value: key === "set" ? value : "" };
  }

  function show(shown) {
    if (!shown) return null;
    const focus = focusMark();
    const first = view === null;
    view = shown;
    showAnswers(view.answers);
    put("introduction", view.introduction);
    put("evidence", view.evidence);
    put("code", view.code);
    put("ask-graph", view.graph);
    showGraph(view.large);
    put("node-details", view.node || "<p class=note>Choose a node to see its columns, width and edges.</p>");
    byId("node-details").dataset.node = view.chosen;
    byId("ask-node").disabled = !view.chosen;
    showError(view.error);
    byId("baseline").textContent = view.baseline;
    byId("status").textContent = view.error ? "" : view.status;
    byId("undo").disabled = !view.can_undo;
    byId("clear").disabled = !Object.keys(view.values).length;
    ["observe", "intervene"].forEach((mode) => {
      byId(mode).setAttribute("aria-pressed", view.mode === mode ? "true" : "false");
    });
    byId("meaning").textContent = view.meaning;
    byId("posterior-key").textContent = view.mode === "observe" ? "given the evidence" : "when setting the values";
    byId("compare").disabled = !view.compared && !Object.keys(view.values).length;
    byId("compare").textContent = view.compared ? "Stop comparing" : "Compare";
    refocus(focus);
    window.vfgShown = performance.now();
    busy = false;
    if (first) setTimeout(() => { tellWindow(); openAddress(); }, 0);  // not while Dash still hands out this answer
    else writeAddress();
    showCases();
    if (waiting) { const next = waiting; waiting = null; send(next); }
    return count;
  }

  function refocus(focus) {
    const opened = sent && sent.kind === "select" && document.querySelector(".card.selected .editor");
    if (opened && !opened.contains(document.activeElement)) {
      const control = opened.querySelector("[data-type]") || opened.querySelector("[aria-pressed=true], button, input, select");
      if (control) { control.focus({ preventScroll: true }); return; }
    }
    if (!focus || document.activeElement !== document.body) return;
    const again = document.querySelector(`#${focus.inside} ${focus.mark}${focus.value}`) || document.querySelector(focus.mark);
    if (again) again.focus({ preventScroll: true });
  }

  // A message stands where its cause is, and leaves with the next answer.
  function showError(message) {
    document.querySelectorAll(".card .problem").forEach((one) => one.remove());
    const card = sent && sent.kind === "set" && document.querySelector(".card.selected");
    props("notice", { children: card ? "" : message });
    if (!card || !message) return;
    const text = document.createElement("p");
    text.className = "problem";
    text.setAttribute("role", "alert");
    text.textContent = message;
    card.append(text);
  }

  // The address holds the page and the evidence, so that it can be kept, sent and gone back to.
  function address() {
    const values = new URLSearchParams(view ? view.values : {}).toString();
    const tab = document.querySelector("[role=tab][aria-selected=true]").dataset.tab;
    return "#" + tab + (values ? "?" + values : "");
  }
  function writeAddress() {
    const next = address();
    if (location.hash === next || (next === "#ask" && !location.hash)) return;
    // Dragging a slider is one step.
    const small = sent && sent.slide && location.hash.includes(encodeURIComponent(sent.name) + "=");
    history[small ? "replaceState" : "pushState"](null, "", next);
  }
  function openAddress() {
    const [tab, values] = location.hash.slice(1).split("?");
    if (document.getElementById("tab-" + tab)) openTab(tab, false, true);
    const evidence = Object.fromEntries(new URLSearchParams(values || ""));
    const now = JSON.stringify(view ? view.values : {});
    if (JSON.stringify(evidence) !== now) send({ kind: "load", evidence });
  }
  window.addEventListener("popstate", openAddress);

  // Narrow windows have a drawing of the graph of their own, instead of one that is too small to read.
  const narrow = window.matchMedia("(max-width: 700px)");
  function tellWindow() {
    if (view && view.narrow !== narrow.matches) send({ kind: "window", narrow: narrow.matches });
  }
  narrow.addEventListener("change", tellWindow);

  // Saved cases stay in this browser.
  const caseKey = () => "vfg cases " + (document.querySelector(".model strong") || {}).textContent;
  const readCases = () => { try { return JSON.parse(localStorage.getItem(caseKey())) || []; } catch { return []; } };
  function showCases() {
    const place = byId("cases");
    if (!place) return;
    byId("save-case").disabled = !Object.keys(view.values).length;
    place.replaceChildren(...readCases().map((evidence, k) => {
      const row = document.createElement("div");
      const words = Object.entries(evidence).map(([name, value]) => `${name} = ${value}`).join(", ");
      const open = document.createElement("button");
      open.textContent = words; open.title = words; open.dataset.openCase = k; open.type = "button";
      const drop = document.createElement("button");
      drop.textContent = "×"; drop.className = "quiet"; drop.dataset.dropCase = k; drop.type = "button";
      drop.setAttribute("aria-label", "Forget the case " + words);
      row.append(open, drop);
      return row;
    }));
  }
  function keepCases(cases) {
    try { localStorage.setItem(caseKey(), JSON.stringify(cases.slice(0, 20))); } catch { /* private windows keep none */ }
    showCases();
  }

  // The large graph: zoom by buttons or with Ctrl and the wheel, move by dragging.
  let whole = null;
  let box = null;
  function showGraph(html) {
    put("graph", html);
    const svg = document.querySelector("#graph svg");
    const size = svg.getAttribute("viewBox");
    if (size !== whole) { whole = size; box = size.split(" ").map(Number); }
    svg.setAttribute("viewBox", box.join(" "));
  }
  function zoom(by, x, y) {
    const full = whole.split(" ").map(Number);
    const factor = Math.min(Math.max(by, 0.1 * full[2] / box[2]), full[2] / box[2]);
    const cx = x === undefined ? box[0] + box[2] / 2 : x, cy = y === undefined ? box[1] + box[3] / 2 : y;
    box = [cx - (cx - box[0]) * factor, cy - (cy - box[1]) * factor, box[2] * factor, box[3] * factor];
    if (factor === full[2] / box[2]) box = full;
    document.querySelector("#graph svg").setAttribute("viewBox", box.join(" "));
  }
  function inGraph(event) {
    const svg = document.querySelector("#graph svg");
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [at.x, at.y];
  }
  document.addEventListener("wheel", (event) => {
    if (!event.ctrlKey || !event.target.closest("#graph")) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.15 : 0.87, ...inGraph(event));
  }, { passive: false });
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest("#graph svg") || event.target.closest(".node")) return;
    const start = inGraph(event);
    const move = (now) => {
      const [x, y] = inGraph(now);
      box = [box[0] + start[0] - x, box[1] + start[1] - y, box[2], box[3]];
      document.querySelector("#graph svg").setAttribute("viewBox", box.join(" "));
    };
    document.addEventListener("pointermove", move);
    document.addEventListener("pointerup", () => document.removeEventListener("pointermove", move), { once: true });
  });
  function saveGraph() {
    const svg = document.querySelector("#graph svg").cloneNode(true);
    svg.setAttribute("viewBox", whole);
    svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const inks = getComputedStyle(document.querySelector(".studio"));
    const rules = Array.from(document.styleSheets).flatMap((sheet) => Array.from(sheet.cssRules))
      .filter((rule) => rule.selectorText && rule.selectorText.includes("svg.graph"))
      .map((rule) => rule.cssText.replaceAll(".vfg-cards ", "").replace(/var\((--[\w-]+)\)/g, (_, name) => inks.getPropertyValue(name)));
    const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
    style.textContent = rules.join("\n");
    svg.prepend(style);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }));
    link.download = "graph.svg";
    link.click();
  }
  // Pixels: what is drawn in one stroke is one step.
  document.addEventListener("pointerdown", (event) => {
    const paper = event.target.closest("[data-paint]");
    if (!paper) return;
    event.preventDefault();
    const ink = document.querySelector(".inks input:checked").value;
    const brush = paper.getContext("2d");
    const pixels = new Set();
    const draw = (now) => {
      const edge = paper.getBoundingClientRect();
      const x = Math.floor((now.clientX - edge.left) / edge.width * paper.width);
      const y = Math.floor((now.clientY - edge.top) / edge.height * paper.height);
      if (x < 0 || y < 0 || x >= paper.width || y >= paper.height) return;
      pixels.add(y * paper.width + x);
      brush.fillStyle = ink === "unknown" ? "#8fa6ff" : ink;
      brush.fillRect(x, y, 1, 1);
    };
    draw(event);
    document.addEventListener("pointermove", draw);
    document.addEventListener("pointerup", () => {
      document.removeEventListener("pointermove", draw);
      send({ kind: "paint", ink, pixels: Array.from(pixels) });
    }, { once: true });
  });

  function showNode(name) {
    if (!name) return nothing();
    send({ kind: "node", name });
    return name;
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, { studio: { show, showNode } });

  // Tabs.
  function openTab(name, focus, silent) {
    document.querySelectorAll("[role=tab]").forEach((tab) => {
      const own = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", own ? "true" : "false");
      tab.tabIndex = own ? 0 : -1;
      if (own && focus) tab.focus();
    });
    document.querySelectorAll("[role=tabpanel]").forEach((panel) => {
      panel.hidden = panel.id !== "panel-" + name;
    });
    props("tab", { data: name });
    props("notice", { children: "" });
    if (!silent) writeAddress();
    window.dispatchEvent(new Event("resize"));
  }

  document.addEventListener("click", (event) => {
    const hit = (selector) => event.target.closest(selector);
    let found;
    if ((found = hit("[data-tab]"))) openTab(found.dataset.tab, false);
    else if ((found = hit("[data-act]"))) send({ kind: found.dataset.act });
    else if ((found = hit("[data-remove]"))) send({ kind: "remove", name: found.dataset.remove });
    else if ((found = hit("[data-copy]"))) copy(found);
    else if ((found = hit("[data-cell-row]"))) {
      props("cell-row", { value: Number(found.dataset.cellRow) });
      props("cell-column", { value: found.dataset.cellColumn });
    }
    else if ((found = hit("[data-zoom]"))) {
      const what = found.dataset.zoom;
      if (what === "SVG") saveGraph();
      else if (what === "Reset") zoom(Infinity);
      else zoom(what === "+" ? 0.7 : 1.4);
    } else if ((found = hit("[data-set]"))) {
      send({ kind: "set", name: found.dataset.set, value: found.dataset.value, choice: true });
    } else if ((found = hit("[data-row-leaf]"))) {
      const row = document.querySelector(".row-of-table");
      send({ kind: "row", leaf: found.dataset.rowLeaf, row: Number(row.value) });
    } else if ((found = hit("[data-evidence]"))) {
      send({ kind: "load", evidence: JSON.parse(found.dataset.evidence) });
    } else if (hit("#save-case")) {
      const same = JSON.stringify(view.values);
      keepCases([view.values].concat(readCases().filter((one) => JSON.stringify(one) !== same)));
    }
    else if ((found = hit("[data-open-case]"))) send({ kind: "load", evidence: readCases()[found.dataset.openCase] });
    else if ((found = hit("[data-drop-case]"))) keepCases(readCases().filter((_, k) => k !== Number(found.dataset.dropCase)));
    else if ((found = hit("[data-node]"))) send({ kind: "node", name: found.dataset.node });
    else if (hit(".editor")) return;
    else if ((found = hit("[data-select]"))) {
      const again = found.matches(".card.selected");
      send({ kind: "select", name: again ? "" : found.dataset.select });
    } else if (hit("#ask-node")) {
      if (view.chosen) { openTab("ask", true); send({ kind: "node", name: view.chosen }); }
    }
  });

  document.addEventListener("keydown", (event) => {
    const button = event.target.matches(".card[role=button], g.node") && event.target;
    if (button && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      send(button.dataset.node ? { kind: "node", name: button.dataset.node } : { kind: "select", name: button.dataset.select });
    }
    if (event.key === "Escape" && event.target.closest(".editor")) {
      const card = event.target.closest(".card");
      card.tabIndex = -1;
      card.focus();
      send({ kind: "select", name: "" });
    }
    const tab = event.target.closest("[role=tab]");
    if (tab && ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
      const all = Array.from(document.querySelectorAll("[role=tab]"));
      const last = all.length - 1;
      const here = all.indexOf(tab);
      const next = { ArrowLeft: here ? here - 1 : last, ArrowRight: here < last ? here + 1 : 0, Home: 0, End: last };
      openTab(all[next[event.key]].dataset.tab, true);
      event.preventDefault();
    }
    if ((event.ctrlKey || event.metaKey) && event.key === "z" && !event.target.closest("input, textarea")) {
      event.preventDefault();
      send({ kind: "undo" });
    }
  });

  document.addEventListener("input", (event) => {
    const slider = event.target.closest("[data-slide]");
    if (slider) {
      const step = Number(slider.dataset.step);
      const low = Number(slider.min);
      const place = low + Math.round((Number(slider.value) - low) / step) * step;
      const value = Math.min(Number(slider.max), Number(place.toPrecision(10)));
      const field = document.querySelector("[data-type]");
      if (field && slider.dataset.kind !== "date") field.value = value;
      if (field && slider.dataset.kind === "date") {
        field.value = new Date(value * 864e5).toISOString().slice(0, 10);
      }
      const moved = slider.dataset.kind === "date" ? field.value : value;
      send({ kind: "set", name: slider.dataset.slide, value: moved, slide: true });
    }
    if (event.target.id === "search") send({ kind: "find", text: event.target.value });
  });

  document.addEventListener("change", (event) => {
    const field = event.target.closest("[data-type]");
    if (field) {
      const name = field.dataset.type;
      const action = field.value.trim() ? { kind: "set", name, value: field.value } : { kind: "remove", name };
      send(action);
      const slider = document.querySelector("[data-slide]");
      if (slider && Number.isFinite(Number(field.value))) slider.value = Number(field.value);
    }
    if (event.target.closest("[data-pick]")) send({ kind: "select", name: event.target.value });
  });

  // Files that are too large are refused before they are read.
  const most = 64 * 1024 * 1024;
  function refuse(event, files) {
    const large = Array.from(files || []).find((file) => file.size > most);
    if (!large) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const size = Math.round(large.size / 1048576);
    props("notice", { children: `${large.name} has ${size} MiB, and the page takes 64; fill it with: vfg impute` });
  }
  document.addEventListener("change", (event) => {
    if (event.target.type === "file") refuse(event, event.target.files);
  }, true);
  document.addEventListener("drop", (event) => {
    if (event.dataTransfer) refuse(event, event.dataTransfer.files);
  }, true);
  // A file that is dropped beside its place must not replace the page.
  ["dragover", "drop"].forEach((kind) => document.addEventListener(kind, (event) => {
    if (!event.target.closest(".upload")) event.preventDefault();
  }));

  function copy(button) {
    const text = byId("code-" + button.dataset.copy).textContent;
    const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
    const by_hand = () => {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      done();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, by_hand);
    else by_hand();
  }

  document.documentElement.lang = "en";

  // What Dash leaves without a name or a proper role for assistive technology.
  function describe() {
    // The keyboard goes to the button of a list, which has a name, not to the hidden field beside it.
    document.querySelectorAll(".dash-dropdown-focus-target[tabindex='0']").forEach((one) => { one.tabIndex = -1; });
    document.querySelectorAll("button.dash-dropdown").forEach((one) => {
      if (one.tabIndex !== 0) one.tabIndex = 0;
      const words = one.closest("label") && one.closest("label").firstElementChild;
      if (!words || words.contains(one)) return;
      words.id = one.id + "-label";
      const names = one.getAttribute("aria-labelledby") || "";
      if (!names.startsWith(words.id)) one.setAttribute("aria-labelledby", (words.id + " " + names).trim());
    });
    document.querySelectorAll("input[type=file]:not([aria-label])").forEach((one) => {
      one.setAttribute("aria-label", "Choose a file");
    });
    document.querySelectorAll(".dash-radioitems[role=listbox]").forEach((one) => {
      one.setAttribute("role", "radiogroup");
      one.setAttribute("aria-label", one.parentElement.firstElementChild.textContent);
    });
    document.querySelectorAll(".dash-radioitems [role=option]").forEach((one) => {
      one.removeAttribute("role");
      one.removeAttribute("aria-selected");
    });
  }
  const attributes = { attributes: true, attributeFilter: ["role", "tabindex", "aria-labelledby"] };
  new MutationObserver(describe).observe(document.documentElement, { childList: true, subtree: true, ...attributes });

  // Whether somebody still answers.
  let instance = null;
  async function alive() {
    const place = byId("offline");
    try {
      const reply = await fetch("alive", { cache: "no-store" });
      const told = await reply.json();
      if (instance && told.instance !== instance) location.reload();
      instance = told.instance;
      if (place) place.hidden = true;
    } catch {
      if (place) place.hidden = false;
    }
  }
  setInterval(alive, 4000);
  alive();
})();
