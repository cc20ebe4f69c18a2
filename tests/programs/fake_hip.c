// A stand-in for libamdhip64.so that says what was called; a launch writes its second argument to the memory in its third.
// As a real driver does, it refuses to work in a fork of the process that it was started in.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define SAY(...) (printf(__VA_ARGS__), printf("\n"), 0)
enum { NOT_INITIALIZED = 3, CHIP_OFFSET = 1160 };
static pid_t started_in;
static int start(void) {
  if (!started_in) started_in = getpid();
  return started_in == getpid() ? 0 : NOT_INITIALIZED;
}
int hipInit(unsigned flags) { return start() ? NOT_INITIALIZED : SAY("init"); }
int hipGetDeviceCount(int *count) { *count = 1; return start(); }
int hipGetDevicePropertiesR0600(void *properties, int device) {
  strcpy(properties, "Made up");
  strcpy((char *)properties + CHIP_OFFSET, "gfx1151:xnack-");
  return start();
}
int hipModuleLoadData(void **module, const void *image) {
  if (start()) return NOT_INITIALIZED;
  *module = (void *)16;
  return SAY("load %d", memcmp(image, "\177ELF", 4) == 0);
}
int hipModuleUnload(void *module) { return SAY("unload"); }
int hipModuleGetFunction(void **function, void *module, const char *name) {
  *function = (void *)32;
  return SAY("function %s", name);
}
int hipStreamCreate(void **stream) { *stream = (void *)48; return SAY("stream"); }
int hipStreamDestroy(void *stream) { return SAY("end stream"); }
int hipStreamSynchronize(void *stream) { return SAY("sync %ld", (long)stream); }
int hipHostRegister(void *address, size_t size, unsigned flags) { return SAY("register %zu", size); }
int hipHostUnregister(void *address) { return SAY("unregister"); }
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra) {
  float value = *(float *)parameters[1], *memory = *(float **)parameters[2];
  for (unsigned i = 0; i < gx * bx; i++) memory[i] = value;
  return SAY("launch %u %u %u, %u %u %u, %u bytes", gx, gy, gz, bx, by, bz, shared);
}
const char *hipGetErrorName(int status) { return status == NOT_INITIALIZED ? "hipErrorNotInitialized" : "hipErrorUnknown"; }
