// SPDX-License-Identifier: Apache-2.0
// Tests the code of cuda/runtime that needs no GPU: hashes, the headers that a kernel includes, cache keys of kernels,
// kernel caches, NVRTC, rules of tensor maps.
//   test_runtime --source-root <repository> [--search-path <site-packages>]
// NVRTC is found in site-packages, or is named by $PYMINIDNN_NVRTC. Without NVRTC, the tests that need it print that
// they are skipped. Kernels are compiled for sm_80, sm_90a and sm_120. The library reads environment variables once, so
// tests that set them start this program again as a child process: `test_runtime child <package folder> <arch>` prints
// the result of cubin().
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>
#include <vector>

#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/error.h"
#include "cuda/runtime/kernel_cache.h"
#include "cuda/runtime/nvrtc.h"
#include "cuda/runtime/sha256.h"
#include "cuda/runtime/tensor_map.h"
#include "tests/cpp/check.h"

namespace fs = std::filesystem;
using namespace minidnn;
using namespace minidnn::cuda;

static void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}
static std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
static std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

static fs::path scratch;  // a temporary folder, removed at the end of the program
static std::string self;  // the path of this program
static std::string found_nvrtc;

static KernelSpec tiny_spec() { return {"cuda/tiny/scale.cu", "tiny::scale<float>", "", {}, 80}; }

// Makes a package folder with one kernel and one header that include each other.
static fs::path make_package(const std::string& name, const std::string& factor = "2") {
  fs::path root = scratch / name;
  write(root / "cuda/tiny/scale.cu",
        "#pragma once\n#include \"cuda/tiny/factor.h\"\n#ifndef __CUDACC_RTC__\n#include <vector>\n#endif\n"
        "namespace tiny {\ntemplate <class T> __global__ void scale(T* x, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) x[i] *= kFactor;\n}\n}\n");
  write(root / "cuda/tiny/factor.h",
        "#pragma once\n  #  include \"cuda/tiny/scale.cu\"\n// #include \"not/this.h\"\n"
        "namespace tiny {\nconstexpr int kFactor = " +
            factor + ";\n}\n");
  return root;
}

static int child(const char* root, const char* arch) {
  set_package_folder(root);
  try {
    auto got = cubin(tiny_spec(), arch);
    std::cout << "origin=" << got->origin << " name=" << got->kernel_name << " sha=" << sha256_hex(got->code) << '\n';
  } catch (const Error& e) {
    std::cout << "error=" << e.what() << '\n';
  }
  std::cout << "folder=" << cache_folder() << '\n';
  return 0;
}

// begin() starts this program as a child process and returns a handle of its output. finish() returns everything that
// the child printed. `env` is the list of arguments for the program env, such as "-u A B=c".
static FILE* begin(const std::string& env, const fs::path& root, const std::string& arch = "sm_80") {
  std::string nvrtc = has(env, "PYMINIDNN_NVRTC=") ? "" : "PYMINIDNN_NVRTC=" + found_nvrtc;
  std::string command = cat("unset PYMINIDNN_CACHE_DIR XDG_CACHE_HOME; env ", env, " PYMINIDNN_LOG=info ", nvrtc, ' ',
                            self, " child ", root.string(), ' ', arch, " 2>&1");
  return popen(command.c_str(), "r");
}
static std::string finish(FILE* stream) {
  std::string text;
  for (int c; (c = std::fgetc(stream)) != EOF;) text += char(c);
  int status = pclose(stream);
  CHECK(status == 0, "a child ended with ", status, ": ", text);
  return text;
}
static std::string run(const std::string& env, const fs::path& root) { return finish(begin(env, root)); }

