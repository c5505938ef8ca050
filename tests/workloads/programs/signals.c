/* Signals that wait: one of the process, one of a thread, three queued real-time ones with values, all blocked; an alternate stack that
 * the handler must run on. `touch /run/finish` lets them in. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "report.h"

static char stack[65536];
static _Atomic uint64_t handled;
static _Atomic int off_stack;
static char received[256];

static void on_usr2(int signal) {
  (void)signal;
  char here;
  if (&here < stack || &here >= stack + sizeof stack) off_stack = 1;
  handled++;
}

static sigset_t waiting(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGRTMIN + 1);
  return set;
}

static void let_in(void) {
  const sigset_t set = waiting();
  const struct timespec none = {0, 0};
  siginfo_t info;
  int used = 0;
  while (sigtimedwait(&set, &info, &none) > 0 && used < 200) {
    used += snprintf(received + used, sizeof received - (size_t)used, "%s%d:%d", used ? " " : "", info.si_signo == SIGUSR1 ? 0 : 1,
                     info.si_value.sival_int);
  }
}

int main(void) {
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_handler = on_usr2, .sa_flags = SA_ONSTACK | SA_RESTART};
  const sigset_t set = waiting();
  if (sigaltstack(&alternate, NULL) || sigaction(SIGUSR2, &action, NULL) || sigprocmask(SIG_BLOCK, &set, NULL)) die("signals");
  const union sigval first = {.sival_int = 7};
  sigqueue(getpid(), SIGUSR1, first);
  for (int i = 1; i <= 3; ++i) {
    const union sigval value = {.sival_int = 11 * i};
    if (sigqueue(getpid(), SIGRTMIN + 1, value)) die("sigqueue");
  }
  for (;;) {
    sigset_t pending, mask;
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    if (finishing() && !*received) let_in();
    raise(SIGUSR2);
    if (off_stack && !*report_errors) complain("the handler ran on another stack");
    if (!*received && (!sigismember(&pending, SIGUSR1) || !sigismember(&pending, SIGRTMIN + 1)) && !*report_errors)
      complain("a pending signal is gone");
    if (!sigismember(&mask, SIGUSR1) && !*report_errors) complain("the mask of blocked signals is gone");
    char same[64], grows[400];
    snprintf(same, sizeof same, "\"pid\": %d", getpid());
    snprintf(grows, sizeof grows, "\"handled\": %llu", (unsigned long long)handled);
    if (*received && strcmp(received, "0:7 1:11 1:22 1:33") && !*report_errors) complain("received %s", received);
    if (*received) strcat(same, ", \"received\": true");
    report(same, grows);
    sleep_ms(30);
  }
}
