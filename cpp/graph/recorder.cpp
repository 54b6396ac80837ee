// SPDX-License-Identifier: Apache-2.0
// Implements recorder.h: stand-ins, inputs and outputs, and the nodes that recorded calls become.
#include "cpp/graph/recorder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cpp/core/layout.h"
#include "cpp/graph/graph_file.h"
#include "cpp/transform/transform_math.h"

namespace minidnn::graph {
namespace {

// Stand-ins have addresses in this range. No process can map them: they are not canonical on x86-64, and belong to the
// kernel on aarch64. Read as a double, such an address is a NaN, so no number in Args is taken for a stand-in.
constexpr uintptr_t kFirstAddress = 0x7ffc'0000'0000'0000, kAddressesEnd = 0x7ffe'0000'0000'0000;
constexpr uintptr_t kGap = uintptr_t(1) << 32;  // the distance from the end of a stand-in to the next one
// Dynamic number k is recorded as kFirstDynamic + (k << 32) + kDynamicZero. Adding an int of less than 31 bits to it
// keeps k.
constexpr uint64_t kFirstDynamic = 0x7ffe'0000'0000'0000, kDynamicZero = uint64_t(1) << 31;
constexpr int kMostDynamic = 8;

bool is_reserved(uint64_t word) { return word >= kFirstAddress && word < kAddressesEnd; }
bool is_dynamic(uint64_t word) {
  return word >= kFirstDynamic && word < kFirstDynamic + (uint64_t(kMostDynamic) << 32);
}

const void* this_thread() {
  static thread_local char here;
  return &here;
}

uint64_t next_id() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

int64_t bytes_of(const TensorDesc& d) {
  const Extent e = extent(d);
  return d.numel() == 0 ? 0 : (e.end - e.begin) * int64_t(itemsize(d.dtype));
}
// The distance in bytes from the first byte of a tensor in memory to its element (0, ..., 0).
int64_t first_element(const TensorDesc& d) {
  return d.numel() == 0 ? 0 : -extent(d).begin * int64_t(itemsize(d.dtype));
}

}  // namespace

struct Recorder::Standing final : StandIn {
  uint64_t recorder = 0;
  std::string what;  // such as "%3 (matmul y, line 12 of model.py)"
  void used_on(Stream) override {
    if (CallRecorder::current()) return;  // note() has refused stand-ins of other recorders
    throw DeviceError(cat(what, " belongs to a recording that is not active on this thread; it has no values"));
  }
  std::string refusal(const char* operation) const override {
    return cat(operation, ": ", what,
               " is recorded, not computed; make it an output of the graph, or compute it outside of the recording");
  }
};

// Reads the ports of one call.
class Recorder::PortReader final : public Ports {
 public:
  PortReader(const Recorder& recorder, Node& node, const void* args)
      : recorder_(recorder), node_(node), args_(static_cast<const char*>(args)), named_(node.args.size(), false) {}
  void number(const char*, double& slot, double) override { named_[index_of(&slot)] = true; }
  void bits(uint64_t& slot, uint64_t) override { named_[index_of(&slot)] = true; }
  void seed(const char*, uint64_t& slot) override {
    const size_t word = index_of(&slot);
    named_[word] = true;
    if (!is_dynamic(slot)) return;
    const uint64_t code = slot - kFirstDynamic;
    node_.dynamic.push_back({int64_t(word), int(code >> 32), int64_t(code & 0xffffffff) - int64_t(kDynamicZero)});
  }
  // Finds stand-ins and dynamic numbers that the family's ports() did not name.
  void check_others(const std::vector<uint64_t>& problem, const std::vector<uint64_t>& args) const {
    for (size_t i = 0; i < args.size(); ++i)
      MINIDNN_CHECK(Error, named_[i] || (!is_reserved(args[i]) && !is_dynamic(args[i])), node_.kind->family, ": word ",
                    i, " of Args is recorded, and ports() does not name it");
    for (uint64_t word : problem)
      MINIDNN_CHECK(ShapeError, !is_dynamic(word), node_.kind->family,
                    ": a dynamic number was used as a size or an attribute; it may only be a seed or an offset");
  }

