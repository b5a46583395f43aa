/*
 * A fake libnvidia-ml.so.1 that tells what a text file says, for tests on machines without a GPU.
 *
 * The environment variable FAKE_NVML_FILE names the file. It is read again whenever it has changed, so replace it
 * (write beside, then rename) while programs run. One thing a line: a word, then key=value pairs between spaces; a
 * value with spaces stands in double quotes; lines that begin with # and unknown keys are ignored.
 *
 *   driver version=550.90.07 cuda=12040
 *   gpu uuid=GPU-... minor=0 mib=15360 model="Tesla T4" used_mib=0 util=0 numa=0 watts=30 celsius=40 state=ok
 *   process gpu=0 pid=4711 mib=512
 *   xid number=1 gpu=0 code=48
 *
 * GPUs have the order of their lines; `gpu=` of the other lines counts from 0. used_mib is what the card uses besides
 * the processes listed for it. numa=-1 (or none) means "not known". state=lost answers every call about that GPU with
 * NVML_ERROR_GPU_IS_LOST, state=hang lets them wait until the state changes. An xid line is reported once by each
 * event set that existed before it appeared; its number must be higher than all before it.
 * Without a readable file the driver is not loaded.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25,
};
enum { MAX_GPUS = 64, MAX_PROCESSES = 1024, MAX_XIDS = 1024, XID_EVENT = 8, WAIT_STEP_US = 10000 };
#define MIB (1024ULL * 1024ULL)
#define NOBODY 0xFFFFFFFFu /* instance ids of a GPU that is not divided */

typedef struct {
    char uuid[96], model[96];
    unsigned minor, util, watts, celsius;
    unsigned long long mib, used_mib;
    int numa, lost, hang;
} Gpu;
typedef struct { unsigned gpu, pid; unsigned long long mib; } Work;
typedef struct { unsigned gpu; unsigned long long number, code; } Xid;
typedef struct {
    char driver[80];
    int cuda;
    unsigned gpu_count, work_count, xid_count;
    Gpu gpus[MAX_GPUS];
    Work work[MAX_PROCESSES];
    Xid xids[MAX_XIDS];
} World;

typedef struct { char slot; } *Device; /* points into handles[]: its place there is the GPU's index */
typedef struct { int wanted[MAX_GPUS]; unsigned long long seen; } *EventSet;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static World world;
static struct stat last_read;
static int readable, users;
static char handles[MAX_GPUS];

/* ---- the file ---- */

/* Takes the next key=value off `rest`; returns 0 at the end of the line. */
static int next_pair(char **rest, char **key, char **value) {
    *rest += strspn(*rest, " \t\r\n");
    *key = *rest;
    char *equals = strchr(*rest, '=');
    if (equals == NULL) return 0;
    *equals = 0;
    *value = equals + 1;
    const char *ends = " \t\r\n";
    if (**value == '"') { ++*value; ends = "\""; }
    *rest = *value + strcspn(*value, ends);
    if (**rest) *(*rest)++ = 0;
    return 1;
}

static void read_gpu(World *into, char *rest) {
    if (into->gpu_count == MAX_GPUS) return;
    Gpu *gpu = &into->gpus[into->gpu_count++];
    gpu->numa = -1;
    for (char *key, *value; next_pair(&rest, &key, &value);) {
        if (!strcmp(key, "uuid")) snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
        else if (!strcmp(key, "model")) snprintf(gpu->model, sizeof gpu->model, "%s", value);
        else if (!strcmp(key, "minor")) gpu->minor = strtoul(value, NULL, 10);
        else if (!strcmp(key, "util")) gpu->util = strtoul(value, NULL, 10);
        else if (!strcmp(key, "watts")) gpu->watts = strtoul(value, NULL, 10);
        else if (!strcmp(key, "celsius")) gpu->celsius = strtoul(value, NULL, 10);
        else if (!strcmp(key, "mib")) gpu->mib = strtoull(value, NULL, 10);
        else if (!strcmp(key, "used_mib")) gpu->used_mib = strtoull(value, NULL, 10);
        else if (!strcmp(key, "numa")) gpu->numa = atoi(value);
        else if (!strcmp(key, "state")) { gpu->lost = !strcmp(value, "lost"); gpu->hang = !strcmp(value, "hang"); }
    }
}

