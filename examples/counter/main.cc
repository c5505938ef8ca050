// counter: a process whose state one would miss. It counts 20 times a second and holds memory, a child, a loopback connection and a
// connection to the outside, and tells the witness about every count. A restart shows as a new nonce; anything lost on a move shows there.
//   COUNTER_MIB   memory to hold (300)
//   WITNESS       host:port of the witness; empty: only the log
//   SHARE_WRITE   a file into which each count is written; SHARE_READ: one that must never go back (examples/two-containers.yaml)
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "counter/line.h"
#include "counter/loopback.h"
#include "counter/memory.h"
#include "counter/sender.h"

namespace {

constexpr int64_t kPeriodMs = 50;
constexpr char kToken[] = "/var/run/secrets/kubernetes.io/serviceaccount/token";

int64_t NowMs(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

std::string Env(const char* name, const char* otherwise) {
  const char* value = getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value && *value ? value : otherwise;
}

// Tells one token from another without telling it. 0: there is none.
uint64_t TokenHash() {
  const int fd = open(kToken, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  struct stat st {};
  fstat(fd, &st);
  unsigned char data[4096];
  const ssize_t n = read(fd, data, sizeof data);
  close(fd);
  uint64_t hash = counter::Mix(static_cast<uint64_t>(st.st_mtime));
  for (ssize_t i = 0; i < n; ++i) hash = counter::Mix(hash ^ data[i]);
  return hash;
}

// The other container's count in a shared volume must be there once it was, and never go back.
class SharedFile {
 public:
  SharedFile() : read_(Env("SHARE_READ", "")) {
    const std::string path = Env("SHARE_WRITE", "");
    if (!path.empty()) write_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);  // kept open: it moves with the process
    if (!path.empty() && write_ < 0) perror(path.c_str());
  }
  bool Step(uint64_t count) {
    if (write_ >= 0) {
      char text[24];
      const int n = snprintf(text, sizeof text, "%020" PRIu64 "\n", count);
      if (pwrite(write_, text, n, 0) != n) broken_ = true;
    }
    if (!read_.empty()) {
      unsigned long long seen = 0;
      FILE* file = fopen(read_.c_str(), "re");
      const bool read = file && fscanf(file, "%llu", &seen) == 1;
      if (file) fclose(file);
      if ((!read && last_ > 0) || (read && seen < last_)) {
        if (!broken_) printf("shared volume broken: %s said %llu, now %llu\n", read_.c_str(), static_cast<unsigned long long>(last_), seen);
        broken_ = true;
      }
      if (read) last_ = seen;
    }
    return !broken_;
  }

 private:
  std::string read_;
  int write_ = -1;
  uint64_t last_ = 0;
  bool broken_ = false;
};

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  // As process 1 of a container the default would be to ignore it.
  signal(SIGTERM, [](int) { _exit(0); });
  signal(SIGINT, [](int) { _exit(0); });

  uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return perror("getrandom"), 1;
  const uint64_t mib = strtoull(Env("COUNTER_MIB", "300").c_str(), nullptr, 10);
  counter::Loopback loopback;
  if (!loopback.error().empty()) return fprintf(stderr, "loopback: %s\n", loopback.error().c_str()), 1;
  counter::Memory memory(nonce, mib);
  counter::Sender sender(Env("WITNESS", ""), nonce, mib);
  SharedFile share;
  printf("nonce %016" PRIx64 ", %" PRIu64 " MiB, witness %s\n", nonce, mib, Env("WITNESS", "none").c_str());

  const int64_t start = NowMs(CLOCK_MONOTONIC);
  counter::Line line;
  line.nonce = nonce;
  line.peer_pid = loopback.peer_pid();
  for (;;) {
    const int64_t begin = NowMs(CLOCK_MONOTONIC);
    ++line.count;
    if (!loopback.RoundTrip(line.count) && !line.loopback_broken) {
      line.loopback_broken = 1;
      printf("loopback broken: %s\n", loopback.error().c_str());
    }
    if (!share.Step(line.count)) line.share_broken = 1;
    line.hash = memory.Visit(line.count);
    line.monotonic_ms = NowMs(CLOCK_MONOTONIC) - start;
    line.realtime_ms = NowMs(CLOCK_REALTIME);
    line.reconnects = sender.reconnects();
    if (line.count % 20 == 1) {
      line.token_hash = TokenHash();
      printf("count %" PRIu64 ", monotonic %" PRId64 ".%03" PRId64 " s, realtime %" PRId64 ".%03" PRId64 "%s\n", line.count,
             line.monotonic_ms / 1000, line.monotonic_ms % 1000, line.realtime_ms / 1000, line.realtime_ms % 1000,
             line.loopback_broken ? ", loopback broken" : "");
    }
    sender.Add(line);
    const int64_t left = kPeriodMs - (NowMs(CLOCK_MONOTONIC) - begin);
    if (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(left));
  }
}