 private:
  size_t index_of(const void* slot) const { return size_t(static_cast<const char*>(slot) - args_) / 8; }
  void tensor(Access access, const char* name, const TensorDesc& desc, void*& slot) override {
    const size_t word = index_of(&slot);
    named_[word] = true;
    if (!slot) return;  // an optional tensor that the caller did not pass
    const auto address = reinterpret_cast<uintptr_t>(slot);
    const int buffer = recorder_.buffer_at(address, *node_.kind);
    const auto offset = int64_t(address - recorder_.graph_->buffers[size_t(buffer)].base);
    node_.ports.push_back(
        {name, {buffer, offset, desc}, int64_t(word), access != Access::write, access != Access::read});
  }

  const Recorder& recorder_;
  Node& node_;
  const char* const args_;
  std::vector<bool> named_;
};

Recorder::Recorder(const HandlePtr& handle, Place place, Where where, bool rounding_each)
    : handle_(handle_for(handle, place, "record", "device").shared_from_this()),
      where_(std::move(where)),
      id_(next_id()),
      next_(kFirstAddress) {
  graph_->place = place;
  graph_->rounding_each = rounding_each;
}
Recorder::~Recorder() {
  if (entered_ && active == this) active = nullptr;
}

void Recorder::enter() {
  check_open();
  MINIDNN_CHECK(DeviceError, !active, "record: a recording is active on this thread already; recordings do not nest");
  MINIDNN_CHECK(DeviceError, !entered_, "record: this recording has been entered already");
  active = this;
  entered_ = true;
  thread_ = this_thread();
}
void Recorder::leave() {
  MINIDNN_CHECK(DeviceError, thread_ == this_thread(), "record: a recording ends on the thread on which it began");
  if (active == this) active = nullptr;
  entered_ = false;
}
void Recorder::check_open() const {
  MINIDNN_CHECK(DeviceError, graph_, "record: the recording has ended; record again");
}

int Recorder::add_buffer(Buffer b, size_t residue) {
  const int index = int(graph_->buffers.size());
  if (b.kind != Buffer::Kind::constant) {
    b.base = next_ + residue;
    MINIDNN_CHECK(OutOfMemory, b.base < kAddressesEnd && b.bytes < kAddressesEnd - b.base,
                  "record: the tensors of the recording exceed the range of reserved addresses");
    next_ = (b.base + b.bytes + 15) / 16 * 16 + kGap;
    if (b.name.empty()) {
      const auto named = std::ranges::count(graph_->buffers, Buffer::Kind::temporary, &Buffer::kind);
      b.name = cat("%", named);
    }
    stand_ins_[b.base] = index;
    auto storage = std::make_shared<Standing>();
    storage->data = reinterpret_cast<void*>(b.base);
    storage->bytes = b.bytes;
    storage->place = graph_->place;
    storage->read_only = b.read_only;
    storage->recorder = id_;
    storage->what = cat(b.name, " (", b.made_by, ")");
    standing_[index] = std::move(storage);
  } else constants_[b.base] = index;
  graph_->buffers.push_back(std::move(b));
  return index;
}

Tensor Recorder::stand(const TensorDesc& desc, int buffer, int64_t offset) {
  const std::shared_ptr<Storage>& storage = standing_.at(buffer);
  return {desc, static_cast<char*>(storage->data) + offset, storage};
}

Tensor Recorder::stand_in(const TensorDesc& desc, Place place, const char* call, const char* label) {
  check_open();
  MINIDNN_CHECK(DeviceError, place == graph_->place, call, ": the recording is for ", name(graph_->place), ", ", label,
                " is on ", name(place));
  Buffer b;
  b.bytes = size_t(bytes_of(desc));
  const std::string where = where_ ? where_() : "";
  b.made_by = cat(call, " ", label, where.empty() ? "" : ", ", where);
  return stand(desc, add_buffer(std::move(b)), first_element(desc));
}

void Recorder::note(const Tensor& t) {
  if (auto* recorded = dynamic_cast<const Standing*>(t.storage.get())) {
    if (recorded->recorder != id_) throw DeviceError(cat(recorded->what, " belongs to another recording"));
    return;
  }
  if (!t.storage->bytes) return;
  const auto base = reinterpret_cast<uintptr_t>(t.storage->data);
  const auto offset = int64_t(reinterpret_cast<uintptr_t>(t.data) - base);
  if (auto it = constants_.find(base); it != constants_.end()) {
    Buffer& known = graph_->buffers[size_t(it->second)];
    if (known.bytes >= t.storage->bytes) return;
    known.bytes = t.storage->bytes;  // a larger view of the same memory
    known.constant = t.storage;
    known.tensor = {it->second, offset, t.desc};
    return;
  }
  Buffer b;
  b.kind = Buffer::Kind::constant;
  b.name = cat("c", constants_.size());
  b.made_by = "a tensor made before the recording";
  b.bytes = t.storage->bytes;
  b.base = base;
  b.constant = t.storage;
  b.tensor = {int(graph_->buffers.size()), offset, t.desc};
  b.read_only = t.storage->read_only;
  add_buffer(std::move(b));
}

int Recorder::buffer_at(uintptr_t address, const NodeKind& kind) const {
  const auto& all = is_reserved(address) ? stand_ins_ : constants_;
  auto it = all.upper_bound(address);
  while (it != all.begin()) {
    --it;
    const Buffer& b = graph_->buffers[size_t(it->second)];
    if (address <= b.base + b.bytes) return it->second;
    if (is_reserved(address)) break;
  }
  throw Error(cat(kind.family, ": a tensor of the call was not noted by the recorder; this is a fault of pyminidnn"));
}

void Recorder::add(Handle& h, const NodeKind& kind, const void* problem, const void* args, const std::string& algo) {
  check_open();
  MINIDNN_CHECK(DeviceError, h.place() == graph_->place && h.stream() == handle_->stream(), kind.family,
                ": a recording has one device and one stream; the handle of this call, for ", name(h.place()),
                ", has another one");
  Node node;
  if (&h != handle_.get()) node.handle = h.shared_from_this();
  node.kind = &kind;
  node.problem.resize(kind.problem_bytes / 8);
  node.args.resize(kind.args_bytes / 8);
  std::memcpy(node.problem.data(), problem, kind.problem_bytes);
  std::memcpy(node.args.data(), args, kind.args_bytes);
  node.algo = algo;
  if (where_) node.where = where_();
  PortReader reader(*this, node, node.args.data());
  kind.ports(problem, node.args.data(), reader);
  reader.check_others(node.problem, node.args);
  const int index = int(graph_->nodes.size());
  for (const Port& p : node.ports) {
    const Buffer& b = graph_->buffers[size_t(p.view.buffer)];
    MINIDNN_CHECK(ShapeError, !p.reads || b.kind != Buffer::Kind::temporary || b.written(), kind.family, ": reads ",
                  p.name, " ", b.name, " (", b.made_by, "), which no recorded call has written");
  }
  for (const Port& p : node.ports) graph_->buffers[size_t(p.view.buffer)].used_by(index, p.writes);
  graph_->nodes.push_back(std::move(node));
}

int Recorder::add_input_buffer(const std::string& name, const Tensor* sample, size_t bytes, size_t residue) {
  Buffer b;
  b.kind = Buffer::Kind::input;
  b.name = name;
  b.made_by = "an input of the recording";
  b.bytes = bytes;
  b.read_only = sample && sample->storage->read_only;
  return add_buffer(std::move(b), residue);
}

Tensor Recorder::input(const std::string& name, const TensorDesc& desc) {
  check_open();
  for (const Named& n : graph_->inputs)
    MINIDNN_CHECK(ShapeError, n.name != name, "input: the graph has an input '", name, "' already");
  const int buffer = add_input_buffer(name, nullptr, size_t(bytes_of(desc)), 0);
  graph_->inputs.push_back({name, {buffer, first_element(desc), desc}});
  return stand(desc, buffer, first_element(desc));
}

std::vector<Tensor> Recorder::inputs_like(const std::vector<std::string>& names, const std::vector<Tensor>& samples) {
  check_open();
  struct Range {
    uintptr_t begin, end;
    size_t first;  // the index of the first sample in this range
    int buffer = -1;
  };
  auto begin_of = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data) - uintptr_t(first_element(t.desc));
  };
  std::vector<Range> ranges;  // the bytes of all samples; overlapping ones are joined
  for (size_t i = 0; i < samples.size(); ++i) {
    Range r{begin_of(samples[i]), 0, i};
    r.end = r.begin + uintptr_t(bytes_of(samples[i].desc));
    for (size_t k = 0; k < ranges.size();) {
      if (r.begin < ranges[k].end && ranges[k].begin < r.end) {
        r = {std::min(r.begin, ranges[k].begin), std::max(r.end, ranges[k].end), std::min(r.first, ranges[k].first)};
        ranges.erase(ranges.begin() + std::ptrdiff_t(k));
        k = 0;
      } else ++k;
    }
    ranges.push_back(r);
  }
  std::vector<Tensor> result;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Tensor& t = samples[i];
    MINIDNN_CHECK(DeviceError, t.place() == graph_->place, "record: the recording is for ", name(graph_->place),
                  ", input '", names[i], "' is on ", name(t.place()));
    const uintptr_t begin = begin_of(t);
    Range* range = nullptr;
    if (bytes_of(t.desc))
      range = &*std::ranges::find_if(ranges, [&](const Range& r) { return r.begin <= begin && begin < r.end; });
    int buffer = range ? range->buffer : -1;
    if (buffer < 0) {
      buffer = range ? add_input_buffer(names[i], &t, range->end - range->begin, range->begin % 16)
                     : add_input_buffer(names[i], &t, 0, 0);
      if (range) range->buffer = buffer;
    }
    const int64_t offset = (range ? int64_t(begin - range->begin) : 0) + first_element(t.desc);
    graph_->inputs.push_back({names[i], {buffer, offset, t.desc}});
    result.push_back(stand(t.desc, buffer, offset));
  }
  return result;
}

