/*
 * A fake libnvidia-ml.so.1 that tells what a text file says, for tests on machines without a GPU.
 *
 * The environment variable FAKE_NVML_FILE names the file. It is read again whenever it has changed, so replace it
 * (write beside, then rename) while programs run. One thing a line: a word, then key=value pairs between spaces; a
 * value with spaces stands in double quotes; lines that begin with # and unknown keys are ignored.
 *
 *   driver version=550.90.07 cuda=12040 boot=1 process_bytes=24
 *   gpu uuid=GPU-... minor=0 mib=15360 model="Tesla T4" used_mib=0 util=0 numa=0 watts=30 celsius=40 state=ok
 *       shutdown_celsius=96 rows_pending=0 rows_failed=0 pages=0 pages_pending=0 ecc_errors=0 recovery=0
 *       pcie_switch=0 nvlinks=GPU-...,switch,down mig=1 events=1 samples=1 joules=1000 core_mhz=1410 memory_mhz=1215
 *   instance gpu=0 uuid=MIG-... gi=9 ci=0 mib=4864 profile=1g.5gb
 *   process gpu=0 pid=4711 mib=512 percent=30 mps=1
 *   xid number=1 gpu=0 code=48 gi=9 ci=0
 *
 * GPUs have the order of their lines (each is one line); `gpu=` of the other lines counts from 0. used_mib is what the
 * card uses besides the processes listed for it. Of numbers, -1 (or none) means "not known" or "not supported", and
 * of gi and ci of an xid that it is about the whole card. GPUs with the same pcie_switch share it. nvlinks has what is
 * at the far end of each link. state=lost answers every call about that GPU with NVML_ERROR_GPU_IS_LOST, state=hang
 * lets them wait until the state changes. Each question for samples of processes is answered with one sample of now for
 * each process; samples=0 means that the card does not sample. process_bytes is the size of the struct of a process:
 * some drivers write a longer one. An xid line is reported once by each event set that existed before it
 * appeared; its number must be higher than all before it.
 * Without a readable file the driver is not loaded. After that, or with another boot=, every call fails until the
 * library is shut down and initialised again, as after a restart of the driver.
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
enum {
    MAX_GPUS = 64, MAX_INSTANCES = 7, MAX_PROCESSES = 1024, MAX_XIDS = 1024, XID_EVENT = 8, WAIT_STEP_US = 10000,
};
#define MIB (1024ULL * 1024ULL)
#define NOBODY 0xFFFFFFFFu /* instance ids of a GPU that is not divided */

typedef struct { char uuid[96], profile[32]; unsigned gi, ci; unsigned long long mib; } Instance;
typedef struct {
    char uuid[96], model[96], nvlinks[2048];
    unsigned minor, instance_count;
    unsigned long long mib, used_mib;
    int util, watts, celsius, numa, lost, hang, shutdown_celsius, rows_pending, rows_failed, pages, pages_pending, ecc_errors, recovery, pcie_switch, mig, events;
    int samples, joules, core_mhz, memory_mhz;
    Instance instances[MAX_INSTANCES];
} Gpu;
typedef struct { unsigned gpu, pid; unsigned long long mib; unsigned percent; int mps; } Work;
typedef struct { unsigned gpu, gi, ci; unsigned long long number, code; } Xid;
typedef struct {
    char driver[80];
    int cuda, boot;
    unsigned process_bytes;
    unsigned gpu_count, work_count, xid_count;
    Gpu gpus[MAX_GPUS];
    Work work[MAX_PROCESSES];
    Xid xids[MAX_XIDS];
} World;

