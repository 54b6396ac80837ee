// SPDX-License-Identifier: Apache-2.0
// Records in a text file of the cache folder, which several processes read and change at once. Each line is a record:
//   device <tab> key <tab> value
// The device is its model (Device::model). The key and the value may contain tabs. The records of find() (tuning.h) and
// those of `pyminidnn calibrate` (costs.h) are kept this way.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace minidnn {

class Records {
 public:
  using Key = std::pair<std::string, std::string>;  // a device and a key
  using Record = std::pair<const Key, std::string>;
  // Reads a line. Returns nothing if it is not a valid record.
  using Parse = std::optional<Record>(const std::vector<std::string>& fields);

  // If `file` is empty, records are kept in memory only. A file that is not regular, belongs to another user, or is
  // writable by others is neither read nor written. Lines that are not valid records are ignored.
  Records(std::string file, Parse* parse);

  // Returns the value of a record.
  std::optional<std::string> find(const std::string& device, const std::string& key) const;
  // Returns the records of a device whose keys begin with `prefix`, in the order of their keys.
  std::vector<Record> starting_with(const std::string& device, const std::string& prefix) const;
  bool empty() const;
  // Adds a record, or replaces the one with its key. If the file cannot be written, keeps the record in memory only and
  // returns the reason. If it can, returns an empty text.
  std::string remember(const Record&);

  // Returns all records, as lines of the file in the order of their keys.
  std::string text() const;
  // Adds the records of `text`, which text() has returned here or elsewhere. A record whose key exists already is
  // added only if `replace`. Returns the number of added records. If a line is not a record, or if the file cannot be
  // written, it throws and changes nothing.
  int64_t import_text(const std::string& text, bool replace);
  // Throws ShapeError if a line of `text` is not a record.
  void check_text(const std::string& text) const { lines_of(text); }
  // Deletes all records, and the file. Throws DeviceError if the file cannot be deleted.
  void clear();
  // Returns the reason why records are kept in memory only. Returns an empty text if they are written to the file.
  std::string why_not_kept() const;

  // The number of times that any records of this process changed so far. A plan that was chosen when this number was
  // lower may disagree with the records.
  static uint64_t generation() { return generation_.load(std::memory_order_acquire); }

  // fork() locks the mutex. Otherwise a child process could inherit it locked by a thread that the child lacks.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  using Lines = std::map<Key, std::string>;
  Lines lines_of(const std::string& text) const;  // throws ShapeError if a line is not a record
  // Appends records to the file, or replaces those with the same keys. Returns "", or why the file was not changed.
  std::string write(const Lines&, bool replaces) const;

  inline static std::atomic<uint64_t> generation_ = 0;
  const std::string file_;
  Parse* const parse_;
  std::string refusal_;
  mutable std::mutex mutex_;
  Lines lines_;
};

// Returns the path of a file of records in the cache folder, or an empty text if there is no such folder.
std::string records_file(const std::string& name);

// The fields of a line or a value, which tabs separate.
std::vector<std::string> fields_of(const std::string& text);
// Reads a whole number, such as the revision of an engine. Returns false if the text is something else.
bool read_integer(const std::string& text, int& value);

}  // namespace minidnn
