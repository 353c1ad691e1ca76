"""Counts tokens with bpe-openai in the environment where it is installed: texts by stdin, counts to stdout.

It is run as a script by the interpreter of `bench/peers/retrieval.lock` and imports nothing of this project.
"""

import importlib
import json
import sys
import time
from importlib.metadata import version
from typing import Any


def main() -> None:
    """Count once."""
    library: Any = importlib.import_module("bpe_openai")
    encoding = library.get_encoding("o200k_base")
    texts = json.load(sys.stdin)
    encoding.encode_ordinary("the first word")
    began = time.process_time()
    counts = [len(encoding.encode_ordinary(text)) for text in texts]
    seconds = time.process_time() - began
    json.dump(
        {"name": f"bpe-openai {version('bpe-openai')}", "counts": counts, "seconds": seconds}, sys.stdout
    )


if __name__ == "__main__":
    main()
