// The search box: kernels, passes, the program's text, and the lines of the columns that are in sight.

import { make } from "explore/dom.js";
import { textOf } from "explore/unpack.js";

const MOST = 12;

export class Search {
  constructor(model, columns, box) {
    Object.assign(this, { model, columns });
    this.input = make("input", {
      type: "search", placeholder: "search  /", "aria-label": "search", oninput: () => this.look(),
      onkeydown: (event) => this.key(event), onfocus: () => this.look(),
    });
    this.list = make("div", { class: "found", role: "listbox", hidden: true });
    box.append(this.input, this.list);
    addEventListener("click", (event) => box.contains(event.target) || (this.list.hidden = true));
  }

  look() {
    const wanted = this.input.value.trim().toLowerCase();
    this.found = wanted ? this.matches(wanted) : [];
    this.at = 0;
    this.list.hidden = !this.found.length;
    this.list.replaceChildren(...this.found.map((each, i) => make("div", {
      role: "option", "aria-selected": i === 0, onclick: () => this.take(i),
    }, make("span", { class: "kind" }, each.kind), ...marked(each.text, wanted))));
  }

  matches(wanted) {
    const { model, columns } = this, { data } = model, found = [];
    const add = (kind, texts, go) => {
      let count = 0;
      for (const [i, text] of texts.entries()) {
        if (text.toLowerCase().includes(wanted)) found.push({ kind, text: text.trim(), go: () => go(i, text) });
        if (text.toLowerCase().includes(wanted) && ++count === MOST) break;
      }
    };
    add("kernel", model.kernels.map((name) => data.kernels[name]?.label ?? name), (i) => {
      model.choose({ function: model.kernels[i] });
      model.lightFunction(model.kernels[i]);
    });
    add("pass", data.passes.map((pass) => pass.name), (i) => model.choose({ pass: i + 1 }));
    data.files.forEach((file, number) => {
      const lines = file.text.split("\n");
      add(file.name.split("/").pop(), lines, (line, text) => {
        const start = lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, 0);
        const at = start + text.toLowerCase().indexOf(wanted);
        const form = file.forms.filter(([from, to]) => from <= at && at < to).pop() ?? [start, start + text.length];
        columns.lisp.show(number);
        model.lightForm(number, ...form);
        columns.lisp.reveal(columns.lisp.drawn.get(number).spans.get(form[0]));
      });
    });
    const { shown, lines } = columns.code;
    add("code", (shown ?? []).map((row) => row.line ? textOf(row.line) : ""), (i) => {
      model.lightLocation(shown[i].line.location);
      lines.reveal(i);
    });
    const machine = model.machine(model.chosen.function);
    add("instruction", machine.map((line) => line.text), (i) => {
      if (machine[i].location) model.lightLocation(machine[i].location);
      columns.machine.lines.reveal(i);
    });
    return found;
  }

  key(event) {
    if (event.key === "Escape") { this.input.value = ""; this.look(); this.input.blur(); }
    else if (event.key === "Enter" && this.found?.length) this.take(this.at);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const count = this.found?.length || 1;
      this.at = (this.at + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
      [...this.list.children].forEach((child, i) => child.setAttribute("aria-selected", i === this.at));
      this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
    }
    event.stopPropagation();
  }

  take(i) {
    this.list.hidden = true;
    this.found[i].go();
  }
}

function marked(text, wanted) {
  const at = text.toLowerCase().indexOf(wanted);
  return [text.slice(0, at), make("mark", {}, text.slice(at, at + wanted.length)), text.slice(at + wanted.length, at + 160)];
}
