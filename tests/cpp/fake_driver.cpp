// SPDX-License-Identifier: Apache-2.0
// A fake CUDA driver (libcuda.so.1) with two GPUs that compute nothing. It counts calls, and fails on request. Like the
// real driver, it rejects launches that the cubin does not allow, streams and events of another context, and calls that
// are forbidden during a capture. Both GPUs are H100s, unless the environment variable FAKE_GPU=80 or FAKE_GPU=120
// selects another compute capability. It is compiled by:
//   c++ -std=c++20 -shared -fPIC tests/cpp/fake_driver.cpp -o libcuda.so.1
#include "fake_driver.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

enum { kInvalidValue = 1, kOutOfMemory = 2, kDeinitialized = 4, kInvalidContext = 201, kInvalidHandle = 400 };
enum { kCooperativeTooLarge = 720, kCaptureUnsupported = 900, kCaptureIsolation = 905 };

extern "C" {
Fake fake;
}

namespace {

constexpr unsigned kSmemWithoutAsking = 48 << 10;
const int arch = std::getenv("FAKE_GPU") ? std::atoi(std::getenv("FAKE_GPU")) : 90;
const unsigned most_smem = arch == 80 ? 166912 : arch == 90 ? 232448 : 101376;

thread_local void* current = nullptr;
thread_local bool relaxed = false, in_callback = false;

int status() {
  if (in_callback) ++fake.calls_of_callbacks;
  return fake.shut_down ? kDeinitialized : current ? 0 : kInvalidContext;
}

struct Block {
  unsigned long bytes;
  void* context;
};
std::map<char*, Block> blocks;
const Block* block_at(unsigned long long p) {
  auto after = blocks.upper_bound(reinterpret_cast<char*>(p));
  if (after == blocks.begin()) return nullptr;
  auto& [begin, block] = *--after;
  return reinterpret_cast<char*>(p) < begin + block.bytes ? &block : nullptr;
}

struct Callback {
  void (*call)(void*);
  void* argument;
};
std::map<void*, unsigned long> captured;                 // the graph into which each stream is being captured
std::map<unsigned long, std::vector<Callback>> objects;  // callbacks that are called when a graph is destroyed
unsigned long graph_of(void* stream) { return captured.contains(stream) ? captured[stream] : 0; }
int breaks_capture() {
  ++fake.broken_captures;
  return kCaptureUnsupported;
}
int status_unless_captured() { return captured.empty() || relaxed ? status() : breaks_capture(); }

struct Event {
  void* context;
  unsigned long graph;
};

struct Function {
  unsigned static_smem = 0, dynamic_smem = 0, most_threads = 1024;
  std::map<int, unsigned long> parameters;
};
using Module = std::map<std::string, Function>;

template <class T> T read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Reads sections of a cubin, which is an ELF file. The size of the section .nv.shared.<kernel> is the kernel's static
// shared memory. From sm_90 on, this size includes 1024 bytes that the system reserves. The section .nv.info.<kernel>
// lists the kernel's attributes.
Module* parse(const char* elf) {
  auto* module = new Module;
  const char* sections = elf + read<uint64_t>(elf + 40);
  const int size = read<uint16_t>(elf + 58), count = read<uint16_t>(elf + 60), names = read<uint16_t>(elf + 62);
  const char* text = elf + read<uint64_t>(sections + names * size + 24);
  for (int i = 0; i < count; ++i) {
    const char* section = sections + i * size;
    const std::string name = text + read<uint32_t>(section);
    const char* data = elf + read<uint64_t>(section + 24);
    const auto bytes = read<uint64_t>(section + 32);
    auto kernel = [&](const char* prefix) { return &(*module)[name.substr(std::strlen(prefix))]; };
    if (name.starts_with(".text.")) kernel(".text.");
    if (name.starts_with(".nv.shared._")) kernel(".nv.shared.")->static_smem = unsigned(bytes) - (arch < 90 ? 0 : 1024);
    if (!name.starts_with(".nv.info._")) continue;
    Function& f = *kernel(".nv.info.");
    for (uint64_t at = 0; at + 4 <= bytes;) {
      constexpr int kSized = 4, kMostThreads = 0x05, kParameter = 0x17;
      const int format = data[at], attribute = data[at + 1], length = read<uint16_t>(data + at + 2);
      const char* value = data + at + 4;
      at += 4 + (format == kSized ? length : 0);
      if (format != kSized) continue;
      if (attribute == kMostThreads) f.most_threads = read<uint32_t>(value);
      if (attribute == kParameter) f.parameters[read<uint16_t>(value + 4)] = read<uint32_t>(value + 8) >> 18;
    }
  }
  return module;
}

int launch(const Function& f, const unsigned* grid, const unsigned* block, unsigned smem, int attributes,
           bool cooperative = false) {
  ++fake.launches;
  fake.grid_x = grid[0];
  fake.smem_bytes = smem;
  fake.attributes = attributes;
  if (fake.launch_result && (cooperative || fake.launch_result != kCooperativeTooLarge)) return fake.launch_result;
  const unsigned long threads = 1ul * block[0] * block[1] * block[2];
  if (grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535 || threads == 0 || threads > f.most_threads)
    return kInvalidValue;
  if (smem > f.dynamic_smem) return kInvalidValue;
  return status();
}

}  // namespace

