// The tensors of a sentence, as pictures of their numbers, on the forms that make them.

import { make } from "explore/dom.js";

const CELL = 7, WIDEST = 300, MOST = 60, NO_NUMBER = 255, LEVELS = 254;

/** The colour of a number: from blue through paper to orange around zero, or from paper to ink where all are of one sign. */
function colour(level, picture) {
  if (level === NO_NUMBER) return null;
  const { low, high } = picture, value = low + (level / LEVELS) * (high - low), most = Math.max(Math.abs(low), Math.abs(high)) || 1;
  const part = Math.min(1, Math.abs(value) / most);
  const dark = document.documentElement.dataset.theme === "dark";
  const light = dark ? 0.22 + 0.6 * part : 0.97 - 0.6 * part;
  return `oklch(${light} ${0.16 * part} ${value < 0 ? 255 : 55})`;
}

export class SentenceTab {
  constructor(model) {
    this.model = model;
    this.levels = model.streams.pictures;
  }

  draw() {
    const { model } = this, { tokens, probable, pictures } = model.data.sentence;
    const lit = pictures.filter((picture) => !model.chosen.locations || model.isLit(picture.location));
    const said = make("p", {}, ...tokens.map(([number, text]) => make("span", { class: "token", title: `token ${number}` }, text || `${number}`)),
      " → ", make("b", {}, `${probable[0][1] || probable[0][0]}`));
    const odds = make("table", {}, ...probable.map(([number, text, odd]) => make("tr", {}, make("td", { class: "mono" }, JSON.stringify(text || number)),
      make("td", {}, make("span", { class: "bar", style: `width:${Math.round(160 * odd / probable[0][2])}px` })), make("td", { class: "num" }, `${(100 * odd).toFixed(2)} %`))));
    const about = model.chosen.locations ? `${lit.length} tensors of what is lit` : `${pictures.length} tensors, in the order in which they are made; click a form to see its own`;
    return [make("div", { class: "sentence" },
      make("div", {}, make("h3", {}, "The sentence, and what may follow it"), said, odds),
      make("div", {}, make("h3", {}, about), make("div", { class: "pictures" }, ...lit.slice(0, MOST).map((each) => this.picture(each))),
        lit.length > MOST ? make("p", { class: "quiet" }, `and ${lit.length - MOST} more: choose a form to see less`) : null))];
  }

  picture(picture) {
    const { model } = this, { tokens } = model.data.sentence, [planes, rows, columns] = picture.size;
    const cell = Math.max(1, Math.min(CELL, Math.floor(WIDEST / columns)));
    const canvases = [];
    for (let plane = 0; plane < planes; plane++) {
      const canvas = make("canvas", { width: columns, height: rows, style: `width:${columns * cell}px;height:${rows * cell}px` });
      const context = canvas.getContext("2d");
      const at = picture.at + plane * rows * columns;
      for (let i = 0; i < rows * columns; i++) {
        const fill = colour(this.levels[at + i], picture);
        if (fill) (context.fillStyle = fill), context.fillRect(i % columns, Math.floor(i / columns), 1, 1);
      }
      canvas.addEventListener("mousemove", (event) => {
        const row = Math.min(rows - 1, Math.floor(event.offsetY / cell)), column = Math.min(columns - 1, Math.floor(event.offsetX / cell));
        const level = this.levels[at + row * columns + column];
        const value = level === NO_NUMBER ? "no number" : (picture.low + (level / LEVELS) * (picture.high - picture.low)).toPrecision(3);
        const named = (i, each) => each === 1 && tokens[i] && (rows === tokens.length) ? ` ${JSON.stringify(tokens[i][1])}` : "";
        canvas.title = `${planes > 1 ? `plane ${plane}, ` : ""}row ${row * picture.each[0]}${named(row, picture.each[0])}, column ${column * picture.each[1]}${columns === tokens.length ? named(column, picture.each[1]) : ""}: about ${value}`;
      });
      canvases.push(canvas);
    }
    const [r, c] = picture.each, chain = model.data.locations[picture.location][0];
    const notes = [r * c > 1 ? `a cell is the mean of ${r} × ${c}` : "", picture.turned ? "a picture for each of the third dimension, rows are tokens" : "", picture.cut ? `${picture.cut} columns at the end are empty` : ""].filter(Boolean);
    return make("figure", { onclick: () => model.lightLocation(picture.location) }, make("div", {}, ...canvases), make("figcaption", {},
      make("b", {}, chain === undefined ? picture.kernel : `${model.told(model.own(chain))} ${model.innermost(chain)}`),
      `${picture.again ? ` · ${picture.again + 1}th time` : ""} · step ${picture.step}`, make("br"),
      make("span", { class: "mono" }, `${picture.dtype}[${picture.shape.join(" × ")}]  ${picture.low} … ${picture.mean} … ${picture.high}`),
      notes.length ? make("span", { class: "quiet" }, make("br"), notes.join("; ")) : null));
  }
}
