// Makes a thread late just after it let another one go on: loaded with LD_PRELOAD, by `late_wakes`.
// A test that awaits a reply and then reads what the server does behind it fails under this, and in
// one run of thousands without.
//
// One thread in four is late, but not the first, and one at a time: were all, none would overtake
// another. After every other of its wakes (a condition, a semaphore or a futex notified, bytes sent
// to a socket, a pipe or an event), and one in 32 times that it gives back a lock, it sleeps for 0
// to 12 ms; so it may begin. ATHANOR_LATE_WAKES is the seed; unset, nothing is late.
// ATHANOR_LATE_WAKES_IN: the only programs it is for, by the ends of their paths, separated by
// commas. Beyond its first 100 ms a thread sleeps at most half of its life, and all threads
// together half the process's: where every sleep is under a lock, all takes twice as long.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
  kLateOf = 4,  // threads
  kWakes = 2,   // one of so many
  kUnlocks = 32,
  kLongestNs = 12000000,
  kFreeNs = 100000000,
  kShareOf = 2
};

static bool enabled;
static uint64_t seed;
static _Atomic uint64_t threads;
static atomic_flag sleeps = ATOMIC_FLAG_INIT;
static int64_t all_began_ns;
static _Atomic int64_t all_slept_ns;
static __thread bool late;
static __thread uint64_t state;  // 0: this thread has not begun
static __thread int64_t began_ns, slept_ns;

// Condition variables have two versions; the linker's default for a name may be the old one.
static void* find(const char* name, const char* version) {
  void* found = dlvsym(RTLD_NEXT, name, version);
  if (!found) found = dlsym(RTLD_NEXT, name);
  if (!found) abort();
  return found;
}

#define REAL(name, version)      \
  static __typeof__(name)* real; \
  if (!real) real = (__typeof__(name)*)find(#name, version)

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static bool is_for(const char* program, const char* names) {
  while (*names) {
    const size_t length = strcspn(names, ",");
    const size_t all = strlen(program);
    if (length > 0 && length <= all && !strncmp(program + all - length, names, length)) return true;
    names += length + (names[length] == ',');
  }
  return false;
}

__attribute__((constructor)) static void begin(void) {
  const char* number = getenv("ATHANOR_LATE_WAKES");
  if (!number) return;
  seed = strtoull(number, 0, 10);
  const char* names = getenv("ATHANOR_LATE_WAKES_IN");
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) abort();
  program[length] = 0;
  all_began_ns = now();
  enabled = !names || is_for(program, names);
}

// Splitmix64 (Steele, Lea and Flood 2014).
static uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static uint64_t random_bits(void) { return mixed(state += UINT64_C(0x9e3779b97f4a7c15)); }

static void late_once_in(unsigned times) {
  if (!enabled) return;
  if (!state) {
    state = mixed(seed) ^ mixed(UINT64_C(0x9e3779b97f4a7c15) * ++threads);
    late = random_bits() % kLateOf == 0 && syscall(SYS_gettid) != getpid();
    began_ns = now();
  }
  if (!late) return;
  const uint64_t bits = random_bits();
  if (bits % times != 0) return;
  const int64_t t = now();
  if (slept_ns > kFreeNs + (t - began_ns) / kShareOf) return;
  if (all_slept_ns > kFreeNs + (t - all_began_ns) / kShareOf) return;
  const struct timespec time = {0, (long)((bits >> 32) % kLongestNs)};
  const int error = errno;
  if (atomic_flag_test_and_set(&sleeps)) return;
  nanosleep(&time, 0);
  atomic_flag_clear(&sleeps);
  errno = error;
  slept_ns += time.tv_nsec;
  all_slept_ns += time.tv_nsec;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  REAL(pthread_mutex_unlock, "GLIBC_2.2.5");
  const int status = real(mutex);
  late_once_in(kUnlocks);
  return status;
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) {
  REAL(pthread_rwlock_unlock, "GLIBC_2.34");
  const int status = real(lock);
  late_once_in(kUnlocks);
  return status;
}

int pthread_cond_signal(pthread_cond_t* condition) {
  REAL(pthread_cond_signal, "GLIBC_2.3.2");
  const int status = real(condition);
  late_once_in(kWakes);
  return status;
}

int pthread_cond_broadcast(pthread_cond_t* condition) {
  REAL(pthread_cond_broadcast, "GLIBC_2.3.2");
  const int status = real(condition);
  late_once_in(kWakes);
  return status;
}

int sem_post(sem_t* semaphore) {
  REAL(sem_post, "GLIBC_2.34");
  const int status = real(semaphore);
  late_once_in(kWakes);
  return status;
}

// Abseil's mutexes and std::atomic's notifications.
long syscall(long number, ...) {
  REAL(syscall, "GLIBC_2.2.5");
  long a[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  const long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (number == SYS_futex) {
    const long operation = a[1] & FUTEX_CMD_MASK;
    if (operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET) late_once_in(kWakes);
  }
  return result;
}

// Files and terminals wake nobody.
static void late_after(int fd) {
  struct stat found;
  if (!enabled || fstat(fd, &found) != 0) return;
  if (!S_ISREG(found.st_mode) && !S_ISCHR(found.st_mode)) late_once_in(kWakes);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  REAL(write, "GLIBC_2.2.5");
  const ssize_t written = real(fd, bytes, size);
  const int error = errno;
  late_after(fd);
  errno = error;
  return written;
}

ssize_t writev(int fd, const struct iovec* pieces, int count) {
  REAL(writev, "GLIBC_2.2.5");
  const ssize_t written = real(fd, pieces, count);
  const int error = errno;
  late_after(fd);
  errno = error;
  return written;
}

ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  REAL(send, "GLIBC_2.2.5");
  const ssize_t sent = real(fd, bytes, size, flags);
  late_once_in(kWakes);
  return sent;
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  REAL(sendmsg, "GLIBC_2.2.5");
  const ssize_t sent = real(fd, message, flags);
  late_once_in(kWakes);
  return sent;
}

int eventfd_write(int fd, eventfd_t value) {
  REAL(eventfd_write, "GLIBC_2.7");
  const int status = real(fd, value);
  late_once_in(kWakes);
  return status;
}

struct start {
  void* (*run)(void*);
  void* argument;
};

static void* run_late(void* given) {
  const struct start start = *(struct start*)given;
  free(given);
  late_once_in(kWakes);
  return start.run(start.argument);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  REAL(pthread_create, "GLIBC_2.34");
  if (!enabled) return real(thread, attributes, run, argument);
  struct start* const start = malloc(sizeof *start);
  if (!start) return EAGAIN;
  *start = (struct start){run, argument};
  const int status = real(thread, attributes, run_late, start);
  if (status != 0) free(start);
  late_once_in(kWakes);
  return status;
}