static void test_sha256() {
  // The messages are examples of FIPS 180-4, and messages whose length is near the limit at which SHA-256's padding
  // needs another block.
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", sha256_hex(""));
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", sha256_hex("abc"));
  // This message has 56 bytes, so that the padding of SHA-256 needs a second block.
  const char* two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  CHECK(sha256_hex(two_blocks) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        sha256_hex(two_blocks));
  std::string million = sha256_hex(std::string(1000000, 'a'));
  CHECK(million == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", million);
  std::string edge = sha256_hex(std::string(64, 'a'));
  CHECK(edge == "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb", edge);
}

static void test_sources() {
  std::string error = error_of([] { sources_of(tiny_spec()); });
  CHECK(has(error, "set_package_folder() has not been called"), error);
  fs::path root = make_package("sources");
  set_package_folder(root);
  Sources s = sources_of(tiny_spec());
  // Files that include each other are included once. An #include in a comment and #include <vector> are not followed.
  CHECK(s.headers.size() == 2, s.headers.size());
  CHECK(s.headers.count("cuda/tiny/factor.h") == 1, "factor.h");
  CHECK(s.program == "#include \"cuda/tiny/scale.cu\"\n", s.program);

  KernelSpec spec = tiny_spec();
  spec.generated = "#include \"cuda/tiny/missing.h\"\n";
  error = error_of([&] { sources_of(spec); });
  CHECK(has(error, "the program of kernel tiny::scale<float> includes \"cuda/tiny/missing.h\""), error);
  CHECK(has(error, root.string()), error);
  write(root / "cuda/tiny/missing.h", "#include \"cuda/tiny/deeper.h\"\n");
  error = error_of([&] { sources_of(spec); });
  CHECK(has(error, "cuda/tiny/missing.h includes \"cuda/tiny/deeper.h\""), error);
}

static void test_key() {
  fs::path root = make_package("key");
  set_package_folder(root);
  const KernelSpec spec = tiny_spec();
  const std::string key = cache_key(spec, "sm_80");
  CHECK(key.size() == 64 && key == cache_key(spec, "sm_80"), key);
  CHECK(key != cache_key(spec, "sm_90a"), "the architecture is in the key");
  KernelSpec other = spec;
  other.kernel = "tiny::scale<double>";
  CHECK(key != cache_key(other, "sm_80"), "the kernel is in the key");
  other = spec;
  other.generated = "//";
  CHECK(key != cache_key(other, "sm_80"), "the generated code is in the key");
  other = spec;
  other.options = {"-lineinfo"};
  CHECK(key != cache_key(other, "sm_80"), "the options are in the key");
  set_package_folder(make_package("elsewhere"));
  CHECK(key == cache_key(spec, "sm_80"), "the place of the sources is not in the key");
  make_package("elsewhere", "3");
  CHECK(key != cache_key(spec, "sm_80"), "an included file is in the key");
  CHECK(identity(spec) != identity(other), identity(other));
}

static void test_arch() {
  auto arch = [](int min_arch, int device) {
    KernelSpec spec = tiny_spec();
    spec.min_arch = min_arch;
    return arch_for(spec, device);
  };
  CHECK(arch(80, 80) == "sm_80", arch(80, 80));
  CHECK(arch(80, 89) == "sm_80", arch(80, 89));
  CHECK(arch(89, 89) == "sm_89", arch(89, 89));
  CHECK(arch(80, 90) == "sm_90a", arch(80, 90));
  CHECK(arch(90, 90) == "sm_90a", arch(90, 90));
  CHECK(arch(80, 121) == "sm_120", arch(80, 121));
  std::string error = error_of([&] { arch(90, 86); });
  CHECK(has(error, "needs compute capability 9.0; this GPU has 8.6"), error);
}

static TiledMap good_tiled() {
  TiledMap t;
  t.address = reinterpret_cast<const void*>(uintptr_t(1) << 30);
  t.dtype = DType::bfloat16;
  t.rank = 2;
  t.dims[0] = 4096;
  t.dims[1] = 8192;
  t.strides[0] = 4096 * 2;
  t.box[0] = 64;
  t.box[1] = 128;
  t.swizzle_bytes = 128;
  return t;
}
// An im2col tensor map of a 3x3 window with padding 1 over an NHWC tensor of shape [2, 56, 56, 64].
static Im2colMap good_im2col() {
  Im2colMap t;
  t.address = reinterpret_cast<const void*>(uintptr_t(1) << 30);
  t.dtype = DType::float16;
  t.rank = 4;
  const uint64_t dims[] = {64, 56, 56, 2};
  for (int i = 0; i < 4; ++i) t.dims[i] = dims[i];
  for (int i = 0; i < 3; ++i) t.strides[i] = (i ? t.strides[i - 1] : 2) * dims[i];
  for (int i = 0; i < 2; ++i) t.lower[i] = t.upper[i] = -1;
  t.channels = 64;
  t.pixels = 128;
  t.swizzle_bytes = 128;
  return t;
}

static void test_tensor_maps() {
  CHECK(why_not(good_tiled()).empty(), why_not(good_tiled()));
  CHECK(why_not(good_im2col()).empty(), why_not(good_im2col()));
  auto tiled = [](auto&& change, const char* expected) {
    TiledMap t = good_tiled();
    change(t);
    CHECK(has(why_not(t), expected), "got '", why_not(t), "', not '", expected, "'");
  };
  tiled([](auto& t) { t.rank = 0; }, "rank must be 1 to 5; got 0");
  tiled([](auto& t) { t.rank = 6; }, "rank must be 1 to 5; got 6");
  tiled([](auto& t) { t.address = nullptr; }, "the address must be a multiple of 16 and not null");
  tiled([](auto& t) { t.address = static_cast<const char*>(t.address) + 8; }, "got 0x40000008");
  tiled([](auto& t) { t.dims[1] = 0; }, "dims[1] must be 1 to 2^31; got 0");
  tiled([](auto& t) { t.dims[0] = 1ull << 32; }, "dims[0] must be 1 to 2^31; got 4294967296");
  tiled([](auto& t) { t.strides[0] = 8200; }, "strides[0] must be a multiple of 16 bytes below 2^40; got 8200");
  tiled([](auto& t) { t.strides[0] = 1ull << 40; }, "got 1099511627776");
  tiled([](auto& t) { t.box[1] = 257; }, "box[1] must be 1 to 256; got 257");
  tiled([](auto& t) { t.box[0] = 0; }, "box[0] must be 1 to 256; got 0");
  tiled(
      [](auto& t) {
        t.box[0] = 264;
        t.swizzle_bytes = 0;
      },
      "box[0] must be 1 to 256; got 264");
  tiled([](auto& t) { t.box[0] = 60; }, "box[0] must span a multiple of 16 bytes; 60 bfloat16 are 120");
  tiled([](auto& t) { t.box[0] = 128; }, "box[0] must fit the swizzle of 128 bytes; 128 bfloat16 are 256");
  tiled([](auto& t) { t.swizzle_bytes = 64; }, "must fit the swizzle of 64 bytes; 64 bfloat16 are 128");
  tiled([](auto& t) { t.swizzle_bytes = 16; }, "swizzle_bytes must be 0, 32, 64 or 128; got 16");
  tiled([](auto& t) { t.l2_promotion_bytes = 32; }, "l2_promotion_bytes must be 0, 64, 128 or 256; got 32");
  tiled([](auto& t) { t.element_strides[1] = 9; }, "element_strides[1] must be 1 to 8; got 9");
  tiled([](auto& t) { t.tf32 = true; }, "tf32 rounds float32 only; the dtype is bfloat16");
  tiled(
      [](auto& t) {
        t.dtype = DType::int8;
        t.nan_fill = true;
      },
      "nan_fill needs a floating dtype; got int8");
  TiledMap one = good_tiled();
  one.rank = 1;
  one.strides[0] = 1;  // a tensor of one dimension has no stride in the map, so this value is not checked
  CHECK(why_not(one).empty(), why_not(one));
  TiledMap unswizzled = good_tiled();
  unswizzled.swizzle_bytes = 0;
  unswizzled.box[0] = 256;
  CHECK(why_not(unswizzled).empty(), why_not(unswizzled));

  auto im2col = [](auto&& change, const char* expected) {
    Im2colMap t = good_im2col();
    change(t);
    CHECK(has(why_not(t), expected), "got '", why_not(t), "', not '", expected, "'");
  };
  im2col([](auto& t) { t.rank = 2; }, "rank must be 3 to 5; got 2");
  im2col([](auto& t) { t.lower[1] = -129; }, "lower[1] must be -128 to 127 at rank 4; got -129");
  im2col([](auto& t) { t.upper[0] = 128; }, "upper[0] must be -128 to 127 at rank 4; got 128");
  im2col([](auto& t) { t.upper[0] = -57; }, "dims[1] = 56 with lower[0] = -1 and upper[0] = -57 has no position");
  im2col(
      [](auto& t) {
        t.rank = 5;
        t.dims[4] = 1;
        t.strides[3] = 16;
        t.lower[2] = -17;
      },
      "lower[2] must be -16 to 15 at rank 5; got -17");
  im2col(
      [](auto& t) {
        t.channels = 264;
        t.swizzle_bytes = 0;
      },
      "channels must be 1 to 256; got 264");
  im2col([](auto& t) { t.channels = 128; }, "channels must fit the swizzle of 128 bytes; 128 float16 are 256");
  im2col([](auto& t) { t.channels = 4; }, "channels must span a multiple of 16 bytes; 4 float16 are 8");
  im2col([](auto& t) { t.pixels = 1025; }, "pixels must be 1 to 1024; got 1025");
  im2col([](auto& t) { t.strides[0] = 6; }, "strides[0] must be a multiple of 16 bytes");
  Im2colMap wide = good_im2col();
  wide.rank = 3;
  wide.lower[0] = -129;
  wide.upper[0] = 300;  // with one spatial dimension, a corner of the im2col box may be any integer of 16 bits
  CHECK(why_not(wide).empty(), why_not(wide));
}

static void test_without_nvrtc() {
  fs::path root = make_package("without");
  std::string env = cat("PYMINIDNN_CACHE_DIR=", (scratch / "without_cache").string());
  std::string text = run(env + " PYMINIDNN_NVRTC=none", root);
  CHECK(has(text, "error=kernel tiny::scale<float> for sm_80 is in no cache and cannot be compiled"), text);
  CHECK(has(text, "PYMINIDNN_NVRTC is 'none'; to compile kernels: pip install \"pyminidnn[cuda]\"\n"), text);
  text = run(env + " PYMINIDNN_NVRTC=/nowhere/libnvrtc.so", root);
  CHECK(has(text, "PYMINIDNN_NVRTC is '/nowhere/libnvrtc.so', which fails"), text);
}

static void test_untrusted_folders() {
  fs::path root = make_package("untrusted"), folder = scratch / "untrusted_cache";
  fs::create_directories(folder);
  chmod(folder.c_str(), 0777);
  auto text_of = [&](const std::string& env) { return run(env + " PYMINIDNN_NVRTC=none", root); };
  std::string text = text_of("PYMINIDNN_CACHE_DIR=" + folder.string());
  CHECK(has(text, "kernels are kept in memory only") && has(text, "other users may write to it"), text);
  CHECK(has(text, "\nfolder=\n"), text);
  if (geteuid() == 0) {  // only root may give a folder to another user
    chmod(folder.c_str(), 0700);
    CHECK(chown(folder.c_str(), 12345, 12345) == 0, "chown");
    text = text_of("PYMINIDNN_CACHE_DIR=" + folder.string());
    CHECK(has(text, "it belongs to user 12345; the process runs as user 0"), text);
  }
  text = text_of("HOME=/dev/null");
  CHECK(has(text, "/dev/null/.cache/pyminidnn: Not a directory") && has(text, "\nfolder=\n"), text);
  text = text_of("-u HOME");
  CHECK(has(text, "\nfolder=\n"), text);
  fs::path home = scratch / "home";
  fs::create_directories(home);
  text = text_of(cat("HOME=", home.string()));
  CHECK(has(text, cat("\nfolder=", (home / ".cache/pyminidnn").string(), "\n")), text);
  struct stat info{};
  stat((home / ".cache/pyminidnn").c_str(), &info);
  CHECK((info.st_mode & 0777) == 0700, info.st_mode & 0777);
  text = text_of(cat("XDG_CACHE_HOME=", (home / "xdg").string()));
  CHECK(has(text, cat("\nfolder=", (home / "xdg/pyminidnn").string(), "\n")), text);
}

static void test_compile(const std::string& source_root) {
  std::string name;
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    std::string code = compile_cubin("tiny.cu", "template <class T> __global__ void k(T* x) { *x = T(1); }", {},
                                     {"--std=c++20", cat("--gpu-architecture=", arch)}, "k<float>", name);
    CHECK(code.starts_with("\x7f"
                           "ELF") &&
              name == "_Z1kIfEvPT_",
          arch, ": ", code.size(), " bytes, name ", name);
  }
  std::string error = error_of([&] {
    compile_cubin("broken.cu", "#include \"h.h\"\n__global__ void k() { undeclared(); }", {{"h.h", "\n"}},
                  {"--gpu-architecture=sm_80"}, "k", name);
  });
  CHECK(has(error, "compiling k of broken.cu with --gpu-architecture=sm_80"), error);
  CHECK(has(error, "NVRTC_ERROR_COMPILATION"), error);
  CHECK(has(error, "broken.cu(2): error: identifier \"undeclared\" is undefined"), error);
  error = error_of([&] { compile_cubin("k.cu", "", {}, {"--gpu-architecture=sm_1"}, "k", name); });
  CHECK(has(error, "sm_1"), error);
  error = error_of(
      [&] { compile_cubin("k.cu", "__global__ void k() {}", {}, {"--gpu-architecture=sm_80"}, "m<float>", name); });
  CHECK(has(error, "m<float>"), error);

  // A kernel that includes a header of the library.
  set_package_folder(source_root);
  KernelSpec spec{"cpp/core/host_device/half.h",
                  "convert<minidnn::bfloat16>",
                  "template <class T> __global__ void convert(T* x, "
                  "const float* y) { x[threadIdx.x] = T(y[threadIdx.x]); }\n",
                  {},
                  80};
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    auto made = recompile(spec, arch);
    CHECK(made->origin == "nvrtc" && made->code.size() > 1000, arch, ' ', made->origin, ' ', made->code.size());
  }
}

