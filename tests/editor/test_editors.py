"""Neovim and Emacs themselves, set up as the guide says: a wrong program is underlined, a name is explained."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "lispgpt" / "reference" / "guide" / "20-editors.md").read_text(encoding="utf-8")
SAID, EXPLAINED = "29 the shapes of tensor<8x3072xf32> and tensor<768xf32>", "(layer-norm x weight bias & epsilon)"
NEOVIM = """
vim.wait(100000, function() return #vim.diagnostic.get(0) > 0 end, 100)
for _, found in ipairs(vim.diagnostic.get(0)) do
  print(found.lnum + 1, found.message .. "\\n")
end
vim.fn.search("layer-norm x (ln1")
local place = vim.lsp.util.make_position_params(0, "utf-16")
print(vim.inspect(vim.lsp.buf_request_sync(0, "textDocument/hover", place, 100000)) .. "\\n")
vim.cmd("qa!")
"""
EMACS = """
(package-initialize)
(require 'eglot)
(setq eglot-sync-connect 100 eglot-connect-timeout 100)
(find-file "wrong.lisp")
(lispgpt-mode)
(call-interactively 'eglot)
(dotimes (n 1000)
  (unless (flymake-diagnostics) (when (= 0 (% n 20)) (flymake-start)) (accept-process-output nil 0.1)))
(dolist (each (flymake-diagnostics))
  (message "%d %s" (line-number-at-pos (flymake-diagnostic-beg each)) (flymake-diagnostic-text each)))
(goto-char (point-min))
(search-forward "layer-norm x (ln1")
(backward-char 12)
(message "%s" (jsonrpc-request (eglot-current-server) :textDocument/hover (eglot--TextDocumentPositionParams)))
(search-forward "(let")
(insert "    ")
(lispgpt-format)
(message "%s" (if (string-match-p "let  " (buffer-string)) "as it was" "laid out"))
"""


def said_by(editor: str, *arguments: str, folder: Path) -> str:
    """What an editor prints that has gpt2.lisp with a wrong line in it."""
    right = (ROOT / "examples" / "gpt2.lisp").read_text(encoding="utf-8")
    (folder / "wrong.lisp").write_text(right.replace("(proj-w l) (proj-b l)", "(fc-w l) (proj-b l)"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    command = [editor, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return re.sub(r"\s*(lispgpt: )?in `linear`:.*?: ", " ", done.stdout + done.stderr)


def lines_of(section: str) -> str:
    """The code of the guide's section, with this checkout's path."""
    _, _, rest = GUIDE.partition(f"## {section}\n")
    code = [line[4:] for line in rest.partition("\n## ")[0].splitlines() if line.startswith("    ")]
    return "\n".join(code).replace("/path/to/lispgpt", str(ROOT))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvim") is None, reason="needs Neovim")
def test_neovim_is_told_and_asks(tmp_path: Path) -> None:
    (tmp_path / "init.vim").write_text(f"filetype plugin on\n{lines_of('Vim and Neovim')}\n")
    (tmp_path / "drive.lua").write_text(NEOVIM)
    words = ("--headless", "-u", "init.vim", "wrong.lisp", "-c", "luafile drive.lua")
    told = said_by("nvim", *words, folder=tmp_path)
    assert SAID in told and EXPLAINED in told, told


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("emacs") is None, reason="needs Emacs")
def test_emacs_is_told_asks_and_lays_out(tmp_path: Path) -> None:
    if subprocess.run(["emacs", "--batch", "-l", "eglot"], capture_output=True, check=False).returncode:
        pytest.skip("needs eglot")
    (tmp_path / "drive.el").write_text(lines_of("Emacs") + EMACS)
    told = said_by("emacs", "--batch", "-l", "drive.el", folder=tmp_path)
    assert SAID in told and EXPLAINED in told and "laid out" in told, told
