/* A stand-in for libnvidia-ml.so.1: says what a script says, fails as the script says, counts its calls.
 *
 * $FAKE_NVML_DIR/script is read again whenever it changes (write a new file and rename it over the old one):
 *   driver 580.159.04 | nvml 13.580.159.04 | cuda 13000 | count 2 | nvlink 1 | topology 30
 *   gpu   WHO KEY VALUE        KEY: see `keys`; VALUE: 7, or 3..9 for a new number in that range each second
 *   text  WHO name|uuid|bus VALUE
 *   field WHO ID VALUE         nvmlDeviceGetFieldValues; an id without a line answers NOT_SUPPORTED
 *   gpm   WHO METRIC VALUE     a metric without a line has no name, as on a real chip
 *   MIG device k of any GPU is index 15 - k; one without a uuid does not exist
 *   process WHO PID BYTES      BYTES -1: not available
 *   fault WHO FUNCTION CODE    FUNCTION may be *
 *   delay WHO FUNCTION MS
 *   hang  WHO FUNCTION         until the script no longer says so
 *   xid   INDEX CODE           delivered once a line
 * WHO is an index, * (every GPU) or - (calls that name no GPU). Later lines win.
 * $FAKE_NVML_DIR/counts holds records of struct count. A handle used after nvmlShutdown aborts, as real ones may.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 16, RULES = 256, FIELDS = 512, METRICS = 512, PROCESSES = 64, NAMES = 160, NOBODY = -1, EVERYBODY = -2 };
enum { UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SHORT = 7, TIMEOUT = 10 };

static const char *const keys[] = {
    "sm_clock", "mem_clock", "sm_clock_max", "mem_clock_max", "reasons", "util", "mem_util", "mem_total", "mem_used",
    "mem_reserved", "power", "power_limit", "power_default", "energy", "energy_rate", "temperature", "slowdown", "fan",
    "pcie_gen", "pcie_width", "pcie_gen_max", "pcie_width_max", "pcie_gen_device", "pcie_kbs", "pstate", "persistence",
    "mig", "bus_type", "architecture", "virtualization", "bus_width", "gpm_supported", "ecc", "numa", "mig_places",
    "gpu_instance", "compute_mode", "app_sm_clock", "app_mem_clock", "margin", 0};
enum {
    SM_CLOCK, MEM_CLOCK, SM_CLOCK_MAX, MEM_CLOCK_MAX, REASONS, UTIL, MEM_UTIL, MEM_TOTAL, MEM_USED,
    MEM_RESERVED, POWER, POWER_LIMIT, POWER_DEFAULT, ENERGY, ENERGY_RATE, TEMPERATURE, SLOWDOWN, FAN,
    PCIE_GEN, PCIE_WIDTH, PCIE_GEN_MAX, PCIE_WIDTH_MAX, PCIE_GEN_DEVICE, PCIE_KBS, PSTATE, PERSISTENCE,
    MIG, BUS_TYPE, ARCHITECTURE, VIRTUALIZATION, BUS_WIDTH, GPM_SUPPORTED, ECC, NUMA, MIG_PLACES,
    GPU_INSTANCE, COMPUTE_MODE, APP_SM_CLOCK, APP_MEM_CLOCK, MARGIN, KEYS
};

typedef struct { double low, high; char set; } value_t;
typedef struct { int who, code, ms; char function[64], hangs; } rule_t;
typedef struct { unsigned pid; long long bytes; } holder_t;
typedef struct {
    value_t value[KEYS], field[FIELDS], gpm[METRICS];
    char name[96], uuid[96], bus[32];
    holder_t holder[PROCESSES];
    int holders;
} gpu_t;
typedef struct {
    char driver[80], nvml[80];
    int cuda, count, nvlink, topology, rules, xids, xid_gpu[64], xid_code[64];
    gpu_t gpu[GPUS];
    rule_t rule[RULES];
} script_t;
struct count { char name[56]; uint64_t calls[GPUS + 1]; };
typedef struct { int index, generation; } handle_t;
typedef handle_t *device_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static script_t nothing, *current = &nothing, *fresh;
static struct timespec read_at;
static ino_t read_inode;
static struct count *counts;
static int references, generation, xids_told;
static handle_t handles[64][GPUS];

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static value_t number(const char *text) {
    value_t value = {0, 0, 1};
    const char *dots = strstr(text, "..");
    value.low = strtod(text, 0);
    value.high = dots ? strtod(dots + 2, 0) : value.low;
    return value;
}

static int who_is(const char *text) {
    return *text == '*' ? EVERYBODY : *text == '-' ? NOBODY : atoi(text);
}

static void set_gpu(gpu_t *gpu, const char *what, const char *key, const char *text) {
    if (!strcmp(what, "gpu")) {
        for (int at = 0; keys[at]; at++)
            if (!strcmp(keys[at], key)) gpu->value[at] = number(text);
    } else if (!strcmp(what, "field")) {
        gpu->field[atoi(key) % FIELDS] = number(text);
    } else if (!strcmp(what, "gpm")) {
        gpu->gpm[atoi(key) % METRICS] = number(text);
    } else if (!strcmp(what, "text")) {
        char *into = !strcmp(key, "name") ? gpu->name : !strcmp(key, "uuid") ? gpu->uuid : gpu->bus;
        snprintf(into, into == gpu->bus ? sizeof gpu->bus : sizeof gpu->name, "%.95s", text);
    } else if (!strcmp(what, "process") && gpu->holders < PROCESSES) {
        gpu->holder[gpu->holders].pid = (unsigned)atol(key);
        gpu->holder[gpu->holders++].bytes = atoll(text);
    }
}

static void set_rule(const char *what, const char *who, const char *function, const char *text) {
    if (fresh->rules == RULES) return;
    rule_t *rule = &fresh->rule[fresh->rules++];
    memset(rule, 0, sizeof *rule);
    rule->who = who_is(who);
    snprintf(rule->function, sizeof rule->function, "%s", function);
    if (!strcmp(what, "fault")) rule->code = atoi(text);
    else if (!strcmp(what, "delay")) rule->ms = atoi(text);
    else rule->hangs = 1;
}

static void one_line(char *line) {
    char what[32] = "", a[64] = "", b[64] = "", rest[256] = "";
    line[strcspn(line, "\r\n")] = 0;
    int found = sscanf(line, "%31s %63s %63s %255[^\n]", what, a, b, rest);
    if (found < 2 || *what == '#') return;
    if (!strcmp(what, "driver")) snprintf(fresh->driver, sizeof fresh->driver, "%s", a);
    else if (!strcmp(what, "nvml")) snprintf(fresh->nvml, sizeof fresh->nvml, "%s", a);
    else if (!strcmp(what, "cuda")) fresh->cuda = atoi(a);
    else if (!strcmp(what, "count")) fresh->count = atoi(a) < GPUS ? atoi(a) : GPUS;
    else if (!strcmp(what, "nvlink")) fresh->nvlink = atoi(a);
    else if (!strcmp(what, "topology")) fresh->topology = atoi(a);
    else if (!strcmp(what, "fault") || !strcmp(what, "delay") || !strcmp(what, "hang")) set_rule(what, a, b, rest);
    else if (!strcmp(what, "xid") && fresh->xids < 64) {
        fresh->xid_gpu[fresh->xids] = atoi(a);
        fresh->xid_code[fresh->xids++] = atoi(b);
    } else {
        int who = who_is(a);
        for (int at = 0; at < GPUS; at++)
            if (who == EVERYBODY || who == at) set_gpu(&fresh->gpu[at], what, b, rest);
    }
}

/* With the lock held. Old scripts are never freed: another thread may be reading one. */
static void reread(void) {
    char path[512], line[512];
    struct stat is;
    snprintf(path, sizeof path, "%s/script", getenv("FAKE_NVML_DIR") ? getenv("FAKE_NVML_DIR") : ".");
    if (stat(path, &is) || (is.st_ino == read_inode && !memcmp(&is.st_mtim, &read_at, sizeof read_at))) return;
    FILE *file = fopen(path, "r");
    fresh = file ? calloc(1, sizeof *fresh) : 0;
    if (!fresh) return;
    while (fgets(line, sizeof line, file)) one_line(line);
    fclose(file);
    current = fresh;
    read_inode = is.st_ino;
    read_at = is.st_mtim;
}