static void test_threads() {
  set_package_folder(make_package("threads"));
  KernelSpec spec = tiny_spec(), broken = tiny_spec();
  spec.kernel = "tiny::scale<int>";  // no other test of this process uses this kernel
  broken.kernel = "tiny::scale<nothing>";
  CacheStats before = cache_stats();
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<const Cubin>> got(8);
  std::vector<std::string> errors(8);
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] {
      errors[i] = error_of([&] { cubin(broken, "sm_80"); });
      got[i] = cubin(spec, "sm_80");
    });
  for (auto& t : threads) t.join();
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == got[0], "thread ", i, " has a cubin of its own");
    CHECK(has(errors[i], "nothing"), errors[i]);
  }
  CacheStats now = cache_stats();
  CHECK(now.nvrtc - before.nvrtc == 1, now.nvrtc - before.nvrtc, " compiles");
  CHECK(now.compile_seconds > before.compile_seconds, now.compile_seconds);
}

static void test_disk() {
  fs::path root = make_package("disk"), folder = scratch / "disk_cache";
  std::string env = "PYMINIDNN_CACHE_DIR=" + folder.string();
  std::string first = run(env, root), second = run(env, root);
  CHECK(has(first, "origin=nvrtc"), first);
  CHECK(has(second, "origin=disk"), second);
  auto code_of = [](const std::string& text) { return text.substr(text.find(" name=")); };
  CHECK(code_of(first) == code_of(second), first, second);
  auto files = files_in(folder);
  CHECK(files.size() == 1, files.size());
  if (files.size() != 1) return;
  const fs::path entry = files[0];
  const std::string whole = read(entry);

  auto damaged = [&](const char* how, const std::string& bytes) {
    write(entry, bytes);
    std::string text = run(env, root);
    CHECK(has(text, "origin=nvrtc") && has(text, "is damaged and will be made again"), how, ": ", text);
    CHECK(has(text, " name=_ZN4tiny5scaleIfEEvPT_i "), how, ": ", text);
    CHECK(has(run(env, root), "origin=disk"), how, ": was not replaced");
  };
  auto flipped = [&](size_t at) {
    std::string bytes = whole;
    bytes[at] = char(bytes[at] ^ 1);
    return bytes;
  };
  damaged("empty", "");
  damaged("cut in the head", whole.substr(0, 30));
  damaged("cut in the code", whole.substr(0, whole.size() - 100));
  damaged("longer", whole + "x");
  damaged("foreign magic", "someone else's " + whole);
  damaged("another format", flipped(std::string("pyminidnn cubin ").size()));
  damaged("another key", flipped(whole.find('\n') + 1));
  damaged("another symbol", flipped(whole.find("_Z") + 3));
  damaged("a byte of code", flipped(whole.size() - 200));

  // A cache file is ignored if it is not a regular file, or if another user may have written it. The kernel is then
  // compiled again.
  const fs::path arch_folder = entry.parent_path();
  auto passed_over = [&](const char* how, const std::string& why) {
    std::string text = run(env, root);
    CHECK(has(text, "origin=nvrtc") && has(text, why), how, ": ", text);
  };
  fs::remove(entry);
  fs::create_directories(entry / "inside");
  passed_over("a folder of that name", "cannot be written: Is a directory");
  fs::remove_all(entry);
  CHECK(mkfifo(entry.c_str(), 0600) == 0, "mkfifo");
  passed_over("a FIFO of that name", "");
  CHECK(has(run(env, root), "origin=disk"), "the FIFO was not replaced");
  chmod(entry.c_str(), 0622);
  passed_over("a file that others may write to", entry.string() + " is not used: other users may write to it");
  CHECK(has(run(env, root), "origin=disk"), "the file was not replaced");
  chmod(arch_folder.c_str(), 0777);
  passed_over("a folder that others may write to", arch_folder.string() + ": other users may write to it");
  chmod(arch_folder.c_str(), 0700);
  CHECK(has(run(env, root), "origin=disk"), "the folder is as it was");
  if (geteuid() == 0) {  // only root may give a file to another user
    CHECK(chown(entry.c_str(), 12345, 12345) == 0, "chown");
    passed_over("a file of another user", "is not used: it belongs to user 12345; the process runs as user 0");
    CHECK(chown(arch_folder.c_str(), 12345, 12345) == 0, "chown");
    passed_over("a folder of another user",
                arch_folder.string() + ": it belongs to user 12345; the process runs as user 0");
    CHECK(chown(arch_folder.c_str(), 0, 0) == 0, "chown");
  }

  make_package("disk", "5");
  CHECK(has(run(env, root), "origin=nvrtc"), "an included file changed");
  make_package("disk");
  CHECK(has(run(env, root), "origin=disk"), "the old entry serves when the file is as it was");
}

