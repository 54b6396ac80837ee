// SPDX-License-Identifier: Apache-2.0
// NumPy writes a floating number with the fewest digits that identify it, rounded to the precision, or with more digits
// of its exact value. std::to_chars produces the same digits.
#include "cpp/core/array_text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "cpp/core/read_number.h"

namespace minidnn {
namespace {

// The fewest digits that identify a number. The value is 0.d1d2d3... times 10 to the power of whole.
struct Shortest {
  char digits[24];
  int count = 0;
  int whole = 0;  // digits before the decimal point; zero or negative for numbers below 0.1
};

// Reads a number in scientific notation, such as 1.25e-03.
Shortest parsed(const char* begin, const char* end) {
  Shortest s;
  const char* e = std::find(begin, end, 'e');
  for (const char* c = begin; c != e; ++c)
    if (*c != '.') s.digits[s.count++] = *c;
  while (s.count > 1 && s.digits[s.count - 1] == '0') --s.count;
  std::from_chars(e + 1 + (e[1] == '+'), end, s.whole);
  ++s.whole;
  return s;
}

template <class T> Shortest shortest(T magnitude) {
  char text[32];
  return parsed(text, std::to_chars(text, text + sizeof text, magnitude, std::chars_format::scientific).ptr);
}

// Whether a decimal number is nearer to `magnitude` than to its neighbours, or half-way and its last bit is 0.
template <class T> bool identifies(const char* begin, const char* end, T magnitude) {
  T read{};
  read_number({begin, end}, read);
  return read == magnitude;
}
bool identifies(const char* begin, const char* end, float16 magnitude) {
  double read = 0;
  read_number({begin, end}, read);
  const auto limit = [&](int step) {
    float16 v = magnitude;
    v.bits = uint16_t(v.bits + step);
    return (double(magnitude) + (v.bits == 0x7c00 ? 65536.0 : double(v))) / 2;
  };
  const double low = limit(-1), high = limit(1);
  return magnitude.bits & 1 ? low < read && read < high : low <= read && read <= high;
}

template <class T> bool is_power_of_two(T magnitude) {
  int exponent;
  return std::frexp(double(magnitude), &exponent) == 0.5;
}

// Adds one to the last digit of a decimal number.
void increment(char* begin, char* end) {
  for (char* c = end; c-- != begin;) {
    if (*c == '.') continue;
    if (*c != '9') {
      ++*c;
      return;
    }
    *c = '0';
  }
}

// std::to_chars has no float16. Five digits identify every float16.
Shortest shortest(float16 magnitude) {
  if (double(magnitude) == 0) return shortest(0.0f);
  char text[32];
  char* end = text;
  for (int fraction = 0; fraction < 5; ++fraction) {
    end = std::to_chars(text, text + sizeof text, double(magnitude), std::chars_format::scientific, fraction).ptr;
    if (identifies(text, end, magnitude)) break;
    if (!is_power_of_two(magnitude)) continue;
    increment(text, std::find(text, end, 'e'));
    if (identifies(text, end, magnitude)) break;
  }
  return parsed(text, end);
}

// How all numbers of an array are written.
struct NumberFormat {
  bool scientific = false;
  bool unique = true;  // the fewest digits that identify the number; else `precision` digits of its exact value
  bool keep_zeros =
      true;            // zeros fill the digits after the decimal point up to the least number; else none are at the end
  int precision = -1;  // the most digits after the decimal point; -1: any
  int min_digits = -1;  // the least digits after the decimal point; -1: those that identify the number
  int left = 0;         // the width before the decimal point, with the sign
  int right = 0;        // the width after the decimal point; scientific notation does not use it
  int exponent_digits = 2;
  char sign = '-';
};

// Appends the digits of a number, which is at least zero, with a decimal point and without the exponent. Returns the
// exponent.
template <class T> int append_digits(std::string& out, T magnitude, const NumberFormat& f) {
  char exact[1024];
  const size_t begin = out.size();
  const double value = magnitude;
  const auto append_exact = [&](std::chars_format notation, int fraction, bool must_identify) {
    char* end = std::to_chars(exact, exact + sizeof exact, value, notation, fraction).ptr;
    char* e = std::find(exact, end, 'e');
    // Numbers just below a power of two are half as far apart as those above it. If the nearest decimal number is below
    // it and identifies another number, NumPy writes the next decimal number, which identifies the power of two.
    if (must_identify && is_power_of_two(magnitude) && !identifies(exact, end, magnitude)) increment(exact, e);
    out.append(exact, size_t(e - exact));
    int exponent = 0;
    if (e != end) std::from_chars(e + 1 + (e[1] == '+'), end, exponent);
    return exponent;
  };
  const auto notation = f.scientific ? std::chars_format::scientific : std::chars_format::fixed;
  int exponent = 0;
  if (f.unique) {
    const Shortest s = shortest(magnitude);
    const int whole = f.scientific ? 1 : s.whole;
    const int identifying = std::max(0, s.count - whole);
    int fraction = std::max(identifying, f.min_digits);
    if (f.precision >= 0) fraction = std::min(fraction, f.precision);
    // If there is a least number of digits, NumPy writes all digits of an integer, where else zeros stand for the last.
    if (fraction != identifying || (f.min_digits >= 0 && s.count < whole)) {
      exponent = append_exact(notation, fraction, fraction >= identifying);
    } else {
      exponent = s.whole - 1;
      const int before = std::clamp(whole, 0, s.count);
      out.append(s.digits, size_t(before));
      out.append(size_t(std::max(0, whole - before)), '0');
      if (whole <= 0) out += '0';
      out += '.';
      out.append(size_t(std::max(0, -whole)), '0');
      out.append(s.digits + before, size_t(s.count - before));
    }
  } else {
    exponent = append_exact(notation, f.precision, false);
  }
  size_t point = out.find('.', begin);
  if (point == std::string::npos) {
    point = out.size();
    out += '.';
  }
  out.resize(out.find_last_not_of('0') + 1);
  if (f.keep_zeros) {
    const size_t fraction = size_t(std::max(0, f.unique ? f.min_digits : f.precision));
    if (out.size() < point + 1 + fraction) out.resize(point + 1 + fraction, '0');
  }
  return exponent;
}

template <class T> void append_number(std::string& out, T value, const NumberFormat& f) {
  const size_t begin = out.size();
  const bool negative = std::signbit(float(value));
  if (negative) out += '-';
  else if (f.sign == '+') out += '+';
  T magnitude = value;
  if (negative) magnitude = T(-value);
  const int exponent = append_digits(out, magnitude, f);
  const int before = int(out.find('.', begin) - begin), after = int(out.size() - begin) - before - 1;
  if (f.scientific) {
    const std::string digits = cat(std::abs(exponent));
    out += exponent < 0 ? "e-" : "e+";
    out.append(size_t(std::max(0, f.exponent_digits - int(digits.size()))), '0');
    out += digits;
  } else {
    out.append(size_t(std::max(0, f.right - after)), ' ');
  }
  out.insert(begin, size_t(std::max(0, f.left - before)), ' ');
}

// Whether NumPy writes an array in scientific notation. Its comparisons and its quotient have the dtype of the array.
template <class T> bool is_scientific(const std::vector<T>& finite, const ArrayTextOptions& o) {
  bool any = false;
  T smallest{}, largest{};
  for (T v : finite) {
    if (v == T(0)) continue;
    if (std::signbit(float(v))) v = T(-v);
    if (!any || v < smallest) smallest = v;
    if (!any || v > largest) largest = v;
    any = true;
  }
  if (!any) return false;
  return largest >= o.scientific_from || (!o.suppress && (smallest < T(0.0001) || T(largest / smallest) > T(1000)));
}

// Writes the elements of one array of floating numbers.
template <class T> class FloatText {
 public:
  FloatText(const std::vector<T>& values, const ArrayTextOptions& o) : options_(o) {
    std::vector<T> finite;
    bool negative = false, negative_inf = false;
    for (T v : values) {
      if (std::isfinite(double(v))) {
        finite.push_back(v);
        negative |= std::signbit(float(v));
      } else {
        negative_inf |= double(v) < 0;
      }
    }
    format_.sign = o.sign;
    if (!finite.empty()) set_widths(finite);
    if (o.sign == ' ' && !negative) ++format_.left;
    if (finite.size() == values.size()) return;
    const int after = format_.right + 1;
    format_.left = std::max(
        {format_.left, int(o.nan.size()) - after, int(o.inf.size()) + int(o.sign != '-' || negative_inf) - after});
  }

  void append(std::string& out, T value) const {
    if (std::isfinite(double(value))) return append_number(out, value, format_);
    const bool nan = std::isnan(double(value));
    const char* sign = !nan && double(value) < 0 ? "-" : format_.sign == '+' ? "+" : "";
    const std::string text = cat(sign, nan ? options_.nan : options_.inf);
    out.append(size_t(std::max(0, format_.left + format_.right + 1 - int(text.size()))), ' ');
    out += text;
  }

 private:
  // Writes all numbers with as many digits as each of them needs, and sets the widths of the format from the longest.
  void set_widths(const std::vector<T>& finite) {
    NumberFormat& f = format_;
    const bool fixed = options_.float_mode == "fixed";
    f.scientific = is_scientific(finite, options_);
    f.unique = !fixed;
    f.keep_zeros = fixed;
    if (options_.float_mode != "unique") f.precision = int(options_.precision);
    int left = 0, right = 0, exponent = 0;
    std::string text;
    for (T v : finite) {
      text.clear();
      append_number(text, v, f);
      const int point = int(text.find('.')), end = int(std::min(text.find('e'), text.size()));
      left = std::max(left, point);
      right = std::max(right, end - point - 1);
      exponent = std::max(exponent, int(text.size()) - end - 2);
    }
    f.left = left;
    f.right = right;
    f.min_digits = 0;
    if (f.scientific || fixed || options_.float_mode == "maxprec_equal") {
      f.keep_zeros = true;
      f.precision = f.min_digits = right;
    }
    if (f.scientific) {
      f.exponent_digits = exponent;
      f.right = right + exponent + 2;  // the width of NaN and infinity
    }
  }

  const ArrayTextOptions& options_;
  NumberFormat format_;
};

// Writes the elements of one array of integers.
class IntText {
 public:
  IntText(const std::vector<int64_t>& values, const ArrayTextOptions& o) : sign_(o.sign) {
    const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
    if (sign_ == ' ' && *smallest < 0) sign_ = '-';
    width_ = std::max(cat(*largest).size() + (*largest >= 0 && sign_ != '-'), cat(*smallest).size());
  }
  void append(std::string& out, int64_t value) const {
    std::string text = cat(value);
    if (value >= 0 && sign_ != '-') text.insert(text.begin(), sign_);
    if (text.size() < width_) out.append(width_ - text.size(), ' ');
    out += text;
  }

