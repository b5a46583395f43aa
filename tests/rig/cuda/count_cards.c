/* A program that is linked against libcuda.so.1 and prints the UUIDs of the cards that it finds. */
#include <stdio.h>

typedef struct {
    unsigned char bytes[16];
} Uuid;

int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetUuid(Uuid *uuid, int device);

int main(void) {
    int count, device, version, failed = cuInit(0);
    Uuid uuid;
    if (failed || cuDriverGetVersion(&version) || cuDeviceGetCount(&count)) {
        printf("cuInit: error %d\n", failed);
        return 1;
    }
    printf("CUDA %d.%d\n", version / 1000, version % 1000 / 10);
    for (int ordinal = 0; ordinal < count; ordinal++) {
        if (cuDeviceGet(&device, ordinal) || cuDeviceGetUuid(&uuid, device)) return 1;
        printf("GPU-");
        for (int place = 0; place < 16; place++)
            printf("%s%02x", place == 4 || place == 6 || place == 8 || place == 10 ? "-" : "", uuid.bytes[place]);
        printf("\n");
    }
    return 0;
}
