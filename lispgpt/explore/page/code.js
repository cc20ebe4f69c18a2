// The columns of code: what a pass makes of a function, line by line, and the machine's instructions.

import { Lines, make } from "explore/dom.js";
import { textOf } from "explore/unpack.js";

const CONTEXT = 3, SHORTEST = 8;
const OP = /^(\s*)((?:"?[a-z_][\w]*\.[\w.]+"?)|return|module)(?=[\s({<@"]|$)/;
const TYPES = /((?::|->) [^:]*)$/;

/** A line of IR: definitions bold, the op's name and the types apart. */
export function lineOf(line) {
  const nodes = [], defined = new Set(line.defines);
  const whole = textOf(line), type = TYPES.exec(whole), end = type ? type.index : whole.length;
  let at = 0;
  const put = (text, value) => {
    if (!text) return;
    if (value) nodes.push(make("span", { class: defined.has(value) ? "def" : "use" }, text));
    else if (at >= end) nodes.push(make("span", { class: "type" }, text));
    else {
      const op = OP.exec(text.replace(/^ = /, "   "));
      const from = op ? op[1].length : -1;
      if (op) nodes.push(text.slice(0, from), make("span", { class: "op" }, op[2]), text.slice(from + op[2].length));
      else nodes.push(text);
    }
    at += text.length;
  };
  put(line.pieces[0]);
  line.values.forEach((value, i) => { put(value.name, value); put(line.pieces[i + 1]); });
  return nodes;
}

export class Code {
  constructor(model, section, title) {
    this.model = model;
    this.title = title;
    this.body = make("div", { class: "body", tabindex: 0, "aria-label": "before and after" });
    section.append(this.body);
    this.lines = new Lines(this.body);
    this.unfolded = new Set();
    this.whole = false;
    model.addEventListener("chosen", () => { this.unfolded.clear(); this.draw(true); });
    model.addEventListener("lit", () => this.draw(true));
    this.draw(true);
  }

  draw(scrolls = false) {
    const { model } = this, view = model.view();
    const { data, chosen } = model;
    if (!view) return this.lines.show(0, () => null);
    const { step, changes, name } = view;
    const all = changes && step.number > 0 ? step.rows : step.after.map((line) => ({ mark: " ", line }));
    this.shown = this.folded(all.flatMap((row) => row.mark === "~" ? [{ mark: "-", line: row.old }, { mark: "~", line: row.line }] : [row]),
      changes && step.number > 0);
    const pass = chosen.pass === null ? null : chosen.pass === 0 ? "input" : data.passes[chosen.pass - 1].name;
    this.title.replaceChildren(name, make("span", { class: "quiet" }, pass === null ? " · at the end" :
      changes ? ` · ${chosen.pass} ${pass}` : ` · not changed by ${pass}`));
    this.lines.show(this.shown.length, (i) => this.row(i));
    if (!scrolls) return;
    const lit = this.shown.findIndex((row) => row.line && model.isLit(row.line.location));
    const first = this.shown.findIndex((row) => row.mark && row.mark !== " ");
    if (lit >= 0) this.lines.reveal(lit);
    else if (first >= 0) this.lines.reveal(first);
    else this.body.scrollTop = 0;
  }

  /** The rows, without long runs of those that nothing is to be said of. */
  folded(rows, differs) {
    const { model } = this;
    const lights = model.chosen.locations && !this.whole;
    if (this.whole || (!differs && !lights)) return rows;
    const says = rows.map((row) => row.mark !== " " && row.mark !== undefined || (lights && model.isLit(row.line.location)));
    if (!says.includes(true)) return rows;
    const near = new Uint8Array(rows.length);
    says.forEach((said, i) => said && near.fill(1, Math.max(0, i - CONTEXT), i + CONTEXT + 1));
    near[0] = 1;
    const found = [];
    for (let i = 0; i < rows.length; ) {
      let end = i;
      while (end < rows.length && !near[end]) end++;
      if (end - i >= SHORTEST && !this.unfolded.has(i)) {
        found.push({ folded: end - i, at: i });
        i = end;
      } else if (end > i) {
        found.push(...rows.slice(i, end));
        i = end;
      } else found.push(rows[i++]);
    }
    return found;
  }

  row(i) {
    const { model } = this, row = this.shown[i];
    if (row.folded) {
      return make("div", { class: "row folded", "data-mark": "⋯", onclick: () => { this.unfolded.add(row.at); this.draw(); } },
        `${row.folded} lines as before`);
    }
    const kind = { "+": "add", "-": "drop", "~": "change", " ": "" }[row.mark];
    const lit = model.isLit(row.line.location) ? "lit" : "";
    return make("div", {
      class: `row ${kind} ${lit}`, "data-mark": { "-": "−", "~": "≈" }[row.mark] ?? row.mark, "data-location": row.line.location,
      onclick: () => model.lightLocation(row.line.location),
    }, ...lineOf(row.line));
  }
}

export class Machine {
  constructor(model, section, title) {
    this.model = model;
    this.title = title;
    this.tiles = false;
    this.body = make("div", { class: "body", tabindex: 0, "aria-label": "machine code" });
    this.choice = make("div", { class: "tabs", role: "tablist", hidden: true });
    section.append(this.choice, this.body);
    this.lines = new Lines(this.body);
    model.addEventListener("chosen", () => this.draw(true));
    model.addEventListener("lit", () => this.draw(true));
    this.draw(true);
  }

  /** The lines of the program by tiles that a kernel was for a while, if it was one: those that choose-tiles added. */
  tileProgram() {
    const { model } = this, { passes } = model.data, name = model.chosen.function;
    const chosen = model.outlines.get(name).find(({ number }) => number && passes[number - 1].name === "choose-tiles");
    if (!chosen) return null;
    const step = model.history(name).find(({ number }) => number === chosen.number);
    const added = step.rows.filter(({ mark }) => mark === "+").map(({ line }) => line);
    return added.some((line) => line.pieces[0].includes("tile.") || line.pieces.some((piece) => piece.includes('"tile.'))) ? added : null;
  }

  draw(scrolls) {
    const { model } = this, name = model.chosen.function, tiles = this.tileProgram();
    this.choice.hidden = !tiles;
    this.choice.replaceChildren(...["instructions", "tile program"].map((text, i) => make("button", {
      role: "tab", "aria-selected": this.tiles === Boolean(i), onclick: () => { this.tiles = Boolean(i); this.draw(true); },
    }, text)));
    if (this.tiles && tiles) return this.drawTiles(tiles, scrolls);
    const found = model.machine(name);
    const lit = found.filter((line) => model.isLit(line.location)).length;
    this.title.replaceChildren(`${found.length} instructions`, make("span", { class: "quiet" }, lit ? ` · ${lit} lit` : ""));
    if (!found.length) {
      const text = model.data.remark || (model.data.failure ? "No code was made." : "This function is no kernel: it has no code of its own.");
      return this.lines.show(1, () => make("div", { class: "row" }, text));
    }
    this.lines.show(found.length, (i) => make("div", {
      class: `row ${model.isLit(found[i].location) ? "lit" : ""}`, "data-mark": "", "data-location": found[i].location,
      onclick: () => found[i].location && model.lightLocation(found[i].location),
    }, ...instruction(found[i].text)));
    const first = found.findIndex((line) => model.isLit(line.location));
    if (scrolls) first >= 0 ? this.lines.reveal(first) : (this.body.scrollTop = 0);
  }

  /** The program by tiles: each line behind the line of the schedule that wrote it. */
  drawTiles(tiles, scrolls) {
    const { model } = this, { kernels, locations, chains } = model.data, k = kernels[model.chosen.function];
    const place = (line) => chains[locations[line.location][0]]?.[0];
    const lit = tiles.map((line) => model.isLit(line.location) || model.chosen.places.has(place(line)));
    this.title.replaceChildren(`${tiles.length} lines by ${k?.tiles ?? "tiles"}`,
      make("span", { class: "quiet" }, k ? ` · for ${k.label.split("@")[1] ?? k.label}` : ""));
    this.lines.show(tiles.length, (i) => make("div", {
      class: `row ${lit[i] ? "lit" : ""}`, "data-mark": "", "data-location": tiles[i].location,
      onclick: () => place(tiles[i]) !== undefined && model.light(model.chainsOfPlace[place(tiles[i])].filter((chain) => chains[chain][0] === place(tiles[i]))),
    }, make("span", { class: "wrote" }, place(tiles[i]) === undefined ? "" : model.told(place(tiles[i]))), ...lineOf(tiles[i])));
    if (scrolls) lit.includes(true) ? this.lines.reveal(lit.indexOf(true)) : (this.body.scrollTop = 0);
  }
}

function instruction(text) {
  const found = /^(\s*)([\w.$%@!]+)(.*)$/.exec(text);
  return found && !text.endsWith(":") ? [found[1], make("span", { class: "op" }, found[2]), found[3]] : [text];
}
