// pause: the process of a pod's sandbox. Sleeps, reaps what it inherits, ends when told.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void Stop(int signal) {
  (void)signal;
  _exit(0);
}

static void Reap(int signal) {
  (void)signal;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction reap = {.sa_handler = Reap, .sa_flags = SA_NOCLDSTOP};
  signal(SIGTERM, Stop);
  signal(SIGINT, Stop);
  sigaction(SIGCHLD, &reap, 0);
  for (;;) pause();
}