static void test_two_processes() {
  fs::path root = make_package("race"), folder = scratch / "race_cache";
  std::string env = "PYMINIDNN_CACHE_DIR=" + folder.string();
  FILE* children[] = {begin(env, root), begin(env, root), begin(env, root)};
  for (FILE* stream : children) {
    std::string text = finish(stream);
    CHECK(has(text, "origin="), text);
  }
  CHECK(files_in(folder).size() == 1, files_in(folder).size(), " files: an entry and what was left behind");
  CHECK(has(run(env, root), "origin=disk"), "after the race");
}

static void test_packaged() {
  fs::path root = make_package("packaged");
  set_package_folder(root);
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) compile_to(tiny_spec(), arch, root / "cubins");
  fs::path entry = root / "cubins/sm_90a" / (cache_key(tiny_spec(), "sm_90a") + ".cubin");
  CHECK(fs::exists(entry), entry.string());
  std::string env = cat("PYMINIDNN_CACHE_DIR=", (scratch / "packaged_cache").string());
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    std::string text = finish(begin(env + " PYMINIDNN_NVRTC=none", root, arch));
    CHECK(has(text, "origin=packaged"), arch, ": ", text);
  }
  make_package("packaged", "7");
  CHECK(has(run(env + " PYMINIDNN_NVRTC=none", root), "error="), "a cubin of other sources must not serve");
  std::string error = error_of([&] { compile_to(tiny_spec(), "sm_80", "/dev/null/cubins"); });
  CHECK(has(error, "/dev/null"), error);
}

