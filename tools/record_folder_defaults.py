"""Record what transformers takes for settings that config.json leaves out, as tests/references/folder_defaults.json.

Run it from the project's root in an environment that has transformers (see `record_folders.py`):

    PYTHONPATH=tools /tmp/references/bin/python tools/record_folder_defaults.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from folder_kinds import KINDS
from transformers import AutoConfig
from transformers.configuration_utils import PretrainedConfig

RECORDED = Path("tests/references/folder_defaults.json")
OF_ALL = PretrainedConfig().to_dict().keys() - {"tie_word_embeddings"}
LONGEST = 4
"""Of lists; those with a value for each layer say what other settings say, too."""


def main() -> None:
    kinds = sorted({kind for _, kind, _ in KINDS})
    recorded = {kind: defaults(kind) for kind in kinds}
    lines = [f"{json.dumps(kind)}: {json.dumps(recorded[kind], separators=(',', ':'))}" for kind in kinds]
    RECORDED.write_text("{" + ",\n".join(lines) + "}\n")


def defaults(kind: str) -> dict[str, Any]:
    config = AutoConfig.for_model(kind)
    data = getattr(config, "text_config", config).to_dict()
    data = {key: value for key, value in data.items() if key not in OF_ALL and not _is_long(value)}
    return {key: data[key] for key in sorted(data)} | {"model_type": kind}


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > LONGEST


if __name__ == "__main__":
    main()
