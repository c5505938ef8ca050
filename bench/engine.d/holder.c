// holder MIB SEED: a process that holds so much touched memory and looks at the clock every 2 ms. Whoever stops it, or moves it, stops that
// too:
//   ready
//   gap FROM TO   as soon as it runs again: seconds since 1970 of the last look before and of the first one after
//   same 1        a moment later: all of the memory is what it was (0: it is not)
// The memory: per 64 KiB, half random words (as keys, ciphertext or trained weights), half text (as logs, JSON or Python objects: LZ4 makes
// 40 % of it).
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kBlock = 65536, kText = 32768, kLook = 1 << 22 };
static const double kGap = 0.1;  // seconds; shorter ones are a busy machine's

static uint64_t state;
static uint64_t Next(void) {  // splitmix64
  uint64_t x = state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static void Fill(char* memory, uint64_t bytes) {
  for (uint64_t block = 0; block < bytes; block += kBlock) {
    for (char* at = memory + block; at < memory + block + kText; at += 8) {
      const uint64_t word = Next();
      memcpy(at, &word, 8);
    }
    char line[128];
    for (int at = kText, length; at < kBlock; at += length) {
      const uint64_t word = Next();
      length = snprintf(line, sizeof line, "{\"id\": %llu, \"user\": \"user-%03llu\", \"state\": \"%s\", \"score\": 0.%04llu}\n",
                        (unsigned long long)(word >> 40), (unsigned long long)(word & 511), word & 512 ? "running" : "waiting",
                        (unsigned long long)(word >> 12 & 4095));
      if (length > kBlock - at) length = kBlock - at;
      memcpy(memory + block + at, line, (size_t)length);
    }
  }
}

static uint64_t Sum(uint64_t sum, const char* memory, uint64_t bytes) {
  uint64_t word;
  for (uint64_t at = 0; at < bytes; at += 8) {
    memcpy(&word, memory + at, 8);
    sum = (sum << 1 | sum >> 63) ^ word;  // also of the order
  }
  return sum;
}

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void Quit(int signal) {
  (void)signal;
  _exit(0);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  signal(SIGTERM, Quit);  // process 1 would ignore it
  setvbuf(stdout, NULL, _IOLBF, 0);
  const uint64_t bytes = strtoull(argv[1], NULL, 10) << 20;
  state = strtoull(argv[2], NULL, 10);
  char* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return perror("mmap"), 1;
  Fill(memory, bytes);
  const uint64_t right = Sum(0, memory, bytes);
  printf("ready\n");
  uint64_t sum = 0, at = bytes;  // what is summed up again; at the end: nothing
  for (double last = Now();;) {
    if (at < bytes) {  // in small parts: the next stop may come meanwhile
      const uint64_t part = bytes - at < kLook ? bytes - at : kLook;
      sum = Sum(sum, memory + at, part);
      at += part;
      if (at == bytes) printf("same %d\n", sum == right);
    } else {
      const struct timespec wait = {0, 2000000};
      nanosleep(&wait, NULL);
    }
    const double now = Now();
    if (now - last > kGap) {
      printf("gap %.4f %.4f\n", last, now);
      sum = at = 0;
    }
    last = now;
  }
}
