/* STAND-IN for a program with CUDA, for machines without a GPU: gpu_test.py moves it. What is kept of the real thing:
 *  - "device memory" is not in the process after a checkpoint, and back at the same address after a restore;
 *  - the device is held open while it runs, and not while it is checkpointed;
 *  - calls block from lock to unlock; work goes on until the lock is taken;
 *  - a thread of the process itself does what cuda-checkpoint asks for, so nothing happens while that thread stands still.
 * Every 10 ms one line on stdout: <count> device=<counter in device memory> gpu=<uuid>.
 * usage: gpu_counter UUID DEVICE */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { RUNNING, LOCKED, CHECKPOINTED };
enum { NONE, LOCK, CHECKPOINT, RESTORE, UNLOCK };

/* cuda_checkpoint.py reads and writes this through /proc/PID/mem. */
struct control {
  char magic[16];
  _Atomic int request, state, deaf; /* deaf: a lock is never granted, as with work on the GPU that does not end */
  char uuid[64], device[64];
};
static struct control* const control = (struct control*)0x10000000;
static uint64_t* const device_memory = (uint64_t*)0x20000000;
enum { DEVICE_BYTES = 4 << 20 };
static pthread_mutex_t api = PTHREAD_MUTEX_INITIALIZER;
static void* host;
static int device = -1;

static void die(const char* what) {
  printf("fatal: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void map_at(void* at, size_t size) {
  if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at) die("mmap");
}

static void acquire(void) {
  device = open(control->device, O_RDWR | O_CLOEXEC);
  if (device < 0) die(control->device);
  map_at(device_memory, DEVICE_BYTES);
}

static void* restore_thread(void* unused) {
  (void)unused;
  prctl(PR_SET_NAME, "cuda-restore");
  for (;; usleep(1000)) {
    switch (control->request) {
      case LOCK:
        if (control->deaf) continue;
        pthread_mutex_lock(&api);
        control->state = LOCKED;
        break;
      case CHECKPOINT:
        host = malloc(DEVICE_BYTES);
        memcpy(host, device_memory, DEVICE_BYTES);
        munmap(device_memory, DEVICE_BYTES);
        close(device);
        control->state = CHECKPOINTED;
        break;
      case RESTORE:
        acquire();
        memcpy(device_memory, host, DEVICE_BYTES);
        free(host);
        control->state = LOCKED;
        break;
      case UNLOCK:
        pthread_mutex_unlock(&api);
        control->state = RUNNING;
        break;
      default:
        continue;
    }
    control->request = NONE;
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  map_at(control, sizeof *control);
  strcpy(control->magic, "cuda-stand-in");
  snprintf(control->uuid, sizeof control->uuid, "%s", argv[1]);
  snprintf(control->device, sizeof control->device, "%s", argv[2]);
  acquire();
  for (size_t i = 0; i < DEVICE_BYTES / 8; ++i) device_memory[i] = i;
  pthread_t thread;
  if (pthread_create(&thread, NULL, restore_thread, NULL) != 0) die("pthread_create");
  for (uint64_t count = 1;; ++count, usleep(10000)) {
    pthread_mutex_lock(&api); /* a call into CUDA */
    for (size_t i = 1; i < DEVICE_BYTES / 8; ++i) {
      if (device_memory[i] != i) printf("fatal: device memory has changed\n");
    }
    const uint64_t value = ++device_memory[0];
    pthread_mutex_unlock(&api);
    printf("%llu device=%llu gpu=%s\n", (unsigned long long)count, (unsigned long long)value, control->uuid);
  }
}