void Recorder::output(const std::string& label, const Tensor& t) {
  check_open();
  for (const Named& n : graph_->outputs)
    MINIDNN_CHECK(ShapeError, n.name != label, "output: the graph has an output '", label, "' already");
  note(t);
  MINIDNN_CHECK(DeviceError, t.place() == graph_->place, "output: the recording is for ", name(graph_->place), ", '",
                label, "' is on ", name(t.place()));
  const auto base = reinterpret_cast<uintptr_t>(t.storage->data);
  const auto& all = is_stand_in(t) ? stand_ins_ : constants_;
  const auto found = all.find(base);
  MINIDNN_CHECK(ShapeError, found != all.end(), "output: '", label,
                "' has no elements and was made before the recording");
  Buffer& b = graph_->buffers[size_t(found->second)];
  MINIDNN_CHECK(ShapeError, b.kind != Buffer::Kind::temporary || b.written() || b.bytes == 0, "output: '", label,
                "' is ", b.name, " (", b.made_by, "), which no recorded call has written");
  if (b.kind == Buffer::Kind::temporary && !b.is_output) b.name = label;
  b.is_output = b.kind == Buffer::Kind::temporary;
  graph_->outputs.push_back({label, {found->second, int64_t(reinterpret_cast<uintptr_t>(t.data) - base), t.desc}});
}

