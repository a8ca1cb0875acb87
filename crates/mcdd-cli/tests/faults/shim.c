/* Faults of the operating system, for tests: preloaded before the C library.
 *
 * MCDD_FAULT=full:N      writes to files fail with ENOSPC after N bytes
 * MCDD_FAULT=read-only   no file can be created or opened for writing (EROFS)
 * MCDD_FAULT=short       reads and writes of files transfer three bytes in four calls, then some more
 * MCDD_FAULT=eintr       every other read and write is interrupted (EINTR) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long written, calls;

static const char *fault(void) {
  const char *name = getenv("MCDD_FAULT");
  return name ? name : "";
}

static int is_file(int fd) {
  struct stat data;
  return fstat(fd, &data) == 0 && S_ISREG(data.st_mode);
}

static size_t shortened(size_t count) {
  long call = atomic_fetch_add(&calls, 1);
  size_t most = call % 5 == 4 ? 4099 : 3;
  return count < most ? count : most;
}

ssize_t write(int fd, const void *from, size_t count) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "write");
  if (is_file(fd)) {
    const char *name = fault();
    if (!strncmp(name, "full:", 5)) {
      long room = atol(name + 5) - atomic_load(&written);
      if (room <= 0) {
        errno = ENOSPC;
        return -1;
      }
      if (count > (size_t)room) count = room;
    } else if (!strcmp(name, "short")) {
      count = shortened(count);
    } else if (!strcmp(name, "eintr") && atomic_fetch_add(&calls, 1) % 2) {
      errno = EINTR;
      return -1;
    }
  }
  ssize_t done = real(fd, from, count);
  if (done > 0 && is_file(fd)) atomic_fetch_add(&written, done);
  return done;
}

ssize_t read(int fd, void *to, size_t count) {
  static ssize_t (*real)(int, void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "read");
  if (is_file(fd)) {
    const char *name = fault();
    if (!strcmp(name, "short")) {
      count = shortened(count);
    } else if (!strcmp(name, "eintr") && atomic_fetch_add(&calls, 1) % 2) {
      errno = EINTR;
      return -1;
    }
  }
  return real(fd, to, count);
}

static int opened(const char *symbol, const char *path, int flags, mode_t mode) {
  int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, symbol);
  if (!strcmp(fault(), "read-only") && (flags & (O_WRONLY | O_RDWR | O_CREAT)) && strncmp(path, "/dev/", 5)) {
    errno = EROFS;
    return -1;
  }
  return real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  return opened("open64", path, flags, mode);
}

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  return opened("open", path, flags, mode);
}
