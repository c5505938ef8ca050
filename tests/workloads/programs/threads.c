/* 32 threads that count, each in memory of its own, and two that pass a ball by mutex and condition variable. */
#include <pthread.h>
#include <stdatomic.h>

#include "report.h"

enum { kThreads = 32 };
static __thread uint64_t own, own_twice;
static _Atomic uint64_t counts[kThreads];
static _Atomic int broken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static uint64_t ball; /* even: the first player's turn */

static void* count(void* which) {
  const size_t i = (size_t)which;
  own = i, own_twice = 2 * i;
  for (;;) {
    ++own, own_twice += 2;
    if (own_twice != 2 * own || own != counts[i] + i + 1) broken = 1;
    counts[i]++;
    sleep_ms(10 + (long)i % 7);
  }
  return NULL;
}

static void* play(void* which) {
  const uint64_t side = (uint64_t)which;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (ball % 2 != side) pthread_cond_wait(&passed, &lock);
    ++ball;
    pthread_cond_signal(&passed);
    pthread_mutex_unlock(&lock);
    sleep_ms(3);
    pthread_mutex_lock(&lock);
  }
  return NULL;
}

int main(void) {
  pthread_t thread;
  for (size_t i = 0; i < kThreads; ++i) {
    if (pthread_create(&thread, NULL, count, (void*)i)) die("pthread_create");
  }
  for (size_t side = 0; side < 2; ++side) {
    if (pthread_create(&thread, NULL, play, (void*)side)) die("pthread_create");
  }
  for (;;) {
    char grows[2048];
    int used = 0;
    for (int i = 0; i < kThreads; ++i)
      used += snprintf(grows + used, sizeof grows - (size_t)used, "\"thread %d\": %llu, ", i, (unsigned long long)counts[i]);
    pthread_mutex_lock(&lock);
    snprintf(grows + used, sizeof grows - (size_t)used, "\"ball\": %llu", (unsigned long long)ball);
    pthread_mutex_unlock(&lock);
    if (broken && !*report_errors) complain("a thread's own count is not what it was");
    report("", grows);
    sleep_ms(50);
  }
}