 private:
  char sign_;
  size_t width_;
};

struct BoolText {
  bool scalar;
  void append(std::string& out, bool value) const { out += !value ? "False" : scalar ? "True" : " True"; }
};

// Arranges the texts of elements in lines and brackets.
struct Arrangement {
  const TensorDesc& desc;
  const ArrayTextOptions& options;
  std::function<void(std::string&, int64_t offset)> append_element;

  bool has_dots(int64_t axis) const { return options.summarize && 2 * options.edge_items < desc.shape[axis]; }

  // Calls visit(index, last) for the elements of an axis that are written, and dots() between its two ends.
  template <class Visit, class Dots> void each(int64_t axis, Visit&& visit, Dots&& dots) const {
    const int64_t size = desc.shape[axis], edge = options.edge_items;
    for (int64_t i = 0; i < size; ++i) {
      if (has_dots(axis) && i == edge) {
        dots();
        i = size - edge;
      }
      visit(i, i + 1 == size);
    }
  }

  void each_offset(int64_t axis, int64_t offset, const std::function<void(int64_t)>& visit) const {
    if (axis == desc.rank) return visit(offset);
    each(axis, [&](int64_t i, bool) { each_offset(axis + 1, offset + i * desc.stride[axis], visit); }, [] {});
  }

  // Appends the elements of the axes from `axis` on. Lines after the first begin with `indent` spaces.
  void append(std::string& out, int64_t axis, int64_t offset, int64_t indent, int64_t width) const {
    if (axis == desc.rank) return append_element(out, offset);
    out += '[';
    if (axis == desc.rank - 1) {
      append_row(out, offset, size_t(indent), width - 1);
    } else {
      const std::string separator =
          cat(",", std::string(size_t(desc.rank - axis - 1), '\n'), std::string(size_t(indent), ' '));
      each(
          axis,
          [&](int64_t i, bool last) {
            append(out, axis + 1, offset + i * desc.stride[axis], indent + 1, width - 1);
            if (!last) out += separator;
          },
          [&] { out += "..." + separator; });
    }
    out += ']';
  }

