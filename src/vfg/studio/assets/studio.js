// What the page does by itself: it sends actions, shows the answers and keeps to the keyboard.
(function () {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const props = (id, values) => window.dash_clientside.set_props(id, values);
  let busy = false;      // an action is on its way, and its answer is not there yet
  let waiting = null;    // the latest action that has to wait for it
  let editorKey = null;
  let count = 0;

  function send(action) {
    if (busy) { waiting = action; return; }
    busy = true;
    window.vfgSent = performance.now();
    props("notice", { children: "" });
    props("action", { data: Object.assign({ number: ++count }, action) });
    setTimeout(() => { busy = false; }, 8000);
  }

  function put(id, html) {
    const place = byId(id);
    if (place && place.innerHTML !== html) place.innerHTML = html;
  }

  function show(view) {
    if (!view) return null;
    const active = document.activeElement && document.activeElement.dataset.select;
    put("answers", view.answers);
    put("evidence", view.evidence);
    put("code", view.code);
    if (editorKey !== view.editor_key) { put("editor", view.editor); editorKey = view.editor_key; }
    props("notice", { children: view.error });
    byId("status").textContent = view.error ? "" : view.status;
    byId("undo").disabled = !view.can_undo;
    byId("clear").disabled = !view.given.length;
    if (active) {
      const again = document.querySelector(`.card[data-select="${CSS.escape(active)}"]`);
      if (again && document.activeElement === document.body) again.focus({ preventScroll: true });
    }
    window.vfgShown = performance.now();
    busy = false;
    if (waiting) { const next = waiting; waiting = null; send(next); }
    return view.editor_key;
  }

  function style(theme, view, themes) {
    const look = themes[theme] || themes.light;
    const quoted = (id) => `node[id = "${id.replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"]`;
    const extra = ((view && view.given) || []).map((id) => ({ selector: quoted(id), style: look.given }));
    if (view && view.chosen) extra.push({ selector: quoted(view.chosen), style: look.chosen });
    return look.base.concat(extra);
  }

  function choose(data) {
    if (!data) return null;
    if (data.kind === "group") {
      const open = (window.vfgExpanded = (window.vfgExpanded || []).concat([data.id]));
      props("expanded", { data: open });
    } else if (data.kind === "leaf") {
      send({ kind: "leaf", name: data.id });
    }
    return data.id;
  }

  const nothing = () => window.dash_clientside.no_update;
  function tapped(small, large) {
    const which = window.dash_clientside.callback_context.triggered[0];
    const data = which && which.prop_id.startsWith("ask-graph") ? small : large;
    choose(data);
    return data ? data.id : nothing();
  }

  function hovered(over, tap, name, elements) {
    const which = window.dash_clientside.callback_context.triggered[0].prop_id;
    let data = which.endsWith("tapNodeData") ? tap : over;
    if (which.startsWith("node-by-name")) {
      data = (elements.find((one) => one.data.id === name) || {}).data;
    }
    if (!data) return nothing();
    byId("node-details").innerHTML = data.details;
    byId("node-details").dataset.node = data.id;
    return data.id;
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    studio: { show, style, tapped, hovered },
  });

  // Tabs.
  function openTab(name, focus) {
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
    window.dispatchEvent(new Event("resize"));
    setTimeout(fit, 60);
  }

  function fit() {
    document.querySelectorAll(".__________cytoscape_container").forEach((box) => {
      const drawing = box._cyreg && box._cyreg.cy;
      if (!drawing || !box.offsetWidth) return;
      drawing.resize();
      drawing.fit(undefined, 12);
      if (drawing.zoom() > 1.4) { drawing.zoom(1.4); drawing.center(); }
    });
  }

  document.addEventListener("click", (event) => {
    const hit = (selector) => event.target.closest(selector);
    let found;
    if ((found = hit("[data-tab]"))) openTab(found.dataset.tab, false);
    else if ((found = hit("[data-act]"))) send({ kind: found.dataset.act });
    else if ((found = hit("[data-remove]"))) send({ kind: "remove", name: found.dataset.remove });
    else if ((found = hit("[data-copy]"))) copy(found);
    else if ((found = hit("[data-row-leaf]"))) {
      send({ kind: "row", leaf: found.dataset.rowLeaf, row: Number(byId("row-of-table").value) });
    } else if ((found = hit("[data-select]"))) send({ kind: "select", name: found.dataset.select });
    else if (hit("#fit")) fit();
    else if (hit("#ask-node")) {
      const name = byId("node-details").dataset.node;
      if (name) { send({ kind: "leaf", name }); openTab("ask", true); }
    }
  });

  document.addEventListener("keydown", (event) => {
    const card = event.target.closest(".card[data-select]");
    if (card && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      send({ kind: "select", name: card.dataset.select });
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
      const sent = slider.dataset.kind === "date" ? field.value : value;
      send({ kind: "set", name: slider.dataset.slide, value: sent });
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
    const choice = event.target.closest("[data-choice]");
    if (choice) {
      const name = choice.dataset.choice;
      send(choice.value === "" ? { kind: "remove", name } : { kind: "set", name, value: choice.value, choice: true });
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

  // Light or dark.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => props("theme", { data: dark.matches ? "dark" : "light" });
  dark.addEventListener("change", follow);
  const ready = setInterval(() => {
    if (byId("answers") && window.dash_clientside.set_props) { clearInterval(ready); follow(); setTimeout(fit, 300); }
  }, 50);

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