static void count_call(const char *function, int who) { /* with the lock held */
    if (!counts) {
        char path[512];
        snprintf(path, sizeof path, "%s/counts", getenv("FAKE_NVML_DIR") ? getenv("FAKE_NVML_DIR") : ".");
        int file = open(path, O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, NAMES * sizeof *counts)) return;
        void *map = mmap(0, NAMES * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (map == MAP_FAILED) return;
        counts = map;
    }
    for (int at = 0; at < NAMES; at++) {
        if (!counts[at].name[0]) snprintf(counts[at].name, sizeof counts[at].name, "%s", function);
        if (strncmp(counts[at].name, function, sizeof counts[at].name - 1)) continue;
        counts[at].calls[who < 0 ? GPUS : who]++;
        return;
    }
}

static void rules_for(const char *function, int who, int *code, int *ms, int *hangs) {
    *code = *ms = *hangs = 0;
    for (int at = 0; at < current->rules; at++) {
        rule_t *rule = &current->rule[at];
        if (rule->who != who && !(rule->who == EVERYBODY && who >= 0)) continue;
        if (strcmp(rule->function, "*") && strcmp(rule->function, function)) continue;
        if (rule->hangs) *hangs = 1;
        else if (rule->ms) *ms = rule->ms;
        else *code = rule->code;
    }
}