  void append_row(std::string& out, int64_t offset, size_t indent, int64_t width) const {
    std::string line(indent, ' '), word;
    size_t skipped = indent;  // what precedes the first line is there already
    const auto add = [&] {
      if (int64_t(line.size() + word.size()) > width && line.size() > indent) {
        line.resize(line.find_last_not_of(' ') + 1);
        if (line.size() > skipped) out.append(line, skipped);
        out += '\n';
        line.assign(indent, ' ');
        skipped = 0;
      }
      line += word;
    };
    const int64_t axis = desc.rank - 1;
    each(
        axis,
        [&](int64_t i, bool last) {
          word.clear();
          append_element(word, offset + i * desc.stride[axis]);
          add();
          if (!last) line += ", ";
        },
        [&] {
          word = "...";
          add();
          line += ", ";
        });
    out.append(line, skipped);
  }
};

}  // namespace

std::string array_text(const Tensor& t, const ArrayTextOptions& options) {
  if (t.desc.numel() == 0) return "[]";
  return with_any(t.desc.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr bool kInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;
    using Value = std::conditional_t<kInteger, int64_t, std::conditional_t<std::is_same_v<T, bfloat16>, float, T>>;
    const auto read = [&](int64_t offset) { return Value(static_cast<const T*>(t.data)[offset]); };
    Arrangement arrangement{t.desc, options, {}};
    std::vector<Value> values;
    arrangement.each_offset(0, 0, [&](int64_t offset) { values.push_back(read(offset)); });
    const auto text = [&] {
      if constexpr (kInteger) return IntText(values, options);
      else if constexpr (std::is_same_v<T, bool>) return BoolText{t.desc.rank == 0};
      else return FloatText<Value>(values, options);
    }();
    arrangement.append_element = [&](std::string& out, int64_t offset) { text.append(out, read(offset)); };
    std::string out;
    arrangement.append(out, 0, 0, options.prefix_width + 1, options.line_width);
    return out;
  });
}

}  // namespace minidnn