static void read_other(World *into, const char *word, char *rest) {
    unsigned long long gpu = 0, pid = 0, mib = 0, number = 0, code = 0;
    for (char *key, *value; next_pair(&rest, &key, &value);) {
        if (!strcmp(key, "version")) snprintf(into->driver, sizeof into->driver, "%s", value);
        else if (!strcmp(key, "cuda")) into->cuda = atoi(value);
        else if (!strcmp(key, "gpu")) gpu = strtoull(value, NULL, 10);
        else if (!strcmp(key, "pid")) pid = strtoull(value, NULL, 10);
        else if (!strcmp(key, "mib")) mib = strtoull(value, NULL, 10);
        else if (!strcmp(key, "number")) number = strtoull(value, NULL, 10);
        else if (!strcmp(key, "code")) code = strtoull(value, NULL, 10);
    }
    if (!strcmp(word, "process") && into->work_count < MAX_PROCESSES)
        into->work[into->work_count++] = (Work){gpu, pid, mib};
    if (!strcmp(word, "xid") && into->xid_count < MAX_XIDS)
        into->xids[into->xid_count++] = (Xid){gpu, number, code};
}

static void read_again_if_changed(void) {
    const char *path = getenv("FAKE_NVML_FILE");
    struct stat now;
    if (path == NULL || stat(path, &now) != 0) { readable = 0; return; }
    if (readable && now.st_ino == last_read.st_ino && now.st_size == last_read.st_size &&
        now.st_mtim.tv_sec == last_read.st_mtim.tv_sec && now.st_mtim.tv_nsec == last_read.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (file == NULL) { readable = 0; return; }
    memset(&world, 0, sizeof world);
    snprintf(world.driver, sizeof world.driver, "550.90.07");
    world.cuda = 12040;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) {
        char *word = line + strspn(line, " \t\r\n");
        char *rest = word + strcspn(word, " \t\r\n");
        if (*rest) *rest++ = 0;
        if (!strcmp(word, "gpu")) read_gpu(&world, rest);
        else if (*word != '#') read_other(&world, word, rest);
    }
    free(line);
    fclose(file);
    last_read = now;
    readable = 1;
}

/* ---- entering a call: the guard is held on SUCCESS ---- */

static int enter(void) {
    pthread_mutex_lock(&guard);
    if (users > 0) {
        read_again_if_changed();
        return SUCCESS;
    }
    pthread_mutex_unlock(&guard);
    return UNINITIALIZED;
}

static int leave(int answer) {
    pthread_mutex_unlock(&guard);
    return answer;
}

static int enter_gpu(unsigned index, Gpu **gpu) {
    for (;;) {
        int answer = enter();
        if (answer != SUCCESS) return answer;
        if (index >= MAX_GPUS) return leave(INVALID_ARGUMENT);
        if (index >= world.gpu_count || world.gpus[index].lost) return leave(GPU_IS_LOST);
        *gpu = &world.gpus[index];
        if (!(*gpu)->hang) return SUCCESS;
        leave(SUCCESS);
        usleep(WAIT_STEP_US);
    }
}

static unsigned index_of(Device device) {
    char *slot = (char *)device;
    return slot >= handles && slot < handles + MAX_GPUS ? (unsigned)(slot - handles) : MAX_GPUS;
}

static int put_text(char *room, unsigned length, const char *text) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(room, text);
    return SUCCESS;
}

static unsigned long long used_bytes(unsigned index) {
    unsigned long long mib = world.gpus[index].used_mib;
    for (unsigned i = 0; i < world.work_count; i++)
        if (world.work[i].gpu == index) mib += world.work[i].mib;
    return (mib < world.gpus[index].mib ? mib : world.gpus[index].mib) * MIB;
}

/* ---- library and system ---- */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&guard);
    read_again_if_changed();
    if (!readable) return leave(DRIVER_NOT_LOADED);
    users++;
    return leave(SUCCESS);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    int answer = enter();
    if (answer != SUCCESS) return answer;
    users--;
    return leave(SUCCESS);
}

