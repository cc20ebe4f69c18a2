// A conversation with a model of this server.
const byId = (id) => document.getElementById(id);
const messages = [];
let stopping = null;

function headers() {
  const key = byId("key").value;
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

function show(kind, text) {
  const made = document.createElement("div");
  made.className = kind;
  made.textContent = text;
  byId("talk").append(made);
  made.scrollIntoView({ block: "end" });
  return made;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (let part; !(part = await reader.read()).done; ) {
    const lines = (held + part.value).split("\n\n");
    held = lines.pop();
    for (const line of lines) if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
  }
}

async function list() {
  const found = await fetch("/v1/models", { headers: headers() });
  byId("key").hidden = found.status !== 401 && !byId("key").value;
  if (!found.ok) return;
  byId("model").replaceChildren(...(await found.json()).data.map((model) => new Option(model.id)));
}

async function ask(text) {
  messages.push({ role: "user", content: text });
  show("user", text);
  stopping = new AbortController();
  byId("stop").hidden = false;
  let said = "", reasoning = null, answer = null;
  try {
    const body = JSON.stringify({ model: byId("model").value, messages, stream: true });
    const found = await fetch("/v1/chat/completions", { method: "POST", headers: headers(), body, signal: stopping.signal });
    if (!found.ok) throw new Error((await found.json()).error.message);
    for await (const part of events(found.body)) {
      if (part.error) throw new Error(part.error.message);
      const delta = part.choices[0]?.delta ?? {};
      if (delta.reasoning_content) (reasoning ??= show("reasoning", "")).append(delta.reasoning_content);
      if (delta.content) {
        said += delta.content;
        (answer ??= show("assistant", "")).append(delta.content);
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") show("error", error.message);
  }
  byId("stop").hidden = true;
  if (said) messages.push({ role: "assistant", content: said });
  else messages.pop();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("message").value.trim();
  if (!text || !byId("stop").hidden) return;
  byId("message").value = "";
  ask(text);
});
byId("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    byId("ask").requestSubmit();
  }
});
byId("stop").addEventListener("click", () => stopping?.abort());
byId("key").addEventListener("change", list);
list();
