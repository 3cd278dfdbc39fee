// Parses the output of DotText: accepts the part of Graphviz' language that DotText uses, and
// nothing that is malformed.
//
//   DotPicture picture = ParseDot(DotText(graph)).value();
//   picture.clusters["cluster_3"];                   // nodes of the e-class 3
#ifndef ATHANOR_COMPILER_EGRAPH_DOT_TESTING_H_
#define ATHANOR_COMPILER_EGRAPH_DOT_TESTING_H_

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace athanor::egraph {

struct DotPicture {
  struct Edge {
    std::string from, to;
    std::map<std::string, std::string> attributes;
  };
  std::map<std::string, std::set<std::string>> clusters;  // nodes by cluster
  std::map<std::string, std::string> labels;              // labels of nodes and clusters
  std::vector<Edge> edges;
};

class DotReader {
 public:
  explicit DotReader(std::string_view text) : text_(text) { Next(); }

  absl::StatusOr<DotPicture> Read() {
    if (Expect("digraph") && Take() && Expect("{")) Statements("");
    if (error_.empty() && !token_.empty()) Fail("nothing more");
    for (const DotPicture::Edge& edge : picture_.edges) {
      for (const std::string& end : {edge.from, edge.to}) {
        if (!nodes_.contains(end))
          error_ = absl::StrCat("an edge names ", end, ", which is no node");
      }
    }
    if (!error_.empty()) return absl::InvalidArgumentError(error_);
    return picture_;
  }

 private:
  // Sets token_ to the next token: a name, a quoted text without its quotes, "->" or one character;
  // empty at the end.
  void Next() {
    token_.clear();
    quoted_ = false;
    Skip();
    if (at_ == text_.size()) return;
    if (text_[at_] == '"') return Quoted();
    if (IsName(text_[at_])) {
      while (at_ < text_.size() && IsName(text_[at_])) token_ += text_[at_++];
    } else {
      const size_t length = text_.substr(at_, 2) == "->" ? 2 : 1;
      token_ = std::string(text_.substr(at_, length));
      at_ += length;
    }
  }
  void Skip() {
    while (at_ < text_.size()) {
      if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  void Quoted() {
    quoted_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size()) token_ += text_[at_];
    }
    if (at_ >= text_.size()) {
      Fail("a quote that ends");
    } else {
      ++at_;
    }
  }
  static bool IsName(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  bool Fail(const char* wanted) {
    if (error_.empty()) {
      error_ =
          absl::StrCat("before byte ", at_, ": \"", token_, "\", where there must be ", wanted);
    }
    return false;
  }
  bool Is(const char* token) const { return !quoted_ && token_ == token; }
  bool Expect(const char* token) {
    if (!Is(token)) return Fail(token);
    Next();
    return true;
  }
  // Takes a name or a text.
  bool Take(std::string* into = nullptr) {
    if (!quoted_ && (token_.empty() || !IsName(token_[0]))) return Fail("a name");
    if (into != nullptr) *into = token_;
    Next();
    return true;
  }

  // Reads up to and including the closing brace.
  bool Statements(const std::string& cluster) {
    while (error_.empty() && !Is("}")) Statement(cluster);
    return error_.empty() && Expect("}");
  }
  bool Statement(const std::string& cluster) {
    std::string name, value;
    if (Is("subgraph")) {
      Next();
      if (!Take(&name) || !Expect("{")) return false;
      if (!picture_.clusters.try_emplace(name).second) return Fail("another cluster");
      return Statements(name);
    }
    if (!Take(&name)) return false;
    std::map<std::string, std::string> attributes;
    if (Is("=")) {
      Next();
      if (!Take(&value)) return false;
      if (name == "label") picture_.labels[cluster] = value;
      return true;
    }
    if (Is("->")) {
      Next();
      if (!Take(&value) || !Attributes(&attributes)) return false;
      picture_.edges.push_back({name, value, attributes});
      return true;
    }
    if (!Attributes(&attributes)) return false;
    if (name == "node") return true;  // default attributes of nodes
    if (!nodes_.insert(name).second) return Fail("another node");
    picture_.clusters[cluster].insert(name);
    picture_.labels[name] = attributes["label"];
    return true;
  }
  bool Attributes(std::map<std::string, std::string>* attributes) {
    if (!Is("[")) return true;
    Next();
    while (error_.empty() && !Is("]")) {
      std::string name;
      if (!Take(&name) || !Expect("=") || !Take(&(*attributes)[name])) return false;
    }
    return Expect("]");
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string token_;
  bool quoted_ = false;
  std::string error_;
  std::set<std::string> nodes_;
  DotPicture picture_;
};

// Returns INVALID_ARGUMENT for unclosed braces or quotes, an edge to something that is no node, and
// duplicate names.
inline absl::StatusOr<DotPicture> ParseDot(std::string_view text) { return DotReader(text).Read(); }

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_DOT_TESTING_H_
