/*
 * Records what a process and its children change below one folder, in order, for recording.ts, which builds it and has the
 * format. POWER_ROOT is the folder without links in its path, POWER_RECORD the file of the records. A change and its record
 * are one step under a lock, so that the order of the records is the order of the changes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, RENAME, REMOVE, FOLDER, SYMLINK, LINK, SYNC };

struct header {
  uint32_t kind, first_bytes, second_bytes, unused;
  uint64_t file, at;
};

static int record_fd = -1;
static char root[PATH_MAX];
static size_t root_length;
/* Recursive, because a function of the C library may call another one of those below. */
static pthread_mutex_t turn = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

#define REAL(name) \
  static __typeof__(name) *real; \
  if (real == NULL) real = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void open_record(void) {
  const char *folder = getenv("POWER_ROOT"), *file = getenv("POWER_RECORD");
  if (folder == NULL || file == NULL) return;
  root_length = strlen(folder);
  memcpy(root, folder, root_length + 1);
  record_fd = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int is_below(const char *path) {
  return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

static void record(int kind, uint64_t file, uint64_t at, const void *first, size_t first_bytes, const char *second) {
  int saved = errno;
  size_t second_bytes = second == NULL ? 0 : strlen(second);
  struct header header = {kind, first_bytes, second_bytes, 0, file, at};
  struct iovec parts[] = {{&header, sizeof header}, {(void *)first, first_bytes}, {(void *)second, second_bytes}};
  ssize_t size = sizeof header + first_bytes + second_bytes;
  if (syscall(SYS_writev, record_fd, parts, 3) != size) abort();
  errno = saved;
}

/* Writes the path with the folder that contains it resolved. Returns whether it is below the root. */
static int resolve(int at, const char *path, char *out) {
  if (record_fd < 0 || path == NULL) return 0;
  int saved = errno;
  char full[PATH_MAX], folder[PATH_MAX];
  if (path[0] == '/' || at == AT_FDCWD) snprintf(full, sizeof full, "%s", path);
  else snprintf(full, sizeof full, "/proc/self/fd/%d/%s", at, path);
  size_t length = strlen(full);
  while (length > 1 && full[length - 1] == '/') full[--length] = 0;
  char *slash = strrchr(full, '/');
  const char *name = slash == NULL ? full : slash + 1;
  char parent[PATH_MAX];
  if (slash == NULL) strcpy(parent, ".");
  else snprintf(parent, sizeof parent, "%.*s", slash == full ? 1 : (int)(slash - full), full);
  int found = realpath(parent, folder) != NULL;
  if (found) snprintf(out, PATH_MAX, "%s/%s", folder, name);
  errno = saved;
  return found && is_below(out);
}

static uint64_t file_of(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 ? found.st_ino : 0;
}

/* Returns the number of the file if the descriptor has one below the root, and otherwise 0. */
static uint64_t ours(int fd) {
  if (record_fd < 0 || fd < 0) return 0;
  int saved = errno;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  uint64_t file = length > 0 && is_below(path) ? file_of(fd) : 0;
  errno = saved;
  return file;
}

static int opened(int fd, int flags, int was_there, const char *path) {
  if (fd < 0 || path[0] == 0) return fd;
  uint64_t file = file_of(fd);
  if (!was_there) record(CREATE, file, 0, path, strlen(path), NULL);
  else if ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY) record(TRUNCATE, file, 0, NULL, 0, NULL);
  return fd;
}

#define OPEN(at, call) \
  char full[PATH_MAX] = ""; \
  if (!(flags & (O_CREAT | O_TRUNC)) || !resolve(at, path, full)) return call; \
  pthread_mutex_lock(&turn); \
  struct stat before; \
  int was_there = lstat(full, &before) == 0; \
  int fd = opened(call, flags, was_there, full); \
  pthread_mutex_unlock(&turn); \
  return fd;

#define MODE \
  va_list list; \
  va_start(list, flags); \
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; \
  va_end(list)

int open(const char *path, int flags, ...) { REAL(open); MODE; OPEN(AT_FDCWD, real(path, flags, mode)) }
int open64(const char *path, int flags, ...) { REAL(open64); MODE; OPEN(AT_FDCWD, real(path, flags, mode)) }
int openat(int at, const char *path, int flags, ...) { REAL(openat); MODE; OPEN(at, real(at, path, flags, mode)) }
int openat64(int at, const char *path, int flags, ...) { REAL(openat64); MODE; OPEN(at, real(at, path, flags, mode)) }

/* `start` is an expression for the offset at which the bytes begin. */
#define WRITTEN(call, start, bytes) \
  uint64_t file = ours(fd); \
  if (file == 0) return call; \
  pthread_mutex_lock(&turn); \
  ssize_t written = call; \
  if (written > 0) record(WRITE, file, start, bytes, written, NULL); \
  pthread_mutex_unlock(&turn); \
  return written;

#define HERE (lseek(fd, 0, SEEK_CUR) - written)

ssize_t write(int fd, const void *data, size_t count) { REAL(write); WRITTEN(real(fd, data, count), HERE, data) }
ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
  REAL(pwrite); WRITTEN(real(fd, data, count, at), at, data)
}
ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
  REAL(pwrite64); WRITTEN(real(fd, data, count, at), at, data)
}

