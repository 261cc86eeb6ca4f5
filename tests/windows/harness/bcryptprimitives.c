/* bcryptprimitives.dll with the one function that tokenizers imports from it; Wine 8 lacks the library. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG bytes); /* RtlGenRandom, of advapi32 */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T bytes)
{
    return SystemFunction036(buffer, (ULONG)bytes);
}
