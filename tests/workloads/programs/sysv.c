/* System V: a segment that two processes write in turns under a semaphore, and a queue with messages that nobody has read yet. */
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>

#include "report.h"

struct message {
  long type;
  char text[64];
};

static void turn(int semaphores, unsigned short which, short by) {
  struct sembuf operation = {which, by, 0};
  while (semop(semaphores, &operation, 1)) {
    if (errno != EINTR) die("semop");
  }
}

int main(void) {
  const key_t key = 0x486f6c64;
  const size_t size = 1 << 20;
  const int segment = shmget(key, size, IPC_CREAT | 0600), semaphores = semget(key, 3, IPC_CREAT | 0600),
            queue = msgget(key, IPC_CREAT | 0600);
  if (segment < 0 || semaphores < 0 || queue < 0) die("System V");
  unsigned char* memory = shmat(segment, NULL, 0);
  if (memory == (void*)-1) die("shmat");
  volatile uint64_t* numbers = (volatile uint64_t*)memory; /* 0, 1: what each process has counted */
  memset(memory, 0, 64);
  for (size_t i = 64; i < size; ++i) memory[i] = (unsigned char)(i * 31 >> 3);
  semctl(semaphores, 0, SETVAL, 1);
  semctl(semaphores, 1, SETVAL, 0);
  semctl(semaphores, 2, SETVAL, 17);
  for (long i = 1; i <= 5; ++i) {
    struct message m = {.type = i};
    snprintf(m.text, sizeof m.text, "message %ld", i);
    if (msgsnd(queue, &m, sizeof m.text, 0)) die("msgsnd");
  }
  const pid_t other = fork();
  const int me = other == 0;
  int taken = 0;
  for (;;) {
    turn(semaphores, (unsigned short)me, -1);
    numbers[me]++;
    const uint64_t mine = numbers[0], its = numbers[1];
    if (mine - its > 1) complain("out of turn: %llu, %llu", (unsigned long long)mine, (unsigned long long)its);
    turn(semaphores, (unsigned short)!me, 1);
    sleep_ms(10);
    if (me) continue;
    for (size_t i = 64; i < size; ++i) {
      if (memory[i] != (unsigned char)(i * 31 >> 3)) {
        complain("byte %zu of the segment changed", i);
        break;
      }
    }
    struct shmid_ds info;
    struct msqid_ds messages;
    if (shmctl(segment, IPC_STAT, &info) || msgctl(queue, IPC_STAT, &messages)) complain("ids: %s", strerror(errno));
    if (finishing() && !taken) {
      for (long i = 5; i >= 1; --i) { /* by type, from the last */
        struct message m;
        char expected[64];
        snprintf(expected, sizeof expected, "message %ld", i);
        if (msgrcv(queue, &m, sizeof m.text, i, IPC_NOWAIT) < 0 || strcmp(m.text, expected)) complain("message %ld is not there", i);
      }
      taken = 1;
    }
    if (shmget(key, 0, 0) != segment || semget(key, 0, 0) != semaphores || msgget(key, 0) != queue) complain("a key leads to another id");
    char same[200], grows[100];
    snprintf(same, sizeof same, "\"segment\": %d, \"semaphores\": %d, \"queue\": %d, \"value\": %d, \"attached\": %d%s", segment,
             semaphores, queue, semctl(semaphores, 2, GETVAL), (int)info.shm_nattch, taken ? ", \"received\": true" : "");
    snprintf(grows, sizeof grows, "\"parent\": %llu, \"child\": %llu", (unsigned long long)mine, (unsigned long long)its);
    report(same, grows);
  }
}