const char *nvmlErrorString(int result) {
    switch (result) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    int answer = enter();
    return answer != SUCCESS ? answer : leave(put_text(version, length, world.driver));
}

int nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    char text[96];
    int answer = enter();
    if (answer != SUCCESS) return answer;
    snprintf(text, sizeof text, "%d.%s", world.cuda / 1000, world.driver);
    return leave(put_text(version, length, text));
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    int answer = enter();
    if (answer != SUCCESS) return answer;
    *version = world.cuda;
    return leave(SUCCESS);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* ---- GPUs ---- */

int nvmlDeviceGetCount_v2(unsigned *count) {
    int answer = enter();
    if (answer != SUCCESS) return answer;
    *count = world.gpu_count;
    return leave(SUCCESS);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    int answer = enter();
    if (answer != SUCCESS) return answer;
    unsigned count = world.gpu_count;
    leave(SUCCESS);
    if (index >= count) return INVALID_ARGUMENT;
    Gpu *gpu;
    answer = enter_gpu(index, &gpu);
    if (answer != SUCCESS) return answer;
    *device = (Device)&handles[index];
    return leave(SUCCESS);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    int answer = enter();
    if (answer != SUCCESS) return answer;
    unsigned index = 0;
    while (index < world.gpu_count && strcmp(world.gpus[index].uuid, uuid)) index++;
    int found = index < world.gpu_count;
    leave(SUCCESS);
    return found ? nvmlDeviceGetHandleByIndex_v2(index, device) : NOT_FOUND;
}

/* A call that looks up one GPU, does the given with `gpu` and `index`, and succeeds. */
#define ABOUT_GPU(...)                                      \
    {                                                       \
        Gpu *gpu;                                           \
        unsigned index = index_of(device);                  \
        int answer = enter_gpu(index, &gpu);                \
        if (answer != SUCCESS) return answer;               \
        __VA_ARGS__;                                        \
        return leave(SUCCESS);                              \
    }

int nvmlDeviceGetIndex(Device device, unsigned *value) ABOUT_GPU(*value = index)
int nvmlDeviceGetMinorNumber(Device device, unsigned *value) ABOUT_GPU(*value = gpu->minor)
int nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) ABOUT_GPU(*milliwatts = gpu->watts * 1000)
int nvmlDeviceGetUUID(Device device, char *room, unsigned length)
    ABOUT_GPU(return leave(put_text(room, length, gpu->uuid)))
int nvmlDeviceGetName(Device device, char *room, unsigned length)
    ABOUT_GPU(return leave(put_text(room, length, gpu->model)))
int nvmlDeviceGetTemperature(Device device, int sensor, unsigned *value)
    ABOUT_GPU(if (sensor != 0) return leave(INVALID_ARGUMENT); *value = gpu->celsius)
int nvmlDeviceGetNumaNodeId(Device device, unsigned *node)
    ABOUT_GPU(if (gpu->numa < 0) return leave(NOT_SUPPORTED); *node = gpu->numa)
int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending)
    ABOUT_GPU((void)current; (void)pending; return leave(NOT_SUPPORTED))

int nvmlDeviceGetMemoryAffinity(Device device, unsigned words, unsigned long *nodes, int scope)
    ABOUT_GPU(
        (void)scope;
        if (gpu->numa < 0) return leave(NOT_SUPPORTED);
        unsigned bits = 8 * sizeof *nodes;
        if ((unsigned)gpu->numa >= words * bits) return leave(INSUFFICIENT_SIZE);
        memset(nodes, 0, words * sizeof *nodes);
        nodes[gpu->numa / bits] |= 1UL << (gpu->numa % bits))

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

int nvmlDeviceGetMemoryInfo(Device device, Memory *memory)
    ABOUT_GPU(
        memory->total = gpu->mib * MIB;
        memory->used = used_bytes(index);
        memory->free = memory->total - memory->used)