Tensor Recorder::buffer(Buffer::Kind kind, const std::string& label, size_t bytes, size_t residue, bool read_only) {
  check_open();
  Buffer b;
  b.kind = kind;
  b.name = label;
  b.made_by = "of a saved graph";
  b.bytes = bytes;
  b.read_only = read_only;
  return storage_of(stand({}, add_buffer(std::move(b), residue), 0));
}

void Recorder::rename(const Tensor& t, const std::string& label) { buffer_of(t).name = label; }

void Recorder::input(const std::string& name, const Tensor& view) {
  const Buffer& b = buffer_of(view);
  MINIDNN_CHECK(ShapeError, b.kind == Buffer::Kind::input, "input: '", name,
                "' does not lie in the memory of an input");
  graph_->inputs.push_back(
      {name, {buffer_number(view), int64_t(reinterpret_cast<uintptr_t>(view.data) - b.base), view.desc}});
}

void Recorder::set_numbers(const std::vector<uint64_t>& args, const std::vector<DynamicWord>& dynamic) {
  check_open();
  Node& node = graph_->nodes.back();
  MINIDNN_CHECK(ShapeError, args.size() == node.args.size(), node.kind->family, ": args must have ", node.args.size(),
                " words; got ", args.size());
  const std::vector<NumberWord> numbers = number_words(node);
  for (const NumberWord& n : numbers) node.args[n.word] = args[n.word];
  for (const DynamicWord& d : dynamic) {
    const bool fits =
        0 <= d.number && size_t(d.number) < graph_->dynamic.size() && -(1ll << 31) < d.plus && d.plus < 1ll << 31;
    const bool is_seed =
        std::ranges::any_of(numbers, [&](const NumberWord& n) { return n.is_seed && int64_t(n.word) == d.word; });
    MINIDNN_CHECK(ShapeError, fits && is_seed, node.kind->family, ": word ", d.word,
                  " of args cannot be dynamic number ", d.number, " plus ", d.plus);
  }
  node.dynamic = dynamic;
}

