/* A stand-in for libamdhip64.so: device memory is host memory, and launches go to callbacks that a test registers.
 *
 * It has the calls that this project's HIP device makes, so that it runs without an AMD GPU.  Every
 * allocation stands between two guards; shim_broken_guards counts those that something wrote on.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, GUARD = 4096, GUARD_BYTE = 0xA5, MOST = 4096 };

typedef int (*load_callback)(const void *image);
typedef int (*launch_callback)(int module, const char *kernel, const unsigned *shape, unsigned shared,
                               const void *arguments, size_t size);

static load_callback on_load;
static launch_callback on_launch;
static char chip_name[64] = "gfx1151";
static size_t chip_offset;

void shim_register(load_callback load, launch_callback launch, const char *chip, size_t offset) {
    on_load = load;
    on_launch = launch;
    chip_offset = offset;
    snprintf(chip_name, sizeof chip_name, "%s", chip);
}

static struct { unsigned char *base; size_t size; } blocks[MOST];
static int broken;

static int guards_hold(int i) {
    for (size_t j = 0; j < GUARD; j++)
        if (blocks[i].base[j] != GUARD_BYTE || blocks[i].base[GUARD + blocks[i].size + j] != GUARD_BYTE) return 0;
    return 1;
}

int shim_broken_guards(void) {
    int found = broken;
    for (int i = 0; i < MOST; i++)
        if (blocks[i].base && !guards_hold(i)) found++;
    return found;
}

int hipMalloc(void **pointer, size_t size) {
    for (int i = 0; i < MOST; i++) {
        if (blocks[i].base) continue;
        size = (size + 255) / 256 * 256;
        unsigned char *base = aligned_alloc(4096, (size + 2 * GUARD + 4095) / 4096 * 4096);
        if (!base) return OUT_OF_MEMORY;
        memset(base, GUARD_BYTE, size + 2 * GUARD);
        blocks[i].base = base;
        blocks[i].size = size;
        *pointer = base + GUARD;
        return SUCCESS;
    }
    return OUT_OF_MEMORY;
}

int hipFree(void *pointer) {
    for (int i = 0; i < MOST; i++) {
        if (!blocks[i].base || blocks[i].base + GUARD != (unsigned char *)pointer) continue;
        broken += !guards_hold(i);
        free(blocks[i].base);
        blocks[i].base = NULL;
        return SUCCESS;
    }
    return INVALID;
}

int hipInit(unsigned flags) { return flags ? INVALID : SUCCESS; }
int hipGetDeviceCount(int *count) { *count = 1; return SUCCESS; }
int hipSetDevice(int device) { return device ? INVALID : SUCCESS; }

int hipGetDevicePropertiesR0600(void *properties, int device) {
    strcpy(properties, "Emulated GPU");
    strcpy((char *)properties + chip_offset, chip_name);
    return device ? INVALID : SUCCESS;
}

typedef struct { int unused; } event_t;

int hipEventCreate(event_t **event) { *event = calloc(1, sizeof **event); return SUCCESS; }
int hipEventDestroy(event_t *event) { free(event); return SUCCESS; }
int hipEventRecord(event_t *event, void *stream) { (void)stream; return event ? SUCCESS : INVALID; }
int hipEventSynchronize(event_t *event) { return event ? SUCCESS : INVALID; }
int hipEventElapsedTime(float *ms, event_t *start, event_t *stop) { *ms = 0; return start && stop ? SUCCESS : INVALID; }
int hipHostMalloc(void **pointer, size_t size, unsigned flags) { (void)flags; *pointer = malloc(size); return SUCCESS; }
int hipHostFree(void *pointer) { free(pointer); return SUCCESS; }

int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    (void)kind, (void)stream;
    memcpy(to, from, size);
    return SUCCESS;
}

int hipMemsetAsync(void *to, int value, size_t size, void *stream) {
    (void)stream;
    memset(to, value, size);
    return SUCCESS;
}

typedef struct { int number; } module_t;
typedef struct { int module; char name[256]; } function_t;
typedef struct { function_t *function; unsigned shape[6], shared; unsigned char *arguments; size_t size; } launch_t;
typedef struct { launch_t *launches; size_t count; } graph_t;
typedef struct { graph_t *capturing; } stream_t;

int hipModuleLoadData(module_t **module, const void *image) {
    int number = on_load ? on_load(image) : -1;
    if (number < 0) return INVALID;
    *module = malloc(sizeof **module);
    (*module)->number = number;
    return SUCCESS;
}

int hipModuleUnload(module_t *module) { free(module); return SUCCESS; }

int hipModuleGetFunction(function_t **function, module_t *module, const char *name) {
    *function = malloc(sizeof **function);
    (*function)->module = module->number;
    snprintf((*function)->name, sizeof (*function)->name, "%s", name);
    return SUCCESS;
}

static int run(const launch_t *l) {
    return on_launch(l->function->module, l->function->name, l->shape, l->shared, l->arguments, l->size);
}

int hipModuleLaunchKernel(function_t *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, stream_t *stream, void **parameters, void **extra) {
    if (parameters || !extra || (size_t)extra[0] != 1 || (size_t)extra[2] != 2) return INVALID;
    launch_t l = {f, {gx, gy, gz, bx, by, bz}, shared, extra[1], *(size_t *)extra[3]};
    if (!stream || !stream->capturing) return run(&l);
    graph_t *graph = stream->capturing;
    l.arguments = malloc(l.size);
    memcpy(l.arguments, extra[1], l.size);
    graph->launches = realloc(graph->launches, (graph->count + 1) * sizeof l);
    graph->launches[graph->count++] = l;
    return SUCCESS;
}

int hipStreamCreate(stream_t **stream) { *stream = calloc(1, sizeof **stream); return SUCCESS; }
int hipStreamDestroy(stream_t *stream) { free(stream); return SUCCESS; }
int hipStreamSynchronize(stream_t *stream) { (void)stream; return SUCCESS; }

int hipStreamBeginCapture(stream_t *stream, int mode) {
    (void)mode;
    stream->capturing = calloc(1, sizeof *stream->capturing);
    return SUCCESS;
}

int hipStreamEndCapture(stream_t *stream, graph_t **graph) {
    *graph = stream->capturing;
    stream->capturing = NULL;
    return *graph ? SUCCESS : INVALID;
}

int hipGraphInstantiateWithFlags(graph_t **executable, graph_t *graph, unsigned long long flags) {
    (void)flags;
    *executable = graph;
    return SUCCESS;
}

int hipGraphLaunch(graph_t *graph, stream_t *stream) {
    (void)stream;
    for (size_t i = 0; i < graph->count; i++) {
        int status = run(&graph->launches[i]);
        if (status) return status;
    }
    return SUCCESS;
}

int hipGraphExecDestroy(graph_t *graph) { (void)graph; return SUCCESS; }

int hipGraphDestroy(graph_t *graph) {
    for (size_t i = 0; i < graph->count; i++) free(graph->launches[i].arguments);
    free(graph->launches);
    free(graph);
    return SUCCESS;
}

const char *hipGetErrorName(int status) { return status ? "hipErrorInvalidValue" : "hipSuccess"; }
const char *hipGetErrorString(int status) { return hipGetErrorName(status); }
