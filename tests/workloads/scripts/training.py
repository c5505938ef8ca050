"""A training loop: a network of two layers learns a function by gradient descent, a step every 20 ms. With a number: so many steps at once,
and the digest of their losses, which a run that was never interrupted has."""

import hashlib
import sys
import time

import numpy

import w


class Training:
    def __init__(self):
        self.random = numpy.random.default_rng(20240229)
        self.x = self.random.standard_normal((256, 32))
        self.y = numpy.sin(self.x @ self.random.standard_normal((32, 4)))
        self.first, self.second = self.random.standard_normal((32, 64)) * 0.1, self.random.standard_normal((64, 4)) * 0.1
        self.momentum = [numpy.zeros_like(self.first), numpy.zeros_like(self.second)]
        self.losses, self.digest = 0, hashlib.sha256()

    def step(self):
        batch = self.random.choice(256, 64, replace=False)
        x, y = self.x[batch], self.y[batch]
        hidden = numpy.tanh(x @ self.first)
        error = hidden @ self.second - y
        back = error @ self.second.T * (1 - hidden**2)
        for parameter, momentum, gradient in zip((self.first, self.second), self.momentum, (x.T @ back, hidden.T @ error)):
            momentum *= 0.9
            momentum -= 0.01 / 64 * gradient
            parameter += momentum
        self.losses += 1
        self.digest.update(float((error**2).mean()).hex().encode())


training = Training()
if len(sys.argv) > 1:
    for _ in range(int(sys.argv[1])):
        training.step()
    print(training.digest.hexdigest())
    sys.exit()


def step():
    training.step()
    return {"digest": [training.losses, training.digest.hexdigest()]}, {"steps": training.losses}


w.forever(step, 0.02)
