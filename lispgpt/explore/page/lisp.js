// The column of the program's own text: each bracketed form can be clicked, and those that are lit are marked.

import { make } from "explore/dom.js";

const TOKEN = /;[^\n]*|"(?:[^"\\]|\\.)*"|:[A-Za-z][\w!?*+.-]*|\n/g;

export class Lisp {
  constructor(model, section) {
    this.model = model;
    this.tabs = make("div", { class: "tabs", role: "tablist" });
    this.body = make("div", { class: "body", tabindex: 0 });
    this.way = make("div", { class: "way", hidden: true });
    section.append(this.tabs, this.body, this.way);
    this.drawn = new Map();
    this.show(this.first());
    model.addEventListener("lit", () => this.mark(true));
    model.addEventListener("chosen", () => this.mark(false));
  }

  /** The model's own file that most kernels are made of. */
  first() {
    const { data, kernels, functionLocations } = this.model, counts = data.files.map((file) => file.library ? 0 : 1);
    for (const name of kernels) functionLocations.get(name).forEach((location) => {
      const [chain] = data.locations[location], [file] = chain === undefined ? [-1] : data.places[this.model.own(chain)];
      if (file >= 0 && !data.files[file].library) counts[file]++;
    });
    return counts.indexOf(Math.max(...counts));
  }

  show(file) {
    if (!this.model.data.files.length) return;
    this.file = file;
    if (!this.drawn.has(file)) this.drawn.set(file, this.draw(file));
    this.body.replaceChildren(this.drawn.get(file).text);
    this.mark(false);
  }

  /** The text of a file, its forms as spans in each other. */
  draw(number) {
    const { text, forms, macros } = this.model.data.files[number];
    const spans = new Map();
    const top = make("pre", { class: "lisp mono" });
    const open = [{ element: top, end: text.length }];
    let line = 1;
    const plain = (element, start, end) => {
      let at = start;
      for (const found of text.slice(start, end).matchAll(TOKEN)) {
        const from = start + found.index, said = found[0];
        element.append(text.slice(at, from));
        if (said === "\n") element.append("\n", make("span", { class: "number" }, `${++line}`));
        else element.append(make("span", { class: said[0] === ";" ? "remark" : said[0] === ":" ? "keyword" : "text" }, said));
        at = from + said.length;
      }
      element.append(text.slice(at, end));
    };
    top.append(make("span", { class: "number" }, "1"));
    let at = 0;
    const close = (until) => {
      while (open.length > 1 && open[open.length - 1].end <= until) {
        const { element, end } = open.pop();
        plain(element, at, end);
        at = end;
      }
    };
    for (const [start, end] of forms) {
      close(start);
      plain(open[open.length - 1].element, at, start);
      const form = make("span", {
        class: "form",
        onclick: (event) => {
          event.stopPropagation();
          this.model.lightForm(number, start, end);
        },
      });
      spans.set(start, form);
      open[open.length - 1].element.append(form);
      open.push({ element: form, end });
      at = start;
      const head = /^\([^\s()[\]{}";]+/.exec(text.slice(start, end));
      if (head) {
        form.append("(", make("span", { class: "head" }, head[0].slice(1)));
        if (start in macros) form.append(expander(form, macros[start]));
        at = start + head[0].length;
      }
    }
    close(text.length);
    plain(top, at, text.length);
    return { text: top, spans };
  }

  /** Mark the forms that are lit, and those that the chosen kernel is made of.  scrolls: bring them into sight. */
  mark(scrolls) {
    const { model } = this, { chosen, data } = model;
    const strong = new Set(), places = chosen.places;
    chosen.chains?.forEach((chain) => strong.add(model.own(chain)));
    const files = new Set([...places].map((place) => data.places[place][0]));
    const wanted = [...strong].map((place) => data.places[place][0]);
    if (scrolls && !chosen.form && wanted.length && !wanted.includes(this.file) && wanted[0] >= 0) return this.show(wanted[0]), this.mark(true);
    this.drawTabs(files);
    const { spans } = this.drawn.get(this.file) ?? { spans: new Map() };
    const kernel = new Set();
    model.functionLocations.get(chosen.function)?.forEach((location) =>
      data.locations[location].forEach((chain) => kernel.add(model.own(chain))));
    for (const span of spans.values()) span.classList.remove("lit", "near", "kernel", "failed");
    const put = (place, kind) => {
      const [file, offset] = data.places[place];
      const span = file === this.file && spans.get(offset);
      if (span) span.classList.add(kind);
      return span;
    };
    kernel.forEach((place) => put(place, "kernel"));
    this.body.style.setProperty("--hue", model.hue(chosen.function));
    if (!chosen.form) places.forEach((place) => put(place, "near"));
    if (data.failure?.place && data.files[this.file].name === data.failure.place[0]) spans.get(data.failure.place[1])?.classList.add("failed");
    let first = null;
    if (chosen.form) {
      if (chosen.form.file === this.file) spans.get(chosen.form.start)?.classList.add("lit");
    } else strong.forEach((place) => (first ??= put(place, "lit") || null) ?? put(place, "lit"));
    if (scrolls && first) this.reveal(first);
    this.drawWay();
  }

  /** Bring a form into sight, and lines' beginnings with it. */
  reveal(span) {
    span?.scrollIntoView({ block: "nearest" });
    this.body.scrollLeft = 0;
  }

  drawTabs(lit) {
    const { files } = this.model.data;
    this.tabs.replaceChildren(...files.map((file, number) => make("button", {
      role: "tab", "aria-selected": number === this.file, title: file.name,
      class: `${file.library ? "library" : ""} ${lit.has(number) ? "lit" : ""}`,
      onclick: () => this.show(number),
    }, file.name.split("/").pop())));
    this.tabs.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }

  /** The calls that what is lit came through, from the library's form out to the model's. */
  drawWay() {
    const { model } = this, { chains, form } = model.chosen;
    this.way.hidden = !chains?.size || Boolean(form);
    if (this.way.hidden) return;
    const shown = [...chains].slice(0, 6).map((chain) => make("div", {}, "came through ", ...[...model.data.chains[chain]].reverse().flatMap((place, i) => [
      i ? " ▸ " : "",
      make("button", {
        onclick: () => {
          const [file, offset] = model.data.places[place];
          if (file < 0) return;
          this.show(file);
          this.reveal(this.drawn.get(file).spans.get(offset));
        },
      }, model.told(place))])));
    if (chains.size > 6) shown.push(make("div", {}, `and ${chains.size - 6} ways more`));
    this.way.replaceChildren(...shown);
  }
}

/** The button behind a macro's name, which shows and hides what the call becomes. */
function expander(form, text) {
  const shown = make("span", { class: "expansion", onclick: (event) => event.stopPropagation() }, text);
  const button = make("button", {
    class: "expand", title: "what this macro call becomes", "aria-label": "expand the macro", "aria-expanded": false,
    onclick: (event) => {
      event.stopPropagation();
      const open = shown.isConnected;
      if (open) shown.remove();
      else form.after(shown);
      button.setAttribute("aria-expanded", !open);
    },
  });
  return button;
}