/* A call begins to hang: whoever reads the pipe $FAKE_NVML_DIR/hung is told. */
static void tell_hung(const char *function) {
    char path[512];
    snprintf(path, sizeof path, "%s/hung", getenv("FAKE_NVML_DIR") ? getenv("FAKE_NVML_DIR") : ".");
    int pipe = open(path, O_WRONLY | O_NONBLOCK);
    if (pipe < 0) return;
    if (write(pipe, function, strlen(function)) < 0) perror("fake_nvml: hung");
    close(pipe);
}

static int enter(const char *function, int who) {
    int code, ms, hangs;
    pthread_mutex_lock(&lock);
    reread();
    count_call(function, who);
    rules_for(function, who, &code, &ms, &hangs);
    pthread_mutex_unlock(&lock);
    if (hangs) tell_hung(function);
    for (int again = hangs; again;) {
        usleep(2000);
        pthread_mutex_lock(&lock);
        reread();
        rules_for(function, who, &code, &ms, &again);
        pthread_mutex_unlock(&lock);
    }
    if (ms) usleep(1000 * ms);
    return code;
}

static int enter_box(const char *function) {
    int code = enter(function, NOBODY);
    return code ? code : references ? 0 : UNINITIALIZED;
}

static int enter_gpu(const char *function, device_t device) {
    if (!device) return INVALID;
    if (device->generation != generation) {
        fprintf(stderr, "fake_nvml: %s with the handle of an earlier session\n", function);
        abort();
    }
    int code = enter(function, device->index);
    return code ? code : references ? 0 : UNINITIALIZED;
}

static double moving(value_t value, int gpu, int key) {
    if (value.high <= value.low) return value.low;
    uint64_t x = (uint64_t)seconds() * 2654435761u + (uint64_t)gpu * 40503u + (uint64_t)key * 69069u;
    x ^= x >> 13, x *= 0x9E3779B97F4A7C15u, x ^= x >> 32;
    return value.low + (value.high - value.low) * (double)(x % 10007) / 10006;
}

static double get(device_t device, int key) {
    return moving(current->gpu[device->index].value[key], device->index, key);
}

#define ENTER(function) do { int code_ = enter_gpu(#function, device); if (code_) return code_; } while (0)
#define ENTER_BOX(function) do { int code_ = enter_box(#function); if (code_) return code_; } while (0)
#define KNOWN(key) do { if (!current->gpu[device->index].value[key].set) return NOT_SUPPORTED; } while (0)
#define GETTER(function, type, key) \
    int function(device_t device, type *out) { ENTER(function); KNOWN(key); *out = (type)get(device, key); return 0; }
#define REFUSED(function) int function(device_t device) { ENTER(function); return NOT_SUPPORTED; }

