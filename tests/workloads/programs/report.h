/* What a program says of itself, in /run/now: one line of JSON, {"same": {…}, "grows": {…}, "errors": […]}, whole at any time. What is
 * "same" must never change; what "grows" must go on; "errors" must stay empty. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static char report_errors[2048];

__attribute__((noreturn)) static inline void die(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

__attribute__((format(printf, 1, 2))) static inline void complain(const char* format, ...) {
  size_t used = strlen(report_errors);
  if (used > sizeof report_errors - 300) return;
  if (used) used += (size_t)snprintf(report_errors + used, 3, ", ");
  report_errors[used++] = '"';
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(report_errors + used, 250, format, args);
  va_end(args);
  used += (size_t)(n < 250 ? n : 249);
  strcpy(report_errors + used, "\"");
}

/* A number that only this process has. */
static inline uint64_t nonce(void) {
  static uint64_t value;
  if (value == 0 && getrandom(&value, sizeof value, 0) != sizeof value) die("getrandom");
  return value;
}

/* `same`, `grows`: members of JSON objects, without braces. */
static inline void report(const char* same, const char* grows) {
  FILE* file = fopen("/run/.now", "w");
  if (!file) die("/run/.now");
  fprintf(file, "{\"same\": {\"nonce\": \"%016llx\"%s%s}, \"grows\": {%s}, \"errors\": [%s]}\n", (unsigned long long)nonce(),
          *same ? ", " : "", same, grows, report_errors);
  if (fclose(file) || rename("/run/.now", "/run/now")) die("/run/now");
}

static inline int64_t clock_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static inline void sleep_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&t, &t) && errno == EINTR) {
  }
}

/* Whether somebody asked for the last act: `touch /run/finish`. */
static inline int finishing(void) { return access("/run/finish", F_OK) == 0; }
