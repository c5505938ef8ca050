// hpc KERNEL MIB: one of ten small programs of the kind of the AMD SDK's samples, on the CPU, that works on so much memory until it is
// stopped. Says "ready" when all of its memory is touched, and "pass N" after each time through it. The work is real, its data is as such
// programs have it, and nothing else of it matters here: what is measured is a checkpoint of it as it runs.
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t state = 1;
static uint64_t Next(void) {  // splitmix64
  uint64_t x = state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
static float Uniform(void) { return (float)(Next() >> 40) / (float)(1 << 24); }

static void* memory;
static size_t bytes;

static void FillFloats(float* at, size_t n) {
  for (size_t i = 0; i < n; ++i) at[i] = Uniform();
}
static size_t Side(size_t cells) { return (size_t)sqrt((double)cells); }

enum { kBlock = 1 << 20 };  // elements that are sorted or transformed together

static void FillWords(void) {
  for (size_t i = 0; i < bytes / 8; ++i) ((uint64_t*)memory)[i] = Next();
}
static void BitonicSort(void) {  // uint32, ascending in each block, anew from the data of the last pass
  uint32_t* words = memory;
  for (size_t from = 0; from + kBlock <= bytes / 4; from += kBlock) {
    uint32_t* v = words + from;
    for (uint32_t i = 0; i < kBlock; ++i) v[i] = v[i] * 2654435761U + i;
    for (uint32_t k = 2; k <= kBlock; k *= 2) {
      for (uint32_t j = k / 2; j > 0; j /= 2) {
        for (uint32_t i = 0; i < kBlock; ++i) {
          const uint32_t other = i ^ j;
          if (other > i && ((i & k) == 0) == (v[i] > v[other])) {
            const uint32_t swap = v[i];
            v[i] = v[other];
            v[other] = swap;
          }
        }
      }
    }
  }
}

static void FillAllFloats(void) { FillFloats(memory, bytes / 4); }
static void MatMul(void) {  // float32, C = A B
  const size_t n = Side(bytes / 12);
  const float *a = memory, *b = a + n * n;
  float* c = (float*)memory + 2 * n * n;
  for (size_t i = 0; i < n; ++i) {
    memset(c + i * n, 0, n * sizeof *c);
    for (size_t k = 0; k < n; ++k) {
      for (size_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
}

static void Dct(void) {  // float32, 8 x 8 blocks of rows of 64
  static float cosine[8][8];
  for (int u = 0; u < 8; ++u) {
    for (int x = 0; x < 8; ++x) cosine[u][x] = (u == 0 ? sqrtf(0.125F) : 0.5F) * cosf((float)((2 * x + 1) * u) * 3.14159265F / 16);
  }
  const size_t n = bytes / 8;
  const float* in = memory;
  float* out = (float*)memory + n;
  for (size_t at = 0; at + 64 <= n; at += 64) {
    float rows[8][8];
    for (int y = 0; y < 8; ++y) {
      for (int u = 0; u < 8; ++u) {
        rows[y][u] = 0;
        for (int x = 0; x < 8; ++x) rows[y][u] += cosine[u][x] * in[at + (size_t)(8 * y + x)];
      }
    }
    for (int v = 0; v < 8; ++v) {
      for (int u = 0; u < 8; ++u) {
        float sum = 0;
        for (int y = 0; y < 8; ++y) sum += cosine[v][y] * rows[y][u];
        out[at + (size_t)(8 * v + u)] = sum;
      }
    }
  }
}

// float32, from the first half of the memory into the second, along and across.
static void Filter(const float* mask, int radius) {
  const size_t n = Side(bytes / 8);
  const float* in = memory;
  float* out = (float*)memory + n * n;
  const size_t r = (size_t)radius, width = 2 * r + 1;
  for (size_t y = r; y + r < n; ++y) {
    for (size_t x = r; x + r < n; ++x) {
      float sum = 0;
      for (size_t dy = 0; dy < width; ++dy) {
        for (size_t dx = 0; dx < width; ++dx) sum += mask[dy * width + dx] * in[(y + dy - r) * n + x + dx - r];
      }
      out[y * n + x] = sum;
    }
  }
}
static void Convolution(void) {
  static const float mask[9] = {-1, -1, -1, -1, 8, -1, -1, -1, -1};
  Filter(mask, 1);
}
static void Gaussian(void) {
  float mask[25];
  for (int i = 0; i < 25; ++i) {
    const float y = (float)(i / 5 - 2), x = (float)(i % 5 - 2);
    mask[i] = expf(-(x * x + y * y) / 2) / 6.1687F;
  }
  Filter(mask, 2);
}

static void Histogram(void) {  // uint8
  static volatile uint64_t counts[256];
  const uint8_t* data = memory;
  for (size_t i = 0; i < bytes; ++i) counts[data[i]]++;
}

static void FillDistances(void) {
  for (size_t i = 0; i < bytes / 4; ++i) ((int32_t*)memory)[i] = (int32_t)(Next() % 200 + 1);
}
static void FloydWarshall(void) {  // int32
  const size_t n = Side(bytes / 4);
  int32_t* d = memory;
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i < n; ++i) {
      const int32_t to = d[i * n + k];
      for (size_t j = 0; j < n; ++j) {
        if (to + d[k * n + j] < d[i * n + j]) d[i * n + j] = to + d[k * n + j];
      }
    }
  }
}

static void WalshTransform(void) {  // float32, normalised
  for (size_t from = 0; from + kBlock <= bytes / 4; from += kBlock) {
    float* v = (float*)memory + from;
    for (size_t half = 1; half < kBlock; half *= 2) {
      for (size_t i = 0; i < kBlock; i += 2 * half) {
        for (size_t j = i; j < i + half; ++j) {
          const float a = v[j], b = v[j + half];
          v[j] = (a + b) * 0.70710678F;
          v[j + half] = (a - b) * 0.70710678F;
        }
      }
    }
  }
}

static void Haar(void) {  // float32, from the first half of the memory into the second
  const size_t n = bytes / 8;
  static float level[kBlock];
  for (size_t from = 0; from + kBlock <= n; from += kBlock) {
    memcpy(level, (float*)memory + from, sizeof level);
    float* out = (float*)memory + n + from;
    for (size_t length = kBlock; length > 1; length /= 2) {
      for (size_t i = 0; i < length / 2; ++i) {
        out[length / 2 + i] = (level[2 * i] - level[2 * i + 1]) * 0.70710678F;
        level[i] = (level[2 * i] + level[2 * i + 1]) * 0.70710678F;
      }
    }
    out[0] = level[0];
  }
}

static void Binomial(void) {  // float32: the price of an option for each random value, by a tree of 254 steps
  enum { kSteps = 254 };
  const size_t n = bytes / 8;
  const float* in = memory;
  float* out = (float*)memory + n;
  for (size_t i = 0; i < n; ++i) {
    const float price = 5 + 25 * in[i], strike = 100 - 99 * in[i], years = 1 + 9 * in[i], step = years / kSteps;
    const float up = expf(0.3F * sqrtf(step)), down = 1 / up, rate = expf(0.02F * step), p = (rate - down) / (up - down);
    float value[kSteps + 1];
    float at = price * powf(down, kSteps);
    for (int k = 0; k <= kSteps; ++k, at *= up * up) value[k] = at > strike ? at - strike : 0;
    for (int left = kSteps; left > 0; --left) {
      for (int k = 0; k < left; ++k) value[k] = (p * value[k + 1] + (1 - p) * value[k]) / rate;
    }
    out[i] = value[0];
  }
}

static const struct {
  const char* name;
  void (*fill)(void);
  void (*pass)(void);
} kKernels[] = {{"bitonic", FillWords, BitonicSort},
                {"matmul", FillAllFloats, MatMul},
                {"dct", FillAllFloats, Dct},
                {"convolution", FillAllFloats, Convolution},
                {"gaussian", FillAllFloats, Gaussian},
                {"histogram", FillWords, Histogram},
                {"floyd-warshall", FillDistances, FloydWarshall},
                {"walsh", FillAllFloats, WalshTransform},
                {"haar", FillAllFloats, Haar},
                {"binomial", FillAllFloats, Binomial}};

static void Quit(int signal) {
  (void)signal;
  _exit(0);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  signal(SIGTERM, Quit);  // process 1 would ignore it
  setvbuf(stdout, NULL, _IOLBF, 0);
  bytes = strtoull(argv[2], NULL, 10) << 20;
  memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return perror("mmap"), 1;
  for (size_t i = 0; i < sizeof kKernels / sizeof *kKernels; ++i) {
    if (strcmp(kKernels[i].name, argv[1]) != 0) continue;
    kKernels[i].fill();
    printf("ready\n");
    for (uint64_t pass = 1;; ++pass) {
      kKernels[i].pass();
      printf("pass %llu\n", (unsigned long long)pass);
    }
  }
  fprintf(stderr, "no such kernel: %s\n", argv[1]);
  return 2;
}