/* Points into handles[], where its place is the GPU's index, or into instance_handles[]. */
typedef struct { char slot; } *Device;
typedef struct { int wanted[MAX_GPUS]; unsigned long long seen; } *EventSet;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static World world;
static struct stat last_read;
static int readable, users, booted; /* booted: the driver that the library was initialised with */
static char handles[MAX_GPUS], instance_handles[MAX_GPUS * MAX_INSTANCES];

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
    gpu->numa = gpu->shutdown_celsius = gpu->rows_pending = gpu->rows_failed = gpu->ecc_errors = -1;
    gpu->pages = gpu->pages_pending = gpu->recovery = -1;
    gpu->pcie_switch = gpu->mig = -1;
    gpu->joules = gpu->core_mhz = gpu->memory_mhz = -1;
    gpu->events = gpu->samples = 1;
    for (char *key, *value; next_pair(&rest, &key, &value);) {
        if (!strcmp(key, "uuid")) snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
        else if (!strcmp(key, "model")) snprintf(gpu->model, sizeof gpu->model, "%s", value);
        else if (!strcmp(key, "minor")) gpu->minor = strtoul(value, NULL, 10);
        else if (!strcmp(key, "util")) gpu->util = atoi(value);
        else if (!strcmp(key, "watts")) gpu->watts = atoi(value);
        else if (!strcmp(key, "celsius")) gpu->celsius = atoi(value);
        else if (!strcmp(key, "mib")) gpu->mib = strtoull(value, NULL, 10);
        else if (!strcmp(key, "used_mib")) gpu->used_mib = strtoull(value, NULL, 10);
        else if (!strcmp(key, "numa")) gpu->numa = atoi(value);
        else if (!strcmp(key, "shutdown_celsius")) gpu->shutdown_celsius = atoi(value);
        else if (!strcmp(key, "rows_pending")) gpu->rows_pending = atoi(value);
        else if (!strcmp(key, "rows_failed")) gpu->rows_failed = atoi(value);
        else if (!strcmp(key, "pages")) gpu->pages = atoi(value);
        else if (!strcmp(key, "pages_pending")) gpu->pages_pending = atoi(value);
        else if (!strcmp(key, "recovery")) gpu->recovery = atoi(value);
        else if (!strcmp(key, "ecc_errors")) gpu->ecc_errors = atoi(value);
        else if (!strcmp(key, "pcie_switch")) gpu->pcie_switch = atoi(value);
        else if (!strcmp(key, "nvlinks")) snprintf(gpu->nvlinks, sizeof gpu->nvlinks, "%s", value);
        else if (!strcmp(key, "mig")) gpu->mig = atoi(value);
        else if (!strcmp(key, "events")) gpu->events = atoi(value);
        else if (!strcmp(key, "samples")) gpu->samples = atoi(value);
        else if (!strcmp(key, "joules")) gpu->joules = atoi(value);
        else if (!strcmp(key, "core_mhz")) gpu->core_mhz = atoi(value);
        else if (!strcmp(key, "memory_mhz")) gpu->memory_mhz = atoi(value);
        else if (!strcmp(key, "state")) { gpu->lost = !strcmp(value, "lost"); gpu->hang = !strcmp(value, "hang"); }
    }
}

static void read_other(World *into, const char *word, char *rest) {
    unsigned long long gpu = 0, pid = 0, mib = 0, number = 0, code = 0, percent = 0, mps = 0;
    unsigned gi = NOBODY, ci = NOBODY;
    const char *uuid = "", *profile = "";
    for (char *key, *value; next_pair(&rest, &key, &value);) {
        if (!strcmp(key, "version")) snprintf(into->driver, sizeof into->driver, "%s", value);
        else if (!strcmp(key, "cuda")) into->cuda = atoi(value);
        else if (!strcmp(key, "boot")) into->boot = atoi(value);
        else if (!strcmp(key, "process_bytes")) into->process_bytes = atoi(value);
        else if (!strcmp(key, "percent")) percent = strtoull(value, NULL, 10);
        else if (!strcmp(key, "mps")) mps = strtoull(value, NULL, 10);
        else if (!strcmp(key, "uuid")) uuid = value;
        else if (!strcmp(key, "profile")) profile = value;
        else if (!strcmp(key, "gi")) gi = atoi(value);
        else if (!strcmp(key, "ci")) ci = atoi(value);
        else if (!strcmp(key, "gpu")) gpu = strtoull(value, NULL, 10);
        else if (!strcmp(key, "pid")) pid = strtoull(value, NULL, 10);
        else if (!strcmp(key, "mib")) mib = strtoull(value, NULL, 10);
        else if (!strcmp(key, "number")) number = strtoull(value, NULL, 10);
        else if (!strcmp(key, "code")) code = strtoull(value, NULL, 10);
    }
    if (!strcmp(word, "process") && into->work_count < MAX_PROCESSES)
        into->work[into->work_count++] = (Work){gpu, pid, mib, percent, mps};
    if (!strcmp(word, "xid") && into->xid_count < MAX_XIDS)
        into->xids[into->xid_count++] = (Xid){gpu, gi, ci, number, code};
    if (!strcmp(word, "instance") && gpu < into->gpu_count && into->gpus[gpu].instance_count < MAX_INSTANCES) {
        Instance *instance = &into->gpus[gpu].instances[into->gpus[gpu].instance_count++];
        snprintf(instance->uuid, sizeof instance->uuid, "%s", uuid);
        snprintf(instance->profile, sizeof instance->profile, "%s", profile);
        instance->gi = gi;
        instance->ci = ci;
        instance->mib = mib;
    }
}

