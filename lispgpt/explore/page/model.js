// What the page shows and what is chosen in it; columns listen to it.

import { history, machineCode, Numbers, outline } from "explore/unpack.js";

export class Model extends EventTarget {
  constructor(data, streams) {
    super();
    Object.assign(this, { data, streams });
    this.histories = new Map();
    this.machines = new Map();
    this.chainsOfPlace = data.places.map(() => []);
    data.chains.forEach((chain, number) => chain.forEach((place) => this.chainsOfPlace[place].push(number)));
    this.placesOfFile = data.files.map(() => []);
    data.places.forEach(([file, offset], place) => file >= 0 && this.placesOfFile[file].push({ offset, place }));
    this.placesOfFile.forEach((places) => places.sort((a, b) => a.offset - b.offset));
    this.outlines = new Map(Object.keys(data.functions).map((name) => [name, outline(data, streams, name)]));
    this.measured = this.measuredTimes();
    this.owns = data.chains.map((chain) => this.innermostOwn(chain));
    this.kernels = this.listKernels();
    this.chosen = { function: this.kernels[0], pass: null, chains: null, places: new Set(), locations: null, form: null };
    this.functionLocations = new Map(Object.keys(data.functions).map((name) => [name, this.locationsIn(name)]));
  }

  /** The functions that kernels became, in the plan's order; before a plan is there, all that are left. */
  listKernels() {
    const names = Object.keys(this.data.functions);
    const launched = Object.keys(this.data.kernels).filter((name) => names.includes(name));
    const rest = names.filter((name) => !launched.includes(name) && !name.startsWith("__"));
    return launched.length ? launched : rest;
  }

  /** Microseconds of a launch of each kernel, in the first entry that launches it; null where nothing was measured. */
  measuredTimes() {
    const found = new Map();
    for (const { kernels } of this.data.times) for (const [name, each] of Object.entries(kernels)) if (!found.has(name)) found.set(name, each);
    return found.size ? found : null;
  }

  history(name) {
    if (!this.histories.has(name)) this.histories.set(name, history(this.data, this.streams, name));
    return this.histories.get(name);
  }

  machine(name) {
    if (!this.machines.has(name)) {
      this.machines.set(name, name in this.data.machine ? machineCode(this.data, this.streams, name) : []);
    }
    return this.machines.get(name);
  }

  /** The numbers of all locations that a function's lines ever had. */
  locationsIn(name) {
    const starts = this.data.functions[name], names = Object.keys(this.data.functions);
    const next = this.data.functions[names[names.indexOf(name) + 1]];
    const end = next ? next[3] : this.streams.locations.length;
    const numbers = new Numbers(this.streams.locations, starts[3]), found = new Set();
    for (let location = 0; numbers.at < end; ) found.add((location += numbers.signed()));
    return found;
  }

  /** Choose some of: function, pass; columns draw themselves anew. */
  choose(what) {
    Object.assign(this.chosen, what);
    if (what.function && what.pass === undefined) this.chosen.pass = this.passFor(what.function);
    this.dispatchEvent(new Event("chosen"));
  }

  /** The pass to see a function at: the chosen one if it changes the function, else the first that schedules it, else the
   * last that changes it. */
  passFor(name) {
    const { failure } = this.data, numbers = this.outlines.get(name).map((step) => step.number);
    if (failure) return failure.pass;
    if (numbers.includes(this.chosen.pass)) return this.chosen.pass;
    return this.schedulers(name)[0]?.number ?? numbers[numbers.length - 1];
  }

  /** The steps by which passes have scheduled a function; those that only note on it why they do not are none. */
  schedulers(name) {
    const { passes } = this.data;
    return this.outlines.get(name).filter((step) => step.number && passes[step.number - 1].stage === "schedule" && step.changes > 1);
  }