static void test_trim() {
  fs::path root = make_package("trim"), folder = scratch / "trim_cache";
  std::string env = "PYMINIDNN_CACHE_DIR=" + folder.string();
  fs::path large = folder / "sm_80-nvrtc1.0/old.cubin", foreign = folder / "sm_80-nvrtc1.0/thesis.txt";
  write(large, "");
  write(foreign, "not ours");
  chmod(folder.c_str(), 0700);
  fs::resize_file(large, kCacheBytes);  // a sparse file: it takes no space on the disk
  fs::last_write_time(large, fs::file_time_type::clock::now() - std::chrono::hours(1));
  CHECK(has(run(env, root), "origin=nvrtc"), "a write trims");
  CHECK(!fs::exists(large) && fs::exists(foreign), files_in(folder).size(), " files left");
  CHECK(has(run(env, root), "origin=disk"), "the new entry stays");
}

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "child") return child(argv[2], argv[3]);
  std::string source_root = ".";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--source-root") source_root = argv[i + 1];
    if (std::string(argv[i]) == "--search-path") set_search_path({argv[i + 1]});
  }
  char pattern[] = "/tmp/minidnn_runtime_XXXXXX";
  scratch = mkdtemp(pattern);
  self = fs::canonical("/proc/self/exe");
  setenv("PYMINIDNN_CACHE_DIR", (scratch / "own_cache").c_str(), 1);

  CHECK(device_count() >= 0 && (device_count() > 0) == why_unavailable().empty(), why_unavailable());
  test_sha256();
  test_sources();
  test_key();
  test_arch();
  test_tensor_maps();
  test_without_nvrtc();
  test_untrusted_folders();
  if (std::string why = why_no_nvrtc(); why.empty()) {
    found_nvrtc = nvrtc_info().path;
    std::cout << "NVRTC " << nvrtc_info().major << '.' << nvrtc_info().minor << " at " << found_nvrtc << std::endl;
    test_compile(source_root);
    test_threads();
    test_disk();
    test_two_processes();
    test_packaged();
    test_trim();
  } else {
    std::cout << "skipped, compile and disk cache: " << why << std::endl;
  }
  fs::remove_all(scratch);
  std::cout << (failures ? cat(failures, " checks failed") : "all checks passed") << std::endl;
  return failures != 0;
}
