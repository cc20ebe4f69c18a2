// The page's data: JSON and streams of numbers, and the histories of functions in them (see packed.py).

export const KEEP = 0, DROP = 1, ADD = 2, CHANGE = 3;
const HOLE = "\x01", END = "\x02";

/** {data, streams} of the text of the page's own element: base64 of deflated parts behind a line that lists them. */
export async function unpack(text) {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const end = bytes.indexOf(10);
  const decoder = new TextDecoder();
  const [repeats, names] = JSON.parse(decoder.decode(bytes.subarray(0, end)));
  const whole = withRepeats(bytes, end + 1, end + 1 + repeats, names.reduce((sum, [, length]) => sum + length, 0));
  let at = 0;
  const parts = {};
  for (const [name, length] of names) {
    parts[name] = whole.subarray(at, at + length);
    at += length;
  }
  const data = JSON.parse(decoder.decode(parts.data));
  data.texts = decoder.decode(parts.texts).split("\n");
  data.machineTexts = decoder.decode(parts["machine-texts"]).split("\n");
  return { data, streams: parts };
}

/** So many bytes, of a list of what is new and what stood earlier, and of the new bytes from `from` on (see distant.py). */
function withRepeats(bytes, list, from, length) {
  const whole = new Uint8Array(length), numbers = new Numbers(bytes, list);
  for (let at = 0; at < length; ) {
    const fresh = numbers.next(), again = numbers.next(), distance = numbers.next();
    whole.set(bytes.subarray(from, from + fresh), at);
    from += fresh;
    at += fresh;
    whole.copyWithin(at, at - distance, at - distance + again);
    at += again;
  }
  return whole;
}

/** Reads one number after another. */
export class Numbers {
  constructor(bytes, at) {
    this.bytes = bytes;
    this.at = at;
  }
  next() {
    let number = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      number += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return number;
  }
  signed() {
    return unfolded(this.next());
  }
}

function unfolded(number) {
  return number % 2 ? -(number + 1) / 2 : number / 2;
}

/** The names of a function's values, each given once. */
class Names {
  constructor() {
    this.count = 0;
    this.hints = new Map();
  }
  make(hint) {
    if (!hint) return `%${this.count++}`;
    const seen = this.hints.get(hint) ?? 0;
    this.hints.set(hint, seen + 1);
    return seen ? `%${hint}_${seen}` : `%${hint}`;
  }
}

/** The steps of one function: {number, gone, runs, before, after, rows}, rows being {mark, line} for a picture of what
 * the step changes.  A line is {pieces, location, values, defines}: its text is the pieces with the values between. */
export function history(data, streams, name) {
  const [runs, lines, values, locations] = data.functions[name].map(
    (at, kind) => new Numbers(streams[["runs", "lines", "values", "locations"][kind]], at));
  const names = new Names(), steps = [], places = new Map();
  let now = [], location = 0;
  const write = (known, inherited) => {
    location += locations.signed();
    const text = lines.next(), marks = data.texts[text].split(HOLE);
    if (!places.has(text)) places.set(text, []);
    const last = places.get(text);
    const line = { pieces: [marks[0]], location, values: [], defines: [] };
    for (const mark of marks.slice(1)) {
      const end = mark.indexOf(END);
      let value;
      if (end >= 0) {
        value = inherited?.[line.defines.length] ?? { name: names.make(mark.slice(0, end)) };
        line.defines.push(value);
      } else {
        const said = values.next(), hole = line.values.length;
        const place = said % 2 ? (last[hole] ?? 0) + unfolded((said - 1) / 2) : known.length - said / 2;
        last[hole] = place;
        value = known[place] ?? line.defines[place - known.length];
      }
      line.values.push(value);
      line.pieces.push(mark.slice(end + 1));
    }
    return line;
  };
  for (let left = runs.next(); left > 0; left--) {
    const head = runs.next(), known = [], after = [], rows = [];
    let at = 0;
    const put = (line) => {
      after.push(line);
      known.push(...line.defines);
    };
    for (let count = runs.next(); count > 0; count--) {
      const said = runs.next(), what = said % 4;
      for (let i = (said - what) / 4; i > 0; i--) {
        if (what === DROP) rows.push({ mark: "-", line: now[at++] });
        else if (what === KEEP) {
          rows.push({ mark: " ", line: now[at] });
          put(now[at++]);
        } else {
          const old = what === CHANGE ? now[at++] : null;
          const line = write(known, old?.defines);
          rows.push({ mark: what === CHANGE ? "~" : "+", line, old });
          put(line);
        }
      }
    }
    steps.push({ number: (head - (head % 2)) / 2, gone: head % 2 === 1, before: now, after, rows });
    now = after;
  }
  return steps;
}

/** What history would say of a function's steps without their lines: {number, gone, changes}. */
export function outline(data, streams, name) {
  const runs = new Numbers(streams.runs, data.functions[name][0]), steps = [];
  for (let left = runs.next(); left > 0; left--) {
    const head = runs.next(), step = { number: (head - (head % 2)) / 2, gone: head % 2 === 1, changes: 0 };
    for (let count = runs.next(); count > 0; count--) {
      const said = runs.next(), what = said % 4;
      if (what !== KEEP) step.changes += (said - what) / 4;
    }
    steps.push(step);
  }
  return steps;
}

const LETTERS = /[A-Za-z%$.+\-:\[_]*$/;

/** The instructions of one function: {text, location}. */
export function machineCode(data, streams, name) {
  const [count, ...starts] = data.machine[name];
  const [lines, numbers, locations] = starts.map(
    (at, kind) => new Numbers(streams[["machine-lines", "machine-numbers", "machine-locations"][kind]], at));
  const found = [], last = {};
  let location = 0;
  for (let i = 0; i < count; i++) {
    location += locations.signed();
    const marks = data.machineTexts[lines.next()].split(HOLE);
    let text = marks[0];
    for (const mark of marks.slice(1)) {
      const letters = LETTERS.exec(text)[0];
      last[letters] = (last[letters] ?? 0) + numbers.signed();
      text += last[letters] + mark;
    }
    found.push({ text, location });
  }
  return found;
}

/** A line's text with its values' names. */
export function textOf(line) {
  return line.values.reduce((text, value, i) => text + value.name + line.pieces[i + 1], line.pieces[0]);
}
