"""A notebook's kernel: parsed text as Python objects, a table of columns, an array or two. A step is a cell or two of light editing."""

import random

import numpy as np
from steps import mebibytes, serve

draw, rng = random.Random(1), np.random.default_rng(1)
size = mebibytes() << 20
words = ["".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(2, 12))) for _ in range(20_000)]
documents, bytes_of = [], 0
while bytes_of < size // 4:
    document = {"id": len(documents), "tokens": [draw.choice(words) for _ in range(200)], "text": " ".join(draw.choices(words, k=120))}
    bytes_of += 3200
    documents.append(document)
rows = size // 4 // 32
table = {"key": np.arange(rows), "value": rng.normal(size=rows).round(3), "count": rng.poisson(3, rows), "group": rng.integers(0, 50, rows)}
image = (np.sin(np.arange(size // 4 // 4, dtype=np.float32) / 1000) * 1000).round(1)
empty = np.zeros(size // 8, dtype=np.uint8)
empty[:] = 0
history = []


def step(number):
    for _ in range(30):
        documents[draw.randrange(len(documents))]["note"] = " ".join(draw.choices(words, k=40))
    begin = draw.randrange(rows - 4000)
    table["value"][begin:begin + 4000] += 1
    history.append({"cell": number, "mean": float(table["value"][:100_000].mean()), "output": " ".join(draw.choices(words, k=300))})


serve(step)