static int start(const char *function) {
    int code = enter(function, NOBODY);
    if (!code && !references++) generation++;
    return code;
}
int nvmlInitWithFlags(unsigned flags) { (void)flags; return start("nvmlInitWithFlags"); }
int nvmlInit_v2(void) { return start("nvmlInit_v2"); }
int nvmlInit(void) { return start("nvmlInit"); }
int nvmlShutdown(void) {
    int code = enter("nvmlShutdown", NOBODY);
    if (code) return code;
    if (!references) return UNINITIALIZED;
    if (!--references) generation++;
    return 0;
}
const char *nvmlErrorString(int code) {
    static __thread char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER_BOX(nvmlSystemGetDriverVersion); snprintf(out, size, "%s", current->driver); return 0; }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { ENTER_BOX(nvmlSystemGetNVMLVersion); snprintf(out, size, "%s", current->nvml); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { ENTER_BOX(nvmlSystemGetCudaDriverVersion_v2); *out = current->cuda; return 0; }
int nvmlSystemGetCudaDriverVersion(int *out) { ENTER_BOX(nvmlSystemGetCudaDriverVersion); *out = current->cuda; return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { ENTER_BOX(nvmlDeviceGetCount_v2); *out = (unsigned)current->count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *out) {
    int code = enter("nvmlDeviceGetHandleByIndex_v2", (int)index);
    if (code) return code;
    if (!references) return UNINITIALIZED;
    if ((int)index >= current->count) return INVALID;
    handle_t *handle = &handles[generation % 64][index];
    handle->index = (int)index;
    handle->generation = generation;
    *out = handle;
    return 0;
}

int nvmlDeviceGetName(device_t device, char *out, unsigned size) { ENTER(nvmlDeviceGetName); snprintf(out, size, "%s", current->gpu[device->index].name); return 0; }
int nvmlDeviceGetUUID(device_t device, char *out, unsigned size) { ENTER(nvmlDeviceGetUUID); snprintf(out, size, "%s", current->gpu[device->index].uuid); return 0; }
int nvmlDeviceGetIndex(device_t device, unsigned *out) { ENTER(nvmlDeviceGetIndex); *out = (unsigned)device->index; return 0; }
int nvmlDeviceGetMinorNumber(device_t device, unsigned *out) { ENTER(nvmlDeviceGetMinorNumber); *out = (unsigned)device->index; return 0; }

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(device_t device, struct pci *out) {
    ENTER(nvmlDeviceGetPciInfo_v3);
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", current->gpu[device->index].bus);
    snprintf(out->legacy, sizeof out->legacy, "%.12s", current->gpu[device->index].bus + 4);
    sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return 0;
}

int nvmlDeviceGetClockInfo(device_t device, unsigned kind, unsigned *out) {
    ENTER(nvmlDeviceGetClockInfo);
    int key = kind == 2 ? MEM_CLOCK : SM_CLOCK;
    KNOWN(key);
    *out = (unsigned)get(device, key);
    return 0;
}
int nvmlDeviceGetMaxClockInfo(device_t device, unsigned kind, unsigned *out) {
    ENTER(nvmlDeviceGetMaxClockInfo);
    int key = kind == 2 ? MEM_CLOCK_MAX : SM_CLOCK_MAX;
    KNOWN(key);
    *out = (unsigned)get(device, key);
    return 0;
}

int nvmlDeviceGetApplicationsClock(device_t device, unsigned kind, unsigned *out) {
    ENTER(nvmlDeviceGetApplicationsClock);
    int key = kind == 2 ? APP_MEM_CLOCK : APP_SM_CLOCK;
    KNOWN(key);
    *out = (unsigned)get(device, key);
    return 0;
}

struct rates { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(device_t device, struct rates *out) {
    ENTER(nvmlDeviceGetUtilizationRates);
    KNOWN(UTIL);
    out->gpu = (unsigned)get(device, UTIL);
    out->memory = (unsigned)get(device, MEM_UTIL);
    return 0;
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(device_t device, struct memory_v2 *out) {
    ENTER(nvmlDeviceGetMemoryInfo_v2);
    KNOWN(MEM_TOTAL);
    if (out->version != (sizeof *out | 2u << 24)) return 25;
    out->total = (unsigned long long)get(device, MEM_TOTAL);
    out->reserved = (unsigned long long)get(device, MEM_RESERVED);
    out->used = (unsigned long long)get(device, MEM_USED);
    out->free = out->total - out->reserved - out->used;
    return 0;
}
int nvmlDeviceGetMemoryInfo(device_t device, struct memory *out) {
    ENTER(nvmlDeviceGetMemoryInfo);
    KNOWN(MEM_TOTAL);
    out->total = (unsigned long long)get(device, MEM_TOTAL);
    out->used = (unsigned long long)(get(device, MEM_RESERVED) + get(device, MEM_USED));
    out->free = out->total - out->used;
    return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *out) {
    ENTER(nvmlDeviceGetTotalEnergyConsumption);
    KNOWN(ENERGY);
    *out = (unsigned long long)(get(device, ENERGY) + seconds() * get(device, ENERGY_RATE));
    return 0;
}

struct temperature { unsigned version, sensor; int celsius; };
int nvmlDeviceGetTemperatureV(device_t device, struct temperature *out) {
    ENTER(nvmlDeviceGetTemperatureV);
    KNOWN(TEMPERATURE);
    if (out->version != 0x100000C) return 25;
    out->celsius = (int)get(device, TEMPERATURE);
    return 0;
}
int nvmlDeviceGetTemperature(device_t device, unsigned sensor, unsigned *out) {
    (void)sensor;
    ENTER(nvmlDeviceGetTemperature);
    KNOWN(TEMPERATURE);
    *out = (unsigned)get(device, TEMPERATURE);
    return 0;
}
int nvmlDeviceGetTemperatureThreshold(device_t device, unsigned which, unsigned *out) {
    ENTER(nvmlDeviceGetTemperatureThreshold);
    if (which != 1) return NOT_SUPPORTED;
    KNOWN(SLOWDOWN);
    *out = (unsigned)get(device, SLOWDOWN);
    return 0;
}

struct margin { unsigned version; int celsius; };
int nvmlDeviceGetMarginTemperature(device_t device, struct margin *out) {
    ENTER(nvmlDeviceGetMarginTemperature);
    KNOWN(MARGIN);
    out->celsius = (int)get(device, MARGIN);
    return 0;
}

int nvmlDeviceGetPcieThroughput(device_t device, unsigned counter, unsigned *out) {
    (void)counter;
    ENTER(nvmlDeviceGetPcieThroughput);
    KNOWN(PCIE_KBS);
    usleep(20000); /* as the real one: it watches for 20 ms */
    *out = (unsigned)get(device, PCIE_KBS);
    return 0;
}

GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, REASONS)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, REASONS)
GETTER(nvmlDeviceGetPerformanceState, unsigned, PSTATE)
GETTER(nvmlDeviceGetPowerState, unsigned, PSTATE)
GETTER(nvmlDeviceGetPowerUsage, unsigned, POWER)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, POWER_LIMIT)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, POWER_LIMIT)
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, POWER_DEFAULT)
GETTER(nvmlDeviceGetFanSpeed, unsigned, FAN)
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, PCIE_GEN)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, PCIE_WIDTH)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, PCIE_GEN_MAX)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, PCIE_WIDTH_MAX)
GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, PCIE_GEN_DEVICE)
GETTER(nvmlDeviceGetPersistenceMode, unsigned, PERSISTENCE)
GETTER(nvmlDeviceGetBusType, unsigned, BUS_TYPE)
GETTER(nvmlDeviceGetArchitecture, unsigned, ARCHITECTURE)
GETTER(nvmlDeviceGetVirtualizationMode, unsigned, VIRTUALIZATION)
GETTER(nvmlDeviceGetMemoryBusWidth, unsigned, BUS_WIDTH)
GETTER(nvmlDeviceGetNumaNodeId, unsigned, NUMA)