extern "C" {
void fake_begin(void* stream, unsigned long graph) {
  captured[stream] = graph;
  objects.try_emplace(graph);
}
void fake_end(void* stream) { captured.erase(stream); }
void fake_destroy(unsigned long graph) {
  std::thread([&] {
    in_callback = true;
    for (const Callback& c : objects[graph]) c.call(c.argument);
  }).join();
  objects.erase(graph);
}

int cuInit(unsigned) { return 0; }
int cuGetExportTable(const void**, const void*) { return 1; }
int cuDriverGetVersion(int* v) { return *v = 13000, 0; }
int cuGetErrorName(int e, const char** s) {
  return *s = e == kDeinitialized ? "CUDA_ERROR_DEINITIALIZED" : "CUDA_ERROR_OF_A_KIND", 0;
}
int cuGetErrorString(int, const char** s) { return *s = "what the driver says", 0; }
int cuDeviceGet(int* d, int i) { return *d = i, 0; }
int cuDeviceGetCount(int* n) { return *n = 2, 0; }
int cuDeviceGetName(char* s, int n, int) { return std::snprintf(s, n, "Fake H100"), 0; }
int cuDeviceTotalMem(unsigned long* n, int) { return *n = 80ul << 30, 0; }
int cuDeviceGetAttribute(int* v, int which, int) {
  std::map<int, int> gpu = {{75, arch / 10}, {76, arch % 10}, {16, 132},     {97, most_smem}, {38, 50 << 20},
                            {37, 5120},      {36, 2619000},   {13, 1980000}, {115, 1}};
  return *v = gpu.at(which), 0;
}
int cuDevicePrimaryCtxRetain(void** c, int d) { return *c = reinterpret_cast<void*>(0x1000l + d), 0; }
int cuCtxGetCurrent(void** c) { return *c = current, fake.shut_down ? kDeinitialized : 0; }
int cuCtxSetCurrent(void* c) { return current = c, 0; }
int cuCtxSynchronize() { return captured.empty() ? status() : breaks_capture(); }
int cuMemGetInfo(unsigned long* f, unsigned long* t) { return *f = fake.free_bytes, *t = 80ul << 30, status(); }
int cuMemAlloc(unsigned long long*, unsigned long) { return kInvalidValue; }
int cuMemPoolCreate(void** p, const void*) { return *p = &fake, 0; }
int cuMemPoolSetAttribute(void*, int, void*) { return 0; }
int cuMemPoolGetAttribute(void*, int which, void* v) {
  return *static_cast<unsigned long*>(v) = which == 5 ? 4096 : 0, 0;
}
int cuMemPoolTrimTo(void*, unsigned long) {
  ++fake.trims;
  return 0;
}
int cuMemAllocFromPoolAsync(unsigned long long* p, unsigned long n, void*, void* stream) {
  if (graph_of(stream)) return breaks_capture();
  if (n > fake.free_bytes) return kOutOfMemory;
  fake.free_bytes -= n;
  fake.allocated_in = current;
  char* block = new char[n];
  blocks[block] = {n, current};
  return *p = reinterpret_cast<unsigned long long>(block), status();
}
int cuMemFree(unsigned long long p) {
  if (status()) return status();
  auto block = blocks.find(reinterpret_cast<char*>(p));
  if (block == blocks.end()) return kInvalidValue;
  fake.free_bytes += block->second.bytes;
  delete[] block->first;
  blocks.erase(block);
  return 0;
}
int cuMemFreeAsync(unsigned long long p, void* stream) { return graph_of(stream) ? breaks_capture() : cuMemFree(p); }
int cuMemcpyAsync(unsigned long long to, unsigned long long from, unsigned long n, void*) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n);
  ++fake.copies;
  return status();
}
int cuMemcpyPeerAsync(unsigned long long to, void* to_context, unsigned long long from, void* from_context,
                      unsigned long n, void*) {
  const Block *a = block_at(to), *b = block_at(from);
  if (!a || !b || a->context != to_context || b->context != from_context) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n);
  ++fake.peer_copies;
  return status();
}
int cuMemsetD8Async(unsigned long long p, unsigned char byte, unsigned long n, void*) {
  return std::memset(reinterpret_cast<void*>(p), byte, n), status();
}
int cuPointerGetAttributes(unsigned n, const int* which, void** values, unsigned long long p) {
  enum { kMemoryType = 2, kIsManaged = 8, kDevice = 9, kDeviceMemory = 2 };
  const Block* block = block_at(p);
  // For an address that it does not know, the driver reports the memory type 0 and the device -2.
  for (unsigned i = 0; i < n; ++i) {
    int& value = *static_cast<int*>(values[i]);
    if (which[i] == kMemoryType) value = block ? kDeviceMemory : 0;
    if (which[i] == kIsManaged) value = 0;
    if (which[i] == kDevice) value = block ? int(reinterpret_cast<long>(block->context) - 0x1000) : -2;
  }
  return 0;
}
int cuStreamCreate(void** stream, unsigned) { return *stream = new char, status_unless_captured(); }
int cuStreamSynchronize(void* stream) { return graph_of(stream) ? breaks_capture() : (++fake.waits, status()); }
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  if (graph_of(stream) != static_cast<Event*>(event)->graph) {
    ++fake.broken_captures;
    return kCaptureIsolation;
  }
  return fake.waited_in = current, status();
}
int cuStreamGetCaptureInfo(void* stream, int* active, unsigned long* id, void** graph, const void**, unsigned long*) {
  *id = graph_of(stream);
  *active = *id != 0;
  *graph = reinterpret_cast<void*>(*id);
  return status();
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  enum { kGlobal = 0, kRelaxed = 2 };
  const int before = relaxed ? kRelaxed : kGlobal;
  relaxed = *mode == kRelaxed;
  *mode = before;
  return status();
}
int cuUserObjectCreate(void** object, void* argument, void (*destroy)(void*), unsigned, unsigned) {
  return *object = new Callback{destroy, argument}, status();
}
int cuUserObjectRelease(void* object, unsigned) {
  auto* callback = static_cast<Callback*>(object);
  callback->call(callback->argument);
  return status();
}
int cuGraphRetainUserObject(void* graph, void* object, unsigned, unsigned) {
  objects[reinterpret_cast<unsigned long>(graph)].push_back(*static_cast<Callback*>(object));
  return status();
}
int cuEventCreate(void** e, unsigned) { return *e = new Event{current, 0}, ++fake.events, status(); }
int cuEventDestroy(void*) { return 0; }
int cuEventRecord(void* event, void* stream) {
  auto* e = static_cast<Event*>(event);
  if (e->context != current) return kInvalidHandle;
  e->graph = graph_of(stream);
  fake.recorded_in = current;
  return status();
}
int cuEventSynchronize(void*) { return status(); }
int cuEventElapsedTime(float* ms, void*, void*) { return *ms = 0.25f, status(); }
int cuModuleLoadData(void** m, const void* cubin) {
  ++fake.modules;
  *m = parse(static_cast<const char*>(cubin));
  return fake.refused_modules-- > 0 ? 209 : status();
}
int cuModuleGetFunction(void** f, void* m, const char* name) {
  auto& module = *static_cast<Module*>(m);
  if (!module.contains(name)) return 500;
  Function& function = module[name];
  function.dynamic_smem = kSmemWithoutAsking - function.static_smem;
  return *f = &function, status();
}
int cuFuncSetAttribute(void* f, int which, int n) {
  enum { kDynamicSmem = 8 };
  if (which != kDynamicSmem) return status();
  auto& function = *static_cast<Function*>(f);
  if (n + function.static_smem > most_smem) return kInvalidValue;
  return function.dynamic_smem = fake.allowed_smem = unsigned(n), status();
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* v, void*, int, unsigned long) { return *v = 2, status(); }
int cuOccupancyMaxActiveClusters(int* v, void*, const void*) { return *v = 15, status(); }
int cuFuncGetAttribute(int* v, int which, void* f) {
  enum { kSharedBytes = 1 };
  return *v = which == kSharedBytes ? int(static_cast<Function*>(f)->static_smem) : 40, status();
}
int cuFuncGetParamInfo(void* f, unsigned long i, unsigned long*, unsigned long* n) {
  auto& parameters = static_cast<Function*>(f)->parameters;
  if (!parameters.contains(int(i))) return kInvalidValue;
  return *n = parameters[int(i)], status();
}
int cuLaunchKernel(void* f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned smem,
                   void*, void**, void**) {
  const unsigned grid[] = {x, y, z}, block[] = {bx, by, bz};
  return launch(*static_cast<Function*>(f), grid, block, smem, 0);
}
int cuLaunchKernelEx(const unsigned* config, void* f, void**, void**) {
  // A CUlaunchAttribute has 72 bytes and begins with its id, which is 2 for a cooperative launch.
  const char* const attributes = read<const char*>(reinterpret_cast<const char*>(config) + 40);
  bool cooperative = false;
  for (unsigned i = 0; i < config[12]; ++i) cooperative |= read<int32_t>(attributes + 72 * i) == 2;
  return launch(*static_cast<Function*>(f), config, config + 3, config[6], int(config[12]), cooperative);
}
int cuTensorMapEncodeTiled(void*) { return status(); }
int cuTensorMapEncodeIm2col(void*) { return status(); }
int cuGetProcAddress_v2(const char* name, void** address, int, unsigned long, void*) {
  *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
  return *address ? 0 : 500;
}
}
