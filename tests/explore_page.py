"""A page in a headless Chromium: a script of ours acts in it, and says what it finds."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

ACTS = """
<pre id="said"></pre>
<script type="module">
  const soon = () => new Promise((go) => setTimeout(go, 25));
  const until = async (holds) => { for (let i = 0; i < 400 && !holds(); i++) await soon(); };
  const say = (found) => { document.getElementById("said").textContent = JSON.stringify(found); };
  await until(() => document.documentElement.dataset.ready);
  try { say(await (async () => { %s })()); } catch (error) { say({ error: `${error.stack}` }); }
</script>
"""


def acted(page: Path, script: str, folder: Path) -> Any:
    """What a script returns that runs in the page, which `explore` and `document` are of."""
    copy = folder / f"acted-{page.name}"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{ACTS % script}</body>"), encoding="utf-8")
    assert CHROMIUM is not None
    command = [
        *(
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1600,1000",
            "--virtual-time-budget=20000",
        ),
        *(f"--user-data-dir={folder / 'chromium'}", "--dump-dom", copy.as_uri()),
    ]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    said = re.search(r'<pre id="said">(.*?)</pre>', dom, re.DOTALL)
    assert said is not None, dom[-2000:]
    return json.loads(html.unescape(said[1]))
