// Starts `lispgpt lsp` and lets VS Code talk to it.
const { commands, window, workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function start() {
  const [command, ...args] = workspace.getConfiguration("lispgpt").get("command");
  client = new LanguageClient("lispgpt", "lispgpt", { command, args }, { documentSelector: [{ language: "lispgpt" }] });
  return client.start().catch((error) => {
    window.showErrorMessage(`${[command, ...args].join(" ")} does not start (${error}): pip install 'lispgpt[lsp]'`);
  });
}

function activate(context) {
  const restart = async () => {
    await client?.stop().catch(() => undefined);
    await start();
  };
  context.subscriptions.push(commands.registerCommand("lispgpt.restart", restart));
  return start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
