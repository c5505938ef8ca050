// witness: what counters report to, and the judge of whether anything was lost. `witness [COUNTER_PORT [HTTP_PORT]]`: 9000 and 8080.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "witness/server.h"

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  signal(SIGTERM, [](int) { _exit(0); });  // as process 1 of a container the default would be to ignore it
  signal(SIGINT, [](int) { _exit(0); });
  witness::Server server(argc > 1 ? atoi(argv[1]) : 9000, argc > 2 ? atoi(argv[2]) : 8080);
  if (!server.error().empty()) return fprintf(stderr, "witness: %s\n", server.error().c_str()), 1;
  printf("witness: counters on port %u, HTTP on port %u\n", server.counter_port(), server.http_port());
  for (;;) server.RunOnce(1000);
}
