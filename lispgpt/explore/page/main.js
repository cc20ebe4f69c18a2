// The page: unpacks its data, makes the columns, and listens to keys.

import { Code, Machine } from "explore/code.js";
import { make } from "explore/dom.js";
import { Drawer } from "explore/drawer.js";
import { Lisp } from "explore/lisp.js";
import { Model } from "explore/model.js";
import { Passes } from "explore/passes.js";
import { Search } from "explore/search.js";
import { unpack } from "explore/unpack.js";

const KEYS = [
  ["/", "search"], ["j k", "the next and the last pass that changes this kernel"], ["n p", "the next and the last kernel"],
  ["l", "light up all that this kernel is made of"], ["w", "the whole function, or what is changed and lit alone"],
  ["Esc", "put the lights out"], ["t", "dark or light"], ["1 … 4", "go to a column"], ["?", "this"],
];

function theme(next) {
  const now = next ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = now;
}

function header(model) {
  const { data } = model;
  const picker = make("select", {
    "aria-label": "kernel", onchange: (event) => model.choose({ function: event.target.value }),
  }, ...groups(model));
  model.addEventListener("chosen", () => (picker.value = model.chosen.function));
  const box = make("div", { class: "search" });
  const bar = make("header", {}, make("h1", {}, data.program.split("/").pop()),
    make("span", { class: "target", title: data.about }, data.target), make("span", { class: "quiet" }, summary(data)),
    make("span", { class: "grow" }), picker, box,
    make("button", { title: "dark or light (t)", onclick: () => flip() }, "◐"),
    make("button", { title: "keys (?)", onclick: () => help() }, "?"));
  return { bar, box };
}

function groups(model) {
  const others = Object.keys(model.data.functions).filter((name) => !model.kernels.includes(name) && !name.startsWith("__"));
  const options = (names) => names.map((name) => make("option", { value: name }, model.data.kernels[name]?.label ?? name));
  return [make("optgroup", { label: "kernels" }, ...options(model.kernels)), make("optgroup", { label: "other functions" }, ...options(others))];
}

function summary(data) {
  const seconds = data.passes.reduce((sum, pass) => sum + (pass.seconds ?? 0), 0);
  const changing = data.passes.filter((pass) => pass.changed).length;
  return `${Object.keys(data.kernels).length} kernels · ${data.passes.length} passes, ${changing} of which change something, in ${seconds.toFixed(1)} s`;
}

const flip = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

function help() {
  const old = document.querySelector(".help");
  if (old) return old.remove();
  document.body.append(make("div", { class: "help", role: "dialog", "aria-label": "keys" }, make("h2", {}, "Keys"),
    make("table", {}, ...KEYS.map(([key, text]) => make("tr", {}, make("td", {}, make("kbd", {}, key)), make("td", {}, text)))),
    make("p", {}, "Click a form, an op, an instruction, a kernel or a bar: what it has to do with lights up everywhere, by the places that every op keeps. ",
      "Lines that are lit have a mark at their left; + − ≈ are lines that a pass adds, drops, and puts in place of others."),
    make("button", { onclick: help }, "close")));
}

function section(name) {
  const title = make("b");
  const element = make("section", { "aria-label": name }, make("h2", {}, name, title));
  return { element, title };
}

function step(list, now, by) {
  return list[Math.min(list.length - 1, Math.max(0, list.indexOf(now) + by))];
}

function nextPass(model, by) {
  const changes = model.outlines.get(model.chosen.function).map((each) => each.number);
  const now = model.chosen.pass ?? Infinity;
  const found = by > 0 ? changes.find((number) => number > now) : changes.filter((number) => number < now).pop();
  if (found !== undefined) model.choose({ pass: found });
}

function keys(model, columns) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT/.test(event.target.tagName)) return;
    const does = {
      "/": () => columns.search.input.focus(), j: () => nextPass(model, 1), k: () => nextPass(model, -1),
      n: () => model.choose({ function: step(model.kernels, model.chosen.function, 1) }),
      p: () => model.choose({ function: step(model.kernels, model.chosen.function, -1) }),
      l: () => model.lightFunction(model.chosen.function), t: flip, "?": help,
      w: () => { columns.code.whole = !columns.code.whole; columns.code.draw(true); },
      Escape: () => { document.querySelector(".help")?.remove(); model.clear(); },
      ...Object.fromEntries(["lisp", "passes", "code", "machine"].map((name, i) => [`${i + 1}`, () => columns[name].body.focus()])),
    }[event.key];
    if (does) {
      event.preventDefault();
      does();
    }
  });
}

async function start() {
  theme();
  const source = document.getElementById("data");
  const { data, streams } = await unpack(source.textContent);
  source.remove();
  const model = new Model(data, streams), { bar, box } = header(model);
  model.chosen.pass = model.passFor(model.chosen.function);
  const names = ["Lisp", "Passes", "Before → after", "Machine code"].map(section);
  const main = make("main", {}, ...names.map(({ element }) => element)), footer = make("footer");
  const failure = data.failure && make("div", { class: "failure", role: "alert" }, data.failure.text);
  document.getElementById("waiting").remove();
  document.body.append(make("div", {}, bar, failure), main, footer);
  const columns = {
    lisp: new Lisp(model, names[0].element), passes: new Passes(model, names[1].element),
    code: new Code(model, names[2].element, names[2].title), machine: new Machine(model, names[3].element, names[3].title),
    drawer: new Drawer(model, footer),
  };
  columns.search = new Search(model, columns, box);
  keys(model, columns);
  window.explore = { model, columns };
  model.choose({});
  document.documentElement.dataset.ready = `${Math.round(performance.now())}`;
}

start();