int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *memory)
    ABOUT_GPU(
        if (memory->version != (sizeof *memory | 2u << 24)) return leave(ARGUMENT_VERSION_MISMATCH);
        memory->total = gpu->mib * MIB;
        memory->reserved = 0;
        memory->used = used_bytes(index);
        memory->free = memory->total - memory->used)

typedef struct { unsigned gpu, memory; } Utilization;

int nvmlDeviceGetUtilizationRates(Device device, Utilization *rates)
    ABOUT_GPU(
        rates->gpu = gpu->util;
        rates->memory = gpu->mib ? used_bytes(index) * 100 / (gpu->mib * MIB) : 0)

typedef struct {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} Pci;

int nvmlDeviceGetPciInfo_v3(Device device, Pci *pci)
    ABOUT_GPU(
        (void)gpu;
        memset(pci, 0, sizeof *pci);
        pci->bus = index + 1;
        pci->device_id = 0x1EB810DE;
        snprintf(pci->legacy_id, sizeof pci->legacy_id, "0000:%02X:00.0", pci->bus);
        snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus))

typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Running;

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Running *list)
    ABOUT_GPU(
        (void)gpu;
        unsigned found = 0;
        for (unsigned i = 0; i < world.work_count; i++) {
            if (world.work[i].gpu != index) continue;
            if (list != NULL && found < *count)
                list[found] = (Running){world.work[i].pid, world.work[i].mib * MIB, NOBODY, NOBODY};
            found++;
        }
        int fits = found <= *count;
        *count = found;
        if (!fits) return leave(INSUFFICIENT_SIZE))

int nvmlDeviceGetTopologyCommonAncestor(Device device, Device other, int *level) {
    Gpu *first;
    Gpu *second;
    int answer = enter_gpu(index_of(device), &first);
    if (answer != SUCCESS) return answer;
    int numa = first->numa;
    leave(SUCCESS);
    answer = enter_gpu(index_of(other), &second);
    if (answer != SUCCESS) return answer;
    enum { INTERNAL = 0, SAME_NUMA_NODE = 40, ACROSS_NUMA_NODES = 50 };
    *level = device == other ? INTERNAL : numa == second->numa ? SAME_NUMA_NODE : ACROSS_NUMA_NODES;
    return leave(SUCCESS);
}

/* ---- events ---- */

int nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long *types)
    ABOUT_GPU((void)gpu; *types = XID_EVENT)

int nvmlEventSetCreate(EventSet *set) {
    int answer = enter();
    if (answer != SUCCESS) return answer;
    *set = calloc(1, sizeof **set);
    for (unsigned i = 0; i < world.xid_count; i++)
        if (world.xids[i].number > (*set)->seen) (*set)->seen = world.xids[i].number;
    return leave(SUCCESS);
}

int nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet set)
    ABOUT_GPU(
        (void)gpu;
        if (types & ~(unsigned long long)XID_EVENT) return leave(NOT_SUPPORTED);
        set->wanted[index] = types != 0)

typedef struct {
    Device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} Event;

static int take_event(EventSet set, Event *event) {
    for (unsigned i = 0; i < world.xid_count; i++) {
        Xid *xid = &world.xids[i];
        if (xid->number <= set->seen) continue;
        set->seen = xid->number;
        if (xid->gpu >= MAX_GPUS || !set->wanted[xid->gpu]) continue;
        *event = (Event){(Device)&handles[xid->gpu], XID_EVENT, xid->code, NOBODY, NOBODY};
        return 1;
    }
    return 0;
}

int nvmlEventSetWait_v2(EventSet set, Event *event, unsigned milliseconds) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        int answer = enter();
        if (answer != SUCCESS) return answer;
        int taken = take_event(set, event);
        leave(SUCCESS);
        if (taken) return SUCCESS;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long long passed = (now.tv_sec - start.tv_sec) * 1000LL + (now.tv_nsec - start.tv_nsec) / 1000000;
        if (passed >= milliseconds) return TIMEOUT;
        usleep(WAIT_STEP_US);
    }
}

int nvmlEventSetFree(EventSet set) {
    free(set);
    return SUCCESS;
}