static void read_again_if_changed(void) {
    const char *path = getenv("FAKE_NVML_FILE");
    struct stat now;
    if (path == NULL || stat(path, &now) != 0) { readable = booted = 0; return; }
    if (readable && now.st_ino == last_read.st_ino && now.st_size == last_read.st_size &&
        now.st_mtim.tv_sec == last_read.st_mtim.tv_sec && now.st_mtim.tv_nsec == last_read.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (file == NULL) { readable = booted = 0; return; }
    memset(&world, 0, sizeof world);
    snprintf(world.driver, sizeof world.driver, "550.90.07");
    world.cuda = 12040;
    world.boot = 1;
    world.process_bytes = 24;
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
    read_again_if_changed();
    if (users > 0 && readable && booted == world.boot) return SUCCESS;
    pthread_mutex_unlock(&guard);
    return users > 0 && !readable ? DRIVER_NOT_LOADED : UNINITIALIZED;
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

/* Enters with the GPU of an instance and the instance, or with the GPU itself and NULL. */
static int enter_either(Device device, Gpu **gpu, Instance **instance) {
    char *slot = (char *)device;
    *instance = NULL;
    if (slot < instance_handles || slot >= instance_handles + sizeof instance_handles)
        return enter_gpu(index_of(device), gpu);
    int answer = enter_gpu((slot - instance_handles) / MAX_INSTANCES, gpu);
    if (answer != SUCCESS) return answer;
    unsigned place = (slot - instance_handles) % MAX_INSTANCES;
    if (place >= (*gpu)->instance_count) return leave(NOT_FOUND);
    *instance = &(*gpu)->instances[place];
    return SUCCESS;
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
    booted = world.boot;
    return leave(SUCCESS);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    pthread_mutex_lock(&guard);
    if (users == 0) return leave(UNINITIALIZED);
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

/* The same for a GPU or an instance: `instance` is NULL for a GPU. */
#define ABOUT_EITHER(...)                                   \
    {                                                       \
        Gpu *gpu;                                           \
        Instance *instance;                                 \
        int answer = enter_either(device, &gpu, &instance); \
        if (answer != SUCCESS) return answer;               \
        __VA_ARGS__;                                        \
        return leave(SUCCESS);                              \
    }

int nvmlDeviceGetIndex(Device device, unsigned *value) ABOUT_GPU(*value = index)
int nvmlDeviceGetMinorNumber(Device device, unsigned *value) ABOUT_GPU(*value = gpu->minor)
int nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts)
    ABOUT_GPU(if (gpu->watts < 0) return leave(NOT_SUPPORTED); *milliwatts = gpu->watts * 1000)
int nvmlDeviceGetUUID(Device device, char *room, unsigned length)
    ABOUT_EITHER(return leave(put_text(room, length, instance ? instance->uuid : gpu->uuid)))
int nvmlDeviceGetName(Device device, char *room, unsigned length)
    ABOUT_EITHER(
        char name[144];
        snprintf(name, sizeof name, instance ? "%s MIG %s" : "%s", gpu->model, instance ? instance->profile : "");
        return leave(put_text(room, length, name)))
int nvmlDeviceGetTemperature(Device device, int sensor, unsigned *value)
    ABOUT_GPU(
        if (sensor != 0) return leave(INVALID_ARGUMENT);
        if (gpu->celsius < 0) return leave(NOT_SUPPORTED);
        *value = gpu->celsius)
int nvmlDeviceGetNumaNodeId(Device device, unsigned *node)
    ABOUT_GPU(if (gpu->numa < 0) return leave(NOT_SUPPORTED); *node = gpu->numa)
int nvmlDeviceGetTemperatureThreshold(Device device, int threshold, unsigned *value)
    ABOUT_GPU(
        if (threshold != 0 || gpu->shutdown_celsius < 0) return leave(NOT_SUPPORTED);
        *value = gpu->shutdown_celsius)
int nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
    ABOUT_GPU(
        if (gpu->rows_pending < 0 && gpu->rows_failed < 0) return leave(NOT_SUPPORTED);
        *corrected = 0;
        *uncorrected = *pending = gpu->rows_pending > 0;
        *failed = gpu->rows_failed > 0)
int nvmlDeviceGetRetiredPages(Device device, int cause, unsigned *count, unsigned long long *addresses)
    ABOUT_GPU(
        enum { DOUBLE_BIT = 1 };
        if (gpu->pages < 0) return leave(NOT_SUPPORTED);
        unsigned found = cause == DOUBLE_BIT ? gpu->pages : 0;
        unsigned room = *count;
        *count = found;
        if (room < found) return leave(INSUFFICIENT_SIZE);
        for (unsigned page = 0; page < found; page++) addresses[page] = page)
int nvmlDeviceGetRetiredPagesPendingStatus(Device device, int *pending)
    ABOUT_GPU(if (gpu->pages_pending < 0) return leave(NOT_SUPPORTED); *pending = gpu->pages_pending > 0)
int nvmlDeviceGetTotalEccErrors(Device device, int kind, int counter, unsigned long long *count)
    ABOUT_GPU(
        enum { UNCORRECTED = 1, VOLATILE = 0 };
        if (gpu->ecc_errors < 0) return leave(NOT_SUPPORTED);
        *count = kind == UNCORRECTED && counter == VOLATILE ? gpu->ecc_errors : 0)

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type;
    int answer;
    union { double number; unsigned word; unsigned long long room; } value;
} FieldValue;

int nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values)
    ABOUT_GPU(
        enum { UNCORRECTED_ERRORS = 4, ENERGY = 83, RECOVERY_ACTION = 230, UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };
        for (int place = 0; place < count; place++) {
            FieldValue *value = &values[place];
            long long known = value->field == RECOVERY_ACTION      ? gpu->recovery
                              : value->field == UNCORRECTED_ERRORS ? gpu->ecc_errors
                              : value->field == ENERGY             ? gpu->joules * 1000LL
                                                                   : -1;
            value->answer = known >= 0 ? SUCCESS : NOT_SUPPORTED;
            value->type = value->field == RECOVERY_ACTION ? UNSIGNED_INT : UNSIGNED_LONG_LONG;
            value->value.room = known;
        })

