// Shows the names and texts that have all words, exact names and beginnings first.
const box = document.getElementById("search");
const list = document.getElementById("found");

function rank(entry, words) {
  const [name, , , text] = entry.map((part) => part.toLowerCase());
  if (!words.every((word) => name.includes(word) || text.includes(word))) return null;
  if (name === words.join(" ")) return 0;
  if (name.startsWith(words[0])) return 1;
  return words.every((word) => name.includes(word)) ? 2 : 3;
}

box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length ? NAMES.map((entry) => [rank(entry, words), entry]).filter(([place]) => place !== null) : [];
  found.sort((a, b) => a[0] - b[0]);
  list.replaceChildren(...found.slice(0, 30).map(([, [name, kind, link, text]]) => {
    const item = document.createElement("li");
    const anchor = document.createElement("a");
    anchor.href = link;
    anchor.textContent = name;
    const about = document.createElement("small");
    about.textContent = text ? `${kind}: ${text}` : kind;
    item.append(anchor, about);
    return item;
  }));
});
