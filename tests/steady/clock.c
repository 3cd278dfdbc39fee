// Shifts what a process takes for the time of day by the seconds found in a shared file: loaded with
// LD_PRELOAD, the file in ATHANOR_TEST_CLOCK. Clocks that do not jump stay as they are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t* offset;

__attribute__((constructor)) static void open_offset(void) {
  int fd = open(getenv("ATHANOR_TEST_CLOCK"), O_RDONLY);
  void* at = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) abort();
  offset = at;
}

int clock_gettime(clockid_t id, struct timespec* t) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(id, t);
  if (offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += *offset;
  return status;
}

int gettimeofday(struct timeval* restrict t, void* restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
