// What stands below the columns: kernels, the chosen one, the chosen pass, the plan and its memory.

import { drawing, make } from "explore/dom.js";
import { SentenceTab } from "explore/sentence.js";

const microseconds = (value) => value === null || value === undefined ? "–" : `${number(value, value < 100 ? 2 : 0)} µs`;
const number = (value, digits = 0) => value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });

/** The schedules that a product could be by: the modelled times, the least first, and why others leave it. */
function offers(k) {
  const able = k.offers.filter((offer) => offer.us !== undefined).sort((a, b) => a.us - b.us), most = Math.max(1e-9, ...able.map((offer) => offer.us));
  return make("table", { class: "offers" }, make("thead", {}, make("tr", {}, ...["could be by", "modelled", "", ""].map((each) => make("th", {}, each)))), make("tbody", {},
    ...able.map((offer) => make("tr", { "aria-selected": offer.schedule === k.chosen }, make("td", { class: "mono" }, offer.schedule), make("td", { class: "num" }, microseconds(offer.us)),
      make("td", {}, make("span", { class: "bar", style: `width:${Math.round(120 * offer.us / most)}px` })), make("td", {}, offer.schedule === k.chosen ? "✓ taken" : `${number(offer.us / able[0].us, 2)} of the least`))),
    ...k.offers.filter((offer) => offer.us === undefined).map((offer) => make("tr", {}, make("td", { class: "mono" }, offer.schedule), make("td", { class: "num" }, "–"),
      make("td", { colspan: 2, class: "reason" }, offer.refused)))));
}

export class Drawer {
  constructor(model, footer) {
    this.model = model;
    this.tabs = {
      Kernels: () => this.kernels(), "This kernel": () => this.kernel(), "This pass": () => this.pass(),
      ...(model.data.plan ? { Plan: () => this.plan(), Memory: () => this.memory() } : {}),
      ...(model.data.times.length ? { Time: () => this.time() } : {}),
    };
    if (model.data.sentence) {
      const tab = new SentenceTab(model);
      this.tabs.Sentence = () => tab.draw();
    }
    this.entry = 0;
    this.nav = make("nav", { role: "tablist" });
    this.body = make("div", { class: "drawer" });
    this.footer = footer;
    footer.append(this.nav, this.body);
    model.addEventListener("chosen", () => this.draw());
    model.addEventListener("lit", () => this.draw());
    this.show("Kernels");
  }

  show(tab) {
    this.footer.toggleAttribute("data-closed", false);
    this.tab = tab;
    this.draw();
    this.body.scrollTop = 0;
  }