int nvmlDeviceGetClockInfo(Device device, int clock, unsigned *mhz)
    ABOUT_GPU(
        enum { CORES = 1, MEMORY = 2 };
        int known = clock == CORES ? gpu->core_mhz : clock == MEMORY ? gpu->memory_mhz : -1;
        if (known < 0) return leave(NOT_SUPPORTED);
        *mhz = known)

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending)
    ABOUT_GPU(if (gpu->mig < 0) return leave(NOT_SUPPORTED); *current = *pending = gpu->mig)
int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count)
    ABOUT_GPU(*count = gpu->mig < 0 ? 0 : MAX_INSTANCES)
int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned place, Device *instance)
    ABOUT_GPU(
        if (gpu->mig <= 0 || place >= gpu->instance_count) return leave(NOT_FOUND);
        *instance = (Device)&instance_handles[index * MAX_INSTANCES + place])
int nvmlDeviceGetGpuInstanceId(Device device, unsigned *value)
    ABOUT_EITHER(if (!instance) return leave(INVALID_ARGUMENT); *value = instance->gi)
int nvmlDeviceGetComputeInstanceId(Device device, unsigned *value)
    ABOUT_EITHER(if (!instance) return leave(INVALID_ARGUMENT); *value = instance->ci)

/* ---- more of GPUs ---- */

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
    ABOUT_EITHER(
        memory->total = (instance ? instance->mib : gpu->mib) * MIB;
        memory->used = instance ? 0 : used_bytes(index_of(device));
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
        if (gpu->util < 0) return leave(NOT_SUPPORTED);
        rates->gpu = gpu->util;
        rates->memory = gpu->mib ? used_bytes(index) * 100 / (gpu->mib * MIB) : 0)

typedef struct {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} Pci;

/* A domain that no machine has: what the kernel knows of its own devices is not mixed up with these. */
static void fill_pci(Pci *pci, unsigned index) {
    memset(pci, 0, sizeof *pci);
    pci->domain = 0xFA4E;
    pci->bus = index + 1;
    pci->device_id = 0x1EB810DE;
    snprintf(pci->legacy_id, sizeof pci->legacy_id, "%04X:%02X:00.0", pci->domain, pci->bus);
    snprintf(pci->id, sizeof pci->id, "%08X:%02X:00.0", pci->domain, pci->bus);
}

int nvmlDeviceGetPciInfo_v3(Device device, Pci *pci) ABOUT_GPU((void)gpu; fill_pci(pci, index))

