/* A mapped file: its pages are fetched ahead, and the process ends when one cannot be read, because the disk fails or another
 * program cuts the file. */
#pragma once

#define PAGE_BYTES 4096

/* Read a byte of every page, so that the first pass waits for none. */
void speclsp_fetch(const void *at, int64_t bytes) {
    const volatile char *from = at;
    for (int64_t i = 0; i < bytes; i += PAGE_BYTES) (void)from[i];
}

#define GUARDED 4 /* mappings at most: of a model and its draft, loaded again */

/* Memory of a mapped file, the sentence about its loss, and the file whose removal lets the next start write it anew. */
typedef struct { const char *at; size_t bytes; char text[1024], remove[4096]; } Guard;
static Guard guards[GUARDED];
static int32_t guard_count;

static const Guard *guard_of(const void *address) {
    for (int32_t i = 0; i < least(guard_count, GUARDED); i++) {
        const Guard *g = &guards[i];
        if ((const char *)address >= g->at && (const char *)address < g->at + g->bytes) return g;
    }
    return NULL;
}

#ifdef _WIN32
static LONG WINAPI on_page_error(EXCEPTION_POINTERS *fault) {
    const EXCEPTION_RECORD *record = fault->ExceptionRecord;
    if (record->ExceptionCode != (DWORD)EXCEPTION_IN_PAGE_ERROR) return EXCEPTION_CONTINUE_SEARCH;
    const Guard *g = guard_of((const void *)record->ExceptionInformation[1]);
    if (!g) return EXCEPTION_CONTINUE_SEARCH;
    DWORD written;
    WriteFile(GetStdHandle(STD_ERROR_HANDLE), g->text, (DWORD)strlen(g->text), &written, NULL);
    TerminateProcess(GetCurrentProcess(), 75);
    return EXCEPTION_CONTINUE_SEARCH;
}
static void watch_faults(void) { AddVectoredExceptionHandler(1, on_page_error); }
#else
/* Calls only what a signal handler may call. */
static void on_bus_error(int number, siginfo_t *info, void *context) {
    (void)context;
    const Guard *g = guard_of(info->si_addr);
    if (g) {
        (void)!write(2, g->text, strlen(g->text));
        unlink(g->remove);
        _exit(75);
    }
    signal(number, SIG_DFL), raise(number);
}
static void watch_faults(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
#endif

/* End the process with code 75 and `text` on stderr when a page of this mapping cannot be read, and remove the file `remove`. */
void speclsp_guard(const void *at, int64_t bytes, const char *text, const char *remove) {
    Guard *g = &guards[guard_count++ % GUARDED];
    if (strlen(text) >= sizeof g->text || strlen(remove) >= sizeof g->remove) return;
    g->at = at, g->bytes = (size_t)bytes;
    strcpy(g->text, text), strcpy(g->remove, remove);
    watch_faults();
}