  draw() {
    const names = Object.keys(this.tabs);
    this.nav.replaceChildren(...names.map((name) => make("button", {
      role: "tab", "aria-selected": name === this.tab, onclick: () => this.show(name),
    }, name)), make("span", { class: "grow" }), make("button", {
      title: "less room or more", onclick: () => this.footer.toggleAttribute("data-closed"),
    }, "▾"));
    const { scrollTop, scrollLeft } = this.body;
    this.body.replaceChildren(...this.tabs[this.tab]());
    Object.assign(this.body, { scrollTop, scrollLeft });
    this.body.querySelector('tr[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }

  kernels() {
    const { model } = this, { kernels } = model.data;
    const most = Math.max(1e-9, ...Object.values(kernels).map((each) => (each.floor ?? each.bytes / 1e5 ?? 0) * each.launches));
    const head = ["kernel", "launches", "grid", "block", "registers", "shared", "spills", "MB", "Mflop", "floor µs", ...(model.measured ? ["measured µs"] : []), ""];
    const rows = model.kernels.map((name) => {
      const k = kernels[name];
      const cells = !k ? [] : [
        number(k.launches), k.grid.join("×"), k.block.join("×"), number(k.back?.registers),
        number((k.back?.shared ?? 0) + k.shared || null), number(k.back?.spills), number(k.bytes / 1e6, 2), number(k.operations / 1e6, 2), number(k.floor, 2),
        ...(model.measured ? [number(model.measured.get(name), 2)] : [])];
      const share = k ? (k.floor ?? k.bytes / 1e5 ?? 0) * k.launches / most : 0;
      return make("tr", {
        class: `pick ${model.functionIsLit(name) ? "lit" : ""}`, "aria-selected": name === model.chosen.function, "data-kernel": name,
        onclick: () => model.choose({ function: name }),
      }, make("td", { class: "mono" }, make("span", { class: "swatch", style: `--hue:${model.hue(name)}` }), k?.label ?? name),
      ...cells.map((cell) => make("td", { class: "num" }, cell)),
      make("td", {}, k ? make("span", { class: "bar floor", style: `width:${Math.round(140 * share)}px`, title: "its share of the floor of all launches" }) : ""));
    });
    return [make("table", {}, make("thead", {}, make("tr", {}, ...head.map((each, i) => make("th", { class: i && i < head.length - 1 ? "num" : "" }, each)))), make("tbody", {}, ...rows))];
  }

  /** Who took a kernel and why: the passes that scheduled it, and what each schedule said that was asked. */
  kernel() {
    const { model } = this, name = model.chosen.function, k = model.data.kernels[name], { passes } = model.data;
    const steps = model.outlines.get(name).filter((step) => step.number > 0);
    const taken = model.schedulers(name), refusals = model.refusals(name);
    const made = steps[0] && passes[steps[0].number - 1];
    const card = (title, ...inside) => make("div", { class: "card" }, make("h3", {}, title), ...inside);
    const list = (pairs) => make("dl", {}, ...pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value)]));
    const why = list([
      ["made by", made?.name], ["taken by", taken.length ? taken.map((step) => passes[step.number - 1].name).join(", then ") : "no schedule: as it was written"],
      ["by tiles", k?.tiles], ["runs", k?.schedule],
    ]);
    const first = taken.length ? taken[0].number : Infinity;
    const asked = [...new Set(passes.filter((pass, i) => pass.stage === "schedule" && i + 1 < first && pass.name.startsWith("schedule")).map((pass) => pass.name))];
    const silent = asked.filter((each) => !refusals.some(([pass]) => pass === each));
    const cards = [card("Its schedule", why, ...(k?.offers.length ? [offers(k)] : []),
      ...(!k?.offers.length && silent.length ? [make("p", { class: "quiet" }, `These are not for its kind: ${silent.join(", ")}`)] : []),
      ...(refusals.length ? [make("p", {}, "These said why they do not take it:"), make("ul", {}, ...refusals.map(([pass, reason]) => make("li", {}, make("code", {}, pass), ` ${reason}`)))] : []))];
    if (!k) return cards;
    const measured = model.measured?.get(name);
    cards.push(card("What it has to do", list([
      ["launches", number(k.launches)], ["bytes of one", number(k.bytes)], ["operations", number(k.operations)],
      ["floor", k.floor === null ? null : microseconds(k.floor)], ["measured", measured === undefined ? null : microseconds(measured)],
      ["of its floor", measured === undefined || k.floor === null ? null : `${number(100 * k.floor / measured)} %`], ["means", k.means]])));
    cards.push(card("What it needs", list([
      ["grid", k.grid.join(" × ")], ["block", k.block.join(" × ")], ["registers of a lane", number(k.back?.registers)],
      ["bytes of shared memory", number((k.back?.shared ?? 0) + k.shared)], ["spills", number(k.back?.spills)], ["scratch bytes", number(k.back?.scratch)],
      ["widest load, bytes", number(k.back?.widest_load)]])));
    cards.push(card("Made of the forms", make("div", { class: "mono" }, ...k.forms.slice(0, 30).map((form) => make("div", {}, form)),
      ...(k.forms.length > 30 ? [make("div", {}, `and ${k.forms.length - 30} more`)] : []))));
    return cards;
  }

  pass() {
    const { model } = this, { data, chosen } = model;
    if (!chosen.pass) return [make("p", { class: "quiet" }, "Choose a pass: what it says of itself and how to run it again stand here.")];
    const pass = data.passes[chosen.pass - 1];
    const again = `${data.command.replace(" explore ", " compile ").replace(/ -o \S+/, "").replace(/ --(profile|prompt)( ('[^']*'|\S+))?/g, "")} --dump-dir dumps\n${pass.again}`;
    return [
      make("div", { class: "card" }, make("h3", {}, pass.call), make("pre", {}, pass.text ||
        "One of MLIR's own passes: see mlir.llvm.org/docs/Passes.")),
      make("div", { class: "card" }, make("h3", {}, "To run it again"), make("div", { class: "copy" }, again)),
    ];
  }

  /** Measured microseconds of the kernels of an entry, beside their floors; with the last row they add up to a run. */
  time() {
    const { model } = this, { data } = model, { kernels, launches, whole } = data.times[this.entry] ?? { kernels: {}, launches: {}, whole: 0 };
    const rows = Object.entries(kernels).map(([name, each]) => ({ name, each, count: launches[name] ?? 0, floor: data.kernels[name]?.floor ?? null }));
    for (const row of rows) row.all = row.each * row.count;
    const sum = rows.reduce((total, row) => total + row.all, 0), rest = whole - sum;
    const most = Math.max(1e-9, rest, ...rows.map((row) => row.all)), wide = (value) => `width:${Math.round(200 * Math.max(0, value) / most)}px`;
    const share = (value) => `${number(100 * value / whole, 1)} %`;
    const head = ["kernel", "launches", "µs each", "µs", "share", "floor µs", "of its floor", ""];
    const cells = (row) => [number(row.count), number(row.each, 2), number(row.all, 1), share(row.all),
      number(row.floor, 2), row.floor === null ? "–" : `${number(100 * row.floor / row.each)} %`];
    const line = (about, named, values, ...bar) => make("tr", about, make("td", { class: "mono" }, ...named), ...values.map((cell) => make("td", { class: "num" }, cell)), make("td", {}, ...bar));
    return [this.choice(), make("p", {}, make("b", {}, `${number(whole, 1)} µs`), ` a run; the kernels measured by themselves add up to ${number(sum, 1)} µs.`),
      make("table", {}, make("thead", {}, make("tr", {}, ...head.map((each, i) => make("th", { class: i && i < 7 ? "num" : "" }, each)))),
        make("tbody", {}, ...rows.map((row) => line({
          class: `pick ${model.functionIsLit(row.name) ? "lit" : ""}`, "aria-selected": row.name === model.chosen.function, "data-share": row.all / whole,
          onclick: () => model.choose({ function: row.name }),
        }, [make("span", { class: "swatch", style: `--hue:${model.hue(row.name)}` }), data.kernels[row.name]?.label ?? row.name], cells(row),
        make("span", { class: "bar", style: wide(row.all) }),
        row.floor === null ? "" : make("span", { class: "bar floor", style: `${wide(Math.min(row.all, row.floor * row.count))};margin-left:-${Math.round(200 * row.all / most)}px` }))),
        line({ "data-share": rest / whole }, [rest < 0 ? "what overlaps of them" : "between them"], ["", "", number(rest, 1), share(rest), "", ""], make("span", { class: "bar", style: wide(rest) })),
        line({ class: "sum" }, ["a run"], [number(rows.reduce((total, row) => total + row.count, 0)), "", number(whole, 1), share(whole), "", ""])))];
  }

  choice() {
    const { entries } = this.model.data.plan;
    return make("p", {}, make("select", {
      onchange: (event) => { this.entry = Number(event.target.value); this.draw(); },
    }, ...entries.map((entry, i) => make("option", { value: i, selected: i === this.entry }, entry.label))));
  }

  /** Steps from left to right, in rows by how early each can run, with lines for what one reads of another. */
  plan() {
    const { model } = this, entry = model.data.plan.entries[this.entry];
    const { places, edges, width, height } = layout(entry, this.body.clientWidth);
    const svg = drawing("svg", { width, height, role: "img", "aria-label": "the plan as a graph" });
    const reads = (i) => model.chosen.function === entry.steps[i].kernel;
    for (const [from, to] of edges) {
      const a = places[from], b = places[to];
      const path = a.band === b.band
        ? `M${a.x + WIDE} ${a.y + TALL / 2}C${a.x + WIDE + 24} ${a.y + TALL / 2} ${b.x - 24} ${b.y + TALL / 2} ${b.x} ${b.y + TALL / 2}`
        : `M${a.x + WIDE} ${a.y + TALL / 2}C${a.x + WIDE + 40} ${a.y + TALL + 12} ${b.x - 40} ${b.y - 12} ${b.x} ${b.y + TALL / 2}`;
      svg.append(drawing("path", { class: `edge ${reads(from) || reads(to) ? "lit" : ""}`, d: path }));
    }
    entry.steps.forEach((step, i) => {
      const { x, y } = places[i];
      const kind = `node ${step.kernel && model.functionIsLit(step.kernel) ? "lit" : ""} ${reads(i) ? "chosen" : ""}`;
      const node = drawing("g", { class: kind, transform: `translate(${x} ${y})`, onclick: () => step.kernel && model.choose({ function: step.kernel }) },
        drawing("title", {}, `${i}: ${step.label}`), drawing("rect", { width: WIDE, height: TALL, rx: 4 }),
        drawing("rect", { width: 5, height: TALL, rx: 2, style: `fill:${model.hue(step.kernel)};stroke:none` }),
        drawing("text", { x: 11, y: 14 }, cut(step.label.split("@")[0], 23)),
        drawing("text", { x: 11, y: 27, class: "quiet" }, cut(step.label.split("@")[1] ?? "", 23)));
      svg.append(node);
    });
    const remarks = entry.remarks.map((each) => make("p", { class: "quiet" }, each));
    return [this.choice(), make("p", { class: "quiet" }, `${entry.steps.length} steps; each reads what those to its left and above have left.`), ...remarks, svg];
  }

  /** The arena's bytes against the steps: each part from the step that writes it to the last that reads it. */
  memory() {
    const { model } = this, { buffers, entries } = model.data.plan, entry = entries[this.entry];
    const spans = alive(entry, buffers);
    const top = Math.max(1, ...spans.map((span) => span.end)), wide = Math.max(640, Math.min(3000, entry.steps.length * 14)), tall = Math.max(110, this.body.clientHeight - 125);
    const svg = drawing("svg", { width: wide + 90, height: tall + 34, role: "img", "aria-label": "memory over time" });
    const x = (step) => 80 + (step / entry.steps.length) * wide, y = (byte) => 6 + tall - (byte / top) * tall;
    for (let i = 0; i <= 4; i++) {
      svg.append(drawing("text", { x: 0, y: y(top * i / 4) + 4, class: "quiet" }, `${number(top * i / 4 / 1024)} KiB`),
        drawing("path", { class: "edge", d: `M78 ${y(top * i / 4)}H${80 + wide}` }));
    }
    for (const span of spans) {
      const kernel = entry.steps[span.from].kernel;
      const kind = `node ${kernel && model.functionIsLit(kernel) ? "lit" : ""} ${kernel === model.chosen.function ? "chosen" : ""}`;
      svg.append(drawing("g", { class: kind, onclick: () => kernel && model.choose({ function: kernel }) },
        drawing("title", {}, `${number(span.end - span.start)} bytes at ${number(span.start)}: written by step ${span.from}, ${entry.steps[span.from].label}, read until step ${span.to}`),
        drawing("rect", { x: x(span.from), y: y(span.end), width: Math.max(2, x(span.to + 1) - x(span.from)), height: Math.max(1, y(span.start) - y(span.end)), style: `fill:${model.hue(kernel)};fill-opacity:.55` })));
    }
    svg.append(drawing("text", { x: 80, y: tall + 26, class: "quiet" }, "step 0"), drawing("text", { x: 20 + wide, y: tall + 26, class: "quiet" }, `step ${entry.steps.length - 1}`));
    const kinds = new Map();
    for (const buffer of buffers) kinds.set(buffer.kind, (kinds.get(buffer.kind) ?? 0) + buffer.bytes);
    const sums = [...kinds].map(([kind, bytes]) => `${kind} ${number(bytes / 1e6, 2)} MB`).join(" · ");
    return [this.choice(), make("p", { class: "quiet" }, `The arena over the steps of this entry. All buffers: ${sums}`), svg];
  }
}