  /** What passes have noted on a function of why they left it: [pass, reason]. */
  refusals(name) {
    const { passes } = this.data, found = new Map();
    for (const { number, after } of this.history(name)) {
      const said = /\brefused = \[((?:"(?:[^"\\]|\\.)*"(?:, )?)*)\]/.exec(after[0]?.pieces.join("") ?? "");
      for (const [, reason] of (said?.[1] ?? "").matchAll(/"((?:[^"\\]|\\.)*)"/g)) {
        if (!found.has(reason)) found.set(reason, number ? passes[number - 1].name : "");
      }
    }
    return [...found].map(([reason, pass]) => [pass, reason]);
  }

  /** Light up what these chains of places have to do with. */
  light(chains, form = null) {
    const lit = new Set(chains), { data } = this;
    const locations = data.locations.map((own) => own.some((chain) => lit.has(chain)));
    const places = new Set();
    lit.forEach((chain) => data.chains[chain].forEach((place) => places.add(place)));
    Object.assign(this.chosen, { chains: lit, locations, places, form });
    this.dispatchEvent(new Event("lit"));
  }

  clear() {
    Object.assign(this.chosen, { chains: null, locations: null, places: new Set(), form: null });
    this.dispatchEvent(new Event("lit"));
  }

  /** Light up what a form of a file, from start to end, has become. */
  lightForm(file, start, end) {
    const inside = this.placesOfFile[file].filter(({ offset }) => offset >= start && offset < end);
    this.light(inside.flatMap(({ place }) => this.chainsOfPlace[place]), { file, start, end });
  }

  lightLocation(location) {
    this.light(this.data.locations[location]);
  }

  lightFunction(name) {
    const found = new Set();
    this.functionLocations.get(name)?.forEach((each) => this.data.locations[each].forEach((chain) => found.add(chain)));
    this.light(found);
  }

  isLit(location) {
    return this.chosen.locations?.[location] ?? false;
  }

  functionIsLit(name) {
    if (!this.chosen.locations) return false;
    for (const location of this.functionLocations.get(name) ?? []) if (this.isLit(location)) return true;
    return false;
  }

  /** The innermost place of a chain that is the model's own. */
  own(chain) {
    return this.owns[chain];
  }

  innermostOwn(places) {
    const { data } = this;
    return places.find((place) => data.places[place][0] >= 0 && !data.files[data.places[place][0]].library) ?? places[0];
  }

  /** A place as text: file:line. */
  told(place) {
    const [file, offset] = this.data.places[place];
    if (file < 0) return "?";
    const { name, text } = this.data.files[file];
    return `${name.split("/").pop()}:${text.slice(0, offset).split("\n").length}`;
  }

  /** The text of a chain's innermost form, cut to a few letters. */
  innermost(chain) {
    const [file, offset] = this.data.places[this.data.chains[chain][0]];
    if (file < 0) return "";
    const text = this.data.files[file].text.slice(offset, offset + 44).split("\n")[0];
    return text.length > 40 ? `${text.slice(0, 39)}…` : text;
  }

  hue(name) {
    const at = this.kernels.indexOf(name);
    return at < 0 ? "var(--soft)" : `oklch(0.68 0.13 ${(at * 137.5) % 360})`;
  }

  /** What is to be seen of the chosen function at the chosen pass: the step that the pass is, or the last one before,
   * and the function that it was part of before it was one of its own. */
  view() {
    const pass = this.chosen.pass ?? Infinity;
    const own = this.chosen.function, before = (step) => step.number <= pass && !step.gone;
    const name = this.outlines.get(own).some(before) ? own : this.ancestors(own).find((other) => this.outlines.get(other).some(before));
    if (!name) return null;
    const step = this.history(name).filter(before).pop();
    return { name, step, changes: step.number === pass };
  }

  /** The functions of the first version whose lines a function's come from, the one with most of them first. */
  ancestors(name) {
    const own = this.functionLocations.get(name) ?? new Set();
    const score = (other) => [...this.functionLocations.get(other)].filter((each) => own.has(each)).length;
    return Object.keys(this.data.functions)
      .filter((other) => other !== name && this.outlines.get(other)[0].number === 0)
      .map((other) => [score(other), other])
      .sort((a, b) => b[0] - a[0])
      .map(([, other]) => other);
  }
}
