// The column of passes: what each took, how many lines it changes, of all and of the chosen function; others are folded.

import { make } from "explore/dom.js";

export class Passes {
  constructor(model, section) {
    this.model = model;
    this.unfolded = new Set();
    this.body = make("div", { class: "body", tabindex: 0, role: "listbox", "aria-label": "passes" });
    section.append(this.body);
    model.addEventListener("chosen", () => this.draw());
    model.addEventListener("lit", () => this.draw());
    this.draw();
  }

  /** By a pass's number, the lines that it changes of the chosen function and of what that was part of. */
  changes() {
    const { model } = this, found = new Map();
    const own = model.outlines.get(model.chosen.function);
    const first = own[0].number;
    for (const step of own) found.set(step.number, step.changes);
    const parent = first > 0 && model.ancestors(model.chosen.function)[0];
    if (parent) for (const step of model.outlines.get(parent)) if (step.number < first) found.set(step.number, step.changes);
    return found;
  }

  draw() {
    const { model } = this, { passes, failure } = model.data, changes = this.changes(), rows = [];
    const total = passes.reduce((sum, pass) => sum + (pass.seconds ?? 0), 0);
    let stage = null, still = [];
    const fold = () => {
      if (!still.length) return;
      const key = still[0].number;
      if (still.length < 3 || this.unfolded.has(key)) rows.push(...still.map(({ row }) => row));
      else rows.push(make("div", {
        class: "fold", role: "button", tabindex: 0,
        onclick: () => { this.unfolded.add(key); this.draw(); },
        onkeydown: (event) => event.key === "Enter" && (this.unfolded.add(key), this.draw()),
      }, `⋯ ${still.length} passes ${still[0].ran ? "change nothing here" : "did not run"}`));
      still = [];
    };
    rows.push(this.row(0, { name: "input", changed: changes.get(0) ?? 0, seconds: null, text: "" }, changes, 0));
    passes.forEach((pass, i) => {
      const number = i + 1;
      if (pass.stage !== stage) {
        fold();
        stage = pass.stage;
        const seconds = passes.filter((each) => each.stage === stage).reduce((sum, each) => sum + (each.seconds ?? 0), 0);
        rows.push(make("div", { class: "stage" }, make("span", {}, stage), make("span", {}, `${seconds.toFixed(2)} s`)));
      }
      const row = this.row(number, pass, changes, total);
      const quiet = !changes.get(number) && model.chosen.pass !== number && failure?.pass !== number;
      const ran = pass.seconds !== null;
      if (still.length && still[0].ran !== ran) fold();
      if (quiet) still.push({ number, row, ran });
      else { fold(); rows.push(row); }
    });
    fold();
    const top = this.body.scrollTop;
    this.body.replaceChildren(...rows);
    this.body.scrollTop = top;
    this.body.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }

  row(number, pass, changes, total) {
    const { model } = this, own = changes.get(number) ?? 0, failed = model.data.failure?.pass === number;
    const never = number > 0 && pass.seconds === null && !failed;
    const kind = ["pass", own ? "" : "still", failed ? "failed" : "", never ? "never" : ""].join(" ");
    return make("div", {
      class: kind, role: "option", "aria-selected": model.chosen.pass === number, "data-pass": number,
      title: failed ? model.data.failure.message : `${pass.call ?? "what the program evaluates to"}\n${pass.changed} lines of all functions`,
      onclick: () => model.choose({ pass: number }),
    },
    make("span", { class: "n" }, `${number}`), make("span", { class: "name" }, failed ? `✗ ${pass.name}` : pass.name),
    make("span", { class: "lines" }, own ? `±${own}` : ""),
    make("span", { class: "ms" }, pass.seconds === null ? (failed ? "failed" : "") : `${(pass.seconds * 1000).toFixed(pass.seconds < 0.01 ? 1 : 0)} ms`));
  }
}
