// Writes down what a program asks the disk for, when it is loaded before the C library: a line for each call, in the file
// at DURABLE_LOG.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *last(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static void note(const char *what, const char *path, const char *to) {
  const char *log = getenv("DURABLE_LOG");
  int file = log ? open(log, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
  if (file < 0) return;
  dprintf(file, "%s %s%s%s\n", what, last(path), to ? " " : "", to ? last(to) : "");
  close(file);
}

int fsync(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  long length = readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  note("sync", path, NULL);
  return syscall(SYS_fsync, file);
}

int rename(const char *from, const char *to) {
  note("rename", from, to);
  return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
