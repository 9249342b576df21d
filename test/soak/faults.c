/*
 * Faults of the disk and of the clock for a process that this library is preloaded into. The byte at offset 0 of the file
 * named by SOAK_FAULTS chooses the fault; the 8 bytes at offset 8 are the seconds by which the wall clock is ahead. Only
 * files whose path contains "orchlet.db" are concerned. Built by preloaded-faults.ts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { NONE, NO_ROOM, FSYNC_FAILS, FSYNC_HANGS, WRITE_FAILS, SHORT_WRITE, QUOTA, QUOTA_ONCE };

struct control {
  volatile uint8_t fault;
  uint8_t unused[7];
  volatile int64_t ahead_s;
};

static struct control *control;

__attribute__((constructor)) static void open_control(void) {
  const char *path = getenv("SOAK_FAULTS");
  if (path == NULL) return;
  int fd = open(path, O_RDWR);
  if (fd < 0) return;
  void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped != MAP_FAILED) control = mapped;
  close(fd);
  /* A disk that takes no writes is replaced before the next start. */
  if (control != NULL && control->fault == WRITE_FAILS) control->fault = NONE;
}

/* The fault, where the file is one of the storage's. */
static int fault_of(int fd) {
  if (control == NULL || control->fault == NONE) return NONE;
  char link[64], path[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return NONE;
  path[length] = 0;
  return strstr(path, "orchlet.db") == NULL ? NONE : control->fault;
}

#define REAL(name) \
  static __typeof__(name) *real; \
  if (real == NULL) real = dlsym(RTLD_NEXT, #name)

#define BEFORE_WRITE \
  switch (fault_of(fd)) { \
    case NO_ROOM: errno = ENOSPC; return -1; \
    case QUOTA: errno = EDQUOT; return -1; \
    case QUOTA_ONCE: control->fault = NONE; errno = EDQUOT; return -1; \
    case WRITE_FAILS: errno = EIO; return -1; \
    case SHORT_WRITE: control->fault = NO_ROOM; count = count / 2; break; \
    default: break; \
  }

ssize_t write(int fd, const void *buffer, size_t count) { REAL(write); BEFORE_WRITE return real(fd, buffer, count); }
ssize_t pwrite(int fd, const void *buffer, size_t count, off_t at) {
  REAL(pwrite); BEFORE_WRITE return real(fd, buffer, count, at);
}
ssize_t pwrite64(int fd, const void *buffer, size_t count, off64_t at) {
  REAL(pwrite64); BEFORE_WRITE return real(fd, buffer, count, at);
}

static int before_sync(int fd) {
  switch (fault_of(fd)) {
    case FSYNC_FAILS: control->fault = NONE; errno = EIO; return -1;
    case FSYNC_HANGS: control->fault = NONE; sleep(10); return 0;
    default: return 0;
  }
}
int fsync(int fd) { REAL(fsync); return before_sync(fd) < 0 ? -1 : real(fd); }
int fdatasync(int fd) { REAL(fdatasync); return before_sync(fd) < 0 ? -1 : real(fd); }

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  REAL(gettimeofday);
  int result = real(now, zone);
  if (result == 0 && control != NULL) now->tv_sec += control->ahead_s;
  return result;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(clock_gettime);
  int result = real(clock, now);
  if (result == 0 && control != NULL && clock == CLOCK_REALTIME) now->tv_sec += control->ahead_s;
  return result;
}