int nvmlDeviceGetMigMode(device_t device, unsigned *now, unsigned *pending) {
    ENTER(nvmlDeviceGetMigMode);
    KNOWN(MIG);
    *now = *pending = (unsigned)get(device, MIG);
    return 0;
}
GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned, MIG_PLACES)
GETTER(nvmlDeviceGetGpuInstanceId, unsigned, GPU_INSTANCE)
int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned place, device_t *out) {
    ENTER(nvmlDeviceGetMigDeviceHandleByIndex);
    KNOWN(MIG_PLACES);
    int index = GPUS - 1 - (int)place;
    if (index < current->count || !*current->gpu[index].uuid) return NOT_FOUND;
    handle_t *handle = &handles[generation % 64][index];
    handle->index = index;
    handle->generation = generation;
    *out = handle;
    return 0;
}
int nvmlDeviceGetTotalEccErrors(device_t device, unsigned kind, unsigned counter, unsigned long long *out) {
    (void)kind, (void)counter;
    ENTER(nvmlDeviceGetTotalEccErrors);
    KNOWN(ECC);
    *out = (unsigned long long)get(device, ECC);
    return 0;
}

struct field { uint32_t id, scope; int64_t stamp, latency; unsigned kind; int code; union { unsigned long long u; double d; } value; };
int nvmlDeviceGetFieldValues(device_t device, int count, struct field *out) {
    ENTER(nvmlDeviceGetFieldValues);
    if (count < 1) return INVALID;
    for (int at = 0; at < count; at++) {
        value_t value = current->gpu[device->index].field[out[at].id % FIELDS];
        out[at].code = value.set ? 0 : NOT_SUPPORTED;
        out[at].kind = 3;
        out[at].value.u = (unsigned long long)moving(value, device->index, (int)out[at].id);
    }
    return 0;
}