void Recorder::rewritten(const std::string& rewrites) {
  check_open();
  graph_->nodes.back().rewrites = rewrites;
}

Buffer& Recorder::buffer_of(const Tensor& t) {
  check_open();
  note(t);
  const auto& all = is_stand_in(t) ? stand_ins_ : constants_;
  const auto found = all.find(reinterpret_cast<uintptr_t>(t.storage->data));
  MINIDNN_CHECK(ShapeError, found != all.end(), "record: a tensor without memory is no part of a recording");
  return graph_->buffers[size_t(found->second)];
}

int64_t Recorder::dynamic(const std::string& name) {
  check_open();
  const size_t k = graph_->dynamic.size();
  MINIDNN_CHECK(ShapeError, k < kMostDynamic, "record: at most ", kMostDynamic, " dynamic numbers are supported");
  graph_->dynamic.push_back(name);
  return int64_t(kFirstDynamic + (uint64_t(k) << 32) + kDynamicZero);
}

void Recorder::number(const Tensor& t, double value) {
  note(t);
  with_floating(t.desc.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    value = double(Accumulator<T>(cast<T>(value)));
  });
  graph_->buffers[size_t(constants_.at(reinterpret_cast<uintptr_t>(t.storage->data)))].number = value;
}

void note_number(const Tensor& t, double value) {
  if (auto* recorder = dynamic_cast<Recorder*>(TensorRecorder::current())) recorder->number(t, value);
}

// Throws ShapeError unless the memory of inputs has no byte that no input reaches: a run has no other memory of them.
void Recorder::check_inputs() const {
  std::vector<View> views;
  for (const Named& n : graph_->inputs)
    if (n.view.desc.numel()) views.push_back(n.view);
  std::ranges::sort(views, {}, &View::begin);
  std::vector<int64_t> reached(graph_->buffers.size(), 0);
  for (const View& v : views) {
    int64_t& end = reached[size_t(v.buffer)];
    if (v.begin() <= end) end = std::max(end, v.end());
  }
  for (size_t i = 0; i < reached.size(); ++i) {
    const Buffer& b = graph_->buffers[i];
    MINIDNN_CHECK(ShapeError, b.kind != Buffer::Kind::input || reached[i] == int64_t(b.bytes), "input: '", b.name,
                  "' has ", b.bytes, " bytes, of which the inputs reach ", reached[i]);
  }
}

std::shared_ptr<const Graph> Recorder::finish(bool rewrites) {
  check_open();
  if (entered_) leave();
  check_inputs();
  graph_->finish(rewrites);
  std::shared_ptr<const Graph> result = std::move(graph_);
  graph_ = nullptr;
  return result;
}

}  // namespace minidnn::graph
