// LD_PRELOAD: one operation on files below one directory fails with one errno, in this process and its children.
//
// FAULT="OPERATION ERRNO DIRECTORY" sets the fault, as does fault_set. Operations on a descriptor resolve its path.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char operation[16], directory[PATH_MAX];
static int fault, *hits;

void fault_set(const char *text) {
    directory[0] = 0;
    if (sscanf(text, "%15s %d %4095[^\n]", operation, &fault, directory) < 3) directory[0] = 0;
    if (hits) *hits = 0;
}

int fault_hits(void) { return hits ? *hits : 0; }

__attribute__((constructor)) static void start(void) {
    hits = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *text = getenv("FAULT");
    if (text) fault_set(text);
}

static int fails(const char *name, const char *path) {
    size_t length = strlen(directory);
    if (!length || strcmp(name, operation) || strncmp(path, directory, length)) return 0;
    if (hits) ++*hits;
    errno = fault;
    return 1;
}

static int handle_fails(const char *name, int handle) {
    char link[64], path[PATH_MAX];
    if (!directory[0] || strcmp(name, operation)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails(name, path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OPEN(name)                                                                        \
    int name(const char *path, int flags, ...) {                                          \
        va_list rest;                                                                     \
        va_start(rest, flags);                                                            \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;           \
        va_end(rest);                                                                     \
        if (fails(flags & (O_CREAT | O_WRONLY | O_RDWR) ? "create" : "open", path)) return -1; \
        return NEXT(name)(path, flags, mode);                                             \
    }
OPEN(open)
OPEN(open64)

FILE *fopen64(const char *path, const char *mode) {
    return fails(mode[0] == 'r' ? "open" : "create", path) ? NULL : NEXT(fopen64)(path, mode);
}
ssize_t read(int handle, void *to, size_t size) { return handle_fails("read", handle) ? -1 : NEXT(read)(handle, to, size); }
ssize_t write(int handle, const void *from, size_t size) {
    return handle_fails("write", handle) ? -1 : NEXT(write)(handle, from, size);
}
int fsync(int handle) { return handle_fails("fsync", handle) ? -1 : NEXT(fsync)(handle); }
int flock(int handle, int kind) {
    return handle_fails("flock", handle) ? -1 : ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(handle, kind);
}
int rename(const char *from, const char *to) { return fails("rename", from) ? -1 : NEXT(rename)(from, to); }
int mkdir(const char *path, mode_t mode) { return fails("mkdir", path) ? -1 : NEXT(mkdir)(path, mode); }
int unlink(const char *path) { return fails("unlink", path) ? -1 : NEXT(unlink)(path); }