struct process { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };
static int list(device_t device, unsigned *count, struct process *out) {
    gpu_t *gpu = &current->gpu[device->index];
    unsigned room = *count;
    *count = (unsigned)gpu->holders;
    if (!gpu->holders) return 0;
    if (!out || room < (unsigned)gpu->holders) return SHORT;
    for (int at = 0; at < gpu->holders; at++) {
        memset(&out[at], 0, sizeof *out);
        out[at].pid = gpu->holder[at].pid;
        out[at].bytes = (unsigned long long)gpu->holder[at].bytes;
    }
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, struct process *out) { ENTER(nvmlDeviceGetComputeRunningProcesses_v3); return list(device, count, out); }
int nvmlDeviceGetComputeRunningProcesses_v2(device_t device, unsigned *count, struct process *out) { ENTER(nvmlDeviceGetComputeRunningProcesses_v2); return list(device, count, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t device, unsigned *count, struct process *out) { (void)out; ENTER(nvmlDeviceGetGraphicsRunningProcesses_v3); *count = 0; return 0; }
int nvmlDeviceGetGraphicsRunningProcesses_v2(device_t device, unsigned *count, struct process *out) { (void)out; ENTER(nvmlDeviceGetGraphicsRunningProcesses_v2); *count = 0; return 0; }

/* the form of R450 and before, which old monitors still ask for */
struct process_v1 { unsigned pid; unsigned long long bytes; };
int nvmlDeviceGetComputeRunningProcesses(device_t device, unsigned *count, struct process_v1 *out) {
    struct process all[PROCESSES];
    unsigned room = PROCESSES, asked = *count;
    ENTER(nvmlDeviceGetComputeRunningProcesses);
    int code = list(device, &room, all);
    *count = room;
    if (code || asked < room || !out) return code ? code : room ? SHORT : 0;
    for (unsigned at = 0; at < room; at++) out[at] = (struct process_v1){all[at].pid, all[at].bytes};
    return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses(device_t device, unsigned *count, struct process_v1 *out) { (void)out; ENTER(nvmlDeviceGetGraphicsRunningProcesses); *count = 0; return 0; }

int nvmlDeviceGetTopologyCommonAncestor(device_t device, device_t other, unsigned *out) { (void)other; ENTER(nvmlDeviceGetTopologyCommonAncestor); *out = (unsigned)current->topology; return 0; }
int nvmlDeviceGetP2PStatus(device_t device, device_t other, unsigned what, unsigned *out) { (void)other; ENTER(nvmlDeviceGetP2PStatus); *out = what == 2 && current->nvlink ? 0 : 5; return 0; }

struct sample { int gpu, generation; };
struct metric { unsigned id; int code; double value; const char *short_name, *long_name, *unit; };
struct metrics { unsigned version, count; struct sample *before, *after; struct metric metric[1]; };
struct support { unsigned version, supported; };
int nvmlGpmQueryDeviceSupport(device_t device, struct support *out) { ENTER(nvmlGpmQueryDeviceSupport); out->supported = (unsigned)get(device, GPM_SUPPORTED); return 0; }
int nvmlGpmSampleAlloc(struct sample **out) {
    ENTER_BOX(nvmlGpmSampleAlloc);
    *out = calloc(1, sizeof **out);
    (*out)->gpu = -1;
    (*out)->generation = generation;
    return 0;
}
int nvmlGpmSampleFree(struct sample *sample) { ENTER_BOX(nvmlGpmSampleFree); free(sample); return 0; }
int nvmlGpmSampleGet(device_t device, struct sample *sample) { ENTER(nvmlGpmSampleGet); sample->gpu = device->index; return 0; }
int nvmlGpmMetricsGet(struct metrics *out) {
    ENTER_BOX(nvmlGpmMetricsGet);
    if (out->version != 1 || !out->before || !out->after || out->before->gpu < 0 || out->after->gpu < 0) return INVALID;
    for (unsigned at = 0; at < out->count; at++) {
        struct metric *metric = &out->metric[at];
        value_t value = current->gpu[out->after->gpu].gpm[metric->id % METRICS];
        metric->code = 0;
        metric->value = value.set ? moving(value, out->after->gpu, 1000 + (int)metric->id) : 0;
        metric->short_name = value.set ? "metric" : 0;
        metric->long_name = metric->unit = metric->short_name;
    }
    return 0;
}

struct event { device_t device; unsigned long long kind, data; unsigned gpu_instance, compute_instance; };
int nvmlEventSetCreate(void **out) { ENTER_BOX(nvmlEventSetCreate); *out = malloc(1); return 0; }
int nvmlEventSetFree(void *set) { ENTER_BOX(nvmlEventSetFree); free(set); return 0; }
int nvmlDeviceRegisterEvents(device_t device, unsigned long long kinds, void *set) { (void)kinds, (void)set; ENTER(nvmlDeviceRegisterEvents); return 0; }
int nvmlEventSetWait_v2(void *set, struct event *out, unsigned timeout_ms) {
    (void)set;
    ENTER_BOX(nvmlEventSetWait_v2);
    if (xids_told >= current->xids) {
        usleep(1000 * timeout_ms);
        return TIMEOUT;
    }
    memset(out, 0, sizeof *out);
    out->device = &handles[generation % 64][current->xid_gpu[xids_told]];
    out->kind = 8;
    out->data = (unsigned long long)current->xid_code[xids_told++];
    return 0;
}

/* What only peers ask for. */
static int idle_engine(unsigned *percent, unsigned *period_us) {
    *percent = 0;
    *period_us = 100000;
    return 0;
}
int nvmlDeviceGetEncoderUtilization(device_t device, unsigned *out, unsigned *period) { ENTER(nvmlDeviceGetEncoderUtilization); return idle_engine(out, period); }
int nvmlDeviceGetDecoderUtilization(device_t device, unsigned *out, unsigned *period) { ENTER(nvmlDeviceGetDecoderUtilization); return idle_engine(out, period); }
GETTER(nvmlDeviceGetComputeMode, unsigned, COMPUTE_MODE)
int nvmlDeviceGetDisplayActive(device_t device, unsigned *out) { ENTER(nvmlDeviceGetDisplayActive); *out = 0; return 0; }
REFUSED(nvmlDeviceGetDriverModel)
REFUSED(nvmlDeviceGetDriverModel_v2)
REFUSED(nvmlDeviceGetJpgUtilization)
REFUSED(nvmlDeviceGetOfaUtilization)
REFUSED(nvmlDeviceGetBAR1MemoryInfo)
REFUSED(nvmlDeviceGetCurrentEccMode)
REFUSED(nvmlDeviceGetEccMode)
REFUSED(nvmlDeviceGetDisplayMode)
REFUSED(nvmlDeviceGetProcessUtilization)
REFUSED(nvmlDeviceGetNumFans)
