"""A training run in numpy: a frozen body, a head that is fine-tuned (weights and Adam's two moments), a batch of data. A step trains the head."""

import numpy as np
from steps import mebibytes, serve

random = np.random.default_rng(1)
rows = mebibytes() * (1 << 20) // 4 // 64  # of 64 numbers, float32
body = random.standard_normal((rows * 6 // 10, 64), dtype=np.float32)
data = (random.integers(0, 256, (rows // 4, 64), dtype=np.uint8).astype(np.float32) / 255)
head = random.standard_normal((64, 512), dtype=np.float32)
first, second = np.zeros_like(head), np.zeros_like(head)


def step(number):
    batch = data[number * 256 % len(data):][:256] @ body[:64].T
    gradient = batch.T @ np.tanh(batch @ head[:, :64] if batch.shape[1] == 64 else batch)
    gradient = np.resize(gradient, head.shape).astype(np.float32)
    first[:] = 0.9 * first + 0.1 * gradient
    second[:] = 0.999 * second + 0.001 * gradient**2
    head[:] -= 0.001 * first / (np.sqrt(second) + 1e-8)


serve(step)
