/* Every kind of timer, all at 50 ms: timerfd on three clocks, setitimer, POSIX timers by signal and in a thread, an absolute
 * pthread_cond_timedwait; and one shot of each kind an hour away, whose time must not move. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/timerfd.h>

#include "report.h"

static const struct itimerspec kEvery = {{0, 50000000}, {0, 50000000}}, kHour = {{0, 0}, {3600, 0}};
static _Atomic uint64_t alarms, signalled, in_thread, slept;
static _Atomic int wrong_value;

static void on_alarm(int signal) {
  (void)signal;
  alarms++;
}
static void on_timer(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)context;
  if (info->si_value.sival_int != 4711) wrong_value = 1;
  signalled++;
}
static void on_thread(union sigval value) {
  if (value.sival_int != 42) wrong_value = 1;
  in_thread++;
}

static void* sleeper(void* unused) {
  (void)unused;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_t never;
  pthread_cond_init(&never, &attributes);
  pthread_mutex_lock(&lock);
  for (;;) {
    const int64_t until = clock_ms(CLOCK_MONOTONIC) + 50;
    const struct timespec at = {until / 1000, until % 1000 * 1000000};
    if (pthread_cond_timedwait(&never, &lock, &at) != ETIMEDOUT) wrong_value = 1;
    slept++;
  }
  return NULL;
}

static timer_t posix_timer(int notify, int number, int value, const struct itimerspec* when) {
  struct sigevent event = {.sigev_notify = notify,
                           .sigev_signo = number,
                           .sigev_value.sival_int = value,
                           .sigev_notify_function = notify == SIGEV_THREAD ? on_thread : NULL};
  timer_t timer;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, when, NULL)) die("timer_create");
  return timer;
}

/* The time at which a one-shot timer ends, in this process's monotonic time. */
static int64_t end_of(const struct itimerspec* left) {
  return clock_ms(CLOCK_MONOTONIC) + left->it_value.tv_sec * 1000LL + left->it_value.tv_nsec / 1000000;
}

int main(void) {
  const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
  const char* names[] = {"monotonic", "realtime", "boottime"};
  int fds[3];
  uint64_t expired[3] = {0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    fds[i] = timerfd_create(clocks[i], TFD_NONBLOCK);
    if (fds[i] < 0 || timerfd_settime(fds[i], 0, &kEvery, NULL)) die("timerfd");
  }
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  struct sigaction with_value = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGRTMIN + 3, &with_value, NULL);
  pthread_t thread;
  if (pthread_create(&thread, NULL, sleeper, NULL)) die("pthread_create");
  const struct itimerval interval = {{0, 50000}, {0, 50000}};
  setitimer(ITIMER_REAL, &interval, NULL);
  const struct itimerval hour_of_cpu = {{0, 0}, {3600, 0}};
  setitimer(ITIMER_PROF, &hour_of_cpu, NULL);
  posix_timer(SIGEV_SIGNAL, SIGRTMIN + 3, 4711, &kEvery);
  posix_timer(SIGEV_THREAD, 0, 42, &kEvery);
  timer_t far = posix_timer(SIGEV_SIGNAL, SIGRTMIN + 4, 1, &kHour);
  int far_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  if (timerfd_settime(far_fd, 0, &kHour, NULL)) die("timerfd");
  int fired_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  const struct itimerspec past = {{0, 0}, {0, 1}};
  uint64_t once;
  if (timerfd_settime(fired_fd, TFD_TIMER_ABSTIME, &past, NULL) || read(fired_fd, &once, sizeof once) != sizeof once)
    die("absolute timerfd");
  struct itimerspec left;
  timer_gettime(far, &left);
  const int64_t far_end = end_of(&left);
  timerfd_gettime(far_fd, &left);
  const int64_t far_fd_end = end_of(&left);
  for (;;) {
    char grows[512];
    int used = 0;
    for (int i = 0; i < 3; ++i) {
      uint64_t n;
      if (read(fds[i], &n, sizeof n) == sizeof n) expired[i] += n;
      used += snprintf(grows + used, sizeof grows - (size_t)used, "\"timerfd %s\": %llu, ", names[i], (unsigned long long)expired[i]);
    }
    snprintf(grows + used, sizeof grows - (size_t)used,
             "\"setitimer\": %llu, \"POSIX timer\": %llu, \"POSIX timer in a thread\": %llu, \"timed wait\": %llu",
             (unsigned long long)alarms, (unsigned long long)signalled, (unsigned long long)in_thread, (unsigned long long)slept);
    if (wrong_value && !*report_errors) complain("a timer came with another value");
    /* A freeze is part of the process's own time for some of them: seconds, not the hour. */
    timer_gettime(far, &left);
    if (llabs(end_of(&left) - far_end) > 20000)
      complain("the POSIX timer of an hour moved by %lld ms", (long long)(end_of(&left) - far_end));
    timerfd_gettime(far_fd, &left);
    if (llabs(end_of(&left) - far_fd_end) > 20000)
      complain("the timerfd of an hour moved by %lld ms", (long long)(end_of(&left) - far_fd_end));
    struct itimerval of_cpu;
    getitimer(ITIMER_PROF, &of_cpu);
    if (of_cpu.it_value.tv_sec < 3000 || of_cpu.it_value.tv_sec > 3600)
      complain("the one shot of setitimer has %ld s left", (long)of_cpu.it_value.tv_sec);
    uint64_t n;
    if (read(far_fd, &n, sizeof n) == sizeof n) complain("the timerfd of an hour fired");
    if (read(fired_fd, &n, sizeof n) == sizeof n) complain("an absolute timerfd fired a second time");
    report("", grows);
    sleep_ms(20);
  }
}