static char *joined(const struct iovec *parts, int count) {
  size_t size = 0;
  for (int at = 0; at < count; at++) size += parts[at].iov_len;
  char *bytes = malloc(size + 1), *next = bytes;
  if (bytes == NULL) abort();
  for (int at = 0; at < count; at++) next = mempcpy(next, parts[at].iov_base, parts[at].iov_len);
  return bytes;
}

#define GATHERED(call, start) \
  if (ours(fd) == 0) return call; \
  char *bytes = joined(parts, count); \
  pthread_mutex_lock(&turn); \
  ssize_t written = call; \
  if (written > 0) record(WRITE, file_of(fd), start, bytes, written, NULL); \
  pthread_mutex_unlock(&turn); \
  free(bytes); \
  return written;

ssize_t writev(int fd, const struct iovec *parts, int count) { REAL(writev); GATHERED(real(fd, parts, count), HERE) }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  REAL(pwritev); GATHERED(real(fd, parts, count, at), at)
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  REAL(pwritev64); GATHERED(real(fd, parts, count, at), at)
}

#define DONE(is_ours, call, record_call) \
  if (!(is_ours)) return call; \
  pthread_mutex_lock(&turn); \
  int result = call; \
  if (result == 0) record_call; \
  pthread_mutex_unlock(&turn); \
  return result;

int ftruncate(int fd, off_t size) {
  REAL(ftruncate); DONE(ours(fd), real(fd, size), record(TRUNCATE, file_of(fd), size, NULL, 0, NULL))
}
int ftruncate64(int fd, off64_t size) {
  REAL(ftruncate64); DONE(ours(fd), real(fd, size), record(TRUNCATE, file_of(fd), size, NULL, 0, NULL))
}
int fsync(int fd) { REAL(fsync); DONE(ours(fd), real(fd), record(SYNC, file_of(fd), 0, NULL, 0, NULL)) }
int fdatasync(int fd) { REAL(fdatasync); DONE(ours(fd), real(fd), record(SYNC, file_of(fd), 0, NULL, 0, NULL)) }

#define NAMED(kind, at, call) \
  char full[PATH_MAX]; \
  DONE(resolve(at, path, full), call, record(kind, 0, 0, full, strlen(full), NULL))

int unlink(const char *path) { REAL(unlink); NAMED(REMOVE, AT_FDCWD, real(path)) }
int remove(const char *path) { REAL(remove); NAMED(REMOVE, AT_FDCWD, real(path)) }
int rmdir(const char *path) { REAL(rmdir); NAMED(REMOVE, AT_FDCWD, real(path)) }
int unlinkat(int at, const char *path, int flags) { REAL(unlinkat); NAMED(REMOVE, at, real(at, path, flags)) }

static void record_folder(const char *full) {
  struct stat found;
  if (lstat(full, &found) == 0) record(FOLDER, found.st_ino, 0, full, strlen(full), NULL);
}
int mkdir(const char *path, mode_t mode) {
  REAL(mkdir);
  char full[PATH_MAX];
  DONE(resolve(AT_FDCWD, path, full), real(path, mode), record_folder(full))
}
int mkdirat(int at, const char *path, mode_t mode) {
  REAL(mkdirat);
  char full[PATH_MAX];
  DONE(resolve(at, path, full), real(at, path, mode), record_folder(full))
}

/* Renames from or to the outside of the root are not supported. */
#define PAIR(kind, old_at, new_at, call) \
  char from[PATH_MAX], to[PATH_MAX]; \
  int is_ours = resolve(old_at, old, from); \
  if (resolve(new_at, new, to) != is_ours) abort(); \
  DONE(is_ours, call, record(kind, 0, 0, from, strlen(from), to))

int rename(const char *old, const char *new) { REAL(rename); PAIR(RENAME, AT_FDCWD, AT_FDCWD, real(old, new)) }
int renameat(int a, const char *old, int b, const char *new) { REAL(renameat); PAIR(RENAME, a, b, real(a, old, b, new)) }
int renameat2(int a, const char *old, int b, const char *new, unsigned flags) {
  REAL(renameat2); PAIR(RENAME, a, b, real(a, old, b, new, flags))
}
int link(const char *old, const char *new) { REAL(link); PAIR(LINK, AT_FDCWD, AT_FDCWD, real(old, new)) }
int symlink(const char *target, const char *path) {
  REAL(symlink);
  char full[PATH_MAX];
  DONE(resolve(AT_FDCWD, path, full), real(target, path), record(SYMLINK, 0, 0, full, strlen(full), target))
}