const WIDE = 176, TALL = 34, GAP = 46, ROW = 44;
const cut = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;

/** The last writer of each byte that a step reads, for all steps. */
function dependencies(entry) {
  const edges = new Set(), writers = new Map();
  entry.steps.forEach((step, i) => {
    for (const [buffer, offset, bytes, access] of step.arguments) {
      if (access === "write") continue;
      for (const other of writers.get(buffer) ?? []) if (other.start < offset + bytes && offset < other.end) edges.add(`${other.step} ${i}`);
    }
    for (const [buffer, offset, bytes, access] of step.arguments) {
      if (access === "read") continue;
      const kept = (writers.get(buffer) ?? []).flatMap((other) => [
        { ...other, end: Math.min(other.end, offset) }, { ...other, start: Math.max(other.start, offset + bytes) },
      ].filter(({ start, end }) => start < end));
      writers.set(buffer, [...kept, { start: offset, end: offset + bytes, step: i }]);
    }
  });
  return [...edges].map((edge) => edge.split(" ").map(Number));
}

/** Where each step stands: in columns by how early it can run, which go on below where the room ends. */
function layout(entry, room) {
  const edges = dependencies(entry), depth = entry.steps.map(() => 0), rows = new Map(), tall = [];
  for (const [from, to] of edges.sort((a, b) => a[1] - b[1])) depth[to] = Math.max(depth[to], depth[from] + 1);
  const across = Math.max(1, Math.floor((room - 40) / (WIDE + GAP)));
  const places = entry.steps.map((_, i) => {
    const row = rows.get(depth[i]) ?? 0, band = Math.floor(depth[i] / across);
    rows.set(depth[i], row + 1);
    tall[band] = Math.max(tall[band] ?? 0, row + 1);
    return { x: 4 + (depth[i] % across) * (WIDE + GAP), row, band };
  });
  const tops = tall.reduce((found, count) => [...found, found[found.length - 1] + count * ROW + 10], [6]);
  for (const place of places) place.y = tops[place.band] + place.row * ROW;
  return { places, edges, width: Math.min(room - 30, Math.max(...places.map((place) => place.x)) + WIDE + 20), height: tops[tops.length - 1] + 6 };
}

/** The parts of the arena: {start, end, from, to}. */
function alive(entry, buffers) {
  const open = new Map(), found = [];
  entry.steps.forEach((step, i) => {
    for (const [buffer, offset, bytes, access] of step.arguments) {
      if (buffers[buffer].kind !== "arena") continue;
      const key = `${buffer} ${offset} ${bytes}`;
      if (access === "write" || !open.has(key)) {
        for (const [other, span] of open) if (span.start < offset + bytes && offset < span.end && access !== "read") open.delete(other);
        const span = { start: offset, end: offset + bytes, from: i, to: i };
        open.set(key, span);
        found.push(span);
      } else open.get(key).to = i;
    }
  });
  return found;
}
