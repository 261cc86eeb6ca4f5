/* The calls of the operating system: pages, aligned memory, threads, locks, time, permission for AMX. */
#pragma once

#ifdef _WIN32
/* Windows' own calls, which are one to one with those of POSIX used here. zig's winpthreads would do as well, but wraps a
 * thread and a lock in allocated objects of its own; so the libraries import KERNEL32 and the C runtime only. */
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#include <malloc.h>
#undef OUT /* an empty macro of Windows' headers; here it names a linear */

typedef HANDLE Thread;
typedef SRWLOCK Lock;
typedef CONDITION_VARIABLE Condition;
typedef DWORD ThreadResult;
#define THREAD_CALL WINAPI

/* Zeros. Windows counts them as committed at once, and gives a page memory at its first write. Its huge pages need a
 * privilege that users do not have. */
static void *zero_pages(size_t bytes) { return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }
static void free_pages(void *at, size_t bytes) { (void)bytes, VirtualFree(at, 0, MEM_RELEASE); }

static void *allocate_aligned(size_t bytes) { return _aligned_malloc(bytes, 64); }
static void free_aligned(void *at) { _aligned_free(at); }

/* 0: no such thread could be started. */
static int start_thread(Thread *thread, ThreadResult (THREAD_CALL *body)(void *), void *given) {
    return (*thread = CreateThread(NULL, 0, body, given, 0, NULL)) != NULL;
}
static void join_thread(Thread thread) { WaitForSingleObject(thread, INFINITE), CloseHandle(thread); }
static void yield_thread(void) { SwitchToThread(); }

static void create_lock(Lock *lock) { InitializeSRWLock(lock); }
static void destroy_lock(Lock *lock) { (void)lock; }
static void acquire(Lock *lock) { AcquireSRWLockExclusive(lock); }
static void release(Lock *lock) { ReleaseSRWLockExclusive(lock); }
static void create_condition(Condition *condition) { InitializeConditionVariable(condition); }
static void destroy_condition(Condition *condition) { (void)condition; }
static void await_condition(Condition *condition, Lock *lock) { SleepConditionVariableSRW(condition, lock, INFINITE, 0); }
static void wake_waiting(Condition *condition) { WakeAllConditionVariable(condition); }

static double seconds_now(void) {
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks), QueryPerformanceFrequency(&per_second);
    return (double)ticks.QuadPart / (double)per_second.QuadPart;
}

#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

typedef pthread_t Thread;
typedef pthread_mutex_t Lock;
typedef pthread_cond_t Condition;
typedef void *ThreadResult;
#define THREAD_CALL

/* Zeros, in huge pages where the system has them: a pass reads all of it, and TLB misses would be a tenth of its time. */
static void *zero_pages(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(at, bytes, MADV_HUGEPAGE);
#endif
    return at;
}
static void free_pages(void *at, size_t bytes) { munmap(at, bytes); }

static void *allocate_aligned(size_t bytes) { return aligned_alloc(64, bytes); }
static void free_aligned(void *at) { free(at); }

static int start_thread(Thread *thread, ThreadResult (*body)(void *), void *given) {
    return pthread_create(thread, NULL, body, given) == 0;
}
static void join_thread(Thread thread) { pthread_join(thread, NULL); }
static void yield_thread(void) { sched_yield(); }

static void create_lock(Lock *lock) { pthread_mutex_init(lock, NULL); }
static void destroy_lock(Lock *lock) { pthread_mutex_destroy(lock); }
static void acquire(Lock *lock) { pthread_mutex_lock(lock); }
static void release(Lock *lock) { pthread_mutex_unlock(lock); }
static void create_condition(Condition *condition) { pthread_cond_init(condition, NULL); }
static void destroy_condition(Condition *condition) { pthread_cond_destroy(condition); }
static void await_condition(Condition *condition, Lock *lock) { pthread_cond_wait(condition, lock); }
static void wake_waiting(Condition *condition) { pthread_cond_broadcast(condition); }

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
#endif

#if defined(__x86_64__) && !defined(NARROW)
/* Ask the system to save the registers of AMX's tiles (XTILEDATA, component 18 of XSAVE). 0: it does not. */
static int permit_tiles(void) {
#if defined(__linux__)
    return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18) == 0;
#elif defined(_WIN32)
    /* EnableProcessOptionalXStateFeatures, Windows 11 and Server 2022 or newer: for all threads of this process. */
    typedef BOOL(WINAPI *Enable)(DWORD64);
    const HMODULE kernel = GetModuleHandleW(L"kernel32.dll");
    const Enable enable = kernel ? (Enable)(void *)GetProcAddress(kernel, "EnableProcessOptionalXStateFeatures") : NULL;
    return enable && enable((DWORD64)1 << 18);
#else
    return 0;
#endif
}
#endif
