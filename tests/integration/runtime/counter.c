/* The program that the runtime test moves. Two processes with a loopback connection between them, one connection to a witness outside,
 * a UDP socket bound to the pod's address, an open file on the rootfs, one in /dev/shm. Every 20 ms one line on stdout:
 *   <count> <CLOCK_MONOTONIC ms> real=<ms> rtt=<ms of the loopback echo> loop=<echo> resets=<n> udp=<bound address> nonce=<n> sum=<hash>
 * where the hash is of the touched memory.
 *
 * usage: counter POD_IP WITNESS_IP WITNESS_PORT MIB PORT
 *        counter race FOLDER TARGET: swaps folders in FOLDER for links to TARGET, as fast as it can, and makes them when they are gone */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static struct sockaddr_in address(const char* ip, int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
  inet_pton(AF_INET, ip, &a.sin_addr);
  return a;
}

static void die(const char* what) {
  printf("fatal: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void echo_process(int port) {
  struct sockaddr_in a = address("127.0.0.1", port);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, (struct sockaddr*)&a, sizeof a)) die("connect on loopback");
  int64_t value;
  while (read(fd, &value, sizeof value) == sizeof value) {
    if (write(fd, &value, sizeof value) != sizeof value) break;
  }
  exit(1);
}

static void race(const char* in, const char* target) {
  if (chdir(in)) die(in);
  for (unsigned count = 0;; ++count) {
    char folder[16], link[16];
    snprintf(folder, sizeof folder, "folder%u", count % 8);
    snprintf(link, sizeof link, "link%u", count % 8);
    if (count % 512 < 8) {
      mkdir(folder, 0755);
      if (symlink(target, link) && errno != EEXIST) die("symlink");
    }
    renameat2(AT_FDCWD, folder, AT_FDCWD, link, RENAME_EXCHANGE);
    if (count % 100000 == 0) printf("%u 0 sum=0\n", count);
  }
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc == 4 && !strcmp(argv[1], "race")) race(argv[2], argv[3]);
  if (argc != 6) return 2;
  const int port = atoi(argv[5]);
  signal(SIGPIPE, SIG_IGN);
  size_t size = (size_t)atoi(argv[4]) << 20;
  unsigned char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t seed = 88172645463325252ULL;
  for (size_t i = 0; i < size / 8; ++i) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    ((uint64_t*)memory)[i] = seed;
  }
  /* Files that the upper directory must carry: a new one, a deleted one of the image, a folder of the image made anew, a hard link. */
  int file = open("/var/count", O_RDWR | O_CREAT | O_TRUNC, 0640);
  if (file < 0) die("open /var/count");
  unlink("/etc/deleted");
  unlink("/etc/folder/old");
  rmdir("/etc/folder");
  mkdir("/etc/folder", 0750);
  close(open("/etc/folder/new", O_CREAT | O_WRONLY, 0600));
  unlink("/etc/link");  // of an earlier run in the same root
  if (link("/etc/folder/new", "/etc/link")) die("link");
  /* Open by a name that is gone; another one leads to it. */
  unlink("/var/other");
  int linked = open("/var/opened", O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (linked < 0 || link("/var/opened", "/var/other") || unlink("/var/opened")) die("/var/opened");
  char page_name[64];
  snprintf(page_name, sizeof page_name, "/dev/shm/page.%d", port);
  int shm = open(page_name, O_RDWR | O_CREAT, 0600);
  if (shm < 0 || ftruncate(shm, 4096)) die(page_name);
  int64_t* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shm, 0);

  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in a = address("127.0.0.1", port);
  if (bind(listener, (struct sockaddr*)&a, sizeof a) || listen(listener, 1)) die("listen");
  if (fork() == 0) echo_process(port);
  int loop = accept(listener, NULL, NULL);
  int udp = socket(AF_INET, SOCK_DGRAM, 0);
  a = address(argv[1], port + 1);
  if (bind(udp, (struct sockaddr*)&a, sizeof a)) die("bind udp");
  struct sockaddr_in witness = address(argv[2], atoi(argv[3]));
  int out = -1, resets = 0;
  srandom(getpid() ^ (unsigned)time(NULL));
  long nonce = random();
  for (int64_t count = 1;; ++count) {
    int64_t echo = 0, asked = now_ms(CLOCK_MONOTONIC);
    if (write(loop, &count, sizeof count) != sizeof count || read(loop, &echo, sizeof echo) != sizeof echo || echo != count)
      die("the loopback connection broke");
    int64_t rtt = now_ms(CLOCK_MONOTONIC) - asked;
    *page = count;
    dprintf(file, "%lld\n", (long long)count);
    char digits[24];
    pwrite(linked, digits, snprintf(digits, sizeof digits, "%lld\n", (long long)count), 0);
    if (out < 0) {
      out = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      connect(out, (struct sockaddr*)&witness, sizeof witness);
    }
    char text[64];
    int n = snprintf(text, sizeof text, "%ld %lld\n", nonce, (long long)count);
    if (send(out, text, n, 0) < 0 && errno != EAGAIN && errno != EINPROGRESS && errno != EALREADY && errno != ENOTCONN) {
      close(out);
      out = -1;
      ++resets;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i += 4096) sum = sum * 31 + memory[i];
    struct sockaddr_in bound;
    socklen_t length = sizeof bound;
    getsockname(udp, (struct sockaddr*)&bound, &length);
    printf("%lld %lld real=%lld rtt=%lld loop=%lld resets=%d udp=%s nonce=%ld sum=%llx\n", (long long)count,
           (long long)now_ms(CLOCK_MONOTONIC), (long long)now_ms(CLOCK_REALTIME), (long long)rtt, (long long)echo, resets,
           inet_ntoa(bound.sin_addr), nonce, (unsigned long long)sum);
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
  }
}
