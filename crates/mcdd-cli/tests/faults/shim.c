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
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
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

/* How many of `count` bytes a call may transfer; -1 with the error of a call that fails. */
static ssize_t allowed(int fd, size_t count, int writes) {
  if (!is_file(fd)) return count;
  const char *name = fault();
  if (writes && !strncmp(name, "full:", 5)) {
    long room = atol(name + 5) - atomic_load(&written);
    if (room <= 0) {
      errno = ENOSPC;
      return -1;
    }
    return count < (size_t)room ? count : (size_t)room;
  }
  if (!strcmp(name, "short")) return shortened(count);
  if (!strcmp(name, "eintr") && atomic_fetch_add(&calls, 1) % 2) {
    errno = EINTR;
    return -1;
  }
  return count;
}

static ssize_t counted(int fd, ssize_t done) {
  if (done > 0 && is_file(fd)) atomic_fetch_add(&written, done);
  return done;
}

/* Finds the function that is replaced. */
#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *from, size_t count) {
  REAL(write);
  ssize_t most = allowed(fd, count, 1);
  return most < 0 ? -1 : counted(fd, real(fd, from, most));
}

ssize_t pwrite(int fd, const void *from, size_t count, off_t at) {
  REAL(pwrite);
  ssize_t most = allowed(fd, count, 1);
  return most < 0 ? -1 : counted(fd, real(fd, from, most, at));
}

ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
  REAL(pwrite64);
  ssize_t most = allowed(fd, count, 1);
  return most < 0 ? -1 : counted(fd, real(fd, from, most, at));
}

ssize_t read(int fd, void *to, size_t count) {
  REAL(read);
  ssize_t most = allowed(fd, count, 0);
  return most < 0 ? -1 : real(fd, to, most);
}

ssize_t pread(int fd, void *to, size_t count, off_t at) {
  REAL(pread);
  ssize_t most = allowed(fd, count, 0);
  return most < 0 ? -1 : real(fd, to, most, at);
}

ssize_t pread64(int fd, void *to, size_t count, off64_t at) {
  REAL(pread64);
  ssize_t most = allowed(fd, count, 0);
  return most < 0 ? -1 : real(fd, to, most, at);
}

/* The first of several buffers, up to `most` bytes; a call may transfer fewer bytes than it was given. */
#define PARTS 64
static int first_parts(struct iovec *parts, const struct iovec *all, int count, size_t most) {
  int used = 0;
  for (; used < count && used < PARTS && most > 0; used++) {
    parts[used] = all[used];
    if (parts[used].iov_len > most) parts[used].iov_len = most;
    most -= parts[used].iov_len;
  }
  return used;
}

static size_t length(const struct iovec *all, int count) {
  size_t sum = 0;
  for (int i = 0; i < count; i++) sum += all[i].iov_len;
  return sum;
}

ssize_t writev(int fd, const struct iovec *from, int count) {
  REAL(writev);
  struct iovec parts[PARTS];
  ssize_t most = allowed(fd, length(from, count), 1);
  return most < 0 ? -1 : counted(fd, real(fd, parts, first_parts(parts, from, count, most)));
}

ssize_t readv(int fd, const struct iovec *to, int count) {
  REAL(readv);
  struct iovec parts[PARTS];
  ssize_t most = allowed(fd, length(to, count), 0);
  return most < 0 ? -1 : real(fd, parts, first_parts(parts, to, count, most));
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
  REAL(copy_file_range);
  ssize_t most = allowed(out, count, 1);
  return most < 0 ? -1 : counted(out, real(in, from, out, to, most, flags));
}

ssize_t sendfile(int out, int in, off_t *from, size_t count) {
  REAL(sendfile);
  ssize_t most = allowed(out, count, 1);
  return most < 0 ? -1 : counted(out, real(out, in, from, most));
}

ssize_t sendfile64(int out, int in, off64_t *from, size_t count) {
  REAL(sendfile64);
  ssize_t most = allowed(out, count, 1);
  return most < 0 ? -1 : counted(out, real(out, in, from, most));
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
