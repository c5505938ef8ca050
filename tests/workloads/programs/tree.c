/* A tree of processes: a child that has ended and was not waited for, an orphan that became ours, a session and process groups of their
 * own, five generations. Each counts in shared memory. `touch /run/finish` collects the dead child. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "report.h"

enum { kOrphan, kSession, kGroup, kLine, kAll = kLine + 5 };
struct place {
  volatile uint64_t count;
  pid_t pid, parent, group, session;
};
static struct place* places;

static void live(int i) {
  struct place* p = &places[i];
  p->pid = getpid(), p->group = getpgrp(), p->session = getsid(0);
  for (;;) {
    p->count++;
    p->parent = getppid();
    if (getpid() != p->pid || getpgrp() != p->group || getsid(0) != p->session) _exit(9);
    sleep_ms(20);
  }
}

static void line(void) {
  int generation = 1;
  while (generation < 5 && fork() == 0) ++generation; /* a child goes on where its parent stays */
  live(kLine + generation - 1);
}

int main(void) {
  places = mmap(NULL, kAll * sizeof *places, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t dead = fork();
  if (dead == 0) _exit(42);
  const pid_t between = fork();
  if (between == 0) {
    if (fork() == 0) live(kOrphan);
    _exit(0);
  }
  waitpid(between, NULL, 0); /* the orphan is ours now */
  if (fork() == 0) {
    if (setsid() < 0) die("setsid");
    live(kSession);
  }
  if (fork() == 0) {
    if (setpgid(0, 0)) die("setpgid");
    live(kGroup);
  }
  if (fork() == 0) line();
  sleep_ms(300); /* until all have said who they are */
  int status = -1;
  for (;;) {
    char same[1024], grows[512];
    int s = 0, g = 0;
    for (int i = 0; i < kAll; ++i) {
      const struct place* p = &places[i];
      s += snprintf(same + s, sizeof same - (size_t)s, "\"%d\": \"%d %d %d %d\", ", i, p->pid, p->parent, p->group, p->session);
      g += snprintf(grows + g, sizeof grows - (size_t)g, "%s\"%d\": %llu", i ? ", " : "", i, (unsigned long long)p->count);
    }
    siginfo_t info = {0};
    if (status < 0 && (waitid(P_PID, (id_t)dead, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid != dead || info.si_status != 42) &&
        !*report_errors)
      complain("the dead child is gone or has another status");
    if (finishing() && status < 0) {
      if (waitpid(dead, &status, WNOHANG) != dead || WEXITSTATUS(status) != 42) complain("the dead child was not collected");
    }
    snprintf(same + s, sizeof same - (size_t)s, "\"dead\": %d%s", dead, status < 0 ? "" : ", \"received\": true");
    report(same, grows);
    sleep_ms(30);
  }
}
