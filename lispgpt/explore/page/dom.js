// Elements, and a list of lines of which only those in sight are there.

/** An element: properties in `about` (dataset, class and listeners included), and what is in it. */
export function make(tag, about = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) element.setAttribute(name, `${value}`);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inside.filter((each) => each !== null && each !== undefined));
  return element;
}

export function drawing(tag, about = {}, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(about)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...inside);
  return element;
}

const HEIGHT = 18, BEYOND = 30, PRINTED = 600;

/** Lines in a body that scrolls.  row(i): the element of a line. */
export class Lines {
  constructor(body) {
    this.body = body;
    this.rows = make("div", { class: "rows" });
    body.replaceChildren(this.rows);
    body.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(body);
    addEventListener("beforeprint", () => this.draw(true));
    this.count = 0;
  }
  show(count, row) {
    Object.assign(this, { count, row });
    this.rows.style.height = `${count * HEIGHT}px`;
    this.draw();
  }
  draw(all = false) {
    const first = all ? 0 : Math.max(0, Math.floor(this.body.scrollTop / HEIGHT) - BEYOND);
    const end = all ? Math.min(this.count, PRINTED)
      : Math.min(this.count, Math.ceil((this.body.scrollTop + this.body.clientHeight) / HEIGHT) + BEYOND);
    const rows = [];
    for (let i = first; i < end; i++) {
      const row = this.row(i);
      row.style.top = `${i * HEIGHT}px`;
      rows.push(row);
    }
    this.rows.replaceChildren(...rows);
  }
  reveal(i) {
    const top = i * HEIGHT, { scrollTop, clientHeight } = this.body;
    if (top < scrollTop || top > scrollTop + clientHeight - 2 * HEIGHT) this.body.scrollTop = Math.max(0, top - clientHeight / 3);
    this.draw();
  }
}
