/* A CUDA driver library without a driver: it counts the cards whose device nodes a program can open.
 *
 * Behind the rig's device nodes there is nothing, so opening one fails with ENXIO. A node that the container's cgroup
 * forbids fails with EPERM before that. As NVIDIA's library, it also wants the control node and the one of UVM.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, UNKNOWN = 999 };
enum { MOST = 32, VERSION = 12080 };

typedef struct {
    unsigned char bytes[16];
} Uuid;

static int minors[MOST];
static int count = -1;

static int may_open(const char *path) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0) close(file);
    return file >= 0 || errno == ENXIO;
}

int cuInit(unsigned int flags) {
    struct stat uvm;
    char path[32];
    if (flags != 0) return INVALID_VALUE;
    if (!may_open("/dev/nvidiactl") || stat("/dev/nvidia-uvm", &uvm) != 0 || !S_ISCHR(uvm.st_mode)) return UNKNOWN;
    count = 0;
    for (int minor = 0; minor < MOST; minor++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", minor);
        if (may_open(path)) minors[count++] = minor;
    }
    return count > 0 ? SUCCESS : NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
    *version = VERSION;
    return SUCCESS;
}

int cuDeviceGetCount(int *found) {
    if (count < 0) return NOT_INITIALIZED;
    *found = count;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    if (count < 0) return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= count) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

/* The rig's cards have UUIDs that end with their minor number. */
int cuDeviceGetUuid(Uuid *uuid, int device) {
    if (device < 0 || device >= count) return INVALID_DEVICE;
    memset(uuid, 0, sizeof *uuid);
    uuid->bytes[6] = 0x40;
    uuid->bytes[8] = 0x80;
    uuid->bytes[15] = (unsigned char)minors[device];
    return SUCCESS;
}