typedef struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_bytes; /* only where process_bytes says so */
} Running;

/* Lists the processes of a GPU, of MPS clients only if asked for; the guard is held. */
static int list_running(unsigned index, int only_clients, unsigned *count, char *list) {
    unsigned found = 0;
    for (unsigned i = 0; i < world.work_count; i++) {
        if (world.work[i].gpu != index || (only_clients && !world.work[i].mps)) continue;
        Running running = {world.work[i].pid, world.work[i].mib * MIB, NOBODY, NOBODY, 0};
        if (list != NULL && found < *count)
            memcpy(list + found * world.process_bytes, &running, world.process_bytes);
        found++;
    }
    int fits = found <= *count;
    *count = found;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, char *list)
    ABOUT_GPU((void)gpu; return leave(list_running(index, 0, count, list)))

int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, unsigned *count, char *list)
    ABOUT_GPU((void)gpu; return leave(list_running(index, 1, count, list)))

typedef struct { unsigned pid; unsigned long long moment; unsigned cores, memory, encoder, decoder; } Sample;

int nvmlDeviceGetProcessUtilization(Device device, Sample *list, unsigned *count, unsigned long long since)
    ABOUT_GPU(
        if (!gpu->samples) return leave(NOT_SUPPORTED);
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        unsigned long long moment = now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
        unsigned found = 0;
        for (unsigned i = 0; i < world.work_count; i++) {
            if (world.work[i].gpu != index || moment <= since) continue;
            if (list != NULL && found < *count)
                list[found] = (Sample){world.work[i].pid, moment, world.work[i].percent, 0, 0, 0};
            found++;
        }
        int fits = found <= *count;
        *count = found;
        if (!found) return leave(NOT_FOUND);
        if (!fits) return leave(INSUFFICIENT_SIZE))

int nvmlDeviceGetTopologyCommonAncestor(Device device, Device other, int *level) {
    Gpu *first;
    Gpu *second;
    int answer = enter_gpu(index_of(device), &first);
    if (answer != SUCCESS) return answer;
    int numa = first->numa, pcie_switch = first->pcie_switch;
    leave(SUCCESS);
    answer = enter_gpu(index_of(other), &second);
    if (answer != SUCCESS) return answer;
    enum { INTERNAL = 0, ONE_SWITCH = 10, SAME_NUMA_NODE = 40, ACROSS_NUMA_NODES = 50 };
    *level = device == other                                               ? INTERNAL
             : pcie_switch >= 0 && pcie_switch == second->pcie_switch      ? ONE_SWITCH
             : numa == second->numa                                        ? SAME_NUMA_NODE
                                                                           : ACROSS_NUMA_NODES;
    return leave(SUCCESS);
}

/* Copies what is at the far end of a link; returns 0 if the GPU has no such link. */
static int far_end(const Gpu *gpu, unsigned link, char *name, unsigned length) {
    const char *at = gpu->nvlinks;
    for (; link > 0 && at != NULL; link--) at = (at = strchr(at, ',')) ? at + 1 : NULL;
    if (at == NULL || *at == 0) return 0;
    snprintf(name, length, "%.*s", (int)strcspn(at, ","), at);
    return 1;
}

/* A call about one NVLink: `name` is what is at its far end. */
#define ABOUT_LINK(...)                                                                       \
    ABOUT_GPU(                                                                                \
        (void)index;                                                                          \
        char name[96];                                                                        \
        if (!far_end(gpu, link, name, sizeof name)) return leave(INVALID_ARGUMENT); __VA_ARGS__)

int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active)
    ABOUT_LINK(*active = strcmp(name, "down") != 0)

int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, int *type)
    ABOUT_LINK(enum { OTHER_GPU = 0, SWITCH = 2 }; *type = strcmp(name, "switch") ? OTHER_GPU : SWITCH)

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, Pci *pci)
    ABOUT_LINK(
        unsigned other = 0;
        while (other < world.gpu_count && strcmp(world.gpus[other].uuid, name)) other++;
        fill_pci(pci, other))

/* ---- events ---- */

int nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long *types)
    ABOUT_GPU(*types = gpu->events ? XID_EVENT : 0)

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
        if (types & ~(unsigned long long)XID_EVENT || !gpu->events) return leave(NOT_SUPPORTED);
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
        *event = (Event){(Device)&handles[xid->gpu], XID_EVENT, xid->code, xid->gi, xid->ci};
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
